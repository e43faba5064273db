"""ROW: dependent reductions over rows (means, variances, sums along an axis), each row resident in
one job.

A row is one point of the axes that every root and every reduction result have free. Its
reductions are emitted in segments, cut where a result is used: one loop per segment, several
accumulators each, then the stores. Where the contiguous axis is reduced, segments are vector
loops; where it is kept (column reductions), the vector loop runs over a kept axis and the
segments are serial loops inside it. Expensive subterms that several segments need are kept in a
scratch row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from lumjax import dtype as dt
from lumjax.kernel.emit import (
    Emitter,
    Inside,
    Reject,
    Scope,
    jumps,
    ordered_axes,
    pending,
    unit_strides,
    walked_better,
)
from lumjax.kernel.grouped import emit_grouped, grouped
from lumjax.kernel.ir import LoadValue, LoopKind, StoreStmt
from lumjax.kernel.prepare import offset
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.share import WORK_PER_JOB, extent, over_pieces, over_rows, reduction_work, work
from lumjax.kernel.term import Apply, Axis, Buffer, Reduction, Root, Term, free_names, subterms
from lumjax.record import record

LONGEST_ROW = 2 * WORK_PER_JOB
SHORT = 8  # points that do not fill a vector
KEEP_WORK = 16  # a subterm at least this expensive is kept rather than recomputed


def reductions(terms: Iterable[Term]) -> list[Reduction]:
    """Every distinct reduction in the terms, inner ones first."""
    found: dict[Term, None] = {}
    for term in terms:
        found.update(dict.fromkeys(subterms(term)))
    return [t for t in found if isinstance(t, Reduction)]


def nested(term: Reduction) -> list[Reduction]:
    """The reductions inside the body."""
    return reductions([term.body])


def grid_axes(roots: Sequence[Root], found: Sequence[Reduction]) -> list[Axis]:
    """The axes that every root and every reduction result have free, in the first root's order."""
    names = frozenset(a.name for a in roots[0].axes)
    for root in roots[1:]:
        names &= {a.name for a in root.axes}
    for term in found:
        names &= free_names(term)
    return [a for a in roots[0].axes if a.name in names]


def axis_names(roots: Sequence[Root], found: Sequence[Reduction]) -> frozenset[str]:
    """The names of all axes."""
    return frozenset(a.name for r in roots for a in r.axes) | {
        a.name for t in found for a in t.axes
    }


def unfit(emitter: Emitter, roots: Sequence[Root], found: Sequence[Reduction]) -> Reject | None:
    """The reduction whose result is not one number per row, or that would make one long row."""
    axes = grid_axes(roots, found)
    grid = frozenset(a.name for a in axes)
    if (
        not axes
        and any(r.axes for r in roots)
        and row_work(emitter, roots, found, axes) > LONGEST_ROW
    ):
        waited = [t for t in found if any(t in nested(o) for o in found)]
        term = (waited or found[-1:])[0]
        return Reject(term, "there is more work than one job should do, and only one row")
    every = axis_names(roots, found)
    for term in found:
        if frozenset(free_names(term) & every) != grid:
            return Reject(term, "its free axes are not the rows that the group shares")
    return None


def emit_rows(emitter: Emitter, roots: Sequence[Root]) -> None:
    """Append the phase that computes `roots`, for which `unfit` found nothing."""
    found = reductions(r.term for r in roots)
    grid = grid_axes(roots, found)
    column = vector_axis(emitter, roots, found, grid)
    per_row = row_work(emitter, roots, found, grid)
    way = grouped(emitter, roots, found, grid)
    if way is not None:
        emit_grouped(emitter, roots, segments(found), way, per_row)
        return
    body = Row(emitter, found, stores(emitter, roots, (a.name for a in grid)))
    if column is None:
        over_rows(emitter, grid, per_row, lambda scope: body.emit(scope, LoopKind.VECTOR))
        return
    outer = [a for a in grid if a is not column]
    over_pieces(
        emitter,
        outer,
        column,
        per_row,
        lambda scope: emitter.nest(
            [column], scope, LoopKind.VECTOR, lambda inner: body.emit(inner, LoopKind.SERIAL)
        ),
    )


def row_work(
    emitter: Emitter, roots: Sequence[Root], found: Sequence[Reduction], grid: Sequence[Axis]
) -> int:
    """Roughly what one row costs."""
    inside = {a.name for a in grid}
    stores = sum(
        (work([r.term]) + 1) * extent(emitter, (a for a in r.axes if a.name not in inside))
        for r in roots
    )
    return stores + reduction_work(emitter, found)


def vector_axis(
    emitter: Emitter, roots: Sequence[Root], found: Sequence[Reduction], grid: Sequence[Axis]
) -> Axis | None:
    """The grid axis along which rows are computed side by side; None: vectors run inside, where no
    reduced axis, as that of a window, is too short for them.
    """
    terms = [t.body for t in found] + [r.term for r in roots]
    if not grid:
        return None
    reduced = ordered_axes(found) if len({t.axes for t in found}) == 1 else None
    inner = reduced[-1:] if reduced else [a for t in found for a in t.axes]
    best = max(
        grid, key=lambda a: (-jumps(terms, a), unit_strides(terms, a), a is roots[0].axes[-1])
    )
    if extent(emitter, [best]) >= SHORT and all(extent(emitter, [a]) < SHORT for a in inner):
        return best
    return best if unit_strides(terms, best) and walked_better(terms, best, inner) else None


