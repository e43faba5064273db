"""SPLIT: reductions across the rows of a group, as partial results per job and a phase that
combines them.

Sums over a batch (gradients of what a batch shares), losses, reductions to few numbers. Each job
reduces its share of the split axes into a workspace row of its own; a second phase folds the
rows in index order by the same monoid and finishes the roots. Roots that keep the split axes,
and reductions that give one number per row, ride along.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from lumjax.kernel.emit import (
    Emitter,
    Inside,
    Scope,
    combine,
    held,
    identity_value,
    ordered_axes,
    unit_strides,
    walked_better,
)
from lumjax.kernel.ir import (
    Accumulate,
    ApplyValue,
    LoadValue,
    LoopKind,
    Ref,
    StoreStmt,
)
from lumjax.kernel.prepare import offset
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.row import Row, cone, nested, stores
from lumjax.kernel.share import WORK_PER_JOB, extent, one_job, over_pieces, reduction_work, work
from lumjax.kernel.term import Axis, Buffer, Reduction, Root, free_names
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

MOST_PARTS = 64
ENOUGH_JOBS = 8
COLUMNS = 16  # more columns than this are accumulated in memory, row by row
SHORT_ROW = 8  # points that do not fill a vector
LONG = 64  # rows for which each has a lane of its own
BLOCK = 256  # rows between two additions to partial results
SHORT = 16  # sums no longer than this are not shared out for the sake of their columns


@record
class Split:
    """How a part is split: over which axes; which reductions cross them, which stay in a row."""

    axes: tuple[Axis, ...]
    across: tuple[Reduction, ...]
    within: tuple[Reduction, ...]
    order: tuple[Axis, ...]  # every kept axis of `across`, in the order of the roots


@record
class Part:
    """The partial results of one reduction: one workspace row over its kept axes for each job."""

    term: Reduction
    axes: tuple[Axis, ...]
    buffer: Buffer

    def at(self, job: Dim) -> Dim:
        """The offset of the partial result of `job` at the kept axes."""
        shape = tuple(a.extent for a in self.axes)
        return job * math.prod(shape, start=1) + offset(shape, map(axis_symbol, self.axes))


def split_axis(emitter: Emitter, roots: Sequence[Root], found: Sequence[Reduction]) -> Split | None:
    """The split that serves all roots, if there is one and it pays."""
    top = {t: None for r in roots for t in cone([r.term]) if isinstance(t, Reduction)}
    order = {a.name: a for r in roots for a in r.axes}
    for axis in sorted({a for t in top for a in t.axes}, key=lambda a: (len(a.name), a.name)):
        across = tuple(t for t in top if axis in t.axes)
        within = tuple(t for t in found if t not in across)
        rows = _rows(axis, within, {**order, **{a.name: a for t in found for a in t.axes}})
        if rows is None or not _legal(roots, across, within, rows):
            continue
        split = Split(rows, across, within, tuple(order.values()))
        if within or _pays(emitter, roots, split):
            return split if within else _outermost(split)
    return None


def _outermost(split: Split) -> Split:
    """The same split along the axis that its reductions walk with the longest stride."""
    common = frozenset.intersection(*(t.axes for t in split.across))
    axis = next(a for a in ordered_axes(split.across) if a in common)
    return Split((axis,), split.across, (), split.order)


def _rows(
    axis: Axis, within: Sequence[Reduction], axes: Mapping[str, Axis]
) -> tuple[Axis, ...] | None:
    """The axes of a row: those free in the results within rows, the split axis among them."""
    names = {frozenset(free_names(t) & axes.keys()) for t in within}
    if not within:
        return (axis,)
    if len(names) != 1 or axis.name not in (only := names.pop()):
        return None
    return tuple(axes[n] for n in sorted(only, key=lambda n: (len(n), n)))


def _legal(
    roots: Sequence[Root],
    across: Sequence[Reduction],
    within: Sequence[Reduction],
    rows: Sequence[Axis],
) -> bool:
    names = {a.name for a in rows}
    if not all(t.axes.issuperset(rows) for t in across):
        return False
    if any(t in across for row in within for t in nested(row)):
        return False  # a row would wait for a sum over all rows
    if any(r.axes & set(rows) for t in across for r in nested(t)):
        return False  # so would a share of the rows
    for root in roots:
        inside = {t for t in cone([root.term]) if isinstance(t, Reduction)}
        kept = {a.name for a in root.axes}
        if inside & set(across):
            free = frozenset[str]().union(*(free_names(t) for t in inside))
            if inside & set(within) or kept & names or not free & names <= kept:
                return False
        elif not kept >= names:
            return False
    return True


def _pays(emitter: Emitter, roots: Sequence[Root], split: Split) -> bool:
    """Whether whole rows would leave too few jobs."""
    if not all(cone([r.term]) and _crosses(r, split) for r in roots):
        return False
    total = sum(
        extent(emitter, _kept(t, split)) * reduction_work(emitter, [t]) for t in split.across
    )
    if total < 2 * WORK_PER_JOB:
        return len({_kept(t, split) for t in split.across}) > 1
    fewest = min(extent(emitter, _kept(t, split)) for t in split.across)
    long = max(extent(emitter, t.axes) for t in split.across) > SHORT
    if fewest < min(ENOUGH_JOBS, total // WORK_PER_JOB):
        return True
    return long and _columns(split) and not all(_near(emitter, t, split) for t in split.across)


def _near(emitter: Emitter, term: Reduction, split: Split) -> bool:
    """Whether what a row of columns reads stays in cache, and rows are enough to share out."""
    kept = _kept(term, split)
    read = extent(emitter, (*term.axes, *kept[-1:])) * held(term).itemsize
    room = emitter.target.l2 // 2 if emitter.target else 0
    return extent(emitter, kept[:-1]) >= ENOUGH_JOBS and read <= room


def _columns(split: Split) -> bool:
    """Whether some reduction keeps the axis that its loads walk with stride 1."""
    return any(
        axes and _walked_along(t, axes[-1]) for t in split.across if (axes := _kept(t, split))
    )


def _walked_along(term: Reduction, kept: Axis) -> bool:
    inside = ordered_axes([term])[-1:]
    return unit_strides([term.body], kept) > 0 and walked_better([term.body], kept, inside)


def _crosses(root: Root, split: Split) -> bool:
    return any(t in split.across for t in cone([root.term]))


def _kept(term: Reduction, split: Split) -> tuple[Axis, ...]:
    return tuple(a for a in split.order if a.name in free_names(term))


def emit_split(emitter: Emitter, roots: Sequence[Root], split: Split) -> None:
    """Append the phases: partial results per job, then their combination."""
    rows = math.prod((a.extent for a in split.axes), start=1)
    total = sum(
        extent(emitter, _kept(t, split)) * reduction_work(emitter, [t]) for t in split.across
    )
    total += extent(emitter, split.axes) * reduction_work(emitter, split.within)
    count = min(max(total // WORK_PER_JOB, 1), MOST_PARTS)
    chunk = emitter.chunk(max(1, -(-extent(emitter, split.axes) // count)))
    jobs = dims.ceiling_divide(rows, chunk)
    parts = [_part(emitter, t, _kept(t, split), jobs) for t in split.across]
    top = Scope(bound={name := emitter.fresh("job")})
    job = dims.symbol(name)
    begin, end = job * chunk, dims.minimum(job * chunk + chunk, rows)
    if _short(emitter, roots, split):
        _rows_in_lanes(emitter, roots, split, parts, top, job, (begin, end))
    elif split.within or not all(_crosses(r, split) for r in roots) or _wide(emitter, split):
        _walk_rows(emitter, roots, split, parts, top, job, (begin, end))
    else:
        emitter.ranges[split.axes[0].name] = begin, end
        _reduce_shares(emitter, parts, top, job)
        del emitter.ranges[split.axes[0].name]
    emitter.phase(name, jobs, top)
    combine_parts(emitter, [r for r in roots if _crosses(r, split)], parts, jobs)


def _wide(emitter: Emitter, split: Split) -> bool:
    """Whether whole rows of partial results in cache beat a few columns in registers."""
    return all(
        (axes := _kept(t, split))
        and _walked_along(t, axes[-1])
        and extent(emitter, axes[-1:]) > COLUMNS
        for t in split.across
    )


def _part(emitter: Emitter, term: Reduction, axes: tuple[Axis, ...], jobs: Dim) -> Part:
    elements = math.prod((a.extent for a in axes), start=jobs)
    return Part(term, axes, emitter.temporary(elements, held(term)))


# ---- the first phase where nothing else is needed of a row


def _reduce_shares(emitter: Emitter, parts: Sequence[Part], top: Scope, job: Dim) -> None:
    """Each reduction over the job's share of the split axis, in registers."""
    groups: dict[tuple[tuple[Axis, ...], frozenset[Axis]], list[Part]] = {}
    for part in parts:
        groups.setdefault((part.axes, part.term.axes), []).append(part)
    for (axes, _), together in groups.items():
        terms = [p.term for p in together]
        outside = bool(axes) and all(_walked_along(t, axes[-1]) for t in terms)
        kind = LoopKind.SERIAL if outside else LoopKind.VECTOR
        body = partial(_share, emitter, together, job, kind)
        emitter.nest(axes, top, LoopKind.VECTOR if outside else LoopKind.SERIAL, body)


