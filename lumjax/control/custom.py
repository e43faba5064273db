"""Functions with derivative rules of their own: `custom_jvp` and `custom_vjp`."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.control.custom_rules import (
    Body,
    ForwardRule,
    ReverseRules,
    bind_forward,
    bind_reverse,
    guarded,
)
from lumjax.control.staging import (
    Flags,
    flatten_values,
    name_of,
    require_callable,
    same_type,
    stage_tree,
    zeros,
)
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    GradientError,
    MissingRuleError,
    TreeError,
)
from lumjax.grad.forward import describe
from lumjax.grad.reverse import LinearTrace
from lumjax.ops.elementwise import add, asvalue
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import EvalTrace, Trace, Value, active_traces, aval_of, current
from lumjax.trace.stage import StageTrace

R = TypeVar("R")


class SymbolicZero:
    """A tangent or cotangent that is known to be zero; rules defined with symbolic_zeros see it."""

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval
        self.shape = aval.shape
        self.dtype = aval.dtype
        self.ndim = aval.ndim
        self.size = aval.size

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval})"

    def instantiate(self) -> Value:
        """The zeros as an array."""
        return zeros(self.aval)


@record(eq=False)
class CustomVJPPrimal:
    """An argument of a forward rule defined with symbolic_zeros: its value, and whether it is
    differentiated.
    """

    value: Any
    perturbed: bool


class _Custom(ABC, Generic[R]):
    """What both kinds share: the function, which arguments are not differentiated, and the call."""

    kind: str
    missing: str

    def __init__(
        self,
        fun: Callable[..., R],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        require_callable(self.kind, fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.signature = _signature(fun)
        names = (
            (nondiff_argnames,) if isinstance(nondiff_argnames, str) else tuple(nondiff_argnames)
        )
        numbers = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        self.nondiff_argnums = tuple(sorted({*numbers, *self._positions(names)}))

    def _positions(self, names: tuple[str, ...]) -> list[int]:
        known = list(self.signature.parameters) if self.signature else []
        for name in names:
            if name not in known:
                raise ArgumentValueError(
                    operation=self.kind,
                    required=f"nondiff_argnames among {', '.join(known)}",
                    got=repr(name),
                    fix="name a positional parameter of the function",
                )
        return [known.index(name) for name in names]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, defaults filled in."""
        if self.signature is None:
            if kwargs:
                raise ArgumentTypeError(
                    operation=f"{self.kind} function {name_of(self.fun)}",
                    required="arguments by position, since its signature is not known",
                    got=f"keywords {', '.join(kwargs)}",
                    fix="pass them by position",
                )
            return args
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise ArgumentTypeError(
                operation=f"{self.kind} function {name_of(self.fun)}",
                required="a function whose parameters can be passed by position",
                got=f"keyword-only {', '.join(bound.kwargs)}",
                fix="make them positional; their place tells the rules which is which",
            )
        return bound.args

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Call the function; transformations use the rules."""
        if not self._defined():
            raise MissingRuleError(
                operation=f"{self.kind} function {name_of(self.fun)}",
                required="its derivative rule",
                got="none",
                fix=f"define it with {self.missing}",
            )
        args = self._arguments(args, kwargs)
        if type(current()) is EvalTrace:
            return self.fun(*args)
        fixed = {k: args[k] for k in self.nondiff_argnums if k < len(args)}
        flat, in_tree = flatten_values(tuple(a for k, a in enumerate(args) if k not in fixed))
        return self._bind(fixed, flat, in_tree)

    def _body(self, fixed: dict[int, Any], flat: Sequence[Value], in_tree: tree.PyTreeDef) -> Body:
        """The function of the differentiable leaves: staged where a program is being recorded."""
        fun = self.fun
        avals = tuple(map(aval_of, flat))

        def call(*args: Any) -> Any:
            return guarded(fun, *with_fixed(fixed, args))

        if any(map(_needs_program, active_traces())):
            callee = stage_tree(call if fixed else fun, in_tree, avals)
            return Body(avals, callee.jaxpr, callee.consts, None, [callee.out_tree])
        out_trees: list[tree.PyTreeDef] = []

        def run(*leaves: Value) -> list[Value]:
            values, out_tree = flatten_values(call(*tree.unflatten(in_tree, leaves)))
            out_trees.append(out_tree)
            return values

        return Body(avals, None, (), run, out_trees)

    @abstractmethod
    def _defined(self) -> bool:
        """Whether the rule was given."""

    @abstractmethod
    def _bind(self, fixed: dict[int, Any], flat: list[Value], in_tree: tree.PyTreeDef) -> R:
        """Call on differentiable leaves `flat`, with the other arguments in `fixed`."""


def _needs_program(trace: Trace) -> bool:
    """Whether a trace must see the function's equations: to record them, or to find collectives."""
    records = isinstance(trace, StageTrace) and not isinstance(trace, LinearTrace)
    return records or trace.axis_name is not None


