"""Few rows, a long stream: the carries of parts of the stream, combined in index order.

Each job walks its part of the tiles under statistics of its own and leaves its carries in a
workspace; a second phase brings them under one statistic, part by part, and goes on as if it had
walked the stream itself.
"""

from __future__ import annotations

import math

from lumjax import dtype as dt
from lumjax.kernel.emit import Emitter, Scope, combine
from lumjax.kernel.fold_state import State
from lumjax.kernel.fold_values import SUBTRACT, apply
from lumjax.kernel.ir import IndexValue, LoadValue, LoopKind, StoreStmt, Value
from lumjax.kernel.prepare import offset
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.roles import Carry
from lumjax.kernel.term import Buffer, Reduction
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp


class Parts:
    """The workspace of all parts: a copy of a job's carries for each."""

    def __init__(self, emitter: Emitter, state: State, height: int, copies: Dim) -> None:
        self.emitter = emitter
        self.state = state
        self.height = height
        rows = copies * height
        numbers = [*state.numbers.values(), *state.maxima.values()]
        numbers += [r.running for r in state.rulers.values()]
        numbers += state.moves.buffers
        numbers += [] if state.trace is None else [state.trace]
        self.numbers = {b.name: (b, emitter.temporary(rows, b.dtype)) for b in numbers}
        self.sums: dict[Carry, Buffer] = {}
        for carry in state.roles.carries:
            if carry.columns:
                size = math.prod((a.extent for a in carry.columns), start=rows)
                self.sums[carry] = emitter.temporary(size, state.sums[carry.term].dtype)

    def row(self, copy: Dim) -> Dim:
        """Where the current row's numbers lie in a copy."""
        return copy * self.height + self.state.row

    def place(self, carry: Carry, copy: Dim) -> Dim:
        """Where the element at the current row and columns lies in a copy."""
        extents = (1, *(a.extent for a in carry.columns))
        return offset(extents, (self.row(copy), *map(axis_symbol, carry.columns)))

    def save(self, scope: Scope, copy: Dim) -> None:
        """Leave the job's carries in a copy."""
        state = self.state
        with state.over_rows(scope, LoopKind.VECTOR) as inner:
            for buffer, target in self.numbers.values():
                inner.add(StoreStmt(target, self.row(copy), state.number(buffer)))
        for carry, target in self.sums.items():

            def each(inner: Scope, carry: Carry = carry, target: Buffer = target) -> None:
                value = LoadValue(state.sums[carry.term], state.place(carry))
                inner.add(StoreStmt(target, self.place(carry, copy), value))

            with state.over_rows(scope, LoopKind.SERIAL) as outer:
                self.emitter.nest(carry.columns, outer, LoopKind.VECTOR, each)

    def merge(self, scope: Scope, first: Dim, count: Dim, peaks: dict[Reduction, Buffer]) -> None:
        """Combine `count` copies from `first` on into the job's carries, in order."""
        with scope.loop(name := self.emitter.fresh("q"), count) as each:
            copy = first + dims.symbol(name)
            if peaks:
                with self.state.over_rows(each, LoopKind.VECTOR) as row:
                    kept = {**self.state.numbers, **self.state.maxima}
                    for term, buffer in peaks.items():
                        saved = self.saved(kept[term], copy)
                        row.add(StoreStmt(buffer, self.state.row, saved))
                moves = self.state.moves
                rests = {t: (self.saved(b, copy),) for t, b in moves.rests.items()}
                self.state.advance(each, peaks, self.points(copy), rests=rests)
            self._add(each, copy)

    def points(self, copy: Dim) -> Value:
        """How many points a copy's part has, in a scope that binds a row; any number if nothing
        depends on it.
        """
        count = self.state.moves.count
        return IndexValue(0, dt.int64) if count is None else self.saved(count, copy)

    def saved(self, buffer: Buffer, copy: Dim) -> LoadValue:
        """The current row's number in a copy."""
        return LoadValue(self.numbers[buffer.name][1], self.row(copy))

    def _add(self, scope: Scope, copy: Dim) -> None:
        """Add one copy's sums and numbers, each rescaled to the present statistic."""
        state = self.state
        with state.over_rows(scope, LoopKind.VECTOR) as row:
            if state.trace is not None:
                both = state.number(state.trace), self.saved(state.trace, copy)
                row.add(StoreStmt(state.trace, state.row, apply(combine(ReduceOp.SUM), *both)))
            for term, buffer in state.numbers.items():
                if term.shift is not None:
                    self._move(row, term, buffer, copy)
                elif term not in state.leading:
                    before = state.rescaled(term, state.number(buffer))
                    mine = self._rescaled(row, term, self.saved(buffer, copy), copy)
                    total = apply(combine(term.op), before, mine)
                    row.add(StoreStmt(buffer, state.row, total))
            state.moves.see(row, state.row, self.points(copy))
        for carry, source in self.sums.items():
            with state.over_rows(scope, LoopKind.SERIAL) as row:
                factor = self._factor(row, carry.term, copy)

                def each(
                    inner: Scope,
                    carry: Carry = carry,
                    source: Buffer = source,
                    factor: Value | None = factor,
                ) -> None:
                    target = state.sums[carry.term]
                    before = state.rescaled(carry.term, LoadValue(target, state.place(carry)))
                    mine: Value = LoadValue(source, self.place(carry, copy))
                    if factor is not None:
                        mine = apply(combine(ReduceOp.PROD), mine, factor)
                    total = apply(combine(ReduceOp.SUM), before, mine)
                    inner.add(StoreStmt(target, state.place(carry), total))

                self.emitter.nest(carry.columns, row, LoopKind.VECTOR, each)

    def _move(self, row: Scope, term: Reduction, buffer: Buffer, copy: Dim) -> None:
        """Bring a copy's sum that follows an average under the present guess and add it."""
        moves = self.state.moves
        now = LoadValue(moves.running(term), self.state.row)
        change = apply(SUBTRACT, now, self.saved(moves.running(term), copy))
        mine = self.saved(buffer, copy), self.saved(moves.slopes[term], copy)
        more = moves.moved(row, term, mine, self.points(copy), change)
        moves.add(row, self.state.row, term, buffer, more)

    def _rescaled(self, row: Scope, term: Reduction, value: Value, copy: Dim) -> Value:
        factor = self._factor(row, term, copy)
        return value if factor is None else apply(combine(ReduceOp.PROD), value, factor)

    def _factor(self, row: Scope, term: Reduction, copy: Dim) -> Value | None:
        """What a copy's sum is multiplied by under the present statistic."""
        if term.scale is None:
            return None
        before = self.saved(self.state.rulers[term.scale].running, copy)
        return self.state.bring(row, term, before)
