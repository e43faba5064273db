"""The heart: variables, equations, jaxprs, primitives, and `bind`, which sends an operation to the
current trace.

Dispatch is by context: one thread-local stack of traces whose top receives every operation. A trace
treats a tracer that is not its own as a constant.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, ClassVar, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import LeakedTracerError, MissingRuleError, Source, user_source
from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.form import Form

# A value an operation accepts: an Array, a Tracer, or a NumPy or Python scalar or array.
Value: TypeAlias = Any
Params: TypeAlias = Mapping[str, Any]


class Effect(Enum):
    """Whether evaluating an equation does something besides computing its outputs."""

    NONE = auto()
    UNORDERED = auto()
    ORDERED = auto()


@record(eq=False)
class Var:
    """A name for a value in a jaxpr; compared by identity."""

    aval: ShapedArray


@record(eq=False)
class Literal:
    """A rank-0 constant written in place; `value` is a NumPy scalar array of the aval's dtype."""

    value: np.ndarray[Any, Any]
    aval: ShapedArray

    @property
    def val(self) -> np.ndarray[Any, Any]:
        """`value` under JAX's name."""
        return self.value


Atom: TypeAlias = Var | Literal


@record(eq=False)
class Eqn:
    """One operation: outputs = prim(inputs, **params), written at `source` in the user's code."""

    prim: Primitive
    inputs: tuple[Atom, ...]
    outputs: tuple[Var, ...]
    params: Params
    source: Source | None

    # JAX's names, for programs that walk jaxprs.

    @property
    def primitive(self) -> Primitive:
        """`prim`."""
        return self.prim

    @property
    def invars(self) -> tuple[Atom, ...]:
        """`inputs`."""
        return self.inputs

    @property
    def outvars(self) -> tuple[Var, ...]:
        """`outputs`."""
        return self.outputs

    @property
    def effect(self) -> Effect:
        """The equation's effect: the primitive's own, or the strongest of the jaxprs it carries."""
        strongest = self.prim.effect
        if not self.params:
            return strongest
        for jaxpr in sub_jaxprs(self.params):
            found = jaxpr.effect
            strongest = found if found.value > strongest.value else strongest
        return strongest


@record(eq=False, weakref_slot=True)
class Jaxpr:
    """A staged program. The first `consts` inputs are values that the function closed over."""

    inputs: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    outputs: tuple[Atom, ...]
    consts: int = 0

    @property
    def constvars(self) -> tuple[Var, ...]:
        """The inputs that stand for closed-over values."""
        return self.inputs[: self.consts]

    @property
    def invars(self) -> tuple[Var, ...]:
        """The inputs that stand for arguments."""
        return self.inputs[self.consts :]

    @property
    def outvars(self) -> tuple[Atom, ...]:
        """`outputs`."""
        return self.outputs

    @property
    def effect(self) -> Effect:
        """The strongest effect of any equation."""
        return max((e.effect for e in self.eqns), key=lambda e: e.value, default=Effect.NONE)

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        """The inputs' avals, hoisted constants first."""
        return tuple(v.aval for v in self.inputs)

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        """The outputs' avals."""
        return tuple(a.aval for a in self.outputs)

    def __str__(self) -> str:
        return _hooks.show(self)


def sub_jaxprs(params: Params) -> Iterator[Jaxpr]:
    """The jaxprs carried by an equation's parameters, directly or in a tuple."""
    for value in params.values():
        if type(value) is Jaxpr:
            yield value
        elif type(value) is tuple:
            for v in value:
                if type(v) is Jaxpr:
                    yield v


@record
class Sample:
    """One test case of a primitive: avals, parameters, and the interval from which inputs are
    drawn.
    """

    avals: tuple[ShapedArray, ...]
    params: Params
    low: float = -2.0
    high: float = 2.0


