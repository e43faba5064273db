"""The record of `cond`: one of several jaxprs, chosen by an int32 index, applied to common
operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from lumjax.control.cotangents import backward_of, combined, kind_of, pack, unpack
from lumjax.control.staging import (
    Flags,
    Split,
    as_arrays,
    batch_of,
    check_operands,
    concrete,
    jvp_of,
    merge,
    select_where,
    share_consts,
    split_of,
    spread,
    together,
    zeros,
)
from lumjax.errors import UnsupportedError
from lumjax.grad.reverse import Cotangent, LinearTrace, MaskAware
from lumjax.ops.compare import eq
from lumjax.ops.elementwise import select
from lumjax.ops.layout import batch_first, broadcast_in_dim
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import (
    Effect,
    Jaxpr,
    Linear,
    Primitive,
    Value,
    Var,
    aval_of,
    eval_jaxpr,
    evaluate,
)
from lumjax.trace.form import Choose
from lumjax.trace.stage import stage

Branches: TypeAlias = tuple[Jaxpr, ...]


def branch(index: Value, branches: Branches, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Apply the branch numbered `index`, an int32 scalar within range."""
    return cond_p.bind(index, *operands, branches=branches)


def _union(flags: Sequence[Flags]) -> Flags:
    return tuple(map(any, zip(*flags, strict=True)))


def _aval(
    index: ShapedArray, *operands: ShapedArray, branches: Branches
) -> tuple[ShapedArray, ...]:
    """A result is weak if it is so in every branch."""
    for jaxpr in branches:
        check_operands("cond", jaxpr, operands)
    return _joined(branches)


def _joined(branches: Branches) -> tuple[ShapedArray, ...]:
    columns = zip(*(b.out_avals for b in branches), strict=True)
    return tuple(c[0] if all(a.weak for a in c) else c[0].strip_weak() for c in columns)


def _eval(index: Any, *operands: Value, branches: Branches) -> tuple[Value, ...]:
    return as_arrays(evaluate(branches[int(index)], operands), _joined(branches))


