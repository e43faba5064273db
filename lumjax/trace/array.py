"""Array: the concrete value users hold. An aval and a buffer, nothing else."""

from __future__ import annotations

from typing import Any, ClassVar

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


class Deleted(Array):
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
            got=f"{self._aval}, {_gone.__get__(self)}",
            fix="use the result of that call instead, or do not donate the argument",
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The length that each axis had."""
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
        """The number of elements that there were."""
        return self.aval.size  # type: ignore[return-value]

    def is_deleted(self) -> bool:
        """Whether the array was deleted: yes."""
        return True

    def __repr__(self) -> str:
        return f"Array({self.aval}, {_gone.__get__(self)})"


_gone: Any = Array.__dict__["data"]


def delete(x: Array, why: str) -> None:
    """Let go of an array's memory; from now on its use raises DonationError, which says `why`."""
    if type(x) is Array:
        _ = x.aval  # to be remembered
        _gone.__set__(x, why)
        x.__class__ = Deleted
