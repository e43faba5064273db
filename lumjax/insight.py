"""What became of a program, as plain data: the source of every report.

Everything that `explain` tells is gathered here once: the traced program with the user's lines, the
regions, what was searched and found in each, kernels, and what memory is held when.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from lumjax.config import config
from lumjax.egraph.cache import load_report, plan_key
from lumjax.egraph.cost import blocked_time, blocks_of, kernel_time, machine, resident_time
from lumjax.egraph.derive import derivation
from lumjax.egraph.plan import Budget, Found, Report
from lumjax.egraph.rules.registry import load_rules
from lumjax.egraph.scalar import Operations
from lumjax.egraph.search import budget_of_config, search
from lumjax.errors import Source
from lumjax.kernel.blocked import Blocks, blocked
from lumjax.kernel.ir import Kernel
from lumjax.kernel.region import Region
from lumjax.kernel.resident import Residence, residence
from lumjax.kernel.roles import Roles, fold_roles
from lumjax.kernel.term import Axis, Group, Reduction, loads, subterms
from lumjax.kernel.words import axis_words, buffer_words, root_words
from lumjax.native import Checked, sizes_of
from lumjax.recompute import repeated
from lumjax.record import record
from lumjax.stages import Evaluated, Native, Nested, Stage
from lumjax.target import Target
from lumjax.timeline import Timeline
from lumjax.trace.core import Eqn, Jaxpr
from lumjax.trace.dim import estimate, evaluate
from lumjax.trace.form import Choose, Nest, Repeat
from lumjax.trace.show import equation, show

SECONDS = 30.0  # for finding the rules that plans are owed to, all regions together
EACH = 10.0  # for one region


class Made(Protocol):
    """What is read of an executable."""

    traced: Jaxpr
    jaxpr: Jaxpr
    target: Target
    stages: list[Stage]
    settings: Mapping[str, Any]
    arena_bytes: int
    peak_bytes: int
    seconds: float

    def timeline(self) -> Timeline:
        """What it holds in memory."""
        ...

    def loop_words(self) -> list[str]:
        """What became of each loop, as far as that is more than native code."""
        ...


@record
class Line:
    """A line of the user's."""

    file: str
    line: int
    code: str  # as written; "in f" where the file cannot be read

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


@record
class Statement:
    """An equation of the traced program."""

    text: str
    line: Line | None


@record
class Rule:
    """A rule that fired. `used` says whether the chosen program is owed to it; None: not known."""

    name: str
    ruleset: str
    kind: str
    count: int
    used: bool | None
    says: str


@record
class Part:
    """What one kernel computes."""

    writes: tuple[str, ...]  # names of buffers
    reads: tuple[str, ...]
    shapes: tuple[str, ...]  # of what is written
    program: str  # MAP, ROW, SPLIT, CONTRACT, FOLD, ... (see kernel/lower.py)
    roles: str
    terms: tuple[str, ...]
    predicted: float  # seconds
    jobs: str = ""
    rejected: str = ""  # what verification said of the kernel that this one replaces


