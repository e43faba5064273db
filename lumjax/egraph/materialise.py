"""From roots to groups: what one kernel computes together, which shared terms are stored.

Groups that read the same memory over the same axes are jammed, as long as one loop program computes
them together and no two groups wait for each other. A term that several groups compute is stored
where that is predicted faster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lumjax.egraph.cost import Machine, extent_of, factors, kernel_time, memory_time, work
from lumjax.egraph.stores import Check, Layout, Names, over, store_forced
from lumjax.kernel.region import volume
from lumjax.kernel.term import Apply, Axis, Group, Load, Reduction, Root, Term, free_names

_CANDIDATES = 12  # shared terms that are tried
_RESIDENT = 512  # points of a column that stay in cache between its reduction and its use
_SMALL = 64  # reading one buffer of fewer elements is no reason to share a kernel

Members: TypeAlias = "tuple[Root, ...]"
Forbidden: TypeAlias = "Sequence[frozenset[str]]"


def names(members: Members) -> Names:
    """The buffers that a group writes."""
    return tuple(r.buffer.name for r in members)


@dataclass(frozen=True, slots=True)
class _Summary:
    """The axis sets of a group's roots, and of its reductions' results."""

    roots: frozenset[frozenset[str]]
    rows: frozenset[frozenset[str]]


class Groups:
    """A partition of the roots into groups."""

    def __init__(self, layout: Layout, forbidden: Forbidden = ()) -> None:
        self.layout = layout
        self.forbidden = forbidden
        self.members: list[Members] = [(r,) for r in layout.roots]
        self._read: dict[Names, dict[str, int]] = {}
        self._summaries: dict[Names, _Summary] = {}
        self._fits: dict[tuple[Names, Names], bool] = {}

    def reads(self, members: Members) -> dict[str, int]:
        """The buffers that a group reads, and their sizes in elements."""
        key = names(members)
        if key not in self._read:
            self._read[key] = {
                t.buffer.name: volume(t.buffer.shape)
                for t in self.layout.cluster(members)
                if isinstance(t, Load)
            }
        return self._read[key]

    def order(self, groups: Sequence[Members]) -> list[int] | None:
        """An order in which buffers are written before they are read; None if there is none."""
        writer = {r.buffer.name: k for k, m in enumerate(groups) for r in m}
        waits = [{writer[b] for b in self.reads(m) if b in writer} for m in groups]
        done: dict[int, None] = {}
        while len(done) < len(waits):
            ready = [k for k, w in enumerate(waits) if k not in done and w <= done.keys()]
            if not ready:
                return None
            done.update(dict.fromkeys(ready))
        return list(done)

    def fits(self, a: Members, b: Members) -> bool:
        """Whether one kernel may compute both groups."""
        key = (names(a), names(b))
        if key not in self._fits:
            self._fits[key] = self._alike(a, b) and self._one_program((*a, *b))
        return self._fits[key]

    def _summary(self, members: Members) -> _Summary:
        key = names(members)
        if key not in self._summaries:
            found = [t for t in self.layout.cluster(members) if isinstance(t, Reduction)]
            free = frozenset(
                frozenset(n for n in free_names(t) if n in self.layout.axes) for t in found
            )
            self._summaries[key] = _Summary(frozenset(map(over, members)), free)
        return self._summaries[key]

    def _alike(self, a: Members, b: Members) -> bool:
        """A quick test that pairs which fit pass: rows that every root keeps or reduces over."""
        x, y = self._summary(a), self._summary(b)
        rows, roots = x.rows | y.rows, x.roots | y.roots
        if len(rows) < 2:
            return all(r <= k for r in rows for k in roots)
        return any(
            all(r == row or not r & row for r in rows)
            and all(row <= k or not k & row for k in roots)
            for row in rows
        )

    def _one_program(self, roots: Members) -> bool:
        written = {r.buffer.name for r in roots}
        if any(written >= f for f in self.forbidden):
            return False
        check = Check(self.layout, roots)
        if any(isinstance(t, Load) and t.buffer.name in written for t in check.terms):
            return False
        if not check.found:
            return len({over(r) for r in roots}) == 1
        if check.problem() is not None:
            return False
        if any(factors(t) for t in check.found):
            return True
        grid = check.grid()
        if any(check.free(t) != grid for t in check.found):
            return True  # rows with sums across them
        reduced = {frozenset(a.name for a in t.axes) for t in check.found}
        long = max(extent_of(sorted(r), self.layout.axes) for r in reduced) > _RESIDENT
        if long and any(_by_columns(r, grid) for r in roots):
            return False  # sums over columns and a pass over everything: two passes either way
        rest = {over(r) - grid for r in roots} - {frozenset[str]()}
        return bool(grid) and len(rest | reduced) == 1

    def jam(self) -> None:
        """Merge groups that read the same memory over the same axes."""
        while self._merge_one():
            pass

    def _merge_one(self) -> bool:
        for a, b in self._pairs():
            if not self.fits(self.members[a], self.members[b]):
                continue
            together = (*self.members[a], *self.members[b])
            rest = [m for k, m in enumerate(self.members) if k not in (a, b)]
            rest.insert(a, together)
            if self.order(rest) is not None:
                self.members = rest
                return True
            self._fits[names(self.members[a]), names(self.members[b])] = False
        return False

    def _pairs(self) -> list[tuple[int, int]]:
        """Pairs of groups where one reads the other's buffer, then pairs that read one buffer."""
        reads = [self.reads(m) for m in self.members]
        large = [{n for n, size in r.items() if size >= _SMALL} for r in reads]
        writes = [{r.buffer.name for r in m} for m in self.members]
        direct: list[tuple[int, int]] = []
        shared: list[tuple[int, int]] = []
        for b in range(len(reads)):
            for a in range(b):
                if reads[a].keys() & writes[b] or reads[b].keys() & writes[a]:
                    direct.append((a, b))
                elif large[a] & large[b]:
                    shared.append((a, b))
        return direct + shared


