"""Windows of donated arguments changed where they lie.

`patched` marks the updates of a program that may be done in the memory of an argument that the
caller gives away: the argument is not read afterwards but through the result. What the compiler
makes of the program may still read it later, or at the same time: `refused` tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lumjax.ops.barrier import barrier_p
from lumjax.ops.dynamic import dynamic_update_slice_p, patch_p
from lumjax.stages import Native, Stage
from lumjax.trace.core import Atom, Eqn, Jaxpr, Var
from lumjax.trace.form import Patch


def patched(jaxpr: Jaxpr, donated: Iterable[int], kept: frozenset[Var] = frozenset()) -> Jaxpr:
    """The program with updates of donated inputs (by number) done in place, but those that make
    what is `kept`.
    """
    owned = {jaxpr.inputs[k] for k in donated}
    readers: dict[Var, list[int]] = {}
    above: list[frozenset[int]] = []  # the equations that each depends on
    maker = {v: k for k, e in enumerate(jaxpr.eqns) for v in e.outputs}
    for k, eqn in enumerate(jaxpr.eqns):
        made = {maker[a] for a in eqn.inputs if isinstance(a, Var) and a in maker}
        above.append(frozenset(made).union(*(above[m] for m in made)) if owned else frozenset())
        for a in eqn.inputs:
            if isinstance(a, Var):
                readers.setdefault(a, []).append(k)
    returned = {a for a in jaxpr.outputs if isinstance(a, Var)}
    eqns = list(jaxpr.eqns)
    for k, eqn in enumerate(eqns):
        x, out = eqn.inputs[0] if eqn.inputs else None, eqn.outputs[0] if eqn.outputs else None
        if eqn.prim is not dynamic_update_slice_p or x not in owned or x in returned:
            continue
        others = [m for m in readers[x] if m != k]
        twice = eqn.inputs.count(x) > 1 or out in kept
        if out is None or twice or not all(m in above[k] for m in others):
            continue
        owned.add(out)
        eqns[k] = Eqn(patch_p, eqn.inputs, eqn.outputs, eqn.params, eqn.source)
    return Jaxpr(jaxpr.inputs, tuple(eqns), jaxpr.outputs, jaxpr.consts)


def is_patch(stage: Stage) -> bool:
    """Whether a stage updates in place."""
    return isinstance(stage, Native) and any(isinstance(f, Patch) for f in stage.region.forms)


def refused(stages: Sequence[Stage], jaxpr: Jaxpr) -> frozenset[Var]:
    """Results of updates in place after which, in the order in which the program runs, something
    reads what was there before, under its own name or a barrier's.
    """
    same: dict[Atom, Atom] = {}
    for eqn in jaxpr.eqns:
        if eqn.prim is barrier_p:
            same.update({v: same.get(a, a) for v, a in zip(eqn.outputs, eqn.inputs, strict=True)})
    gone: dict[Atom, Var] = {}  # an array that was overwritten, by the result that overwrote it
    wrong: set[Var] = set()
    for stage in stages:
        eqns = stage.eqns
        reads = (
            stage.region.inputs
            if isinstance(stage, Native)
            else [a for e in eqns for a in e.inputs]
        )
        wrong.update(gone[b] for a in reads if (b := same.get(a, a)) in gone)
        if is_patch(stage):
            first = eqns[0].inputs[0]
            gone[same.get(first, first)] = eqns[0].outputs[0]
    wrong.update(gone[b] for a in jaxpr.outputs if (b := same.get(a, a)) in gone)
    return frozenset(wrong)
