"""The race's results as text, as a table in Markdown, and as charts."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.race.contest import Entry, Result

OURS = "lumjax"


def line(result: Result) -> str:
    """One row, as it is printed while the race goes on."""
    parts = [f"{result.row:34s} {result.threads}"]
    for peer, entry in result.entries.items():
        if not entry.seconds:
            if entry.why.startswith("failed"):
                parts.append(f"{peer} {entry.why}")
            continue
        mark = "" if result.right(peer) else "!"
        parts.append(f"{peer} {_time(entry.median)}{mark}")
    best = ratio(result)
    if best is not None:
        parts.append(f"= {best[0]:.2f} x {best[1]}")
    return "  ".join(parts)


def ratio(result: Result) -> tuple[float, str] | None:
    """How many times the seconds of lumjax the fastest of the others takes that came out right, and
    which that is.
    """
    if not result.right(OURS):
        return None
    others = {p: e.median for p, e in result.entries.items() if p != OURS and result.right(p)}
    if not others:
        return None
    best = min(others, key=lambda p: others[p])
    return others[best] / result.entries[OURS].median, best


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1 or unit == "us":
            return f"{seconds * scale:.3g} {unit}"
    raise AssertionError


def _cell(result: Result, peer: str) -> str:
    entry = result.entries.get(peer, Entry())
    if not entry.seconds:
        return "failed" if entry.why.startswith("failed") else ""
    low, high = min(entry.seconds), max(entry.seconds)
    spread = f" ±{50 * (high - low) / entry.median:.0f}%"
    return _time(entry.median) + spread + ("" if result.right(peer) else " (wrong)")


def markdown(results: Sequence[Result], peers: Sequence[str]) -> str:
    """A table per number of threads."""
    text: list[str] = []
    for threads in dict.fromkeys(r.threads for r in results):
        mine = [r for r in results if r.threads == threads]
        text += [f"\n### {threads} thread{'s' if threads > 1 else ''}\n"]
        heads = ["row", *peers, "best peer / lumjax", "of the roof", "first call, s", "held, MB"]
        text += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        for r in mine:
            best = ratio(r)
            e = r.entries.get(OURS, Entry())
            share = f"{r.least / e.median:.0%}" if e.seconds and r.least else ""
            cells = [
                r.row,
                *(_cell(r, p) for p in peers),
                "" if best is None else f"{best[0]:.2f} ({best[1]})",
                share,
                f"{e.compiled:.2f}" if e.seconds else "",
                f"{e.held / 2**20:.1f}" if e.seconds else "",
            ]
            text.append(f"| {' | '.join(cells)} |")
        text += ["", *summary(mine)]
    return "\n".join(text) + "\n"


def summary(results: Sequence[Result]) -> list[str]:
    """Of each group: the geometric mean of the ratios, and the rows below 1."""
    text: list[str] = []
    for group in dict.fromkeys(r.group for r in results):
        found = {r.row: b[0] for r in results if r.group == group and (b := ratio(r))}
        if found:
            mean = statistics.geometric_mean(found.values())
            below = [f"{n} {v:.2f}" for n, v in found.items() if v < 1]
            text.append(
                f"- {group}: {mean:.2f} x the best peer (geometric mean of {len(found)});"
                f" below 1: {', '.join(below) or 'none'}"
            )
    return text


def charts(results: Sequence[Result], peers: Sequence[str], folder: Path) -> list[Path]:
    """A bar chart per group and number of threads: seconds as multiples of lumjax's."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no charts: matplotlib is not installed")
        return []
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    drawn: list[Path] = []
    for group in dict.fromkeys(r.group for r in results):
        for threads in dict.fromkeys(r.threads for r in results):
            mine = [r for r in results if r.group == group and r.threads == threads]
            mine = [r for r in mine if r.right(OURS)]
            if not mine:
                continue
            figure, axes = plt.subplots(figsize=(9, 1.2 + 0.42 * len(mine)), dpi=110)
            height = 0.8 / len(peers)
            for k, peer in enumerate(peers):
                places = [n + k * height for n, r in enumerate(mine) if r.right(peer)]
                values = [
                    r.entries[peer].median / r.entries[OURS].median for r in mine if r.right(peer)
                ]
                axes.barh(places, values, height, label=peer)
            axes.set_yticks([n + 0.4 for n in range(len(mine))], [r.row for r in mine], fontsize=7)
            axes.invert_yaxis()
            axes.set(xscale="log", xlabel="seconds, as multiples of lumjax's")
            axes.axvline(1.0, color="black", linewidth=0.6)
            axes.legend(fontsize=7, ncols=3)
            axes.set_title(f"{group}, {threads} thread{'s' if threads > 1 else ''}", fontsize=9)
            figure.tight_layout()
            drawn.append(folder / f"race_{group}_{threads}.png")
            figure.savefig(drawn[-1])
            plt.close(figure)
    return drawn
