"""Making arrays: array, zeros, arange, linspace, eye, triangles, and the like-variants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops, tree
from lumjax.compile import from_gpu
from lumjax.errors import ArgumentTypeError, ArgumentValueError, ConcretizationError, ShapeError
from lumjax.lookup import on_gpu
from lumjax.ops.narrowing import requested
from lumjax.trace import dim as dims
from lumjax.trace.array import Array, again
from lumjax.trace.core import Tracer, Value, aval_of, traced
from lumjax.trace.dim import Expr

ArrayLike = Any


def _as_shape(shape: Any) -> tuple[Any, ...]:
    if isinstance(shape, (list, tuple)):
        return tuple(shape)
    return (shape,)


def array(
    object: Any,
    dtype: Any = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """An array from numbers, arrays and nested sequences of them; never `object` itself if `copy`.

    Lists may hold traced values. Python numbers give weakly typed arrays when no dtype is given.
    Raises ArgumentTypeError for what is not numeric.

    >>> array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    del order, device, out_sharding
    if dtype is not None:
        dtype = requested(dtype, "jnp.array")
    out = _from(object, dtype)
    aval = aval_of(out)
    if dtype is not None and (aval.dtype != dtype or aval.weak):
        out = ops.cast(out, dtype)
    if ndmin > aval.ndim:
        out = ops.reshape(out, (1,) * (ndmin - aval.ndim) + tuple(aval.shape))
    return _another(out) if copy and out is object else out


def _another(x: Value) -> Value:
    """A copy: an array that lives on when `x` is donated. What both hold never changes."""
    return again(x) if isinstance(x, Array) else x


def _from(x: Any, dtype: Any) -> Value:
    if isinstance(x, (Array, Tracer)):
        return x
    if isinstance(x, (list, tuple)):
        return _from_sequence(x, dtype)
    if isinstance(x, range):
        return _from_sequence(list(x), dtype)
    if isinstance(x, (bool, int, float, complex)) and dtype is not None:
        return ops.full((), x, dtype)
    if not isinstance(x, (np.ndarray, np.generic)) and on_gpu(x):
        return _from(from_gpu(x), dtype)
    for protocol in ("__jax_array__", "__array__"):
        if not isinstance(x, (np.ndarray, np.generic)) and hasattr(x, protocol):
            return _from(getattr(x, protocol)(), dtype)
    if x is None or isinstance(x, (str, bytes, dict, set)):
        raise ArgumentTypeError(
            operation="jnp.array",
            required="numbers, arrays or nested sequences of them",
            got=f"{x!r} of type {type(x).__name__}",
            fix="map over the pytree with tree.map, or convert the elements to numbers",
        )
    if isinstance(x, np.ndarray) and dtype is not None and x.dtype.kind in "iufb":
        return ops.cast(Array(_narrowed(x, dtype)), dtype)
    return ops.asvalue(x, "jnp.array")