def _jvp(
    primals: Sequence[Value], tangents: Sequence[Value | None], *, branches: Branches
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    nonzero = tuple(t is not None for t in tangents[1:])
    force = _union([jvp_of(b, nonzero).nonzero for b in branches])
    derived = [jvp_of(b, nonzero, force) for b in branches]
    jaxprs, consts = share_consts([(d.jaxpr, d.consts) for d in derived])
    given = [t for t in tangents[1:] if t is not None]
    outs = branch(primals[0], jaxprs, (*consts, *primals[1:], *given))
    count = len(branches[0].outputs)
    return outs[:count], spread(force, outs[count:])


# ---- linearize: one cond of the known parts, which also gives residuals, and one of the linear
# parts


@record(eq=False)
class _Cut:
    """The branches cut at their linear operands, with common outputs and common residual slots.

    known:    (*consts, *known operands) -> (*outs where not `outputs[k]`, *slots)
    linear:   (*slots, *(consts and known operands at `forwarded`), *linear operands) -> (*outs
    where `outputs[k]`)
    """

    known: Branches
    consts: tuple[Value, ...]
    linear: Branches
    outputs: Flags
    forwarded: tuple[int, ...]


def _cut(branches: Branches, linear: Flags) -> _Cut:
    force = _union([split_of(b, linear).outputs for b in branches])
    cuts = [split_of(b, linear, force) for b in branches]
    slots, places = _slots(cuts)
    known, consts = share_consts(
        [(_fill_slots(c, slots, p), c.consts) for c, p in zip(cuts, places, strict=True)]
    )
    order = {id(c): k for k, c in enumerate(consts)}
    sources = [
        [
            None if s is None
            else order[id(cut.consts[s])] if s < len(cut.consts)
            else s - len(cut.consts) + len(consts)
            for s in cut.sources
        ]
        for cut in cuts
    ]  # fmt: skip
    forwarded = tuple(sorted({s for row in sources for s in row if s is not None}))
    avals = [known[0].inputs[k].aval for k in forwarded]
    parts = tuple(
        _read_slots(cut.linear, slots, place, dict(zip(forwarded, avals, strict=True)), row)
        for cut, place, row in zip(cuts, places, sources, strict=True)
    )
    return _Cut(known, consts, parts, force, forwarded)


def _slots(cuts: Sequence[Split]) -> tuple[list[ShapedArray], list[list[int]]]:
    """Slots for the residuals of whichever branch runs, and the slots that each branch uses."""
    slots: list[ShapedArray] = []
    places: list[list[int]] = []
    for cut in cuts:
        free = list(range(len(slots)))
        place: list[int] = []
        for atom in cut.known.outputs[cut.known_outs :]:
            aval = atom.aval.strip_weak()
            found = next((k for k in free if slots[k] == aval), len(slots))
            if found == len(slots):
                slots.append(aval)
            else:
                free.remove(found)
            place.append(found)
        places.append(place)
    return slots, places


def _fill_slots(cut: Split, slots: Sequence[ShapedArray], place: Sequence[int]) -> Jaxpr:
    """The known part with its residuals in their slots and zeros in the others."""

    def flat(*args: Value) -> list[Value]:
        outs = eval_jaxpr(cut.known, args)
        filled = dict(zip(place, outs[cut.known_outs :], strict=True))
        rest = [filled[k] if k in filled else zeros(a) for k, a in enumerate(slots)]
        return [*outs[: cut.known_outs], *rest]

    staged = stage(flat, cut.known.in_avals)
    assert not staged.consts, "zeros are made by equations"
    return replace(staged.jaxpr, consts=0)


def _read_slots(
    linear: Jaxpr,
    slots: Sequence[ShapedArray],
    place: Sequence[int],
    forwarded: Mapping[int, ShapedArray],
    sources: Sequence[int | None],
) -> Jaxpr:
    """The linear part as a function of all the slots and all the forwarded operands."""
    slot_vars = [Var(a) for a in slots]
    forwarded_vars = {k: Var(a) for k, a in forwarded.items()}
    computed = iter(place)
    for var, source in zip(linear.inputs, sources, strict=False):
        if source is None:
            slot_vars[next(computed)] = var
        else:
            forwarded_vars[source] = var
    inputs = (*slot_vars, *forwarded_vars.values(), *linear.inputs[len(sources) :])
    return replace(linear, inputs=inputs)


def _linearize(trace: LinearTrace, args: Sequence[Value], *, branches: Branches) -> Sequence[Value]:
    index, *operands = args
    linear = tuple(map(trace.is_linear, operands))
    cut = together(
        branches, ("cut", linear), lambda: _cut(branches, linear), lambda c: concrete(c.consts)
    )
    known_args = (*cut.consts, *select_where(linear, operands, keep=False))
    outs = branch(index, cut.known, known_args)
    count = len(cut.outputs) - sum(cut.outputs)
    forwarded = [known_args[k] for k in cut.forwarded]
    tangents = trace.record(
        cond_p,
        (index, *outs[count:], *forwarded, *select_where(linear, operands)),
        {"branches": cut.linear},
    )
    return merge(cut.outputs, tangents, outs[:count])


def _transpose(
    cts: Sequence[Cotangent | None], inputs: Sequence[Any], *, branches: Branches
) -> Sequence[Cotangent | None]:
    index, *operands = inputs
    linear = tuple(isinstance(x, Linear) for x in operands)
    kinds = tuple(map(kind_of, cts))
    found = [backward_of(b, linear, kinds).kinds for b in branches]
    want = tuple(map(combined, zip(*found, strict=True)))
    parts = [backward_of(b, linear, kinds, want) for b in branches]
    jaxprs, consts = share_consts([(p.jaxpr, p.consts) for p in parts])
    known = select_where(linear, operands, keep=False)
    flat = pack(cts, kinds, branches[0].out_avals)
    results = unpack(branch(index, jaxprs, (*consts, *known, *flat)), want)
    return [None, *(r for r in spread(linear, results))]


# ---- batch


def _batch(
    axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None], *, branches: Branches
) -> tuple[Sequence[Value], Sequence[int | None]]:
    mapped = tuple(d is not None for d in dims[1:])
    moved = [
        a if d is None else batch_first(a, d, axis.size) for a, d in zip(args, dims, strict=True)
    ]
    if dims[0] is not None:
        return _batch_select(axis, moved, mapped, branches)
    force = _union([batch_of(b, axis, mapped).mapped for b in branches])
    derived = [batch_of(b, axis, mapped, force) for b in branches]
    jaxprs, consts = share_consts([(d.jaxpr, d.consts) for d in derived])
    outs = branch(moved[0], jaxprs, (*consts, *moved[1:]))
    return outs, [0 if m else None for m in force]


def _batch_select(
    axis: MappedAxis, args: Sequence[Value], mapped: Flags, branches: Branches
) -> tuple[Sequence[Value], Sequence[int | None]]:
    """A mapped index: every branch runs for every lane, and each lane selects."""
    index, *operands = args
    if any(b.effect is Effect.ORDERED for b in branches):
        raise UnsupportedError(
            operation="vmap of cond",
            required="branches without ordered effects where the predicate is mapped",
            got="an ordered effect",
            fix="use ordered=False, or loop with lax.map in place of vmap",
        )
    force = (True,) * len(branches[0].outputs)
    columns: list[tuple[Value, ...]] = []
    for b in branches:
        derived = batch_of(b, axis, mapped, force)
        columns.append(tuple(eval_jaxpr(derived.jaxpr, (*derived.consts, *operands))))
    outs = list(columns[0])
    for number, column in enumerate(columns[1:], start=1):
        chosen = eq(index, np.int32(number))
        outs = [select(_like(chosen, new), new, old) for new, old in zip(column, outs, strict=True)]
    return outs, [0] * len(outs)


def _like(lanes: Value, x: Value) -> Value:
    """A predicate per lane at the shape of `x`, whose first axis counts lanes."""
    return broadcast_in_dim(lanes, aval_of(x).shape, (0,))


cond_p = Primitive(
    "cond",
    aval=_aval,
    eval=_eval,
    form=lambda *avals, branches: Choose(branches),
    jvp=_jvp,
    transpose=MaskAware(_transpose),
    batch=_batch,
    linearize=_linearize,
)
