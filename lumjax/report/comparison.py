"""Two reports side by side: what the second does differently."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lumjax.record import record
from lumjax.report import html
from lumjax.report.units import change, seconds, size

if TYPE_CHECKING:
    from lumjax.insight import Insight


@record
class Row:
    """One compared number."""

    what: str
    first: str
    second: str
    ratio: str


@record(eq=False, repr=False)
class Comparison:
    """Two reports, the first as the measure of the second; `print` it or `save` it."""

    first_name: str
    first: Insight
    second_name: str
    second: Insight

    @property
    def names(self) -> tuple[str, str]:
        """What the two are called, told apart."""
        a, b = self.first_name, self.second_name
        return (f"{a} (1)", f"{b} (2)") if a == b else (a, b)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def rows(self) -> list[Row]:
        """The compared numbers."""
        a, b = self.first, self.second
        found = [
            _count("regions", len(a.regions), len(b.regions)),
            _count("kernels", a.kernels, b.kernels),
            _count("loops and choices", len(a.loops), len(b.loops)),
            _count("by eval", len(a.alone), len(b.alone)),
        ]
        found.append(_measure("predicted", seconds, a.predicted, b.predicted))
        found.append(_measure("peak memory", size, a.timeline.peak(), b.timeline.peak()))
        found.append(_measure("memory between kernels", size, a.arena, b.arena))
        found.append(_measure("prepared in", seconds, a.seconds, b.seconds))
        x, y = _programs(a), _programs(b)
        return found + [_count(name, x[name], y[name]) for name in sorted({*x, *y})]

    def rules(self) -> tuple[list[str], list[str]]:
        """Rules that fired in the first only, and in the second only."""
        a, b = (
            dict.fromkeys(r.name for region in i.regions for r in region.rules)
            for i in (self.first, self.second)
        )
        return [n for n in a if n not in b], [n for n in b if n not in a]

    def difference(self) -> list[str]:
        """The kernels of both as a unified diff."""
        return list(
            difflib.unified_diff(
                kernels(self.first), kernels(self.second), *self.names, lineterm="", n=2
            )
        )  # fmt: skip

    @property
    def text(self) -> str:
        """The comparison as text."""
        table = [("", *self.names, "")]
        table += [(r.what, r.first, r.second, r.ratio) for r in self.rows()]
        widths = [max(len(row[k]) for row in table) for k in range(4)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        for name, rules in zip(self.names, self.rules(), strict=True):
            if rules:
                lines.append(f"only in {name}: rules {', '.join(rules)}")
        different = self.difference()
        lines += ["", *(different or ["the kernels are the same"])]
        return "\n".join([" against ".join(self.names), "", *lines])

    def html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The comparison as one HTML page, also written to `path` if given."""
        page = html.comparison(
            self.names,
            [(r.what, r.first, r.second, r.ratio) for r in self.rows()],
            self.rules(),
            self.difference(),
        )
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(page)
        return page

    def _repr_html_(self) -> str:
        """The page in a notebook."""
        return html.framed(self.html())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it: as HTML where the name ends in .html or .htm, else as text."""
        if str(os.fspath(path)).lower().endswith((".html", ".htm")):
            self.html(path)
            return
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text + "\n")


def _measure(what: str, unit: Callable[[float], str], a: float, b: float) -> Row:
    return Row(what, unit(a), unit(b), change(a, b))


def _count(what: str, a: int, b: int) -> Row:
    return Row(what, str(a), str(b), change(a, b))


def _programs(insight: Insight) -> Counter[str]:
    return Counter(f"{p.program} kernels" for r in insight.regions for p in r.after)


def kernels(insight: Insight) -> Sequence[str]:
    """A line for each kernel, and for each equation between them."""
    regions = {r.number: r for r in insight.regions}
    alone = {a.number: a for a in insight.alone}
    loops = {x.number: x for x in insight.loops}
    lines: list[str] = []
    for number in range(len(insight.stages)):
        if number in alone:
            lines.append(f"eval {alone[number].primitive}")
            continue
        if number in loops:
            lines.append(f"{loops[number].primitive}: {loops[number].says}")
            continue
        for p in regions[number].after:
            lines.append(f"{p.program} {', '.join(p.shapes)} <- {', '.join(p.reads)}")
            lines += [f"    {t}" for t in p.terms]
    return lines
