"""A report as one HTML page: no scripts, no other files; what users wrote is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from lumjax.report import svg
from lumjax.report.text import origin, parts_words
from lumjax.report.units import seconds, size

if TYPE_CHECKING:
    from lumjax.insight import Alone, Insight, Line, Looped, Part, Searched

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5c6675;--line:#d5dae1;--back:#fff;
--tint:#f4f6f9;--accent:#2f6fd6;--warm:#d9622b}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa4b2;--line:#39424f;--back:#14181e;
--tint:#1d232b;--accent:#7aa7f0;--warm:#ef8f5f}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:0 auto;
max-width:72rem;padding:1.5rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}h3{font-size:1rem;margin:1rem 0 .25rem}
pre,code,td.code{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--tint);padding:.75rem;overflow-x:auto;border-radius:6px}
table{border-collapse:collapse;margin:.5rem 0}td,th{padding:.2rem .8rem .2rem 0;text-align:left;
border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--soft);font-weight:500}
td.n{text-align:right;font-variant-numeric:tabular-nums}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}.soft{color:var(--soft)}.bad{color:var(--warm);font-weight:600}
.scroll{overflow-x:auto}svg{max-width:none}svg text{font:11px ui-monospace,Menlo,monospace;
fill:var(--ink)}svg text.strong{font-weight:700}svg text.buffer{fill:var(--soft)}
svg .axis{fill:none;stroke:var(--line)}svg .line{fill:none;stroke:var(--accent);stroke-width:2}
svg circle,svg .bar{fill:var(--accent)}svg .peak{fill:var(--warm)}
svg .edge{fill:none;stroke:var(--soft)}svg .box{fill:var(--tint);stroke:var(--accent)}
svg .rejected{stroke:var(--warm);stroke-width:2}
.old{color:var(--warm)}.new{color:var(--accent)}
"""


def page(title: str, body: Iterable[str]) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def framed(page: str) -> str:
    """A whole document inside another one, with a style of its own, for a notebook."""
    return (
        '<iframe style="width:100%;height:36rem;border:0" sandbox '
        f'srcdoc="{escape(page)}"></iframe>'
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table of texts, escaped here."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    lines = [
        "<tr>"
        + "".join(
            f'<td class="n">{escape(c)}</td>' if k in numbers else f"<td>{escape(c)}</td>"
            for k, c in enumerate(row)
        )
        + "</tr>"
        for row in rows
    ]
    return f'<div class="scroll"><table><tr>{top}</tr>{"".join(lines)}</table></div>'


def details(title: str, content: str, opened: bool = False) -> str:
    """A part that folds away; `title` is escaped here, `content` is HTML."""
    mark = " open" if opened else ""
    return f"<details{mark}><summary>{escape(title)}</summary>{content}</details>"


def report(name: str, insight: Insight) -> str:
    """The whole report."""
    return page(f"explain {name}", _report(name, insight))


def _report(name: str, insight: Insight) -> Iterable[str]:
    yield f"<h1>explain <code>{escape(name)}</code></h1>"
    yield f'<p class="soft">{escape(insight.machine)}</p>'
    yield table(("", ""), _summary(insight))
    yield "<h2>Memory</h2>"
    yield from _memory(insight)
    yield "<h2>Traced program</h2>"
    rows = [
        (s.text, f"{s.line}" if s.line else "", s.line.code if s.line else "")
        for s in insight.program
    ]
    yield details(f"{len(rows)} equations", _program(insight.head, rows, insight.tail))
    yield "<h2>Stages</h2>"
    regions = {r.number: r for r in insight.regions}
    loops = {x.number: x for x in insight.loops}
    alone = {a.number: a for a in insight.alone}
    for number in range(len(insight.stages)):
        if number in regions:
            yield _region(regions[number])
        else:
            yield _loop(loops[number]) if number in loops else _alone(alone[number])


