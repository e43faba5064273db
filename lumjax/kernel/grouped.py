"""Rows of groups: what is reduced over places and the few features of a group, where features are
last in memory, in vectors that run across all groups.

A row of four neighbours fills no vector, and rows side by side lie far apart. Groups and their
features are walked as one axis of columns instead: each is reduced in a lane of its own, then those
of a group together, and the result is spread over its columns, where the next pass reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from lumjax import dtype as dt
from lumjax.kernel.columns import Joined, as_one
from lumjax.kernel.emit import Emitter, Scope, held, ordered_axes, unit_strides
from lumjax.kernel.ir import Accumulate, LoadValue, LoopKind, Ref, StoreStmt, Value
from lumjax.kernel.prepare import offset
from lumjax.kernel.rewrite import axis_symbol, rebuild, rewrite
from lumjax.kernel.share import extent, over_rows
from lumjax.kernel.term import (
    Axis,
    Buffer,
    Index,
    Load,
    Reduction,
    Root,
    Running,
    Term,
    free_names,
    subterms,
)
from lumjax.record import record
from lumjax.target import Backend
from lumjax.trace.dim import Dim

FEWEST = 8  # places for which the passes over columns are worth it


@record
class Grouped:
    """How rows are walked: `joined` are groups and features, `rest` the other reduced axes; each of
    `alone` is a load that knows groups, but neither features nor places.
    """

    outer: tuple[Axis, ...]
    joined: Joined
    rest: tuple[Axis, ...]
    alone: tuple[Load, ...]


def grouped(
    emitter: Emitter, roots: Sequence[Root], found: Sequence[Reduction], grid: Sequence[Axis]
) -> Grouped | None:
    """The way to walk rows of groups, if these are such rows."""
    target = emitter.target
    if target is None or target.backend is not Backend.CPU or len({t.axes for t in found}) != 1:
        return None
    *rest, feature = ordered_axes(found)
    terms = [*(t.body for t in found), *(r.term for r in roots)]
    lanes = target.lanes(dt.accumulation_dtype(found[0].dtype).itemsize)
    few = 1 < extent(emitter, [feature]) < lanes
    if not few or extent(emitter, rest) < FEWEST or not unit_strides(terms, feature):
        return None
    nodes = list(dict.fromkeys(t for term in terms for t in subterms(term)))
    for group in grid:
        if extent(emitter, [group, feature]) < lanes or not _stored(roots, group, feature, rest):
            continue
        outer = tuple(a for a in grid if a is not group)
        alone = _alone(nodes, group, feature, {a.name for a in rest})
        if alone is not None:
            both = Axis(emitter.fresh("col"), group.extent * feature.extent)
            joined = Joined((), group, feature, both)
            return Grouped(outer, joined, tuple(rest), alone)
    return None


def _stored(roots: Iterable[Root], group: Axis, feature: Axis, rest: Iterable[Axis]) -> bool:
    """Whether roots are stored along columns, or know nothing but groups."""
    for root in roots:
        at = offset(tuple(a.extent for a in root.axes), map(axis_symbol, root.axes))
        if feature in root.axes and not as_one(at, group, feature):
            return False
        if feature not in root.axes and not set(rest).isdisjoint(root.axes):
            return False
    return True


def _alone(
    nodes: Iterable[Term], group: Axis, feature: Axis, places: set[str]
) -> tuple[Load, ...] | None:
    """The loads that know groups alone; None where columns can't be walked as one."""
    alone: list[Load] = []
    for t in nodes:
        names = free_names(t) if isinstance(t, Load | Index) else frozenset[str]()
        if not names & {group.name, feature.name}:
            continue
        if not isinstance(t, Load) or t.indices:
            return None
        if feature.name not in names and not names & places:
            alone.append(t)
        elif not all(as_one(e, group, feature) for e in (*t.coords, t.valid)):
            return None
    return tuple(alone)


def emit_grouped(
    emitter: Emitter,
    roots: Sequence[Root],
    levels: Sequence[Sequence[Reduction]],
    way: Grouped,
    row_work: int,
) -> None:
    """Append the phase that computes `roots`; reductions of a level wait for those before it."""
    work = row_work * extent(emitter, [way.joined.outer])
    over_rows(emitter, way.outer, work, partial(_Columns(emitter, way).emit, roots, levels))


