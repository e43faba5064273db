"""Idle tiles at run time: the scan of operands that allows skipping them, and the check that what
was masked away lay far below each row's statistic.
"""

from __future__ import annotations

import math

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.contract import widened
from lumjax.kernel.emit import CAST, MULTIPLY, Emitter, Scope, combine
from lumjax.kernel.evaluate import literal
from lumjax.kernel.fold_values import apply, constant, hold
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    If,
    IndexValue,
    LoadValue,
    LoopKind,
    Ref,
    StoreStmt,
    Value,
)
from lumjax.kernel.roles import direct
from lumjax.kernel.skip import Decision
from lumjax.kernel.term import Apply, Buffer, Lit, Load, Reduction, Scale, Term
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp, ScalarOp

SCAN = 1 << 16  # elements that one job scans
SLACK = 1.01  # by which a sum of rounded products may exceed the bound of the exact one
_ABS = ScalarOp("abs", 1, np.abs)
_DIVIDE = ScalarOp("div", 2, np.divide)
_SUBTRACT = ScalarOp("sub", 2, np.subtract)
_EQUAL = ScalarOp("eq", 2, np.equal)
_REACHES = ScalarOp("ge", 2, np.greater_equal)
_SELECT = ScalarOp("select", 3, np.where)
_MAX, _ADD = combine(ReduceOp.MAX), combine(ReduceOp.SUM)


class Guard:
    """Whether idle tiles may be skipped, as the operands of this run are."""

    def __init__(self, emitter: Emitter, decision: Decision) -> None:
        self.emitter = emitter
        self.decision = decision
        nonzero = {load.buffer.name for load in decision.nonzero}
        names = dict.fromkeys(load.buffer.name for load in decision.finite)
        self.found, self.parts = _scan(emitter, {n: n in nonzero for n in names})
        self.largest: dict[str, Value] = {}
        self.above: dict[tuple[Scale, Term], Value] = {}

    def allow(self, scope: Scope) -> Dim:
        """In a scope around all units of a job: 1 where skipping is allowed, else 0."""
        emitter = self.emitter
        total: Value = constant(0.0, dt.float64)
        for buffer, (begin, end) in self.parts.items():
            assert self.found is not None, "what is scanned leaves numbers"
            name, k = emitter.fresh("s"), emitter.fresh("q")
            scope.add(Accumulator(name, dt.float64, ReduceOp.MAX, constant(0.0, dt.float64)))
            with scope.loop(k, end, begin=begin) as inner:
                inner.add(Accumulate(name, LoadValue(self.found, dims.symbol(k))))
            self.largest[buffer] = emitter.let(Ref(name, dt.float64), scope)
            nothing = apply(_SUBTRACT, self.largest[buffer], self.largest[buffer])
            total = apply(_ADD, total, nothing)
        named = emitter.let(total, scope)
        fine = apply(_EQUAL, named, named, dtype=dt.bool_)
        flag = emitter.let(ApplyValue(CAST, (fine,), dt.int64), scope)
        scope.bound.add(flag.name)
        for scale, body in self.decision.low:
            self.above[scale, body] = emitter.let(self._upper(body), scope)
        return dims.symbol(flag.name, 0, 1)

    # ---- bounds

    def _upper(self, term: Term) -> Value:
        """A number that the term does not exceed."""
        match term:
            case Lit():
                return constant(float(literal(term)), dt.float64)
            case Apply(op=op, args=args) if op.name == "add":
                return apply(_ADD, self._upper(args[0]), self._upper(args[1]))
            case Apply(op=op, args=args) if op.name == "sub":
                return apply(_ADD, self._upper(args[0]), self._size(args[1]))
            case _:
                return self._size(term)

    def _size(self, term: Term) -> Value:
        """A number that the term's magnitude does not exceed."""
        match term:
            case Lit():
                return constant(abs(float(literal(term))), dt.float64)
            case Load():
                return self.largest[term.buffer.name]
            case Reduction(axes=axes, body=body):
                count = math.prod((a.extent for a in axes), start=1)
                points = IndexValue(count, dt.float64)
                exact = apply(MULTIPLY, points, self._size(body))
                return apply(MULTIPLY, exact, constant(SLACK, dt.float64))
            case Apply(op=op, args=args):
                sizes = [self._size(a) for a in args if not dt.is_bool(a.dtype)]
                if op.name == "tanh":
                    return constant(1.0, dt.float64)
                if op.name == "mul":
                    return apply(MULTIPLY, *sizes)
                if op.name == "select":
                    return apply(_MAX, *sizes)
                return apply(_ADD, *sizes) if len(sizes) > 1 else sizes[0]
            case _:
                raise AssertionError("`boundable` accepts no other term")

    # ---- after the loop

    def marks(self, scope: Scope, factors: dict[Scale, dt.DType], whole: Value) -> list[Value]:
        """In a scope that binds a row: nan for each masked value that is not far enough below the
        row's statistic, else 0, in float64. `whole` says that no tile was skipped.
        """
        found: list[Value] = []
        for (scale, _), above in self.above.items():
            final = self._wide(scale.statistic, scope)
            rate = self._wide(scale.factor, scope)
            (maximum,) = (t for t in direct([scale.statistic]) if t.op is ReduceOp.MAX)
            distance = apply(MULTIPLY, apply(_SUBTRACT, above, final), rate)
            enough = constant(1100.0 if factors[scale] == dt.float64 else 150.0, dt.float64)
            far = apply(_REACHES, distance, enough, dtype=dt.bool_)
            seen = apply(_REACHES, self._wide(maximum, scope), above, dtype=dt.bool_)
            fine = apply(combine(ReduceOp.AND), far, seen)
            zero, nan = constant(0.0, dt.float64), constant(math.nan, dt.float64)
            found.append(apply(_SELECT, whole, zero, apply(_SELECT, fine, zero, nan)))
        return found

    def _wide(self, term: Term, scope: Scope) -> Value:
        """The term's value in float64."""
        value = self.emitter.value(term, scope)
        return widened(hold(value, dt.accumulation_dtype(value.dtype)), dt.float64)


