"""Array: the concrete value users hold. An aval and a buffer, nothing else."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lumjax import dtype as dt
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