@record(eq=False)
class Primitive:
    """Everything there is to know about one operation; None means that a rule is not defined.

    aval:      (*avals, **params) -> tuple of output avals; raises on bad operands.
    eval:      (*ndarrays, **params) -> tuple of ndarrays: the meaning, in plain NumPy.
    form:      (*avals, **params) -> Form: the meaning, for the compiler.
    expand:    (*values, **params) -> tuple: the definition in core primitives.
    jvp:       (primals, tangents, **params) -> (outs, out_tangents); None is a symbolic zero.
    transpose: (cts, inputs, **params) -> tuple of cotangents; a linear input is a `Linear`,
               a zero cotangent None.
    batch:     (axis: MappedAxis, args, dims, **params) -> (outs, out_dims); dim None means
               not mapped.
    linearize: (trace, args, **params) -> outs, for jaxpr-carrying primitives; see grad/reverse.
    sums:      whether an element of the output is a sum of elements of the operands, or one of
               them, also where `form` does not say so.
    effect:    what evaluation does besides computing.
    samples:   cases for the test that runs over all records.
    """

    name: str
    aval: Callable[..., tuple[ShapedArray, ...]]
    eval: Callable[..., tuple[Any, ...]]
    form: Callable[..., Form]
    expand: Callable[..., tuple[Value, ...]] | None = None
    jvp: Callable[..., tuple[Sequence[Value], Sequence[Value | None]]] | None = None
    transpose: Callable[..., Sequence[Value | None]] | None = None
    batch: Callable[..., tuple[Sequence[Value], Sequence[int | None]]] | None = None
    linearize: Callable[..., Any] | None = None
    sums: bool = False
    effect: Effect = Effect.NONE
    samples: tuple[Sample, ...] = ()

    def rule(self, kind: str) -> Callable[..., Any]:
        """The rule called `kind`, or an error that says where to add it."""
        found = getattr(self, kind)
        if found is None:
            raise MissingRuleError(
                operation=f"{kind} of primitive '{self.name}'",
                required=f"a rule `{kind}`",
                got="none",
                fix=f"add `{kind}=` to the record of '{self.name}'",
            )
        return found

    def bind(self, *args: Value, **params: Any) -> tuple[Value, ...]:
        """Send the operation to the current trace; always a tuple of outputs."""
        return _stack.traces[-1].process(self, args, params)

    def __repr__(self) -> str:
        return self.name


class Tracer:
    """A stand-in for a value while a transformation watches the function run."""

    __slots__ = ("__weakref__", "aval", "owner")  # `trace` is a method, the sum of the diagonal
    __array_priority__: ClassVar[int] = 1000  # NumPy must defer to our operators

    def __init__(self, trace: Trace, aval: ShapedArray) -> None:
        self.owner = trace
        self.aval = aval

    @property
    def _trace(self) -> Trace:
        """`owner` under JAX's name."""
        return self.owner

    def concrete(self) -> Any | None:
        """The ndarray behind this tracer where it is known (eager jvp), else None."""
        return None

    def origin(self) -> str:
        """Where it was made, from which arguments of what: for messages. "" if nothing is known."""
        return f"in {self.owner.about()}" if self.owner.about else ""


@record
class Linear:
    """Marks, for a transpose rule, an input in which the operation is linear."""

    aval: ShapedArray


class Trace:
    """An interpretation of primitives."""

    parent: Trace  # what rules run under; the bottom trace and a staging one have none
    axis_name: Any = None  # set by a batch trace that was given one
    axis_size: Any = None
    about: Callable[[], str] | None = None  # says which transformation of which function this is

    @property
    def main(self) -> Trace:
        """Itself: JAX once told a transformation from its traces."""
        return self

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        """Apply one primitive."""
        raise NotImplementedError


class EvalTrace(Trace):
    """Computes: runs each primitive's `eval` on NumPy arrays."""

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        """Evaluate now. A result is weak when every operand is, unless the params say otherwise.

        Primitives that carry jaxprs return Arrays, whose weakness the jaxpr decided.
        """
        weak = bool(args)
        raw: list[Any] = []
        for a in args:
            if type(a) is Array:
                raw.append(a.data)
                weak = weak and a.weak
            elif isinstance(a, Tracer):
                raise leaked(a, prim)
            else:
                aval = aval_of(a)
                raw.append(np.asarray(a, aval.dtype))
                weak = weak and aval.weak
        outs = prim.eval(*raw, **params)
        weak = params.get("weak", weak)
        return tuple([o if isinstance(o, Array) else Array(o, weak) for o in outs])


