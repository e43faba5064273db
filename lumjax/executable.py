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
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from lumjax.config import config
from lumjax.cpu import arena
from lumjax.cpu.math import supported
from lumjax.cpu.objects import host_target
from lumjax.cpu.render import render
from lumjax.cpu.runtime import AnyStep, Inner, Program, Step
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
from lumjax.errors import CompileError, UnsupportedError
from lumjax.expansion import expand, is_keyed, keys_of, words_of
from lumjax.insight import Insight, Reader
from lumjax.kernel.region import Region, cut
from lumjax.layout import Layout
from lumjax.native import sizes_of, whole
from lumjax.nested import Table, inside, link
from lumjax.ops.elementwise import asvalue
from lumjax.recompute import smaller
from lumjax.stages import Evaluated, Inside, Native, Nested, Planner, stages_of
from lumjax.target import Target
from lumjax.timeline import Timeline
from lumjax.trace.array import Array
from lumjax.trace.core import (
    Atom,
    Eqn,
    EvalTrace,
    Jaxpr,
    Literal,
    Value,
    Var,
    aval_of,
    eval_jaxpr,
    using,
)
from lumjax.trace.form import Choose, Nest, Repeat
from lumjax.trace.simplify import simplify

NDArray: TypeAlias = np.ndarray[Any, Any]
_lock = threading.RLock()
TURNS = 8  # of computing more values again, until a budget of memory is kept

# ---- building blocks


@dataclass(slots=True)
class _Segment:
    """Kernels that one native call runs. `fresh` values get memory of their own when it begins;
    `dead` ones are let go when it ends.
    """

    steps: list[AnyStep] = field(default_factory=list[AnyStep])
    waves: list[Any] = field(default_factory=list[Any])  # steps of one wave share launches
    fresh: list[Var] = field(default_factory=list[Var])
    program: Program | None = None
    dead: list[Var] = field(default_factory=list[Var])


@dataclass(slots=True)
class _Call:
    """An equation to evaluate."""

    eqn: Eqn
    inputs: tuple[Atom, ...]
    dead: list[Var] = field(default_factory=list[Var])


# ---- the executable


