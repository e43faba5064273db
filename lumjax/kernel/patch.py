"""PATCH: a window of an array overwritten where it lies. Nothing else of the array is written, so
that it may be an argument's memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from lumjax.kernel.builder import Builder, Operand, between, read, store, volume
from lumjax.kernel.ir import LoopKind
from lumjax.kernel.term import Buffer
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.view import row_major

WORK = 2  # of an element


def emit_patch(b: Builder, operands: Sequence[Operand], results: Sequence[Buffer]) -> None:
    """Append the phase. The operands are the array, the window and its start along each axis."""
    _, window, *starts = operands
    small = b.sized(window)
    shape = [b.size(n) for n in results[0].shape]
    extents = small.shape if isinstance(small, Buffer) else ()
    out = Buffer(results[0].name, tuple(shape), results[0].dtype)
    b.outputs = (out,)
    given = dict.fromkeys(o for o in (small, *starts) if isinstance(o, Buffer))
    b.inputs = tuple(given)
    if any(dims.same(n, 0) for n in extents):
        return
    *lead, width = extents or (1,)
    steps, inner = row_major(shape), dims.symbol("c", 0)
    names: list[tuple[str, Dim]] = [(f"d{k}", n) for k, n in enumerate(lead)]
    with b.shares(volume(lead), WORK * dims.estimate(width), "row") as scope:
        row = dims.symbol("row", 0)
        b.decode(scope, row, names)
        places: list[Dim] = [dims.symbol(n, 0) for n, _ in names]
        if extents:
            places.append(inner)
        at: Dim = 0
        for k, (start, place) in enumerate(zip(starts, places, strict=True)):
            first = b.let(scope, read(start, 0), "start")
            most = shape[k] - extents[k]
            at = at + (b.index(scope, between(first, 0, most), f"s{k}") + place) * steps[k]
        with scope.loop("c", width, LoopKind.VECTOR) as each:
            store(each, out, at, read(small, row * width + inner))
