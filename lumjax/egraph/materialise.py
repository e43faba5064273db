"""From roots to groups: what one kernel computes together, which shared terms are stored.

Groups that read the same memory over the same axes are jammed, as long as one loop program computes
them together and no two groups wait for each other. A term that several groups compute, or that
lives in the tiles of a loop, is stored where that is predicted to pay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from lumjax.egraph.cost import Machine, extent_of, factors, memory_time, work
from lumjax.egraph.layout import (
    BLOCKS,
    LOOPS,
    RESIDENT,
    Layout,
    Members,
    Memo,
    Names,
    bytes_of,
    names,
    over,
)
from lumjax.egraph.plan import clock
from lumjax.egraph.stores import check, in_steps, store_forced
from lumjax.kernel.blocked import may_block
from lumjax.kernel.region import volume
from lumjax.kernel.resident import may_stay
from lumjax.kernel.term import (
    Apply,
    Axis,
    Buffer,
    Group,
    Load,
    Reduction,
    Root,
    Term,
    free_names,
    loads,
    subterms,
)
from lumjax.record import record

_CANDIDATES = 12  # shared terms that are tried
_RESIDENT = 512  # points of a column that stay in cache between its reduction and its use
_LONG = 32  # elements of a reduction whose loop is worth vectors
_SMALL = 64  # reading one buffer of fewer elements is no reason to share a kernel
_GAIN = 0.99  # a change must be predicted this much cheaper
_TIE = 1.02  # prices nearer to each other than this tell nothing

_OVER = 1.0  # seconds for a byte that there is no memory for: nothing else matters then
_FREE = 1 << 22  # bytes of temporaries that are never too many

Forbidden: TypeAlias = "Sequence[frozenset[str]]"


class Groups:
    """A partition of the roots into groups."""

    def __init__(self, layout: Layout, machine: Machine, forbidden: Forbidden = ()) -> None:
        self.layout = layout
        self.machine = machine
        self.forbidden = forbidden
        self.members: dict[int, Members] = {k: (r,) for k, r in enumerate(layout.roots)}
        self.reads: dict[int, dict[str, int]] = {k: self._reads(m) for k, m in self.members.items()}
        self.writer = {r.buffer.name: k for k, r in enumerate(layout.roots)}
        self._refused: set[tuple[Names, Names]] = set()

    def _reads(self, members: Members) -> dict[str, int]:
        """The buffers that a group reads, and their sizes in elements."""
        return {
            t.buffer.name: volume(t.buffer.shape)
            for t in self.layout.cluster(members)
            if isinstance(t, Load)
        }

    def needs(self, k: int) -> list[int]:
        """The groups that write what group k reads."""
        found = dict.fromkeys(self.writer[b] for b in self.reads[k] if b in self.writer)
        return list(found)

    def order(self) -> list[Members]:
        """The groups in an order in which buffers are written before they are read."""
        done: dict[int, None] = {}
        while len(done) < len(self.members):
            ready = [
                k
                for k in self.members
                if k not in done and all(n in done for n in self.needs(k) if n != k)
            ]
            if not ready:
                raise AssertionError("stored terms depend on each other in a circle")
            done.update(dict.fromkeys(ready))
        return [self.members[k] for k in done]

    def _waits(self, a: int, b: int) -> bool:
        """Whether group a waits for group b by way of a third one."""
        stack = [n for n in self.needs(a) if n != b]
        seen: set[int] = set()
        while stack:
            k = stack.pop()
            if k == b:
                return True
            if k not in seen:
                seen.add(k)
                stack.extend(self.needs(k))
        return False

    def fits(self, a: Members, b: Members) -> bool:
        """Whether one kernel may compute both groups."""
        if not self._alike(a, b):
            return False
        first, second = self.writer[a[0].buffer.name], self.writer[b[0].buffer.name]
        apart = not (second in self.needs(first) or first in self.needs(second))
        if apart:
            return self._one_program(self.layout.join(a, b))
        return self._one_program((*a, *b)) and (
            self.layout.fold >= BLOCKS or not self._cheaper_apart(a, b)
        )

    def _cheaper_apart(self, a: Members, b: Members) -> bool:
        """Whether what one group reads of the other would be computed again for more than that."""
        together, *apart = (self._seconds(m) for m in ((*a, *b), a, b))
        return together > sum(apart)

    def _seconds(self, members: Members) -> float:
        return check(self.layout, members).seconds(self.layout.fold, self.machine)

    def _alike(self, a: Members, b: Members) -> bool:
        """A quick test that pairs which fit pass: rows that every root keeps or reduces over."""
        first, second = check(self.layout, a), check(self.layout, b)
        if self.layout.fold:
            first.problem(True)
            second.problem(True)
        stay = [c.stays(self.layout.fold) is not None for c in (first, second)]
        if self.layout.fold >= BLOCKS and not set(first.found).isdisjoint(second.found):
            return True
        if any(stay):  # what holds rows may hold those of a loop, or of another such job, too
            held = all(s or c.folded for s, c in zip(stay, (first, second), strict=True))
            return held and not first.meanings.isdisjoint(second.meanings)
        if first.folded or second.folded:
            both = first.folded and second.folded and first.walks == second.walks
            return bool(both) or not (first.found and second.found)
        x, y = first.summary, second.summary
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
        found = check(self.layout, roots)
        if any(isinstance(t, Load) and t.buffer.name in written for t in found.terms):
            return False
        if not found.found:
            return len({over(r) for r in roots}) == 1
        if found.problem(self.layout.fold) is not None:
            return False
        if found.stays(self.layout.fold) or found.blocks(self.layout.fold):
            return True
        if found.folded is None and _steps_inside(found.found, self.layout.axes):
            return False
        if any(factors(t) for t in found.found):
            return True
        grid = found.grid()
        if any(found.free(t) != grid for t in found.found):
            return True  # rows with sums across them
        reduced = {frozenset(a.name for a in t.axes) for t in found.found}
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
            key = names(self.members[a]), names(self.members[b])
            if key in self._refused:
                continue
            together = (*self.members[a], *self.members[b])
            if self.fits(*(self.members[k] for k in (a, b))) and not (
                self._waits(a, b) or self._waits(b, a)
            ):
                self._merge(a, b, together)
                return True
            self._refused.add(key)
        return False

    def _merge(self, a: int, b: int, together: Members) -> None:
        self.members[a] = together
        self.reads[a] = self._reads(together)
        del self.members[b], self.reads[b]
        self.writer.update((r.buffer.name, a) for r in together)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of groups where one reads the other's buffer, then pairs that read one buffer."""
        readers: dict[str, list[int]] = {}
        for k, read in self.reads.items():
            for name, size in read.items():
                if size >= _SMALL:
                    readers.setdefault(name, []).append(k)
        direct = {(min(k, n), max(k, n)) for k in self.members for n in self.needs(k) if n != k}
        yield from sorted(direct, key=lambda p: p[::-1])
        shared = {(a, b) for r in readers.values() for k, b in enumerate(r) for a in r[:k]}
        yield from sorted(shared - direct, key=lambda p: p[::-1])