class Executable:
    """A program ready to run on concrete values. Thread-safe.

    `stages` tells what became of it, for explain; `arena_bytes` is the planned size of what only
    kernels see, `peak_bytes` the least that any plan needs for it.
    """

    def __init__(
        self,
        jaxpr: Jaxpr,
        settings: Mapping[str, Any] | None = None,
        planner: Planner | None = None,
    ) -> None:
        if config.backend != "cpu":
            raise UnsupportedError(
                operation=f"compiling for backend '{config.backend}'",
                required="the CPU backend; kernels for CUDA are not part of this version",
                got=f"config.backend = {config.backend!r}",
                fix="use config.update('backend', 'cpu')",
            )
        started = time.perf_counter()
        self.traced = jaxpr
        if config.debug_overflow:
            jaxpr = with_checks(jaxpr)
        self.settings = settings or {}
        self.target = host_target()
        self.jaxpr, self._consts = expand(simplify(jaxpr))
        self.jaxpr = simplify(self.jaxpr)
        layout = self._layout = self._planned(planner)
        self.arena_bytes, self.peak_bytes = layout.arena_bytes, layout.peak_bytes
        self._inside: Inside | None = None
        self._known = Table({}, dict(layout.offsets))
        self._segments = self._link(layout)
        for name, place in layout.places.items():
            if isinstance(name, tuple) and name[0] == "size":
                self._known.fixed[place] = name[1]
        self._table = [self._known.fixed.get(p, 0) for p in range(len(layout.places))]
        self._arena = sorted(self._known.offsets.items())
        self._places = {v: p for v, p in layout.places.items() if isinstance(v, Var)}
        atoms = map(layout.resolve, self.jaxpr.outputs)
        self._outputs = list(zip(atoms, self.traced.out_avals, strict=True))
        self._keyed = any(is_keyed(v.aval) for v in (*jaxpr.inputs, *jaxpr.outputs))
        self.seconds = time.perf_counter() - started

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
                self.stages, renamed = stages_of(self.jaxpr, self.target, inside_of, planner)
            layout = Layout(self.jaxpr, self.stages, renamed)
            needed = layout.timeline().allocated() if limit else 0
            if needed <= limit or bound == 1:
                return layout, needed
            bound = limit - (needed - limit) if bound == limit and needed < 2 * limit else 1

    def timeline(self) -> Timeline:
        """What the program holds in memory, step by step."""
        return self._layout.timeline()

    def _link(self, layout: Layout) -> list[_Segment | _Call]:
        segments: list[_Segment | _Call] = []
        when = {place: n for n, wave in enumerate(layout.waves()) for place in wave}
        for number, stage in enumerate(self.stages):
            if isinstance(stage, Evaluated):
                segments.append(_Call(stage.eqn, tuple(map(layout.resolve, stage.eqn.inputs))))
                continue
            if not segments or isinstance(segments[-1], _Call):
                segments.append(_Segment())
            segment = segments[-1]
            assert isinstance(segment, _Segment)
            segment.fresh += [v for v in stage.outputs if v in layout.held]
            if isinstance(stage, Nested):
                self._nest(segment, stage, number, layout)
                continue
            for k, item in enumerate(stage.kernels):
                slots = layout.slots(number, stage, k)
                segment.steps.append(Step(item.compiled, slots, sizes_of(item.compiled.kernel)))
                segment.waves.append(when[number, k])
        for segment in segments:
            if isinstance(segment, _Segment):
                segment.program = Program(segment.steps, segment.waves)
        for segment, dead in zip(segments, layout.last_uses(), strict=True):
            segment.dead = dead
        return segments

    def _nest(self, segment: _Segment, stage: Nested, number: int, layout: Layout) -> None:
        linked = link(stage, number, layout.place, layout.resolve)
        segment.steps += linked.steps
        segment.waves += [("nested", number, k) for k in range(len(linked.steps))]
        self._known.fixed.update(linked.fixed)
        self._known.alive += [linked.alive, stage]
        for place, block, offset in linked.memory:
            self._known.offsets[place] = layout.offsets[block] + offset

    def inside(self) -> Inside | str:
        """The program as a part of another's native call, or why it can't be."""
        if (stage := next(iter(self.evaluated()), None)) is not None:
            return f"{stage.eqn.prim.name} in it runs through eval: {stage.why}"
        if self._inside is None:
            segment = self._segments[0] if self._segments else _Segment()
            assert isinstance(segment, _Segment), "all of it is native"
            steps = Inner(tuple(segment.steps), tuple(segment.waves))
            layout, known = self._layout, self._known
            self._inside = inside(self.jaxpr, self._consts, self.stages, layout, known, steps)
        return self._inside

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Run on one value for each input of the traced jaxpr."""
        table = list(self._table)
        held: dict[Var, NDArray] = {}
        given: dict[Var, Array] = {}
        if self._keyed:
            args = [Array(words_of(x.data)) if is_keyed(aval_of(x)) else x for x in args]
        for var, value in zip(self.jaxpr.inputs, (*self._consts, *args), strict=True):
            data = value.data if type(value) is Array else _ingested(value, var.aval.dtype)
            if not (data.flags.c_contiguous and data.flags.aligned):
                data = data.copy(order="C")
            elif type(value) is Array:
                given[var] = value
            self._hold(table, held, var, data)
        if self.arena_bytes:
            with arena.checkout(self.arena_bytes) as base:
                for place, offset in self._arena:
                    table[place] = base + offset
                self._run(table, held)
        else:
            self._run(table, held)
        return [self._output(atom, aval, held, given) for atom, aval in self._outputs]

    def _run(self, table: list[int], held: dict[Var, NDArray]) -> None:
        for segment in self._segments:
            if isinstance(segment, _Segment):
                for var in segment.fresh:
                    shape: Any = var.aval.shape
                    self._hold(table, held, var, arena.empty(shape, var.aval.dtype))
                assert segment.program is not None
                segment.program.run(table)
            elif self.settings:
                with config.scope(**self.settings):  # for what the equation itself compiles
                    self._call(segment, table, held)
            else:
                self._call(segment, table, held)
            for var in segment.dead:
                held.pop(var, None)

    def _call(self, call: _Call, table: list[int], held: dict[Var, NDArray]) -> None:
        operands = [a.value if isinstance(a, Literal) else held[a] for a in call.inputs]
        outs = call.eqn.prim.eval(*operands, **call.eqn.params)
        for var, out in zip(call.eqn.outputs, outs, strict=True):
            data = out.data if isinstance(out, Array) else np.asarray(out)
            self._hold(table, held, var, np.ascontiguousarray(data).reshape(data.shape))

    def _hold(self, table: list[int], held: dict[Var, NDArray], var: Var, data: NDArray) -> None:
        held[var] = data
        place = self._places.get(var)
        if place is not None:
            table[place] = data.__array_interface__["data"][0]

    def _output(
        self, atom: Atom, aval: Any, held: dict[Var, NDArray], given: dict[Var, Array]
    ) -> Array:
        if isinstance(atom, Literal):
            return Array(atom.value, aval.weak)
        if self._keyed and is_keyed(aval):
            return Array(keys_of(held[atom]))
        if atom in given and given[atom].weak == aval.weak:
            return given[atom]
        return Array(held[atom], aval.weak)

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
        programs = (s.program for s in self._segments if isinstance(s, _Segment))
        return sum(p.launches for p in programs if p is not None)

    def insight(self) -> Insight:
        """Everything that a report tells."""
        return Reader(self).insight()

    def as_text(self) -> str:
        """The kernels as LLVM IR."""
        kernels = (whole(c, self.target) for s in self.native() for c in s.kernels)
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


def _ingested(value: Value, dtype: Any) -> NDArray:
    """A NumPy array or a number as data; raises for integers that do not fit."""
    if isinstance(value, np.ndarray) and value.dtype == dtype:
        return value
    return asvalue(value, "argument of a compiled program").data


class Interpreted(Executable):
    """A program whose equations are all evaluated one by one (config.interpret)."""

    def __init__(self, jaxpr: Jaxpr, settings: Mapping[str, Any] | None = None) -> None:
        self.traced = self.jaxpr = jaxpr
        self.settings = settings or {}
        self.stages = [Evaluated(e, "config.interpret is set") for e in jaxpr.eqns]
        self._segments = []
        self.target = host_target()
        self.arena_bytes = self.peak_bytes = 0
        self.seconds = 0.0

    def timeline(self) -> Timeline:
        """Nothing is planned, so nothing is known."""
        return Timeline((), ())

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Evaluate on one value for each input."""
        with using(EvalTrace()):
            return eval_jaxpr(self.jaxpr, args)


