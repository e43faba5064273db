"""Executable: a jaxpr made ready to run. Expand -> simplify -> cut -> search -> check -> place.

A program is a list of segments: runs of kernels, issued by one native call each, and between them
the equations that run through their `eval`. All kernels share one table of addresses and sizes.
What only kernels see lives in one arena block, its offsets planned from exact lifetimes.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from lumjax.concrete import at_sizes as at_sizes
from lumjax.concrete import concrete, open_sizes_of, sources_of
from lumjax.config import config
from lumjax.cpu.math import supported
from lumjax.cpu.objects import host_target
from lumjax.cpu.render import render
from lumjax.debugging.overflow import with_checks
from lumjax.debugging.replay import complaint, repeatable
from lumjax.debugging.values import wanted
from lumjax.egraph import replay
from lumjax.egraph.plan import Found
from lumjax.egraph.replay import PROGRAMS as PROGRAMS
from lumjax.egraph.replay import fired
from lumjax.egraph.rules import Rule
from lumjax.egraph.rules.registry import load_rules
from lumjax.egraph.search import budget_of_config, search
from lumjax.errors import CompileError
from lumjax.expansion import expand, is_keyed
from lumjax.inplace import patched, refused
from lumjax.insight import Insight, Reader
from lumjax.judge import judge as judge
from lumjax.kernel.region import Region, cut
from lumjax.labels import labels_of
from lumjax.layout import Layout
from lumjax.native import Checked, unproved, whole
from lumjax.placed import Placed
from lumjax.portable import objects_of as objects_of
from lumjax.portable import planned as planned
from lumjax.portable import plans_of as plans_of
from lumjax.portable import trust as trust
from lumjax.recompute import smaller
from lumjax.runner import Label, Runner
from lumjax.sized import Sized, Varying
from lumjax.stages import Evaluated, Inside, Native, Nested, Planner, Stage, stages_of
from lumjax.target import Target
from lumjax.timeline import Timeline
from lumjax.trace.array import Array
from lumjax.trace.core import (
    EvalTrace,
    Jaxpr,
    Value,
    Var,
    eval_jaxpr,
    using,
)
from lumjax.trace.dim import estimate
from lumjax.trace.form import Choose, Nest, Repeat
from lumjax.trace.simplify import simplify

NDArray: TypeAlias = np.ndarray[Any, Any]
_lock = threading.RLock()
TURNS = 8  # of computing more values again, until a budget of memory is kept

# ---- the executable


def accelerator():
    """The module `lumjax.accelerated`: no program for the CPU loads the CUDA backend."""
    from lumjax import accelerated  # noqa: PLC0415 - the only place

    return accelerated


class Executable:
    """A program ready to run on concrete values. Thread-safe.

    `stages` tells what became of it, for explain; `arena_bytes` is the planned size of what only
    kernels see, `peak_bytes` the least that any plan needs for it. `plain`: a run is its runner's.
    """

    plain = True

    def __init__(
        self,
        jaxpr: Jaxpr,
        settings: Mapping[str, Any] | None = None,
        planner: Planner | None = None,
        donated: frozenset[int] = frozenset(),
    ) -> None:
        started = time.perf_counter()
        self.traced = jaxpr
        if config.debug_overflow:
            jaxpr = with_checks(jaxpr)
        self.settings = settings or {}
        self._cuda = None if config.backend == "cpu" else accelerator()
        self.target = self._cuda.target_of(config.backend) if self._cuda else host_target()
        self.jaxpr, self._consts = expand(simplify(jaxpr))
        self.jaxpr = simplify(self.jaxpr)
        self.donated = donated
        self.open_sizes = open_sizes_of(jaxpr.in_avals)
        self._usual = {str(s.name): estimate(s) for s in self.open_sizes}
        layout = self._layout = self._in_place(planner)
        self.arena_bytes, self.peak_bytes = layout.arena_bytes, layout.peak_bytes
        self._inside: Inside | None = None
        self._placed = self._at(self._usual)
        self.runner: Runner | Sized = (
            Sized(self.open_sizes, sources_of(jaxpr.in_avals), self._runner)
            if self._usual
            else self._runner({})[0]
        )
        self.seconds = time.perf_counter() - started

    def _in_place(self, planner: Planner | None) -> Layout:
        """The stages and their layout, with updates of donated arguments in place where nothing
        reads later what was there.
        """
        jaxpr, kept = self.jaxpr, frozenset[Var]()
        places = [k + len(self._consts) for k in self.donated] if self._cuda is None else []
        while True:
            self.jaxpr = patched(jaxpr, places, kept) if places else jaxpr
            layout = self._planned(planner)
            wrong = refused(self.stages, self.jaxpr) if places else frozenset[Var]()
            if not wrong:
                return layout
            kept |= wrong

    def _planned(self, planner: Planner | None) -> Layout:
        """The stages and their layout. Under a budget of memory, a program that holds too much is
        planned with less for temporaries, then has values computed again rather than kept.
        """
        limit = config.search_memory
        least = 0
        for _ in range(TURNS):
            layout, needed = self._fitted(limit, planner)
            if needed <= limit:
                return layout
            least = min(least or needed, needed)
            less = smaller(self.jaxpr, layout, needed - limit)
            if less is None:
                break
            self.jaxpr = less
        raise CompileError(
            operation="compiling under a budget of memory",
            required=f"a plan that holds at most {limit:,} bytes",
            got=f"{least:,} bytes at the least",
            fix="raise memory=, make the arrays smaller, or wrap parts in lumjax.checkpoint",
        )

    def _fitted(self, limit: int, planner: Planner | None) -> tuple[Layout, int]:
        """A layout of the program and what it holds, planned with ever less for temporaries."""
        bound = limit
        while True:
            with config.scope(search_memory=bound):
                if self._cuda:
                    made = self._cuda.stages_of(self.jaxpr, self.target, inside_of, planner)
                else:
                    made = stages_of(self.jaxpr, self.target, inside_of, planner)
            self.stages, self._renamed = made
            layout = Layout(self.jaxpr, self.stages, self._renamed, self._usual)
            needed = layout.timeline().allocated() if limit else 0
            if needed <= limit or bound == 1:
                return layout, needed
            bound = limit - (needed - limit) if bound == limit and needed < 2 * limit else 1

    def timeline(self, shapes: Sequence[Sequence[int]] | None = None) -> Timeline:
        """What the program holds in memory, step by step: for inputs of these shapes, or for sizes
        as usual where they are open.
        """
        runner = self.runner
        if isinstance(runner, Runner):
            return replace(self._layout.timeline(), scratch=runner.scratch)
        if shapes is None:
            return self._layout.timeline()
        sources = sources_of(self.traced.in_avals)
        given = {n: int(shapes[k][axis]) for n, (k, axis) in sources.items()}
        runner = runner.at_given(given)
        line = self._at(given).layout.timeline()
        return replace(line, arena=runner.recipe.arena_bytes, scratch=runner.scratch)

    def _at(self, given: Mapping[str, int]) -> Placed:
        """The program at sizes that are known only when it runs."""

        def nester(form: Nest) -> tuple[Inside, ...] | str:
            return inside_of(form, given)

        return Placed(self.jaxpr, self._consts, self.stages, self._renamed, given, nester)

    def _runner(self, given: Mapping[str, int]) -> tuple[Runner, Varying | None]:
        """What runs the program at these sizes, and how that depends on them. Where an access can't
        be proved for them, they are compiled by themselves.
        """
        if any(unproved(k, given, self.target) for k in self.kernels()):
            alone = executable_of(concrete(self.traced, given), self.settings, self.donated)
            assert isinstance(alone.runner, Runner), "all its sizes are known"
            return alone.runner, None
        keyed = any(is_keyed(v.aval) for v in (*self.traced.inputs, *self.traced.outputs))
        kind = self._cuda.Launcher if self._cuda else Runner
        placed = self._at(given)
        made = kind(placed.recipe(self.traced.out_avals), self.settings, keyed)
        made.labels = partial(labels_of, self.stages, self.target)
        made.timeline = placed.layout.timeline
        whole = bool(given) and all(k.everywhere for k in self.kernels())
        return made, placed.varying() if whole else None

    def kernels(self) -> Iterable[Checked]:
        """All kernels, those of loops and choices too."""
        waiting: list[Stage] = list(self.stages)
        while waiting:
            stage = waiting.pop()
            if isinstance(stage, Nested):
                waiting += [s for p in stage.programs for s in p.stages]
            if isinstance(stage, Native):
                yield from stage.kernels

    @property
    def lasting(self) -> bool:
        """Whether every process would compile it to the same: no plan was cut off by the clock, and
        none waits for a search.
        """
        waiting: list[Stage] = list(self.stages)
        while waiting:
            stage = waiting.pop()
            if isinstance(stage, Nested):
                waiting += [s for p in stage.programs for s in p.stages]
            if isinstance(stage, Native) and _may_change(stage.found):
                return False
        return True

    def inside(self, given: Mapping[str, int] | None = None) -> Inside | str:
        """The program as a part of another's native call, or why it can't be. By default, sizes
        known only when it runs are as usual.
        """
        if (stage := next(iter(self.evaluated()), None)) is not None:
            return f"{stage.eqn.prim.name} in it runs through eval: {stage.why}"
        if given:
            return self._at(given).inside()
        if self._inside is None:
            self._inside = self._placed.inside()
        return self._inside

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Run on one value for each input of the traced jaxpr."""
        return self.runner.run(args)

    # ---- looking inside

    def native(self) -> Iterable[Native]:
        """The compiled regions."""
        return (s for s in self.stages if isinstance(s, Native))

    def evaluated(self) -> Iterable[Evaluated]:
        """The equations that run through `eval`."""
        return (s for s in self.stages if isinstance(s, Evaluated))

    @property
    def launches(self) -> int:
        """How often all threads wait for each other in a call."""
        return self.runner.launches

    def loop_words(self) -> list[str]:
        """What became of each loop, as far as that is more than native code."""
        return self.runner.loop_words() if isinstance(self.runner, Runner) else []

    def labels(self) -> list[Label]:
        """What kernels are called in a trace."""
        return labels_of(self.stages, self.target)

    def insight(self) -> Insight:
        """Everything that a report tells."""
        return Reader(self).insight()

    def as_text(self) -> str:
        """The kernels as LLVM IR, or as CUDA C."""
        checked = [c for s in self.native() for c in s.kernels]
        if self._cuda:
            return self._cuda.text_of([c.compiled for c in checked])
        kernels = [whole(c, self.target) for c in checked]
        return "\n".join(render(k, self.target) for k in kernels)

    def cost_analysis(self) -> dict[str, float]:
        """Predicted seconds on the reference constants, and counts."""
        stages = list(self.native())
        return {
            "predicted seconds": sum(s.found.plan.cost for s in stages),
            "kernels": float(sum(len(s.kernels) for s in stages)),
            "launches": float(self.launches),
            "evaluated equations": float(sum(1 for _ in self.evaluated())),
            "arena bytes": float(self.arena_bytes),
        }


