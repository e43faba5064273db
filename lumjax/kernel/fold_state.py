"""What a loop over stream tiles carries: row statistics, running factors and accumulators, in
scratch of the job. Sums that follow an average have theirs in `fold_move`.

A scaled sum is accumulated under the statistic that the loop knows so far. When the statistic grows
from s to s', the sum is multiplied by exp2(factor * (s' - s)) first. While a maximum is not finite
the sums use 0 for the statistic. Whatever may have gone wrong leaves a trace that is not finite:
`flag` asks for it after the loop, and the rows are then computed again with the final statistic and
no rescaling, as the traced program does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.contract import widened
from lumjax.kernel.emit import (
    CAST,
    MULTIPLY,
    Emitter,
    OpenLoop,
    Scope,
    combine,
    held,
    identity_value,
)
from lumjax.kernel.evaluate import literal
from lumjax.kernel.fold_move import Moves
from lumjax.kernel.fold_values import (
    ABOVE,
    ADD,
    EQUAL,
    EXP2,
    FINITE,
    LEAST,
    SELECT,
    SUBTRACT,
    UNEQUAL,
    apply,
    constant,
    hold,
    unrounded,
)
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    IndexValue,
    LoadValue,
    LoopKind,
    Ref,
    StoreStmt,
    Value,
)
from lumjax.kernel.prepare import offset
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.roles import Carry, Roles, statistic
from lumjax.kernel.term import Axis, Buffer, Lit, Reduction, Running, Scale
from lumjax.record import record
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp


def anew(scale: Scale) -> bool:
    """Whether sums begin anew where the statistic rises."""
    factor = scale.factor
    return isinstance(factor, Lit) and float(literal(factor)) == -np.inf


@record
class Ruler:
    """A scale's running statistic and the factor of the last step, a number per row each."""

    scale: Scale
    running: Buffer
    factor: Buffer


