"""What the derivatives of `scan` run: bodies cut at linear inputs, and bodies run backwards."""

from __future__ import annotations

from dataclasses import replace

from lumjax.control.cotangents import (
    Kinds,
    backward_of,
    pack,
    packed_avals,
    unpack,
)
from lumjax.control.staging import (
    Flags,
    concrete,
    remembered,
    select_where,
    split_of,
)
from lumjax.grad.mask import either
from lumjax.grad.reverse import Cotangent
from lumjax.ops.elementwise import add
from lumjax.record import record
from lumjax.trace.core import Atom, Effect, Jaxpr, Literal, Value, Var, eval_jaxpr
from lumjax.trace.simplify import dce
from lumjax.trace.stage import stage


def linear_flags(jaxpr: Jaxpr, linear: Flags, consts: int, carry: int) -> tuple[Flags, Flags]:
    """Which inputs and outputs of a body depend on the given linear operands once the carry has
    gone round.
    """
    flags = list(linear)
    outputs = len(jaxpr.outputs)
    while True:
        state = flags[consts : consts + carry]
        found = split_of(jaxpr, tuple(flags), (*state, *[False] * (outputs - carry))).outputs
        grown = [a or b for a, b in zip(state, found[:carry], strict=True)]
        if grown == state:
            return tuple(flags), found
        flags[consts : consts + carry] = grown


@record(eq=False)
class CutBody:
    """A body cut at its linear inputs. `flags` and `outputs` tell what is linear.

    known:     (*consts, *known fixed | known carry | known xs) -> (known carry | known ys, stacked
    residuals)
    invariant: (*consts, *known fixed) -> the residuals that are the same in every step, computed
    once
    linear:    (fixed residuals, linear fixed | linear carry | stacked residuals, linear xs) ->
    linear outs
    fixed:     per fixed residual its position among known's fixed inputs, or None for the next
    invariant
    stacked:   per stacked residual its position among the known xs, or None for the next one that
    known stacks
    """

    known: Jaxpr
    consts: tuple[Value, ...]
    invariant: Jaxpr
    linear: Jaxpr
    flags: Flags
    outputs: Flags
    fixed: tuple[int | None, ...]
    stacked: tuple[int | None, ...]

    @property
    def trivial(self) -> bool:
        """Whether the known part has nothing to do."""
        return not self.known.outputs and self.known.effect is Effect.NONE


def cut_body(jaxpr: Jaxpr, linear: Flags, consts: int, carry: int) -> CutBody:
    """Cut a body, remembered. Residuals that do not change or that are rows of operands are not
    stacked.
    """
    return remembered(
        jaxpr,
        ("scan cut", linear, consts, carry),
        lambda: _cut_body(jaxpr, linear, consts, carry),
        lambda c: concrete(c.consts),
    )


def _cut_body(jaxpr: Jaxpr, linear: Flags, consts: int, carry: int) -> CutBody:
    flags, outputs = linear_flags(jaxpr, linear, consts, carry)
    part = split_of(jaxpr, flags, outputs)
    known = part.known
    fixed_count = len(part.consts) + flags[:consts].count(False)
    carry_count = flags[consts : consts + carry].count(False)
    unchanging = _unchanging(known, fixed_count)
    computed = iter(known.outputs[part.known_outs :])
    fixed_vars: list[Var] = []
    fixed: list[int | None] = []
    stacked_vars: list[Var] = []
    stacked: list[int | None] = []
    invariants: list[Atom] = []
    stacks: list[Atom] = []
    for var, source in zip(part.linear.inputs, part.sources, strict=False):
        atom = next(computed) if source is None else known.inputs[source]
        if source is not None and source < fixed_count:
            fixed_vars.append(var)
            fixed.append(source)
        elif source is None and (isinstance(atom, Literal) or atom in unchanging):
            fixed_vars.append(var)
            fixed.append(None)
            invariants.append(atom)
        elif source is not None and source >= fixed_count + carry_count:
            stacked_vars.append(var)
            stacked.append(source - fixed_count - carry_count)
        else:
            stacked_vars.append(var)
            stacked.append(None)
            stacks.append(atom)
    inputs = part.linear.inputs[len(part.sources) :]
    edge = sum(flags[: consts + carry])
    return CutBody(
        known=dce(replace(known, outputs=(*known.outputs[: part.known_outs], *stacks))),
        consts=part.consts,
        invariant=dce(
            Jaxpr(
                known.inputs[:fixed_count],
                tuple(e for e in known.eqns if unchanging.issuperset(e.outputs) and e.outputs),
                tuple(invariants),
            )
        ),
        linear=replace(
            part.linear, inputs=(*fixed_vars, *inputs[:edge], *stacked_vars, *inputs[edge:])
        ),
        flags=flags,
        outputs=outputs,
        fixed=tuple(fixed),
        stacked=tuple(stacked),
    )