def _may_change(found: Found) -> bool:
    return found.plan.truncated or found.report.searching


class Interpreted(Executable):
    """A program whose equations are all evaluated one by one (config.interpret)."""

    plain = False

    def __init__(self, jaxpr: Jaxpr, settings: Mapping[str, Any] | None = None) -> None:
        self.traced = self.jaxpr = jaxpr
        self.settings = settings or {}
        self.stages = [Evaluated(e, "config.interpret is set") for e in jaxpr.eqns]
        self.target = host_target()
        self.arena_bytes = self.peak_bytes = 0
        self.seconds = 0.0

    @property
    def launches(self) -> int:
        """None: nothing runs in native code."""
        return 0

    def loop_words(self) -> list[str]:
        """No loop became anything."""
        return []

    def timeline(self, shapes: Sequence[Sequence[int]] | None = None) -> Timeline:
        """Nothing is planned, so nothing is known."""
        del shapes
        return Timeline((), ())

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Evaluate on one value for each input."""
        with using(EvalTrace()):
            return eval_jaxpr(at_sizes(self.jaxpr, args), args)


class _Depth(threading.local):
    """How many programs of this thread run inside another one."""

    value = 0


_depth = _Depth()


class Watched(Executable):
    """A program whose results are looked at, for debug_nans and debug_infs. Where they hold what is
    looked for, its operations are evaluated again to tell where it came up.
    """

    plain = False

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Run on one value for each input of the traced jaxpr."""
        traced = at_sizes(self.traced, args)
        if not repeatable(traced):
            with using(EvalTrace()):
                return eval_jaxpr(traced, args)
        _depth.value += 1
        try:
            outs = super().run(args)
        finally:
            _depth.value -= 1
        looking = wanted()
        if looking is not None:
            error = complaint(traced, args, outs, looking, _depth.value)
            if error is not None:
                raise error
        return outs


