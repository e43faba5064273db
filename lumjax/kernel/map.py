"""MAP: any number of terms without reductions over the same axes, in one pass.

Vectors run along the last axis, along which the roots are contiguous. Where a load is contiguous
along another axis (a transpose), both are walked in square blocks, so that every cache line is
used while it is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from lumjax.kernel.emit import Emitter, Inside, Scope
from lumjax.kernel.ir import LoopKind
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.share import extent, one_job, over_pieces, over_rows, work
from lumjax.kernel.term import Axis, Load, Root, free_names, loads
from lumjax.trace import dim as dims

BLOCK = 16  # elements: a cache line of float32


def emit_map(emitter: Emitter, roots: Sequence[Root]) -> None:
    """Append the phase that computes `roots`, whose axes agree; vectors run along the last."""
    axes = roots[0].axes

    def stores(scope: Scope) -> None:
        for root in roots:
            emitter.store(root, scope)

    if not axes:
        one_job(emitter, stores)
        return
    per_element = work(r.term for r in roots) + len(roots)
    across = crossing(emitter, roots)
    if across is not None:
        _blocks(emitter, axes, across, per_element, stores)
        return
    over_pieces(
        emitter,
        axes[:-1],
        axes[-1],
        per_element,
        lambda scope: emitter.nest(axes[-1:], scope, LoopKind.VECTOR, stores),
    )


def crossing(emitter: Emitter, roots: Sequence[Root]) -> Axis | None:
    """The axis other than the last that some load walks with stride 1, if both are long.

    What is the same along the last axis is read once a row, wherever it lies.
    """
    *others, last = roots[0].axes
    both = [t for r in roots for t in loads(r.term) if last.name in free_names(t)]
    walked = [a for a in others if any(_beside(t, a) for t in both)]
    found = [a for a in walked if extent(emitter, [a]) >= BLOCK]
    return found[-1] if found and extent(emitter, [last]) >= BLOCK else None


def _beside(load: Load, axis: Axis) -> bool:
    """Whether neighbours along the axis lie side by side."""
    return dims.same(dims.coefficient(load.coords[0], axis.name) or 0, 1)


def _blocks(
    emitter: Emitter, axes: Sequence[Axis], across: Axis, per_element: int, stores: Inside
) -> None:
    """Walk blocks of `across` by the last axis."""
    last = axes[-1]
    blocked = {
        a: Axis(emitter.fresh("b"), dims.ceiling_divide(a.extent, BLOCK)) for a in (across, last)
    }
    outer = [a for a in axes if a not in blocked]

    def block(scope: Scope) -> None:
        for axis, index in blocked.items():
            begin = axis_symbol(index) * BLOCK
            emitter.ranges[axis.name] = begin, dims.minimum(begin + BLOCK, axis.extent)
        emitter.nest((across, last), scope, LoopKind.VECTOR, stores)
        for axis in blocked:
            del emitter.ranges[axis.name]

    over_rows(emitter, (*outer, *blocked.values()), BLOCK * BLOCK * per_element, block)
