"""The search against random sampling and against all programs, by predicted prices.

`python -m benchmarks search`: for each program of the table with equal programs to choose from, the
price of what the search has found after n evaluations, and of the best of n random programs, both
relative to the best price that anybody found. A random program takes a random node for every class;
choices that are no programs (cycles) are drawn again and count for nothing.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import lumjax
from benchmarks.plans import regions
from benchmarks.programs import PROGRAMS
from lumjax.cpu.objects import host_target
from lumjax.egraph.choose import Chooser
from lumjax.egraph.cost import machine
from lumjax.egraph.encode import encode
from lumjax.egraph.extract import Extraction
from lumjax.egraph.inline import inlined
from lumjax.egraph.materialise import Meter
from lumjax.egraph.plan import Budget
from lumjax.egraph.scalar import Operations
from lumjax.egraph.search import saturated
from lumjax.egraph.terms import Node
from lumjax.egraph.tree import Tree
from lumjax.kernel.region import Region
from lumjax.kernel.term import Term
from lumjax.target import Target

SIZE = 128
BUDGETS = (3, 5, 10, 20, 40)
SEEDS = 8
DRAWS = 40  # for each evaluation of the random sampling
EVERY = 600  # programs up to which all are tried

Terms = tuple[Term, ...]
Price = Callable[[Terms], "float | None"]


class Space:
    """The equal programs of a region. Prices are kept, so that trying one again is quick."""

    def __init__(self, region: Region, target: Target) -> None:
        self.operations = Operations(region)
        encoded = inlined(encode(region, self.operations))
        far = time.perf_counter() + 600
        model, budget = machine(target), Budget()
        found, _ = saturated(encoded, self.operations, model, budget, far)
        self.extraction = found
        self.chooser = Chooser(encoded, model, budget, Meter(1 << 30, far))
        self._prices: dict[Terms, float] = {}

    def price(self, terms: Terms) -> float:
        """The price of a program."""
        if terms not in self._prices:
            self._prices[terms] = self.chooser.price(terms) or math.inf
        return self._prices[terms]

    def logged(self, most: int, log: list[float]) -> Price:
        """Prices that are written down, until there are enough of them."""

        def price(terms: Terms) -> float | None:
            if len(log) >= most:
                return None
            log.append(self.price(terms))
            return log[-1]

        return price


def searched(space: Space, extraction: Extraction, most: int, seed: int = 0) -> list[float]:
    """The prices that the search looks at, in order."""
    log: list[float] = []
    tree = Tree(extraction, space.logged(most, log), seed)
    tree.consider(space.chooser.terms, dict(extraction.classes.traced))
    for choice in islice(extraction.choices(), 3):
        tree.start(dict(choice))
    tree.climb()
    tree.grow(400)
    return log


def sampled(space: Space, extraction: Extraction, most: int, seed: int) -> list[float]:
    """The prices of random programs, in order."""
    log: list[float] = []
    draw = random.Random(seed)
    tree = Tree(extraction, space.logged(most, log), seed)
    for _ in range(DRAWS * most):
        tree.start({c: draw.choice(nodes) for c, nodes in tree.options.items()})
        if tree.spent:
            break
    return log


def every(extraction: Extraction) -> list[Terms] | None:
    """All programs, None if there are too many."""
    options = Tree(extraction, lambda _: None, 0).options
    found: dict[Terms, None] = {}
    for choice in islice(_choices(extraction, options), EVERY + 1):
        terms = extraction.terms(choice)
        if terms is not None:
            found[terms] = None
    complete = sum(1 for _ in islice(_choices(extraction, options), EVERY + 1)) <= EVERY
    return list(found) if complete else None


def _choices(
    extraction: Extraction, options: dict[int, tuple[Node, ...]]
) -> Iterator[dict[int, Node]]:
    """Every way to decide the classes that are reached."""
    stack: list[dict[int, Node]] = [{}]
    while stack:
        choice = stack.pop()
        left = [c for c in _reached(extraction, choice) if c in options and c not in choice]
        if left:
            stack += [{**choice, left[0]: node} for node in options[left[0]]]
        else:
            yield choice


def _reached(extraction: Extraction, choice: dict[int, Node]) -> list[int]:
    seen: dict[int, None] = {}
    stack = list(reversed(extraction.classes.roots))
    while stack:
        c = stack.pop()
        if c not in seen:
            seen[c] = None
            node = choice.get(c, extraction.best[c].node)
            stack.extend(reversed(node.args))
    return list(seen)


@dataclass(frozen=True)
class Compared:
    """Prices relative to the best known one after each budget; `random` is the mean over seeds."""

    name: str
    programs: int | None  # where all were tried
    search: dict[int, float]
    random: dict[int, float]
    exhaustive: float | None  # the search's price relative to the best of all

    def beats(self, budget: int) -> bool | None:
        """Whether the search is better at a budget; None: equal."""
        mine, other = self.search[budget], self.random[budget]
        return None if abs(mine - other) <= 1e-3 * other else mine < other


def compare(name: str, target: Target, size: int = SIZE, seeds: int = SEEDS) -> Compared | None:
    """One program's figures; None where there is nothing to choose."""
    with lumjax.config.scope(cache=False):
        f, args = PROGRAMS[name].build(size)
        region = max(regions(f, *args), key=lambda r: len(r.eqns))
        space = Space(region, target)
    extraction = space.extraction
    if extraction is None:
        return None
    most = max(BUDGETS)
    mine = searched(space, extraction, most)
    others = [sampled(space, extraction, most, seed) for seed in range(seeds)]
    programs = every(extraction)
    best = min(p for log in (mine, *others) for p in log)
    exhaustive = None
    if programs is not None:
        least = min(map(space.price, programs))
        best, exhaustive = min(best, least), min(mine) / least
    worst = max(p for log in (mine, *others) for p in log if math.isfinite(p))
    if worst <= best * (1 + 1e-3):
        return None

    def after(log: Sequence[float], n: int) -> float:
        return min((p for p in log[:n] if math.isfinite(p)), default=worst) / best

    return Compared(
        name,
        None if programs is None else len(programs),
        {n: after(mine, n) for n in BUDGETS},
        {n: statistics.mean(after(o, n) for o in others) for n in BUDGETS},
        exhaustive,
    )


def main(out: str, names: tuple[str, ...] = ()) -> None:
    """Print the table and write it as JSON."""
    target = host_target()
    done: list[Compared] = []
    trivial: list[str] = []
    for name in PROGRAMS:
        if names and not any(n in name for n in names):
            continue
        if PROGRAMS[name].by_launches:
            continue
        found = compare(name, target)
        if found is None:
            trivial.append(name)
            continue
        done.append(found)
        columns = "  ".join(f"{n}: {found.search[n]:.3f} / {found.random[n]:.3f}" for n in BUDGETS)
        near = "" if found.exhaustive is None else f"  of {found.programs}: {found.exhaustive:.3f}"
        print(f"{name:30s} {columns}{near}", flush=True)
    print("evaluations: search / random sampling, relative to the best price known")
    for n in BUDGETS:
        better = [c.beats(n) for c in done]
        print(
            f"after {n:2d}: better on {better.count(True)} of {len(done)},"
            f" equal on {better.count(None)}, worse on {better.count(False)}"
        )
    print("all programs cost the same:", ", ".join(trivial))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    content: list[dict[str, Any]] = [vars(c) for c in done]
    (folder / "search.json").write_text(json.dumps(content, indent=1))