class _Depth(threading.local):
    """How many programs of this thread run inside another one."""

    value = 0


_depth = _Depth()


class Watched(Executable):
    """A program whose results are looked at, for debug_nans and debug_infs. Where they hold what is
    looked for, its operations are evaluated again to tell where it came up.
    """

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Run on one value for each input of the traced jaxpr."""
        if not repeatable(self.traced):
            with using(EvalTrace()):
                return eval_jaxpr(self.traced, args)
        _depth.value += 1
        try:
            outs = super().run(args)
        finally:
            _depth.value -= 1
        looking = wanted()
        if looking is not None:
            error = complaint(self.traced, args, outs, looking, _depth.value)
            if error is not None:
                raise error
        return outs


def inside_of(form: Nest) -> tuple[Inside, ...] | str:
    """The sub-programs of a loop or choice, compiled as parts of a native call; or why not."""
    jaxprs = form.branches if isinstance(form, Choose) else [form.body]
    if isinstance(form, Repeat):
        if not (form.length is None or isinstance(form.length, int)):
            return "the number of steps is not known when it is compiled"
        if form.test is not None:
            jaxprs = [form.body, form.test]
    found: list[Inside] = []
    for jaxpr in jaxprs:
        part = executable_of(jaxpr).inside()
        if isinstance(part, str):
            return part
        found.append(part)
    return tuple(found)


_executables: weakref.WeakKeyDictionary[Jaxpr, dict[Any, Executable]] = weakref.WeakKeyDictionary()


def executable_of(jaxpr: Jaxpr, settings: Mapping[str, Any] | None = None) -> Executable:
    """The executable of a jaxpr under the settings in force and these on top of them, made on first
    use.
    """
    if settings:
        with config.scope(**settings):
            return _made(jaxpr, settings)
    return _made(jaxpr, {})


def _made(jaxpr: Jaxpr, settings: Mapping[str, Any]) -> Executable:
    key = config.compiled_key()
    known = _executables.get(jaxpr)
    if known is not None and key in known:
        return known[key]
    with _lock:
        table = _executables.setdefault(jaxpr, {})
        if key not in table:
            kind = Watched if wanted() else Executable
            table[key] = (Interpreted if config.interpret else kind)(jaxpr, settings)
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
