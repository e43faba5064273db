"""The records behind custom_jvp and custom_vjp: a function together with rules that stand in for
its derivative.

The function of a record is a jaxpr where a program is being recorded; elsewhere it stays a Python
callable, so that Python control flow in it sees values. The rules are Python callables, run again
by each transformation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from lumjax import dtype as dt
from lumjax import tree
from lumjax.control.staging import (
    Flags,
    as_arrays,
    batch_of,
    check_operands,
    run,
    select_where,
    spread,
    zeros,
)
from lumjax.errors import GradientError, LeakedTracerError
from lumjax.grad.reverse import LinearTrace
from lumjax.ops.layout import batch_first, reduce_sum
from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis, batch
from lumjax.trace.core import Jaxpr, Linear, Primitive, Value, aval_of, eval_jaxpr, using
from lumjax.trace.form import Expand, Opaque

Flat = Callable[..., Sequence[Value]]
Dims = Sequence[int | None]


def guarded(f: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function or rule; a value of an outer transformation that it closes over
    raises GradientError.
    """
    try:
        return f(*args)
    except LeakedTracerError as e:
        raise GradientError(
            operation=f"custom derivative of {getattr(f, '__name__', type(f).__name__)}",
            required="rules that read differentiated or mapped values only as arguments",
            got="a closed-over value of an outer transformation",
            fix="pass the closed-over value as an explicit argument",
        ) from e


@record(eq=False)
class Body:
    """The function of a record: a jaxpr that leads with `consts`, or a callable. Its output's
    tree is in `out_trees`.
    """

    avals: tuple[ShapedArray, ...]
    jaxpr: Jaxpr | None
    consts: tuple[Value, ...]
    function: Flat | None
    out_trees: list[tree.PyTreeDef]

    @property
    def params(self) -> dict[str, Any]:
        """The part of an equation's parameters that says what the function is."""
        weak = tuple(a.weak for a in self.avals)
        return {
            "jaxpr": self.jaxpr,
            "function": self.function,
            "consts": len(self.consts),
            "weak_in": weak,
        }


class ForwardRule(ABC):
    """A jvp rule on flat values."""

    @abstractmethod
    def __call__(
        self, primals: Sequence[Value], tangents: Sequence[Value | None]
    ) -> tuple[Sequence[Value], Sequence[Value | None]]:
        """The outputs and their tangents."""