@record
class Planned:
    """Groups in order, their predicted seconds and what the temporaries add to the price. `layout`
    can be extended and planned again.
    """

    layout: Layout
    groups: tuple[Members, ...]
    cost: float
    space: float = 0.0

    @property
    def price(self) -> float:
        """What plans are compared by."""
        return self.cost + self.space

    def finished(self) -> tuple[Group, ...]:
        """The groups as kernels see them."""
        return tuple(self.layout.finished(g) for g in self.groups)


def arrange(layout: Layout, machine: Machine, forbidden: Forbidden = ()) -> Planned:
    """Jam and order the roots; no group writes all buffers of a forbidden set."""
    groups = Groups(layout, machine, forbidden)
    groups.jam()
    layout, members = _without_unread(layout, tuple(groups.order()))
    cost = sum(check(layout, m).seconds(layout.fold, machine) for m in members)
    return Planned(layout, members, cost, _space(layout, members, machine))


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


def _steps_inside(reductions: Sequence[Reduction], axes: Mapping[str, Axis]) -> bool:
    """Whether a long reduction whose results are reduced in turn reads in steps what lies together
    along another axis: by itself it is computed for many neighbours at once.
    """
    mine = set(reductions)
    every = (t for r in reductions for t in subterms(r.body))
    nested = {t for t in every if isinstance(t, Reduction) and t in mine}
    long = [t for t in nested if extent_of([a.name for a in t.axes], axes) >= _LONG]
    return any(in_steps(u, {a.name for a in t.axes}) for t in long for u in loads(t.body))


def _by_columns(root: Root, grid: frozenset[str]) -> bool:
    """Whether a root holds whole rows of which the innermost axis is not reduced."""
    axes = [a.name for a in root.axes if a.name in over(root)]
    return len(axes) > len(grid) and axes[-1] in grid


# ---- memory


def _space(layout: Layout, members: Sequence[Members], machine: Machine) -> float:
    """What the memory that a plan needs for itself is worth."""
    sizes = [bytes_of(r.buffer) for r in layout.roots if not _kept(r.buffer)]
    most = peak(layout, members)
    twice = sum(n for n in sizes if layout.widest and n > layout.widest)
    price = machine.space * sum(sizes) + excess(most + twice, layout.room, machine)
    return price + _OVER * max(0, most - layout.limit) if layout.limit else price


def excess(most: int, room: int, machine: Machine) -> float:
    """What bytes beyond a fair part of inputs and outputs are worth: the more, the dearer each."""
    beyond = max(0, most - room)
    return machine.excess * beyond * (1 + beyond / max(1, room))


def _kept(buffer: Buffer) -> bool:
    """Whether a buffer outlives the region."""
    return buffer.name.startswith(("i", "o"))


