"""Some rules alone: what they make of a region, wherever it can be taken. For tests of rules.

    fired(region, rules, budget)               names of the rules that match somewhere in a search
    rewritten(region, target, rules, budget)   plans of the region that use these rules' results
    equals(region, target, rules, budget, 9)   equal programs of the region, 9 at most

A search takes a result where it pays; here it is taken wherever no cycle arises, so that a wrong
rule shows in the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lumjax.egraph.choose import closed, encoded_roots
from lumjax.egraph.cost import Machine, machine
from lumjax.egraph.encode import Encoded, encode
from lumjax.egraph.extract import Extraction
from lumjax.egraph.inline import inlined
from lumjax.egraph.materialise import Meter, materialise
from lumjax.egraph.plan import Budget, Found, Lower, Report, clock
from lumjax.egraph.realise import plan_of, realise
from lumjax.egraph.relevance import may_rewrite
from lumjax.egraph.rules import Rule
from lumjax.egraph.scalar import Operations
from lumjax.egraph.terms import Classes, Graph, Node, warm_graph
from lumjax.kernel.lower import lower as lower_group
from lumjax.kernel.region import Region
from lumjax.kernel.term import Axis, Reduction, Root, Term, subterms
from lumjax.target import Target

ITERATIONS = 4  # of a rule upon its own results
PROGRAMS = 4  # for each rule


def fired(region: Region, rules: Sequence[Rule], budget: Budget) -> tuple[str, ...]:
    """The names of the rules that match in a search, in the order of `rules`."""
    operations = Operations(region)
    terms = [r.term for r in encode(region, operations).roots]
    with Graph(rules).session(operations) as session:
        session.insert(terms)
        done = session.saturate(ITERATIONS, budget.terms, clock() + budget.seconds)
    return tuple(r.name for r in rules if done.fired.get(r.name))


def rewritten(
    region: Region,
    target: Target,
    rules: Sequence[Rule],
    budget: Budget,
    lower: Lower | None = None,
) -> Iterator[Found]:
    """Plans of equal programs, each of which uses results of these rules; none if they have none.

    Together they use every result that can be used, up to a limit.
    """
    make: Lower = lower or (lambda group: lower_group(group, target))
    operations, reference = Operations(region), machine(target)
    encoded = encode(region, operations)
    for terms in _forced(encoded, operations, rules, budget, reference):
        roots = [replace(r, term=t) for r, t in zip(encoded.roots, terms, strict=True)]
        meter = Meter(budget.evaluations, clock() + budget.seconds)
        best = materialise(roots, encoded.layout, reference, meter)
        done = realise(best, make, reference)
        plan = plan_of(done, encoded.inputs, encoded.outputs, truncated=False)
        report = Report(region.key, False, rejects=tuple(done.rejects), cost=done.planned.cost)
        yield Found(plan, done.kernels, report)


def _forced(
    encoded: Encoded,
    operations: Operations,
    rules: Sequence[Rule],
    budget: Budget,
    reference: Machine,
) -> Iterator[tuple[Term, ...]]:
    """The roots' terms, rewritten."""
    terms = [r.term for r in encoded.roots]
    with Graph(rules).session(operations) as session:
        session.insert(terms)
        session.saturate(ITERATIONS, budget.terms, clock() + budget.seconds)
        classes = session.read()
    axes = {a.name: a for r in encoded.roots for a in _axes(r)}
    extraction = Extraction(classes, axes, operations, reference)
    left = [
        (c, n)
        for c, nodes in enumerate(classes.nodes)
        for n in nodes
        if c in classes.traced and n != classes.traced[c] and n in extraction.usable[c]
    ]
    seen = {tuple(terms)}
    for _ in range(PROGRAMS):
        found, after = _flipped(classes, extraction, left)
        if found is not None and found not in seen:
            seen.add(found)
            yield found
        if not after or len(after) == len(left):
            return
        left = after


def equals(
    region: Region, target: Target, rules: Sequence[Rule], budget: Budget, limit: int
) -> tuple[list[Root], list[tuple[Term, ...]]]:
    """The region's roots, and other terms for them that the rules find to be equal."""
    operations = Operations(region)
    encoded = inlined(encode(region, operations))
    terms = tuple(r.term for r in encoded.roots)
    if not may_rewrite(rules, terms):
        return list(encoded.roots), []
    with warm_graph(tuple(rules)).session(operations) as session:
        session.insert(terms)
        session.saturate(ITERATIONS, budget.terms, clock() + budget.seconds)
        classes = session.read()
    axes = {a.name: a for r in encoded.roots for a in _axes(r)}
    found = Extraction(classes, axes, operations, machine(target)).programs(limit)
    others = (t for t in found if t != terms and all(map(closed, encoded_roots(encoded, t))))
    return list(encoded.roots), list(others)


def _flipped(
    classes: Classes, extraction: Extraction, wanted: Sequence[tuple[int, Node]]
) -> tuple[tuple[Term, ...] | None, list[tuple[int, Node]]]:
    """A program with as many of the wanted nodes as fit together, and the nodes that it lacks.

    Where a value was found equal to one that it is made from, it is that one in any case.
    """
    chosen = dict(classes.traced)
    best: tuple[Term, ...] | None = extraction.terms(chosen)
    left: list[tuple[int, Node]] = []
    taken: set[int] = set()
    for c, node in wanted:
        trial = {**chosen, c: node}
        terms = None if c in taken else extraction.terms(trial)
        if terms is None or terms == best:
            left.append((c, node))
        else:
            chosen, best = trial, terms
            taken.add(c)
    return best, left


def _axes(root: Root) -> Iterator[Axis]:
    yield from root.axes
    for t in subterms(root.term):
        if isinstance(t, Reduction):
            yield from sorted(t.axes, key=lambda a: a.name)
