"""Every step of a program made ready: regions as checked kernels, other equations as they are.

Regions are planned once per process and settings. In the background, a region that no earlier
process searched gets the plan of the program as traced, and a search for the next process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from lumjax.background import worker
from lumjax.calibration import calibrated
from lumjax.config import config
from lumjax.cpu.math import supported
from lumjax.cpu.runtime import Copy, Inner
from lumjax.egraph.cache import load_plan, plan_key, save_plan
from lumjax.egraph.plan import Budget, Found, Report
from lumjax.egraph.scalar import Operations
from lumjax.egraph.search import budget_of_config, search, stored
from lumjax.egraph.text import report_from
from lumjax.fixed import compiled_alone, with_literals, with_uniforms
from lumjax.kernel.region import Alone, Region, cut
from lumjax.native import Checked, Unsupported, all_checked, begin_checked
from lumjax.profile import profiled
from lumjax.ready import is_kept, keep, ready
from lumjax.record import record
from lumjax.target import Target
from lumjax.trace.core import Atom, Eqn, Jaxpr, Var, sub_jaxprs
from lumjax.trace.form import Barrier, Move, Nest, Opaque, Patch, Whole
from lumjax.trace.simplify import uncollected
from lumjax.workers import compile_together, count_for

# Plans a region: the default is a search under the settings in force.
Planner: TypeAlias = Callable[[Region, Target], Found]

_found: dict[tuple[Any, ...], tuple[Found, list[Checked]]] = {}
_lock = threading.RLock()


@record
class Evaluated:
    """An equation that runs through its primitive's `eval`, and why."""

    eqn: Eqn
    why: str

    @property
    def eqns(self) -> tuple[Eqn, ...]:
        """What it computes."""
        return (self.eqn,)

    @property
    def outputs(self) -> tuple[Var, ...]:
        """What it makes."""
        return self.eqn.outputs


@record
class Native:
    """A region's kernels, its equations and how the plan was found."""

    region: Region
    found: Found
    kernels: tuple[Checked, ...]

    @property
    def eqns(self) -> tuple[Eqn, ...]:
        """What it computes."""
        return self.region.eqns

    @property
    def outputs(self) -> tuple[Var, ...]:
        """What it makes."""
        return self.region.outputs


@record(eq=False)
class Inside:
    """A program as a part of another one's native call. Places are numbered in a table of its own.

    `fixed` are places of sizes and constants, with their values or the arrays whose addresses they
    hold; `arena` places of what only kernels see, with offsets. `copies[k]` makes output k where no
    kernel writes it, because it is an input (number `passed[k]`), a constant or another output.
    `stages` are all compiled.
    """

    stages: tuple[Stage, ...]
    places: int
    fixed: tuple[tuple[int, int | np.ndarray[Any, Any]], ...]
    arena: tuple[tuple[int, int], ...]
    arena_bytes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    passed: tuple[int | None, ...]
    copies: tuple[Copy | None, ...]
    steps: Inner

    @property
    def seconds(self) -> float:
        """One run, by the cost model."""
        return sum(s.found.plan.cost for s in self.stages if isinstance(s, Native))


@record(eq=False)
class Nested:
    """A loop or a choice that runs within a native call: its body and test, or its branches."""

    eqn: Eqn
    form: Nest
    programs: tuple[Inside, ...]

    @property
    def eqns(self) -> tuple[Eqn, ...]:
        """What it computes."""
        return (self.eqn,)

    @property
    def outputs(self) -> tuple[Var, ...]:
        """What it makes."""
        return self.eqn.outputs


Stage: TypeAlias = Native | Nested | Evaluated
# Prepares the sub-programs of a loop or choice, or says why they can't be part of a native call.
Nester: TypeAlias = "Callable[[Nest], tuple[Inside, ...] | str]"


