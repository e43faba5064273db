"""Programs that hold less: values that wait long for their next use are computed again for it.

At the step that holds most, some values are alive only because something much later reads them
(what a forward pass leaves for the backward pass). For the cheapest of them per byte, the equations
that make them are repeated right before that later use. Nothing is repeated from further back than
values that are there at that time anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from lumjax.kernel.region import volume
from lumjax.layout import Layout
from lumjax.ops.barrier import barrier_p
from lumjax.record import record
from lumjax.stages import Native
from lumjax.trace.core import Atom, Effect, Eqn, Jaxpr, Var
from lumjax.trace.form import Contract, Form, Single

CONE = 48  # equations that are repeated for one value
LEAST = 1 << 10  # bytes: smaller values are not worth it
_FIRST = 1 << 40
_ids = count(_FIRST)  # barriers of their own: nothing merges what is repeated


def smaller(jaxpr: Jaxpr, layout: Layout, excess: int) -> Jaxpr | None:
    """The program with enough values computed again to save `excess` bytes at the peak, as far as
    can be told before it is compiled; None if there is nothing to compute again.
    """
    return _Program(jaxpr, layout).without(excess)


def repeated(jaxpr: Jaxpr) -> int:
    """How many values of a program are computed again."""
    waits = (e for e in jaxpr.eqns if e.prim is barrier_p)
    return sum(e.params["id"] >= _FIRST for e in waits)


@record
class _Choice:
    """A value to compute again: the equations, by number, and before which one they go."""

    var: Var
    cone: tuple[int, ...]
    before: int
    trigger: Var
    price: float


class _Program:
    def __init__(self, jaxpr: Jaxpr, layout: Layout) -> None:
        self.layout = layout
        self.jaxpr, self.stage = _ordered(jaxpr, _stages_of(layout))
        self.maker = {v: k for k, e in enumerate(self.jaxpr.eqns) for v in e.outputs}
        self.readers: dict[Var, list[int]] = {}
        self.at: dict[int, list[int]] = {}  # the equations of each stage
        for k, eqn in enumerate(self.jaxpr.eqns):
            self.at.setdefault(self.stage[k], []).append(k)
            for v in _inputs(eqn):
                self.readers.setdefault(v, []).append(k)
        self.peak = _peak_stage(layout)
        self.results = {a for a in jaxpr.outputs if isinstance(a, Var)}
        self.dropped: set[Var] = set()
        self._forms: dict[int, Form] = {}

    def without(self, excess: int) -> Jaxpr | None:
        """Choose values, cheapest per byte first, until enough is saved."""
        waiting = [v for v in self.layout.users() if self._waits(v)]
        chosen: list[_Choice] = []
        saved = 0
        while saved < excess and waiting:
            offers = [c for v in waiting if (c := self._choice(v)) is not None]
            if not offers:
                break
            best = min(
                offers, key=lambda c: (c.price / self.layout.bytes(c.var), self.maker[c.var])
            )
            chosen.append(best)
            self.dropped.add(best.var)
            waiting.remove(best.var)
            saved += self.layout.bytes(best.var)
        return self._rewritten(chosen) if chosen else None

    def _waits(self, v: Var) -> bool:
        """Whether a value is alive at the peak, and not used there."""
        if v in self.results or v not in self.maker or self.layout.bytes(v) < LEAST:
            return False
        stages = self.layout.users()[v]
        return min(stages) < self.peak < max(stages) and self.peak not in stages

    def _late(self, v: Var) -> list[int]:
        """The equations after the peak that read a value."""
        return [k for k in self.readers.get(v, ()) if self.stage[k] > self.peak]

    def _choice(self, v: Var) -> _Choice | None:
        late = self._late(v)
        if not late:
            return None
        before = min(late)
        there = min(self.stage[k] for k in late)
        cone = self._cone(v, there)
        if cone is None:
            return None
        trigger = self._trigger(v, before, there)
        if trigger is None:
            return None
        return _Choice(v, cone, before, trigger, sum(self._work(k) for k in cone))

    def _trigger(self, v: Var, before: int, there: int) -> Var | None:
        """What tells that it is time: what the late reader's stage waits for since the peak."""
        known = (u for k in self.at[there] for u in _inputs(self.jaxpr.eqns[k]) if u is not v)
        made = {self.maker[u]: u for u in known if self.maker.get(u, before) < before}
        recent = [k for k in made if self.peak <= self.stage[k] < there]
        return made[max(recent)] if recent else None

    def _cone(self, v: Var, there: int) -> tuple[int, ...] | None:
        """What makes the value from values that are alive at stage `there` anyway."""
        found: set[int] = set()
        stack = [v]
        while stack:
            u = stack.pop()
            if u is not v and self._alive(u, there):
                continue
            k = self.maker[u]
            eqn = self.jaxpr.eqns[k]
            if eqn.effect is not Effect.NONE or isinstance(self._form(k), Single):
                return None
            if k not in found:
                found.add(k)
                stack += _inputs(eqn)
            if len(found) > CONE:
                return None
        return tuple(sorted(found))

    def _alive(self, v: Var, there: int) -> bool:
        """Whether a value is in memory at a stage: an argument, a result, or still to be read."""
        if v not in self.maker or v in self.results:
            return True
        if v in self.dropped:
            return False
        stages = self.layout.users().get(v)
        return stages is not None and max(stages) >= there

    def _work(self, k: int) -> float:
        """Operations of an equation, about."""
        eqn = self.jaxpr.eqns[k]
        points = sum(volume(v.aval.shape) for v in eqn.outputs)
        if isinstance(self._form(k), Contract):
            sizes = [volume(a.aval.shape) for a in eqn.inputs]
            return 2.0 * (points * sizes[0] * sizes[1]) ** 0.5 / 8  # tiles run fast
        return float(max(points, *(volume(a.aval.shape) for a in eqn.inputs), 1))

    def _form(self, k: int) -> Form:
        if k not in self._forms:
            eqn = self.jaxpr.eqns[k]
            self._forms[k] = eqn.prim.form(*(a.aval for a in eqn.inputs), **eqn.params)
        return self._forms[k]

    # ---- the new program

    def _rewritten(self, chosen: Sequence[_Choice]) -> Jaxpr:
        at: dict[int, list[_Choice]] = {}
        for choice in chosen:
            at.setdefault(choice.before, []).append(choice)
        renamed: dict[tuple[int, Var], Var] = {}  # (reader, value) -> the value computed again
        eqns: list[Eqn] = []
        for k, eqn in enumerate(self.jaxpr.eqns):
            for choice in sorted(at.get(k, ()), key=lambda c: self.maker[c.var]):
                added, again = self._repeated(choice, k, renamed)
                eqns += added
                for reader in self._late(choice.var):
                    renamed[reader, choice.var] = again
            inputs = tuple(renamed.get((k, a), a) if isinstance(a, Var) else a for a in eqn.inputs)
            eqns.append(Eqn(eqn.prim, inputs, eqn.outputs, eqn.params, eqn.source))
        return Jaxpr(self.jaxpr.inputs, tuple(eqns), self.jaxpr.outputs, self.jaxpr.consts)

    def _repeated(
        self, choice: _Choice, reader: int, renamed: Mapping[tuple[int, Var], Var]
    ) -> tuple[list[Eqn], Var]:
        """The equations of a cone once more, behind a barrier that waits for the trigger."""
        cone = [self.jaxpr.eqns[k] for k in choice.cone]
        own = {v for e in cone for v in e.outputs}
        leaves = list(dict.fromkeys(v for e in cone for v in _inputs(e) if v not in own))
        given = [renamed.get((reader, v), v) for v in leaves]
        trigger = renamed.get((reader, choice.trigger), choice.trigger)
        behind = tuple(Var(v.aval) for v in (*leaves, choice.trigger))
        wait = Eqn(barrier_p, (*given, trigger), behind, {"id": next(_ids)}, None)
        new: dict[Var, Var] = dict(zip(leaves, behind, strict=False))
        eqns = [wait]
        for e in cone:
            outputs = tuple(Var(v.aval) for v in e.outputs)
            inputs: tuple[Atom, ...] = tuple(new[a] if isinstance(a, Var) else a for a in e.inputs)
            eqns.append(Eqn(e.prim, inputs, outputs, e.params, e.source))
            new.update(zip(e.outputs, outputs, strict=True))
        return eqns, new[choice.var]


