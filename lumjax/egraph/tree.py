"""Search among the programs of an e-graph: flips of the best one, then UCT over its alternatives.

A program is a choice of one node for some classes; the others take the cheapest one. Prices come
from outside (a grouping with greedy stores). The order of everything follows the numbers of the
classes and the seed, so that equal seeds make equal searches.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from lumjax.egraph.cost import work
from lumjax.egraph.extract import Extraction
from lumjax.egraph.terms import Node
from lumjax.kernel.term import (
    Reduction,
    Term,
    free_names,
    subterms,
)
from lumjax.record import record

_EXPLORE = 0.3  # weight of rarely visited branches
_RANDOM = 0.15  # how often a rollout leaves the best known program
_STAGNANT = 12  # rollouts without gain after which the search ends
_FLIPS = 8  # of one program that are priced
_MORE = 1.5  # a flip may add this much to the work

Choice: TypeAlias = "dict[int, Node]"
Price: TypeAlias = Callable[["tuple[Term, ...]"], "float | None"]


@record
class Program:
    """The roots' terms, the nodes chosen for them and their price."""

    price: float
    choice: Choice
    terms: tuple[Term, ...]


@record
class Print:
    """The work of a program, and its reductions: operations, axes, free axes, whether scaled."""

    work: float
    reductions: frozenset[tuple[str, frozenset[str], frozenset[str], bool]]


class Branch:
    """What is known of the programs that take the same first decisions."""

    def __init__(self, options: int) -> None:
        self.visits = [0] * options
        self.value = [0.0] * options
        self.below: dict[int, Branch] = {}


class Tree:
    """Prices programs and keeps the best. `price` says None when the budget is spent."""

    def __init__(self, extraction: Extraction, price: Price, seed: int) -> None:
        self.extraction, self.price = extraction, price
        self.random = random.Random(seed)
        self.best: Program | None = None
        self.spent = False
        self.tried: dict[tuple[Term, ...], float] = {}
        self.alike: dict[Print, float] = {}
        best = extraction.best
        self.options: dict[int, tuple[Node, ...]] = {
            c: known
            for c, nodes in enumerate(extraction.usable)
            if len(known := tuple(n for n in nodes if all(a in best for a in n.args))) > 1
        }

    def consider(self, terms: tuple[Term, ...], choice: Choice) -> float:
        """The price of a program, infinite where it has none; the best one is kept."""
        if terms in self.tried:
            return self.tried[terms]
        key = self.fingerprint(terms)
        if key in self.alike:
            return self.alike[key]
        price = self.price(terms)
        if price is None:
            self.spent = True
            return math.inf
        self.tried[terms] = self.alike[key] = price
        if self.best is None or price < self.best.price * (1 - 1e-9):
            self.best = Program(price, choice, terms)
        return price

    def start(self, choice: Choice) -> float:
        """The price of a program that is given by its nodes; infinite if it has a cycle."""
        terms = self.extraction.terms(choice)
        return math.inf if terms is None else self.consider(terms, choice)

    # ---- flips

    def _done(self, enough: float) -> bool:
        return self.spent or self.best is None or self.best.price <= enough

    def climb(self, enough: float = 0.0) -> None:
        """Flip single classes of the best program as long as that pays."""
        before: Program | None = None
        while self.best is not before and not self._done(enough):
            before = self.best
            assert before is not None, "the search ends without a program"
            for _, _, choice, terms in self._screened(before):
                self.consider(terms, choice)
                if self._done(enough):
                    return

    def _screened(self, program: Program) -> list[tuple[float, int, Choice, tuple[Term, ...]]]:
        """The flips with the least work, if everything were computed once."""
        most = _MORE * self.fingerprint(program.terms).work
        found: dict[Print, tuple[float, int, Choice, tuple[Term, ...]]] = {}
        for k, choice in enumerate(self._flips(program)):
            terms = self.extraction.terms(choice)
            if terms is not None:
                key = self.fingerprint(terms)
                if key.work <= most and key not in self.alike:
                    found.setdefault(key, (key.work, k, choice, terms))
        return sorted(found.values(), key=lambda f: f[:2])[:_FLIPS]

    def fingerprint(self, terms: tuple[Term, ...]) -> Print:
        """What the price follows from, nearly always."""
        distinct = dict.fromkeys(t for root in terms for t in subterms(root))
        reductions = frozenset(
            (t.op.name, frozenset(a.name for a in t.axes), free_names(t), t.scale is not None)
            for t in distinct
            if isinstance(t, Reduction)
        )
        return Print(float(f"{self._work(distinct):.6e}"), reductions)

    def _work(self, terms: Iterable[Term]) -> float:
        """Seconds to compute the terms if nothing is stored or computed twice."""
        return work(terms, self.extraction.axes, self.extraction.machine)

    def _flips(self, program: Program) -> Iterator[Choice]:
        for c in self._reached(program.choice):
            taken = self._taken(program.choice, c)
            for node in self.options.get(c, ()):
                if node != taken:
                    yield {**program.choice, c: node}

    def _taken(self, choice: Mapping[int, Node], c: int) -> Node:
        return choice.get(c, self.extraction.best[c].node)

    def _reached(self, choice: Mapping[int, Node]) -> list[int]:
        """The classes that a choice computes, users first."""
        found: dict[int, None] = {}
        stack = list(reversed(self.extraction.classes.roots))
        while stack:
            c = stack.pop()
            if c not in found:
                found[c] = None
                stack.extend(reversed(self._taken(choice, c).args))
        return list(found)

    # ---- UCT

    def grow(self, rollouts: int, enough: float = 0.0) -> None:
        """Rollouts until the budget is spent, `rollouts` are made, none has gained for long, or the
        price is low enough.
        """
        if self.best is None or not self.options:
            return
        root = Branch(0)
        reference = self.best.price
        idle = 0
        for _ in range(rollouts):
            before = self.best.price
            self._rollout(root, reference)
            idle = 0 if self.best.price < before * (1 - 1e-9) else idle + 1
            if self._done(enough) or idle >= _STAGNANT:
                return

    def _rollout(self, branch: Branch, reference: float) -> None:
        """One program: decisions by the tree, then by the best program, sometimes at random."""
        assert self.best is not None, "the tree grows from a priced program"
        choice = dict(self.best.choice)
        path: list[tuple[Branch, int]] = []
        expanding = True
        seen: set[int] = set()
        stack = list(reversed(self.extraction.classes.roots))
        while stack:
            c = stack.pop()
            if c in seen:
                continue
            seen.add(c)
            options = self.options.get(c, ())
            if options and expanding:
                if not branch.visits:
                    branch.visits, branch.value = [0] * len(options), [0.0] * len(options)
                    branch.below = {}
                k = self._select(branch)
                expanding = branch.visits[k] > 0
                path.append((branch, k))
                choice[c] = options[k]
                branch = branch.below.setdefault(k, Branch(0))
            elif options and self.random.random() < _RANDOM:
                choice[c] = self.random.choice(options)
            stack.extend(reversed(self._taken(choice, c).args))
        price = self.start(choice)
        for visited, k in path:
            visited.visits[k] += 1
            visited.value[k] = max(visited.value[k], 0.5 * reference / price)

    def _select(self, branch: Branch) -> int:
        fresh = [k for k, n in enumerate(branch.visits) if not n]
        if fresh:
            return self.random.choice(fresh)
        total = math.log(sum(branch.visits))
        scores = [
            v + _EXPLORE * math.sqrt(total / n)
            for v, n in zip(branch.value, branch.visits, strict=True)
        ]
        return scores.index(max(scores))
