"""Order: sort, argsort, quantiles, sets, searching."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError, DTypeError, ShapeError
from lumjax.numpy.creation import asarray
from lumjax.numpy.indexing import concrete_array, getitem
from lumjax.numpy.manipulation import moveaxis
from lumjax.numpy.reductions import any as _any
from lumjax.trace.core import aval_of

ArrayLike = Any


def _flat_if_none(a: Any, axis: int | None) -> tuple[Any, int]:
    value = asarray(a)
    if axis is None:
        return ops.reshape(value, (aval_of(value).size,)), 0
    return value, ops.canonical_axis("sort", axis, aval_of(value).ndim)


def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """The elements along an axis in ascending order, NaN last.

    >>> sort(asarray([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    del kind, order
    value, axis = _flat_if_none(a, axis)
    out = ops.sort(value, axis, stable)
    return ops.rev(out, (axis,)) if descending else out


def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: Any = None,
) -> Any:
    """The indices that sort along an axis; equal elements keep their order."""
    del kind, order, stable
    value, axis = _flat_if_none(a, axis)
    if dtype is not None:
        return ops.cast(argsort(value, axis, descending=descending), dtype)
    if not descending:
        return ops.argsort(value, axis, dt.canonicalize(np.int64))
    # Sorting the reversed array and reversing keeps equal elements in order.
    positions = ops.argsort(ops.rev(value, (axis,)), axis, dt.canonicalize(np.int64))
    last = aval_of(value).shape[axis] - 1
    return ops.rev(ops.sub(last, positions), (axis,))


def searchsorted(
    a: ArrayLike, v: ArrayLike, side: str = "left", sorter: Any = None, *, method: str = "scan"
) -> Any:
    """Where to insert `v` into the sorted vector `a` to keep it sorted: int32 of v's shape.

    Equal elements are left to the right of the place with side "left", to its left with "right";
    NaN comes last. `sorter` lists the indices that sort `a`. Every `method` is a binary search.

    >>> searchsorted(asarray([1, 3, 5]), asarray([3, 9]))
    Array([1, 3], dtype=int32)
    """
    if method not in ("scan", "scan_unrolled", "sort", "compare_all"):
        raise ArgumentValueError(
            operation="jnp.searchsorted",
            required="method 'scan', 'scan_unrolled', 'sort' or 'compare_all'",
            got=repr(method),
            fix="leave it out",
        )
    if aval_of(asarray(a)).ndim != 1:
        raise ShapeError(
            operation="jnp.searchsorted",
            required="a sorted vector",
            got=str(aval_of(asarray(a))),
            fix="ravel it, or vmap over its rows",
        )
    keys, values = ops.promote_values(asarray(a), asarray(v))
    if sorter is not None:
        keys = getitem(keys, asarray(sorter))
    if side not in ("left", "right"):
        raise ArgumentValueError(
            operation="jnp.searchsorted",
            required="side 'left' or 'right'",
            got=repr(side),
            fix="choose one of the two",
        )
    length = aval_of(keys).shape[0]
    low = ops.full(aval_of(values).shape, 0, np.int32)
    high = ops.full(aval_of(values).shape, length, np.int32)
    for _ in range(length.bit_length() if isinstance(length, int) else 31):
        middle = ops.div(ops.add(low, high), 2)
        key = getitem(keys, middle, "clip")
        before = ops.lt(key, values) if side == "left" else ops.le(key, values)
        if dt.is_inexact(aval_of(keys).dtype):
            before = ops.or_(before, _nan_after(key, values, side))
        before = ops.and_(before, ops.lt(middle, high))
        low = ops.select(before, ops.add(middle, 1), low)
        high = ops.select(before, high, middle)
    return low


def _nan_after(key: Any, value: Any, side: str) -> Any:
    """Whether `value` belongs after `key` because it is NaN."""
    is_nan = ops.ne(value, value)
    return is_nan if side == "right" else ops.and_(is_nan, ops.eq(key, key))


def quantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """The q-quantiles (q in [0, 1]) along axes, interpolating linearly unless told otherwise.

    >>> quantile(asarray([1.0, 2.0, 4.0]), 0.5)
    Array(2., dtype=float32)
    """
    del out, overwrite_input
    value = asarray(a)
    if dt.is_complex(aval_of(value).dtype):
        raise DTypeError(
            operation="jnp.quantile",
            required="numbers that have an order",
            got=str(aval_of(value)),
            fix="take the real part or the modulus first",
        )
    if not dt.is_floating(aval_of(value).dtype):
        value = ops.cast(value, np.float64)
    rank = aval_of(value).ndim
    axes = range(rank) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = ops.canonical_axes("jnp.quantile", axes, rank)
    kept = [k for k in range(rank) if k not in axes]
    shape = tuple(aval_of(value).shape)
    value = ops.transpose(value, [*kept, *axes])
    lead = tuple(shape[k] for k in kept)
    value = ops.reshape(value, (*lead, math.prod(shape[k] for k in axes)))
    ordered = ops.sort(value, len(kept))
    levels = ops.cast(asarray(q), aval_of(value).dtype)
    result = _interpolated(ordered, levels, method)
    holes = _any(ops.ne(value, value), -1)
    result = ops.select(holes, ops.full((), np.nan, aval_of(value).dtype), result)
    if keepdims:
        spots = [k + aval_of(levels).ndim for k in axes]
        result = ops.expand_dims(result, spots)
    return result


def _interpolated(ordered: Any, levels: Any, method: str) -> Any:
    """The values at fractional ranks along the last axis; the levels' axes come first."""
    count = aval_of(ordered).shape[-1]
    rank = ops.mul(levels, float(count - 1))
    low, high = ops.floor(rank), ops.ceil(rank)
    moved = moveaxis(ordered, -1, 0)
    below = getitem(moved, ops.cast(low, np.int32))
    above = getitem(moved, ops.cast(high, np.int32))
    weight = ops.sub(rank, low)
    extra = tuple(aval_of(weight).shape) + (1,) * (aval_of(ordered).ndim - 1)
    weight = ops.reshape(weight, extra)
    match method:
        case "linear":
            mixed = ops.add(ops.mul(below, ops.sub(1.0, weight)), ops.mul(above, weight))
            return ops.select(ops.eq(below, above), below, mixed)
        case "lower":
            return below
        case "higher":
            return above
        case "midpoint":
            return ops.mul(ops.add(below, above), 0.5)
        case "nearest":
            return ops.select(ops.le(weight, 0.5), below, above)
        case _:
            raise ArgumentValueError(
                operation="jnp.quantile",
                required="method linear, lower, higher, midpoint or nearest",
                got=repr(method),
                fix="choose one of these",
            )


def percentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    out_sharding: Any = None,
) -> Any:
    """The q-percentiles (q in [0, 100]) along axes."""
    del out_sharding
    level = ops.div(ops.cast(asarray(q), np.float64), 100.0)
    return quantile(a, level, axis, out, overwrite_input, method, keepdims)


def median(
    a: ArrayLike,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:
    """The middle value along axes, the mean of the two middle ones of an even count."""
    return quantile(a, 0.5, axis, out, overwrite_input, keepdims=keepdims)


def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """The distinct elements in ascending order; needs known values (the result's size depends on
    them).

    >>> unique(asarray([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    del sorted
    raw = concrete_array("jnp.unique", asarray(ar))
    found = np.unique(raw, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
    parts = list(found) if isinstance(found, tuple) else [found]
    if size is not None:
        parts[0] = _resized(parts[0], size, parts[0].min() if fill_value is None else fill_value)
        parts[1:] = [
            p if return_inverse and k == int(return_index) else _resized(p, size, 0)
            for k, p in enumerate(parts[1:])
        ]
    arrays = [asarray(parts[0]), *[asarray(p.astype(np.int64)) for p in parts[1:]]]
    return tuple(arrays) if isinstance(found, tuple) else arrays[0]


def _resized(x: np.ndarray[Any, Any], size: int, fill: Any) -> np.ndarray[Any, Any]:
    kept = x[:size]
    pad = np.full((size - len(kept), *x.shape[1:]), fill, x.dtype)
    return np.concatenate([kept, pad])


def isin(
    element: ArrayLike, test_elements: ArrayLike, assume_unique: bool = False, invert: bool = False
) -> Any:
    """Whether each element is among the test elements."""
    del assume_unique
    x, y = ops.promote_values(asarray(element), asarray(test_elements))
    shape, count = tuple(aval_of(x).shape), aval_of(y).size
    grid = (*shape, count)
    left = ops.broadcast_in_dim(x, grid, range(len(shape)))
    right = ops.broadcast_in_dim(ops.reshape(y, (count,)), grid, (len(shape),))
    found = ops.reduce_or(ops.eq(left, right), (len(shape),))
    return ops.not_(found) if invert else found


def bincount(
    x: ArrayLike,
    weights: Any = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: Any = None,
) -> Any:
    """How often each integer of a vector occurs, or the sum of its `weights`; under jit give
    `length`.

    Shapes: x (n,), weights (n,) -> (max(minlength, greatest + 1),), or (length,): what is
    greater is left out then. Negative integers count as 0. Integers, or the dtype of `weights`.
    DTypeError for floats.

    >>> bincount(asarray([0, 2, 2]))
    Array([1, 0, 2], dtype=int32)
    """
    del out_sharding
    value = asarray(x)
    if dt.is_inexact(aval_of(value).dtype) or aval_of(value).ndim != 1:
        raise DTypeError(
            operation="jnp.bincount",
            required="a vector of integers",
            got=str(aval_of(value)),
            fix="convert it with astype(int), ravel it",
        )
    if dt.is_bool(aval_of(value).dtype):
        value = ops.cast(value, np.int32)
    if length is None:
        raw = concrete_array("jnp.bincount without length", value)
        length = max(minlength, int(raw.max()) + 1 if raw.size else 0)
    one = ops.full(aval_of(value).shape, 1, dt.canonicalize(np.int64))
    counted = one if weights is None else asarray(weights)
    return ops.segment_sum(counted, ops.max(value, 0), length)


def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False) -> Any:
    """The bin of each element, for ascending bins."""
    return searchsorted(bins, x, "left" if right else "right")
