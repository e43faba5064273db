"""Dimension numbers of gather and scatter, and which elements their index vectors name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.ops.checks import NDArray, Shape, check_distinct, check_indices, check_length, text
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.dim import Dim, same
from lumjax.trace.form import GatherMode


class GatherDimensionNumbers(NamedTuple):
    """Which axes of a gather's operand, indices and result belong together.

    Index vectors lie along the last axis of the indices. offset_dims: axes of the result that run
    over the window. collapsed_slice_dims: window axes of size 1 left out. start_index_map: the
    operand axis that each entry of an index vector addresses. operand_batching_dims and
    start_indices_batching_dims: axes of operand and indices that are traversed together.
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """As GatherDimensionNumbers, with a scatter's updates in the place of a gather's result."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


_MODES = {
    "clip": GatherMode.CLIP,
    "fill": GatherMode.FILL,
    "drop": GatherMode.FILL,
    "promise_in_bounds": GatherMode.PROMISE,
}


def canonical_mode(operation: str, mode: Any, default: GatherMode) -> GatherMode:
    """A GatherMode from a name, a member, or a member of an enum with JAX's names."""
    if mode is None:
        return default
    if isinstance(mode, GatherMode):
        return mode
    if isinstance(mode, str) and mode in _MODES:
        return _MODES[mode]
    raise ArgumentValueError(
        operation=operation,
        required="mode 'clip', 'fill', 'drop' or 'promise_in_bounds'",
        got=repr(mode),
        fix="choose what an index out of range should do",
    )


def scatter_as_gather(
    numbers: ScatterDimensionNumbers, operand: Shape, updates: Shape
) -> tuple[GatherDimensionNumbers, Shape]:
    """The gather that reads what a scatter writes, and its slice sizes."""
    gathered = GatherDimensionNumbers(*numbers)
    sizes = iter([updates[d] for d in numbers.update_window_dims if d < len(updates)])
    skipped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    return gathered, tuple([1 if k in skipped else next(sizes, 1) for k in range(len(operand))])


def gather_as_scatter(numbers: GatherDimensionNumbers) -> ScatterDimensionNumbers:
    """The scatter that writes what a gather reads."""
    return ScatterDimensionNumbers(*numbers)


def window_axes(numbers: GatherDimensionNumbers, ndim: int) -> list[int]:
    """The operand axes that the result's offset_dims run over, in order."""
    skipped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    return [k for k in range(ndim) if k not in skipped]


def batch_places(numbers: GatherDimensionNumbers, ndim: int) -> list[int]:
    """The axes of a result with `ndim` axes that run over the index vectors."""
    return [k for k in range(ndim) if k not in numbers.offset_dims]


def gathered_shape(indices: Shape, numbers: GatherDimensionNumbers, slice_sizes: Shape) -> Shape:
    """The shape of a gather's result (of a scatter's updates)."""
    windows = iter([slice_sizes[k] for k in window_axes(numbers, len(slice_sizes))])
    rows = iter(indices[:-1])
    rank = len(indices) - 1 + len(numbers.offset_dims)
    return tuple([next(windows) if k in numbers.offset_dims else next(rows) for k in range(rank)])


def check_windows(
    operation: str,
    operand: ShapedArray,
    indices: ShapedArray,
    numbers: GatherDimensionNumbers,
    slice_sizes: Shape,
) -> None:
    """Raise unless the dimension numbers fit the operands."""
    check_indices(operation, indices)
    check_length(operation, "slice sizes", slice_sizes, operand.ndim)
    skipped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    check_distinct(operation, "collapsed and batching axes", skipped)
    check_distinct(
        operation, "indexed axes", (*numbers.start_index_map, *numbers.operand_batching_dims)
    )
    rank = indices.ndim - 1 + len(numbers.offset_dims)
    problem = None
    if indices.ndim < 1 or not same(indices.shape[-1], len(numbers.start_index_map)):
        problem = "index vectors along the last axis of indices, one entry per indexed axis"
    elif any(not 0 <= d < operand.ndim for d in (*skipped, *numbers.start_index_map)):
        problem = f"operand axes in [0, {operand.ndim})"
    elif any(not 0 <= d < rank for d in numbers.offset_dims) or not _increasing(
        numbers.offset_dims
    ):
        problem = f"increasing window axes in [0, {rank})"
    elif len(numbers.offset_dims) + len(skipped) != operand.ndim:
        problem = "one window axis for each operand axis that is neither collapsed nor batching"
    elif not _increasing(numbers.collapsed_slice_dims):
        problem = "increasing collapsed axes"
    elif any(not same(slice_sizes[d], 1) for d in skipped):
        problem = "slice sizes of 1 along collapsed and batching axes"
    elif any(_outside(s, n) for s, n in zip(slice_sizes, operand.shape, strict=True)):
        problem = "slice sizes between 0 and the operand's sizes"
    elif not _batching_agrees(operand.shape, indices.shape, numbers):
        problem = "batching axes of operand and indices of equal number and sizes"
    if problem:
        raise ShapeError(
            operation=operation,
            required=problem,
            got=f"operand {operand}, indices {indices}, {numbers}, slice sizes {text(slice_sizes)}",
            fix="check the dimension numbers",
        )