@uncollected
def stages_of(
    jaxpr: Jaxpr, target: Target, nester: Nester, planner: Planner | None = None
) -> tuple[list[Stage], dict[Var, Atom]]:
    """Every step compiled, and the variables that barriers rename."""
    stages: list[Stage] = []
    renamed: dict[Var, Atom] = {}
    steps = cut(_seen_through(with_uniforms(with_literals(jaxpr)), nester), native=supported)
    if planner is None:
        _ahead([s for s in steps if isinstance(s, Region)], target)
    for step in steps:
        if isinstance(step, Alone):
            if isinstance(step.form, Barrier):
                for out, atom in zip(step.eqn.outputs, step.eqn.inputs, strict=True):
                    renamed[out] = renamed.get(atom, atom) if isinstance(atom, Var) else atom
            elif isinstance(step.form, Opaque):
                stages.append(Evaluated(step.eqn, step.form.why))
            elif isinstance(step.form, Whole):
                stages.append(_whole(step, target))
                if isinstance(step.form, Patch) and isinstance(stages[-1], Native):
                    renamed[step.eqn.outputs[0]] = step.eqn.inputs[0]
            else:
                programs = nester(step.form)
                if isinstance(programs, str):
                    stages.append(Evaluated(step.eqn, programs))
                else:
                    stages.append(Nested(step.eqn, step.form, programs))
            continue
        try:
            if planner is None:
                found, kernels = _compiled(step, target)
            else:
                found, kernels = _checked(planner(step, target), target)
        except Unsupported as e:
            stages += [Evaluated(eqn, str(e)) for eqn in step.eqns]
            continue
        stages.append(Native(step, found, tuple(kernels)))
    return stages, renamed


def _whole(step: Alone, target: Target) -> Native | Evaluated:
    """An equation that is a kernel of its own."""
    try:
        return Native(*compiled_alone(step, target))
    except Unsupported as e:
        return Evaluated(step.eqn, str(e))


def _seen_through(jaxpr: Jaxpr, nester: Nester) -> Jaxpr:
    """The program whose loops and choices in native calls read what their operands are reshaped
    from: they are given addresses, where the elements lie in the order that they want.
    """
    maker: dict[Atom, Eqn] = {e.outputs[0]: e for e in jaxpr.eqns if len(e.outputs) == 1}
    eqns = list(jaxpr.eqns)
    for k, eqn in enumerate(eqns):
        if not any(sub_jaxprs(eqn.params)):
            continue
        atoms = tuple(_unshaped(a, maker) for a in eqn.inputs)
        if atoms != eqn.inputs:
            form = eqn.prim.form(*(a.aval for a in eqn.inputs), **eqn.params)
            if isinstance(form, Nest) and not isinstance(nester(form), str):
                eqns[k] = replace(eqn, inputs=atoms)
    return replace(jaxpr, eqns=tuple(eqns))


def _unshaped(atom: Atom, maker: Mapping[Atom, Eqn]) -> Atom:
    """What holds the atom's elements in their order, under another shape perhaps."""
    while (eqn := maker.get(atom)) is not None and len(eqn.inputs) == 1:
        (source,) = eqn.inputs
        form = eqn.prim.form(source.aval, **eqn.params)
        if not isinstance(form, Move) or not form.maps[0].is_reshape(source.aval.shape):
            break
        atom = source
    return atom


def _key(region: Region, target: Target) -> tuple[Any, ...]:
    return region.key, target.key, config.fast_math, config.compiled_key()


def _compiled(region: Region, target: Target) -> tuple[Found, list[Checked]]:
    """The region's plan and kernels; equal regions share them."""
    key = _key(region, target)
    with _lock:
        known = _found.get(key)
        if known is None:
            known = _found[key] = _planned(region, target, budget_of_config())
    return known


def _ahead(regions: Sequence[Region], target: Target) -> None:
    """Compile what no process has compiled yet: by several processes where that is sooner done."""
    budget = budget_of_config()
    if budget.profile or (config.search_background and budget.evaluations):
        return  # measuring wants the machine for itself; nobody waits for a search
    with _lock:
        fresh = {r.key: r for r in regions if _key(r, target) not in _found}
        for region in list(fresh.values()):
            kept = _kept(region, target, budget)
            if kept is not None:
                _found[_key(region, target)] = kept
                del fresh[region.key]
        count = count_for(list(fresh.values()))
        if count == 1:
            _overlapped(list(fresh.values()), target, budget)
            return

        def here(region: Region) -> None:
            with suppress(Unsupported):  # said again when its turn comes
                _found[_key(region, target)] = _searched(region, target, budget)

        answers = compile_together(list(fresh.values()), count, target, here)
        for key, answer in answers.items():
            kept = None if answer is None else _kept(fresh[key], target, budget)
            if kept is not None:
                report = report_from(answer)
                _found[_key(fresh[key], target)] = replace(kept[0], report=report), kept[1]


