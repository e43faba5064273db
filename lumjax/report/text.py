"""A report as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lumjax.report.units import seconds, size

if TYPE_CHECKING:
    from lumjax.insight import Alone, Insight, Line, Looped, Part, Searched

_LINES = 8  # of the user's, for one region


def report(name: str, insight: Insight) -> str:
    """The whole report."""
    return "\n".join(_report(name, insight))


def _report(name: str, insight: Insight) -> Iterable[str]:
    yield f"explain {name} on {insight.machine}"
    yield ""
    yield from program(insight)
    yield ""
    yield from summary(insight)
    regions = {r.number: r for r in insight.regions}
    loops = {x.number: x for x in insight.loops}
    alone = {a.number: a for a in insight.alone}
    for number in range(len(insight.stages)):
        yield ""
        if number in regions:
            yield from _region(regions[number])
        else:
            yield from _loop(loops[number]) if number in loops else _alone(alone[number])
    yield ""
    yield from memory(insight)


def program(insight: Insight) -> Iterable[str]:
    """The traced program, each equation with the user's line."""
    yield insight.head
    for statement in insight.program:
        where = f"  # {statement.line} | {statement.line.code}" if statement.line else ""
        first, *more = statement.text.splitlines() or [""]
        yield f"    {first}{where}" if first else f"   {where}"
        yield from (f"    {line}" for line in more)
    if insight.tail:
        yield f"  {insight.tail}"


def summary(insight: Insight) -> Iterable[str]:
    """The numbers of the whole program."""
    regions = insight.regions
    equal = sum(r.same_as is not None for r in regions)
    hits = sum(r.report.cached for r in regions)
    loops = f"loops and choices: {len(insight.loops)}, " if insight.loops else ""
    yield (
        f"regions: {len(regions)} ({equal} repeated), kernels: {insight.kernels}, {loops}"
        f"by eval: {len(insight.alone)}"
    )
    yield (
        f"plans from the cache: {hits} of {len(regions)}; prepared in {insight.seconds:.2f} s; "
        f"predicted {seconds(insight.predicted)} a run"
    )
    yield f"memory between kernels: {insight.arena:,} bytes planned, {insight.least:,} at least"
    if insight.again:
        yield f"values computed again rather than kept, for the budget of memory: {insight.again}"
    b = insight.budget
    limit = f", at most {size(b.memory)} of memory" if b.memory else ""
    yield (
        f"budget: {b.evaluations} plans and {b.seconds:g} s for each region, seed {b.seed}{limit}"
        + (", kernels measured" if b.profile else "")
    )


def _loop(stage: Looped) -> Iterable[str]:
    yield f"[{stage.number}] {stage.primitive} within the native call: {stage.says}"
    yield from _sources(stage.lines)
    for name, numbers in stage.parts:
        yield f"    {name}: {parts_words(numbers)}"


def parts_words(numbers: Sequence[int]) -> str:
    """The stages of a loop's body, say."""
    return ", ".join(f"[{n}]" for n in numbers) or "copies only"


def _alone(stage: Alone) -> Iterable[str]:
    yield f"[{stage.number}] eval: {stage.primitive}: {stage.why}"
    yield from _sources(stage.lines)


def _region(region: Searched) -> Iterable[str]:
    yield f"[{region.number}] region {region.key[:12]}: {region.equations} equations"
    yield from _sources(region.lines)
    if region.same_as is not None:
        yield f"    the same program as region [{region.same_as}]: {len(region.after)} kernels"
        return
    yield from _search(region)
    yield from _rules(region)
    if region.before and _differ(region.before, region.after):
        total = sum(p.predicted for p in region.before)
        yield f"    plan as traced: {len(region.before)} kernels, predicted {seconds(total)}"
        yield from tree(region.before, "      ", details=False)
        yield f"    plan as chosen: {len(region.after)} kernels"
    yield from tree(region.after, "    ", details=True)
    for measured in region.report.measured:
        yield (
            f"    measured {measured.kernel}: {seconds(measured.chosen)} with "
            f"{measured.schedule or 'the default schedule'} ({seconds(measured.default)} before), "
            f"{measured.tried} tried, {measured.refused} refused by verification"
        )


def _search(region: Searched) -> Iterable[str]:
    report = region.report
    yield f"    {origin(region)}; predicted {seconds(report.cost)}"
    if report.traced_cost > report.cost:
        yield f"    as traced it was predicted at {seconds(report.traced_cost)}"
    if report.sizes:
        steps = " -> ".join(map(str, report.sizes))
        end = "nothing more to add" if report.saturated else "stopped"
        yield f"    e-graph: {steps} e-nodes ({end}); {report.evaluations} plans priced"
    if report.seconds:
        parts = ", ".join(f"{n} {seconds(t)}" for n, t in report.seconds)
        yield f"    time: {parts}"
    if region.truncated:
        yield "    the search was stopped by the clock: another run may find another plan"
    for refusal in report.rejects:
        yield f"    rejected by lowering, split: {refusal}"
    for buffer in report.fallbacks:
        yield f"    fallback: {buffer} is computed by the scalar program"


def origin(region: Searched) -> str:
    """Where the plan came from."""
    if region.report.searching:
        return "planned as traced; a thread searches for the next process"
    if region.report.cached:
        return "plan from the cache"
    return "searched now" if region.report.sizes else "planned as traced"


def _rules(region: Searched) -> Iterable[str]:
    if not region.rules:
        yield "    rules fired: none"
        return
    used = [r.name for r in region.rules if r.used]
    yield "    rules fired: " + ", ".join(f"{r.name} x{r.count}" for r in region.rules)
    if region.report.used is not None:
        yield f"    rules that the plan is owed to: {', '.join(used) or 'none'}"
    if region.report.rule_seconds:
        parts = ", ".join(f"{n} {seconds(t)}" for n, t in region.report.rule_seconds)
        yield f"    time of rules: {parts}"


def _differ(a: Sequence[Part], b: Sequence[Part]) -> bool:
    return [(p.program, p.terms) for p in a] != [(p.program, p.terms) for p in b]


def tree(parts: Sequence[Part], indent: str, details: bool) -> Iterable[str]:
    """Kernels in order, with what each computes."""
    for p in parts:
        jobs = f": {p.jobs} jobs" if p.jobs else ""
        yield f"{indent}kernel {', '.join(p.shapes)} <- {', '.join(p.reads) or 'nothing'}{jobs}"
        yield f"{indent}  {p.program}: {p.roles}; predicted {seconds(p.predicted)}"
        if details:
            yield from (f"{indent}    {line}" for line in p.terms)
        if p.rejected:
            yield (
                f"{indent}  REJECTED by verification, replaced by the scalar fallback: {p.rejected}"
            )


def memory(insight: Insight) -> Iterable[str]:
    """What is held in memory, at the step that holds most."""
    line = insight.timeline
    sizes = line.sizes()
    if not sizes:
        return
    top = max(range(len(sizes)), key=lambda k: sizes[k])
    yield (
        f"memory: peak {size(sizes[top])} at step {top + 1} of {len(sizes)} ({line.steps[top]}), "
        f"{size(line.allocated())} allocated"
    )
    for where, amount in line.by_line(top)[:_LINES]:
        yield f"    {size(amount):>10}  {where or 'no line'}"


def _sources(lines: Sequence[Line]) -> Iterable[str]:
    for line in lines[:_LINES]:
        yield f"    {line} | {line.code}"
    if len(lines) > _LINES:
        yield f"    ... and {len(lines) - _LINES} more lines"
