"""Staging: run a Python function on tracers and record a Jaxpr."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import numpy as np

from lumjax.config import config
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
from lumjax.trace.leak import check_forgotten


class StageTracer(Tracer):
    """A value of the program being recorded."""

    __slots__ = ("var",)

    def __init__(self, trace: Trace, var: Var) -> None:
        super().__init__(trace, var.aval)
        self.var = var

    def origin(self) -> str:
        """Where it was made, from which arguments of what."""
        trace = self.owner
        return origin(self) if isinstance(trace, StageTrace) else ""


class StageTrace(Trace):
    """Records every operation as an equation. Foreign tracers and arrays are hoisted."""

    def __init__(self) -> None:
        self.about: Callable[[], str] | None = None
        self.names: Callable[[], Sequence[str]] | None = None  # of the inputs
        self.inputs: list[Var] = []
        self.eqns: list[Eqn] = []
        self.const_vars: list[Var] = []
        self.const_values: list[Value] = []
        self._const_index: dict[int, Var] = {}

    def new_input(self, aval: ShapedArray) -> StageTracer:
        """A fresh input of the program."""
        var = Var(aval)
        self.inputs.append(var)
        return StageTracer(self, var)

    def atom(self, x: Value) -> Atom:
        """The atom that stands for `x`: its variable, a literal for a rank-0 constant, or a hoisted
        constant.
        """
        if isinstance(x, StageTracer) and x.owner is self:
            return x.var
        aval = aval_of(x)
        if aval.ndim == 0 and not isinstance(x, Tracer) and aval.dtype.names is None:
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


def stage(
    f: Callable[..., Sequence[Value]],
    avals: Sequence[ShapedArray],
    about: Callable[[], str] | None = None,
    names: Callable[[], Sequence[str]] | None = None,
) -> Staged:
    """Record `f`, a function of flat values that returns a flat sequence, at the given avals.

    `about` says what is recorded, and `names` what its arguments are called, should a message ask.
    """
    trace = StageTrace()
    trace.about, trace.names = about, names
    staged = _recorded(trace, f, avals)
    if config.check_tracer_leaks:
        reference = weakref.ref(trace)
        del trace
        check_forgotten(reference)
    return staged


def _recorded(
    trace: StageTrace, f: Callable[..., Sequence[Value]], avals: Sequence[ShapedArray]
) -> Staged:
    args = [trace.new_input(a) for a in avals]
    with using(trace):
        outs = list(f(*args))
    atoms = tuple(map(trace.atom, outs))
    for out in outs:
        if isinstance(out, StageTracer) and out.owner is not trace and not _alive(out):
            raise leaked(out)
    inputs = (*trace.const_vars, *(a.var for a in args))
    jaxpr = Jaxpr(inputs, tuple(trace.eqns), atoms, consts=len(trace.const_vars))
    return Staged(jaxpr, tuple(trace.const_values))


def origin(tracer: StageTracer) -> str:
    """Where a recorded value was made, and from which arguments of what."""
    trace = tracer.owner
    assert isinstance(trace, StageTrace), "a StageTracer belongs to a StageTrace"
    of = f" of {trace.about()}" if trace.about else ""
    made = next((e for e in reversed(trace.eqns) if tracer.var in e.outputs), None)
    arguments = _arguments(trace, tracer.var)
    if made is None:
        return f"{arguments[0]}{of}" if arguments else ""
    where = f"made at {made.source}" if made.source else f"made by {made.prim.name}"
    return f"{where} from {_listed(arguments)}{of}" if arguments else f"{where}{of}"


def _arguments(trace: StageTrace, var: Var) -> list[str]:
    """What to call the inputs that a variable depends on."""
    needed: set[Atom] = {var}
    for eqn in reversed(trace.eqns):
        if not needed.isdisjoint(eqn.outputs):
            needed.update(eqn.inputs)
    names = list(trace.names()) if trace.names else []
    names += [str(k) for k in range(len(names), len(trace.inputs))]
    found = [f"argument {n}" for v, n in zip(trace.inputs, names, strict=False) if v in needed]
    for const, value in zip(trace.const_vars, trace.const_values, strict=True):
        if const in needed and isinstance(value, Tracer):
            above = value.origin()
            found.append(f"a closed-over value ({above})" if above else "a closed-over value")
    return found


def _listed(words: Sequence[str]) -> str:
    few = [*words[:4], *(["others"] if len(words) > 4 else [])]
    return few[0] if len(few) == 1 else f"{', '.join(few[:-1])} and {few[-1]}"


def _alive(tracer: Tracer) -> bool:
    return any(t is tracer.owner for t in active_traces())
