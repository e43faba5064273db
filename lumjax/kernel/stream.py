"""Contractions of few rows: the right side is read once, in the order in which it lies.

Each job takes some terms of the sum, a few at a time: their rows of the right side are read side by
side from end to end, and what they add to the results, which lie in memory, is computed in
registers. The left side's values for these few terms stay in registers meanwhile. The jobs' partial
results are added up in order at the end. Nothing is copied, and memory sees few long runs.
"""

from __future__ import annotations

import math

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.emit import MULTIPLY, Emitter, Scope, combine, held, identity_value
from lumjax.kernel.ir import ApplyValue, IndexValue, Let, LoadValue, LoopKind, StoreStmt, Value
from lumjax.kernel.rewrite import rebuild, rewrite
from lumjax.kernel.share import extent
from lumjax.kernel.split import Part, combine_parts
from lumjax.kernel.term import Term
from lumjax.kernel.tiles import Tiling, plain, widened
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp, ScalarOp

AT_ONCE = 8  # rows read side by side: more of them would share few sets of the cache
FEWEST = 4  # fewer are not worth reading the results again and again
JOBS = 4  # that keep memory busy
LONG = 64  # results of a row, and terms of their sums
SHARE = 48  # terms of the sum, for each row of the result, for which partial results are little
BYTES = 1 << 19  # of the right side: what a job reads at least
FMA = ScalarOp("fma", 3, lambda x, y, z: np.add(np.multiply(x, y), z), None, 2.0)


def terms_at_once(emitter: Emitter, tiling: Tiling) -> int:
    """How many terms of the sum are taken together; 0 if the contraction is not for this."""
    target, rows = emitter.target, emitter.size(tiling.m.extent)
    assert target is not None, "registers are those of a target"
    if rows is None or tiling.dots or tiling.laid or tiling.ends or len(tiling.k) != 1:
        return 0
    asked = emitter.schedule.rows or emitter.schedule.right
    if asked or not (plain(tiling.lhs, tiling.k) and plain(tiling.rhs, tiling.k, tiling.n)):
        return 0
    size = extent(emitter, (*tiling.k, tiling.n)) * held(tiling.term).itemsize
    if size <= 2 * target.l1 or min(extent(emitter, [a]) for a in (tiling.n, *tiling.k)) < LONG:
        return 0
    most = min(AT_ONCE, (target.vector_registers - 2 - rows) // rows)
    return most if most >= FEWEST else 0


def emit_stream(emitter: Emitter, tiling: Tiling, step: int) -> None:
    """Append the phases: partial results by shares of the sum, then their combination."""
    (axis,) = tiling.k
    share = emitter.chunk(_share(emitter, tiling, step))
    parts = dims.ceiling_divide(axis.extent, share)
    order = tiling.roots[0].axes
    space = math.prod((a.extent for a in order), start=parts)
    part = Part(tiling.term, order, emitter.temporary(space, held(tiling.term)))
    top = Scope(bound={job := emitter.fresh("job")})
    number, start = emitter.fresh("q"), emitter.fresh("k")
    points = math.prod((a.extent for a in tiling.outer), start=1)
    whole = dims.floor_divide(dims.symbol(job), points)
    top.add(Let(number, IndexValue(whole, dt.int64)))
    index = dims.symbol(number, 0)
    top.add(Let(start, IndexValue(index * share, dt.int64)))
    top.bound |= {number, start}
    if tiling.outer:
        emitter.decode(tiling.outer, dims.remainder(dims.symbol(job), points), top)
    begin = dims.symbol(start)
    length = dims.minimum(share, axis.extent - begin)
    stream = _Stream(emitter, tiling, part, index)
    stream.clear(top)
    full = dims.floor_divide(length, step)
    stream.add(top, full, begin, step)
    stream.add(top, length - full * step, begin + full * step, 1)
    emitter.phase(job, parts * points, top)
    combine_parts(emitter, tiling.roots, [part], parts)


def _share(emitter: Emitter, tiling: Tiling, step: int) -> int:
    """How many terms of the sum a job takes."""
    rows, depth = extent(emitter, [tiling.m]), extent(emitter, tiling.k)
    size = extent(emitter, (*tiling.k, tiling.n)) * held(tiling.term).itemsize
    points = extent(emitter, tiling.outer)
    parts = max(1, min(JOBS // points, depth // (SHARE * rows), size // BYTES))
    return -(-depth // (parts * step)) * step


class _Stream:
    """Emits the loops of one job."""

    def __init__(self, emitter: Emitter, tiling: Tiling, part: Part, index: Dim) -> None:
        self.emitter, self.tiling, self.part, self.index = emitter, tiling, part, index
        self.dtype = held(tiling.term)
        rows = emitter.size(tiling.m.extent)
        assert rows is not None, "there are few rows"
        self.rows = range(rows)

    def clear(self, scope: Scope) -> None:
        """Begin with nothing."""
        zero = identity_value(ReduceOp.SUM, self.dtype)
        with scope.loop(self.tiling.n.name, self.tiling.n.extent, LoopKind.VECTOR) as inside:
            for row in self.rows:
                inside.add(StoreStmt(self.part.buffer, self._at(row), zero))

    def add(self, scope: Scope, trips: Dim, begin: Dim, step: int) -> None:
        """Add so many times `step` terms of the sum, from `begin` on."""
        emitter, tiling = self.emitter, self.tiling
        group = emitter.fresh("g")
        with (
            scope.loop(group, trips) as outer,
            outer.loop(tiling.n.name, tiling.n.extent, LoopKind.VECTOR) as inside,
        ):
            first = begin + dims.symbol(group) * step
            sums: list[Value] = [LoadValue(self.part.buffer, self._at(m)) for m in self.rows]
            sums = [emitter.let(s, inside) for s in sums]
            for u in range(step):
                right = self._value(tiling.rhs, {tiling.k[0].name: first + u}, inside)
                for m in self.rows:
                    at = {tiling.k[0].name: first + u, tiling.m.name: m}
                    left = self._value(tiling.lhs, at, inside)
                    sums[m] = emitter.let(self._fused(left, right, sums[m]), inside)
            for m in self.rows:
                inside.add(StoreStmt(self.part.buffer, self._at(m), sums[m]))

    def _at(self, row: int) -> Dim:
        return dims.substitute(self.part.at(self.index), {self.tiling.m.name: row})

    def _value(self, side: Term, at: dict[str, Dim], scope: Scope) -> Value:
        term = rewrite(side, lambda t, kids: rebuild(t, kids, at), {})
        return widened(self.emitter.value(term, scope), self.dtype)

    def _fused(self, a: Value, b: Value, c: Value) -> Value:
        target = self.emitter.target
        assert target is not None
        if "+fma" in target.features:
            return ApplyValue(FMA, (a, b, c), self.dtype)
        product = ApplyValue(MULTIPLY, (a, b), self.dtype)
        return ApplyValue(combine(ReduceOp.SUM), (c, product), self.dtype)