def _summary(insight: Insight) -> Iterable[tuple[str, str]]:
    regions, line = insight.regions, insight.timeline
    yield "regions", f"{len(regions)} ({sum(r.same_as is not None for r in regions)} repeated)"
    yield "kernels", str(insight.kernels)
    yield "loops and choices", str(len(insight.loops))
    yield "equations run by eval", str(len(insight.alone))
    yield "predicted", f"{seconds(insight.predicted)} a run"
    yield "prepared in", seconds(insight.seconds)
    yield "plans from the cache", f"{sum(r.report.cached for r in regions)} of {len(regions)}"
    yield "peak memory", f"{size(line.peak())}, {size(line.allocated())} allocated"
    if insight.again:
        yield "computed again rather than kept", f"{insight.again} values"
    b = insight.budget
    memory = f", at most {size(b.memory)}" if b.memory else ""
    measured = ", kernels measured" if b.profile else ""
    yield (
        "budget of a region",
        f"{b.evaluations} plans, {b.seconds:g} s, seed {b.seed}{memory}{measured}",
    )


def _program(head: str, rows: Sequence[tuple[str, str, str]], tail: str) -> str:
    lines = [
        f'<tr><td class="code">{_code(t)}</td><td class="code soft">{escape(w)}</td>'
        f'<td class="code soft">{escape(c)}</td></tr>'
        for t, w, c in rows
    ]
    return (
        f'<pre>{escape(head)}</pre><div class="scroll"><table>{"".join(lines)}</table></div>'
        f"<pre>{escape(tail)}</pre>"
    )


def _code(text: str) -> str:
    return escape(text).replace("\n", "<br>").replace("  ", "&nbsp; ")


def _memory(insight: Insight) -> Iterable[str]:
    line = insight.timeline
    sizes = line.sizes()
    if not sizes:
        yield '<p class="soft">Nothing is planned.</p>'
        return
    yield f'<div class="scroll">{svg.memory(line)}</div>'
    top = max(range(len(sizes)), key=lambda k: sizes[k])
    rows = [(size(n), where or "no line") for where, n in line.by_line(top)]
    yield f"<p>At the peak, step {top + 1} ({escape(line.steps[top])}):</p>"
    yield table(("bytes", "line"), rows, numbers=(0,))
    live = [(size(x.size), x.name, x.place.value, x.line) for x in line.live(top)[:200]]
    yield details(
        "Buffers alive at the peak", table(("bytes", "buffer", "place", "line"), live, (0,))
    )


def _loop(stage: Looped) -> str:
    title = f"[{stage.number}] {stage.primitive} within the native call: {stage.says}"
    parts = [(name, parts_words(numbers)) for name, numbers in stage.parts]
    return details(title, _lines(stage.lines) + table(("part", "stages"), parts), opened=True)


def _alone(stage: Alone) -> str:
    title = f"[{stage.number}] eval: {stage.primitive}: {stage.why}"
    return details(title, _lines(stage.lines))


def _lines(lines: Sequence[Line]) -> str:
    return table(("line", "source"), ((str(x), x.code) for x in lines))


def _region(region: Searched) -> str:
    title = (
        f"[{region.number}] region {region.key[:12]}: {region.equations} equations, "
        f"{len(region.after)} kernels, {seconds(region.report.cost)}"
    )
    if region.same_as is not None:
        same = f"<p>The same program as region [{region.same_as}].</p>"
        return details(title, same + _lines(region.lines))
    return details(title, "\n".join(_parts(region)), opened=True)


def _parts(region: Searched) -> Iterable[str]:
    report = region.report
    yield f"<p>{escape(origin(region))}; predicted {seconds(report.cost)}"
    if report.traced_cost > report.cost:
        yield f", as traced {seconds(report.traced_cost)}"
    yield ".</p>"
    if region.truncated:
        yield (
            '<p class="bad">The search was stopped by the clock: another run may find another '
            "plan.</p>"
        )
    yield details(f"{len(region.lines)} lines of the program", _lines(region.lines))
    yield from _plans(region)
    yield from _kernels(region)
    yield from _search(region)
    refused = [(r,) for r in report.rejects] + [
        (f"{f}: scalar fallback",) for f in report.fallbacks
    ]
    if refused:
        yield details(f"{len(refused)} rejected by lowering", table(("what, and why",), refused))


