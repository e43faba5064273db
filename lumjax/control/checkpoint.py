"""`checkpoint`: a function whose intermediate values are recomputed in the backward pass."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from lumjax import tree
from lumjax.config import config
from lumjax.control.call import call, call_p
from lumjax.control.policies import Policy
from lumjax.control.staging import (
    Flags,
    Split,
    batch_of,
    check_operands,
    concrete,
    flatten_values,
    jvp_of,
    merge,
    name_of,
    remembered,
    require_callable,
    run,
    select_where,
    split_of,
    spread,
    stage_tree,
)
from lumjax.debugging.keys import without_checks
from lumjax.grad.reverse import LinearTrace
from lumjax.ops.barrier import barrier
from lumjax.ops.layout import batch_first
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import (
    Atom,
    Effect,
    EvalTrace,
    Jaxpr,
    Primitive,
    Value,
    Var,
    aval_of,
    current,
    eval_jaxpr,
)
from lumjax.trace.form import Expand
from lumjax.trace.simplify import dce
from lumjax.trace.stage import stage

R = TypeVar("R")
_ids: Iterator[int] = itertools.count(1)


def checkpoint(
    fun: Callable[..., R],
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[..., R]:
    """`fun`, with its intermediate values recomputed in the backward pass instead of kept in
    memory.

    `policy` (see `checkpoint_policies`) chooses values that are kept all the same; by default only
    the arguments are. Values and derivatives do not change. Arguments `static_argnums` and
    `static_argnames` are passed through as they are; where one has no hash, the function is staged
    anew by each call.
    `prevent_cse=False` lets the compiler undo the recomputation, as is fine inside the body of
    `scan`, where there is nothing to share it with.

    >>> from lumjax.ops.transcendental import sin
    >>> float(checkpoint(sin)(0.0))
    0.0
    """
    require_callable("checkpoint", fun)
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    if names:
        parameters = list(inspect.signature(fun).parameters)
        numbers = (*numbers, *(parameters.index(n) for n in names if n in parameters))
    calls: dict[Any, Callable[..., R]] = {}

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> R:
        if type(current()) is EvalTrace:
            return fun(*args, **kwargs)
        fixed: dict[int | str, Any] = {
            k % len(args): args[k] for k in numbers if -len(args) <= k < len(args)
        }
        fixed.update((n, kwargs.pop(n)) for n in names if n in kwargs)
        inner = _fixing(fun, fixed, calls)
        dynamic = tuple(a for k, a in enumerate(args) if k not in fixed)
        flat, in_tree = flatten_values((dynamic, kwargs))
        callee = stage_tree(inner, in_tree, [aval_of(x) for x in flat], fun)
        outs = checkpoint_p.bind(
            *callee.consts, *flat,
            jaxpr=callee.jaxpr, policy=policy, prevent_cse=prevent_cse, name=name_of(fun),
        )  # fmt: skip
        return tree.unflatten(callee.out_tree, outs)

    return wrapped


remat = checkpoint


def _fixing(
    fun: Callable[..., R], fixed: dict[int | str, Any], calls: dict[Any, Callable[..., R]]
) -> Callable[..., R]:
    """`fun` of (the other positional arguments, keywords), one function object per set of fixed
    values.
    """
    key = tuple((k, type(v), v) for k, v in fixed.items())  # 1, True and 1.0 are equal
    try:
        found = calls.get(key)
    except TypeError:  # a value without a hash: nothing to remember the function by
        key, found = None, None
    if found is not None:
        return found

    def inner(dynamic: Sequence[Any], keywords: dict[str, Any]) -> R:
        rest = iter(dynamic)
        named = {k: v for k, v in fixed.items() if isinstance(k, str)}
        count = len(fixed) - len(named) + len(dynamic)
        args = (fixed[k] if k in fixed else next(rest) for k in range(count))
        return fun(*args, **named, **keywords)

    return inner if key is None else calls.setdefault(key, inner)


# ---- the record


def _bind(
    args: Sequence[Value], jaxpr: Jaxpr, policy: Policy | None, prevent_cse: bool, name: str
) -> tuple[Value, ...]:
    return checkpoint_p.bind(*args, jaxpr=jaxpr, policy=policy, prevent_cse=prevent_cse, name=name)


def _aval(*avals: ShapedArray, jaxpr: Jaxpr, **params: Any) -> tuple[ShapedArray, ...]:
    check_operands("checkpoint", jaxpr, avals)
    return jaxpr.out_avals


def _eval(*args: Any, jaxpr: Jaxpr, **params: Any) -> tuple[Value, ...]:
    return run(jaxpr, args)


def _expand(*args: Value, jaxpr: Jaxpr, **params: Any) -> tuple[Value, ...]:
    return tuple(eval_jaxpr(jaxpr, args))


def _jvp(
    primals: Sequence[Value], tangents: Sequence[Value | None], *, jaxpr: Jaxpr, **params: Any
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    derived = jvp_of(jaxpr, tuple(t is not None for t in tangents))
    given = [t for t in tangents if t is not None]
    outs = _bind((*derived.consts, *primals, *given), derived.jaxpr, **params)
    count = len(jaxpr.outputs)
    return outs[:count], spread(derived.nonzero, outs[count:])


def _batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Sequence[int | None],
    *,
    jaxpr: Jaxpr,
    **params: Any,
) -> tuple[Sequence[Value], Sequence[int | None]]:
    derived = batch_of(jaxpr, axis, tuple(d is not None for d in dims))
    moved = [
        a if d is None else batch_first(a, d, axis.size) for a, d in zip(args, dims, strict=True)
    ]
    outs = _bind((*derived.consts, *moved), derived.jaxpr, **params)
    return outs, [0 if m else None for m in derived.mapped]


# ---- linearize: keep the arguments and what the policy saves, recompute the rest where it is
# needed


@record(eq=False)
class _Plan:
    """forward:  (*consts, *known inputs) -> (*outs where not `outputs[k]`, *saved values)
    linear:   (*kept inputs, *saved values, *linear inputs) -> (*outs where `outputs[k]`), which
              recomputes the residuals behind a barrier
    kept:     positions among forward's inputs
    """

    forward: Jaxpr
    consts: tuple[Value, ...]
    linear: Jaxpr
    outputs: Flags
    kept: tuple[int, ...]


def _plan(jaxpr: Jaxpr, linear: Flags, policy: Policy | None, prevent_cse: bool) -> _Plan:
    part = split_of(_flattened(jaxpr) if policy is not None else jaxpr, linear)
    known = part.known
    outs = known.outputs[: part.known_outs]
    again = without_checks(known) if config.debug_key_reuse or config.debug_index else known
    recompute = dce(replace(again, outputs=again.outputs[part.known_outs :]))
    saved = _saved(recompute, policy)
    needed = dce(_cut_off(recompute, saved))
    mentioned = {*needed.outputs, *(a for e in needed.eqns for a in e.inputs)}
    forwarded = {s for s in part.sources if s is not None}
    kept = tuple(k for k, v in enumerate(known.inputs) if v in mentioned or k in forwarded)
    saved = tuple(v for v in saved if v in mentioned)
    needed = replace(needed, inputs=(*known.inputs, *saved))
    return _Plan(
        forward=dce(replace(known, outputs=(*outs, *saved))),
        consts=part.consts,
        linear=_recomputing(part, needed, kept, saved, prevent_cse),
        outputs=part.outputs,
        kept=kept,
    )


def _flattened(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with called ones written out, so that a policy sees their equations."""

    def flat(*args: Value) -> list[Value]:
        return _inline(jaxpr, args)

    def make() -> Jaxpr:
        staged = stage(flat, jaxpr.in_avals)
        return replace(staged.jaxpr, consts=0)

    if not any(e.prim is call_p for e in jaxpr.eqns):
        return jaxpr
    return remembered(jaxpr, "flattened", make, lambda _: True)


