"""Array: the concrete value users hold. An aval and a buffer, nothing else."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import DonationError
from lumjax.trace.aval import ShapedArray


class Array:
    """An immutable n-dimensional array.

    `data` is the buffer, a NumPy array that nobody writes to. Operators and methods are installed
    by `lumjax.ops` and `lumjax.numpy`.
    """

    __slots__ = ("__weakref__", "_aval", "data", "weak")
    __array_priority__: ClassVar[int] = 1000  # NumPy must defer to our operators
    __hash__ = None  # type: ignore[assignment]  # == is elementwise

    def __init__(self, data: np.ndarray[Any, Any], weak: bool = False) -> None:
        self.data = data
        self.weak = weak
        self._aval: ShapedArray | None = None

    @property
    def aval(self) -> ShapedArray:
        """The abstract value."""
        if self._aval is None:
            self._aval = ShapedArray(self.data.shape, self.data.dtype, self.weak)
        return self._aval

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self.data.shape

    @property
    def dtype(self) -> dt.DType:
        """The element type."""
        return self.data.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.data.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.data.size


class _Typed(Array):
    """An array whose type is known (`_aval` is set), and whose slot `data` holds no elements."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self.aval.shape  # type: ignore[return-value]

    @property
    def dtype(self) -> dt.DType:
        """The element type."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.aval.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size  # type: ignore[return-value]


class Elsewhere(Protocol):
    """Elements that lie somewhere else than in the host's memory."""

    def host(self) -> np.ndarray[Any, Any]:
        """A copy of them, made once."""
        ...

    def ready(self) -> None:
        """Wait until they are computed."""
        ...

    def interface(self) -> dict[str, Any]:
        """`__cuda_array_interface__`; AttributeError if they are not a GPU's."""
        ...

    def exported(self, stream: Any, max_version: Any) -> Any:
        """A capsule of DLPack; None if they are not a GPU's."""
        ...

    def place(self) -> tuple[int, int]:
        """DLPack's name of the device."""
        ...


class Remote(_Typed):
    """An array on a device. Its elements come to the host when Python reads them."""

    __slots__ = ()

    @property
    def data(self) -> Any:
        """The elements, copied to the host by the first look at them."""
        return _slot.__get__(self).host()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Where the elements are, for CuPy and others."""
        return _slot.__get__(self).interface()

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self.data, self.weak)


class Deleted(_Typed):
    """What an array becomes when its memory was given away: its type is known, its elements are
    not. The slot `data` then says who has it.
    """

    __slots__ = ()

    @property
    def data(self) -> Any:
        """Raises DonationError."""
        assert self._aval is not None, "kept by `delete`"
        raise DonationError(
            operation="use of an array",
            required="an array that has not been deleted",
            got=f"{self._aval}, {_slot.__get__(self)}",
            fix="use the result of that call instead, or do not donate the argument",
        )

    def is_deleted(self) -> bool:
        """Whether the array was deleted: yes."""
        return True

    def __repr__(self) -> str:
        return f"Array({self.aval}, {_slot.__get__(self)})"


_slot: Any = Array.__dict__["data"]


def remote(elements: Elsewhere, aval: ShapedArray) -> Array:
    """An array of this type whose elements are elsewhere."""
    made = Remote.__new__(Remote)
    _slot.__set__(made, elements)
    made.weak, made._aval = aval.weak, aval  # pyright: ignore[reportPrivateUsage]
    return made


def stored(x: Array) -> Any:
    """What an array has of its elements: a NumPy array, or where they are."""
    return _slot.__get__(x) if type(x) is Remote else x.data


def again(x: Array) -> Array:
    """A new array of the same elements."""
    return remote(stored(x), x.aval) if type(x) is Remote else Array(x.data, x.weak)


def delete(x: Array, why: object) -> None:
    """Let go of an array's memory; from now on its use raises DonationError, which says `why`."""
    if type(x) in (Array, Remote):
        _ = x.aval  # to be remembered
        _slot.__set__(x, why)
        x.__class__ = Deleted
