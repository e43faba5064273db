"""Reductions that leave NaN out: nanprod, nanstd, nanmedian, nanargmax and their kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.numpy.creation import asarray
from lumjax.numpy.indexing import where
from lumjax.numpy.logic import isnan
from lumjax.numpy.manipulation import ravel
from lumjax.numpy.reductions import all as _all
from lumjax.numpy.reductions import argmax, argmin, cumprod, cumsum, nanmean, prod
from lumjax.numpy.reductions import sum as _sum
from lumjax.numpy.safe import safe_sqrt
from lumjax.numpy.sorting import sort
from lumjax.trace.core import aval_of

ArrayLike = Any
Axis = Any


def _without(a: ArrayLike, fill: Any) -> Any:
    """The array with NaN replaced."""
    value = asarray(a)
    if not dt.is_inexact(aval_of(value).dtype):
        return value
    return where(isnan(value), np.asarray(fill, aval_of(value).dtype), value)


def nanprod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Any:
    """The product of what is not NaN.

    >>> float(nanprod(asarray([2.0, np.nan, 3.0])))
    6.0
    """
    return prod(_without(a, 1), axis, dtype, out, keepdims, initial, where)


def nancumsum(a: ArrayLike, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """Cumulative sums, counting NaN as 0."""
    return cumsum(_without(a, 0), axis, dtype, out)


def nancumprod(a: ArrayLike, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """Cumulative products, counting NaN as 1."""
    return cumprod(_without(a, 1), axis, dtype, out)


def _nanarg(
    f: Callable[..., Any], fill: float, a: ArrayLike, axis: Any, keepdims: bool | None
) -> Any:
    value = asarray(a)
    found = f(_without(value, fill), axis, keepdims=bool(keepdims))
    if not dt.is_inexact(aval_of(value).dtype):
        return found
    return where(_all(isnan(value), axis, keepdims=bool(keepdims)), -1, found)


def nanargmax(
    a: ArrayLike, axis: Any = None, out: None = None, keepdims: bool | None = None
) -> Any:
    """The position of the greatest element that is not NaN; -1 where all are.

    >>> int(nanargmax(asarray([1.0, np.nan, 3.0])))
    2
    """
    del out
    return _nanarg(argmax, -np.inf, a, axis, keepdims)


def nanargmin(
    a: ArrayLike, axis: Any = None, out: None = None, keepdims: bool | None = None
) -> Any:
    """The position of the least element that is not NaN; -1 where all are."""
    del out
    return _nanarg(argmin, np.inf, a, axis, keepdims)


def nanvar(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Any:
    """The variance of what is not NaN; NaN where fewer than ddof + 1 elements are left.

    >>> float(nanvar(asarray([1.0, np.nan, 3.0])))
    1.0
    """
    del out
    value = asarray(a)
    if not dt.is_inexact(aval_of(value).dtype):
        value = ops.cast(value, np.float64)
    result = aval_of(value).dtype if dtype is None else dt.canonicalize(dtype)
    wide = dt.promote((aval_of(value).dtype, False), (result, False))[0]
    value = ops.cast(value, dt.accumulation_dtype(wide))
    absent = isnan(value)
    if where is not None:
        absent = ops.or_(absent, ops.not_(ops.cast(_spread(where, value), np.bool_)))
    nothing = np.asarray(np.nan, aval_of(value).dtype)
    kept = _where(absent, nothing, value)
    centre = nanmean(kept, axis, keepdims=True) if mean is None else asarray(mean)
    off = _where(absent, np.zeros((), aval_of(value).dtype), value - centre)
    square = ops.square(off)
    if dt.is_complex(aval_of(off).dtype):
        square = ops.add(ops.square(ops.real(off)), ops.square(ops.imag(off)))
    total = _sum(square, axis, keepdims=keepdims)
    count = _sum(ops.cast(ops.not_(absent), np.int32), axis, keepdims=keepdims) - ddof
    kind = aval_of(total).dtype
    ok = ops.gt(count, 0)
    out_value = total / ops.cast(_where(ok, count, 1), kind)
    return ops.cast(_where(ok, out_value, np.asarray(np.nan, kind)), _real(result))


_where = where


def _real(dtype: dt.DType) -> dt.DType:
    return np.dtype(f"f{dtype.itemsize // 2}") if dt.is_complex(dtype) else dtype


def _spread(mask: Any, like: Any) -> Any:
    m = asarray(mask)
    shape = aval_of(like).shape
    rank = aval_of(m).ndim
    return ops.broadcast_in_dim(m, shape, tuple(range(len(shape) - rank, len(shape))))


def nanstd(
    a: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Any:
    """The standard deviation of what is not NaN."""
    return safe_sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


# ---- order statistics


def nanquantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Quantiles of what is not NaN, q between 0 and 1; NaN where nothing is left.

    method: "linear", "lower", "higher", "nearest" or "midpoint".

    >>> float(nanquantile(asarray([1.0, np.nan, 3.0]), 0.5))
    2.0
    """
    del out, overwrite_input
    value, level = asarray(a), asarray(q)
    value, level = ops.promote_values(
        *[v if dt.is_inexact(aval_of(v).dtype) else ops.cast(v, np.float64) for v in (value, level)]
    )
    rank = aval_of(value).ndim
    axes = ops.canonical_axes("jnp.nanquantile", axis, rank)
    kept = [k for k in range(rank) if k not in axes]
    shape: Any = aval_of(value).shape
    rows = ops.transpose(value, (*kept, *axes))
    count = int(np.prod([shape[k] for k in axes]))
    lead = tuple(shape[k] for k in kept)
    rows = sort(ops.reshape(rows, (*lead, count)), axis=-1)  # NaN comes last
    number = _sum(ops.cast(ops.not_(isnan(rows)), aval_of(level).dtype), -1)
    levels = ravel(level)
    found = [_one_quantile(rows, number, levels[k], method) for k in range(aval_of(levels).size)]
    out_shape = tuple(1 if k in axes else n for k, n in enumerate(shape)) if keepdims else lead
    stacked = [ops.reshape(f, (1, *out_shape)) for f in found]
    if not stacked:
        return ops.full((*aval_of(level).shape, *out_shape), 0, aval_of(rows).dtype)
    joined = ops.concatenate(stacked, 0)
    return ops.reshape(joined, (*aval_of(level).shape, *out_shape))


