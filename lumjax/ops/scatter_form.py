"""The form of a scatter that writes each element at most once: a choice per element."""

from __future__ import annotations

from typing import Any

from lumjax.ops.windows import batch_places, scatter_as_gather, window_axes
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Primitive
from lumjax.trace.dim import Dim, equal, less, less_equal, logical_and, same, symbol
from lumjax.trace.form import GatherMode, Map, ScalarOp, Scatter
from lumjax.trace.view import IndexMap, coordinates


def scalar_operation(combine: Primitive | None, dtype: Any) -> ScalarOp | None:
    """The scalar operation of an elementwise primitive of two operands of a dtype."""
    if combine is None:
        return None
    scalar = ShapedArray((), dtype)
    made = combine.form(scalar, scalar)
    return made.op if isinstance(made, Map) else None


def separate_updates(
    x: ShapedArray, indices: ShapedArray, updates: ShapedArray, combine: Primitive | None, p: Any
) -> Scatter | None:
    """The form of a scatter whose index vectors write to separate elements, else None.

    They do if operand and indices are traversed together but for axes of the indices of size 1.
    `combine` is the elementwise operation of an element and its update (None: overwrite), `p` the
    scatter's parameters.
    """
    op = scalar_operation(combine, x.dtype)
    if combine is not None and op is None:
        return None
    numbers, sizes = scatter_as_gather(p["dimension_numbers"], x.shape, updates.shape)
    together = dict(
        zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True)
    )
    batch = range(indices.ndim - 1)
    if any(b not in together and not same(indices.shape[b], 1) for b in batch):
        return None
    place = coordinates(x.shape)
    rows: list[Dim] = [place[together[b]] if b in together else 0 for b in batch]
    clip = p["mode"] is GatherMode.CLIP
    bounds = [(0, x.shape[a] - sizes[a]) for a in numbers.start_index_map]
    starts: dict[int, Dim] = {}
    for j, a in enumerate(numbers.start_index_map):
        lone = same(sizes[a], 1)  # an index that equals a coordinate is in range
        starts[a] = symbol(f"g{j}", None, None) if lone else symbol(f"g{j}", 0, bounds[j][1])
    offsets = dict(zip(window_axes(numbers, x.ndim), numbers.offset_dims, strict=True))
    coords: list[Dim] = [0] * updates.ndim
    for k, row in zip(batch_places(numbers, updates.ndim), rows, strict=True):
        coords[k] = row
    valid: Dim = 1
    for a in range(x.ndim):
        if a in numbers.operand_batching_dims:
            continue
        step = place[a] - starts.get(a, 0)
        if same(sizes[a], 1):
            valid = logical_and(valid, equal(step, 0))
            continue
        coords[offsets[a]] = step
        valid = logical_and(valid, logical_and(less_equal(0, step), less(step, sizes[a])))
    maps = tuple([IndexMap(x.shape, (*rows, j)) for j in range(len(bounds))])
    names = tuple([f"g{j}" for j in range(len(bounds))])
    return Scatter(IndexMap(x.shape, tuple(coords), valid), maps, names, tuple(bounds), clip, op)
