"""The record of `while`: a body (consts, carry) -> carry repeated as long as a condition on the
carry holds.

Operands are the condition's consts, the body's consts, and the initial carry; results are the last
carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lumjax.control.scan_parts import linear_flags
from lumjax.control.scanning import cut, paired
from lumjax.control.staging import (
    as_arrays,
    batch_of,
    check_operands,
    jvp_of,
    merge,
    rearranged,
    remembered,
    select_where,
    split_of,
    spread,
    together,
    zeros,
)
from lumjax.errors import GradientError
from lumjax.grad.reverse import LinearTrace
from lumjax.ops.elementwise import select
from lumjax.ops.layout import batch_first, broadcast_in_dim
from lumjax.ops.reduce import reduce_or
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Jaxpr, Primitive, Value, Var, aval_of, eval_jaxpr, evaluate
from lumjax.trace.form import Repeat
from lumjax.trace.simplify import dce
from lumjax.trace.stage import stage


def iterate(
    cond: Jaxpr,
    body: Jaxpr,
    cond_consts: Sequence[Value],
    body_consts: Sequence[Value],
    init: Sequence[Value],
) -> tuple[Value, ...]:
    """Run the loop: the last carry."""
    return while_p.bind(
        *cond_consts, *body_consts, *init,
        cond=cond, body=body, cond_consts=len(cond_consts), body_consts=len(body_consts),
    )  # fmt: skip


def _aval(
    *avals: ShapedArray, cond: Jaxpr, body: Jaxpr, cond_consts: int, body_consts: int
) -> tuple[ShapedArray, ...]:
    tests, fixed, init = cut(avals, cond_consts, body_consts)
    check_operands("the condition of while", cond, (*tests, *init))
    check_operands("the body of while", body, (*fixed, *init))
    return body.out_avals


def _eval(
    *args: Any, cond: Jaxpr, body: Jaxpr, cond_consts: int, body_consts: int
) -> tuple[Array, ...]:
    tests, fixed, state = cut(args, cond_consts, body_consts)
    while True:
        (go,) = evaluate(cond, (*tests, *state))
        if not (go.data if type(go) is Array else go):
            return as_arrays(state, body.out_avals)
        state = evaluate(body, (*fixed, *state))


def _form(
    *avals: ShapedArray, cond: Jaxpr, body: Jaxpr, cond_consts: int, body_consts: int
) -> Repeat:
    carry = len(avals) - cond_consts - body_consts
    return Repeat(body, body_consts, carry, test=cond, test_consts=cond_consts)


def _ignoring(cond: Jaxpr, carry: Sequence[ShapedArray]) -> Jaxpr:
    """A condition that takes, and ignores, more carry."""
    key = ("ignoring", tuple(carry))
    extra = tuple(map(Var, carry))
    return remembered(
        cond, key, lambda: replace(cond, inputs=(*cond.inputs, *extra)), lambda _: True
    )


def _jvp(
    primals: Sequence[Value],
    tangents: Sequence[Value | None],
    *,
    cond: Jaxpr,
    body: Jaxpr,
    cond_consts: int,
    body_consts: int,
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    tests, fixed, init = cut(primals, cond_consts, body_consts)
    _, dfixed, dinit = cut(tangents, cond_consts, body_consts)
    flags = [t is not None for t in dinit]
    fixed_flags = [t is not None for t in dfixed]
    while True:
        derived = jvp_of(body, (*fixed_flags, *flags), tuple(flags))
        if list(derived.nonzero) == flags:
            break
        flags = list(derived.nonzero)
    lead = len(derived.consts)
    order = paired((body_consts, len(init)), (*fixed_flags, *flags), lead)
    tangent_body = rearranged(
        derived.jaxpr, (*range(lead), *order), tuple(range(len(init) + sum(flags)))
    )
    dinit = [
        zeros(aval_of(p).tangent()) if t is None else t
        for p, t in select_where(flags, zip(init, dinit, strict=True))
    ]
    outs = iterate(
        _ignoring(cond, tangent_body.out_avals[len(init) :]),
        tangent_body,
        tests,
        [*derived.consts, *fixed, *(t for t in dfixed if t is not None)],
        [*init, *dinit],
    )
    return outs[: len(init)], spread(flags, outs[len(init) :])


def _linearize(
    trace: LinearTrace,
    args: Sequence[Value],
    *,
    cond: Jaxpr,
    body: Jaxpr,
    cond_consts: int,
    body_consts: int,
) -> Sequence[Value]:
    """Run the known part now, and record the loop as it stands for the tangents: it keeps no
    residuals.
    """
    tests, fixed, init = cut(args, cond_consts, body_consts)
    linear = tuple(map(trace.is_linear, (*fixed, *init)))
    flags, outputs = linear_flags(body, linear, body_consts, len(init))
    part = split_of(body, flags, outputs)
    known_body = dce(replace(part.known, outputs=part.known.outputs[: part.known_outs]))
    carry_flags = flags[body_consts:]
    known_cond = replace(
        cond,
        inputs=(
            *cond.inputs[:cond_consts],
            *select_where(carry_flags, cond.inputs[cond_consts:], keep=False),
        ),
    )
    known = iterate(
        known_cond,
        known_body,
        tests,
        [*part.consts, *select_where(flags[:body_consts], fixed, keep=False)],
        select_where(carry_flags, init, keep=False),
    )
    params = {"cond": cond, "body": body, "cond_consts": cond_consts, "body_consts": body_consts}
    recorded = trace.record(while_p, args, params)
    return merge(outputs, select_where(outputs, recorded), known)


def _transpose(cts: Sequence[Value | None], inputs: Sequence[Any], **params: Any) -> Any:
    raise GradientError(
        operation="reverse-mode derivative of while_loop",
        required="a loop whose number of steps is known when it is traced",
        got="a while_loop, or a fori_loop with traced bounds",
        fix="give while_loop max_steps=, use scan or fori_loop with static bounds, or use jvp",
    )


def _batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Sequence[int | None],
    *,
    cond: Jaxpr,
    body: Jaxpr,
    cond_consts: int,
    body_consts: int,
) -> tuple[Sequence[Value], Sequence[int | None]]:
    tests, fixed, state = cut([d is not None for d in dims], cond_consts, body_consts)
    while True:
        test = batch_of(cond, axis, (*tests, *state))
        if test.mapped[0]:
            state = [True] * len(state)
        step = batch_of(body, axis, (*fixed, *state), tuple(state))
        if list(step.mapped) == state:
            break
        state = list(step.mapped)
    test = batch_of(cond, axis, (*tests, *state))
    mapped = (*tests, *fixed, *state)
    values = [
        batch_first(x, d, axis.size) if m else x for x, d, m in zip(args, dims, mapped, strict=True)
    ]
    groups = cut(values, cond_consts, body_consts)
    cond_args, body_args, init = groups
    cond_args, body_args = [*test.consts, *cond_args], [*step.consts, *body_args]
    if not test.mapped[0]:
        outs = iterate(test.jaxpr, step.jaxpr, cond_args, body_args, init)
        return outs, [0 if m else None for m in state]
    any_lane, lane_body = together(
        (test.jaxpr, step.jaxpr),
        ("lanes", len(cond_args), len(body_args)),
        lambda: _lanes(test.jaxpr, step.jaxpr, len(cond_args), len(body_args)),
        lambda _: True,
    )
    first = eval_jaxpr(test.jaxpr, (*cond_args, *init))
    outs = iterate(any_lane, lane_body, [], [*cond_args, *body_args], [*first, *init])
    return outs[1:], [0] * len(init)


def _lanes(cond: Jaxpr, body: Jaxpr, cond_consts: int, body_consts: int) -> tuple[Jaxpr, Jaxpr]:
    """A loop over lanes that stop at different times: (each lane's condition, *carry) is the new
    carry.

    It goes on while any lane does; a lane that has stopped keeps its carry.
    """

    def step(*args: Value) -> list[Value]:
        tests, fixed, (lanes, *state) = cut(args, cond_consts, body_consts)
        moved = eval_jaxpr(body, (*fixed, *state))
        state = [
            select(broadcast_in_dim(lanes, aval_of(new).shape, (0,)), new, old)
            for new, old in zip(moved, state, strict=True)
        ]
        return [*eval_jaxpr(cond, (*tests, *state)), *state]

    lanes = cond.out_avals[0]
    carry = body.in_avals[body_consts:]
    test = stage(lambda lanes, *_: (reduce_or(lanes, (0,)),), (lanes, *carry))
    moved = stage(step, (*cond.in_avals[:cond_consts], *body.in_avals[:body_consts], lanes, *carry))
    assert not test.consts, "the consts of the loop are arguments here"
    assert not moved.consts, "the consts of the loop are arguments here"
    return replace(test.jaxpr, consts=0), replace(moved.jaxpr, consts=0)


while_p = Primitive(
    "while",
    aval=_aval,
    eval=_eval,
    form=_form,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    linearize=_linearize,
)