class _Columns:
    """The passes over the columns of one row of groups."""

    def __init__(self, emitter: Emitter, way: Grouped) -> None:
        self.emitter, self.way = emitter, way
        self.group, self.feature = way.joined.outer, way.joined.inner
        self.both, self.at = way.joined.both, axis_symbol(way.joined.both)
        self.known: dict[Term, Buffer] = {}  # what groups know, spread over columns

    def emit(
        self, roots: Sequence[Root], levels: Sequence[Sequence[Reduction]], scope: Scope
    ) -> None:
        """Append them to a scope that binds the outer axes."""
        if self.way.alone:
            self._spread(self.way.alone, {}, scope)
        for level in levels:
            self._spread(level, self._reduced(level, scope), scope)
        wide = [r for r in roots if self.feature in r.axes]
        if wide:
            with scope.loop(self.both.name, self.both.extent, LoopKind.VECTOR) as columns:
                for root in wide:
                    self._store(root, columns)
        few = [r for r in roots if r not in wide]
        if few:
            with scope.loop(self.group.name, self.group.extent) as groups:
                for term, buffer in self.known.items():
                    at = axis_symbol(self.group) * self.feature.extent
                    groups.memo[term] = self.emitter.let(LoadValue(buffer, at), groups)
                for root in few:
                    self.emitter.store(root, groups)

    def _reduced(self, level: Sequence[Reduction], scope: Scope) -> dict[Term, Buffer]:
        """Each column's part of the reductions."""
        emitter = self.emitter
        terms = [
            Reduction(t.op, frozenset(self.way.rest), self._moved(t.body), t.dtype) for t in level
        ]
        parts = [self._buffer(held(t)) for t in level]
        with scope.loop(self.both.name, self.both.extent, LoopKind.VECTOR) as columns:
            names = emitter.fold(terms, ordered_axes(terms), columns, LoopKind.SERIAL)
            for part, name in zip(parts, names, strict=True):
                columns.add(StoreStmt(part, self.at, Ref(name, part.dtype)))
        return dict(zip(level, parts, strict=True))

    def _spread(self, terms: Iterable[Term], parts: Mapping[Term, Buffer], scope: Scope) -> None:
        """What groups know of `terms`, of which columns may have `parts`, at each column."""
        fresh: dict[Term, Buffer] = {}
        with scope.loop(self.group.name, self.group.extent) as groups:
            for term in terms:
                fresh[term] = buffer = self._buffer(term.dtype)
                value = self._of_group(term, parts.get(term), groups)
                with groups.loop(self.feature.name, self.feature.extent) as inner:
                    inner.add(StoreStmt(buffer, self._column(), value))
        self.known |= fresh

    def _of_group(self, term: Term, part: Buffer | None, groups: Scope) -> Value:
        """A load's value, or a reduction from those of its columns."""
        if part is None or not isinstance(term, Reduction):
            return self.emitter.value(term, groups)
        name = self.emitter.accumulator(term, groups)
        with groups.loop(self.feature.name, self.feature.extent) as inner:
            inner.add(Accumulate(name, LoadValue(part, self._column())))
        return self.emitter.finish(term, name, groups)

    def _column(self) -> Dim:
        return axis_symbol(self.group) * self.feature.extent + axis_symbol(self.feature)

    def _buffer(self, dtype: dt.DType) -> Buffer:
        size = self.emitter.size(self.both.extent)
        assert size is not None, "scratch has a constant size"
        return self.emitter.local(size, dtype)

    def _store(self, root: Root, columns: Scope) -> None:
        """A root's elements, column by column."""
        emitter = self.emitter
        at = offset(tuple(a.extent for a in root.axes), map(axis_symbol, root.axes))
        place, term = self.way.joined.place(at), self._moved(root.term)

        def store(scope: Scope) -> None:
            value = emitter.value(term, scope)
            scope.add(StoreStmt(emitter.buffer(root.buffer), place, value))

        inside = [a for a in root.axes if a in self.way.rest]
        emitter.nest(inside, columns, LoopKind.SERIAL, store)

    def _moved(self, term: Term) -> Term:
        """The term in columns; what is known is read from where it was spread."""
        place = self.way.joined.place

        def leaf(t: Term, kids: tuple[Term, ...]) -> Term:
            if t in self.known:
                return Load(self.known[t], (self.at,))
            if isinstance(t, Running):
                return kids[0]
            if isinstance(t, Load):
                return Load(t.buffer, tuple(map(place, t.coords)), place(t.valid), t.fill)
            return rebuild(t, kids, {})

        return rewrite(term, leaf, {})