def inside_of(form: Nest, given: Mapping[str, int] | None = None) -> tuple[Inside, ...] | str:
    """The sub-programs of a loop or choice, compiled as parts of a native call; or why not. Their
    sizes are `given` where they are known only when it runs.
    """
    jaxprs = form.branches if isinstance(form, Choose) else [form.body]
    if isinstance(form, Repeat) and form.test is not None:
        jaxprs = [form.body, form.test]
    found: list[Inside] = []
    for jaxpr in jaxprs:
        part = executable_of(jaxpr).inside(given)
        if isinstance(part, str):
            return part
        found.append(part)
    return tuple(found)


_executables: weakref.WeakKeyDictionary[Jaxpr, dict[Any, Executable]] = weakref.WeakKeyDictionary()


def executable_of(
    jaxpr: Jaxpr,
    settings: Mapping[str, Any] | None = None,
    donated: frozenset[int] = frozenset(),
) -> Executable:
    """The executable of a jaxpr under the settings in force and these on top of them, made on first
    use. `donated` are inputs, by number, whose memory it may use.
    """
    if settings:
        with config.scope(**settings):
            return _made(jaxpr, settings, donated)
    return _made(jaxpr, {}, donated)


def _made(jaxpr: Jaxpr, settings: Mapping[str, Any], donated: frozenset[int]) -> Executable:
    key = config.compiled_key(), donated
    known = _executables.get(jaxpr)
    if known is not None and key in known:
        return known[key]
    with _lock:
        table = _executables.setdefault(jaxpr, {})
        if key not in table:
            kind = Watched if wanted() else Executable
            table[key] = (
                Interpreted(jaxpr, settings)
                if config.interpret
                else kind(jaxpr, settings, donated=frozenset() if wanted() else donated)
            )
        return table[key]


