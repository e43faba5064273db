"""Moving elements without computing: shapes, axes, joining, splitting, padding, repeating."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.numpy.creation import asarray, broadcast_to
from lumjax.numpy.indexing import concrete_array, getitem
from lumjax.trace.core import Tracer, aval_of
from lumjax.trace.dim import Expr

ArrayLike = Any


def _shape(x: Any) -> tuple[Any, ...]:
    return tuple(aval_of(x).shape)


def _axis(operation: str, axis: int, ndim: int) -> int:
    return ops.canonical_axis(operation, axis, ndim)


def _axes(operation: str, axes: Any, ndim: int) -> tuple[int, ...]:
    given: tuple[Any, ...] = (axes,) if isinstance(axes, (int, np.integer)) else tuple(axes)
    return tuple(_axis(operation, a, ndim) for a in given)


def shape(a: ArrayLike) -> tuple[Any, ...]:
    """The length of each axis.

    >>> shape([[1, 2]])
    (1, 2)
    """
    return () if a is None else _shape(asarray(a))


def ndim(a: ArrayLike) -> int:
    """The number of axes: an int, 0 for a number.

    >>> ndim([[1, 2]])
    2
    """
    return len(shape(a))


def size(a: ArrayLike, axis: Any = None) -> Any:
    """The number of elements, or of elements along the given axes: an int.

    ArgumentValueError for an axis that `a` lacks.

    >>> size([[1, 2, 3]]), size([[1, 2, 3]], axis=0)
    (3, 1)
    """
    lengths = shape(a)
    if axis is None:
        return math.prod(lengths)
    return math.prod(lengths[k] for k in _axes("jnp.size", axis, len(lengths)))


def reshape(
    a: ArrayLike,
    shape: Any,
    order: str = "C",
    *,
    copy: bool | None = None,
    out_sharding: Any = None,
) -> Any:
    """`a` with another shape of the same size; one length may be -1. `order` is "C" or "F".

    >>> reshape(asarray([1, 2, 3, 4]), (2, -1)).shape
    (2, 2)
    """
    del out_sharding
    del copy
    value = asarray(a)
    target = _fill_in(_shape(value), shape)
    if order == "F":
        flipped = ops.transpose(value, range(len(_shape(value)))[::-1])
        return ops.transpose(ops.reshape(flipped, target[::-1]), range(len(target))[::-1])
    if order != "C":
        raise ArgumentValueError(
            operation="jnp.reshape",
            required="order 'C' or 'F'",
            got=repr(order),
            fix="transpose first",
        )
    return ops.reshape(value, target)


def _fill_in(source: tuple[Any, ...], shape: Any) -> tuple[Any, ...]:
    target = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    unknown = [k for k, n in enumerate(target) if isinstance(n, (int, np.integer)) and n == -1]
    if not unknown:
        return target
    total: Any = math.prod(source)
    known: Any = math.prod(n for k, n in enumerate(target) if k not in unknown)
    divides = not isinstance(total, int) or (known != 0 and total % known == 0)
    if len(unknown) > 1 or not divides:
        raise ShapeError(
            operation="jnp.reshape",
            required=f"at most one -1, and known sizes that divide {total}",
            got=str(target),
            fix="correct the shape",
        )
    return tuple(total // known if k == unknown[0] else n for k, n in enumerate(target))


def ravel(a: ArrayLike, order: str = "C", *, out_sharding: Any = None) -> Any:
    """`a` as one axis."""
    del out_sharding
    return reshape(a, (-1,) if size(a) else (0,), order)


def transpose(a: ArrayLike, axes: Any = None) -> Any:
    """`a` with its axes permuted; reversed by default.

    >>> transpose(asarray([[1, 2, 3]])).shape
    (3, 1)
    """
    value = asarray(a)
    rank = len(_shape(value))
    order = range(rank)[::-1] if axes is None else _axes("jnp.transpose", axes, rank)
    return ops.transpose(value, order)


permute_dims = transpose


def matrix_transpose(x: ArrayLike, /) -> Any:
    """`x` with its last two axes exchanged."""
    return swapaxes(x, -1, -2)


def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Any:
    """`a` with two axes exchanged."""
    value = asarray(a)
    order = list(range(len(_shape(value))))
    one, two = (_axis("jnp.swapaxes", k, len(order)) for k in (axis1, axis2))
    order[one], order[two] = order[two], order[one]
    return ops.transpose(value, order)


def moveaxis(a: ArrayLike, source: Any, destination: Any) -> Any:
    """`a` with axes moved to new places, the others in order.

    >>> moveaxis(asarray([[[1, 2, 3]]]), -1, 0).shape
    (3, 1, 1)
    """
    value = asarray(a)
    rank = len(_shape(value))
    origins = _axes("jnp.moveaxis", source, rank)
    places = _axes("jnp.moveaxis", destination, rank)
    if len(origins) != len(places):
        raise ArgumentValueError(
            operation="jnp.moveaxis",
            required="as many destinations as sources",
            got=f"{len(origins)} sources and {len(places)} destinations",
            fix="give one destination for each source",
        )
    order = [k for k in range(rank) if k not in origins]
    for place, origin in sorted(zip(places, origins, strict=True)):
        order.insert(place, origin)
    return ops.transpose(value, order)


def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Any:
    """`a` with `axis` moved before position `start`."""
    rank = ndim(a)
    axis = _axis("jnp.rollaxis", axis, rank)
    start = start + rank if start < 0 else start
    return moveaxis(a, axis, start - 1 if axis < start else start)


def expand_dims(a: ArrayLike, axis: Any) -> Any:
    """`a` with axes of length 1 inserted at these positions of the result.

    >>> expand_dims(asarray([1, 2]), 0).shape
    (1, 2)
    """
    return ops.expand_dims(asarray(a), (axis,) if isinstance(axis, (int, np.integer)) else axis)


def squeeze(a: ArrayLike, axis: Any = None) -> Any:
    """`a` without its axes of length 1, or without the given ones."""
    value = asarray(a)
    lengths = _shape(value)
    if axis is None:
        axis = [k for k, n in enumerate(lengths) if isinstance(n, int) and n == 1]
    return ops.squeeze(value, _axes("jnp.squeeze", axis, len(lengths)))


def atleast_1d(*arys: ArrayLike) -> Any:
    """Scalars as arrays of one axis."""
    return _each(arys, lambda x: ops.reshape(x, (1,)) if not _shape(x) else x)


def atleast_2d(*arys: ArrayLike) -> Any:
    """Arrays with at least two axes; new ones come first."""
    return _each(arys, lambda x: ops.reshape(x, (1,) * (2 - len(_shape(x))) + _shape(x)))


def atleast_3d(*arys: ArrayLike) -> Any:
    """Arrays with at least three axes, as numpy.atleast_3d."""

    def widen(x: Any) -> Any:
        lengths = _shape(x)
        match len(lengths):
            case 0:
                return ops.reshape(x, (1, 1, 1))
            case 1:
                return ops.reshape(x, (1, *lengths, 1))
            case 2:
                return ops.reshape(x, (*lengths, 1))
            case _:
                return x

    return _each(arys, widen)


def _each(arrays: Sequence[Any], f: Any) -> Any:
    out = [f(asarray(x)) for x in arrays]
    return out[0] if len(out) == 1 else out


# ---- joining and splitting


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
    """Arrays joined along an existing axis; with axis None they are flattened first.

    >>> concatenate([asarray([1]), asarray([2, 3])])
    Array([1, 2, 3], dtype=int32)
    """
    values = [asarray(x) for x in arrays]
    if not values:
        raise ArgumentValueError(
            operation="jnp.concatenate",
            required="at least one array",
            got="none",
            fix="pass a non-empty list",
        )
    if axis is None:
        values, axis = [ravel(v) for v in values], 0
    if dtype is None:
        values = ops.promote_values(*values, operation="jnp.concatenate")
    else:
        values = [ops.cast(v, dtype) for v in values]
    rank = len(_shape(values[0]))
    if rank == 0:
        raise ShapeError(
            operation="jnp.concatenate",
            required="arrays with at least one axis",
            got="scalars",
            fix="use jnp.stack",
        )
    return ops.concatenate(values, _axis("jnp.concatenate", axis, rank))


concat = concatenate


def stack(arrays: Any, axis: int = 0, out: None = None, dtype: Any = None) -> Any:
    """Arrays of one shape joined along a new axis.

    >>> stack([asarray([1, 2]), asarray([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    del out
    values = [asarray(x) for x in arrays]
    if len({_shape(v) for v in values}) != 1:
        raise ShapeError(
            operation="jnp.stack",
            required="at least one array, all of one shape",
            got=" and ".join(str(_shape(v)) for v in values) or "none",
            fix="use concatenate for arrays of different lengths",
        )
    place = _axis("jnp.stack", axis, len(_shape(values[0])) + 1)
    return concatenate([ops.expand_dims(v, (place,)) for v in values], place, dtype)


def vstack(tup: Any, dtype: Any = None) -> Any:
    """Arrays joined along the first axis; vectors count as rows."""
    rows = atleast_2d(*tup)
    return concatenate(rows if isinstance(rows, list) else [rows], 0, dtype)


def hstack(tup: Any, dtype: Any = None) -> Any:
    """Arrays joined along the second axis; vectors along their only one."""
    columns = atleast_1d(*tup)
    columns = columns if isinstance(columns, list) else [columns]
    return concatenate(columns, 0 if len(_shape(columns[0])) == 1 else 1, dtype)


def dstack(tup: Any, dtype: Any = None) -> Any:
    """Arrays joined along the third axis."""
    planes = atleast_3d(*tup)
    return concatenate(planes if isinstance(planes, list) else [planes], 2, dtype)


def column_stack(tup: Any) -> Any:
    """Vectors as the columns of a matrix; numbers are vectors of one element."""
    arrays = [atleast_1d(v) for v in tup]
    return concatenate([expand_dims(v, 1) if ndim(v) == 1 else v for v in arrays], 1)


def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Any:
    """`values` after `arr`, as numpy.append."""
    return concatenate([arr, values], axis)


def split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Cut along an axis into equal sections, or before the given indices.

    >>> [p.shape for p in split(asarray([1, 2, 3, 4]), 2)]
    [(2,), (2,)]
    """
    length = _shape(asarray(ary))[axis]
    if isinstance(indices_or_sections, (int, np.integer)) and length % int(indices_or_sections):
        raise ShapeError(
            operation="jnp.split",
            required=f"a number of sections that divides the axis's length {length}",
            got=str(indices_or_sections),
            fix="use array_split for unequal sections",
        )
    return array_split(ary, indices_or_sections, axis)


def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Like `split`; the first sections are one longer where the length does not divide."""
    value = asarray(ary)
    lengths = _shape(value)
    axis = _axis("jnp.split", axis, len(lengths))
    length = lengths[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        each, extra = divmod(length, int(indices_or_sections))
        sizes = [each + (k < extra) for k in range(int(indices_or_sections))]
        edges = [0, *np.cumsum(sizes).tolist()]
    else:
        inner = [int(i) for i in np.asarray(indices_or_sections)]
        edges = [0, *[min(max(i + length if i < 0 else i, 0), length) for i in inner], length]
    pieces: list[Any] = []
    for begin, end in itertools.pairwise(edges):
        low, high = [0] * len(lengths), list(lengths)
        low[axis], high[axis] = begin, max(begin, end)
        pieces.append(ops.slice(value, low, high))
    return pieces


def vsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Any]:
    """`split` along the first axis."""
    return split(ary, indices_or_sections, 0)


def hsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Any]:
    """`split` along the second axis (the first of a vector)."""
    return split(ary, indices_or_sections, 0 if ndim(ary) == 1 else 1)


def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis, without it."""
    value = asarray(x)
    place = _axis("jnp.unstack", axis, ndim(value))
    count = _shape(value)[place]
    return tuple(squeeze(p, place) for p in split(value, count, place)) if count else ()


# ---- repeating, padding, rolling


def tile(A: ArrayLike, reps: Any) -> Any:
    """`A` repeated `reps` times along each axis.

    >>> tile(asarray([1, 2]), 2)
    Array([1, 2, 1, 2], dtype=int32)
    """
    value = asarray(A)
    times = (reps,) if isinstance(reps, (int, np.integer)) else tuple(reps)
    rank = max(len(times), len(_shape(value)))
    times = (1,) * (rank - len(times)) + times
    lengths = (1,) * (rank - len(_shape(value))) + _shape(value)
    spread = tuple(n for pair in zip(times, lengths, strict=True) for n in pair)
    places = range(1, 2 * rank, 2)
    out = ops.broadcast_in_dim(ops.reshape(value, lengths), spread, places)
    return ops.reshape(out, tuple(t * n for t, n in zip(times, lengths, strict=True)))


def repeat(
    a: ArrayLike,
    repeats: Any,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: Any = None,
) -> Any:
    """Each element repeated; `repeats` is one count or one per element of the axis.

    Under jit, counts per element need `total_repeat_length`.

    >>> repeat(asarray([1, 2]), 2)
    Array([1, 1, 2, 2], dtype=int32)
    """
    del out_sharding
    value = asarray(a)
    if axis is None:
        value, axis = ravel(value), 0
    axis = _axis("jnp.repeat", axis, len(_shape(value)))
    lengths = _shape(value)
    if isinstance(repeats, (int, np.integer)):
        spread = (*lengths[: axis + 1], int(repeats), *lengths[axis + 1 :])
        places = [k for k in range(len(lengths) + 1) if k != axis + 1]
        out = ops.broadcast_in_dim(value, spread, places)
        joined = (*lengths[:axis], lengths[axis] * int(repeats), *lengths[axis + 1 :])
        return ops.reshape(out, joined)
    if total_repeat_length is None:
        counts = concrete_array("jnp.repeat's repeats", repeats)
        rows = np.repeat(np.arange(lengths[axis]), counts)
        return getitem(value, (*[slice(None)] * axis, asarray(rows.astype(np.int32))))
    counts = broadcast_to(asarray(repeats), (lengths[axis],))
    ends = ops.cumsum(counts, 0)
    position = ops.iota(dt.int32, total_repeat_length)
    grid = (total_repeat_length, lengths[axis])
    past = ops.ge(
        ops.broadcast_in_dim(position, grid, (0,)), ops.broadcast_in_dim(ends, grid, (1,))
    )
    rows = ops.reduce_sum(ops.cast(past, np.int32), (1,))
    return getitem(value, (*[slice(None)] * axis, ops.min(rows, lengths[axis] - 1)))


def roll(a: ArrayLike, shift: Any, axis: Any = None) -> Any:
    """Elements moved along axes, those that fall off coming back at the other end.

    >>> roll(asarray([1, 2, 3]), 1)
    Array([3, 1, 2], dtype=int32)
    """
    value = asarray(a)
    lengths = _shape(value)
    if axis is None:
        return ops.reshape(roll(ravel(value), shift, 0), lengths)
    axes = _axes("jnp.roll", axis, len(lengths))
    by = asarray(shift)
    if len(axes) == 1 and aval_of(by).ndim:  # several shifts along one axis add up
        axes = axes * aval_of(by).shape[0]
    if isinstance(by, Tracer) and by.concrete() is None:
        by = broadcast_to(by, (len(axes),))
        for k, place in enumerate(axes):
            value = _rolled(value, getitem(by, k), place)
        return value
    # in NumPy: while a program is traced, anything else would make a traced value of it
    counts = np.broadcast_to(concrete_array("jnp.roll", by), (len(axes),)).tolist()
    for place, count in zip(axes, counts, strict=True):
        length = lengths[place]
        if isinstance(length, Expr):  # one place is 0 of 1
            value = _rolled(value, count, place)
        elif length and count % length:
            head, tail = array_split(value, [length - count % length], place)
            value = ops.concatenate([tail, head], place)
    return value


def _rolled(value: Any, by: Any, axis: int) -> Any:
    """`value` rolled along one axis by a traced number of places."""
    length = _shape(value)[axis]
    if not length:
        return value
    places = ops.remainder(ops.sub(ops.iota(np.int32, length), by), length)
    return getitem(value, (*[slice(None)] * axis, places))


def flip(m: ArrayLike, axis: Any = None) -> Any:
    """Elements in reverse order along axes; all of them by default."""
    value = asarray(m)
    rank = len(_shape(value))
    return ops.rev(value, range(rank) if axis is None else _axes("jnp.flip", axis, rank))


def flipud(m: ArrayLike) -> Any:
    """Rows in reverse order."""
    return flip(m, 0)


def fliplr(m: ArrayLike) -> Any:
    """Columns in reverse order."""
    return flip(m, 1)


def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """A quarter turn in the plane of two axes, k times."""
    first, second = _axes("jnp.rot90", axes, ndim(m))
    match k % 4:
        case 1:
            return flip(swapaxes(m, first, second), first)
        case 2:
            return flip(m, (first, second))
        case 3:
            return swapaxes(flip(m, first), first, second)
        case _:
            return asarray(m)


def broadcast_arrays(*args: ArrayLike) -> list[Any]:
    """The arrays broadcast to one shape."""
    values = [asarray(a) for a in args]
    target = ops.broadcast_shapes(*map(_shape, values)) if values else ()
    return [broadcast_to(v, target) for v in values]


def broadcast_shapes(*shapes: Any) -> tuple[Any, ...]:
    """The shape to which these shapes broadcast.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    tuples = [tuple(s) if isinstance(s, (list, tuple)) else (s,) for s in shapes]
    return ops.broadcast_shapes(*tuples) if tuples else ()