def _increasing(values: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _outside(size: Dim, n: Dim) -> bool:
    return isinstance(size, int) and (size < 0 or (isinstance(n, int) and size > n))


def _batching_agrees(operand: Shape, indices: Shape, numbers: GatherDimensionNumbers) -> bool:
    left, right = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    return (
        len(left) == len(right)
        and all(0 <= b < len(indices) - 1 for b in right)
        and all(same(operand[a], indices[b]) for a, b in zip(left, right, strict=True))
    )


@record
class Positions:
    """Where the rows of a gather's result lie in its operand.

    The operand is seen as `operand.reshape(-1, row)`; `index` and `valid` have the shape of the
    result without the trailing axes that make up a row. `valid` is None where all is in range.
    """

    row: int
    index: NDArray
    valid: NDArray | None


def locate(
    shape: tuple[int, ...],
    indices: NDArray,
    numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[Any],
    clip: bool,
) -> Positions:
    """The positions that index vectors name; out of range they are clipped, or not valid."""
    lead = _indexed_axes(shape, numbers, slice_sizes, indices.ndim - 1)
    rank = indices.ndim - 1 + len(numbers.offset_dims) - (len(shape) - lead)
    strides = [math.prod(shape[k + 1 : lead]) for k in range(lead)]
    places = batch_places(numbers, rank)
    batch = indices.shape[:-1]
    start = np.zeros(batch, np.int64)
    valid: NDArray | None = None
    for j, axis in enumerate(numbers.start_index_map):
        limit = shape[axis] - slice_sizes[axis]
        wanted = indices[..., j]
        if wanted.dtype == np.uint64:
            wanted = np.minimum(wanted, np.uint64(np.iinfo(np.int64).max))
        wanted = wanted.astype(np.int64)
        clipped = np.minimum(np.maximum(wanted, 0), limit)
        if not clip:
            inside = wanted == clipped
            valid = inside if valid is None else valid & inside
        start += clipped * strides[axis]
    for axis, b in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        column = np.arange(shape[axis], dtype=np.int64) * strides[axis]
        start += column.reshape([-1 if k == b else 1 for k in range(len(batch))])
    index = _spread(start, places, rank)
    for axis, place in zip(window_axes(numbers, len(shape)), numbers.offset_dims, strict=True):
        if axis < lead:
            step = np.arange(slice_sizes[axis], dtype=np.int64) * strides[axis]
            index = index + _spread(step, [place], rank)
    if valid is not None:
        valid = None if valid.all() else np.broadcast_to(_spread(valid, places, rank), index.shape)
    return Positions(math.prod(shape[lead:]), index, valid)


def _spread(x: NDArray, places: Sequence[int], rank: int) -> NDArray:
    sizes = [1] * rank
    for n, k in zip(x.shape, places, strict=True):
        sizes[k] = n
    return x.reshape(sizes)


def _indexed_axes(
    shape: tuple[int, ...], numbers: GatherDimensionNumbers, slice_sizes: Sequence[Any], rows: int
) -> int:
    """How many leading operand axes need an index; the rest are whole, and last in the result."""
    lead, place = len(shape), rows + len(numbers.offset_dims)
    windows = window_axes(numbers, len(shape))
    while (
        lead
        and windows
        and windows[-1] == lead - 1
        and slice_sizes[lead - 1] == shape[lead - 1]
        and lead - 1 not in numbers.start_index_map
        and numbers.offset_dims[len(windows) - 1] == place - 1
    ):
        lead, place = lead - 1, place - 1
        windows.pop()
    return lead