def leaked(tracer: Tracer, prim: Primitive | None = None) -> LeakedTracerError:
    """The error for a tracer met outside its transformation."""
    what = f"'{prim.name}'" if prim else "the result"
    return LeakedTracerError(
        operation=what,
        required="values that are alive in the current transformation",
        got=f"{traced(tracer)}, whose transformation has ended",
        fix="return the value from the transformed function instead of storing it outside",
        source=user_source(),
    )


def traced(tracer: Tracer) -> str:
    """A tracer as messages mention it: its aval, and what is known of its origin."""
    origin = tracer.origin()
    return f"a traced value of {tracer.aval}" + (f", {origin}" if origin else "")


class _Stack(threading.local):
    def __init__(self) -> None:
        self.traces: list[Trace] = [EvalTrace()]
        self.source: Source | None = None  # of the equation that is being bound anew


_stack = _Stack()


def current() -> Trace:
    """The trace that receives operations now, in this thread."""
    return _stack.traces[-1]


class using:  # noqa: N801
    """Make `trace` current inside the block (a class: a generator would cost a microsecond)."""

    __slots__ = ("trace",)

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def __enter__(self) -> Trace:
        _stack.traces.append(self.trace)
        return self.trace

    def __exit__(self, *_: object) -> None:
        _stack.traces.pop()


def current_source() -> Source | None:
    """The user's line that the operation being bound comes from."""
    return _stack.source or user_source()


def attribute(source: Source | None) -> Source | None:
    """Say which line operations come from, from now on; returns what was said before."""
    before, _stack.source = _stack.source, source
    return before


def active_traces() -> Sequence[Trace]:
    """The stack of this thread, outermost first (for axis names and leak checks)."""
    return _stack.traces


def evaluates_plainly() -> bool:
    """Whether operations on arrays are computed at once and nobody watches, in this thread."""
    traces = _stack.traces
    return len(traces) == 1 and type(traces[0]) is EvalTrace


def aval_of(x: Value) -> ShapedArray:
    """The abstract value of anything an operation accepts; Python scalars are weak."""
    if isinstance(x, (Tracer, Array)):
        return x.aval
    if isinstance(x, (np.ndarray, np.generic)):
        return ShapedArray(x.shape, dt.canonicalize(x.dtype))
    return ShapedArray((), dt.scalar_dtype(x), weak=not isinstance(x, bool))


def eval_jaxpr(jaxpr: Jaxpr, args: Sequence[Value]) -> list[Value]:
    """Bind every equation of `jaxpr` in the current trace."""
    env: dict[Var, Value] = dict(zip(jaxpr.inputs, args, strict=True))

    def read(atom: Atom) -> Value:
        return Array(atom.value, atom.aval.weak) if isinstance(atom, Literal) else env[atom]

    before = _stack.source
    try:
        for eqn in jaxpr.eqns:
            _stack.source = eqn.source
            outs = eqn.prim.bind(*map(read, eqn.inputs), **eqn.params)
            env.update(zip(eqn.outputs, outs, strict=True))
    finally:
        _stack.source = before
    return [read(a) for a in jaxpr.outputs]


class _Hooks:
    """The upward inversions (evaluator, printer); operators and methods are installed by `ops` and
    `numpy`.
    """

    def __init__(self) -> None:
        self.evaluate: Callable[[Jaxpr, Sequence[Value]], list[Value]] = eval_jaxpr
        self.show: Callable[[Jaxpr], str] = object.__repr__


_hooks = _Hooks()


def set_evaluator(evaluate: Callable[[Jaxpr, Sequence[Value]], list[Value]]) -> None:
    """Install what runs a called jaxpr on concrete values: the compiler, once it is loaded."""
    _hooks.evaluate = evaluate


def set_printer(show: Callable[[Jaxpr], str]) -> None:
    """Install the jaxpr printer."""
    _hooks.show = show


def evaluate(jaxpr: Jaxpr, args: Sequence[Value]) -> list[Value]:
    """Run `jaxpr` on concrete values (Arrays or ndarrays) with the installed evaluator; Arrays come
    back.
    """
    return _hooks.evaluate(jaxpr, args)


def set_methods(methods: Mapping[str, Any]) -> None:
    """Install operators and methods on both Array and Tracer."""
    for name, method in methods.items():
        setattr(Tracer, name, method)
        setattr(Array, name, method)