class ReverseRules(ABC):
    """A forward and a backward rule on flat values. `context` is what the one tells the other
    besides residuals.
    """

    @abstractmethod
    def forward(
        self, primals: Sequence[Value], given: Flags
    ) -> tuple[list[Value], list[Value], Any]:
        """The outputs, the residuals and the context. `given`: which primals have a tangent."""

    @abstractmethod
    def backward(
        self, context: Any, residuals: Sequence[Value], cts: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        """The cotangents of the arguments; None is zero."""


def bind_forward(body: Body, flat: Sequence[Value], rule: ForwardRule) -> tuple[Value, ...]:
    """Call a function that has a jvp rule."""
    return custom_jvp_p.bind(*body.consts, *flat, rule=rule, **body.params)


def bind_reverse(body: Body, flat: Sequence[Value], rules: ReverseRules) -> tuple[Value, ...]:
    """Call a function that has forward and backward rules."""
    return custom_vjp_p.bind(*body.consts, *flat, rules=rules, **body.params)


# ---- what the two records have in common


def _aval(*avals: ShapedArray, jaxpr: Jaxpr | None, **params: Any) -> tuple[ShapedArray, ...]:
    assert jaxpr is not None, "a function is staged where its call is recorded"
    check_operands("a function with a custom derivative", jaxpr, avals)
    return jaxpr.out_avals


def _eval(
    *args: Any, jaxpr: Jaxpr | None, function: Flat | None, weak_in: Flags, **params: Any
) -> tuple[Array, ...]:
    if jaxpr is not None:
        return run(jaxpr, args)
    assert function is not None, "a function is a jaxpr or a callable"
    outs = function(*[Array(a, w) for a, w in zip(args, weak_in, strict=True)])
    return as_arrays(outs, map(aval_of, outs))


def _expand(*args: Value, jaxpr: Jaxpr, **params: Any) -> tuple[Value, ...]:
    return tuple(eval_jaxpr(jaxpr, args))


def _check_consts(tangents: Sequence[Value | None], consts: int, kind: str) -> None:
    if any(t is not None for t in tangents[:consts]):
        raise GradientError(
            operation=f"derivative of a {kind} function",
            required="differentiated values to be explicit arguments: only those have rules",
            got="a closed-over value that is being differentiated",
            fix="pass the closed-over value as an argument, or wrap it in stop_gradient",
        )


def _batch_body(
    axis: MappedAxis,
    dims: Dims,
    jaxpr: Jaxpr | None,
    function: Flat | None,
    consts: int,
    weak_in: Flags,
) -> tuple[tuple[Value, ...], dict[str, Any]]:
    """The function over a mapped axis that leads in its arguments where they are mapped, and in
    all results.
    """
    mapped = tuple(d is not None for d in dims)
    if jaxpr is not None:
        derived = batch_of(jaxpr, axis, mapped, (True,) * len(jaxpr.outputs))
        return derived.consts, {
            "jaxpr": derived.jaxpr, "function": None, "weak_in": weak_in,
            "consts": len(derived.consts) + consts,
        }  # fmt: skip
    assert function is not None, "a function is a jaxpr or a callable"

    def over_lanes(*args: Value) -> list[Value]:
        return _leading(batch(function, axis, args, [0 if m else None for m in mapped]), axis)

    return (), {"jaxpr": None, "function": over_lanes, "weak_in": weak_in, "consts": 0}


def _leading(pairs: Sequence[tuple[Value, int | None]], axis: MappedAxis) -> list[Value]:
    return [batch_first(x, d, axis.size) for x, d in pairs]


def _lead_args(axis: MappedAxis, args: Sequence[Value], dims: Dims) -> list[Value]:
    return [
        a if d is None else batch_first(a, d, axis.size) for a, d in zip(args, dims, strict=True)
    ]


# ---- custom_jvp


def _forward_jvp(
    primals: Sequence[Value],
    tangents: Sequence[Value | None],
    *,
    rule: ForwardRule,
    consts: int,
    **params: Any,
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    _check_consts(tangents, consts, "custom_jvp")
    return rule(primals[consts:], tangents[consts:])


def _forward_linearize(trace: LinearTrace, args: Sequence[Value], **params: Any) -> Sequence[Value]:
    """A call on tangents, inside another rule: its derivative at zero."""
    primals = [zeros(aval_of(a)) if trace.is_linear(a) else a for a in args]
    tangents = [a if trace.is_linear(a) else None for a in args]
    with using(trace):
        outs, out_tangents = _forward_jvp(primals, tangents, **params)
    return [o if t is None else t for o, t in zip(outs, out_tangents, strict=True)]


def _forward_batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Dims,
    *,
    jaxpr: Jaxpr | None,
    function: Flat | None,
    rule: ForwardRule,
    consts: int,
    weak_in: Flags,
) -> tuple[Sequence[Value], Sequence[int | None]]:
    lead, params = _batch_body(axis, dims, jaxpr, function, consts, weak_in)
    over_lanes = _BatchedForward(rule, axis, tuple(d is not None for d in dims[consts:]))
    outs = custom_jvp_p.bind(*lead, *_lead_args(axis, args, dims), rule=over_lanes, **params)
    return outs, [0] * len(outs)


@record(eq=False)
class _BatchedForward(ForwardRule):
    """A jvp rule over a mapped axis that leads in the arguments where `mapped`, and in all
    results.
    """

    rule: ForwardRule
    axis: MappedAxis
    mapped: Flags

    def __call__(
        self, primals: Sequence[Value], tangents: Sequence[Value | None]
    ) -> tuple[Sequence[Value], Sequence[Value | None]]:
        given = [t is not None for t in tangents]
        nonzero: list[bool] = []

        def flat(*args: Value) -> list[Value]:
            lane_tangents = spread(given, args[len(primals) :])
            outs, out_tangents = self.rule(args[: len(primals)], lane_tangents)
            nonzero.extend(t is not None for t in out_tangents)
            return [*outs, *(t for t in out_tangents if t is not None)]

        dims = [0 if m else None for m in self.mapped]
        operands = [*primals, *(t for t in tangents if t is not None)]
        pairs = batch(flat, self.axis, operands, [*dims, *select_where(given, dims)])
        outs = _leading(pairs, self.axis)
        return outs[: len(nonzero)], spread(nonzero, outs[len(nonzero) :])


custom_jvp_p = Primitive(
    "custom_jvp",
    aval=_aval,
    eval=_eval,
    form=lambda *avals, **params: Expand(),
    expand=_expand,
    jvp=_forward_jvp,
    batch=_forward_batch,
    linearize=_forward_linearize,
)


# ---- custom_vjp: its derivative is an equation that only reverse mode can use


def _reverse_jvp(
    primals: Sequence[Value],
    tangents: Sequence[Value | None],
    *,
    rules: ReverseRules,
    consts: int,
    **params: Any,
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    _check_consts(tangents, consts, "custom_vjp")
    given = tuple(t is not None for t in tangents[consts:])
    outs, residuals, context = rules.forward(primals[consts:], given)
    tangent_avals = [aval_of(o).tangent().strip_weak() for o in outs]
    moving = [a.dtype != dt.float0 for a in tangent_avals]
    found = custom_linear_p.bind(
        *residuals,
        *(t for t in tangents[consts:] if t is not None),
        rules=rules, context=context, given=given, moving=tuple(moving),
        avals=tuple(tangent_avals), residuals=len(residuals),
    )  # fmt: skip
    return outs, spread(moving, found)


def _reverse_batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Dims,
    *,
    jaxpr: Jaxpr | None,
    function: Flat | None,
    rules: ReverseRules,
    consts: int,
    weak_in: Flags,
) -> tuple[Sequence[Value], Sequence[int | None]]:
    lead, params = _batch_body(axis, dims, jaxpr, function, consts, weak_in)
    over_lanes = _BatchedReverse(rules, axis, tuple(d is not None for d in dims[consts:]))
    outs = custom_vjp_p.bind(*lead, *_lead_args(axis, args, dims), rules=over_lanes, **params)
    return outs, [0] * len(outs)


@record(eq=False)
class _BatchedReverse(ReverseRules):
    """Rules over a mapped axis that leads in the arguments where `mapped`, and in all results.

    The cotangent of an argument that is not mapped is the sum over the lanes.
    """

    rules: ReverseRules
    axis: MappedAxis
    mapped: Flags

    def forward(
        self, primals: Sequence[Value], given: Flags
    ) -> tuple[list[Value], list[Value], Any]:
        seen: list[tuple[int, Any]] = []

        def flat(*args: Value) -> list[Value]:
            outs, residuals, context = self.rules.forward(args, given)
            seen.append((len(outs), context))
            return [*outs, *residuals]

        pairs = batch(flat, self.axis, primals, [0 if m else None for m in self.mapped])
        count, context = seen[0]
        residuals, dims = [v for v, _ in pairs[count:]], [d for _, d in pairs[count:]]
        return _leading(pairs[:count], self.axis), residuals, (context, dims)

    def backward(
        self, context: Any, residuals: Sequence[Value], cts: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        inner, dims = context
        count = len(residuals)
        present = [ct is not None for ct in cts]
        nonzero: list[bool] = []

        def flat(*args: Value) -> list[Value]:
            found = self.rules.backward(inner, args[:count], spread(present, args[count:]))
            nonzero.extend(f is not None for f in found)
            return [f for f in found if f is not None]

        given = [ct for ct in cts if ct is not None]
        pairs = batch(flat, self.axis, [*residuals, *given], [*dims, *[0] * len(given)])
        found = [
            self._settled(*pair, mapped)
            for pair, mapped in zip(pairs, select_where(nonzero, self.mapped), strict=True)
        ]
        return spread(nonzero, found)

    def _settled(self, ct: Value, dim: int | None, mapped: bool) -> Value:
        lanes = batch_first(ct, dim, self.axis.size)
        if mapped or aval_of(ct).dtype == dt.float0:
            return lanes if mapped else zeros(aval_of(ct).with_shape(aval_of(lanes).shape[1:]))
        return reduce_sum(lanes, (0,))


custom_vjp_p = Primitive(
    "custom_vjp",
    aval=_aval,
    eval=_eval,
    form=lambda *avals, **params: Expand(),
    expand=_expand,
    jvp=_reverse_jvp,
    batch=_reverse_batch,
)


def _linear_eval(*args: Value, **params: Any) -> tuple[Any, ...]:
    raise GradientError(
        operation="forward-mode derivative of a custom_vjp function",
        required="reverse mode: grad, vjp or jacrev",
        got="jvp, jacfwd or the tangents of linearize",
        fix="define the function's derivative with custom_jvp, which serves both modes",
    )


def _linear_transpose(
    cts: Sequence[Value | None],
    inputs: Sequence[Any],
    *,
    rules: ReverseRules,
    context: Any,
    given: Flags,
    moving: Flags,
    avals: Sequence[ShapedArray],
    residuals: int,
) -> Sequence[Value | None]:
    assert not any(isinstance(x, Linear) for x in inputs[:residuals]), "residuals are known"
    all_cts = spread(moving, cts)
    found = select_where(given, rules.backward(context, inputs[:residuals], all_cts))
    linear = [isinstance(x, Linear) for x in inputs[residuals:]]
    return [
        *[None] * residuals,
        *(f if own else None for f, own in zip(found, linear, strict=True)),
    ]


def _linear_batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Dims,
    *,
    rules: ReverseRules,
    context: Any,
    given: Flags,
    moving: Flags,
    avals: tuple[ShapedArray, ...],
    residuals: int,
) -> tuple[Sequence[Value], Sequence[int | None]]:
    """A linear map over lanes: its transpose runs the backward rule per lane."""
    tangent_dims = iter(dims[residuals:])
    mapped = tuple(g and next(tangent_dims) is not None for g in given)
    outs = custom_linear_p.bind(
        *args[:residuals],
        *_lead_args(axis, args[residuals:], dims[residuals:]),
        rules=_BatchedReverse(rules, axis, mapped),
        context=(context, list(dims[:residuals])),
        given=given, moving=moving, residuals=residuals,
        avals=tuple(a.with_shape((axis.size, *a.shape)) for a in avals),
    )  # fmt: skip
    return outs, [0] * len(outs)


custom_linear_p = Primitive(
    "custom_linear",
    aval=lambda *_, avals, moving, **params: tuple(select_where(moving, avals)),
    eval=_linear_eval,
    form=lambda *avals, **params: Opaque("custom_linear exists to be transposed"),
    jvp=_linear_eval,
    transpose=_linear_transpose,
    batch=_linear_batch,
)