def _share(emitter: Emitter, parts: Sequence[Part], job: Dim, kind: LoopKind, scope: Scope) -> None:
    terms = [p.term for p in parts]
    names = emitter.fold(terms, ordered_axes(terms), scope, kind)
    for part, name in zip(parts, names, strict=True):
        scope.add(StoreStmt(part.buffer, part.at(job), Ref(name, held(part.term))))


# ---- the first phase where rows are walked one by one


def _walk_rows(
    emitter: Emitter,
    roots: Sequence[Root],
    split: Split,
    parts: Sequence[Part],
    top: Scope,
    job: Dim,
    share: tuple[Dim, Dim],
) -> None:
    """Row by row: its reductions and stores, and accumulation into the job's partial results."""
    names = {a.name for a in split.axes}
    last = stores(emitter, [r for r in roots if not _crosses(r, split)], names)
    scalars: dict[Part, str] = {}
    for part in parts:
        inner = tuple(a for a in ordered_axes([part.term]) if a not in split.axes)
        if part.axes:
            _fill(emitter, part, top, job)
            statement: Inside = partial(_add_to_row, emitter, part, job)
        else:
            scalars[part] = emitter.accumulator(part.term, top)
            statement = partial(_add_to_scalar, emitter, part.term, scalars[part])
        last.setdefault((*inner, *part.axes), []).append((part.term.body, statement))
    body = Row(emitter, split.within, last)
    if len(split.axes) == 1:
        with top.loop(split.axes[0].name, share[1], begin=share[0]) as scope:
            body.emit(scope, LoopKind.VECTOR)
    else:
        with top.loop(flat := emitter.fresh("p"), share[1], begin=share[0]) as scope:
            emitter.decode(split.axes, dims.symbol(flat), scope)
            body.emit(scope, LoopKind.VECTOR)
    for part, name in scalars.items():
        top.add(StoreStmt(part.buffer, part.at(job), Ref(name, held(part.term))))


