"""Summaries along axes: sums, means, extremes, counts, cumulative sums."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError
from lumjax.numpy import lexicographic
from lumjax.numpy.creation import asarray, broadcast_to
from lumjax.numpy.elementwise import strong
from lumjax.numpy.indexing import where as _where
from lumjax.numpy.safe import safe_sqrt
from lumjax.trace.core import aval_of
from lumjax.trace.dim import same

ArrayLike = Any


def _axes(operation: str, axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    given = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    return ops.canonical_axes(operation, given, ndim)


def _reduce(
    operation: str,
    reduce: Callable[[Any, Any], Any],
    a: Any,
    axis: Any,
    keepdims: bool,
    where: Any,
    neutral: Any,
) -> Any:
    value = asarray(a)
    aval = aval_of(value)
    axes = _axes(operation, axis, aval.ndim)
    if where is not None:
        value = _where(where, value, ops.full((), neutral, aval_of(value).dtype))
        aval = aval_of(value)
        axes = _axes(operation, axis, aval.ndim)
    out = strong(reduce(value, axes))
    return ops.expand_dims(out, axes) if keepdims and axes else out


def _computed_in(value: Any, dtype: Any) -> Any:
    """The operand in the dtype in which a result of dtype `dtype` is computed: 16-bit floats in
    float32.
    """
    wide = dt.accumulation_dtype(dtype)
    return value if aval_of(value).dtype == dtype else ops.cast(value, wide)


def _returned_as(x: Any, dtype: Any) -> Any:
    return x if dtype is None else ops.cast(x, dtype)


def summable(a: Any, dtype: Any) -> Any:
    """The operand in the dtype in which a sum of it is returned: narrow integers widen, as in
    NumPy.
    """
    value = asarray(a)
    have = aval_of(value).dtype
    if dtype is not None:
        return _computed_in(value, dt.canonicalize(dtype))
    if dt.is_bool(have) or dt.is_signed(have):
        wide = dt.canonicalize(np.int64)
    elif dt.is_unsigned(have):
        wide = dt.canonicalize(np.uint64)
    else:
        wide = have
    if wide.itemsize < have.itemsize:
        wide = have
    return ops.cast(value, wide, weak=aval_of(value).weak) if wide != have else value


def sum(
    a: ArrayLike,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Any:
    """The sum over axes. 16-bit floats accumulate in float32.

    >>> sum(asarray([[1, 2], [3, 4]]), axis=0)
    Array([4, 6], dtype=int32)
    """
    del out
    value = summable(a, dtype) if promote_integers or dtype is not None else asarray(a)
    total = _reduce("jnp.sum", ops.reduce_sum, value, axis, keepdims, where, 0)
    if initial is not None:
        total = ops.add(total, ops.cast(initial, aval_of(total).dtype))
    return _returned_as(total, dtype)


def prod(
    a: ArrayLike,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Any:
    """The product over axes; its gradient is right where elements are zero."""
    del out
    value = summable(a, dtype) if promote_integers or dtype is not None else asarray(a)
    total = _reduce("jnp.prod", ops.reduce_prod, value, axis, keepdims, where, 1)
    if initial is not None:
        total = ops.mul(total, ops.cast(initial, aval_of(total).dtype))
    return _returned_as(total, dtype)


def _extreme(
    operation: str,
    reduce: Any,
    combine: Any,
    a: Any,
    axis: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
) -> Any:
    value = asarray(a)
    aval = aval_of(value)
    axes = _axes(operation, axis, aval.ndim)
    if where is not None and initial is None:
        raise ArgumentValueError(
            operation=operation,
            required="an initial value together with where",
            got="where alone",
            fix="pass initial, the result for an empty selection",
        )
    empty = builtins.any(isinstance(aval.shape[k], int) and aval.shape[k] == 0 for k in axes)
    if empty and initial is None:
        raise ArgumentValueError(
            operation=operation,
            required="at least one element along the reduced axes, or an initial value",
            got=str(aval),
            fix="pass initial",
        )
    out = _reduce(
        operation, reduce, value, axis, keepdims, where, initial if where is not None else 0
    )
    if initial is None:
        return out
    return combine(*ops.broadcast_values(out, ops.cast(initial, aval_of(out).dtype)))


def _is_complex(a: Any) -> bool:
    return dt.is_complex(aval_of(asarray(a)).dtype)


def max(
    a: ArrayLike,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """The largest element along axes; NaN where there is one. Ties share the gradient.

    >>> max(asarray([1.0, 3.0, 2.0]))
    Array(3., dtype=float32)
    """
    del out
    if _is_complex(a):
        reduce, combine = lexicographic.largest, lexicographic.larger
    else:
        reduce, combine = ops.reduce_max, ops.max
    return _extreme("jnp.max", reduce, combine, a, axis, keepdims, initial, where)


def min(
    a: ArrayLike,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """The smallest element along axes; NaN where there is one."""
    del out
    if _is_complex(a):
        reduce, combine = lexicographic.smallest, lexicographic.smaller
    else:
        reduce, combine = ops.reduce_min, ops.min
    return _extreme("jnp.min", reduce, combine, a, axis, keepdims, initial, where)


amax, amin = max, min


def ptp(a: ArrayLike, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    """The largest minus the smallest element along axes."""
    return ops.sub(max(a, axis, out, keepdims), min(a, axis, out, keepdims))


def _truth(a: Any) -> Any:
    value = asarray(a)
    return value if dt.is_bool(aval_of(value).dtype) else ops.ne(value, 0)


def all(
    a: ArrayLike, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    """Whether every element along axes is true."""
    del out
    return _reduce("jnp.all", ops.reduce_and, _truth(a), axis, keepdims, where, True)


def any(
    a: ArrayLike, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    """Whether some element along axes is true."""
    del out
    return _reduce("jnp.any", ops.reduce_or, _truth(a), axis, keepdims, where, False)


def count_nonzero(a: ArrayLike, axis: Any = None, keepdims: bool = False) -> Any:
    """The number of elements along axes that are not zero."""
    return sum(ops.cast(_truth(a), np.int32), axis, keepdims=keepdims)


def _count(a: Any, axis: Any, where: Any, keepdims: bool) -> Any:
    """How many elements a mean divides by: a number, or an array under `where`."""
    aval = aval_of(a)
    if where is not None:
        return sum(
            broadcast_to(asarray(where), aval.shape), axis, keepdims=keepdims, dtype=np.float32
        )
    axes = _axes("jnp.mean", axis, aval.ndim)
    total: Any = 1
    for k in axes:
        total = total * aval.shape[k]
    return float(total) if isinstance(total, int) else ops.dim_value(total)


def _inexact(a: Any, dtype: Any) -> tuple[Any, Any]:
    """The operand as floats to compute with, and the dtype of the result."""
    value = asarray(a)
    have = aval_of(value).dtype
    if dtype is None:
        kind = have if dt.is_inexact(have) else dt.canonicalize(np.float64)
    else:
        kind = dt.canonicalize(dtype)
    return ops.cast(value, dt.accumulation_dtype(kind)), kind


def mean(
    a: ArrayLike,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Any:
    """The arithmetic mean along axes; integers give floats, an empty axis NaN.

    >>> mean(asarray([1, 2, 6]))
    Array(3., dtype=float32)
    """
    del out
    value, kind = _inexact(a, dtype)
    total = sum(value, axis, keepdims=keepdims, where=where)
    return ops.cast(ops.div(total, _as(_count(value, axis, where, keepdims), total)), kind)


def _as(x: Any, like: Any) -> Any:
    return x if isinstance(x, float) else ops.cast(x, aval_of(like).dtype)


_mean = mean


def average(
    a: ArrayLike,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Any:
    """The mean, weighted where weights are given."""
    value = asarray(a)
    if not dt.is_inexact(aval_of(value).dtype):
        value = ops.cast(value, np.float64)
    if weights is None:
        out = mean(value, axis, keepdims=keepdims)
        if not returned:
            return out
        count = ops.full(aval_of(out).shape, _count(value, axis, None, False), aval_of(out).dtype)
        return out, count
    w = asarray(weights)
    if aval_of(w).shape != aval_of(value).shape:
        if axis is None or aval_of(w).ndim != 1:
            raise ArgumentValueError(
                operation="jnp.average",
                required="weights of the array's shape, or one axis and weights along it",
                got=f"{aval_of(w)} for {aval_of(value)}",
                fix="broadcast the weights",
            )
        place = ops.canonical_axis("jnp.average", axis, aval_of(value).ndim)
        w = ops.broadcast_in_dim(w, aval_of(value).shape, (place,))
    value, w = ops.promote_values(value, w)
    total = sum(w, axis, keepdims=keepdims)
    out = ops.div(sum(ops.mul(value, w), axis, keepdims=keepdims), total)
    return (out, total) if returned else out


def var(
    a: ArrayLike,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    """The variance along axes: mean squared distance from the mean, dividing by n - ddof.

    >>> var(asarray([1.0, 3.0]))
    Array(1., dtype=float32)
    """
    del out
    value, kind = _inexact(a, dtype)
    ddof = ddof if correction is None else correction
    middle = _mean(value, axis, keepdims=True, where=where) if mean is None else mean
    centred = ops.sub(value, middle)
    if dt.is_complex(aval_of(centred).dtype):
        squares = ops.real(ops.mul(centred, ops.conj(centred)))
    else:
        squares = ops.mul(centred, centred)
    total = sum(squares, axis, keepdims=keepdims, where=where)
    count = _count(value, axis, where, keepdims)
    count = count - ddof if isinstance(count, float) else ops.sub(count, ddof)
    real = aval_of(total).dtype if dt.is_complex(kind) else kind
    return ops.cast(ops.div(total, _as(count, total)), real)


def std(
    a: ArrayLike,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    """The standard deviation along axes; its gradient at a constant array is 0."""
    spread = var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction)
    count = None if where is not None else _count(asarray(a), axis, None, False)
    alone = mean is None and isinstance(count, float) and count == 1.0
    return spread if alone else safe_sqrt(spread)  # of one element both are 0, as their slopes


# ---- positions of extremes


def argmax(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Any:
    """The index of the largest element (the first one; NaN counts as largest).

    >>> argmax(asarray([1, 5, 5]))
    Array(1, dtype=int32)
    """
    del out
    return _position("jnp.argmax", ops.argmax, a, axis, bool(keepdims))


def argmin(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Any:
    """The index of the smallest element (the first one; NaN counts as smallest)."""
    del out
    return _position("jnp.argmin", ops.argmin, a, axis, bool(keepdims))


def _position(operation: str, find: Any, a: Any, axis: int | None, keepdims: bool) -> Any:
    value = asarray(a)
    aval = aval_of(value)
    if axis is None:
        out = find(ops.reshape(value, (aval.size,)), 0, dt.canonicalize(np.int64))
        return ops.reshape(out, (1,) * aval.ndim) if keepdims else out
    axis = ops.canonical_axis(operation, axis, aval.ndim)
    out = find(value, axis, dt.canonicalize(np.int64))
    return ops.expand_dims(out, (axis,)) if keepdims else out


# ---- cumulative


def _cumulative(operation: str, scan: Any, a: Any, axis: int | None, dtype: Any) -> Any:
    value = asarray(a)
    if dtype is not None:
        value = _computed_in(value, dt.canonicalize(dtype))
    elif dt.is_bool(aval_of(value).dtype):
        value = ops.cast(value, np.int64)
    if axis is None:
        value, axis = ops.reshape(value, (aval_of(value).size,)), 0
    return _returned_as(
        scan(value, ops.canonical_axis(operation, axis, aval_of(value).ndim)), dtype
    )


def cumsum(a: ArrayLike, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """Running sums along an axis (of the flattened array by default).

    >>> cumsum(asarray([1, 2, 3]))
    Array([1, 3, 6], dtype=int32)
    """
    del out
    return _cumulative("jnp.cumsum", ops.cumsum, a, axis, dtype)


def cumprod(a: ArrayLike, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """Running products along an axis (of the flattened array by default)."""
    del out
    return _cumulative("jnp.cumprod", ops.cumprod, a, axis, dtype)


def diff(a: ArrayLike, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along an axis, n times; `prepend` and `append` lengthen it first.

    >>> diff(asarray([1, 4, 9]))
    Array([3, 5], dtype=int32)
    """
    value = asarray(a)
    axis = ops.canonical_axis("jnp.diff", axis, aval_of(value).ndim)
    if n < 0:
        raise ArgumentValueError(
            operation="jnp.diff",
            required="an order n >= 0",
            got=str(n),
            fix="use cumsum to undo differences",
        )
    if n == 0:
        return value
    value = _extended(value, axis, prepend, append)
    for _ in range(n):
        shape = list(aval_of(value).shape)
        if same(shape[axis], 0):
            break
        low, high = [0] * len(shape), list(shape)
        low[axis] = 1
        later = ops.slice(value, low, shape)
        high[axis] = shape[axis] - 1
        earlier = ops.slice(value, [0] * len(shape), high)
        bits = dt.is_bool(aval_of(value).dtype)
        value = ops.ne(later, earlier) if bits else ops.sub(later, earlier)
    return value


