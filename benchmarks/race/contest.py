"""Runs the race: each peer in a process of its own, all taking turns, medians of rounds.

For each row every peer gives the results of its first calls, which are compared with JAX in
float64; the seconds of its first call, with empty caches; the most memory that a call held; and
seconds per call, A B A B, on so many threads. `fresh` is the same with all results kept, so that
each takes memory that nobody had before.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race.peer import JUDGE, installed, serve, settings
from benchmarks.race.roofline import Roof, roof
from benchmarks.race.rows import ROWS

SAMPLE = 0.02  # seconds that one turn takes at least
BUDGET = 6.0  # seconds for all turns of one row, but at least THREE
ROUNDS, THREE = 9, 3
KEPT = 1 << 30  # bytes of results that are kept at most, of one peer
PATIENCE = 600.0  # seconds until a peer that does not answer is given up


@dataclass
class Entry:
    """What one peer did on one row. `error` is relative to the largest value of each result."""

    seconds: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    compiled: float = 0.0
    held: int = 0
    error: float | None = None
    why: str = ""

    @property
    def median(self) -> float:
        """Seconds of a call."""
        return statistics.median(self.seconds)


@dataclass
class Result:
    """A row on so many threads: `least` is what the roofs allow, in seconds."""

    row: str
    group: str
    threads: int
    limit: float
    least: float
    entries: dict[str, Entry]

    def right(self, peer: str) -> bool:
        """Whether a peer ran the row and came out right."""
        e = self.entries.get(peer)
        return e is not None and bool(e.seconds) and e.error is not None and e.error <= self.limit


class Seat:
    """The other end of a peer's process; started anew if it dies or takes longer than its patience.
    A `kind` other than Stand is what answers in it.
    """

    def __init__(
        self,
        peer: str,
        threads: int,
        scratch: str,
        kind: type | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.peer, self.threads, self.scratch = peer, threads, scratch
        self.kind, self.patience = kind, patience
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        before = dict(os.environ)
        os.environ.update(settings(self.peer, self.threads, self.scratch))
        try:
            self.process = context.Process(
                target=serve, args=(self.peer, self.threads, theirs, self.kind), daemon=False
            )
            self.process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        theirs.close()

    def ask(self, *request: Any) -> tuple[Any, str | None]:
        """The answer to a request, and what went wrong."""
        try:
            self.connection.send(request)
            if self.connection.poll(self.patience):
                return self.connection.recv()
            why = f"no answer in {self.patience:.0f} s"
        except (EOFError, OSError):
            why = "its process died"
        self.close()
        self._start()
        return None, f"failed: {why}"

    def close(self) -> None:
        """End the process."""
        try:
            self.connection.send(None)
            self.process.join(5)
        except OSError:
            pass
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


@contextmanager
def seated(
    peers: Sequence[str], threads: int, kind: type | None = None, patience: float = PATIENCE
) -> Iterator[dict[str, Seat]]:
    """The peers' processes."""
    with ExitStack() as stack:
        seats: dict[str, Seat] = {}
        for peer in peers:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            seats[peer] = Seat(peer, threads, folder, kind, patience)
            stack.callback(seats[peer].close)
        yield seats


def compete(
    number: int, seats: dict[str, Seat], threads: int, top: Roof, clock: str = "wall"
) -> Result:
    """One row: build everywhere, compare, take turns."""
    row = ROWS[number]
    truth, why = seats[JUDGE].ask("build", number)
    seats[JUDGE].ask("drop")
    entries: dict[str, Entry] = {}
    for peer, seat in seats.items():
        if peer != JUDGE:
            entries[peer] = _entered(seat, number, None if why else truth[1])
    ready = {p: seats[p] for p, e in entries.items() if not e.why}
    for peer, seconds in _turns(ready, False, clock).items():
        entries[peer].seconds = seconds
    if row.fresh:
        for peer, seconds in _turns(ready, True, clock).items():
            entries[peer].fresh = seconds
    for seat in ready.values():
        seat.ask("drop")
    least = top.seconds(row.moved, row.flops)
    return Result(row.name, row.group, threads, row.limit, least, entries)


def _entered(seat: Seat, number: int, truth: list[list[np.ndarray]] | None) -> Entry:
    found, why = seat.ask("build", number)
    if why is not None:
        seat.ask("drop")
        return Entry(why=why or "not written")
    seconds, results, held = found
    error = None if truth is None else difference(results, truth)
    return Entry(compiled=seconds, held=held, error=error)


def difference(got: list[list[np.ndarray]], want: list[list[np.ndarray]]) -> float:
    """The largest difference of all results, each relative to its largest value."""
    worst = 0.0
    for mine, theirs in zip(got, want, strict=True):
        if len(mine) != len(theirs):
            return float("inf")
        for a, b in zip(mine, theirs, strict=True):
            if a.shape != b.shape:
                return float("inf")
            scale = max(float(np.max(np.abs(b), initial=0.0)), 1e-30)
            off = float(np.max(np.abs(a - b), initial=0.0)) / scale
            worst = max(worst, off if np.isfinite(off) else float("inf"))
    return worst


def _turns(seats: dict[str, Seat], keep: bool, clock: str) -> dict[str, list[float]]:
    """Seconds per call of each peer in each round."""
    guess = {p: s.ask("sample", 1, keep, "wall")[0] or 1.0 for p, s in seats.items()}
    if keep:
        repeat = dict.fromkeys(seats, 3)
    else:
        repeat = {p: max(1, min(100_000, round(SAMPLE / max(g, 1e-7)))) for p, g in guess.items()}
    total = sum(guess[p] * repeat[p] for p in seats)
    rounds = int(min(ROUNDS, max(THREE, BUDGET / max(total, 1e-6))))
    times: dict[str, list[float]] = {p: [] for p in seats}
    for turn in range(rounds + 1):
        for peer, seat in seats.items():
            seconds, why = seat.ask("sample", repeat[peer], keep, clock)
            if turn and why is None:  # the first is to warm up
                times[peer].append(seconds)
    return times


def chosen_rows(words: Sequence[str]) -> list[int]:
    """The numbers of the rows with one of the words in their name or group; all without words."""
    return [
        k
        for k, r in enumerate(ROWS)
        if not words or any(w in r.name or w == r.group for w in words)
    ]


def run(
    words: Sequence[str], peers: Sequence[str], threads: Sequence[int], clock: str = "wall"
) -> Iterator[tuple[Result, Roof]]:
    """Every chosen row on every number of threads, and the roofs measured beside it."""
    present = [p for p in peers if installed(p)]
    for peer in peers:
        if peer not in present:
            print(f"{peer}: not installed, left out")
    if not installed(JUDGE):
        raise SystemExit("the results are compared with JAX in float64: pip install jax")
    for count in threads:
        top = roof(count)
        print(
            f"{count} threads: copies {top.bandwidth / 1e9:.1f} GB/s, multiplies"
            f" {top.flops / 1e9:.1f} Gflop/s"
        )
        with seated([*present, JUDGE], count) as seats:
            for number in chosen_rows(words):
                yield compete(number, seats, count, top, clock), top


def written(results: Sequence[Result], roofs: dict[int, Roof], folder: Path) -> None:
    """All of it as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "load average": os.getloadavg(),
        "roofs": {str(n): asdict(r) for n, r in roofs.items()},
        "results": [asdict(r) for r in results],
    }
    (folder / "race.json").write_text(json.dumps(content, indent=1))