def _inline(jaxpr: Jaxpr, args: Sequence[Value]) -> list[Value]:
    env: dict[Atom, Value] = dict(zip(jaxpr.inputs, args, strict=True))

    def read(atom: Atom) -> Value:
        return env[atom] if isinstance(atom, Var) else atom.value

    for eqn in jaxpr.eqns:
        operands = [read(a) for a in eqn.inputs]
        if eqn.prim is call_p:
            outs: Sequence[Value] = _inline(eqn.params["jaxpr"], operands)
        else:
            outs = eqn.prim.bind(*operands, **eqn.params)
        env.update(zip(eqn.outputs, outs, strict=True))
    return [read(a) for a in jaxpr.outputs]


def _saved(jaxpr: Jaxpr, policy: Policy | None) -> tuple[Var, ...]:
    if policy is None:
        return ()
    return tuple(
        v
        for e in jaxpr.eqns
        if policy(e.prim, *(a.aval for a in e.inputs), **e.params)
        for v in e.outputs
    )


def _cut_off(jaxpr: Jaxpr, saved: Sequence[Var]) -> Jaxpr:
    """The jaxpr without the equations whose every output is saved: the saved values become
    inputs.
    """
    known = set(saved)
    eqns = tuple(e for e in jaxpr.eqns if not (e.outputs and known.issuperset(e.outputs)))
    return replace(jaxpr, eqns=eqns, inputs=(*jaxpr.inputs, *saved))


