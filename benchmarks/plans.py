"""Many plans of one program: what is stored, computed again and streamed differs, the result not.

Prices play no part in which plans these are, so that they can be judged by them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import lumjax
from lumjax.egraph.choose import closed, encoded_roots
from lumjax.egraph.cost import Machine, kernel_time
from lumjax.egraph.encode import Encoded, encode
from lumjax.egraph.extract import Extraction
from lumjax.egraph.inline import inlined
from lumjax.egraph.layout import Layout
from lumjax.egraph.materialise import Planned, arrange
from lumjax.egraph.plan import Budget
from lumjax.egraph.realise import realise
from lumjax.egraph.scalar import Operations
from lumjax.egraph.search import lower_for, saturated
from lumjax.egraph.stores import check, store_forced
from lumjax.egraph.tree import Tree
from lumjax.executable import expand
from lumjax.kernel.ir import Kernel
from lumjax.kernel.region import Region, cut
from lumjax.kernel.term import Apply, Group, Reduction, Root, free_names, subterms
from lumjax.target import Target
from lumjax.trace.simplify import simplify

RANDOM = 3  # random programs, and as many random stores


@dataclass(frozen=True)
class Variant:
    """One plan of a region: what it is called, its kernels and what it is predicted to take."""

    name: str
    planned: Planned
    groups: tuple[Group, ...]
    kernels: tuple[Kernel, ...]


def predicted(planned: Planned, machine: Machine) -> float:
    """Seconds of one core that a plan is predicted to take."""
    alone = replace(machine, units=1)
    layout = planned.layout
    found = [check(layout, members) for members in planned.groups]
    parts = [(c.axes, c.kernel(layout.fold)) for c in found]
    return sum(kernel_time(t, r, axes, alone, roles) for axes, (t, r, roles) in parts)


def regions(f: Callable[..., Any], *args: Any) -> list[Region]:
    """The regions of a program, in order."""
    jaxpr, _ = expand(simplify(lumjax.jit(f).program(*args).jaxpr))
    return [s for s in cut(simplify(jaxpr)) if isinstance(s, Region)]


def variants(region: Region, target: Target, machine: Machine, seed: int = 0) -> list[Variant]:
    """Distinct plans of a region, every one of which has kernels."""
    operations = Operations(region)
    encoded = inlined(encode(region, operations))
    lower = lower_for(target)
    found: dict[tuple[Group, ...], Variant] = {}
    for name, planned in _planned(region, encoded, operations, target, machine, seed):
        done = realise(planned, lower, machine)
        if not done.fallbacks:
            found.setdefault(done.groups, Variant(name, done.planned, done.groups, done.kernels))
    return list(found.values())


def _planned(
    region: Region,
    encoded: Encoded,
    operations: Operations,
    target: Target,
    machine: Machine,
    seed: int,
) -> Iterator[tuple[str, Planned]]:
    traced = tuple(r.term for r in encoded.roots)
    draw = random.Random(f"{seed} {region.key}")
    programs = {"traced": traced, **dict(_equal(encoded, operations, machine, draw))}
    for name, terms in programs.items():
        roots = encoded_roots(encoded, terms)
        if not all(map(closed, roots)):
            continue
        for fold in (True, False):
            layout = _layout(encoded, roots, fold)
            yield f"{name}{'' if fold else ', no loops over tiles'}", arrange(layout, machine)
    roots = encoded_roots(encoded, traced)
    layout = _layout(encoded, roots, False)
    alone = [frozenset({r.buffer.name}) for r in layout.roots]
    yield "traced, every value alone", arrange(layout, machine, alone)
    inner = [t for t in _inner(roots) if t not in layout.holders]
    for k in range(RANDOM if inner else 0):
        layout = _layout(encoded, roots, bool(k % 2))
        for term in draw.sample(inner, min(len(inner), 1 + k)):
            if term not in layout.holders:
                layout.store(term)
        store_forced(layout)
        yield f"traced, {1 + k} more stored", arrange(layout, machine)


def _layout(encoded: Encoded, roots: list[Root], fold: bool) -> Layout:
    layout = Layout(roots, encoded.layout, fold)
    store_forced(layout)
    return layout


def _inner(roots: list[Root]) -> list[Apply | Reduction]:
    """The terms below the roots that could be stored."""
    tops = {r.term for r in roots}
    found = dict.fromkeys(t for r in roots for t in subterms(r.term))
    kept = (t for t in found if isinstance(t, (Apply, Reduction)) and free_names(t))
    return [t for t in kept if t not in tops]


def _equal(
    encoded: Encoded, operations: Operations, machine: Machine, draw: random.Random
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Equal programs: three that the extraction begins with, and random ones."""
    extraction, _ = saturated(encoded, operations, machine, Budget(), time.perf_counter() + 600)
    if extraction is None:
        return
    for k, choice in enumerate(islice(extraction.choices(), 3)):
        terms = extraction.terms(dict(choice))
        if terms is not None:
            yield f"extracted {k}", terms
    tree = Tree(extraction, lambda _: 0.0, 0)
    for k in range(RANDOM):
        terms = _drawn(extraction, tree, draw)
        if terms is not None:
            yield f"random {k}", terms


def _drawn(extraction: Extraction, tree: Tree, draw: random.Random) -> tuple[Any, ...] | None:
    for _ in range(20):
        choice = {c: draw.choice(nodes) for c, nodes in tree.options.items()}
        terms = extraction.terms(choice)
        if terms is not None:
            return terms
    return None
