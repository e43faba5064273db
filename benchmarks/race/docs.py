"""The race's results in docs/race.md and, a line for each group, in the README."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.race.contest import Result
from benchmarks.race.roofline import Roof
from benchmarks.race.tables import ratio
from lumjax.cpu import objects

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE, CHARTS, README = ROOT / "docs" / "race.md", ROOT / "docs" / "race", ROOT / "README.md"


def into_docs(
    results: Sequence[Result], roofs: dict[int, Roof], text: str, drawn: Sequence[Path], clock: str
) -> None:
    """Replace what the pages say by these results."""
    CHARTS.mkdir(exist_ok=True)
    for old in CHARTS.glob("*.png"):
        old.unlink()
    pictures: list[str] = []
    for path in drawn:
        shutil.copy(path, CHARTS)
        pictures.append(f"![{path.stem}]({CHARTS.name}/{path.name})")
    _put(PAGE, "\n".join([machine(roofs, clock), text, *pictures]))
    _put(README, brief(results))


def machine(roofs: dict[int, Roof], clock: str) -> str:
    """Where this was measured, and how."""
    target = objects.host_target()
    can = "; ".join(
        f"{n} thread{'s' if n > 1 else ''}: copies {r.bandwidth / 1e9:.1f} GB/s, multiplies"
        f" {r.flops / 1e9:.0f} Gflop/s"
        for n, r in roofs.items()
    )
    time = "Processor time" if clock == "cpu" else "Time on the clock"
    return f"{time} on a shared machine ({target.arch}). {can}.\n"


def brief(results: Sequence[Result]) -> str:
    """A line for each group and number of threads."""
    lines = [
        "| rows | threads | best peer / lumjax | at least 1.0 | least |",
        "|---|---|---|---|---|",
    ]
    for group in dict.fromkeys(r.group for r in results):
        for threads in dict.fromkeys(r.threads for r in results):
            mine = [r for r in results if (r.group, r.threads) == (group, threads)]
            found = {r.row: b for r in mine if (b := ratio(r)) is not None}
            if not found:
                continue
            mean = statistics.geometric_mean(b[0] for b in found.values())
            least = min(found, key=lambda row: found[row][0])
            won = sum(b[0] >= 1 for b in found.values())
            lines.append(
                f"| {group} | {threads} | {mean:.2f} | {won} of {len(found)} |"
                f" {least}: {found[least][0]:.2f} ({found[least][1]}) |"
            )
    return "\n".join(lines)


def _put(page: Path, text: str) -> None:
    """Put the text between the page's marks."""
    before, start, rest = page.read_text(encoding="utf-8").partition("<!-- race -->\n")
    _, end, after = rest.partition("<!-- /race -->\n")
    if not start or not end:
        raise SystemExit(f"{page} has no place for the race's results")
    page.write_text(f"{before}{start}{text.rstrip()}\n{end}{after}", encoding="utf-8")