def _recomputing(
    part: Split, needed: Jaxpr, kept: Sequence[int], saved: Sequence[Var], prevent_cse: bool
) -> Jaxpr:
    """The linear part, which computes its residuals from kept inputs and saved values."""
    inputs = part.known.inputs
    linear_avals = part.linear.in_avals[len(part.sources) :]

    def flat(*args: Value) -> list[Value]:
        given = args[: len(kept) + len(saved)]
        if prevent_cse:
            given = barrier(*given, id=next(_ids))
        known = dict(zip(kept, given, strict=False))
        values: list[Value] = [known.get(k) for k in range(len(inputs))]
        computed = eval_jaxpr(needed, (*values, *given[len(kept) :]))
        residuals = part.residuals(values, computed)
        return eval_jaxpr(part.linear, (*residuals, *args[len(kept) + len(saved) :]))

    avals = [inputs[k].aval for k in kept]
    staged = stage(flat, [*avals, *(v.aval for v in saved), *linear_avals])
    assert not staged.consts, "the consts of the known part are its inputs"
    return replace(staged.jaxpr, consts=0)


def _linearize(
    trace: LinearTrace,
    args: Sequence[Value],
    *,
    jaxpr: Jaxpr,
    policy: Policy | None,
    prevent_cse: bool,
    name: str,
) -> Sequence[Value]:
    linear = tuple(map(trace.is_linear, args))
    plan = remembered(
        jaxpr,
        ("checkpoint", linear, policy, prevent_cse),
        lambda: _plan(jaxpr, linear, policy, prevent_cse),
        lambda p: concrete(p.consts),
    )
    known_args = (*plan.consts, *select_where(linear, args, keep=False))
    trivial = not plan.forward.outputs and plan.forward.effect is Effect.NONE
    known = () if trivial else call(plan.forward, known_args, f"checkpointed({name})")
    count = plan.outputs.count(False)
    tangents = trace.record(
        call_p,
        (*(known_args[k] for k in plan.kept), *known[count:], *select_where(linear, args)),
        {"jaxpr": plan.linear, "name": f"recomputed({name})"},
    )
    return merge(plan.outputs, tangents, known[:count])


checkpoint_p = Primitive(
    "checkpoint",
    aval=_aval,
    eval=_eval,
    form=lambda *avals, **params: Expand(),
    expand=_expand,
    jvp=_jvp,
    batch=_batch,
    linearize=_linearize,
)
