"""From a group of terms to a kernel: which of the loop programs computes which roots.

    lower(group, target) -> Kernel | Reject(term, why)      the programs below
    lower_scalar(root)   -> Kernel                          the fallback: any single root

The roots are divided into parts that share axes or reductions; each part becomes one or two
phases of the kernel:

    MAP       no reductions: one pass, vectors along the last axis            kernel/map.py
    CONTRACT  a sum of products with free axes on both sides: register tiles  kernel/contract.py
    FOLD      reductions of contractions: loops over tiles, with running statistics  kernel/fold.py
    RESIDENT  contractions of contractions over short rows: all of it in scratch  kernel/resident.py
    BLOCKS    contractions of contractions over many rows, block by block  kernel/blocked.py
    ROW       reductions that give one number per row: rows in parallel       kernel/row.py
    SPLIT     reductions across rows too: partial results, then their sum     kernel/split.py

Convolutions are CONTRACTs. Where each feature is convolved by itself (depthwise) the two sides
have no axes of their own, and a tile of rows and columns has nothing to share: these are ROWs, with
vectors along features or a row of places, and their sums over the batch may be SPLITs.

What fits none of them is refused, naming the reduction that should be stored in a buffer of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from lumjax.kernel.blocked import blocked
from lumjax.kernel.blocked_emit import plan_blocks
from lumjax.kernel.contract import contraction, emit_contract, worth_tiling
from lumjax.kernel.emit import Emitter, Reject
from lumjax.kernel.fold import emit_fold, worth_folding
from lumjax.kernel.ir import Kernel
from lumjax.kernel.map import emit_map
from lumjax.kernel.prepare import prepare
from lumjax.kernel.resident import most_resident, residence
from lumjax.kernel.resident_emit import emit_resident
from lumjax.kernel.roles import Roles, fold_roles
from lumjax.kernel.row import emit_rows, grid_axes, reductions, unfit
from lumjax.kernel.scalar import emit_scalar, lower_scalar
from lumjax.kernel.schedule import DEFAULT, Schedule
from lumjax.kernel.split import emit_split, split_axis
from lumjax.kernel.term import Group, Reduction, Root, loads
from lumjax.target import Target

__all__ = ["Reject", "lower", "lower_scalar"]


class Program(NamedTuple):
    """A loop program for some roots: what it is called, and how it is emitted."""

    name: str
    emit: Callable[[], None]


def lower(
    group: Group, target: Target, name: str = "kernel", schedule: Schedule = DEFAULT
) -> Kernel | Reject:
    """One kernel that computes the group's roots, or the term that keeps it from being one.

    `schedule` replaces sizes that the loop programs would choose themselves.
    """
    prepared = prepare(group)
    emitter = Emitter(prepared, target, schedule)
    refused: Reject | None = None
    for parts in divisions(prepared.live()):
        programs = [choose(emitter, roots) for roots in parts]
        wrong = [p for p in programs if isinstance(p, Reject)]
        if not wrong:
            made = [p for p in programs if isinstance(p, Program)]
            for program in made:
                program.emit()
            return replace(emitter.kernel(name), programs=tuple(p.name for p in made))
        refused = refused or wrong[0]
    assert refused is not None, "a group has a division"
    return Reject(prepared.origin[refused.term], refused.why)


def choose(emitter: Emitter, roots: Sequence[Root]) -> Program | Reject:
    """The program that computes the roots together."""
    found = reductions(r.term for r in roots)
    if not found:
        return Program("MAP", lambda: emit_map(emitter, roots))
    tiles = contraction(emitter, roots, found)
    if tiles is not None:
        return Program("CONTRACT", lambda: emit_contract(emitter, tiles))
    roles = fold_roles(roots, emitter.prepared.sizes)
    if isinstance(roles, Roles) and worth_folding(emitter, roles):
        return Program("FOLD", lambda: emit_fold(emitter, roles, roots))
    tiled = [t for t in found if worth_tiling(emitter, t) and not _alone(roots, t)]
    if tiled:
        refused = Reject(tiled[0], "it is a contraction, which is tiled by itself")
        return _resident(emitter, roots) or _blocked(emitter, roots) or refused
    split = split_axis(emitter, roots, found)
    if split is not None:
        return Program("SPLIT", lambda: emit_split(emitter, roots, split))
    refused = unfit(emitter, roots, found)
    if refused is None:
        return Program("ROW", lambda: emit_rows(emitter, roots))
    if _alone(roots, found[-1]):
        return Program("SCALAR", lambda: emit_scalar(emitter, roots[0]))
    return _resident(emitter, roots) or _blocked(emitter, roots) or refused


def _blocked(emitter: Emitter, roots: Sequence[Root]) -> Program | None:
    """The program that stores what lies between for a block of rows at a time."""
    if not most_resident(emitter.target):
        return None
    found = blocked(roots, emitter.prepared.sizes)

    def emit(some: Sequence[Root]) -> Callable[[], None] | Reject:
        made = choose(emitter, some)
        return made if isinstance(made, Reject) else made.emit

    made = None if found is None else plan_blocks(emitter, found, emit)
    return None if made is None or isinstance(made, Reject) else Program("BLOCKS", made)


def _resident(emitter: Emitter, roots: Sequence[Root]) -> Program | None:
    """The program that holds all that lies between in scratch, if there is room."""
    found = residence(roots, emitter.prepared.sizes, most_resident(emitter.target))
    return None if found is None else Program("RESIDENT", lambda: emit_resident(emitter, found))


def _alone(roots: Sequence[Root], term: Reduction) -> bool:
    """Whether the roots are nothing but one reduction of terms without any."""
    return len(roots) == 1 and roots[0].term is term and reductions([term]) == [term]


def divisions(roots: Sequence[Root]) -> Iterable[list[list[Root]]]:
    """Ways to divide roots into parts, the most sharing first."""
    yield joined(roots, together)
    yield joined(roots, overlapping)
    yield [[r] for r in roots]


def joined(roots: Sequence[Root], related: Callable[[Root, Root], bool]) -> list[list[Root]]:
    """The connected components of a relation, in order."""
    parts: list[list[Root]] = []
    for root in roots:
        mine = [p for p in parts if any(related(r, root) for r in p)]
        parts = [p for p in parts if p not in mine]
        parts.append([r for p in mine for r in p] + [root])
    return parts


def overlapping(a: Root, b: Root) -> bool:
    """Whether two roots share a reduction, or are pointwise over the same axes."""
    mine, others = reductions([a.term]), reductions([b.term])
    if not mine and not others:
        return a.axes == b.axes
    return not set(mine).isdisjoint(others)


def together(a: Root, b: Root) -> bool:
    """Whether two roots may gain from one pass over their rows."""
    if overlapping(a, b):
        return True
    if not set(loads(a.term)) & set(loads(b.term)):
        return False
    mine, others = reductions([a.term]), reductions([b.term])
    return set(grid_axes([a], mine)) == set(grid_axes([b], others)) or a.axes == b.axes
