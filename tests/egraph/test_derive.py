"""Derivations: smallest sets of rules that prove a program equal to the traced one."""

from __future__ import annotations

import pytest

from lumjax.config import config
from lumjax.egraph.cache import load_report, plan_key
from lumjax.egraph.derive import derivation
from lumjax.egraph.plan import Budget
from lumjax.egraph.rules import Kind, Rule
from lumjax.egraph.scalar import Operations
from lumjax.egraph.search import search
from lumjax.errors import CacheWarning
from lumjax.kernel.region import Region, cut
from lumjax.kernel.term import Apply
from lumjax.ops import arithmetic as ar
from lumjax.target import Backend, Target
from lumjax.trace.stage import stage
from tests.egraph import programs as pr

TARGET = Target(Backend.CPU, "generic", "", 32, 16, 2)


def rule(name, left, right, guard=""):
    return Rule(name, "algebra", Kind.EXACT, left, right, None, guard)


MORE = rule("more", "(add d x y)", "(sub d x (neg d y))")
SWAP = rule("swap", "(add d x y)", "(add d y x)")
OTHER = rule("other", "(mul d x y)", "(mul d y x)")
RULES = (OTHER, SWAP, MORE)


def region_of(f, *shapes):
    jaxpr = stage(f, [pr.aval(*s) for s in shapes]).jaxpr
    return next(s for s in cut(jaxpr) if isinstance(s, Region))


@pytest.fixture
def sums():
    """x + y and what the rules make of it: y - (-x) needs two of them."""
    region = region_of(lambda x, y: [ar.add(x, y)], (4,), (4,))
    with config.scope(cache=False):
        found = search(region, TARGET, Budget(evaluations=0))
    operations = Operations(region)
    term = found.traced[0].term
    x, y = term.args
    sub, neg = operations.by_name["sub"], operations.by_name["neg"]
    far = Apply(sub, (y, Apply(neg, (x,), x.dtype)), x.dtype)
    near = Apply(term.op, (y, x), x.dtype)
    return operations, term, near, far


def test_only_rules_that_are_needed(sums):
    operations, term, near, far = sums
    names = [r.name for r in RULES]
    assert derivation(RULES, names, operations, [term], [near]) == ("swap",)
    assert derivation(RULES, names, operations, [term], [far]) == ("swap", "more")


def test_the_same_program_needs_none(sums):
    operations, term, *_ = sums
    assert derivation(RULES, ["swap"], operations, [term], [term]) == ()


def test_what_cannot_be_derived_is_not_claimed(sums):
    operations, term, near, far = sums
    assert derivation(RULES, ["more"], operations, [term], [near]) is None
    assert derivation(RULES, ["swap", "more"], operations, [term], [far], seconds=0.0) is None


def test_reports_are_kept_with_plans(tmp_path):
    region = region_of(lambda x, y: [ar.mul(ar.add(x, y), x)], (4,), (4,))
    with config.scope(cache_dir=str(tmp_path)):
        found = search(region, TARGET, Budget())
        key = plan_key(region, TARGET, Budget(), fast_math=False)
        kept = load_report(key)
        assert kept is not None
        assert (kept.rules, kept.sizes, kept.evaluations) == (
            found.report.rules,
            found.report.sizes,
            found.report.evaluations,
        )
        assert kept.seconds == ()  # equal searches leave equal files
        assert load_report(key, truncated=True) is None
        assert load_report("unknown") is None
        path = next(tmp_path.rglob("*.json"))
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.warns(CacheWarning, match="unusable"):
            assert load_report(key) is None
