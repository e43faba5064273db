"""Extrema of complex numbers, ordered by their real part, then by their imaginary part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import ops
from lumjax.grad.forward import stop_gradient
from lumjax.numpy.creation import full_like, zeros_like
from lumjax.ops.reduce import spread
from lumjax.trace.core import aval_of


def larger(x: Any, y: Any) -> Any:
    """The larger of two complex arrays of one shape and dtype; ties share the gradient."""
    return _pick(x, y, ops.gt)


def smaller(x: Any, y: Any) -> Any:
    """The smaller of two complex arrays of one shape and dtype."""
    return _pick(x, y, ops.lt)


def _pick(x: Any, y: Any, wins: Any) -> Any:
    a, b, c, d = ops.real(x), ops.real(y), ops.imag(x), ops.imag(y)
    tie = ops.eq(a, b)
    first = ops.or_(wins(a, b), ops.and_(tie, wins(c, d)))
    second = ops.or_(wins(b, a), ops.and_(tie, wins(d, c)))
    # Neither wins: they are equal, or there is a NaN, which their mean is too.
    mean = ops.mul(ops.add(x, y), full_like(x, 0.5))
    return ops.select(first, x, ops.select(second, y, mean))


def largest(x: Any, axes: Sequence[int]) -> Any:
    """The largest element over `axes`; NaN where there is one."""
    return _extreme(x, axes, ops.reduce_max, -np.inf)


def smallest(x: Any, axes: Sequence[int]) -> Any:
    """The smallest element over `axes`; NaN where there is one."""
    return _extreme(x, axes, ops.reduce_min, np.inf)


def _extreme(x: Any, axes: Sequence[int], reduce: Any, worst: float) -> Any:
    """Its value from the parts; its derivative shared by all elements that attain it."""
    fixed = stop_gradient(x)
    real, imag = ops.real(fixed), ops.imag(fixed)
    best = reduce(real, axes)
    unordered = ops.or_(ops.ne(real, real), ops.ne(imag, imag))
    row = ops.or_(ops.eq(real, spread(best, x, axes)), unordered)
    value = ops.complex(best, reduce(ops.select(row, imag, full_like(imag, worst)), axes))
    attained = ops.eq(fixed, spread(value, x, axes))
    moved = ops.select(attained, ops.sub(x, fixed), zeros_like(x))
    count = ops.reduce_sum(ops.cast(attained, aval_of(x).dtype), axes)
    count = ops.select(ops.eq(count, zeros_like(count)), full_like(count, 1), count)
    return ops.add(value, ops.div(ops.reduce_sum(moved, axes), count))
