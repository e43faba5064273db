"""Which of the equal programs is taken: the traced one first, then those that the e-graph offers.

Every program is priced by the grouping that stores what must be stored; the best few then get the
stores that pay. Budgets count priced groupings; the seed decides the order of what is tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from lumjax.egraph.cost import Machine, memory_time
from lumjax.egraph.encode import Encoded
from lumjax.egraph.extract import Extraction
from lumjax.egraph.layout import Memo, bytes_of
from lumjax.egraph.materialise import Meter, Planned, forced, improved
from lumjax.egraph.plan import Budget
from lumjax.egraph.tree import Tree
from lumjax.kernel.term import Reduction, Root, Term, free_names, subterms

_GAIN = 0.99  # another program must be predicted this much cheaper than the traced one
_NEAR = 1.1  # a price this near to the least possible one ends the search
_PROGRAMS = 4  # of the extraction to begin with: cheapest, streamed, merged, traced and streamed
_ROLLOUTS = 400
_FINALISTS = 3


class Chooser:
    """Prices equal programs of one region."""

    def __init__(self, encoded: Encoded, machine: Machine, budget: Budget, meter: Meter) -> None:
        self.encoded, self.machine, self.budget, self.meter = encoded, machine, budget, meter
        self.memo: Memo = {}
        self.plans: dict[tuple[Term, ...], Planned] = {}
        self.terms = tuple(r.term for r in encoded.roots)

    def traced(self) -> Planned:
        """The traced program."""
        return self._improved(self._forced(encoded_roots(self.encoded, self.terms)))

    def _forced(self, roots: Sequence[Root]) -> Planned:
        return forced(
            roots,
            self.encoded.layout,
            self.machine,
            self.memo,
            self.budget.memory,
            self.encoded.large,
        )

    def _improved(self, planned: Planned) -> Planned:
        return improved(planned, self.machine, self.meter)

    def price(self, terms: tuple[Term, ...]) -> float | None:
        """The price of a program, infinite where it is none; None if the budget is spent."""
        if not self.meter.spend():
            return None
        roots = encoded_roots(self.encoded, terms)
        if not all(map(closed, roots)):
            return math.inf
        planned = self.plans[terms] = self._forced(roots)
        return planned.price

    def least(self) -> float:
        """No plan takes less: one kernel that reads all inputs and writes all outputs."""
        buffers = {b.name: b for b in self.encoded.inputs}
        buffers.update((r.buffer.name, r.buffer) for r in self.encoded.outputs)
        moved = memory_time(sum(map(bytes_of, buffers.values())), self.machine)
        return self.machine.launch + moved

    def improvable(self, traced: Planned) -> bool:
        """Whether a search may find a cheaper program: not near the least price of maps."""
        reduces = any(isinstance(t, Reduction) for root in self.terms for t in subterms(root))
        near = traced.price <= _NEAR * self.least()
        return self.budget.evaluations > 0 and (reduces or not near)

    def best(self, traced: Planned, extraction: Extraction | None) -> list[Planned]:
        """The best plans, cheapest first; the traced program unless another gains."""
        if extraction is None:
            return [traced]
        tree = Tree(extraction, self.price, self.budget.seed)
        tree.consider(self.terms, dict(extraction.classes.traced))
        for choice in islice(extraction.choices(), _PROGRAMS):
            tree.start(dict(choice))
        enough = _NEAR * self.least()
        tree.climb(enough)
        tree.grow(_ROLLOUTS, enough)
        ranked = sorted(tree.tried.items(), key=lambda t: t[1])
        finalists = [
            self._improved(self.plans[terms])
            for terms, price in ranked[:_FINALISTS]
            if math.isfinite(price) and terms != self.terms
        ]
        found = [p for p in finalists if p.price < _GAIN * traced.price]
        return [*sorted(found, key=lambda p: p.price), traced]


def encoded_roots(encoded: Encoded, terms: Sequence[Term]) -> list[Root]:
    """The region's roots with these terms."""
    return [replace(r, term=t) for r, t in zip(encoded.roots, terms, strict=True)]


def closed(root: Root) -> bool:
    """Whether the term mentions no axis but the root's own."""
    bound = {a.name for t in subterms(root.term) if isinstance(t, Reduction) for a in t.axes}
    return not (free_names(root.term) & bound) - {a.name for a in root.axes}