@record
class Pass:
    """One loop nest over a row: reductions over its axes, or statements at each of its points."""

    axes: Sequence[Axis]
    terms: Sequence[Term]
    reductions: Sequence[Reduction] = ()
    statements: Sequence[Inside] = ()


class Row:
    """The passes over one row, and the subterms that scratch rows keep between them."""

    def __init__(
        self,
        emitter: Emitter,
        found: Sequence[Reduction],
        last: Mapping[tuple[Axis, ...], Sequence[tuple[Term, Inside]]],
    ) -> None:
        self.emitter = emitter
        self.passes = [
            Pass(ordered_axes(s), [t.body for t in s], reductions=s) for s in segments(found)
        ]
        for axes, pairs in last.items():
            self.passes.append(Pass(axes, [t for t, _ in pairs], statements=[s for _, s in pairs]))
        self.kept: dict[Term, Buffer] = {}

    def emit(self, scope: Scope, kind: LoopKind) -> None:
        """Append the passes to a scope that binds the grid; `kind`: that of their inner loops."""
        if kind is LoopKind.VECTOR:
            self.kept = keep(self.emitter, self.passes)
        filled: set[Term] = set()
        for p in self.passes:
            mine = [t for t in cone(p.terms) if t in self.kept and varies_over(t, p.axes)]
            before = self._reuse(p, mine, frozenset(filled))
            if p.reductions:
                self.emitter.fold(p.reductions, p.axes, scope, kind, before)
            else:
                self.emitter.nest(p.axes, scope, kind, sequence(before, *p.statements))
            filled.update(mine)

    def _reuse(self, p: Pass, mine: Sequence[Term], filled: frozenset[Term]) -> Inside:
        """Read what an earlier pass kept; keep what this one is the first to compute."""

        def before(inner: Scope) -> None:
            at = offset(tuple(a.extent for a in p.axes), map(axis_symbol, p.axes))
            for term in mine:
                if term in filled:
                    load = LoadValue(self.kept[term], at)
                    inner.memo[term] = self.emitter.let(load, inner)
                else:
                    inner.add(StoreStmt(self.kept[term], at, self.emitter.value(term, inner)))

        return before


def sequence(*parts: Inside) -> Inside:
    """One after the other."""

    def inside(scope: Scope) -> None:
        for part in parts:
            part(scope)

    return inside


def stores(
    emitter: Emitter, roots: Sequence[Root], grid: Iterable[str]
) -> dict[tuple[Axis, ...], list[tuple[Term, Inside]]]:
    """The statements that store roots, by the axes that they vary over within a row."""
    names = frozenset(grid)
    result: dict[tuple[Axis, ...], list[tuple[Term, Inside]]] = {}
    for root in roots:
        axes = tuple(a for a in root.axes if a.name not in names)
        statement = partial(emitter.store, root)
        result.setdefault(axes, []).append((root.term, statement))
    return result


def segments(found: Sequence[Reduction]) -> list[list[Reduction]]:
    """Reductions grouped into loops: by how many results they wait for, then by axes."""
    level: dict[Reduction, int] = {}
    groups: dict[tuple[int, frozenset[Axis]], list[Reduction]] = {}
    for term in found:
        level[term] = max((level[t] + 1 for t in nested(term)), default=0)
        groups.setdefault((level[term], term.axes), []).append(term)
    return [groups[key] for key in sorted(groups, key=lambda k: k[0])]


def cone(terms: Iterable[Term]) -> list[Term]:
    """The distinct subterms, children first, with reductions as leaves."""
    found: dict[Term, None] = {}
    for term in terms:
        found.update(dict.fromkeys(pending(term, lambda t: False)))
    return list(found)


def varies_over(term: Term, axes: Sequence[Axis]) -> bool:
    """Whether a pass over these axes computes the term anew at each step."""
    return bool(axes) and free_names(term).issuperset(a.name for a in axes)


def keep(emitter: Emitter, passes: Sequence[Pass]) -> dict[Term, Buffer]:
    """Scratch rows for expensive subterms that several passes over the same axes compute."""
    uses: dict[Term, set[int]] = {}
    walked: dict[Term, set[tuple[str, ...]]] = {}
    for k, p in enumerate(passes):
        names = tuple(a.name for a in p.axes)
        for t in cone(p.terms):
            if isinstance(t, Apply) and varies_over(t, p.axes):
                uses.setdefault(t, set()).add(k)
                walked.setdefault(t, set()).add(names)
    several = [t for t, ks in uses.items() if len(ks) > 1 and len(walked[t]) == 1 and dear(t)]
    inner = {s for t in several for s in cone([t]) if s is not t}
    room = emitter.scratch_bytes
    result: dict[Term, Buffer] = {}
    for term in several:
        axes = passes[min(uses[term])].axes
        elements = math.prod(emitter.size(a.extent) or room for a in axes)
        if term not in inner and elements * term.dtype.itemsize <= room:
            room -= elements * term.dtype.itemsize
            result[term] = emitter.local(elements, term.dtype)
    return result


def dear(term: Term) -> bool:
    """Whether recomputing the term costs more than reading it back."""
    return work([term]) >= KEEP_WORK and dt.accumulation_dtype(term.dtype) == term.dtype