def _extended(value: Any, axis: int, before: Any, after: Any) -> Any:
    parts = [before, value, after]
    if before is None and after is None:
        return value
    shape = tuple(1 if k == axis else n for k, n in enumerate(aval_of(value).shape))
    arrays = [asarray(p) for p in parts if p is not None]
    arrays = [p if aval_of(p).ndim else broadcast_to(p, shape) for p in arrays]
    return ops.concatenate(ops.promote_values(*arrays), axis)


# ---- ignoring NaN


def _nan_free(a: Any, neutral: Any) -> tuple[Any, Any]:
    value = asarray(a)
    if not dt.is_inexact(aval_of(value).dtype):
        return value, None
    hole = ops.ne(value, value)
    return _where(hole, ops.full((), neutral, aval_of(value).dtype), value), ops.not_(hole)


def nansum(a: ArrayLike, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum along axes with NaN as 0."""
    return sum(_nan_free(a, 0)[0], axis, dtype, keepdims=keepdims)


def nanmean(a: ArrayLike, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The mean along axes of what is not NaN."""
    value, keep = _nan_free(a, 0)
    return mean(value, axis, dtype, keepdims=keepdims, where=keep)


def nanmax(a: ArrayLike, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest element along axes that is not NaN."""
    value, keep = _nan_free(a, -np.inf)
    out = max(value, axis, keepdims=keepdims)
    return out if keep is None else _where(any(keep, axis, keepdims=keepdims), out, np.nan)


def nanmin(a: ArrayLike, axis: Any = None, keepdims: bool = False) -> Any:
    """The smallest element along axes that is not NaN."""
    value, keep = _nan_free(a, np.inf)
    out = min(value, axis, keepdims=keepdims)
    return out if keep is None else _where(any(keep, axis, keepdims=keepdims), out, np.nan)