def _overlapped(regions: Sequence[Region], target: Target, budget: Budget) -> None:
    """Search the regions one by one while LLVM, in a thread of its own, compiles what was found."""
    ends: list[tuple[Region, Found, Callable[[], list[Checked]]]] = []
    with _Thread(max_workers=1, thread_name_prefix="lumjax-llvm") as thread:
        for region in regions:
            with suppress(Unsupported):  # said again when its turn comes
                found = search(region, target, budget)
                groups = found.plan.groups
                ends.append((region, found, begin_checked(found.kernels, groups, target, thread)))
        for region, found, end in ends:
            with suppress(Unsupported):
                _found[_key(region, target)] = _left(region, target, budget, found, end())


class _Thread(ThreadPoolExecutor):
    """What was not begun when an error ends the block is not made."""

    def __exit__(self, *error: object) -> None:
        self.shutdown(cancel_futures=True)


def leave(region: Region, target: Target) -> Report | None:
    """Compile a region for another process, and leave it on disk; how its plan was found, or None
    if it is not there.
    """
    budget = budget_of_config()
    found, _ = _searched(region, target, budget)
    return found.report if is_kept(plan_key(region, target, budget, config.fast_math)) else None


def _planned(region: Region, target: Target, budget: Budget) -> tuple[Found, list[Checked]]:
    kept = None if budget.profile else _kept(region, target, budget)
    if kept is not None:
        return kept
    if not (config.search_background and config.cache and budget.evaluations):
        return _searched(region, target, budget)
    found = stored(region, target, budget)
    if found is not None:
        return _checked(found, target)
    settings = config.snapshot()
    scope = {name: getattr(settings, name) for name in settings.__match_args__}

    def later() -> None:
        with config.scope(**scope):
            _searched(region, target, budget)

    unsearched = replace(budget, evaluations=0, profile=False)
    found, kernels = _checked(search(region, target, unsearched), target)
    worker.submit(later)
    return replace(found, report=replace(found.report, searching=True)), kernels


@uncollected
def _searched(region: Region, target: Target, budget: Budget) -> tuple[Found, list[Checked]]:
    """Search, measure if that was asked for, and keep what was chosen."""
    if budget.profile:
        calibrated(target)
    found = search(region, target, budget)
    if not budget.profile or found.plan.schedules is not None:
        found, kernels = _checked(found, target)
        return (found, kernels) if budget.profile else _left(region, target, budget, found, kernels)
    found, kernels = profiled(found, target, budget)
    save_plan(
        plan_key(region, target, budget, config.fast_math),
        found.plan,
        Operations(region),
        found.report,
    )
    return found, kernels


def _left(
    region: Region, target: Target, budget: Budget, found: Found, kernels: list[Checked]
) -> tuple[Found, list[Checked]]:
    """The plan and its kernels, left on disk for other processes."""
    keep(plan_key(region, target, budget, config.fast_math), found.plan, kernels)
    return found, kernels


def _kept(region: Region, target: Target, budget: Budget) -> tuple[Found, list[Checked]] | None:
    """What another process left of the region: its plan and its kernels, checked and compiled."""
    started = time.perf_counter()
    key = plan_key(region, target, budget, config.fast_math)
    plan = load_plan(key, Operations(region))
    kernels = None if plan is None else ready(key, plan)
    if plan is None or kernels is None:
        return None
    alone = (k for k in kernels if not k.compiled.kernel.programs)
    report = Report(
        region.key,
        True,
        cost=plan.cost,
        seconds=(("load", time.perf_counter() - started),),
        fallbacks=tuple(b.name for k in alone for b in k.compiled.kernel.outputs),
    )
    return Found(plan, tuple(k.compiled.kernel for k in kernels), report), kernels


def _checked(found: Found, target: Target) -> tuple[Found, list[Checked]]:
    return found, all_checked(found.kernels, found.plan.groups, target)