def _one_quantile(rows: Any, number: Any, level: Any, method: str) -> Any:
    place = level * (number - 1)
    last = ops.max(number - 1, ops.full(aval_of(number).shape, 0, aval_of(number).dtype))
    low = ops.clamp(0.0, ops.floor(place), last)
    high = ops.clamp(0.0, ops.ceil(place), last)

    def at(position: Any) -> Any:
        index = ops.expand_dims(ops.cast(position, np.int32), (-1,))
        return ops.squeeze(ops.take_along_axis(rows, index, aval_of(rows).ndim - 1), (-1,))

    one, two = at(low), at(high)
    match method:
        case "linear":
            weight = place - ops.floor(place)
            out = one * (1 - weight) + two * weight
        case "lower":
            out = one
        case "higher":
            out = two
        case "nearest":
            out = where(place - ops.floor(place) <= 0.5, one, two)
        case _:
            out = (one + two) * 0.5
    return where(number > 0, out, np.asarray(np.nan, aval_of(rows).dtype))


def nanpercentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Percentiles of what is not NaN, q between 0 and 100."""
    level = asarray(q)
    if not dt.is_inexact(aval_of(level).dtype):
        level = ops.cast(level, np.float64)
    return nanquantile(a, level / 100, axis, out, overwrite_input, method, keepdims)


def nanmedian(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:
    """The median of what is not NaN.

    >>> float(nanmedian(asarray([1.0, np.nan, 3.0])))
    2.0
    """
    return nanquantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)
