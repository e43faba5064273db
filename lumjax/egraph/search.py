"""Choose the cheapest equal program: encode -> saturate -> extract -> plan -> lower. No more.

The traced program is always a candidate; another one is taken only if it is predicted to be faster.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lumjax.config import config
from lumjax.egraph.cache import load_plan, plan_key, save_plan
from lumjax.egraph.choose import Chooser
from lumjax.egraph.cost import Machine, machine
from lumjax.egraph.encode import Encoded, encode
from lumjax.egraph.extract import Extraction
from lumjax.egraph.given import given_plan
from lumjax.egraph.inline import inlined
from lumjax.egraph.materialise import Meter, Planned
from lumjax.egraph.plan import Budget, Found, Lower, Plan, Report, clock
from lumjax.egraph.realise import Realised, kernels_of, plan_of, realise
from lumjax.egraph.relevance import may_rewrite
from lumjax.egraph.rules.registry import load_rules
from lumjax.egraph.scalar import Operations
from lumjax.egraph.terms import Saturation, warm_graph
from lumjax.kernel.emit import Reject
from lumjax.kernel.ir import Kernel
from lumjax.kernel.lower import lower as lower_group
from lumjax.kernel.region import Region
from lumjax.kernel.schedule import DEFAULT, Schedule
from lumjax.kernel.term import Axis, Group, Reduction, Root, subterms
from lumjax.target import Backend, Target
from lumjax.trace.form import Contract, Form

ITERATIONS = 8  # of every ruleset
_ALIKE = 1.05  # times the cost: a plan whose sides may be rounded is as good; costs know no cores
_RIVALS = 2  # plans that profiling compares with the best one


def search(
    region: Region, target: Target, budget: Budget | None = None, lower: Lower | None = None
) -> Found:
    """The region's plan, its kernels and a report; from disk if it was searched before.

    `lower` makes a kernel of a group, or rejects it (default: kernel/lower.py for the target).
    """
    budget = budget or budget_of_config()
    make: Lower = lower or lower_for(target)
    found = stored(region, target, budget, make)
    if found is None:
        operations = Operations(region)
        found = _Search(region, target, budget, operations).run(make)
        if target.backend is Backend.CUDA and any(_rounds(f) for f in region.forms):
            rounded = Operations(region, rounds=True)
            other = _Search(region, target, budget, rounded).run(make)
            if other.plan.cost <= found.plan.cost * _ALIKE:  # to round is a permission
                found = other
        save_plan(
            plan_key(region, target, budget, config.fast_math), found.plan, operations, found.report
        )
    return found


def _rounds(form: Form) -> bool:
    """Whether a contraction may round its sides: only GPUs multiply faster then."""
    return isinstance(form, Contract) and form.rounding is not None


def lower_for(target: Target) -> Lower:
    """kernel/lower.py for a target."""

    def make(group: Group, schedule: Schedule = DEFAULT) -> Kernel | Reject:
        return lower_group(group, target, schedule=schedule)

    return make


def stored(
    region: Region, target: Target, budget: Budget, lower: Lower | None = None
) -> Found | None:
    """What came with the program, or an earlier search by the same budget left on disk; None if
    nothing usable is there.
    """
    make: Lower = lower or lower_for(target)
    started = time.perf_counter()
    plan = given_plan(region)
    if plan is None:
        plan = load_plan(plan_key(region, target, budget, config.fast_math), Operations(region))
    made = None if plan is None else kernels_of(plan, make)
    if plan is None or made is None:
        return None
    kernels, fallbacks = made
    seconds = (("load", time.perf_counter() - started),)
    report = Report(region.key, True, cost=plan.cost, seconds=seconds, fallbacks=fallbacks)
    return Found(plan, kernels, report)


def budget_of_config() -> Budget:
    """The budget that the settings in force give."""
    return Budget(
        config.search_evaluations,
        config.search_terms,
        config.search_seconds,
        config.seed,
        config.search_memory,
        config.search_profile,
    )


class _Search:
    """One search, with what it reports."""

    def __init__(
        self, region: Region, target: Target, budget: Budget, operations: Operations
    ) -> None:
        self.region, self.budget, self.operations = region, budget, operations
        self.machine: Machine = machine(target, budget.profile)
        self.seconds: list[tuple[str, float]] = []
        self.meter = Meter(budget.evaluations, clock() + budget.seconds)

    @contextmanager
    def _timed(self, stage: str) -> Generator[None, None, None]:
        started = time.perf_counter()
        yield
        self.seconds.append((stage, time.perf_counter() - started))

    def run(self, lower: Lower) -> Found:
        with self._timed("encode"):
            encoded = inlined(encode(self.region, self.operations))
        with self._timed("trace"):
            chooser = Chooser(encoded, self.machine, self.budget, self.meter)
            traced = chooser.traced()
        with self._timed("saturate"):
            extraction, saturation = self._saturated(encoded, chooser.improvable(traced))
        with self._timed("plan"):
            candidates = chooser.best(traced, extraction)
        with self._timed("lower"):
            done = self._realised(candidates, lower)
            rivals = self._rivals(candidates, done, encoded, lower)
        truncated = saturation.truncated or self.meter.truncated
        plan = plan_of(done, encoded.inputs, encoded.outputs, truncated)
        fired = sorted(saturation.fired.items(), key=lambda f: (-f[1], f[0]))
        report = Report(
            self.region.key,
            False,
            rules=tuple((n, k) for n, k in fired if k),
            terms=saturation.nodes,
            saturated=saturation.saturated,
            sizes=tuple(saturation.sizes),
            rule_seconds=tuple(saturation.seconds.items()),
            evaluations=1 + self.meter.spent,
            traced_cost=traced.cost,
            cost=done.planned.cost,
            seconds=tuple(self.seconds),
            rejects=tuple(done.rejects),
            fallbacks=tuple(done.fallbacks),
        )
        terms = {r.buffer: r.term for r in done.planned.layout.roots}
        chosen = tuple(replace(r, term=terms.get(r.buffer, r.term)) for r in encoded.roots)
        return Found(plan, done.kernels, report, rivals, tuple(encoded.roots), chosen)

    def _realised(self, candidates: Sequence[Planned], lower: Lower) -> Realised:
        """The best plan with its kernels. Where some are refused, the next may be better."""
        best: Realised | None = None
        for planned in candidates:
            if best is None or planned.price < best.planned.price:
                done = realise(planned, lower, self.machine)
                if best is None or done.planned.price < best.planned.price:
                    best = done
        assert best is not None, "the traced program is a candidate"
        return best

    def _rivals(
        self, candidates: Sequence[Planned], done: Realised, encoded: Encoded, lower: Lower
    ) -> tuple[Plan, ...]:
        """Other plans to be measured: those that kernels can be made for as planned."""
        if not self.budget.profile:
            return ()
        others = (realise(p, lower, self.machine) for p in candidates)
        distinct = {o.groups: o for o in others if not o.rejects and o.groups != done.groups}
        return tuple(plan_of(o, encoded.inputs, encoded.outputs, False) for o in distinct.values())[
            :_RIVALS
        ]

    def _saturated(
        self, encoded: Encoded, worthwhile: bool = True
    ) -> tuple[Extraction | None, Saturation]:
        if not worthwhile:
            return None, Saturation(nodes=len(encoded.roots), saturated=True)
        return saturated(encoded, self.operations, self.machine, self.budget, self.meter.deadline)


def saturated(
    encoded: Encoded,
    operations: Operations,
    machine: Machine,
    budget: Budget,
    deadline: float,
) -> tuple[Extraction | None, Saturation]:
    """The equal terms of the roots by the e-graph, or None if there are no others."""
    terms = [r.term for r in encoded.roots]
    rules = load_rules(config.fast_math)
    if not may_rewrite(rules, terms):
        return None, Saturation(nodes=len(terms), saturated=True)
    graph = warm_graph(rules)
    with graph.session(operations) as session:
        session.insert(terms)
        done = session.saturate(ITERATIONS, budget.terms, deadline)
        classes = session.read()
    axes = {a.name: a for r in encoded.roots for a in _all_axes(r)}
    return Extraction(classes, axes, operations, machine), done


def _all_axes(root: Root) -> Iterator[Axis]:
    yield from root.axes
    for t in subterms(root.term):
        if isinstance(t, Reduction):
            yield from sorted(t.axes, key=lambda a: a.name)
