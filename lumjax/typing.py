"""Types for annotations: Array (traced values included), ArrayLike, DTypeLike, Shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from lumjax.trace.array import Array as _Concrete
from lumjax.trace.core import Tracer as _Tracer


class _ArrayType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (_Concrete, _Tracer))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return type.__subclasscheck__(cls, subclass) or issubclass(subclass, (_Concrete, _Tracer))


class Array(metaclass=_ArrayType):
    """The type of arrays, for `isinstance` and annotations; traced values are instances too.

    >>> import lumjax.numpy as jnp
    >>> isinstance(jnp.zeros(2), Array), isinstance(2.0, Array)
    (True, False)
    """

    # What annotated code may rely on; the classes behind it get these from lumjax.numpy.
    shape: tuple[Any, ...]
    dtype: np.dtype[Any]
    ndim: int
    size: int

    def __new__(cls, *_: Any, **__: Any) -> Array:
        """Refuse: arrays are made by functions."""
        raise TypeError("make arrays with jnp.array, jnp.zeros and their relatives")

    def __getattr__(self, name: str) -> Any: ...


class SupportsDType(Protocol):
    """Anything with a dtype."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        ...


ArrayLike: TypeAlias = Array | np.ndarray[Any, Any] | np.generic | bool | int | float | complex
DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any] | SupportsDType
Shape: TypeAlias = Sequence[int]