def _unchanging(jaxpr: Jaxpr, fixed: int) -> set[Atom]:
    """The variables that depend on nothing but the first `fixed` inputs, and that no effect
    computes.
    """
    found: set[Atom] = set(jaxpr.inputs[:fixed])
    for eqn in jaxpr.eqns:
        if eqn.effect is Effect.NONE and all(
            isinstance(a, Literal) or a in found for a in eqn.inputs
        ):
            found.update(eqn.outputs)
    return found


@record(eq=False)
class BackwardBody:
    """A body run backwards, itself a body of scan. Cotangents are packed in the kinds given here.

    jaxpr: (*consts, *known fixed | sums of fixed cts, carry cts | ys cts, known xs) -> (sums, carry
    cts | xs cts)
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    fixed: Kinds
    carry: Kinds
    xs: Kinds


def backward_body(
    jaxpr: Jaxpr, linear: Flags, carry_cts: Kinds, y_cts: Kinds, consts: int
) -> BackwardBody:
    """The backward body of a body whose whole carry is linear, remembered."""
    return remembered(
        jaxpr,
        ("scan backward", linear, carry_cts, y_cts, consts),
        lambda: _backward_body(jaxpr, linear, carry_cts, y_cts, consts),
        lambda b: concrete(b.consts),
    )


def _backward_body(
    jaxpr: Jaxpr, linear: Flags, carry_cts: Kinds, y_cts: Kinds, consts: int
) -> BackwardBody:
    carry = len(carry_cts)
    fixed_count = sum(linear[:consts])
    while True:
        found = backward_of(jaxpr, linear, (*carry_cts, *y_cts)).kinds
        grown = tuple(map(max, carry_cts, found[fixed_count : fixed_count + carry]))
        if grown == carry_cts:
            break
        carry_cts = grown
    fixed, xs = found[:fixed_count], found[fixed_count + carry :]
    step = backward_of(jaxpr, linear, (*carry_cts, *y_cts), (*fixed, *carry_cts, *xs))
    avals = jaxpr.in_avals
    known_fixed = select_where(linear[:consts], avals[:consts], keep=False)
    known_xs = select_where(linear[consts + carry :], avals[consts + carry :], keep=False)
    fixed_avals = select_where(linear[:consts], avals[:consts])
    groups = [
        step.jaxpr.in_avals[: len(step.consts)],
        known_fixed,
        packed_avals(fixed, fixed_avals),
        packed_avals(carry_cts, avals[consts : consts + carry]),
        packed_avals(y_cts, jaxpr.out_avals[carry:]),
        known_xs,
    ]

    def flat(*args: Value) -> list[Value]:
        rest = iter(args)
        own, fixed_values, sums, carries, ys, x_values = (
            [next(rest) for _ in group] for group in groups
        )
        outs = eval_jaxpr(step.jaxpr, (*own, *fixed_values, *x_values, *carries, *ys))
        cts = unpack(outs[: len(sums)], fixed)
        totals = [_plus(a, b) for a, b in zip(unpack(sums, fixed), cts, strict=True)]
        return [*pack(totals, fixed, fixed_avals), *outs[len(sums) :]]

    staged = stage(flat, [a for group in groups for a in group])
    assert not staged.consts, "the consts of the backward program are arguments here"
    return BackwardBody(replace(staged.jaxpr, consts=0), step.consts, fixed, carry_cts, xs)


def _plus(total: Cotangent | None, ct: Cotangent | None) -> Cotangent | None:
    if total is None or ct is None:
        return None
    mask = None if ct.mask is None or total.mask is None else either(total.mask, ct.mask)
    return Cotangent(add(total.value, ct.value), mask)
