"""What a search returns: a Plan (kernels' contents in order) and the Report of how it was found.

    region = ...                                  # kernel/region.py
    found = search(region, target, budget)   # egraph/search.py
    for group, kernel in zip(found.plan.groups, found.kernels): ...

A plan speaks of its own buffers, so that equal regions share it: `inputs[k]` is `region.inputs[k]`
("i0", "i1", ...), `outputs[k]` is `region.outputs[k]` ("o0", ...; its buffer may have more dims, as
a reshape of the value has), `temporaries` ("t0", ...) live inside the region only. Every temporary
and output is the buffer of exactly one root; groups are in an order in which each buffer is written
before it is read; no group reads a buffer that it writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from lumjax.kernel.emit import Reject
from lumjax.kernel.ir import Kernel
from lumjax.kernel.schedule import Schedule
from lumjax.kernel.term import Buffer, Group, Root
from lumjax.record import record


@record
class Plan:
    """A region's program: what is stored, and what one kernel computes together."""

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    temporaries: tuple[Buffer, ...]
    groups: tuple[Group, ...]
    cost: float  # predicted seconds on the reference constants of the target
    truncated: bool = (
        False  # the search was stopped by the clock, so another run may find another plan
    )
    schedules: tuple[Schedule, ...] | None = None  # of the groups, as measured; None: not measured


@record
class Report:
    """How a plan was found, for `explain`."""

    key: str  # the region's
    cached: bool  # the plan came from disk
    rules: tuple[tuple[str, int], ...] = ()  # rules that fired and how often, most first
    terms: int = 0  # e-nodes when saturation stopped
    saturated: bool = True  # no rule could add anything more
    evaluations: int = 0  # plans priced
    sizes: tuple[int, ...] = ()  # e-nodes as encoded, then after each iteration of the rules
    rule_seconds: tuple[tuple[str, float], ...] = ()  # time of each ruleset or rule
    used: tuple[str, ...] | None = None  # rules that derive the plan; None: not looked for
    searching: bool = False  # not searched here: another thread searches for the next process
    measured: tuple[Measured, ...] = ()  # kernels that were profiled
    traced_cost: float = 0.0  # predicted seconds of the program as traced
    cost: float = 0.0  # of the plan
    seconds: tuple[tuple[str, float], ...] = ()  # wall time of each stage
    rejects: tuple[str, ...] = ()  # what `lower` refused, each answered by materialising a term
    fallbacks: tuple[str, ...] = ()  # buffers computed by the scalar fallback


@record
class Measured:
    """One profiled kernel: seconds of CPU time as predicted best and as chosen."""

    kernel: str
    default: float
    chosen: float
    schedule: str  # the choice; empty: the default
    tried: int = 0
    refused: int = 0  # candidates that verification refused


# Makes a kernel of a group, with a schedule if one was measured, or names the term whose store may
# help; looks at the group alone.
Lower: TypeAlias = Callable[..., Kernel | Reject]


@record
class Found:
    """A plan, its kernels (one per group, in order) and the report."""

    plan: Plan
    kernels: tuple[Kernel, ...]
    report: Report
    rivals: tuple[Plan, ...] = ()  # other plans of the region, best first, for profiling
    traced: tuple[Root, ...] = ()  # the program as traced, and as chosen; empty if from disk
    chosen: tuple[Root, ...] = ()


clock = time.thread_time


@record
class Budget:
    """Bounds of a search. `seconds` alone depends on the machine: it marks the plan truncated. They
    are of the searching thread's processor time (`clock`), so that other load truncates nothing.

    Without evaluations there is no search: the traced program is planned as it is. `memory` bounds
    the bytes that the program may hold between kernels (0: no bound). `profile` says that choices
    are made by measuring, so that plans differ between machines.
    """

    evaluations: int = 2000
    terms: int = 20000
    seconds: float = 10.0
    seed: int = 0
    memory: int = 0
    profile: bool = False