@record
class Searched:
    """A region. `before` is the plan of the program as traced, `after` the one that runs."""

    number: int
    key: str
    same_as: int | None  # the first region with the same key
    equations: int
    lines: tuple[Line, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    report: Report
    rules: tuple[Rule, ...]
    before: tuple[Part, ...]
    after: tuple[Part, ...]
    truncated: bool
    times: int = 1  # how often one run runs it, as far as that is known


@record
class Alone:
    """An equation that runs through `eval`."""

    number: int
    primitive: str
    why: str
    lines: tuple[Line, ...]


@record
class Looped:
    """A loop or a choice that runs within the native call."""

    number: int
    primitive: str
    says: str
    lines: tuple[Line, ...]
    parts: tuple[tuple[str, tuple[int, ...]], ...]  # what each is, and the numbers of its stages


Told: TypeAlias = Searched | Alone | Looped


@record
class Insight:
    """Everything about one program."""

    machine: str
    program: tuple[Statement, ...]
    head: str  # the traced program's inputs
    tail: str  # and outputs
    stages: tuple[Told, ...]  # those of loops and choices come last
    timeline: Timeline
    arena: int
    least: int  # the smallest arena that any placement could do with
    seconds: float  # to prepare
    budget: Budget
    again: int = 0  # values computed again rather than kept, for a budget of memory

    @property
    def regions(self) -> list[Searched]:
        """The compiled regions."""
        return [s for s in self.stages if isinstance(s, Searched)]

    @property
    def alone(self) -> list[Alone]:
        """The equations that run through `eval`."""
        return [s for s in self.stages if isinstance(s, Alone)]

    @property
    def loops(self) -> list[Looped]:
        """The loops and choices that run within the native call."""
        return [s for s in self.stages if isinstance(s, Looped)]

    @property
    def kernels(self) -> int:
        """How many kernels there are; those of a loop's body are counted once."""
        return sum(len(r.after) for r in self.regions)

    @property
    def predicted(self) -> float:
        """Seconds of one run, by the cost model."""
        return sum(r.report.cost * r.times for r in self.regions)


class Reader:
    """Reads an executable. Equal regions are looked into once."""

    def __init__(self, executable: Made) -> None:
        self.executable = executable
        self.sources: dict[str, list[str]] = {}
        self.deadline = time.perf_counter() + SECONDS
        self.seen: dict[str, Searched] = {}
        self.loops = iter(executable.loop_words())

    def insight(self) -> Insight:
        """Everything."""
        made = self.executable
        with config.scope(**made.settings):
            stages = self._stages(made.stages)
            budget = budget_of_config()
        head, *rest = show(made.traced).splitlines()
        return Insight(
            f"{made.target.backend.value} ({made.target.arch}, {made.target.cores} cores)",
            self._program(made.traced),
            head,
            rest[-1].strip() if rest else "",
            stages,
            made.timeline(),
            made.arena_bytes,
            made.peak_bytes,
            made.seconds,
            budget,
            repeated(made.jaxpr),
        )

    # ---- the user's program

    def _program(self, jaxpr: Jaxpr) -> tuple[Statement, ...]:
        if len(jaxpr.eqns) < 2:  # then the head says it all
            return tuple(Statement("", self._line(e.source)) for e in jaxpr.eqns)
        return tuple(Statement(equation(jaxpr, e), self._line(e.source)) for e in jaxpr.eqns)

    def _line(self, source: Source | None) -> Line | None:
        if source is None:
            return None
        if source.file not in self.sources:
            try:
                with open(source.file, encoding="utf-8") as file:
                    self.sources[source.file] = file.read().splitlines()
            except (OSError, UnicodeDecodeError):  # typed at a prompt, say
                self.sources[source.file] = []
        lines = self.sources[source.file]
        known = 0 < source.line <= len(lines)
        code = lines[source.line - 1].strip() if known else f"in {source.function}"
        return Line(source.file, source.line, code)

    def _lines(self, eqns: Iterable[Eqn]) -> tuple[Line, ...]:
        found = (self._line(e.source) for e in eqns)
        return tuple(dict.fromkeys(x for x in found if x is not None))

    # ---- stages

    def _stages(self, top: Sequence[Stage]) -> tuple[Told, ...]:
        """What became of each stage: the program's, then those of loops and choices."""
        waiting: list[tuple[Stage, int]] = [(s, 1) for s in top]
        found: list[Told] = []
        while len(found) < len(waiting):
            stage, times = waiting[len(found)]
            if isinstance(stage, Nested):
                found.append(self._loop(len(found), stage, times, waiting))
            else:
                found.append(self._stage(len(found), stage, times))
        return tuple(found)

    def _loop(
        self, number: int, stage: Nested, times: int, waiting: list[tuple[Stage, int]]
    ) -> Looped:
        says, names, steps = loop_words(stage.form)
        if isinstance(stage.form, Repeat) and number < len(self.executable.stages):
            more = next(self.loops, None)
            says += f"; {more}" if more else ""
        parts: list[tuple[str, tuple[int, ...]]] = []
        for name, program in zip(names, stage.programs, strict=True):
            first = len(waiting)
            waiting += [(s, times * steps) for s in program.stages]
            parts.append((name, tuple(range(first, len(waiting)))))
        name = stage.eqn.prim.name
        return Looped(number, name, says, self._lines([stage.eqn]), tuple(parts))

    def _stage(self, number: int, stage: Native | Evaluated, times: int) -> Searched | Alone:
        if isinstance(stage, Evaluated):
            lines = self._lines([stage.eqn])
            return Alone(number, stage.eqn.prim.name, stage.why, lines)
        key = stage.region.key
        lines = self._lines(stage.region.eqns)
        first = self.seen.get(key)
        if first is not None:
            same = first.number
            return replace(first, number=number, same_as=same, lines=lines, times=times)
        self.seen[key] = found = replace(self._region(number, stage, lines), times=times)
        return found

    def _region(self, number: int, stage: Native, lines: tuple[Line, ...]) -> Searched:
        region, found, target = stage.region, stage.found, self.executable.target
        report = self._history(region, found, target)
        before: tuple[Part, ...] = ()
        if report.rules or report.sizes:
            unsearched = replace(budget_of_config(), evaluations=0, profile=False, memory=0)
            with config.scope(cache=False):  # looking leaves nothing behind
                traced = search(region, target, unsearched)
            before = tuple(
                part(g, k, target) for g, k in zip(traced.plan.groups, traced.kernels, strict=True)
            )
        after = tuple(
            self._checked(k) if k.group.roots else whole(stage, k.compiled.kernel)
            for k in stage.kernels
        )
        return Searched(
            number,
            region.key,
            None,
            len(region.eqns),
            lines,
            tuple(map(buffer_words, found.plan.inputs)),
            tuple(map(buffer_words, found.plan.outputs)),
            report,
            rules_of(report),
            before,
            after,
            found.plan.truncated,
        )

    def _checked(self, item: Checked) -> Part:
        kernel = item.compiled.kernel
        return replace(
            part(item.group, kernel, self.executable.target),
            jobs=jobs_words(kernel),
            rejected=item.rejected,
        )

    def _history(self, region: Region, found: Found, target: Target) -> Report:
        """How the plan was found, also if that was in another process; with the rules it owes."""
        report = found.report
        if report.cached:
            key = plan_key(region, target, budget_of_config(), config.fast_math)
            stored = load_report(key, found.plan.truncated)
            if stored is not None:
                report = replace(stored, cached=True, seconds=report.seconds)
        left = self.deadline - time.perf_counter()
        if report.used is None and report.rules and left > 0:
            if not found.chosen:
                with config.scope(cache=False):
                    found = search(region, target)
            used = derivation(
                load_rules(config.fast_math),
                [n for n, _ in report.rules],
                Operations(region),
                [r.term for r in found.traced],
                [r.term for r in found.chosen],
                seconds=min(left, EACH),
            )
            report = replace(report, used=used)
        return report


def jobs_words(kernel: Kernel) -> str:
    """How many jobs each phase has, and how often phases come again."""
    jobs = {p.job: f"{evaluate(p.jobs, sizes_of(kernel))}" for p in kernel.phases}
    times = max(Counter(p.job for p in kernel.phases).values(), default=1)
    again = f"{times} times: " if times > 1 else ""
    return again + " then ".join(jobs.values())


def loop_words(form: Nest) -> tuple[str, list[str], int]:
    """What a loop or choice does, what its sub-programs are, and how often they run if known."""
    if isinstance(form, Choose):
        count = len(form.branches)
        return f"one of {count} branches", [f"branch {k}" for k in range(count)], 1
    if form.length is None:
        return "steps as long as a condition holds", ["body", "condition"], 1
    back = ", from the last row" if form.reverse else ""
    return f"{form.length} steps{back}", ["body"], estimate(form.length)


def rules_of(report: Report) -> tuple[Rule, ...]:
    """The rules that fired, with what they say."""
    known = {r.name: r for r in load_rules(config.fast_math)}
    found: list[Rule] = []
    for name, count in report.rules:
        rule = known.get(name)
        used = None if report.used is None else name in report.used
        if rule is None:  # constants are folded by evaluation, not by a rule
            found.append(Rule(name, "", "exact", count, used, ""))
            continue
        conclusion = getattr(rule, "concludes", "") or rule.right
        says = f"{rule.left} -> {conclusion}" + (f" where {rule.guard}" if rule.guard else "")
        kind = rule.kind.value if rule.kind else ""
        found.append(Rule(name, rule.ruleset, kind, count, used, says))
    return tuple(found)


def whole(stage: Native, kernel: Kernel) -> Part:
    """The kernel of an equation that is a kernel by itself, in words."""
    (eqn,) = stage.eqns
    return Part(
        tuple(b.name for b in kernel.outputs),
        tuple(b.name for b in kernel.inputs),
        tuple(map(buffer_words, stage.found.plan.outputs)),
        " + ".join(kernel.programs),
        eqn.prim.name,
        (),
        stage.found.plan.cost,
        jobs_words(kernel),
    )


def part(group: Group, kernel: Kernel, target: Target) -> Part:
    """A group and its kernel in words."""
    written = {r.buffer.name for r in group.roots}
    reads = {t.buffer.name: None for r in group.roots for t in loads(r.term)}
    roles = fold_roles(group.roots) if "FOLD" in kernel.programs else None
    stays = residence(group.roots) if "RESIDENT" in kernel.programs else None
    blocks = blocked(group.roots) if "BLOCKS" in kernel.programs else None
    found = roles if isinstance(roles, Roles) else stays or blocks
    return Part(
        tuple(r.buffer.name for r in group.roots),
        tuple(n for n in reads if n not in written),
        tuple(buffer_words(r.buffer) for r in group.roots),
        " + ".join(dict.fromkeys(kernel.programs)) or "SCALAR",
        roles_words(group, found),
        tuple(line for r in group.roots for line in root_words(r)),
        predicted(group, found, target),
    )


def roles_words(group: Group, roles: Roles | Residence | Blocks | None) -> str:
    """The roles of a group's axes."""
    if isinstance(roles, Blocks):
        count = blocks_of(roles, {roles.rows.name: roles.rows})
        tiles = f"{len(roles.tiles)} contractions stored for each"
        return f"{count} blocks of rows {axis_words([roles.rows])}; {tiles}"
    if isinstance(roles, Residence):
        *others, row = roles.rows
        each = f"rows {axis_words([row])} in tiles" + (
            f" of {axis_words(others)}" if others else ""
        )
        stays = [a for p in roles.places.values() for a in p.axes if a not in roles.rows]
        within = axis_words(sorted(dict.fromkeys(stays), key=lambda a: a.name))
        return f"grid {axis_words(roles.grid)}; {each}; resident {within}"
    if roles is not None:
        rows = "" if roles.rows is None else f"rows {axis_words([roles.rows])} in tiles; "
        grid = f"grid {axis_words(roles.grid)}; " if roles.grid else ""
        stream = axis_words(sorted(roles.stream, key=lambda a: a.name))
        inner = f"; {len(roles.inner)} contractions in tiles" if roles.inner else ""
        return f"{grid}{rows}stream {stream}; {len(roles.carries)} carries{inner}"
    kept = dict.fromkeys(a for r in group.roots for a in r.axes)
    bound = {
        a: None
        for r in group.roots
        for t in subterms(r.term)
        if isinstance(t, Reduction)
        for a in sorted(t.axes, key=lambda a: a.name)
    }
    summed = [a for a in bound if a not in kept]
    text = f"over {axis_words(list(kept))}" if kept else "one value"
    return f"{text}; reduced {axis_words(summed)}" if summed else text


def predicted(group: Group, roles: Roles | Residence | Blocks | None, target: Target) -> float:
    """The cost model's seconds for a group as one kernel."""
    terms = list(dict.fromkeys(t for r in group.roots for t in subterms(r.term)))
    axes: Mapping[str, Axis] = {a.name: a for a in _axes(group, terms)}
    if isinstance(roles, Residence):
        return resident_time(roles, group.roots, axes, machine(target))
    if isinstance(roles, Blocks):
        return blocked_time(roles, group.roots, axes, machine(target))
    return kernel_time(terms, group.roots, axes, machine(target), roles)


def _axes(group: Group, terms: Sequence[object]) -> Iterable[Axis]:
    for root in group.roots:
        yield from root.axes
    for term in terms:
        if isinstance(term, Reduction):
            yield from term.axes
