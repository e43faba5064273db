"""Abstract values: what a traced value is known to be before it exists."""

from __future__ import annotations

import importlib
import math
from typing import Any

from lumjax import dtype as dt
from lumjax.record import record
from lumjax.trace.dim import Dim


@record
class ShapedArray:
    """A shape, a dtype, and whether the dtype is weak (came from a Python scalar and yields in
    promotion).
    """

    shape: tuple[Dim, ...]
    dtype: dt.DType
    weak: bool = False

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def weak_type(self) -> bool:
        """JAX's name for `weak`."""
        return self.weak

    @property
    def sharding(self) -> Any:
        """Where a value of this type lies: no axis of it is divided over a mesh."""
        above = importlib.import_module("lumjax.sharding")  # not known down here
        spec = above.PartitionSpec(*(None,) * self.ndim)
        return above.NamedSharding(above.AbstractMesh((), ()), spec)

    def strip_weak(self) -> ShapedArray:
        """The same aval with a strong dtype."""
        return ShapedArray(self.shape, self.dtype) if self.weak else self

    def with_shape(self, shape: tuple[Dim, ...]) -> ShapedArray:
        """The same dtype and weakness at another shape."""
        return ShapedArray(shape, self.dtype, self.weak)

    def with_dtype(self, dtype: dt.DType, weak: bool = False) -> ShapedArray:
        """The same shape at another dtype."""
        return ShapedArray(self.shape, dtype, weak)

    def tangent(self) -> ShapedArray:
        """The aval of a tangent or cotangent of this value: float0 unless the dtype is inexact."""
        return ShapedArray(self.shape, dt.tangent_dtype(self.dtype), self.weak)

    def to_tangent_aval(self) -> ShapedArray:
        """`tangent` under JAX's name."""
        return self.tangent()

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{dt.short_name(self.dtype)}[{dims}]"
