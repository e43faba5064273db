"""Plans on disk: one file of JSON per (region, target, rules, budget)."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

from lumjax.egraph.cost import machine
from lumjax.egraph.plan import Budget, Plan, Report
from lumjax.egraph.rules import compile_rule
from lumjax.egraph.rules.registry import load_rules
from lumjax.egraph.scalar import Operations
from lumjax.egraph.text import plan_from, plan_text, report_from, report_text
from lumjax.kernel.digest import digest
from lumjax.kernel.region import Region
from lumjax.store import Store
from lumjax.target import Target

PLANNER = 2  # the version of the file format
_PLANS = Store("plans", PLANNER, ".json")
# What readers raise of a body that was written whole, but is no plan or report.
NONSENSE = (ValueError, KeyError, TypeError, IndexError, AttributeError)


def plan_key(region: Region, target: Target, budget: Budget, fast_math: bool) -> str:
    """What the plan is a function of."""
    rules = _rules_version(fast_math)
    constants = machine(target, budget.profile)
    parts = (planner_version(), region.key, target.key, rules, constants, budget)
    return digest("\n".join(map(str, parts)))


@lru_cache(maxsize=2)
def _rules_version(fast_math: bool) -> str:
    return digest("\n".join(map(compile_rule, load_rules(fast_math))))


@lru_cache(maxsize=1)
def planner_version() -> str:
    """A digest of the code that makes plans: another version may plan otherwise."""
    here = Path(__file__).parent
    sources = [*here.rglob("*.py"), *(here.parent / "kernel").glob("*.py")]
    content = hashlib.sha256(str(PLANNER).encode())
    for path in sorted(sources):
        content.update(path.read_bytes())
    return content.hexdigest()


def load_plan(key: str, operations: Operations) -> Plan | None:
    """The plan stored under a key, complete or truncated; None if no good one is there."""
    for name in (key, _truncated(key)):
        body = _PLANS.read(name)
        if body is None:
            continue
        try:
            return plan_from(json.loads(body)["plan"], operations)
        except NONSENSE:
            _PLANS.unusable(name)
    return None


def load_report(key: str, truncated: bool = False) -> Report | None:
    """How the plan stored under a key was found; None if nothing readable is there."""
    body = _PLANS.read(_truncated(key) if truncated else key)
    try:
        found = None if body is None else json.loads(body).get("report")
        return None if found is None else report_from(found)
    except NONSENSE:
        return None


def save_plan(key: str, plan: Plan, operations: Operations, report: Report | None = None) -> None:
    """Store a plan and how it was found; if that cannot be written, there is one warning."""
    content = {"plan": plan_text(plan, operations)}
    if report is not None:
        content["report"] = report_text(report)
    body = json.dumps(content, separators=(",", ":"))
    _PLANS.write(_truncated(key) if plan.truncated else key, body.encode())


def _truncated(key: str) -> str:
    return digest(f"{key} truncated")