class State:
    """The carries of one job."""

    def __init__(self, emitter: Emitter, roles: Roles, rows: Axis, height: int) -> None:
        self.emitter = emitter
        self.roles = roles
        self.rows = rows
        self.height = height
        self.turned = frozenset[Reduction]()  # sums that are kept column by column
        self.first: Dim = 0
        self.last: Dim = 0
        self.rulers: dict[Scale, Ruler] = {}
        self.maxima: dict[Reduction, Buffer] = {}
        self.numbers: dict[Reduction, Buffer] = {}
        self.sums: dict[Reduction, Buffer] = {}
        self.moves = Moves(emitter, roles, height)
        found = {statistic(c.term) for c in roles.carries}
        for carry in roles.carries:
            self._allocate(carry, height, carry.term in found)
        self.scaled = bool(self.rulers)
        self.trace = emitter.local(height, self.wide) if self.scaled else None
        self.again = emitter.local(1, dt.int64) if self.scaled else None

    def _allocate(self, carry: Carry, height: int, known: bool) -> None:
        """What holds a carry, and its statistic; of a `known` one the scaled sums have it."""
        emitter, term = self.emitter, carry.term
        if carry.columns:
            columns = 1
            for a in carry.columns:
                columns *= emitter.size(a.extent) or 1
            self.sums[term] = emitter.local(height * columns, held(term))
        elif not known:
            self.numbers[term] = emitter.local(height, held(term))
        scale = term.scale
        if scale is None or scale in self.rulers:
            return
        maximum = statistic(term)
        assert maximum is not None, "a scale's statistic is made of one maximum"
        self.maxima.setdefault(maximum, emitter.local(height, dt.accumulation_dtype(maximum.dtype)))
        wide = dt.accumulation_dtype(scale.statistic.dtype)
        self.rulers[scale] = Ruler(scale, emitter.local(height, wide), emitter.local(height, wide))

    @property
    def wide(self) -> dt.DType:
        """The dtype in which scales and traces of trouble are computed."""
        kinds = {dt.accumulation_dtype(s.statistic.dtype) for s in self.rulers}
        return dt.float64 if dt.float64 in kinds else dt.float32

    # ---- places

    @property
    def row(self) -> Dim:
        """The current row within the job's tile."""
        return axis_symbol(self.rows) - self.first

    def number(self, buffer: Buffer) -> LoadValue:
        """The current row's number."""
        return LoadValue(buffer, self.row)

    def place(self, carry: Carry) -> Dim:
        """Where a sum's element at the current row and columns lies."""
        columns = tuple(a.extent for a in carry.columns)
        at = tuple(map(axis_symbol, carry.columns))
        if carry.term in self.turned:
            return offset((*columns, self.height), (*at, self.row))
        return offset((1, *columns), (self.row, *at))

    def over_rows(self, scope: Scope, kind: LoopKind) -> OpenLoop:
        """A loop over the job's rows."""
        rows = scope.loop(self.rows.name, self.last, kind, self.first)
        rows.closed = self.roles.rows is None  # no term mentions the only row
        return rows

    # ---- steps

    def begin(self, scope: Scope) -> None:
        """Before the first loop: nothing is known of the maxima."""
        if self.again is not None:
            scope.add(StoreStmt(self.again, 0, IndexValue(1, dt.int64)))
        with self.over_rows(scope, LoopKind.VECTOR) as inner:
            for maximum, buffer in self.maxima.items():
                neutral = identity_value(maximum.op, buffer.dtype)
                inner.add(StoreStmt(buffer, self.row, neutral))

    def clear(self, scope: Scope) -> None:
        """Before each loop: the carries are neutral, and no statistic was used."""
        with self.over_rows(scope, LoopKind.VECTOR) as inner:
            for term, buffer in self.numbers.items():
                if term not in self.maxima:
                    neutral = identity_value(term.op, buffer.dtype)
                    inner.add(StoreStmt(buffer, self.row, neutral))
            for ruler in self.rulers.values():
                least = constant(-np.inf, ruler.running.dtype)
                inner.add(StoreStmt(ruler.running, self.row, least))
            if self.trace is not None:
                inner.add(StoreStmt(self.trace, self.row, constant(0.0, self.trace.dtype)))
            self.moves.clear(inner, self.row)
        for carry in self.roles.carries:
            if carry.columns:
                self._clear_sum(scope, carry)

    def _clear_sum(self, scope: Scope, carry: Carry) -> None:
        buffer = self.sums[carry.term]
        zero = constant(0.0, buffer.dtype)
        with self.over_rows(scope, LoopKind.SERIAL) as outer:
            self.emitter.nest(
                carry.columns,
                outer,
                LoopKind.VECTOR,
                lambda inner: inner.add(StoreStmt(buffer, self.place(carry), zero)),
            )

    @property
    def leading(self) -> tuple[Reduction, ...]:
        """What statistics are made of: of each tile it is found first."""
        return (*self.maxima, *self.moves.bases)

    def advance(
        self,
        scope: Scope,
        found: Mapping[Reduction, Buffer],
        points: Value,
        redo: Value | None = None,
        rests: Mapping[Reduction, Sequence[Value]] = MappingProxyType({}),
    ) -> None:
        """After the maxima, and the sums that averages are made of, of a tile of so many points are
        `found`: the new statistics, and the factors by which sums under the old ones are
        multiplied. `redo` says that statistics are final; `rests` are to be added to sums.
        """
        with self.over_rows(scope, LoopKind.VECTOR) as inner:
            for maximum, buffer in self.maxima.items():
                before, here = self.number(buffer), self.number(found[maximum])
                value = self.emitter.let(apply(combine(maximum.op), before, here), inner)
                inner.add(StoreStmt(buffer, self.row, value))
                inner.memo[maximum] = self.emitter.let(hold(value, maximum.dtype), inner)
            for ruler in self.rulers.values():
                self._advance(inner, ruler, redo)
            for base in self.moves.bases:
                more = (self.number(found[base]), *rests.get(base, ()))
                total = self.moves.total(inner, self.row, base, self.numbers[base], more)
                self.moves.advance(inner, self.row, base, total, points)

    def _advance(self, inner: Scope, ruler: Ruler, redo: Value | None) -> None:
        emitter, dtype = self.emitter, ruler.running.dtype
        final = unrounded(emitter.value(ruler.scale.statistic, inner), dtype)
        zero, one = constant(0.0, dtype), constant(1.0, dtype)
        finite = apply(FINITE, final, dtype=dt.bool_)
        now: Value = emitter.let(apply(SELECT, finite, final, zero), inner)
        if redo is not None:
            now = emitter.let(apply(SELECT, redo, final, now), inner)
        factor = self._step(inner, ruler, now, self.number(ruler.running), redo)
        if redo is not None:
            factor = apply(SELECT, redo, one, factor)
        inner.add(StoreStmt(ruler.factor, self.row, self.emitter.let(factor, inner)))
        inner.add(StoreStmt(ruler.running, self.row, now))

    def _step(
        self, inner: Scope, ruler: Ruler, now: Value, before: Value, redo: Value | None
    ) -> Value:
        """exp2(factor * (now - before)); leaves a trace where that cannot be represented."""
        emitter, dtype = self.emitter, ruler.running.dtype
        if anew(ruler.scale):
            same = apply(EQUAL, now, before, dtype=dt.bool_)
            return apply(SELECT, same, constant(1.0, dtype), constant(0.0, dtype))
        assert self.trace is not None, "there is a scaled sum"
        rate = unrounded(emitter.value(ruler.scale.factor, inner), dtype)
        exponent = emitter.let(apply(MULTIPLY, rate, apply(SUBTRACT, now, before)), inner)
        limit = constant(float(np.finfo(dtype).maxexp - 2), dtype)
        beyond = apply(ABOVE, exponent, limit, dtype=dt.bool_)
        wide = self.trace.dtype
        nan, zero = constant(np.nan, wide), constant(0.0, wide)
        mark: Value = apply(SELECT, beyond, nan, zero)
        if redo is not None:
            mark = apply(SELECT, redo, zero, mark)
        inner.add(StoreStmt(self.trace, self.row, apply(ADD, self.number(self.trace), mark)))
        return apply(EXP2, apply(LEAST, exponent, limit))

    def bring(self, scope: Scope, term: Reduction, before: Value) -> Value:
        """The factor that brings a sum under the statistic `before` under the present one."""
        assert term.scale is not None, "the sum is scaled"
        ruler = self.rulers[term.scale]
        factor = self._step(scope, ruler, self.number(ruler.running), before, None)
        return self.emitter.let(widened(factor, held(term)), scope)

    def know(self, scope: Scope) -> None:
        """In a scope that binds a row: what Running stands for."""
        for scale, ruler in self.rulers.items():
            value = hold(self.number(ruler.running), scale.statistic.dtype)
            running = Running(scale.statistic, self.roles.stream)
            scope.memo[running] = self.emitter.let(value, scope)
        self.moves.know(scope, self.row)

    def factor(self, term: Reduction) -> Value | None:
        """The factor by which a carry is multiplied at the current row; None: it is not scaled."""
        if term.scale is None:
            return None
        value = self.number(self.rulers[term.scale].factor)
        return value if value.dtype == held(term) else ApplyValue(CAST, (value,), held(term))

    def rescaled(self, term: Reduction, value: Value) -> Value:
        """A carry's value after the statistic has grown."""
        factor = self.factor(term)
        return value if factor is None else apply(MULTIPLY, value, factor)

    # ---- after the loop

    def finals(self, scope: Scope) -> None:
        """In a scope that binds a row: the final values of all carries that are numbers."""
        for term, buffer in {**self.numbers, **self.maxima}.items():
            value = hold(self.number(buffer), term.dtype)
            scope.memo[term] = self.emitter.let(value, scope)

    def final_sum(self, scope: Scope, carry: Carry) -> None:
        """In a scope that binds a row and columns: the final value of a carry with columns."""
        value = hold(LoadValue(self.sums[carry.term], self.place(carry)), carry.term.dtype)
        scope.memo[carry.term] = self.emitter.let(value, scope)

    def judge(self, scope: Scope, marks: Callable[[Scope], Sequence[Value]]) -> None:
        """Say in `again` whether anything of the rows, or of further `marks` per row, is not
        finite.
        """
        assert self.trace is not None, "there is a scaled sum"
        assert self.again is not None, "there is a scaled sum"
        name, wide = self.emitter.fresh("s"), self.trace.dtype
        total = Ref(name, wide)
        scope.add(Accumulator(name, wide, ReduceOp.SUM, constant(0.0, wide)))
        with self.over_rows(scope, LoopKind.VECTOR) as inner:
            inner.add(Accumulate(name, self.number(self.trace)))
            self.finals(inner)
            for scale in self.rulers:
                self._trace(inner, name, self.emitter.value(scale.statistic, inner))
            for term, buffer in self.numbers.items():
                if term.scale is not None:
                    self._trace(inner, name, self.number(buffer))
            for mark in marks(inner):
                self._trace(inner, name, mark)
        for carry in self.roles.carries:
            if carry.columns and carry.term.scale is not None:
                self._trace_sum(scope, name, carry)
        wrong = apply(UNEQUAL, total, total, dtype=dt.bool_)
        scope.add(StoreStmt(self.again, 0, ApplyValue(CAST, (wrong,), dt.int64)))

    def _trace_sum(self, scope: Scope, name: str, carry: Carry) -> None:
        def each(inner: Scope) -> None:
            value = LoadValue(self.sums[carry.term], self.place(carry))
            self._trace(inner, name, value)

        with self.over_rows(scope, LoopKind.SERIAL) as outer:
            self.emitter.nest(carry.columns, outer, LoopKind.VECTOR, each)

    def _trace(self, scope: Scope, name: str, value: Value) -> None:
        """Accumulate 0 for a finite value, nan for another."""
        assert self.trace is not None, "there is a scaled sum"
        named = self.emitter.let(value, scope)
        zero = apply(SUBTRACT, named, named)
        scope.add(Accumulate(name, unrounded(zero, self.trace.dtype)))
