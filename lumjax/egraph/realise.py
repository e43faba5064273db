"""From a grouping to kernels: lower every group, and answer a rejection by storing a term."""

from __future__ import annotations

from dataclasses import dataclass, field

from lumjax.egraph.cost import Machine
from lumjax.egraph.layout import Layout, Members, Names, names
from lumjax.egraph.materialise import Planned, arrange
from lumjax.egraph.plan import Lower, Plan
from lumjax.egraph.stores import check, store_forced
from lumjax.kernel.emit import Reject
from lumjax.kernel.ir import Kernel
from lumjax.kernel.scalar import lower_scalar
from lumjax.kernel.schedule import DEFAULT
from lumjax.kernel.term import Apply, Buffer, Group, Reduction, Root, Term

_PATIENCE = 8  # rejections after which a rejected group's roots stay alone


@dataclass(slots=True)
class Realised:
    """Groups with their kernels, in order, and what happened on the way."""

    planned: Planned
    groups: tuple[Group, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    rejects: list[str] = field(default_factory=list[str])
    fallbacks: list[str] = field(default_factory=list[str])


def realise(planned: Planned, lower: Lower, machine: Machine) -> Realised:
    """Kernels for all groups; a rejected one is split, then gets a store, then falls back."""
    done = Realised(planned)
    made: dict[Group, Kernel] = {}
    forbidden: list[frozenset[str]] = []
    while True:
        groups = done.planned.finished()
        trouble = _first_trouble(groups, lower, made)
        if trouble is None:
            done.groups = groups
            done.kernels = tuple(made[g] for g in groups)
            return done
        k, reject = trouble
        members = done.planned.groups[k]
        first = members[0].buffer.name
        done.rejects.append(f"{', '.join(r.buffer.name for r in members)}: {reject.why}")
        layout = done.planned.layout.copy()
        if len(members) > 1:
            forbidden += _split(names(members), len(done.rejects) > _PATIENCE)
        elif not _store(layout, members, groups[k], reject.term):
            made[groups[k]] = lower_scalar(groups[k].roots[0])
            done.fallbacks.append(first)
            continue
        else:
            forbidden.append(frozenset({first}))
        done.planned = arrange(layout, machine, forbidden)


def _split(together: Names, wholly: bool) -> list[frozenset[str]]:
    """What to forbid of a rejected group: the same group again, or (wholly) any of its roots."""
    return [frozenset({n}) for n in together] if wholly else [frozenset(together)]


def _first_trouble(
    groups: tuple[Group, ...], lower: Lower, made: dict[Group, Kernel]
) -> tuple[int, Reject] | None:
    for k, group in enumerate(groups):
        if group in made:
            continue
        result = lower(group)
        if isinstance(result, Reject):
            return k, result
        made[group] = result
    return None


def _store(layout: Layout, members: Members, group: Group, term: Term) -> bool:
    """Store the term of the lowered group; if that is the root, a reduction below it."""
    original: Term | None = None
    if isinstance(term, (Apply, Reduction)) and term is not group.roots[0].term:
        original = {new: old for old, new in layout.replaced(members).items()}.get(term)
    if original is None or original in layout.holders:
        original = check(layout, members).innermost()
    if original is None:
        return False
    layout.store(original)
    store_forced(layout)
    return True


def kernels_of(plan: Plan, lower: Lower) -> tuple[tuple[Kernel, ...], tuple[str, ...]] | None:
    """A stored plan's kernels and the buffers that fall back; None if a group is now rejected."""
    kernels: list[Kernel] = []
    fallbacks: list[str] = []
    schedules = plan.schedules or (DEFAULT,) * len(plan.groups)
    for group, schedule in zip(plan.groups, schedules, strict=True):
        result = lower(group) if schedule == DEFAULT else lower(group, schedule)
        if isinstance(result, Reject):
            root, *others = group.roots
            if others:
                return None
            result = lower_scalar(root)
            fallbacks.append(root.buffer.name)
        kernels.append(result)
    return tuple(kernels), tuple(fallbacks)


def plan_of(
    realised: Realised, inputs: tuple[Buffer, ...], outputs: tuple[Root, ...], truncated: bool
) -> Plan:
    """The plan of realised groups."""
    names = {r.buffer.name for r in outputs}
    stored = [r.buffer for g in realised.groups for r in g.roots]
    return Plan(
        inputs,
        tuple(r.buffer for r in outputs),
        tuple(b for b in stored if b.name not in names),
        realised.groups,
        realised.planned.cost,
        truncated,
    )