# ---- the first phase where rows are short: each in a lane of its own


def _short(emitter: Emitter, roots: Sequence[Root], split: Split) -> bool:
    """Whether rows have too few points for vectors, and there are many of them."""
    if not split.within or len(split.axes) != 1 or extent(emitter, split.axes) < LONG:
        return False
    if any(t.axes != frozenset(split.axes) for t in split.across):
        return False
    inner = {a for t in split.within for a in t.axes}
    inner |= {a for r in roots if not _crosses(r, split) for a in r.axes if a not in split.axes}
    inner |= {a for t in split.across for a in _kept(t, split)}
    return extent(emitter, inner) < SHORT_ROW


def _rows_in_lanes(
    emitter: Emitter,
    roots: Sequence[Root],
    split: Split,
    parts: Sequence[Part],
    top: Scope,
    job: Dim,
    share: tuple[Dim, Dim],
) -> None:
    """Block by block of rows: what is added up across them is kept until the block is done."""
    (rows,) = split.axes
    last = stores(emitter, [r for r in roots if not _crosses(r, split)], (rows.name,))
    kept = {p: _kept_rows(emitter, p) for p in parts}
    begin = emitter.fresh("b")
    start = dims.symbol(begin, 0)
    for part, buffer in kept.items():
        _fill(emitter, part, top, job)
        at = _of_row(part, axis_symbol(rows) - start)
        statement = partial(_keep, emitter, part.term, buffer, at)
        last.setdefault(part.axes, []).append((part.term.body, statement))
    body = Row(emitter, split.within, last)
    with top.loop(begin, share[1], begin=share[0], step=BLOCK) as block:
        end = dims.minimum(start + BLOCK, share[1])
        with block.loop(rows.name, end, LoopKind.VECTOR, start) as lanes:
            body.emit(lanes, LoopKind.SERIAL)
        for part, buffer in kept.items():
            add = partial(_add_block, emitter, part, buffer, job, end - start)
            emitter.nest(part.axes, block, LoopKind.SERIAL, add)


