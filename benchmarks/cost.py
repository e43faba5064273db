"""The cost model against the clock: many plans of the table's programs, predicted and measured.

`python -m benchmarks cost` prints the rank correlation for each program, over all pairs, and over
those held out, and writes `cost.json` and `cost.png`. No pair has any part in the constants of the
model: those come from the kernels of `lumjax/calibration.py` alone. What the model counts was
decided with an eye on kernels of the programs in SEEN; the others are held out altogether.

Seconds are CPU time of one thread. The plans of one program and size take turns; their medians
count, so that other processes disturb all of them alike.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lumjax
from benchmarks.plans import Variant, predicted, regions, variants
from benchmarks.programs import PROGRAMS, Program
from lumjax.cpu.objects import host_target
from lumjax.egraph.cost import Machine, machine
from lumjax.native import all_checked
from lumjax.profile import Runner
from lumjax.target import Target

SEEN = (
    "softmax",
    "log_softmax",
    "logsumexp",
    "layer norm",
    "rms norm",
    "layer norm backward",
    "rms norm backward",
    "gelu(x@W+b)",
    "(A@B)@v",
    "attention backward",
    "integer labels",
    "integer labels backward",
    "linear and labels",
    "contrastive",
    "convolution",
    "convolution dX",
    "convolution dW",
)
ROUNDS = 5
LEAST = 2e-4  # seconds of one measurement: shorter plans are repeated
MOST = 1.5  # seconds for all rounds of one region
LONGEST = 0.5  # a plan slower than this is measured but once


@dataclass(frozen=True)
class Pair:
    """One plan: its predicted and measured seconds."""

    program: str
    size: int
    region: int
    plan: str
    kernels: tuple[str, ...]
    predicted: float
    measured: float


def sizes(program: Program) -> list[int]:
    """The sizes at which a program's plans are measured: the small one, and halfway to the large
    one in ratio.
    """
    middle = (program.small * program.large) ** 0.5
    return sorted({program.small, round(middle / 8) * 8})


def pairs(names: Sequence[str], model: Machine, target: Target) -> Iterable[Pair]:
    """Every plan of every size of the programs."""
    for name in names:
        for size in sizes(PROGRAMS[name]):
            f, args = PROGRAMS[name].build(size)
            for number, region in enumerate(regions(f, *args)):
                made = variants(region, target, model)
                for variant, seconds in zip(made, measured(made, target), strict=True):
                    yield Pair(
                        name,
                        size,
                        number,
                        variant.name,
                        tuple("+".join(k.programs) for k in variant.kernels),
                        predicted(variant.planned, model),
                        seconds,
                    )


def measured(made: Sequence[Variant], target: Target) -> list[float]:
    """CPU seconds of one run of each plan on one thread."""
    with lumjax.config.scope(verify=False):
        runners = [Runner(all_checked(v.kernels, v.groups, target), target, sets=1) for v in made]
    return taking_turns(runners)


def taking_turns(runners: Sequence[Callable[[], None]], most: float = MOST) -> list[float]:
    """Median CPU seconds of each."""
    guess = [own(r, 1) for r in runners for _ in range(2)][1::2]
    counts = [max(1, int(LEAST / max(g, 1e-7))) for g in guess]
    total = sum(g * n for g, n in zip(guess, counts, strict=True))
    rounds = max(3, min(ROUNDS, int(most / max(total, 1e-6))))
    taken: list[list[float]] = [[] for _ in runners]
    for _ in range(rounds):
        for seconds, run, n, g in zip(taken, runners, counts, guess, strict=True):
            if not seconds or g < LONGEST:
                seconds.append(own(run, n))
    return [statistics.median(s) for s in taken]


def own(run: Callable[[], None], times: int) -> float:
    """CPU seconds of a run on this thread."""
    started = time.thread_time_ns()
    for _ in range(times):
        run()
    return (time.thread_time_ns() - started) * 1e-9 / times


# ---- judging


def ranks(values: Sequence[float]) -> np.ndarray[Any, Any]:
    """Ranks from 0; equal values share the mean of theirs."""
    array = np.asarray(values, np.float64)
    _, where, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + last - 1) / 2)[where]


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation, nan where one side does not vary."""
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / scale if scale else float("nan")


