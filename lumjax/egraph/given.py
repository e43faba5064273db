"""Plans that come with a program, in place of a search."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from lumjax.egraph.cache import NONSENSE
from lumjax.egraph.plan import Plan
from lumjax.egraph.scalar import Operations
from lumjax.egraph.text import plan_from
from lumjax.kernel.region import Region

_plans: ContextVar[Mapping[str, Any] | None] = ContextVar("plans", default=None)


@contextmanager
def given(plans: Mapping[str, Any]) -> Generator[None]:
    """Within the block, regions with these keys get these plans, as `plan_text` writes them."""
    token = _plans.set(plans)
    try:
        yield
    finally:
        _plans.reset(token)


def given_plan(region: Region) -> Plan | None:
    """The region's plan; None if none is given, or what is given is none."""
    plans = _plans.get()
    if plans is None or region.key not in plans:
        return None
    try:
        return plan_from(plans[region.key], Operations(region))
    except NONSENSE:
        return None