def with_fixed(fixed: dict[int, Any], args: Sequence[Any]) -> list[Any]:
    """All positional arguments, the fixed ones put back in their places."""
    rest = iter(args)
    return [fixed[k] if k in fixed else next(rest) for k in range(len(fixed) + len(args))]


def _signature(fun: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError):  # some builtins have none
        return None


def _pair(what: str, f: Any, out: Any) -> tuple[Any, Any]:
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentTypeError(
            operation=f"{what} {name_of(f)}",
            required="to return a pair",
            got=describe(out),
            fix="return a tuple of two",
        )
    return out[0], out[1]


# ---- custom_jvp


class custom_jvp(_Custom[R]):  # noqa: N801
    """A function whose derivative is given by a rule, for both modes of differentiation.

    `nondiff_argnums` (or `nondiff_argnames`) are arguments that are not differentiated, such as
    functions and flags; the rule gets them first. The rule, set by `defjvp`, takes `(primals,
    tangents)`, two tuples with one entry per other argument, and returns `(output, output
    tangent)`; it must be linear in the tangents. Tangents of integer arguments are zeros of dtype
    float0. Raises MissingRuleError if called without a rule, and GradientError when a value that
    the function closes over is differentiated.

    >>> from lumjax.ops.transcendental import exp, log
    >>> @custom_jvp
    ... def f(x):
    ...     return log(1 + exp(x))
    >>> @f.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return f(x), t / (1 + exp(-x))
    """

    kind = "custom_jvp"
    missing = "defjvp or defjvps"

    def __init__(
        self,
        fun: Callable[..., R],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule `jvp(*nondiff_args, primals, tangents) -> (output, output tangent)`; returns
        it. With `symbolic_zeros` tangents that are known to be zero are `SymbolicZero`s.
        """
        require_callable("defjvp", jvp)
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set one rule `jvp(tangent, output, *primals) -> output tangent` per argument;
        None for no contribution.
        """
        if self.nondiff_argnums:
            raise ArgumentValueError(
                operation="defjvps",
                required="a function without nondiff_argnums",
                got=f"nondiff_argnums {self.nondiff_argnums}",
                fix="use defjvp",
            )

        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            out = self(*primals)
            parts = [
                rule(t, out, *primals)
                for rule, t in zip(jvps, tangents, strict=True)
                if rule is not None and not _is_inert(t)
            ]
            if not parts:
                return out, tree.map(lambda x: zeros(aval_of(x).tangent()), out)
            return out, functools.reduce(lambda a, b: tree.map(add, a, b), parts)

        self.jvp, self.symbolic_zeros = jvp, False

    def _defined(self) -> bool:
        return self.jvp is not None

    def _bind(self, fixed: dict[int, Any], flat: list[Value], in_tree: tree.PyTreeDef) -> R:
        assert self.jvp is not None, "checked by __call__"
        body = self._body(fixed, flat, in_tree)
        rule = _UserForward(
            self.fun,
            self.jvp,
            self.symbolic_zeros,
            tuple(fixed.values()),
            in_tree,
            body.out_trees,
        )
        outs = bind_forward(body, flat, rule)
        return tree.unflatten(body.out_trees[0], outs)


def _is_inert(tangents: Any) -> bool:
    """Whether no leaf of an argument's tangent can move anything: the argument is an integer or
    a key.
    """
    return all(aval_of(t).dtype == dt.float0 for t in tree.leaves(tangents))


@record(eq=False)
class _UserForward(ForwardRule):
    """A user's jvp rule as a rule on flat values."""

    fun: Callable[..., Any]
    jvp: Callable[..., Any]
    symbolic_zeros: bool
    fixed: tuple[Any, ...]
    in_tree: tree.PyTreeDef
    out_trees: list[tree.PyTreeDef]

    def __call__(
        self, primals: Sequence[Value], tangents: Sequence[Value | None]
    ) -> tuple[Sequence[Value], Sequence[Value | None]]:
        zero = SymbolicZero if self.symbolic_zeros else zeros
        full = [
            zero(aval_of(p).tangent()) if t is None else t
            for p, t in zip(primals, tangents, strict=True)
        ]
        pair = guarded(
            self.jvp,
            *self.fixed,
            tree.unflatten(self.in_tree, primals),
            tree.unflatten(self.in_tree, full),
        )
        out, tangent = _pair("the custom_jvp rule", self.jvp, pair)
        outs, out_tree = flatten_values(out)
        found, tangent_tree = tree.flatten(tangent)
        expected = self.out_trees[0] if self.out_trees else out_tree
        for word, what in (("output", out_tree), ("output tangent", tangent_tree)):
            if what != expected:
                raise TreeError(
                    operation=f"the custom_jvp rule {name_of(self.jvp)}",
                    required=f"an {word} of the structure {expected} of {name_of(self.fun)}",
                    got=str(what),
                    fix="return the function's output and a tangent of the same structure",
                )
        self.out_trees.append(out_tree)
        return outs, [
            self._checked(aval_of(o).tangent(), t) for o, t in zip(outs, found, strict=True)
        ]

    def _checked(self, expected: ShapedArray, tangent: Any) -> Value | None:
        if expected.dtype == dt.float0 or isinstance(tangent, SymbolicZero):
            return None
        tangent = asvalue(tangent)
        found = aval_of(tangent)
        if not same_type(expected, found):
            raise GradientError(
                operation=f"the custom_jvp rule {name_of(self.jvp)}",
                required=f"an output tangent {expected}",
                got=str(found),
                fix="give the tangent the output's shape and dtype",
            )
        return tangent


# ---- custom_vjp


class custom_vjp(_Custom[R]):  # noqa: N801
    """A function whose reverse-mode derivative is given by two rules.

    `defvjp(fwd, bwd)` sets them: `fwd(*args) -> (output, residuals)` and `bwd(residuals, ct) ->
    cts`, a tuple with one cotangent per argument, where None is zero. Arguments `nondiff_argnums`
    (or `nondiff_argnames`) are not
    differentiated: fwd gets them in their place, bwd gets them first. Forward mode raises
    GradientError. Raises MissingRuleError if called without rules, and GradientError when a closed-
    over value is differentiated.

    >>> @custom_vjp
    ... def clip_gradient(x):
    ...     return x
    >>> clip_gradient.defvjp(lambda x: (x, None), lambda _, ct: (ct * 0.5,))
    """

    kind = "custom_vjp"
    missing = "defvjp"

    def __init__(
        self,
        fun: Callable[..., R],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the rules; see the class.

        With `symbolic_zeros` fwd gets `CustomVJPPrimal`s, which tell what is differentiated, and
        bwd gets `SymbolicZero`s for cotangents known to be zero. `optimize_remat` is accepted for
        JAX's sake; the compiler needs no such hint.
        """
        require_callable("defvjp's fwd", fwd)
        require_callable("defvjp's bwd", bwd)
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    def _defined(self) -> bool:
        return self.fwd is not None

    def _bind(self, fixed: dict[int, Any], flat: list[Value], in_tree: tree.PyTreeDef) -> R:
        assert self.fwd is not None, "checked by __call__"
        assert self.bwd is not None, "defvjp sets both"
        body = self._body(fixed, flat, in_tree)
        rules = _UserReverse(
            self.fun, self.fwd, self.bwd, self.symbolic_zeros, fixed, in_tree, body.out_trees
        )
        outs = bind_reverse(body, flat, rules)
        return tree.unflatten(body.out_trees[0], outs)


@record(eq=False)
class _UserReverse(ReverseRules):
    """A user's fwd and bwd as rules on flat values. The context is the trees of residuals and
    output, the residuals that are Python's numbers and stay so, and avals.
    """

    fun: Callable[..., Any]
    fwd: Callable[..., Any]
    bwd: Callable[..., Any]
    symbolic_zeros: bool
    fixed: dict[int, Any]
    in_tree: tree.PyTreeDef
    out_trees: list[tree.PyTreeDef]

    def forward(
        self, primals: Sequence[Value], given: Flags
    ) -> tuple[list[Value], list[Value], Any]:
        leaves: Sequence[Any] = primals
        if self.symbolic_zeros:
            leaves = [CustomVJPPrimal(p, g) for p, g in zip(primals, given, strict=True)]
        args = tree.unflatten(self.in_tree, leaves)
        pair = guarded(self.fwd, *with_fixed(self.fixed, args))
        out, residual = _pair("the custom_vjp forward rule", self.fwd, pair)
        outs, out_tree = flatten_values(out)
        kept, residual_tree = tree.flatten(residual)
        plain = [x if isinstance(x, (bool, int, float, complex)) else None for x in kept]
        plain = [None if isinstance(x, np.generic) else x for x in plain]  # np.float64 is a float
        residuals = [asvalue(x) for x, p in zip(kept, plain, strict=True) if p is None]
        if self.out_trees and out_tree != self.out_trees[0]:
            raise TreeError(
                operation=f"the custom_vjp forward rule {name_of(self.fwd)}",
                required=f"an output of the structure {self.out_trees[0]} of {name_of(self.fun)}",
                got=str(out_tree),
                fix="return (the function's output, residuals)",
            )
        self.out_trees.append(out_tree)
        in_avals, out_avals = [aval_of(p) for p in primals], [aval_of(o) for o in outs]
        return outs, residuals, (residual_tree, plain, out_tree, in_avals, out_avals)

    def backward(
        self, context: Any, residuals: Sequence[Value], cts: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        residual_tree, plain, out_tree, avals, out_avals = context
        values = iter(residuals)
        kept = [next(values) if p is None else p for p in plain]
        zero = SymbolicZero if self.symbolic_zeros else zeros
        cts = [
            zero(a.tangent().strip_weak()) if ct is None else ct
            for ct, a in zip(cts, out_avals, strict=True)
        ]
        found = guarded(
            self.bwd,
            *self.fixed.values(),
            tree.unflatten(residual_tree, kept),
            tree.unflatten(out_tree, cts),
        )
        args = self.in_tree.children()
        if not isinstance(found, (tuple, list)) or len(found) != len(args):
            raise TreeError(
                operation=f"the custom_vjp backward rule {name_of(self.bwd)}",
                required=f"{len(args)} cotangents, one per argument of {name_of(self.fun)}",
                got=describe(found),
                fix="return one cotangent per argument, None where it is zero",
            )
        flat: list[Any] = []
        for part, treedef in zip(found, args, strict=True):
            flat += tree.flatten_axes(f"the cotangents of {name_of(self.bwd)}", treedef, part)
        return [self._checked(a, ct) for a, ct in zip(avals, flat, strict=True)]

    def _checked(self, aval: ShapedArray, ct: Any) -> Value | None:
        expected = aval.tangent()
        if ct is None or expected.dtype == dt.float0 or isinstance(ct, SymbolicZero):
            return None
        value = asvalue(ct)
        if not same_type(aval_of(value), expected):
            raise GradientError(
                operation=f"the custom_vjp backward rule {name_of(self.bwd)}",
                required=f"a cotangent {expected} for an argument {aval}",
                got=str(aval_of(value)),
                fix="give the cotangent the argument's shape and dtype",
            )
        return value
