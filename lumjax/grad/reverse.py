"""Reverse mode: `jvp` with the tangents staged, then that linear jaxpr run backwards.

Interfaces for records that carry jaxprs (`control/`):

`linearize=` of a record, called by `LinearTrace` when an operand of the primitive depends on a
tangent:

    linearize(trace: LinearTrace, args, **params) -> outs

runs with `trace.parent` as the current trace. `trace.is_linear(args[k])` tells which operands
depend on a tangent; such a tracer may only be given to `trace.record(prim, args, params) -> tuple
of linear tracers`, which appends one equation that is linear in its tracers jointly. Everything
else is bound as usual, so known outputs and residuals are computed there and then (by a `call` of
the known part, say). `outs` holds known values and tracers returned by `record`. Without the rule
the equation is recorded as it stands and all its outputs are linear.

`transpose=` of a record is `(cts, inputs, **params) -> cts of the inputs` as for any primitive.
Wrapped in `MaskAware(rule)`, the rule gets and returns `Cotangent(value, mask)` objects (None is
zero) in place of plain values; a plain rule loses the masks.

Tools for both: `backward(jaxpr, inputs, cts)` below; `grad/nested.py` has `jvp_jaxpr`,
`split_jaxpr` (known and linear part of a jaxpr) and `transpose_call`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.config import config
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    GradientError,
    MissingRuleError,
    Source,
)
from lumjax.grad.forward import (
    FlatFunction,
    JVPTrace,
    called,
    check_callable,
    describe,
    jvp_flat,
    zeros,
)
from lumjax.grad.mask import Mask, either, masked_transpose, select_masks
from lumjax.ops.barrier import barrier_p
from lumjax.ops.elementwise import add, asvalue, cast, select_p
from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import (
    Atom,
    Eqn,
    Jaxpr,
    Linear,
    Literal,
    Params,
    Primitive,
    Trace,
    Value,
    Var,
    attribute,
    aval_of,
    current,
    eval_jaxpr,
    using,
)
from lumjax.trace.leak import check_forgotten
from lumjax.trace.stage import StageTrace, StageTracer

# ---- linearize


class LinearTrace(StageTrace):
    """Stages what depends on a tangent; the rest goes to the parent trace and gives residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.parent: Trace = current()

    def is_linear(self, x: Value) -> bool:
        """Whether `x` depends on a tangent of this trace."""
        return isinstance(x, StageTracer) and x.owner is self

    def record(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        """Append one equation that is linear in its tracers."""
        return super().process(prim, args, params)

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        """Apply one primitive: record it, split it, or compute it."""
        linear = False
        for x in args:
            if isinstance(x, StageTracer) and x.owner is self:
                linear = True
                break
        if linear and prim.linearize is None:
            return super().process(prim, args, params)
        with using(self.parent):
            if linear:
                return tuple(prim.rule("linearize")(self, args, **params))
            return prim.bind(*args, **params)


@record(eq=False)
class LinearMap:
    """The derivative of a flat function at a point.

    jaxpr: (*consts, *tangents of inexact inputs) -> (*tangents of outputs that have one).
    """

    jaxpr: Jaxpr
    in_avals: tuple[ShapedArray, ...]  # of all inputs
    out_avals: tuple[ShapedArray, ...]  # of all outputs
    nonzero: tuple[bool, ...]  # which outputs have a tangent

    def apply(self, consts: Sequence[Value], tangents: Sequence[Value | None]) -> list[Value]:
        """The outputs' tangents; zeros are made real."""
        given = [
            zeros(a.tangent()) if t is None else t
            for a, t in zip(self.in_avals, tangents, strict=True)
            if dt.is_inexact(a.dtype)
        ]
        found = iter(eval_jaxpr(self.jaxpr, [*consts, *given]))
        return [
            next(found) if active else zeros(a.tangent())
            for a, active in zip(self.out_avals, self.nonzero, strict=True)
        ]

    def pull(self, consts: Sequence[Value], cts: Sequence[Value | None]) -> list[Value]:
        """The inputs' cotangents; zeros are made real."""
        inputs: list[Any] = list(consts)
        inputs.extend([Linear(v.aval) for v in self.jaxpr.inputs[self.jaxpr.consts :]])
        given = [
            None if ct is None else Cotangent(ct)
            for ct, active in zip(cts, self.nonzero, strict=True)
            if active
        ]
        found = iter(backward(self.jaxpr, inputs, given)[self.jaxpr.consts :])
        return [
            _finished(a, next(found)) if dt.is_inexact(a.dtype) else zeros(a.tangent())
            for a in self.in_avals
        ]


def _finished(aval: ShapedArray, ct: Cotangent | None) -> Value:
    """A cotangent as the user sees it: zeros made real, weak where the input was weak."""
    if ct is None:
        return zeros(aval.tangent())
    found = aval_of(ct.value)
    assert found.dtype == aval.dtype, f"a transpose rule made {found} for an input {aval}"
    return ct.value if found.weak == aval.weak else cast(ct.value, aval.dtype, weak=aval.weak)


def linearize_flat(
    f: Callable[..., Sequence[Value]], primals: Sequence[Value]
) -> tuple[list[Value], LinearMap, tuple[Value, ...], JVPTrace]:
    """Run `f`, flat in and out: outputs, derivative, residuals, and the jvp trace, now ended."""
    trace = LinearTrace()
    avals = tuple([aval_of(p) for p in primals])
    tangents = [trace.new_input(a.tangent()) if dt.is_inexact(a.dtype) else None for a in avals]
    with using(trace):
        outs, out_tangents, forward = jvp_flat(f, primals, tangents)
    atoms = tuple([trace.atom(t) for t in out_tangents if t is not None])
    inputs = (*trace.const_vars, *(t.var for t in tangents if t is not None))
    jaxpr = Jaxpr(inputs, tuple(trace.eqns), atoms, consts=len(trace.const_vars))
    linear = LinearMap(
        jaxpr,
        avals,
        tuple([aval_of(o) for o in outs]),
        tuple([t is not None for t in out_tangents]),
    )
    return outs, linear, tuple(trace.const_values), forward


# ---- transpose


@record(eq=False)
class Cotangent:
    """A cotangent and its mask; without a mask it is live everywhere."""

    value: Value
    mask: Mask | None = None


@record
class MaskAware:
    """A transpose rule that takes and returns `Cotangent`s instead of values."""

    rule: Callable[..., Sequence[Cotangent | None]]

    def __call__(
        self, cts: Sequence[Cotangent | None], inputs: Sequence[Any], **params: Any
    ) -> Sequence[Cotangent | None]:
        """Apply the rule."""
        return self.rule(cts, inputs, **params)


def backward(
    jaxpr: Jaxpr, inputs: Sequence[Any], cts: Sequence[Cotangent | None]
) -> list[Cotangent | None]:
    """Transpose a jaxpr that is linear in the inputs given as `Linear`, in the current trace.

    `inputs[k]` is a value or `Linear(aval)`; `cts` has one entry per output. Equations that depend
    on no linear input are evaluated. Returns one entry per input: None where the input isn't linear
    or the cotangent is zero.
    """
    env: dict[Var, Value] = {}
    linear: set[Any] = set()
    for var, x in zip(jaxpr.inputs, inputs, strict=True):
        if isinstance(x, Linear):
            linear.add(var)
        else:
            env[var] = x
    masking = config.grad_compat != "jax"
    before = attribute(None)  # what is computed here comes from the lines of the equations
    try:
        equations = _evaluate_known(jaxpr, env, linear)
        store = _Cotangents(linear)
        for atom, ct in zip(jaxpr.outputs, cts, strict=True):
            if ct is not None:
                store.add(atom, ct.value, ct.mask)
        for eqn in reversed(equations):
            attribute(_backward(eqn.source))
            store.propagate(eqn, env, masking)
    finally:
        attribute(before)
    return [store.pop(v) for v in jaxpr.inputs]


@functools.lru_cache(maxsize=4096)
def _backward(source: Source | None) -> Source | None:
    """The line of an operation whose derivative is run."""
    return None if source is None else replace(source, backward=True)


def _read(atom: Atom, env: dict[Var, Value]) -> Any:
    if isinstance(atom, Literal):
        return Array(atom.value, atom.aval.weak)
    return env[atom] if atom in env else Linear(atom.aval)


def _evaluate_known(jaxpr: Jaxpr, env: dict[Var, Value], linear: set[Any]) -> list[Eqn]:
    """Evaluate equations without linear inputs into `env`; the rest, outputs added to `linear`."""
    rest: list[Eqn] = []
    for eqn in jaxpr.eqns:
        if linear.isdisjoint(eqn.inputs):
            attribute(eqn.source)
            outs = eqn.prim.bind(*[_read(a, env) for a in eqn.inputs], **eqn.params)
            env.update(zip(eqn.outputs, outs, strict=True))
        else:
            linear.update(eqn.outputs)
            rest.append(eqn)
    return rest


class _Cotangents:
    """The cotangents accumulated so far, and the masks of those that have one."""

    def __init__(self, linear: set[Any]) -> None:
        self.linear = linear
        self.values: dict[Any, Value] = {}
        self.masks: dict[Any, Mask] = {}

    def add(self, atom: Atom, value: Value | None, mask: Mask | None = None) -> None:
        """Add to a cotangent. Masks combine by or; an unmasked cotangent removes the mask."""
        if value is None or atom not in self.linear:
            return
        if (old := self.values.get(atom)) is None:
            self.values[atom] = value
            if mask is not None:
                self.masks[atom] = mask
            return
        self.values[atom] = add(old, value)
        before = self.masks.pop(atom, None)
        if before is not None and mask is not None:
            self.masks[atom] = either(before, mask)

    def pop(self, var: Var) -> Cotangent | None:
        """Take the cotangent of `var`."""
        value = self.values.pop(var, None)
        return None if value is None else Cotangent(value, self.masks.pop(var, None))

    def propagate(self, eqn: Eqn, env: dict[Var, Value], masking: bool) -> None:
        """Move the cotangents of an equation's outputs to its inputs."""
        values, prim = self.values, eqn.prim
        cts = [values.pop(v, None) for v in eqn.outputs]
        if all(ct is None for ct in cts):
            return
        rule = prim.transpose
        if rule is None:
            raise _missing(eqn)
        inputs = [_read(a, env) for a in eqn.inputs]
        masks = [self.masks.pop(v, None) for v in eqn.outputs] if self.masks else [None] * len(cts)
        if isinstance(rule, MaskAware):
            pairs = [
                None if c is None else Cotangent(c, m) for c, m in zip(cts, masks, strict=True)
            ]
            for atom, ct in zip(eqn.inputs, rule(pairs, inputs, **eqn.params), strict=True):
                if ct is not None:
                    self.add(atom, ct.value, ct.mask)
            return
        found: Sequence[Value | None]
        out_masks: Sequence[Mask | None] = (None,) * len(inputs)
        if prim is select_p and masking:
            found = rule(cts, inputs, **eqn.params)
            out_masks = select_masks(inputs[0], masks[0])
        elif len(masks) == 1 and masks[0] is not None:
            found, out_masks = masked_transpose(eqn, rule, cts, inputs, masks[0])
        else:
            found = rule(cts, inputs, **eqn.params)
            out_masks = masks if prim is barrier_p else out_masks
        for atom, value, mask in zip(eqn.inputs, found, out_masks, strict=True):
            self.add(atom, value, mask)


def _missing(eqn: Eqn) -> MissingRuleError:
    name = eqn.prim.name
    return MissingRuleError(
        operation=f"reverse-mode derivative through '{name}'",
        required=f"a rule `transpose` in the record of '{name}'",
        got="none: the operation is not linear, or not differentiable in reverse",
        fix="use jvp or jacfwd, or give the function a custom_vjp rule",
        source=eqn.source,
    )


# ---- the public functions


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns both `fun`'s value and its gradient.

    Args:
        fun: a function whose output is a scalar of floating dtype (with has_aux: a pair (scalar,
            aux)).
        argnums: which positional arguments to differentiate; an int gives the gradient itself, a
            sequence a tuple.
        has_aux: whether `fun` returns a pair whose second part is passed on without being
            differentiated.
        holomorphic: promise that `fun` is holomorphic; inputs and output are complex.
        allow_int: accept integer and bool arguments; their gradient is a zero of dtype float0.

    Returns:
        A function of `fun`'s arguments returning (value, gradient), or ((value, aux), gradient).
        The gradient has the structure, shapes and dtypes of the differentiated arguments.

    Raises:
        GradientError: the output isn't a scalar, or a dtype can't be differentiated.
        ArgumentValueError: argnums beyond the arguments of a call.

    >>> import lumjax
    >>> value, slope = lumjax.value_and_grad(lambda x: x * x)(3.0)
    >>> float(value), float(slope)
    (9.0, 6.0)
    """
    check_callable("grad", fun)
    positions = check_argnums("grad", argnums)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        chosen = pick_arguments("grad", args, positions)
        flat, treedef = tree.flatten(chosen)
        values = [asvalue(x, "grad") for x in flat]
        _check_inputs(values, holomorphic, allow_int)

        def run(leaves: Sequence[Value]) -> Any:
            return fun(*put_arguments(args, positions, tree.unflatten(treedef, leaves)), **kwargs)

        f = FlatFunction("grad", run, has_aux, called(fun))
        outs, linear, consts, forward = linearize_flat(f, values)
        aval = _check_output(f, outs, holomorphic)
        one = Array(np.ones((), aval.dtype), aval.weak)
        gradient = tree.unflatten(treedef, linear.pull(consts, [one]))
        if isinstance(argnums, int):
            gradient = gradient[0]
        value = (outs[0], f.settled_aux(forward)) if has_aux else outs[0]
        if config.check_tracer_leaks:
            f.aux, reference = None, weakref.ref(forward)
            del forward
            check_forgotten(reference)
        return value, gradient

    return renamed(value_and_gradient, fun, "value_and_grad")


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradient of `fun`; with has_aux, the pair (gradient, aux).

    Arguments and errors are those of `value_and_grad`. Outside `jit`, Python control flow in `fun`
    sees the values of its arguments.

    >>> import lumjax
    >>> float(lumjax.grad(lambda x: x * x if x > 0 else -x)(3.0))
    6.0
    """
    value_and_gradient = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = value_and_gradient(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return renamed(gradient, fun, "grad")


def renamed(
    wrapper: Callable[..., Any], fun: Callable[..., Any], operation: str
) -> Callable[..., Any]:
    """`wrapper` with the name and docstring of what it transforms."""
    name = getattr(fun, "__name__", type(fun).__name__)
    wrapper.__name__ = wrapper.__qualname__ = f"{operation}({name})"
    wrapper.__doc__ = f"{operation} of {name}.\n\n{fun.__doc__ or ''}"
    wrapper.__dict__["__wrapped__"] = fun  # for its signature
    return wrapper


def check_argnums(operation: str, argnums: Any) -> tuple[int, ...]:
    """Argnums as a tuple of positions."""
    positions = (argnums,) if isinstance(argnums, int) else argnums
    if not isinstance(positions, (tuple, list)) or not all(isinstance(p, int) for p in positions):
        raise ArgumentTypeError(
            operation=operation,
            required="argnums that are an int or a sequence of ints",
            got=describe(argnums),
            fix="give the position of the argument to differentiate",
        )
    return tuple(positions)


def pick_arguments(
    operation: str, args: Sequence[Any], positions: Sequence[int]
) -> tuple[Any, ...]:
    """The arguments at `positions`, which may be negative."""
    for p in positions:
        if not -len(args) <= p < len(args):
            raise ArgumentValueError(
                operation=operation,
                required=f"a positional argument number {p}, which argnums names",
                got=f"{len(args)} positional arguments",
                fix="pass the argument by position, or change argnums",
            )
    return tuple([args[p] for p in positions])


def put_arguments(
    args: Sequence[Any], positions: Sequence[int], chosen: Sequence[Any]
) -> list[Any]:
    """`args` with those at `positions` replaced."""
    full = list(args)
    for p, x in zip(positions, chosen, strict=True):
        full[p] = x
    return full


def _check_inputs(values: Sequence[Value], holomorphic: bool, allow_int: bool) -> None:
    for v in values:
        aval = aval_of(v)
        if holomorphic and not dt.is_complex(aval.dtype):
            raise GradientError(
                operation="grad with holomorphic=True",
                required="complex inputs",
                got=str(aval),
                fix="convert the input to a complex dtype, or drop holomorphic=True",
            )
        if not allow_int and not dt.is_inexact(aval.dtype):
            raise GradientError(
                operation="grad",
                required="floating or complex inputs",
                got=str(aval),
                fix="convert the input to a float, choose other argnums, or pass allow_int=True",
            )


def _check_output(f: FlatFunction, outs: Sequence[Value], holomorphic: bool) -> ShapedArray:
    """The aval of the one scalar output."""
    if len(outs) != 1 or not f.out_tree.is_leaf() or aval_of(outs[0]).ndim:
        one = len(outs) == 1 and f.out_tree.is_leaf()
        raise GradientError(
            operation="grad",
            required="a function with a scalar output",
            got=f"an output {aval_of(outs[0])}" if one else f"an output of structure {f.out_tree}",
            fix="reduce the output to a scalar (sum, mean), use jacrev or vjp, or return other "
            "results with has_aux=True",
        )
    aval = aval_of(outs[0])
    if holomorphic and not dt.is_complex(aval.dtype):
        raise GradientError(
            operation="grad with holomorphic=True",
            required="a complex output",
            got=str(aval),
            fix="drop holomorphic=True",
        )
    if not holomorphic and not dt.is_floating(aval.dtype):
        raise GradientError(
            operation="grad",
            required="an output of real floating dtype",
            got=str(aval),
            fix="convert the output to a float; for a holomorphic function pass holomorphic=True; "
            "otherwise use vjp",
        )
    return aval