def _scan(
    emitter: Emitter, buffers: dict[str, bool]
) -> tuple[Buffer | None, dict[str, tuple[Dim, Dim]]]:
    """A phase that finds the largest magnitude in buffers (true: of their reciprocals too): a
    number per job, in a workspace, and each buffer's jobs.
    """
    chunk = emitter.chunk(SCAN)
    job = emitter.fresh("job")
    number = dims.symbol(job)
    spans: dict[str, tuple[Dim, Dim]] = {}
    jobs: Dim = 0
    for name in buffers:
        total = math.prod(emitter.prepared.buffers[name].shape, start=1)
        spans[name] = jobs, jobs + dims.ceiling_divide(total, chunk)
        jobs = spans[name][1]
    if not buffers:
        return None, spans
    found = emitter.temporary(jobs, dt.float64)
    top = Scope(bound={job})
    for name, nonzero in buffers.items():
        first, last = spans[name]
        inside = Scope(top)
        start = (number - first) * chunk
        buffer = emitter.prepared.buffers[name]
        largest = _largest(emitter, inside, buffer, nonzero, (start, start + chunk))
        inside.add(StoreStmt(found, number, largest))
        mine = dims.logical_and(dims.less_equal(first, number), dims.less(number, last))
        top.add(If(mine, tuple(inside.stmts)))
    emitter.phase(job, jobs, top)
    return found, spans


def _largest(
    emitter: Emitter, scope: Scope, buffer: Buffer, nonzero: bool, span: tuple[Dim, Dim]
) -> Value:
    """The largest magnitude of a stretch of a buffer."""
    dtype = dt.accumulation_dtype(buffer.dtype)
    total = math.prod(buffer.shape, start=1)
    begin, end = dims.maximum(span[0], 0), dims.minimum(span[1], total)
    name, x = emitter.fresh("s"), emitter.fresh("x")
    scope.add(Accumulator(name, dtype, ReduceOp.MAX, constant(0.0, dtype)))
    with scope.loop(x, end, LoopKind.VECTOR, begin) as inner:
        value = emitter.let(hold(LoadValue(buffer, dims.symbol(x)), dtype), inner)
        size = apply(_ABS, value)
        if nonzero:
            size = apply(_MAX, size, apply(_ABS, apply(_DIVIDE, constant(1.0, dtype), value)))
        inner.add(Accumulate(name, size))
    return widened(Ref(name, dtype), dt.float64)