# ---- rules tried alone


def rules_that_fire(jaxpr: Jaxpr, rules: Sequence[Rule] | None = None) -> list[Rule]:
    """The rules that match somewhere in the program's regions: of the compiler's, or of these."""
    chosen = load_rules(config.fast_math) if rules is None else tuple(rules)
    budget = budget_of_config()
    program = simplify(expand(simplify(jaxpr))[0])
    regions = [step for step in cut(program, native=supported) if isinstance(step, Region)]
    names = {n for region in regions for n in fired(region, chosen, budget)}
    return [r for r in chosen if r.name in names]


def rewritten(jaxpr: Jaxpr, rule: Rule, turn: int) -> Executable | None:
    """The program as traced but for this rule's results, in the regions that have a program number
    `turn`; None if none has. Rules that conclude facts rewrite nothing, and help every other rule.
    """
    budget = budget_of_config()
    facts = [r for r in load_rules(config.fast_math) if r.concludes and r.name != rule.name]
    used = False

    def plan(region: Region, target: Target) -> Found:
        nonlocal used
        every = replay.rewritten(region, target, (*facts, rule), budget)
        found = next(islice(every, turn, None), None)
        used |= found is not None
        return found or search(region, target, replace(budget, evaluations=0))

    made = Executable(jaxpr, planner=plan)
    return made if used else None