def _inputs(eqn: Eqn) -> list[Var]:
    return [a for a in eqn.inputs if isinstance(a, Var)]


def _stages_of(layout: Layout) -> dict[Eqn, int]:
    """The stage of each equation, the first of several."""
    found: dict[Eqn, int] = {}
    for n, stage in enumerate(layout.stages):
        for e in stage.eqns:
            found.setdefault(e, n)
    return found


def _ordered(jaxpr: Jaxpr, stages: Mapping[Eqn, int]) -> tuple[Jaxpr, list[int]]:
    """The program in the order of its stages, and the stage of each equation.

    What a region repeats for itself counts as made where it is first read.
    """
    first: dict[Var, int] = {}  # the stage that reads a value first
    last = max(stages.values(), default=0)
    stage: dict[int, int] = {}
    for k in reversed(range(len(jaxpr.eqns))):
        eqn = jaxpr.eqns[k]
        own = stages.get(eqn)
        stage[k] = (
            min((first.get(v, last) for v in eqn.outputs), default=last) if own is None else own
        )
        for v in _inputs(eqn):
            first[v] = min(first.get(v, last), stage[k])
    order = sorted(stage, key=lambda k: (stage[k], k))
    eqns = tuple(jaxpr.eqns[k] for k in order)
    return Jaxpr(jaxpr.inputs, eqns, jaxpr.outputs, jaxpr.consts), [stage[k] for k in order]


def _peak_stage(layout: Layout) -> int:
    """The stage at which most is held."""
    sizes = layout.timeline().sizes()
    if not sizes:
        return 0
    step = max(range(len(sizes)), key=lambda k: sizes[k])
    for n, stage in enumerate(layout.stages):
        step -= len(stage.kernels) if isinstance(stage, Native) else 1
        if step < 0:
            return n
    return len(layout.stages) - 1
