"""The record of `scan`: a body (consts, carry, x) -> (carry, y) run once per row of the stacked
operands.

Operands are consts, initial carry, stacked xs; results are the last carry and the stacked ys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from lumjax.control.call import call
from lumjax.control.cotangents import kind_of, pack, unpack
from lumjax.control.scan_parts import CutBody, backward_body, cut_body, linear_flags
from lumjax.control.staging import (
    Flags,
    batch_of,
    check_operands,
    jvp_of,
    merge,
    rearranged,
    remembered,
    select_where,
    spread,
    zeros,
)
from lumjax.grad.nested import JvpJaxpr
from lumjax.grad.reverse import Cotangent, LinearTrace, MaskAware
from lumjax.ops.layout import batch_first, moveaxis, reshape
from lumjax.ops.view import concatenate
from lumjax.ops.view import slice as slice_rows
from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import (
    Jaxpr,
    Linear,
    Primitive,
    Value,
    aval_of,
    eval_jaxpr,
    evaluate,
    sub_jaxprs,
)
from lumjax.trace.dim import Dim
from lumjax.trace.form import Expand, Form, Repeat
from lumjax.trace.stage import stage

T = TypeVar("T")
_SHORT = 32  # equations of all the steps that become one program
_LONG = 64  # steps from which several at a time repay their compilation
_AT_ONCE = 8


@record
class Loop:
    """How a body is repeated: over `length` rows, from the last one if `reverse`; `unroll` is a
    hint to the compiler.
    """

    length: Dim
    reverse: bool = False
    unroll: int = 1


def repeat(
    jaxpr: Jaxpr, loop: Loop, consts: Sequence[Value], carry: Sequence[Value], xs: Sequence[Value]
) -> tuple[list[Value], list[Value]]:
    """Run the loop: the last carry and the stacked ys."""
    outs = scan_p.bind(
        *consts, *carry, *xs, jaxpr=jaxpr, loop=loop, consts=len(consts), carry=len(carry)
    )
    return list(outs[: len(carry)]), list(outs[len(carry) :])


def cut(items: Sequence[T], consts: int, carry: int) -> tuple[list[T], list[T], list[T]]:
    """Operands of the loop, or anything parallel to them, in their three groups."""
    return list(items[:consts]), list(items[consts : consts + carry]), list(items[consts + carry :])


def _stacked(aval: ShapedArray, length: Dim) -> ShapedArray:
    return aval.with_shape((length, *aval.shape))


def _aval(
    *avals: ShapedArray, jaxpr: Jaxpr, loop: Loop, consts: int, carry: int
) -> tuple[ShapedArray, ...]:
    rows = [a.with_shape(a.shape[1:]) for a in avals[consts + carry :]]
    check_operands("scan", jaxpr, (*avals[: consts + carry], *rows))
    outs = jaxpr.out_avals
    return (*outs[:carry], *(_stacked(a, loop.length) for a in outs[carry:]))


def _eval(*args: Any, jaxpr: Jaxpr, loop: Loop, consts: int, carry: int) -> tuple[Array, ...]:
    """Several steps at a time, as one program; what is left over step by step."""
    fixed, state, xs = cut(args, consts, carry)
    length, avals = int(loop.length), jaxpr.out_avals
    ys = [np.empty((length, *map(int, a.shape)), a.dtype) for a in avals[carry:]]
    size = _steps_at_once(jaxpr, loop.unroll, length)
    block = jaxpr if size == 1 else _block(jaxpr, Loop(size, loop.reverse), consts, carry)
    done = 0
    while done < length:
        if length - done < size:
            size, block = 1, jaxpr
        first = length - done - size if loop.reverse else done
        where = first if size == 1 else slice(first, first + size)
        outs = evaluate(block, (*fixed, *state, *(x[where, ...] for x in xs)))
        state = outs[:carry]
        for y, out in zip(ys, outs[carry:], strict=True):
            y[where] = out.data if isinstance(out, Array) else out
        done += size
    last = [s.data if isinstance(s, Array) else s for s in state]
    return tuple(Array(d, a.weak) for d, a in zip((*last, *ys), avals, strict=True))


def _steps_at_once(jaxpr: Jaxpr, unroll: int, length: int) -> int:
    """As many as `unroll` asks for; by default a few where the loop is long and its body small."""
    if unroll == 1:
        unroll = _SHORT // _equations(jaxpr) if length >= _LONG else 1
        return max(1, min(unroll, _AT_ONCE))
    return min(unroll, length) or 1


def _block(jaxpr: Jaxpr, loop: Loop, consts: int, carry: int) -> Jaxpr:
    """The program of several steps: a short loop written out, remembered."""

    def make() -> Jaxpr:
        fixed, state, xs = cut(jaxpr.in_avals, consts, carry)
        avals = [*fixed, *state, *(_stacked(a, loop.length) for a in xs)]
        run = partial(_expand, jaxpr=jaxpr, loop=loop, consts=consts, carry=carry)
        return stage(run, avals).jaxpr

    return remembered(jaxpr, ("block", loop, consts, carry), make, lambda _: True)


# ---- forward mode and vmap: the flags of the carry grow until they no longer change


def _jvp(
    primals: Sequence[Value],
    tangents: Sequence[Value | None],
    *,
    jaxpr: Jaxpr,
    loop: Loop,
    consts: int,
    carry: int,
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    nonzero = [t is not None for t in tangents]
    outputs = len(jaxpr.outputs)
    while True:
        force = (*nonzero[consts : consts + carry], *[False] * (outputs - carry))
        derived = jvp_of(jaxpr, tuple(nonzero), tuple(force))
        grown = [a or b for a, b in zip(force[:carry], derived.nonzero[:carry], strict=True)]
        if grown == nonzero[consts : consts + carry]:
            break
        nonzero[consts : consts + carry] = grown
    body = _jvp_body(derived, tuple(nonzero), consts, carry, len(jaxpr.inputs))
    fixed, init, xs = cut(primals, consts, carry)
    dfixed, dinit, dxs = cut(tangents, consts, carry)
    flags = nonzero[consts : consts + carry]
    dinit = [
        zeros(aval_of(p).tangent()) if t is None else t
        for p, t in select_where(flags, zip(init, dinit, strict=True))
    ]
    last, ys = repeat(
        body,
        loop,
        [*derived.consts, *fixed, *(t for t in dfixed if t is not None)],
        [*init, *dinit],
        [*xs, *(t for t in dxs if t is not None)],
    )
    count = outputs - carry
    outs = [*last[:carry], *ys[:count]]
    return outs, [*spread(flags, last[carry:]), *spread(derived.nonzero[carry:], ys[count:])]


def _jvp_body(derived: JvpJaxpr, nonzero: Flags, consts: int, carry: int, inputs: int) -> Jaxpr:
    """The derivative of a body with primals and tangents brought together group by group."""
    lead = len(derived.consts)
    order = paired((consts, carry, inputs - consts - carry), nonzero, lead)
    outs = paired((carry, len(derived.nonzero) - carry), derived.nonzero, 0)
    return rearranged(derived.jaxpr, (*range(lead), *order), tuple(outs))


def paired(sizes: Sequence[int], flags: Flags, start: int) -> list[int]:
    """Positions in (*primals, *tangents where flagged), reordered to (primals, tangents) per
    group.
    """
    order: list[int] = []
    tangent = start + len(flags)
    at = 0
    for size in sizes:
        order.extend(range(start + at, start + at + size))
        count = sum(flags[at : at + size])
        order.extend(range(tangent, tangent + count))
        tangent += count
        at += size
    return order


def _batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Sequence[int | None],
    *,
    jaxpr: Jaxpr,
    loop: Loop,
    consts: int,
    carry: int,
) -> tuple[Sequence[Value], Sequence[int | None]]:
    mapped = [d is not None for d in dims]
    rest = [False] * (len(jaxpr.outputs) - carry)
    while True:
        state = mapped[consts : consts + carry]
        derived = batch_of(jaxpr, axis, tuple(mapped), (*state, *rest))
        if list(derived.mapped[:carry]) == state:
            break
        mapped[consts : consts + carry] = derived.mapped[:carry]
    fixed, init, xs = cut(
        [
            _mapped_to(x, d, int(k >= consts + carry), axis.size) if m else x
            for k, (x, d, m) in enumerate(zip(args, dims, mapped, strict=True))
        ],
        consts,
        carry,
    )
    last, ys = repeat(derived.jaxpr, loop, [*derived.consts, *fixed], init, xs)
    out_dims = [(0 if k < carry else 1) if m else None for k, m in enumerate(derived.mapped)]
    return [*last, *ys], out_dims


def _mapped_to(x: Value, dim: int | None, at: int, size: Dim) -> Value:
    """An operand with its mapped axis at position `at`; rows stay first, so xs have it second."""
    if dim is None:
        return batch_first(x, None, size)  # only a carry gets the axis here
    return moveaxis(x, dim, at)


# ---- reverse mode


def _linearize(
    trace: LinearTrace, args: Sequence[Value], *, jaxpr: Jaxpr, loop: Loop, consts: int, carry: int
) -> Sequence[Value]:
    """Scan the known part now, stacking the residuals that change, and record a scan of the
    linear part.
    """
    plan = cut_body(jaxpr, tuple(map(trace.is_linear, args)), consts, carry)
    outs, fixed, stacked = _run_known(plan, args, loop, consts, carry)
    lin_fixed, lin_init, lin_xs = (
        select_where(f, a)
        for f, a in zip(cut(plan.flags, consts, carry), cut(args, consts, carry), strict=True)
    )
    lead, middle = [*fixed, *lin_fixed], lin_init
    tangents = trace.record(
        scan_p,
        (*lead, *middle, *stacked, *lin_xs),
        {"jaxpr": plan.linear, "loop": loop, "consts": len(lead), "carry": len(middle)},
    )
    return merge(plan.outputs, tangents, outs)


def _run_known(
    plan: CutBody, args: Sequence[Value], loop: Loop, consts: int, carry: int
) -> tuple[list[Value], list[Value], list[Value]]:
    """The known outputs, the fixed residuals, and the stacked ones."""
    fixed, init, xs = (
        select_where(f, a, keep=False)
        for f, a in zip(cut(plan.flags, consts, carry), cut(args, consts, carry), strict=True)
    )
    fixed = [*plan.consts, *fixed]
    last, ys = ([], []) if plan.trivial else repeat(plan.known, loop, fixed, init, xs)
    count = plan.outputs[carry:].count(False)
    invariant = iter(call(plan.invariant, fixed, "invariant") if plan.invariant.outputs else ())
    stacks = iter(ys[count:])
    return (
        [*last, *ys[:count]],
        [next(invariant) if k is None else fixed[k] for k in plan.fixed],
        [next(stacks) if k is None else xs[k] for k in plan.stacked],
    )


def _transpose(
    cts: Sequence[Cotangent | None],
    inputs: Sequence[Any],
    *,
    jaxpr: Jaxpr,
    loop: Loop,
    consts: int,
    carry: int,
) -> Sequence[Cotangent | None]:
    given = tuple(isinstance(x, Linear) for x in inputs)
    flags, _ = linear_flags(jaxpr, given, consts, carry)
    if all(flags[consts : consts + carry]):
        found = _backward_scan(cts, inputs, flags, jaxpr, loop, consts, carry)
        return [ct if own else None for ct, own in zip(found, given, strict=True)]
    # A counter or other known carry: cut first, as when linearizing.
    plan = cut_body(jaxpr, given, consts, carry)
    _, fixed, stacked = _run_known(plan, inputs, loop, consts, carry)
    groups = zip(cut(plan.flags, consts, carry), cut(inputs, consts, carry), strict=True)
    lin_fixed, lin_init, lin_xs = (select_where(f, a) for f, a in groups)
    operands = [*fixed, *lin_fixed, *lin_init, *stacked, *lin_xs]
    sizes = len(fixed) + len(lin_fixed), len(lin_init)
    linear = [False] * len(fixed) + [True] * (len(lin_fixed) + len(lin_init))
    linear += [False] * len(stacked) + [True] * len(lin_xs)
    found = _backward_scan(
        select_where(plan.outputs, cts), operands, tuple(linear), plan.linear, loop, *sizes
    )
    spread_out = spread(plan.flags, select_where(linear, found))
    return [ct if own else None for ct, own in zip(spread_out, given, strict=True)]


def _backward_scan(
    cts: Sequence[Cotangent | None],
    inputs: Sequence[Any],
    linear: Flags,
    jaxpr: Jaxpr,
    loop: Loop,
    consts: int,
    carry: int,
) -> list[Cotangent | None]:
    """Run a body with an all-linear carry backwards; an operand that is a value where `linear`
    counts as zero.
    """
    kinds = tuple(map(kind_of, cts))
    plan = backward_body(jaxpr, linear, kinds[:carry], kinds[carry:], consts)
    fixed, _, xs = cut(inputs, consts, carry)
    fixed_flags, _, x_flags = cut(linear, consts, carry)
    fixed_avals, carry_avals, _ = cut(jaxpr.in_avals, consts, carry)
    y_avals = [_stacked(a, loop.length) for a in jaxpr.out_avals[carry:]]
    sums = pack([None] * len(plan.fixed), plan.fixed, select_where(fixed_flags, fixed_avals))
    last, rows = repeat(
        plan.jaxpr,
        replace(loop, reverse=not loop.reverse),
        [*plan.consts, *select_where(fixed_flags, fixed, keep=False)],
        [*sums, *pack(cts[:carry], plan.carry, carry_avals)],
        [*pack(cts[carry:], kinds[carry:], y_avals), *select_where(x_flags, xs, keep=False)],
    )
    return [
        *spread(fixed_flags, unpack(last[: len(sums)], plan.fixed)),
        *unpack(last[len(sums) :], plan.carry),
        *spread(x_flags, unpack(rows, plan.xs)),
    ]


# ---- the compiler's view


def _form(*avals: ShapedArray, jaxpr: Jaxpr, loop: Loop, consts: int, carry: int) -> Form:
    """A loop that is short, or asked to be unrolled whole, is written out step by step."""
    if isinstance(loop.length, int):
        unrolled = loop.unroll > 1 and loop.unroll >= loop.length
        if unrolled or loop.length * _equations(jaxpr) <= _SHORT:
            return Expand()
    return Repeat(jaxpr, consts, carry, loop.length, loop.reverse)


def _equations(jaxpr: Jaxpr) -> int:
    return max(1, sum(1 + sum(map(_equations, sub_jaxprs(e.params))) for e in jaxpr.eqns))


def _expand(*args: Value, jaxpr: Jaxpr, loop: Loop, consts: int, carry: int) -> tuple[Value, ...]:
    fixed, state, xs = cut(args, consts, carry)
    length = int(loop.length)
    ys: list[Sequence[Value]] = [()] * length
    for i in range(length - 1, -1, -1) if loop.reverse else range(length):
        outs = eval_jaxpr(jaxpr, (*fixed, *state, *(_row(x, i) for x in xs)))
        state, ys[i] = outs[:carry], outs[carry:]
    if not length:
        return (*state, *(zeros(_stacked(a, 0)) for a in jaxpr.out_avals[carry:]))
    return (*state, *(_stack(column) for column in zip(*ys, strict=True)))


def _row(x: Value, i: int) -> Value:
    shape = aval_of(x).shape
    rest = [0] * (len(shape) - 1)
    return reshape(slice_rows(x, (i, *rest), (i + 1, *shape[1:])), shape[1:])


def _stack(rows: Sequence[Value]) -> Value:
    return concatenate([reshape(r, (1, *aval_of(r).shape)) for r in rows], 0)


scan_p = Primitive(
    "scan",
    aval=_aval,
    eval=_eval,
    form=_form,
    expand=_expand,
    jvp=_jvp,
    transpose=MaskAware(_transpose),
    batch=_batch,
    linearize=_linearize,
)
