"""Sums about an average that a loop over tiles does not know yet: what stands for it meanwhile, and
how the sums move with it.

The guess is the average of what was seen: the statistic as it would be if the rest of the row were
like that. When it changes, a sum's partial value moves by a polynomial of the change (see `Shift`)
whose coefficients are sums too: that of the slope is carried along, that of the bend is as many
times the bend as points were seen. After the last tile the guess is the statistic itself. (For
means and squares this is how Chan et al. combine moments; nothing here knows of them.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lumjax import dtype as dt
from lumjax.kernel.contract import widened
from lumjax.kernel.emit import MULTIPLY, Emitter, Scope, held
from lumjax.kernel.fold_values import (
    ADD,
    DIVIDE,
    EQUAL,
    FINITE,
    SELECT,
    SUBTRACT,
    apply,
    constant,
    hold,
    unrounded,
)
from lumjax.kernel.ir import IndexValue, LoadValue, StoreStmt, Value
from lumjax.kernel.roles import Roles, average
from lumjax.kernel.term import Buffer, Reduction, Running, Term
from lumjax.record import record
from lumjax.trace.dim import Dim


@record
class Guess:
    """What stands for a statistic made of the sum `base`, and by how much the last step changed it:
    a number per row each.
    """

    statistic: Term
    base: Reduction
    running: Buffer
    change: Buffer


class Moves:
    """The guesses of one job and the slopes of the sums that move with them."""

    def __init__(self, emitter: Emitter, roles: Roles, height: int) -> None:
        self.emitter = emitter
        self.roles = roles
        self.guesses: dict[Term, Guess] = {}
        self.slopes: dict[Reduction, Buffer] = {}
        for term in (c.term for c in roles.carries):
            if term.shift is None:
                continue
            base, statistic = average(term), term.shift.statistic
            assert base is not None, "a shift's statistic is made of one sum"
            if statistic not in self.guesses:
                wide = dt.accumulation_dtype(statistic.dtype)
                places = emitter.local(height, wide), emitter.local(height, wide)
                self.guesses[statistic] = Guess(statistic, base, *places)
            self.slopes[term] = emitter.local(height, held(term))
        # What rounding kept from the sums that statistics are made of: it is added later. A guess
        # that is off by the rounding of thousands of additions would be so at the end, too.
        self.rests = {g.base: emitter.local(height, held(g.base)) for g in self.guesses.values()}
        self.bases = tuple(self.rests)
        # How many points of its row every row has seen: all the same, so that parts can be saved.
        self.count = emitter.local(height, dt.int64) if self.guesses else None

    @property
    def buffers(self) -> list[Buffer]:
        """All that is carried from tile to tile."""
        kept = [g.running for g in self.guesses.values()]
        kept += [*self.slopes.values(), *self.rests.values()]
        return kept if self.count is None else [*kept, self.count]

    def clear(self, scope: Scope, row: Dim) -> None:
        """In a scope that binds a row: nothing was seen."""
        for buffer in (*self.buffers, *(g.change for g in self.guesses.values())):
            scope.add(StoreStmt(buffer, row, constant(0.0, buffer.dtype)))

    def total(
        self, scope: Scope, row: Dim, base: Reduction, number: Buffer, more: Sequence[Value]
    ) -> Value:
        """In a scope that binds a row: add to a sum, with what rounding keeps carried on."""
        before, rest = LoadValue(number, row), self.rests[base]
        addend: Value = LoadValue(rest, row)
        for value in reversed(more):
            addend = apply(ADD, widened(value, held(base)), addend)
        added = self.emitter.let(addend, scope)
        after = self.emitter.let(apply(ADD, before, added), scope)
        lost = self.emitter.let(apply(SUBTRACT, added, apply(SUBTRACT, after, before)), scope)
        finite = apply(FINITE, lost, dtype=dt.bool_)
        scope.add(StoreStmt(rest, row, apply(SELECT, finite, lost, constant(0.0, lost.dtype))))
        scope.add(StoreStmt(number, row, after))
        return after

    def advance(self, scope: Scope, row: Dim, base: Reduction, total: Value, points: Value) -> None:
        """In a scope that binds a row: the guesses now that a sum is `total`, `points` later."""
        assert self.count is not None, "there are guesses"
        seen = LoadValue(self.count, row)
        whole = IndexValue(math.prod((a.extent for a in self.roles.stream), start=1), dt.int64)
        first = apply(EQUAL, seen, constant(0, dt.int64), dtype=dt.bool_)
        now_seen = self.emitter.let(apply(ADD, seen, points), scope)
        wide = total.dtype
        share = apply(DIVIDE, widened(whole, wide), widened(now_seen, wide))
        expected = self.emitter.let(apply(MULTIPLY, total, share), scope)
        scope.memo[base] = hold(expected, base.dtype)
        for guess in self.guesses.values():
            if guess.base is base:
                found = self.emitter.value(guess.statistic, scope)
                now = self.emitter.let(unrounded(found, guess.running.dtype), scope)
                change = apply(SUBTRACT, now, LoadValue(guess.running, row))
                change = apply(SELECT, first, constant(0.0, now.dtype), change)
                scope.add(StoreStmt(guess.change, row, self.emitter.let(change, scope)))
                scope.add(StoreStmt(guess.running, row, now))

    def see(self, scope: Scope, row: Dim, points: Value) -> None:
        """In a scope that binds a row: after a tile of so many points."""
        if self.count is not None:
            total = apply(ADD, LoadValue(self.count, row), points)
            scope.add(StoreStmt(self.count, row, total))

    def know(self, scope: Scope, row: Dim) -> None:
        """In a scope that binds a row: what Running stands for."""
        for guess in self.guesses.values():
            value = hold(LoadValue(guess.running, row), guess.statistic.dtype)
            running = Running(guess.statistic, self.roles.stream)
            scope.memo[running] = self.emitter.let(value, scope)

    def change(self, term: Reduction, row: Dim) -> Value:
        """By how much the last step changed what a sum follows."""
        assert term.shift is not None, "the sum moves"
        return LoadValue(self.guesses[term.shift.statistic].change, row)

    def running(self, term: Reduction) -> Buffer:
        """The guess that a sum follows."""
        assert term.shift is not None, "the sum moves"
        return self.guesses[term.shift.statistic].running

    def moved(
        self, scope: Scope, term: Reduction, values: tuple[Value, Value], seen: Value, change: Value
    ) -> tuple[Value, Value]:
        """A sum and its slope, of `seen` points, after a change of what they follow."""
        assert term.shift is not None, "the sum moves"
        total, slope = values
        wide = held(term)
        bend = unrounded(self.emitter.value(term.shift.bend, scope), wide)
        step = self.emitter.let(widened(change, wide), scope)
        bent = self.emitter.let(
            apply(MULTIPLY, apply(MULTIPLY, bend, widened(seen, wide)), step), scope
        )
        mean = apply(ADD, slope, bent)
        after = apply(ADD, total, apply(MULTIPLY, step, mean))
        return self.emitter.let(after, scope), self.emitter.let(apply(ADD, mean, bent), scope)

    def add(
        self, scope: Scope, row: Dim, term: Reduction, number: Buffer, more: tuple[Value, Value]
    ) -> None:
        """Bring a sum and its slope under the present guess and add to them."""
        assert self.count is not None, "there are guesses"
        slope = self.slopes[term]
        before = LoadValue(number, row), LoadValue(slope, row)
        seen = LoadValue(self.count, row)
        after = self.moved(scope, term, before, seen, self.change(term, row))
        for buffer, value, increment in zip((number, slope), after, more, strict=True):
            scope.add(StoreStmt(buffer, row, apply(ADD, value, increment)))