def report(found: Sequence[Pair]) -> dict[str, float]:
    """Print the correlations; also returned, over several programs as 'held out' and 'all'."""
    result: dict[str, float] = {}
    for name in dict.fromkeys(p.program for p in found):
        mine = [p for p in found if p.program == name]
        result[name] = spearman([p.predicted for p in mine], [p.measured for p in mine])
        ratios = sorted(p.measured / p.predicted for p in mine)
        print(
            f"{name:30s} {len(mine):3d} pairs  rank correlation {result[name]:6.3f}"
            f"  measured / predicted {ratios[0]:5.2f} {statistics.median(ratios):5.2f}"
            f" {ratios[-1]:5.2f}"
        )
    for name, mine in (("held out", held_out(found)), ("all", found)):
        result[name] = spearman([p.predicted for p in mine], [p.measured for p in mine])
        print(f"{name:30s} {len(mine):3d} pairs  rank correlation {result[name]:6.3f}")
    best = chosen(found)
    print(
        f"the plan predicted cheapest takes {best['median']:.2f} x the time of the fastest in the"
        f" median, at most 1.1 x\nin {best['near']:.0%} of {best['choices']:.0f} choices,"
        f" {best['worst']:.2f} x in the worst"
    )
    return result


def held_out(found: Sequence[Pair]) -> list[Pair]:
    """The pairs of programs that the model has never seen."""
    return [p for p in found if p.program not in SEEN]


def chosen(found: Sequence[Pair]) -> dict[str, float]:
    """How much slower than the fastest plan the one predicted cheapest is, per program and size."""
    groups: dict[tuple[str, int, int], list[Pair]] = {}
    for p in found:
        groups.setdefault((p.program, p.size, p.region), []).append(p)
    ratios = [
        min(mine, key=lambda p: p.predicted).measured / min(p.measured for p in mine)
        for mine in groups.values()
        if len(mine) > 1
    ]
    near = sum(r <= 1.1 for r in ratios) / len(ratios)
    return {
        "median": statistics.median(ratios),
        "near": near,
        "worst": max(ratios),
        "choices": len(ratios),
    }


def picture(found: Sequence[Pair], result: dict[str, float], path: Path) -> None:
    """The pairs as a scatter plot."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 7), dpi=110)
    names = list(dict.fromkeys(p.program for p in found))
    colours = plt.get_cmap("tab20")(np.linspace(0, 1, len(names)))
    marks = "osD^v<>P*X"
    for k, name in enumerate(names):
        mine = [p for p in found if p.program == name]
        axes.scatter(
            [p.predicted * 1e3 for p in mine],
            [p.measured * 1e3 for p in mine],
            s=16,
            color=colours[k],
            alpha=0.4 if name in SEEN else 1.0,
            marker=marks[k % len(marks)],
            label=name,
        )
    ends = [min(p.predicted for p in found) * 1e3, max(p.predicted for p in found) * 1e3]
    axes.plot(ends, ends, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="predicted, ms", ylabel="measured, ms of CPU time")
    held = len(held_out(found))
    axes.set_title(
        f"{held} held-out plans: rank correlation {result['held out']:.3f};"
        f" all {len(found)}: {result['all']:.3f}",
        fontsize=10,
    )
    axes.legend(fontsize=6, ncols=2)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def write(found: Sequence[Pair], target: Target, out: str) -> None:
    """Print the correlations, and write JSON and the picture."""
    result = report(found)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "target": target.key,
        "load average": os.getloadavg(),
        "rank correlation": result,
        "choices": chosen(found),
        "pairs": [asdict(p) for p in found],
    }
    (folder / "cost.json").write_text(json.dumps(content, indent=1))
    picture(found, result, folder / "cost.png")


def main(out: str, names: tuple[str, ...] = ()) -> None:
    """Measure, print, write."""
    target = host_target()
    model = machine(target)
    # A step over many arrays is many small regions that are alike: they would outweigh the rest.
    several = [n for n, p in PROGRAMS.items() if not p.by_launches]
    taken = [n for n in several if not names or any(x in n for x in names)]
    found: list[Pair] = []
    for pair in pairs(taken, model, target):
        found.append(pair)
        print(
            f"  {pair.program} {pair.size} [{pair.plan}] {' '.join(pair.kernels)}:"
            f" {pair.predicted * 1e3:.4f} ms predicted, {pair.measured * 1e3:.4f} ms measured",
            flush=True,
        )
    write(found, target, out)