def _plans(region: Searched) -> Iterable[str]:
    same = [(p.program, p.terms) for p in region.before] == [
        (p.program, p.terms) for p in region.after
    ]
    if region.before and not same:
        total = sum(p.predicted for p in region.before)
        yield f"<h3>Plan as traced: {len(region.before)} kernels, {seconds(total)}</h3>"
        yield f'<div class="scroll">{svg.plan(region.before, "the plan as traced")}</div>'
    yield f"<h3>Plan as chosen: {len(region.after)} kernels</h3>"
    yield f'<div class="scroll">{svg.plan(region.after, "the plan as chosen")}</div>'


def _kernels(region: Searched) -> Iterable[str]:
    for p in region.after:
        yield details(f"{p.program}: {', '.join(p.shapes)}", _kernel(p))
    measured = [
        (
            m.kernel,
            seconds(m.default),
            seconds(m.chosen),
            m.schedule or "as it was",
            str(m.tried),
            str(m.refused),
        )
        for m in region.report.measured
    ]
    if measured:
        head = ("kernel", "measured at first", "as chosen", "schedule", "tried", "refused")
        yield table(head, measured, numbers=(1, 2, 4, 5))


def _kernel(p: Part) -> str:
    rows = [
        ("reads", ", ".join(p.reads) or "nothing"),
        ("axes", p.roles),
        ("jobs", p.jobs),
        ("predicted", seconds(p.predicted)),
    ]
    bad = (
        f'<p class="bad">Rejected by verification, replaced by the scalar fallback: '
        f"{escape(p.rejected)}</p>"
        if p.rejected
        else ""
    )
    return table(("", ""), rows) + bad + f"<pre>{escape(chr(10).join(p.terms))}</pre>"


def _search(region: Searched) -> Iterable[str]:
    report = region.report
    if report.sizes:
        yield f"<h3>E-graph: {report.sizes[-1]} nodes, {report.evaluations} plans priced</h3>"
        graph = svg.curve(report.sizes, "size of the e-graph after each iteration", "e-nodes")
        yield f'<div class="scroll">{graph}</div>'
    if region.rules:
        rows = [
            (
                r.name,
                r.ruleset,
                r.kind,
                str(r.count),
                {True: "yes", False: "", None: "?"}[r.used],
                r.says,
            )
            for r in region.rules
        ]
        head = ("rule", "set", "class", "fired", "plan owed to it", "says")
        used = sum(bool(r.used) for r in region.rules)
        title = f"{len(rows)} rules fired, {used} of them lead to the plan"
        yield details(title, table(head, rows, numbers=(3,)), opened=True)
    times = [(n, seconds(t)) for n, t in (*report.seconds, *report.rule_seconds)]
    if times:
        yield details("Time of the search", table(("stage or ruleset", "time"), times, (1,)))


def comparison(
    names: tuple[str, str],
    rows: Sequence[Sequence[str]],
    rules: tuple[Sequence[str], Sequence[str]],
    difference: Sequence[str],
) -> str:
    """Two reports side by side."""
    first, second = names
    body = [
        f"<h1><code>{escape(first)}</code> against <code>{escape(second)}</code></h1>",
        table(("", first, second, ""), rows, numbers=(1, 2, 3)),
    ]
    for name, only in zip(names, rules, strict=True):
        if only:
            listing = escape(", ".join(only))
            body.append(f"<p>Rules only in <code>{escape(name)}</code>: {listing}</p>")
    body.append("<h2>Kernels</h2>")
    marked = [
        f'<span class="{"new" if line[:1] == "+" else "old"}">{escape(line)}</span>'
        if line[:1] in ("+", "-")
        else escape(line)
        for line in difference
    ]
    body.append(f"<pre>{chr(10).join(marked) or 'the same'}</pre>")
    return page(f"{first} against {second}", body)