def _kept_rows(emitter: Emitter, part: Part) -> Buffer:
    size = emitter.size(math.prod((a.extent for a in part.axes), start=BLOCK))
    assert size is not None, "short rows have constant sizes"
    return emitter.local(size, held(part.term))


def _of_row(part: Part, row: Dim) -> Dim:
    shape = tuple(a.extent for a in part.axes)
    return offset(shape, map(axis_symbol, part.axes)) * BLOCK + row


def _keep(emitter: Emitter, term: Reduction, buffer: Buffer, at: Dim, scope: Scope) -> None:
    scope.add(StoreStmt(buffer, at, emitter.body(term, scope)))


def _add_block(
    emitter: Emitter, part: Part, buffer: Buffer, job: Dim, count: Dim, scope: Scope
) -> None:
    """Add a block's rows to the job's partial result."""
    name = emitter.accumulator(part.term, scope)
    row = emitter.fresh("r")
    with scope.loop(row, count, LoopKind.VECTOR) as inner:
        inner.add(Accumulate(name, LoadValue(buffer, _of_row(part, dims.symbol(row, 0)))))
    before = LoadValue(part.buffer, part.at(job))
    dtype = held(part.term)
    total = ApplyValue(combine(part.term.op), (before, Ref(name, dtype)), dtype)
    scope.add(StoreStmt(part.buffer, part.at(job), total))


def _fill(emitter: Emitter, part: Part, top: Scope, job: Dim) -> None:
    neutral = identity_value(part.term.op, held(part.term))
    emitter.nest(
        part.axes,
        top,
        LoopKind.VECTOR,
        lambda scope: scope.add(StoreStmt(part.buffer, part.at(job), neutral)),
    )


def _add_to_row(emitter: Emitter, part: Part, job: Dim, scope: Scope) -> None:
    before = LoadValue(part.buffer, part.at(job))
    value = emitter.body(part.term, scope)
    total = ApplyValue(combine(part.term.op), (before, value), held(part.term))
    scope.add(StoreStmt(part.buffer, part.at(job), total))


def _add_to_scalar(emitter: Emitter, term: Reduction, name: str, scope: Scope) -> None:
    scope.add(Accumulate(name, emitter.body(term, scope)))


# ---- the second phase


def combine_parts(
    emitter: Emitter, roots: Sequence[Root], parts: Sequence[Part], jobs: Dim
) -> None:
    """Append the phases that fold `jobs` partial results each and finish the roots."""
    groups: dict[tuple[Axis, ...], list[Root]] = {}
    for root in roots:
        groups.setdefault(root.axes, []).append(root)
    for axes, together in groups.items():
        needed = {t: None for r in together for t in cone([r.term])}
        mine = [p for p in parts if p.term in needed]

        def finish(scope: Scope, mine: list[Part] = mine, together: list[Root] = together) -> None:
            for part in mine:
                _fold_parts(emitter, part, scope.home(free_names(part.term)), jobs)
            for root in together:
                emitter.store(root, scope)

        if not axes:
            one_job(emitter, finish)
            continue
        cost = MOST_PARTS * len(mine) + work(r.term for r in together)
        over_pieces(
            emitter,
            axes[:-1],
            axes[-1],
            cost,
            lambda scope, axes=axes, finish=finish: emitter.nest(
                axes[-1:], scope, LoopKind.VECTOR, finish
            ),
        )


def _fold_parts(emitter: Emitter, part: Part, scope: Scope, jobs: Dim) -> None:
    """The partial results of one reduction, folded in index order."""
    name = emitter.accumulator(part.term, scope)
    index = emitter.fresh("q")
    with scope.loop(index, jobs) as inner:
        inner.add(Accumulate(name, LoadValue(part.buffer, part.at(dims.symbol(index)))))
    emitter.finish(part.term, name, scope)
