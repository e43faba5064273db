"""Sums of a tile whose operand along the stream also lies along it in memory: sides are swapped.

That operand is read in place, as the rows of register tiles; vectors run along the job's rows,
whose weights are turned for each tile. The sums are kept column by column.
"""

from __future__ import annotations

from lumjax.kernel.contract import balanced, tile_shape, widened
from lumjax.kernel.emit import Emitter, Scope, combine, held
from lumjax.kernel.fold_shape import Right
from lumjax.kernel.fold_state import State
from lumjax.kernel.fold_values import apply
from lumjax.kernel.ir import LoadValue, LoopKind, Ref, StoreStmt, Tile
from lumjax.kernel.roles import Carry
from lumjax.kernel.share import extent
from lumjax.kernel.term import Axis, Buffer
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp


def emit_swapped(
    emitter: Emitter,
    state: State,
    scope: Scope,
    carry: Carry,
    right: Right,
    weights: tuple[Buffer, int],
    span: tuple[Axis, Dim, Dim],
) -> None:
    """sum[columns, row] = sum * factor + values @ weights, over a span (axis, begin, length) of the
    stream. `weights` are a tile [row][point] and its width.
    """
    assert emitter.target is not None, "tiles are shaped for a target"
    assert right.turned is not None, "there is room for turned weights"
    (along, begin, length), (tile, width), last = span, weights, carry.columns[-1]
    dtype, total, height = held(carry.term), state.sums[carry.term], state.height
    point, panel, column, k = (emitter.fresh(n) for n in "kqrk")
    with (
        scope.loop(point, length) as each,
        state.over_rows(each, LoopKind.VECTOR) as row,
    ):
        value = widened(LoadValue(tile, state.row * width + dims.symbol(point)), dtype)
        row.add(StoreStmt(right.turned, dims.symbol(point) * height + state.row, value))
    rows, cols = tile_shape(carry.term.dtype, emitter.target, height)
    rows = balanced(rows, extent(emitter, [last]))
    panels = dims.ceiling_divide(state.last - state.first, cols)
    with (
        scope.loop(column, last.extent, step=rows) as over,
        over.loop(panel, panels) as at,
    ):
        acc, step = emitter.fresh("t"), dims.symbol(k)
        body = Scope(at, {state.rows.name, last.name})
        before = state.rescaled(carry.term, LoadValue(total, state.place(carry)))
        after = apply(combine(ReduceOp.SUM), before, Ref(acc, dtype))
        body.add(StoreStmt(total, state.place(carry), after))
        at.add(
            Tile(
                acc,
                dtype,
                last.name,
                dims.symbol(column),
                last.extent,
                rows,
                state.rows.name,
                state.first + dims.symbol(panel) * cols,
                state.last,
                cols,
                ((k, length),),
                widened(right.value(emitter, at, 0, {along.name: begin + step}), dtype),
                LoadValue(right.turned, step * height + state.row),
                tuple(body.stmts),
            )
        )
