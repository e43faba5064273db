"""Forward mode: carry (primal, tangent) through every operation; None is a symbolic zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.errors import ArgumentTypeError, GradientError, TreeError
from lumjax.ops.elementwise import asvalue
from lumjax.ops.layout import broadcast_in_dim
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import (
    Params,
    Primitive,
    Sample,
    Trace,
    Tracer,
    Value,
    active_traces,
    aval_of,
    current,
    leaked,
    using,
)
from lumjax.trace.dim import same_shape
from lumjax.trace.form import Move
from lumjax.trace.view import identity


class JVPTracer(Tracer):
    """A value and its tangent."""

    __slots__ = ("primal", "tangent")

    def __init__(self, trace: Trace, primal: Value, tangent: Value) -> None:
        super().__init__(trace, aval_of(primal))
        self.primal = primal
        self.tangent = tangent

    def concrete(self) -> Any | None:
        """The primal's ndarray: Python control flow sees values under eager differentiation."""
        primal = self.primal
        if type(primal) is Array:
            return primal.data
        if isinstance(primal, Tracer):
            return primal.concrete()
        return np.asarray(primal, self.aval.dtype)

    def origin(self) -> str:
        """That of the primal where it is traced, else what is being differentiated."""
        below = self.primal.origin() if isinstance(self.primal, Tracer) else ""
        return below or super().origin()


class JVPTrace(Trace):
    """Applies jvp rules under the parent trace; operations without tangents pass through."""

    def __init__(self) -> None:
        self.parent: Trace = current()

    def split(self, x: Value) -> tuple[Value, Value | None]:
        """The primal and the tangent; None for a value that is constant here."""
        return (x.primal, x.tangent) if type(x) is JVPTracer and x.owner is self else (x, None)

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        """Apply one primitive."""
        primals: list[Value] = []
        tangents: list[Value | None] = []
        active = False
        for x in args:
            if type(x) is JVPTracer and x.owner is self:
                primals.append(x.primal)
                tangents.append(x.tangent)
                active = True
            else:
                primals.append(x)
                tangents.append(None)
        with using(self.parent):
            if not active:
                return prim.bind(*primals, **params)
            outs, out_tangents = prim.rule("jvp")(primals, tangents, **params)
        return tuple(
            [
                o if t is None else JVPTracer(self, o, t)
                for o, t in zip(outs, out_tangents, strict=True)
            ]
        )


def jvp_flat(
    f: Callable[..., Sequence[Value]], primals: Sequence[Value], tangents: Sequence[Value | None]
) -> tuple[list[Value], list[Value | None], JVPTrace]:
    """Run `f`, flat in and out: outs, their tangents, and the trace, which has ended."""
    trace = JVPTrace()
    trace.about = getattr(f, "about", None)
    args = [
        p if t is None else JVPTracer(trace, p, t) for p, t in zip(primals, tangents, strict=True)
    ]
    with using(trace):
        pairs = [trace.split(o) for o in f(*args)]
    return [as_output(o) for o, _ in pairs], [t for _, t in pairs], trace


# ---- what the public functions of this folder share


class FlatFunction:
    """A function of pytrees as a function of leaves. Remembers its output's structure, and aux."""

    def __init__(
        self,
        operation: str,
        run: Callable[[Sequence[Value]], Any],
        has_aux: bool = False,
        name: str = "",
    ) -> None:
        self.operation = operation
        self.name = name
        self.run = run
        self.has_aux = has_aux
        self.aux: Any = None
        self.out_tree: Any = None

    def about(self) -> str:
        """What is done to which function, for messages."""
        return f"{self.operation} of {self.name}" if self.name else self.operation

    def __call__(self, *leaves: Value) -> list[Value]:
        """The leaves of the function's output."""
        out = self.run(leaves)
        if self.has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise GradientError(
                    operation=f"{self.operation} with has_aux=True",
                    required="a function that returns a pair (output, aux)",
                    got=describe(out),
                    fix="return a tuple of two, or leave has_aux out",
                )
            out, self.aux = out
        flat, self.out_tree = tree.flatten(out)
        return flat

    def settled_aux(self, trace: JVPTrace) -> Any:
        """The aux output, with this trace's tracers replaced by their primals."""
        return tree.map(lambda x: trace.split(x)[0], self.aux)


def describe(x: Any) -> str:
    """What a user passed or returned, for an error."""
    if isinstance(x, (Array, Tracer, np.ndarray, np.generic)):
        return f"an array {aval_of(x)}"
    if isinstance(x, (tuple, list, dict)):
        return f"a {type(x).__name__} of {len(x)}"
    return f"{x!r} of type {type(x).__name__}"


def called(fun: Any) -> str:
    """A function's name, for messages."""
    return getattr(fun, "__name__", type(fun).__name__)


def check_callable(operation: str, fun: Any) -> None:
    """Raise unless `fun` can be called."""
    if not callable(fun):
        raise ArgumentTypeError(
            operation=operation,
            required="a function as its first argument",
            got=describe(fun),
            fix="pass the function itself, not its result",
        )


def is_array(x: Any) -> bool:
    """Whether an operation accepts `x`."""
    return isinstance(x, (Array, Tracer, np.ndarray, np.generic, bool, int, float, complex))


