"""Timing of alternatives in one process: A B A B, medians, and the spread."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path


def once(f: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    f()
    return time.perf_counter() - started


def interleaved(
    functions: dict[str, Callable[[], object]], rounds: int, repeat: int = 1
) -> dict[str, list[float]]:
    """Seconds of each function per round, the functions taking turns; first a round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(rounds + 1):
        for name, f in functions.items():
            seconds = once(lambda f=f: [f() for _ in range(repeat)]) / repeat
            if number:
                times[name].append(seconds)
    return times


def report(title: str, times: dict[str, list[float]], base: str, out: str, extra: dict) -> None:
    """Print medians, spreads and ratios to `base`, and save them as JSON."""
    medians = {n: statistics.median(t) for n, t in times.items()}
    print(title)
    for name, seconds in times.items():
        low, high = min(seconds), max(seconds)
        ratio = medians[name] / medians[base]
        print(
            f"  {name:<10} {medians[name] * 1e3:9.4f} ms"
            f"  ({low * 1e3:.4f} to {high * 1e3:.4f})  {ratio:.2f} x {base}"
        )
    for name, value in extra.items():
        print(f"  {name}: {value}")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"bench_{title.split()[0].lower()}.json"
    path.write_text(json.dumps({"median seconds": medians, "seconds": times, **extra}, indent=1))