def _narrowed(x: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """A NumPy array on the way to `dtype`, in a dtype that lumjax has; values are `dtype`'s."""
    with np.errstate(all="ignore"):
        return np.array(x, dtype) if dt.canonicalize(x.dtype) != x.dtype else np.array(x)


def _from_sequence(items: Sequence[Any], dtype: Any) -> Value:
    leaves = tree.leaves(items)
    if not any(isinstance(x, (Tracer, Array)) for x in leaves):
        try:
            raw = np.asarray(items)
        except ValueError:
            raise ShapeError(
                operation="jnp.array",
                required="nested sequences of equal lengths",
                got=f"a ragged {type(items).__name__}",
                fix="pad the rows to one length",
            ) from None
        if raw.dtype.kind in "OUSM":
            raise ArgumentTypeError(
                operation="jnp.array",
                required="numbers, arrays or nested sequences of them",
                got=f"a {type(items).__name__} holding {_strange(leaves)}",
                fix="convert the elements to numbers",
            )
        if dtype is not None:
            with np.errstate(all="ignore"):
                return Array(raw.astype(dtype)) if raw.size else Array(np.zeros(raw.shape, dtype))
        python = all(isinstance(x, (bool, int, float, complex)) for x in leaves)
        plain = python and not any(isinstance(x, np.generic) for x in leaves)
        if raw.dtype.kind == "f" and plain:
            return Array(raw.astype(dt.canonicalize(np.float64)))
        return ops.asvalue(raw, "jnp.array")
    rows = [_from(x, dtype) for x in items]
    rows = ops.promote_values(*rows, operation="jnp.array") if dtype is None else rows
    if dtype is not None:
        rows = [ops.cast(r, dtype) for r in rows]
    shapes = {tuple(aval_of(r).shape) for r in rows}
    if len(shapes) != 1:
        raise ShapeError(
            operation="jnp.array",
            required="elements of one shape",
            got=" and ".join(map(str, sorted(shapes))),
            fix="use concatenate for pieces of different sizes",
        )
    out = ops.concatenate([ops.expand_dims(r, (0,)) for r in rows], 0)
    aval = aval_of(out)
    return ops.cast(out, aval.dtype) if aval.weak else out


def _strange(leaves: Sequence[Any]) -> str:
    found = next((x for x in leaves if not isinstance(x, (bool, int, float, complex))), None)
    return f"{found!r} of type {type(found).__name__}"


def asarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """`a` as an array; an Array is returned as it is unless `copy`, NumPy arrays are copied.

    >>> asarray([1.0, 2.0])
    Array([1., 2.], dtype=float32)
    """
    del order, device, out_sharding
    return array(a, dtype, copy=bool(copy))


def astype(x: ArrayLike, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """`x` in another dtype; floats become integers by truncation, saturating, with NaN -> 0.

    >>> astype(array([1.7, -1.7]), int)
    Array([ 1, -1], dtype=int32)
    """
    del device
    out = ops.cast(x, requested(dtype, "astype"))
    return _another(out) if copy and out is x else out


def copy(a: ArrayLike, order: str | None = None) -> Any:
    """A copy, which lives on when `a` is donated; like every array it never changes.

    >>> x = array([1, 2])
    >>> copy(x) is x
    False
    """
    del order
    return array(a)


def full(
    shape: Any,
    fill_value: ArrayLike,
    dtype: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """An array of `shape` filled with `fill_value`, which broadcasts.

    >>> full((2,), 7, float)
    Array([7., 7.], dtype=float32)
    """
    del out_sharding
    del device
    shape = _as_shape(shape)
    value = array(fill_value, dtype)
    if aval_of(value).ndim == 0:
        return ops.broadcast_in_dim(value, shape, ())
    return broadcast_to(value, shape)


def broadcast_to(array: ArrayLike, shape: Any, *, out_sharding: Any = None) -> Any:
    """`array` broadcast to `shape` by NumPy's rules. Raises ShapeError where it does not fit.

    >>> broadcast_to(array([1.0]), (2,))
    Array([1., 1.], dtype=float32)
    """
    del out_sharding
    value = ops.asvalue(array, "jnp.broadcast_to")
    target = _as_shape(shape)
    source = tuple(aval_of(value).shape)
    if source == target:
        return value
    if ops.broadcast_shapes(source, target, operation="jnp.broadcast_to") != target:
        raise ShapeError(
            operation="jnp.broadcast_to",
            required=f"a shape that broadcasts to {target}",
            got=str(source),
            fix="reshape the array first",
        )
    start = len(target) - len(source)
    return ops.broadcast_in_dim(value, target, range(start, len(target)))


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Zeros; float32 by default.

    >>> zeros((2,), int)
    Array([0, 0], dtype=int32)
    """
    del out_sharding
    return full(shape, 0, requested(float if dtype is None else dtype, "jnp.zeros"), device=device)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Ones; float32 by default."""
    del out_sharding
    return full(shape, 1, requested(float if dtype is None else dtype, "jnp.ones"), device=device)


def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """The same as `zeros`: there is no uninitialised memory here."""
    del out_sharding
    return zeros(shape, dtype, device=device)


def full_like(
    a: ArrayLike,
    fill_value: ArrayLike,
    dtype: Any = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """`fill_value` in `a`'s shape and dtype."""
    del out_sharding
    aval = _aval(a)
    target = aval.dtype if dtype is None else dtype
    out = full(aval.shape if shape is None else shape, fill_value, target, device=device)
    weak = dtype is None and bool(getattr(aval, "weak", False))
    return ops.cast(out, aval.dtype, weak=True) if weak else out


def zeros_like(
    a: ArrayLike,
    dtype: Any = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Zeros in `a`'s shape and dtype."""
    del out_sharding
    return full_like(a, 0, dtype, shape, device=device)


def ones_like(
    a: ArrayLike,
    dtype: Any = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Ones in `a`'s shape and dtype."""
    del out_sharding
    return full_like(a, 1, dtype, shape, device=device)


def empty_like(
    prototype: ArrayLike, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Any:
    """The same as `zeros_like`."""
    return zeros_like(prototype, dtype, shape, device=device)


def _aval(a: Any) -> Any:
    if hasattr(a, "shape") and hasattr(a, "dtype") and not isinstance(a, (np.ndarray, np.generic)):
        return a
    return aval_of(asarray(a))


def _number(operation: str, x: Any) -> Any:
    if isinstance(x, Tracer):
        raise ConcretizationError(
            operation=operation,
            required="numbers that are known while tracing: they decide the result's shape",
            got=traced(x),
            fix="mark the argument static, or build a fixed length and mask it",
        )
    return x.data.item() if isinstance(x, Array) else x


def arange(
    start: Any,
    stop: Any = None,
    step: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Evenly spaced values from start (0 if only one bound is given) up to, not including, stop.

    >>> arange(3)
    Array([0, 1, 2], dtype=int32)
    """
    del out_sharding
    del device
    bounds = [_number("jnp.arange", x) for x in (start, stop, step)]
    given = [b for b in bounds if b is not None]
    if any(isinstance(b, Expr) for b in given):
        return _open_range(bounds, dtype)
    if dtype is None:
        dtype = dt.canonicalize(np.result_type(*[np.asarray(b).dtype for b in given]))
    dtype = requested(dtype, "jnp.arange")
    first, last, by = bounds
    if last is None:
        first, last = 0, first
    by = 1 if by is None else by
    if by == 0:
        raise ArgumentValueError(
            operation="jnp.arange", required="a step other than 0", got="0", fix="give a step"
        )
    if (first, by) == (0, 1):
        size = max(0, int(np.ceil(last)))
        return ops.iota(dtype, size)
    with np.errstate(all="ignore"):
        return Array(np.arange(first, last, by).astype(dtype))


def _open_range(bounds: list[Any], dtype: Any) -> Any:
    """A range whose bounds are sizes known only when it runs."""
    first, last, by = bounds
    if last is None:
        first, last = 0, first
    by = 1 if by is None else by
    if not all(isinstance(b, (int, Expr)) for b in (first, last, by)):
        raise ArgumentTypeError(
            operation="jnp.arange",
            required="integers beside sizes that are known only when it runs",
            got=f"{first}, {last}, {by}",
            fix="compute with jnp.arange(n) instead, as in 0.5 * jnp.arange(n)",
        )
    far = last - first if by > 0 else first - last
    size = dims.ceiling_divide(far, by if by > 0 else -by)
    kind = requested(np.int32 if dtype is None else dtype, "jnp.arange")
    places = ops.iota(np.int32, dims.maximum(size, 0))
    return ops.cast(ops.add(ops.mul(places, by), first), kind)


def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` evenly spaced values from start to stop, both included unless `endpoint` is False.

    >>> linspace(0.0, 1.0, 3)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    del device
    num = int(_number("jnp.linspace", num))
    if num < 0:
        raise ArgumentValueError(
            operation="jnp.linspace", required="num >= 0", got=str(num), fix="give a count"
        )
    first, last = ops.promote_values(start, stop, operation="jnp.linspace")
    if not dt.is_inexact(aval_of(first).dtype):
        first, last = ops.cast(first, np.float64), ops.cast(last, np.float64)
    first, last = ops.broadcast_values(first, last)
    kind, shape = aval_of(first).dtype, tuple(aval_of(first).shape)
    parts = num - 1 if endpoint else num
    step = ops.div(ops.sub(last, first), float(parts) if parts > 0 else float("nan"))
    rank = len(shape)
    lead = (num, *shape)
    k = ops.broadcasted_iota(kind, lead, 0) if num else ops.full(lead, 0, kind)
    ratio = ops.div(k, float(max(parts, 1)))
    low, high = (ops.broadcast_in_dim(v, lead, range(1, rank + 1)) for v in (first, last))
    out = ops.add(ops.mul(low, ops.sub(1.0, ratio)), ops.mul(high, ratio))
    if endpoint and num > 1:
        end = ops.broadcast_in_dim(last, (1, *shape), range(1, rank + 1))
        head = ops.slice(out, (0,) * (rank + 1), (num - 1, *shape))
        out = ops.concatenate([head, end], 0)
    target = kind if dtype is None else dt.canonicalize(dtype)
    if dt.is_integer(target):
        out = ops.floor(out)
    out = ops.cast(out, target)
    axis = axis % (rank + 1)
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
    out = ops.transpose(out, order) if axis else out
    return (out, ops.cast(step, kind)) if retstep else out


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`base` ** linspace(start, stop).

    >>> logspace(0, 2, 3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    out = ops.pow(base, linspace(start, stop, num, endpoint, axis=axis))
    return out if dtype is None else ops.cast(out, dtype)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Ones on the k-th diagonal of an N by M matrix (M defaults to N), zeros elsewhere.

    >>> eye(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    del device
    shape = (N, N if M is None else M)
    rows, columns = (ops.broadcasted_iota(np.int32, shape, axis) for axis in (0, 1))
    return ops.cast(ops.eq(ops.add(rows, k), columns), np.float64 if dtype is None else dtype)


def identity(n: int, dtype: Any = None) -> Any:
    """The n by n identity matrix."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Ones at and below the k-th diagonal, zeros above."""
    mask = _lower(N, N if M is None else M, k)
    return ops.cast(mask, np.float64 if dtype is None else dtype)


def _lower(rows: Any, columns: Any, k: int) -> Any:
    shape = (rows, columns)
    row, column = (ops.broadcasted_iota(np.int32, shape, axis) for axis in (0, 1))
    return ops.ge(ops.add(row, k), column)


def _matrix(operation: str, m: Any) -> Any:
    value = asarray(m)
    if aval_of(value).ndim < 2:
        raise ShapeError(
            operation=operation,
            required="an array with at least 2 axes",
            got=str(aval_of(value)),
            fix="reshape it to a matrix",
        )
    return value


def tril(m: ArrayLike, k: int = 0) -> Any:
    """The lower triangle of the last two axes: zeros above the k-th diagonal.

    >>> tril(ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    value = _matrix("jnp.tril", m)
    shape = tuple(aval_of(value).shape)
    mask = broadcast_to(_lower(shape[-2], shape[-1], k), shape)
    return ops.select(mask, value, zeros_like(value))


def triu(m: ArrayLike, k: int = 0) -> Any:
    """The upper triangle of the last two axes: zeros below the k-th diagonal."""
    value = _matrix("jnp.triu", m)
    shape = tuple(aval_of(value).shape)
    mask = broadcast_to(_lower(shape[-2], shape[-1], k - 1), shape)
    return ops.select(mask, zeros_like(value), value)


def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Coordinate matrices from coordinate vectors, as numpy.meshgrid.

    >>> [g.shape for g in meshgrid(arange(2), arange(3))]
    [(3, 2), (3, 2)]
    """
    del copy
    if indexing not in ("xy", "ij"):
        raise ArgumentValueError(
            operation="jnp.meshgrid",
            required="indexing 'xy' or 'ij'",
            got=repr(indexing),
            fix="choose one of the two",
        )
    vectors = list(map(asarray, xi))
    if any(aval_of(v).ndim != 1 for v in vectors):
        raise ShapeError(
            operation="jnp.meshgrid",
            required="vectors",
            got=f"shapes {[tuple(aval_of(v).shape) for v in vectors]}",
            fix="ravel the operands",
        )
    sizes = [aval_of(v).shape[0] for v in vectors]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) >= 2:
        order[:2] = [1, 0]
    out: list[Any] = []
    for k, v in enumerate(vectors):
        place = order.index(k)
        shape = tuple(sizes[k] if j == place else 1 for j in range(len(vectors)))
        grid = ops.reshape(v, shape)
        out.append(grid if sparse else broadcast_to(grid, tuple(sizes[i] for i in order)))
    return out


def indices(dimensions: Sequence[int], dtype: Any = None, sparse: bool = False) -> Any:
    """The index grids of a shape, stacked along a new first axis (a tuple when sparse)."""
    shape = tuple(dimensions)
    dtype = dt.canonicalize(np.int64 if dtype is None else dtype)
    grids = [ops.broadcasted_iota(dtype, shape, k) for k in range(len(shape))]
    if sparse:
        return tuple(
            ops.reshape(ops.iota(dtype, n), [n if k == j else 1 for j in range(len(shape))])
            for k, n in enumerate(shape)
        )
    if not grids:
        return zeros((0, *shape), dtype)
    return ops.concatenate([ops.expand_dims(g, (0,)) for g in grids], 0)