def peak(layout: Layout, members: Sequence[Members]) -> int:
    """The most bytes that are alive at once, if groups run in this order: temporaries, and what
    kernels need for themselves. Neighbours run at once unless one reads what another writes.
    """
    read = [{t.buffer.name for t in layout.cluster(m) if isinstance(t, Load)} for m in members]
    wave: list[int] = []
    written: set[str] = set()
    for m, names_read in zip(members, read, strict=True):
        begins = not wave or not written.isdisjoint(names_read)
        written = set(names(m)) | (set[str]() if begins else written)
        wave.append((wave[-1] if wave else -1) + begins)
    last = {n: w for w, names_read in zip(wave, read, strict=True) for n in names_read}
    change = [0] * (len(members) + 1)
    for w, m in zip(wave, members, strict=True):
        own = check(layout, m).workspace(layout.fold)
        change[w] += own
        change[w + 1] -= own
        for r in m:
            if not _kept(r.buffer):
                change[w] += bytes_of(r.buffer)
                change[last.get(r.buffer.name, w) + 1] -= bytes_of(r.buffer)
    return max(accumulate(change), default=0)


def room(roots: Sequence[Root], large: bool = False) -> int:
    """The bytes of temporaries that are no excess: a quarter of what comes in and goes out, and as
    much as nobody misses, unless there are values that are too `large` to store.
    """
    return max(0 if large else _FREE, sum(_outside(roots)) // 4)


def _outside(roots: Sequence[Root]) -> list[int]:
    """The bytes of each buffer that outlives the region."""
    kept = {r.buffer.name: r.buffer for r in roots if _kept(r.buffer)}
    for r in roots:
        kept.update((t.buffer.name, t.buffer) for t in loads(r.term) if _kept(t.buffer))
    return [bytes_of(b) for b in kept.values()]


# ---- the stores that pay


class Meter:
    """Counts priced groupings against a budget. The clock only aborts, and then says so."""

    def __init__(self, evaluations: int, deadline: float) -> None:
        self.evaluations, self.deadline = evaluations, deadline
        self.spent = 0
        self.truncated = False

    def spend(self) -> bool:
        """Whether one more grouping may be priced."""
        self.truncated |= clock() > self.deadline
        self.spent += 1
        return self.spent <= self.evaluations and not self.truncated


def forced(
    roots: Sequence[Root],
    order: Mapping[Term, tuple[Axis, ...]],
    machine: Machine,
    memo: Memo | None = None,
    memory: int = 0,
    large: bool = False,
) -> Planned:
    """The cheapest of the groupings that store only what must be, without folds, with them, with
    jobs that hold whole rows, and with blocks of rows; one with folds, which stores less, at about
    the same price.
    """
    plans: list[Planned] = []
    memo = {} if memo is None else memo
    for fold in (0, LOOPS, RESIDENT, BLOCKS):
        if fold == RESIDENT and not (machine.holds and may_stay(roots)):
            continue
        if fold == BLOCKS and not (machine.holds and may_block(roots)):
            continue
        layout = Layout(roots, order, fold, memo)
        layout.room, layout.limit = room(roots, large), memory
        layout.widest = max(_outside(roots), default=0) if large else 0
        store_forced(layout)
        plans.append(arrange(layout, machine))
        if len(layout.roots) == len(roots):
            break  # nothing that a fold could spare
    return min(plans, key=lambda p: p.price * (_TIE if not p.layout.fold else 1.0))


def materialise(
    roots: Sequence[Root],
    order: Mapping[Term, tuple[Axis, ...]],
    machine: Machine,
    meter: Meter,
) -> Planned:
    """The cheapest grouping: forced stores, then terms that pay for their store."""
    return improved(forced(roots, order, machine), machine, meter)


def improved(best: Planned, machine: Machine, meter: Meter) -> Planned:
    """The grouping with more terms stored, as long as each pays."""
    for term in (*_tiles(best), *_shared(best, machine)):
        if term in best.layout.holders:
            continue
        if not meter.spend():
            break
        trial = best.layout.copy()
        trial.store(term)
        store_forced(trial)
        planned = arrange(trial, machine)
        if planned.price < _GAIN * best.price:
            best = planned
    return best


def _tiles(planned: Planned) -> list[Term]:
    """What folds keep in tiles and other programs would store, in order of the groups."""
    found: dict[Term, None] = {}
    for members in planned.groups:
        known = check(planned.layout, members)
        term = known.problem(False) if known.folded else None
        if term is not None:
            found[term] = None
    return list(found)


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
        size = int(points) * t.dtype.itemsize
        price = memory_time(2 * size, machine) + machine.space * size
        price += excess(size, planned.layout.room, machine)
        if gain > price:
            worth.append((gain - price, -k, t))
    return [t for _, _, t in sorted(worth, reverse=True, key=lambda w: w[:2])[:_CANDIDATES]]