def as_output(x: Any) -> Value:
    """A leaf that a transformed function returned, as an Array or a living tracer."""
    if type(x) is Array:
        return x
    if isinstance(x, Tracer):
        if not any(t is x.owner for t in active_traces()):
            raise leaked(x)
        return x
    if not is_array(x):
        raise ArgumentTypeError(
            operation="output of a differentiated function",
            required="arrays or numbers, or pytrees of them",
            got=describe(x),
            fix="return arrays; other results can be returned as aux with has_aux=True",
        )
    return asvalue(x)


def zeros(aval: ShapedArray) -> Value:
    """A zero of this aval, float0 included."""
    if aval.dtype == dt.float0:
        return Array(np.zeros(aval.shape, dt.float0))  # no memory: the element size is 0
    return broadcast_in_dim(Array(np.zeros((), aval.dtype), aval.weak), aval.shape, ())


def check_tangent(operation: str, word: str, primal: ShapedArray, tangent: Value) -> Value | None:
    """A (co)tangent given by the user, checked against its primal; None for a float0 one."""
    expected = primal.tangent()
    if not is_array(tangent):
        raise ArgumentTypeError(
            operation=operation,
            required=f"a {word} {expected} for a primal {primal}",
            got=describe(tangent),
            fix=f"pass an array as the {word}",
        )
    found = aval_of(tangent)
    if not same_shape(found.shape, expected.shape) or found.dtype != expected.dtype:
        inert = expected.dtype == dt.float0
        remedy = "pass numpy.zeros(shape, dtype=float0)" if inert else "convert it"
        raise GradientError(
            operation=operation,
            required=f"a {word} {expected} for a primal {primal}",
            got=f"a {word} {found}",
            fix=f"{remedy}: a {word} has the primal's shape and its tangent dtype",
        )
    if expected.dtype == dt.float0:
        return None
    if isinstance(tangent, (Array, Tracer)):
        return tangent
    return Array(np.array(tangent, expected.dtype), expected.weak)


def check_same_tree(operation: str, word: str, expected: Any, found: Any) -> None:
    """Raise unless two trees agree; `word` says what `found` is."""
    if tree.structure(expected) == tree.structure(found):
        return
    raise TreeError(
        operation=operation,
        required=f"{word} of the structure {tree.structure(expected)}",
        got=f"{tree.structure(found)}: {tree.first_mismatch(expected, found)}",
        fix=f"give {word} one leaf for each leaf it belongs to",
    )


def jvp(fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """The output of `fun` at `primals` and its derivative along `tangents`.

    Args:
        fun: a function of arrays or pytrees of arrays.
        primals: a tuple or list of its positional arguments.
        tangents: a tuple or list of the same structure, shapes and dtypes; an integer or bool
            argument takes a zero of dtype float0.
        has_aux: whether `fun` returns a pair (output, aux) whose second part is not differentiated.

    Returns:
        (output, output tangent), or (output, output tangent, aux). Tangents have the output's
        structure.

    Raises:
        TreeError: primals and tangents of different structure.
        GradientError: a tangent of another shape or dtype than its primal.

    >>> import lumjax
    >>> y, t = lumjax.jvp(lambda x: x * x, (3.0,), (1.0,))
    >>> float(y), float(t)
    (9.0, 6.0)
    """
    check_callable("jvp", fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentTypeError(
            operation="jvp",
            required="primals and tangents that are tuples or lists of arguments",
            got=f"{describe(primals)} and {describe(tangents)}",
            fix="write jvp(f, (x,), (t,))",
        )
    primals, tangents = tuple(primals), tuple(tangents)
    check_same_tree("jvp", "tangents", primals, tangents)
    flat, treedef = tree.flatten(primals)
    values = [asvalue(x, "jvp") for x in flat]
    flat_tangents = [
        check_tangent("jvp", "tangent", aval_of(v), t)
        for v, t in zip(values, tree.leaves(tangents), strict=True)
    ]
    f = FlatFunction(
        "jvp", lambda leaves: fun(*tree.unflatten(treedef, leaves)), has_aux, called(fun)
    )
    outs, out_tangents, trace = jvp_flat(f, values, flat_tangents)
    out_tangents = [
        zeros(aval_of(o).tangent()) if t is None else t
        for o, t in zip(outs, out_tangents, strict=True)
    ]
    result = tree.unflatten(f.out_tree, outs), tree.unflatten(f.out_tree, out_tangents)
    return (*result, f.settled_aux(trace)) if has_aux else result


# ---- stop_gradient


def _stop_jvp(primals: Sequence[Value], _tangents: Sequence[Value | None]) -> tuple[Any, Any]:
    return stop_gradient_p.bind(*primals), (None,)


stop_gradient_p = Primitive(
    "stop_gradient",
    aval=lambda x: (x,),
    eval=lambda x: (x,),
    form=lambda x: Move((identity(x.shape),)),
    expand=lambda x: (x,),
    jvp=_stop_jvp,
    # Met only where a custom rule stops a tangent, which stays what it is.
    transpose=lambda cts, _inputs: cts,
    batch=lambda _axis, args, dims: (stop_gradient_p.bind(*args), dims),
    samples=(Sample((ShapedArray((3, 2), dt.float32),), {}),),
)


def stop_gradient(x: Any) -> Any:
    """`x`, a pytree, as a constant to every derivative; leaves that are not inexact pass through.

    >>> import lumjax
    >>> float(lumjax.grad(lambda x: x * lumjax.lax.stop_gradient(x))(3.0))
    3.0
    """

    def stop(leaf: Any) -> Any:
        if not is_array(leaf) or not dt.is_inexact(aval_of(leaf).dtype):
            return leaf
        return stop_gradient_p.bind(leaf)[0]

    return tree.map(stop, x)
