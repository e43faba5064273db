"""The plans of a compiled program as data, and programs compiled by such plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lumjax.egraph.cache import planner_version
from lumjax.egraph.given import given
from lumjax.egraph.scalar import Operations
from lumjax.egraph.text import plan_text
from lumjax.stages import Native, Nested, Stage


def plans_of(stages: Sequence[Stage]) -> dict[str, Any]:
    """The plan of every region, loops' and branches' too, by the region's key."""
    found: dict[str, Any] = {}
    waiting = list(stages)
    while waiting:
        stage = waiting.pop()
        if isinstance(stage, Nested):
            waiting += [s for p in stage.programs for s in p.stages]
        if isinstance(stage, Native) and stage.found.plan.groups:
            region = stage.region
            found[region.key] = plan_text(stage.found.plan, Operations(region))
    return {"planner": planner_version(), "regions": found}


def planned(plans: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Within the block, programs are compiled by these plans where they have their regions. Plans
    of other code are left aside: it may have read them differently.
    """
    if plans.get("planner") != planner_version():
        return nullcontext()
    return given(plans["regions"])
