"""Staging: run a Python function on tracers and record a Jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import (
    Atom,
    Eqn,
    Jaxpr,
    Literal,
    Params,
    Primitive,
    Trace,
    Tracer,
    Value,
    Var,
    active_traces,
    aval_of,
    current_source,
    leaked,
    using,
)


class StageTracer(Tracer):
    """A value of the program being recorded."""

    __slots__ = ("var",)

    def __init__(self, trace: Trace, var: Var) -> None:
        super().__init__(trace, var.aval)
        self.var = var


class StageTrace(Trace):
    """Records every operation as an equation. Foreign tracers and arrays are hoisted."""

    def __init__(self) -> None:
        self.eqns: list[Eqn] = []
        self.const_vars: list[Var] = []
        self.const_values: list[Value] = []
        self._const_index: dict[int, Var] = {}

    def new_input(self, aval: ShapedArray) -> StageTracer:
        """A fresh input of the program."""
        return StageTracer(self, Var(aval))

    def atom(self, x: Value) -> Atom:
        """The atom that stands for `x`: its variable, a literal for a rank-0 constant, or a hoisted
        constant.
        """
        if isinstance(x, StageTracer) and x.trace is self:
            return x.var
        aval = aval_of(x)
        if aval.ndim == 0 and not isinstance(x, Tracer) and aval.dtype.kind != "V":
            return Literal(np.asarray(x.data if isinstance(x, Array) else x, aval.dtype), aval)
        if (var := self._const_index.get(id(x))) is None:
            var = self._const_index[id(x)] = Var(aval)
            self.const_vars.append(var)
            self.const_values.append(x)  # keeps x alive, so the id stays its own
        return var

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        """Record one equation."""
        outputs = tuple(Var(a) for a in prim.aval(*map(aval_of, args), **params))
        self.eqns.append(Eqn(prim, tuple(map(self.atom, args)), outputs, params, current_source()))
        return tuple(StageTracer(self, v) for v in outputs)


@record(eq=False)
class Staged:
    """A jaxpr and the values it closed over; the jaxpr's first inputs are those values.

    `cacheable` is false when a constant is a tracer: such a program belongs to one run of an outer
    transformation.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]

    @property
    def cacheable(self) -> bool:
        """Whether the program may be reused for another call with the same signature."""
        return not any(isinstance(c, Tracer) for c in self.consts)


def stage(f: Callable[..., Sequence[Value]], avals: Sequence[ShapedArray]) -> Staged:
    """Record `f`, a function of flat values that returns a flat sequence, at the given avals."""
    trace = StageTrace()
    args = [trace.new_input(a) for a in avals]
    with using(trace):
        outs = list(f(*args))
    atoms = tuple(map(trace.atom, outs))
    for out in outs:
        if isinstance(out, StageTracer) and out.trace is not trace and not _alive(out):
            raise leaked(out)
    inputs = (*trace.const_vars, *(a.var for a in args))
    jaxpr = Jaxpr(inputs, tuple(trace.eqns), atoms, consts=len(trace.const_vars))
    return Staged(jaxpr, tuple(trace.const_values))


def _alive(tracer: Tracer) -> bool:
    return any(t is tracer.trace for t in active_traces())
