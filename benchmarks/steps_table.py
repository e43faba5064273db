"""The compiled steps of the example programs on lumjax and, the same source, on JAX and optax; some
of them as torch's users write them too (`benchmarks/steps_torch.py`), as it is and compiled.

    python -m benchmarks steps
    python -m benchmarks steps --only gpt rl --peers lumjax torch --gallery

Each peer is in a process of its own, on two threads. A step is first taken with empty caches, which
is its cold time, then the peers take turns. All begin with the same parameters, batches and random
draws, and one whose first losses are not lumjax's is left out, as is one that is not installed.
Prints a table, saves it as Markdown and JSON, and with `--gallery` puts it into docs/gallery.md.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race.contest import seated
from benchmarks.race.peer import installed
from benchmarks.steps import STEPS
from benchmarks.steps_peer import Stand

GALLERY = Path(__file__).resolve().parent.parent / "docs" / "gallery.md"
PEERS = ("lumjax", "jax", "torch", "torch.compile")
ROUNDS, THREADS = 11, 2
LOSSES, LIMIT = 3, 1e-3  # first losses that are compared; the largest relative difference
TURNS = 10.0  # seconds for all turns of one step, but at least three rounds
PATIENCE = 150.0  # seconds until a peer that does not answer is given up
ENOUGH = 400.0  # seconds of the whole after which no peer begins another step
PLAYED = ("rl", 256 * 32)  # a step that plays, and how many steps of carts it has


# ---- the measurement


def compete(name: str, seats: dict[str, Any], left: float, clock: str) -> dict[str, Any]:
    """What each peer does with a step: seconds of the first, of later ones, losses; or why not."""
    found: dict[str, Any] = {}
    until = time.monotonic() + left
    for peer, seat in seats.items():
        if time.monotonic() > until:
            found[peer] = {"why": "no time left"}
            continue
        answer, why = seat.ask("build", name, LOSSES)
        found[peer] = {"why": why or "not written"} if answer is None else _row(*answer)
    wanted = found["lumjax"].get("losses")
    for row in found.values():
        if wanted and "losses" in row and difference(row["losses"], wanted) > LIMIT:
            row["why"] = f"its losses are {row['losses']}, lumjax's {wanted}"
    ready = {peer: seats[peer] for peer, row in found.items() if "why" not in row}
    for peer, seconds in turns(ready, clock).items():
        found[peer]["seconds"] = seconds
    for seat in seats.values():
        seat.ask("drop")
    return found


def _row(cold: float, losses: list[float]) -> dict[str, Any]:
    return {"cold": cold, "losses": losses}


def difference(got: Sequence[float], want: Sequence[float]) -> float:
    """The largest one, relative; infinite where there is no number."""
    off = np.max(np.abs(np.subtract(got, want)) / np.abs(want))
    return float(off) if np.isfinite(off) else float("inf")


def turns(seats: dict[str, Any], clock: str) -> dict[str, list[float]]:
    """Seconds of the steps that the peers take in turn, after one to warm up."""
    times: dict[str, list[float]] = {peer: [] for peer in seats}
    started = time.monotonic()
    for number in range(ROUNDS + 1):
        if number > 3 and time.monotonic() - started > TURNS:
            break
        for peer, seat in seats.items():
            seconds, why = seat.ask("sample", clock)
            if number and why is None:
                times[peer].append(seconds)
    return times


# ---- the table


def table(found: dict[str, Any], peers: Sequence[str]) -> str:
    """As Markdown: milliseconds of each peer, what lumjax takes for each that the others do, and
    seconds of first steps.
    """
    others = peers[1:]
    heads = [*(f"{p}, ms" for p in peers), *(f"ratio to {p}" for p in others)]
    lines = [f"| step | {' | '.join(heads)} | first steps, s |", "|---" * (len(heads) + 2) + "|"]
    return "\n".join([*lines, *(_line(name, row, peers) for name, row in found.items())]) + "\n"


def _line(name: str, row: dict[str, Any], peers: Sequence[str]) -> str:
    times = {p: row[p].get("seconds") for p in peers if p in row}
    medians = {p: statistics.median(t) * 1e3 for p, t in times.items() if t}
    cells = [f"{medians[p]:.2f}" if p in medians else "" for p in peers]
    ours = medians.get(peers[0])
    cells += [f"{ours / medians[p]:.2f}" if ours and p in medians else "" for p in peers[1:]]
    cold = [f"{row[p]['cold']:.1f}" if p in medians else "-" for p in peers]
    return f"| {name} | {' | '.join(cells)} | {', '.join(cold)} |"


def played(found: dict[str, Any]) -> str:
    """How many steps of the carts each peer makes in a second; nothing if that wasn't measured."""
    name, count = PLAYED
    rows = {p: r["seconds"] for p, r in found.get(name, {}).items() if r.get("seconds")}
    rates = [f"{p} {count / statistics.median(s):,.0f}" for p, s in rows.items()]
    return (
        f"Steps of the carts in a second, learning included: {', '.join(rates)}.\n" if rows else ""
    )


def into_gallery(text: str, path: Path = GALLERY) -> None:
    """Replace the table of steps, and what follows it on steps of carts, by this one."""
    old = re.compile(r"^\| step \|.*?\n\n(Steps of the carts [^\n]*\n\n)?", re.M | re.S)
    page, count = old.subn(lambda _: f"{text}\n", path.read_text(), count=1)
    assert count == 1, f"{path} has no table of steps"
    path.write_text(page)


def main(out: str, arguments: Sequence[str] = ()) -> None:
    """Measure all of them, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--gallery", action="store_true", help="put the table into the docs")
    options = parser.parse_args(arguments)
    peers = [p for p in PEERS if p in options.peers or p == "lumjax"]
    for peer in [p for p in peers if not installed(p)]:
        print(f"{peer}: not installed, left out")
        peers.remove(peer)
    found: dict[str, Any] = {}
    started = time.monotonic()
    with seated(peers, THREADS, Stand, PATIENCE) as seats:
        for name in options.only:
            left = ENOUGH - (time.monotonic() - started)
            row = found[name] = compete(name, seats, left, options.clock)
            print(_line(name, row, peers), flush=True)
            for peer, result in row.items():
                if result.get("why", "not written") != "not written":
                    print(f"  {name}: {peer}: {result['why']}", flush=True)
    text = "\n".join(filter(None, [table(found, peers), played(found)]))
    print(f"\n{text}")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "steps.md").write_text(text)
    (folder / "steps.json").write_text(json.dumps(found, indent=1))
    if options.gallery:
        into_gallery(text)