@dataclass(frozen=True, slots=True)
class Planned:
    """Groups in order and their predicted cost. `layout` can be extended and planned again."""

    layout: Layout
    groups: tuple[tuple[Root, ...], ...]
    cost: float

    def finished(self) -> tuple[Group, ...]:
        """The groups as kernels see them."""
        return tuple(self.layout.finished(g) for g in self.groups)


def arrange(layout: Layout, machine: Machine, forbidden: Forbidden = ()) -> Planned:
    """Jam and order the roots; no group writes all buffers of a forbidden set."""
    groups = Groups(layout, forbidden)
    groups.jam()
    order = groups.order(groups.members)
    if order is None:
        raise AssertionError("stored terms depend on each other in a circle")
    members = tuple(groups.members[k] for k in order)
    layout, members = _without_unread(layout, members)
    cost = sum(kernel_time(layout.cluster(m), m, layout.axes, machine) for m in members)
    return Planned(layout, members, cost)


def _without_unread(
    layout: Layout, members: tuple[Members, ...]
) -> tuple[Layout, tuple[Members, ...]]:
    """Temporaries that only their own group uses need not be stored."""
    read = {t.buffer.name for m in members for t in layout.cluster(m) if isinstance(t, Load)}
    unread = {n for n in layout.temporary if n not in read}
    if not unread:
        return layout, members
    kept = tuple(tuple(r for r in m if r.buffer.name not in unread) for m in members)
    return layout.without(unread), tuple(m for m in kept if m)


def _by_columns(root: Root, grid: frozenset[str]) -> bool:
    """Whether a root holds whole rows of which the innermost axis is not reduced."""
    axes = [a.name for a in root.axes if a.name in over(root)]
    return len(axes) > len(grid) and axes[-1] in grid


class Meter:
    """Counts priced groupings against a budget. The clock only aborts, and then says so."""

    def __init__(self, evaluations: int, deadline: float) -> None:
        self.evaluations, self.deadline = evaluations, deadline
        self.spent = 0
        self.truncated = False

    def spend(self) -> bool:
        """Whether one more grouping may be priced."""
        self.truncated |= time.perf_counter() > self.deadline
        self.spent += 1
        return self.spent <= self.evaluations and not self.truncated


def materialise(
    roots: Sequence[Root],
    order: Mapping[Term, tuple[Axis, ...]],
    machine: Machine,
    meter: Meter,
) -> Planned:
    """The cheapest grouping: forced stores, then shared terms that pay for their store."""
    layout = Layout.of(roots, order)
    store_forced(layout)
    best = arrange(layout, machine)
    for term in _shared(best, machine):
        if not meter.spend():
            break
        trial = best.layout.copy()
        if term in trial.holders:
            continue
        trial.store(term)
        store_forced(trial)
        planned = arrange(trial, machine)
        if planned.cost < 0.99 * best.cost:
            best = planned
    return best


def _shared(planned: Planned, machine: Machine) -> list[Term]:
    """Terms that several groups compute, in order of what computing them again costs."""
    uses: dict[Term, int] = {}
    for members in planned.groups:
        for t in planned.layout.cluster(members):
            if isinstance(t, (Apply, Reduction)) and t not in planned.layout.holders:
                uses[t] = uses.get(t, 0) + 1
    axes = planned.layout.axes
    worth: list[tuple[float, int, Term]] = []
    for k, (t, n) in enumerate(uses.items()):
        if n < 2:
            continue
        gain = (n - 1) * work(planned.layout.cluster_of(t), axes, machine)
        points = extent_of(free_names(t), axes)
        price = memory_time(2 * points * t.dtype.itemsize, machine)
        if gain > price:
            worth.append((gain - price, -k, t))
    return [t for _, _, t in sorted(worth, reverse=True, key=lambda w: w[:2])[:_CANDIDATES]]
