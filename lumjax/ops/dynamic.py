"""dynamic_slice and dynamic_update_slice: windows at run-time starts, clamped in the operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ShapeError
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    Shape,
    all_weak,
    apply,
    canonical_axis,
    check_indices,
    check_length,
    check_same_dtypes,
    static_dims,
    text,
)
from lumjax.ops.compare import lt
from lumjax.ops.elementwise import add, cast, select
from lumjax.ops.index import gather_p, scatter_p
from lumjax.ops.passing import checked_index
from lumjax.ops.view import (
    batch_first,
    concatenate,
    dim_value,
    expand_dims,
    instantiate,
    reshape,
    shape_of,
    slice,
    zeros,
)
from lumjax.ops.windows import GatherDimensionNumbers, ScatterDimensionNumbers
from lumjax.trace import view as index_map
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, Primitive, Sample, Value, aval_of
from lumjax.trace.dim import (
    Dim,
    less,
    less_equal,
    logical_and,
    logical_not,
    maximum,
    minimum,
    symbol,
)
from lumjax.trace.form import GatherMode, Move, Patch
from lumjax.trace.view import IndexMap, coordinates

_Tangents: TypeAlias = Sequence[Value | None]


def dynamic_slice(operand: Value, start_indices: Any, slice_sizes: Any) -> Value:
    """The window of `slice_sizes` that begins at `start_indices`, one integer scalar for each axis.

    Negative starts count from the end; then starts are clamped so that the window lies inside.
    """
    sizes = static_dims("dynamic_slice", "a slice size", slice_sizes)
    starts = _starts("dynamic_slice", operand, start_indices, sizes)
    return apply(dynamic_slice_p, operand, *starts, slice_sizes=sizes)[0]


def dynamic_update_slice(operand: Value, update: Value, start_indices: Any) -> Value:
    """`operand` with the window at `start_indices` replaced; starts as in dynamic_slice."""
    starts = _starts("dynamic_update_slice", operand, start_indices, shape_of(update))
    return apply(dynamic_update_slice_p, operand, update, *starts)[0]


def _starts(operation: str, operand: Value, given: Any, sizes: Shape) -> list[Value]:
    """The start of each axis as a scalar, negative ones counted from the end."""
    shape = shape_of(operand)
    if hasattr(given, "aval") or isinstance(given, (np.ndarray, np.generic, int)):
        vector = given if len(shape_of(given)) else reshape(given, (1,))
        (count,) = shape_of(vector)
        given = [reshape(slice(vector, (k,), (k + 1,)), ()) for k in range(int(count))]
    starts = list(given)
    check_length(operation, "start indices", starts, len(shape))
    if len(sizes) == len(shape):
        starts = [
            checked_index(s, n, operation, m) for s, n, m in zip(starts, shape, sizes, strict=True)
        ]
    return [_from_end(s, n) for s, n in zip(starts, shape, strict=True)]


def _from_end(start: Value, n: Dim) -> Value:
    if (
        isinstance(start, Array)
        and start.ndim == 0
        and dt.is_integer(start.dtype)
        and isinstance(n, int)
    ):
        number = int(start.data)
        return start if number >= 0 else np.asarray(number + n, start.dtype)
    if isinstance(start, int) and isinstance(n, int):
        return np.asarray(start + n if start < 0 else start, dt.int32)
    aval = aval_of(start)
    if dt.is_unsigned(aval.dtype) or aval.ndim or not dt.is_integer(aval.dtype):
        return start
    shifted = add(start, cast(dim_value(n), aval.dtype))
    return select(lt(start, np.zeros((), aval.dtype)), shifted, start)


def _check(operation: str, x: ShapedArray, sizes: Shape, starts: Sequence[ShapedArray]) -> None:
    check_length(operation, "start indices", starts, x.ndim)
    check_length(operation, "sizes", sizes, x.ndim)
    for s in starts:
        check_indices(operation, s)
    small = [
        not (isinstance(m, int) and isinstance(n, int)) or 0 <= m <= n
        for m, n in zip(sizes, x.shape, strict=True)
    ]
    if not all(small) or any(s.ndim for s in starts):
        raise ShapeError(
            operation=operation,
            required=f"a window that fits into {x}, and scalar start indices",
            got=f"window {text(sizes)}, start indices {text(starts)}",
            fix="make the window no larger than the operand",
        )


def _clamped(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[NDArray]) -> list[int]:
    return [min(max(int(s), 0), n - m) for n, m, s in zip(shape, sizes, starts, strict=True)]


def _window(
    shape: Sequence[int], sizes: Sequence[int], starts: Sequence[NDArray]
) -> tuple[Any, ...]:
    begins = _clamped(shape, sizes, starts)
    return tuple([np.s_[b : b + m] for b, m in zip(begins, sizes, strict=True)])


def _scalars(rank: int, first: int) -> tuple[tuple[str, int], ...]:
    return tuple([(f"s{k}", first + k) for k in range(rank)])


def _stacked(axis: MappedAxis, starts: Sequence[Value], dims: Dims) -> Value:
    """Start scalars, some of them mapped, as index vectors of shape (size, rank)."""
    columns = [
        expand_dims(batch_first(s, d, axis.size), (1,)) for s, d in zip(starts, dims, strict=True)
    ]
    dtype = np.result_type(*(aval_of(c).dtype for c in columns))
    return concatenate([cast(c, dtype) for c in columns], 1)


# ---- dynamic_slice


def _slice_aval(
    x: ShapedArray, *starts: ShapedArray, slice_sizes: Shape
) -> tuple[ShapedArray, ...]:
    _check("dynamic_slice", x, slice_sizes, starts)
    return (ShapedArray(slice_sizes, x.dtype, all_weak(x, *starts)),)


def _slice_eval(x: NDArray, *starts: NDArray, slice_sizes: Any) -> tuple[NDArray]:
    return (x[_window(x.shape, slice_sizes, starts)],)


def _slice_form(x: ShapedArray, *starts: ShapedArray, slice_sizes: Shape) -> Move:
    scalars = _scalars(x.ndim, 1)
    return Move(
        (index_map.dynamic_slice(x.shape, [name for name, _ in scalars], slice_sizes),), scalars
    )


def _slice_jvp(primals: Sequence[Value], tangents: _Tangents, *, slice_sizes: Shape) -> Jvp:
    x, *starts = primals
    out = dynamic_slice_p.bind(x, *starts, slice_sizes=slice_sizes)
    if tangents[0] is None:
        return out, (None,)
    return out, dynamic_slice_p.bind(tangents[0], *starts, slice_sizes=slice_sizes)


def _slice_transpose(cts: _Tangents, inputs: Sequence[Any], *, slice_sizes: Shape) -> _Tangents:
    x, *starts = inputs
    nothing = (None,) * len(starts)
    if cts[0] is None:
        return None, *nothing
    empty = zeros(x.aval.shape, x.aval.dtype)
    return *dynamic_update_slice_p.bind(empty, cts[0], *starts), *nothing


def _slice_batch(
    axis: MappedAxis, args: Sequence[Value], dims: Dims, *, slice_sizes: Shape
) -> Batched:
    x, *starts = args
    if all(d is None for d in dims[1:]):
        first = np.zeros((), dt.int32)
        sizes = (axis.size, *slice_sizes)
        moved = batch_first(x, dims[0], axis.size)
        return dynamic_slice_p.bind(moved, first, *starts, slice_sizes=sizes), (0,)
    every = tuple(range(len(starts)))
    assert gather_p.batch is not None
    return gather_p.batch(
        axis,
        (x, _stacked(axis, starts, dims[1:])),
        (dims[0], 0),
        dimension_numbers=GatherDimensionNumbers(every, (), every),
        slice_sizes=slice_sizes,
        indices_are_sorted=True,
        unique_indices=True,
        mode=GatherMode.CLIP,
        fill_value=None,
    )


_INDEX = ShapedArray((), dt.int32)


def _f32(*shape: int) -> ShapedArray:
    return ShapedArray(shape, dt.float32)


dynamic_slice_p = Primitive(
    "dynamic_slice",
    aval=_slice_aval,
    eval=_slice_eval,
    form=_slice_form,
    jvp=_slice_jvp,
    transpose=_slice_transpose,
    batch=_slice_batch,
    samples=(
        Sample((_f32(5), _INDEX), {"slice_sizes": (2,)}, -2.0, 6.0),
        Sample((_f32(4, 3), _INDEX, _INDEX), {"slice_sizes": (2, 3)}, -2.0, 6.0),
        Sample((_f32(4, 3), _INDEX, _INDEX), {"slice_sizes": (0, 1)}),
        Sample((_f32(),), {"slice_sizes": ()}),
    ),
)


# ---- dynamic_update_slice


def _update_aval(
    x: ShapedArray, update: ShapedArray, *starts: ShapedArray
) -> tuple[ShapedArray, ...]:
    check_same_dtypes("dynamic_update_slice", (x, update))
    _check("dynamic_update_slice", x, update.shape, starts)
    return (ShapedArray(x.shape, x.dtype, all_weak(x, update, *starts)),)


def _update_eval(x: NDArray, update: NDArray, *starts: NDArray) -> tuple[NDArray]:
    out = np.array(x, order="C")
    out[_window(x.shape, update.shape, starts)] = update
    return (out,)


def _update_form(x: ShapedArray, update: ShapedArray, *starts: ShapedArray) -> Move:
    scalars = _scalars(x.ndim, 2)
    place = coordinates(x.shape)
    inside: Dim = 1
    coords: list[Dim] = []
    for d, n, m, (name, _) in zip(place, x.shape, update.shape, scalars, strict=True):
        start = minimum(maximum(symbol(name, None, None), 0), n - m)
        inside = logical_and(inside, logical_and(less_equal(start, d), less(d, start + m)))
        coords.append(d - start)
    kept = IndexMap(x.shape, place, logical_not(inside))
    return Move((kept, IndexMap(x.shape, tuple(coords), inside)), scalars)


def _update_jvp(primals: Sequence[Value], tangents: _Tangents) -> Jvp:
    x, update, *starts = primals
    out = dynamic_update_slice_p.bind(*primals)
    if tangents[0] is None and tangents[1] is None:
        return out, (None,)
    moved = instantiate(tangents[0], x), instantiate(tangents[1], update)
    return out, dynamic_update_slice_p.bind(*moved, *starts)


def _update_transpose(cts: _Tangents, inputs: Sequence[Any]) -> _Tangents:
    x, update, *starts = inputs
    nothing = (None,) * len(starts)
    if (ct := cts[0]) is None:
        return None, None, *nothing
    operand_ct = update_ct = None
    aval = update.aval if isinstance(update, Linear) else aval_of(update)
    if isinstance(x, Linear):
        (operand_ct,) = dynamic_update_slice_p.bind(ct, zeros(aval.shape, aval.dtype), *starts)
    if isinstance(update, Linear):
        (update_ct,) = dynamic_slice_p.bind(ct, *starts, slice_sizes=aval.shape)
    return operand_ct, update_ct, *nothing


def _update_batch(axis: MappedAxis, args: Sequence[Value], dims: Dims) -> Batched:
    _, _, *starts = args
    x, update = (batch_first(args[k], dims[k], axis.size) for k in range(2))
    if all(d is None for d in dims[2:]):
        return dynamic_update_slice_p.bind(x, update, np.zeros((), dt.int32), *starts), (0,)
    every = tuple(range(len(starts)))
    assert scatter_p.batch is not None
    return scatter_p.batch(
        axis,
        (x, _stacked(axis, starts, dims[2:]), update),
        (0, 0, 0),
        dimension_numbers=ScatterDimensionNumbers(every, (), every),
        indices_are_sorted=True,
        unique_indices=True,
        mode=GatherMode.CLIP,
    )


dynamic_update_slice_p = Primitive(
    "dynamic_update_slice",
    aval=_update_aval,
    eval=_update_eval,
    form=_update_form,
    jvp=_update_jvp,
    transpose=_update_transpose,
    batch=_update_batch,
    samples=(
        Sample((_f32(5), _f32(2), _INDEX), {}, -2.0, 6.0),
        Sample((_f32(4, 3), _f32(2, 3), _INDEX, _INDEX), {}, -2.0, 6.0),
        Sample((_f32(4, 3), _f32(0, 1), _INDEX, _INDEX), {}),
        Sample((_f32(), _f32()), {}),
    ),
)


# The same in the memory of the operand, which is used up: the compiler's, for donated arguments.
patch_p = Primitive(
    "patch",
    aval=_update_aval,
    eval=_update_eval,
    form=lambda x, update, *starts: Patch(),
    samples=(
        Sample((_f32(5), _f32(2), _INDEX), {}, -2.0, 6.0),
        Sample((_f32(4, 3), _f32(2, 3), _INDEX, _INDEX), {}, -2.0, 6.0),
    ),
)


# ---- one axis


def dynamic_slice_in_dim(
    operand: Value, start_index: Value, slice_size: Dim, axis: int = 0
) -> Value:
    """dynamic_slice along one axis, whole along the others."""
    shape = list(shape_of(operand))
    axis = canonical_axis("dynamic_slice_in_dim", axis, len(shape))
    starts: list[Value] = [0] * len(shape)
    starts[axis], shape[axis] = start_index, slice_size
    return dynamic_slice(operand, starts, shape)


def dynamic_index_in_dim(
    operand: Value, index: Value, axis: int = 0, keepdims: bool = True
) -> Value:
    """One position along an axis, which stays with size 1 if `keepdims`."""
    found = dynamic_slice_in_dim(operand, index, 1, axis)
    if keepdims:
        return found
    shape = shape_of(found)
    axis = canonical_axis("dynamic_index_in_dim", axis, len(shape))
    return reshape(found, (*shape[:axis], *shape[axis + 1 :]))


def dynamic_update_slice_in_dim(
    operand: Value, update: Value, start_index: Value, axis: int
) -> Value:
    """dynamic_update_slice along one axis, from 0 along the others."""
    rank = len(shape_of(operand))
    axis = canonical_axis("dynamic_update_slice_in_dim", axis, rank)
    starts: list[Value] = [0] * rank
    starts[axis] = start_index
    return dynamic_update_slice(operand, update, starts)


def dynamic_update_index_in_dim(operand: Value, update: Value, index: Value, axis: int) -> Value:
    """Replace one position along an axis; `update` may lack that axis."""
    rank = len(shape_of(operand))
    axis = canonical_axis("dynamic_update_index_in_dim", axis, rank)
    if len(shape_of(update)) != rank:
        update = expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(operand, update, index, axis)
