"""The plans of a compiled program as data, and programs compiled by such plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lumjax.cpu.objects import cached_code, object_code
from lumjax.cpu.objects import trust as trust
from lumjax.cpu.render import render
from lumjax.egraph.cache import planner_version
from lumjax.egraph.given import given
from lumjax.egraph.scalar import Operations
from lumjax.egraph.text import plan_text
from lumjax.stages import Native, Nested, Stage
from lumjax.target import Target


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


def objects_of(stages: Sequence[Stage], target: Target) -> dict[str, bytes]:
    """The object files of all kernels, by the keys that they are looked up by."""
    found: dict[str, bytes] = {}
    waiting = list(stages)
    while waiting:
        stage = waiting.pop()
        if isinstance(stage, Nested):
            waiting += [s for p in stage.programs for s in p.stages]
        for item in stage.kernels if isinstance(stage, Native) else ():
            key = item.compiled.code
            code = cached_code(key) or object_code(render(item.compiled.kernel, target), target)
            found[key.hex()] = code
    return found


def planned(plans: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Within the block, programs are compiled by these plans where they have their regions. Plans
    of other code are left aside: it may have read them differently.
    """
    if plans.get("planner") != planner_version():
        return nullcontext()
    return given(plans["regions"])
