"""CONTRACT: sums of products with free axes on both sides, in register tiles with an epilogue.

`acc[m, n] = sum_k lhs[m, k] * rhs[k, n]` where m, n are one axis of each side and every other
free axis is walked outside. The columns n are the vector axis and the root's last axis, so
operands swap sides if need be. An operand that is not a plain load (a term, a window with
padding, a transposed or a large right side) is staged: the right side once, into column panels
in a workspace; the left side per job, into scratch. A long sum with a small result is split into
partial sums (see split.py). Convolutions and their gradients are all this; what a stride spreads
out is cut by remainders first (see residue.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from lumjax import dtype as dt
from lumjax.kernel.emit import (
    CAST,
    Emitter,
    Scope,
    held,
    ordered_axes,
    unit_strides,
)
from lumjax.kernel.evaluate import factors
from lumjax.kernel.ir import (
    ApplyValue,
    IndexValue,
    Let,
    LoadValue,
    LoopKind,
    Ref,
    StoreStmt,
    Tile,
    Value,
)
from lumjax.kernel.prepare import group_axes, offset
from lumjax.kernel.residue import by_remainders
from lumjax.kernel.rewrite import axis_symbol, rebuild, rewrite
from lumjax.kernel.row import cone, reductions
from lumjax.kernel.schedule import DEFAULT, PANELS, Schedule
from lumjax.kernel.share import extent
from lumjax.kernel.split import Part, combine_parts
from lumjax.kernel.term import Axis, Buffer, Load, Reduction, Root, Term, free_names
from lumjax.kernel.window import copied, relaid
from lumjax.record import record
from lumjax.target import Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr

TILE_WORK = 1 << 20  # multiply-adds per job: tens of microseconds
FEW_JOBS = 8
MOST_PARTS = 64
DEEP = 4096  # a sum this long is split although there are jobs enough: its panels leave the cache
SHALLOW = 256  # no part is shorter than this: storing it would cost too much
TINY = 1 << 14  # multiply-adds: less may be summed any way
WIDE = 256  # rows of the right side shorter than this are read in place
NARROW = 8  # fewer columns than this do not fill a vector
REUSED = 64  # columns for which a left side is copied in the order of the sum
TILED = (dt.float16, dt.bfloat16, dt.float32, dt.float64)


@record
class Tiling:
    """A contraction and the roles of its axes."""

    roots: tuple[Root, ...]
    term: Reduction
    lhs: Term
    rhs: Term
    m: Axis
    n: Axis
    outer: tuple[Axis, ...]
    k: tuple[Axis, ...]
    rows: int
    cols: int
    laid: bool = False  # the right side was copied such that it can be read in place
    places: tuple[tuple[str, tuple[Dim, Dim]], ...] = ()  # see residue.py: Cut
    ends: tuple[tuple[str, Dim], ...] = ()


def tile_shape(
    dtype: dt.DType, target: Target, columns: int, schedule: Schedule = DEFAULT
) -> tuple[int, int]:
    """Rows and columns of the register tile for results of `columns` columns."""
    lanes = target.lanes(dt.accumulation_dtype(dtype).itemsize)
    many = target.vector_registers >= 32
    vectors = min(schedule.vectors or (3 if many else 2), -(-columns // lanes))
    if schedule.rows:
        return schedule.rows, vectors * lanes
    rows = {1: 12, 2: 12, 3: 8}[vectors] if many else {1: 8, 2: 6}[vectors]
    return rows, vectors * lanes


def balanced(rows: int, extent: int) -> int:
    """At most `rows` rows a tile, such that few are wasted at the end of `extent`."""
    choices = range(max(1, min(rows, extent) * 2 // 3), min(rows, max(1, extent)) + 1)
    return min(reversed(choices), key=lambda r: -(-extent // r) * (r + 1))


def contraction(
    emitter: Emitter, roots: Sequence[Root], found: Sequence[Reduction]
) -> Tiling | None:
    """The tiling that computes `roots`, if they are one contraction with an epilogue."""
    if len(found) != 1 or emitter.target is None or operands(found[0]) is None:
        return None
    split = by_remainders(emitter, roots)
    if split is not None:
        new = reductions(r.term for r in split.roots)
        tiling = _tiling(emitter, split.roots, new, split.remainders)
        return None if tiling is None else replace(tiling, places=split.places, ends=split.ends)
    return _tiling(emitter, roots, found)


def _tiling(
    emitter: Emitter,
    roots: Sequence[Root],
    found: Sequence[Reduction],
    outside: frozenset[str] = frozenset(),
) -> Tiling | None:
    """The tiling; the axes `outside` are no rows or columns of tiles."""
    assert emitter.target is not None, "tiles are shaped for a target"
    (term,) = found
    sides = operands(term)
    if sides is None or not all(_epilogue(r, term) for r in roots):
        return None
    order = roots[0].axes
    mine = _free(sides[0], term, order), _free(sides[1], term, order)
    if set(order) != set(mine[0]) | set(mine[1]) or any(set(r.axes) != set(order) for r in roots):
        return None
    left, right = (
        [a for a in s if a not in o and a.name not in outside] for s, o in (mine, mine[::-1])
    )
    if not left or not right:
        return None
    if order[-1] in left or (order[-1] not in right and _strided(sides, left[-1], right[-1])):
        sides, left, right = (sides[1], sides[0]), right, left
    m, n = max(left, key=lambda a: (extent(emitter, [a]) >= 4, left.index(a))), right[-1]
    if extent(emitter, [n]) < NARROW and extent(emitter, term.axes) >= SHALLOW:
        n = max(right, key=lambda a: (min(NARROW, extent(emitter, [a])), right.index(a)))
    rows, cols = tile_shape(term.dtype, emitter.target, extent(emitter, [n]), emitter.schedule)
    outer = tuple(a for a in order if a is not m and a is not n)
    rows = balanced(rows, extent(emitter, [m]))
    k = tuple(ordered_axes([replace_body(term, sides[0])]))
    depth = math.prod((a.extent for a in k), start=1)
    if emitter.size(depth) is None and not plain(sides[0], k):
        return None  # the left side would be staged in scratch, which must have a constant size
    return Tiling(tuple(roots), term, sides[0], sides[1], m, n, outer, k, rows, cols)


def worth_tiling(emitter: Emitter, term: Reduction) -> bool:
    """Whether a reduction should be a contraction of its own rather than part of a row program."""
    sides = operands(term)
    if sides is None:
        return False
    left, right = (free_names(s) - {a.name for a in term.axes} for s in sides)
    axes = {a.name: a for a in group_axes(emitter.prepared.group)}
    points = extent(emitter, (axes[n] for n in sorted((left | right) & axes.keys())))
    return bool(left - right and right - left) and points * extent(emitter, term.axes) >= TINY


def replace_body(term: Reduction, body: Term) -> Reduction:
    """The same reduction of another body."""
    return Reduction(term.op, term.axes, body, term.dtype)


def operands(term: Reduction) -> tuple[Term, Term] | None:
    """The two sides of a contraction that tiles can compute."""
    pair = factors(term)
    if pair is None or term.dtype not in TILED or any(t.dtype != term.dtype for t in pair):
        return None
    return pair


def _epilogue(root: Root, term: Reduction) -> bool:
    return term in cone([root.term])


def _free(side: Term, term: Reduction, order: Sequence[Axis]) -> list[Axis]:
    names = free_names(side) - {a.name for a in term.axes}
    return [a for a in order if a.name in names]


def _strided(sides: tuple[Term, Term], left: Axis, right: Axis) -> bool:
    return not unit_strides([sides[1]], right) and bool(unit_strides([sides[0]], left))


# ---- blocks and jobs


@record
class Blocks:
    """How the result is cut: a unit is rows by column panels at one point of `outer`."""

    block_rows: Dim
    block_panels: Dim
    panels: Dim
    units: tuple[Axis, ...]
    chunk: Dim


def emit_contract(emitter: Emitter, tiling: Tiling) -> None:
    """Append the phases: the right side's panels, the tiles, the sum of parts where split."""
    work = extent(emitter, (*tiling.outer, tiling.m, tiling.n, *tiling.k))
    emitter.places.update(tiling.places)
    tiling = without_windows(emitter, tiling)
    rhs = None if tiling.laid else stage_right(emitter, tiling)
    blocks = cut(emitter, tiling, work)
    units = math.prod(emitter.size(a.extent) or 1 for a in blocks.units)
    jobs = -(-units // (emitter.size(blocks.chunk) or 1))
    depth = extent(emitter, tiling.k)
    parts = min(work // TILE_WORK, MOST_PARTS, depth // SHALLOW, extent(emitter, tiling.k[:1]))
    whole = tiling.k[0].name not in dict(tiling.ends)
    if parts > 1 and whole and (jobs < FEW_JOBS or depth >= DEEP):
        Tiles(emitter, tiling, blocks, rhs).emit_split(parts)
    else:
        Tiles(emitter, tiling, blocks, rhs).emit()


def cut(emitter: Emitter, tiling: Tiling, work: int) -> Blocks:
    """Blocks whose left side stays in the second-level cache, and enough of them to share out."""
    assert emitter.target is not None, "tiles are shaped for a target"
    m, n = extent(emitter, [tiling.m]), extent(emitter, [tiling.n])
    depth = extent(emitter, tiling.k)
    itemsize = held(tiling.term).itemsize
    fitting = max(1, emitter.target.l2 // 2 // max(1, depth * itemsize * tiling.rows))
    most = -(-emitter.schedule.height // tiling.rows) or 32
    tall = tiling.rows * min(fitting, most, -(-m // tiling.rows))
    across = -(-n // tiling.cols)
    points = extent(emitter, tiling.outer)
    if not plain(tiling.lhs, tiling.k):  # every block of columns would stage it again
        tall = min(tall, tiling.rows * max(1, -(-m // tiling.rows) * points // (2 * FEW_JOBS)))
    blocks = points * -(-m // tall)
    wide = across
    if blocks < 2 * FEW_JOBS and work > 2 * TILE_WORK:
        wide = max(1, across // max(1, 2 * FEW_JOBS // blocks))
    block_rows, block_panels = emitter.chunk(tall), emitter.chunk(wide)
    panels = dims.ceiling_divide(tiling.n.extent, tiling.cols)
    units = (
        *tiling.outer,
        Axis(emitter.fresh("mb"), dims.ceiling_divide(tiling.m.extent, block_rows)),
        Axis(emitter.fresh("nb"), dims.ceiling_divide(panels, block_panels)),
    )
    per_unit = max(1, min(tall, m) * min(wide * tiling.cols, n) * depth)
    chunk = emitter.chunk(max(1, TILE_WORK // per_unit))
    return Blocks(block_rows, block_panels, panels, units, chunk)


# ---- the right side


@record
class Panels:
    """The right side in a workspace: [outer point][panel][k...][column]."""

    buffer: Buffer
    outer: tuple[Axis, ...]
    k: tuple[Axis, ...]


def stage_right(emitter: Emitter, tiling: Tiling, deep: int | None = None) -> Panels | None:
    """Append the phase that lays out the right side in panels; None where it is read in place.

    `deep` is how much of the sum is walked at once: all of it unless given.
    """
    assert emitter.target is not None, "tiles are shaped for a target"
    outer = tuple(a for a in tiling.outer if a.name in free_names(tiling.rhs))
    walked = extent(emitter, (*outer, *tiling.k)) if deep is None else deep
    total = walked * extent(emitter, [tiling.n]) * held(tiling.term).itemsize
    uses = extent(emitter, [tiling.m, *(a for a in tiling.outer if a not in outer)])
    wide = extent(emitter, [tiling.n]) >= WIDE
    large = wide and total > emitter.target.l2 // 2 and uses >= 64
    if emitter.schedule.right:
        large = emitter.schedule.right == PANELS
    if plain(tiling.rhs, tiling.k, tiling.n) and not large:
        return None
    panels = dims.ceiling_divide(tiling.n.extent, tiling.cols)
    space = math.prod((a.extent for a in (*outer, *tiling.k)), start=panels * tiling.cols)
    staged = Panels(emitter.temporary(space, held(tiling.term)), outer, tiling.k)
    panel = Axis(emitter.fresh("nb"), panels)
    each = extent(emitter, tiling.k) * tiling.cols
    top = Scope(bound={job := emitter.fresh("job")})
    chunk = emitter.chunk(max(1, (1 << 16) // each))
    points = math.prod((a.extent for a in outer), start=panels)
    begin = dims.symbol(job) * chunk
    with top.loop(
        flat := emitter.fresh("p"), dims.minimum(begin + chunk, points), begin=begin
    ) as unit:
        emitter.decode((*outer, panel), dims.symbol(flat, 0, points - 1), unit)
        q = axis_symbol(panel)
        emitter.ranges[tiling.n.name] = (
            q * tiling.cols,
            dims.minimum(q * tiling.cols + tiling.cols, tiling.n.extent),
        )

        def fill(scope: Scope) -> None:
            at = panel_offset(staged, q, tiling, panels)
            value = widened(emitter.value(tiling.rhs, scope), staged.buffer.dtype)
            scope.add(StoreStmt(staged.buffer, at, value))

        emitter.nest((*tiling.k, tiling.n), unit, LoopKind.VECTOR, fill)
        del emitter.ranges[tiling.n.name]
    emitter.phase(job, dims.ceiling_divide(points, chunk), top)
    return staged


def without_windows(emitter: Emitter, tiling: Tiling) -> Tiling:
    """The tiling with sides that are read through windows copied, and a left side copied in the
    order in which such a right side is walked.
    """
    dtype = held(tiling.term)
    if not plain(tiling.lhs, tiling.k):
        outer = [a for a in (*tiling.outer, tiling.m) if a.name in free_names(tiling.lhs)]
        *rest, last = tiling.k
        left = copied(emitter, tiling.lhs, dtype, outer, rest, last)
        tiling = tiling if left is None else replace(tiling, lhs=left)
    outer = [a for a in tiling.outer if a.name in free_names(tiling.rhs)]
    right = copied(emitter, tiling.rhs, dtype, outer, tiling.k, tiling.n)
    if right is None:
        return tiling
    inmost = max(tiling.k, key=lambda a: (_affine(right, a), extent(emitter, [a])))
    k = (*(a for a in tiling.k if a is not inmost), inmost)
    outer = [a for a in tiling.outer if a.name in free_names(tiling.lhs)]
    left = tiling.lhs
    uses = extent(emitter, [tiling.n, *(a for a in tiling.outer if a not in outer)])
    if uses >= REUSED and plain(left, k) and not plain(left, k, inmost):
        left = relaid(emitter, left, dtype, (*outer, tiling.m, *k))
    return replace(tiling, lhs=left, rhs=right, k=k, laid=True)


def _affine(load: Load, axis: Axis) -> bool:
    return dims.coefficient(load.coords[0], axis.name) is not None


def panel_offset(staged: Panels, panel: Dim, tiling: Tiling, panels: Dim) -> Dim:
    """Where the element of the right side at the current (outer, k, n) lies, in panel `panel`."""
    shape = (*(a.extent for a in staged.outer), panels, *(a.extent for a in staged.k), tiling.cols)
    column = axis_symbol(tiling.n) - panel * tiling.cols
    coords = (*map(axis_symbol, staged.outer), panel, *map(axis_symbol, staged.k), column)
    return offset(shape, coords)


def widened(value: Value, dtype: dt.DType) -> Value:
    """The value in the accumulator's dtype."""
    return value if value.dtype == dtype else ApplyValue(CAST, (value,), dtype)


def plain(term: Term, k: Sequence[Axis], unit: Axis | None = None) -> bool:
    """Whether a term is a load that is affine in `k` and, if given, walks `unit` with stride 1."""
    if not isinstance(term, Load) or term.indices or isinstance(term.valid, Expr):
        return False
    if any(dims.coefficient(term.coords[0], a.name) is None for a in k):
        return False
    return unit is None or dims.same(dims.coefficient(term.coords[0], unit.name) or 0, 1)


# ---- the tiles

Finish: TypeAlias = Callable[[Scope, Value], None]


class Tiles:
    """Emits the phase that computes the tiles, for the whole sum or for parts of it."""

    def __init__(
        self, emitter: Emitter, tiling: Tiling, blocks: Blocks, rhs: Panels | None
    ) -> None:
        self.emitter = emitter
        self.tiling = tiling
        self.blocks = blocks
        self.rhs = rhs
        ends = dict(tiling.ends)
        self.k: list[tuple[str, Dim]] = [(a.name, ends.get(a.name, a.extent)) for a in tiling.k]
        self.widths: list[Dim] = [a.extent for a in tiling.k]  # strides of the staged left side
        self.lhs = tiling.lhs
        self.shift: dict[str, Dim] = {}
        self.scratch: Buffer | None = None
        self.rows_last = False

    def emit(self) -> None:
        """One phase that stores the roots."""
        top = Scope(bound={job := self.emitter.fresh("job")})
        units = math.prod((a.extent for a in self.blocks.units), start=1)
        begin = dims.symbol(job) * self.blocks.chunk
        end = dims.minimum(begin + self.blocks.chunk, units)
        self._allocate(math.prod(self.widths, start=1))
        with top.loop(flat := self.emitter.fresh("p"), end, begin=begin) as unit:
            self.emitter.decode(self.blocks.units, dims.symbol(flat, 0, units - 1), unit)
            self._unit(unit, self._store_roots)
        self.emitter.phase(job, dims.ceiling_divide(units, self.blocks.chunk), top)

    def emit_split(self, count: int) -> None:
        """Partial sums over shares of the first k axis, then their combination."""
        emitter, tiling = self.emitter, self.tiling
        axis = tiling.k[0]
        share = emitter.chunk(-(-extent(emitter, [axis]) // count))
        parts = dims.ceiling_divide(axis.extent, share)
        order = tiling.roots[0].axes
        space = math.prod((a.extent for a in order), start=parts)
        part = Part(tiling.term, order, emitter.temporary(space, held(tiling.term)))
        top = Scope(bound={job := emitter.fresh("job")})
        units = math.prod((a.extent for a in self.blocks.units), start=1)
        start, number = emitter.fresh("k"), emitter.fresh("q")
        index = dims.symbol(number, 0)  # by a name of its own: see bounds.py: let
        whole = dims.floor_divide(dims.symbol(job), units)
        top.add(Let(number, IndexValue(whole, dt.int64)))
        top.add(Let(start, IndexValue(index * share, dt.int64)))
        top.bound |= {number, start}
        self._take_share(axis, dims.symbol(start), share)
        self._allocate(math.prod(self.widths, start=1))
        emitter.decode(self.blocks.units, dims.remainder(dims.symbol(job), units), top)
        at = part.at(index)
        self._unit(top, lambda scope, total: scope.add(StoreStmt(part.buffer, at, total)))
        emitter.phase(job, parts * units, top)
        combine_parts(emitter, tiling.roots, [part], parts)

    def _take_share(self, axis: Axis, start: Expr, share: Dim) -> None:
        """Restrict the first k axis to [start, start + share)."""
        inner = Axis(self.emitter.fresh("k"), share)
        length = dims.minimum(share, axis.extent - start)
        self.k[0] = inner.name, length
        self.widths[0] = share
        self.shift = {axis.name: start + dims.symbol(inner.name)}
        self.lhs = rewrite(self.tiling.lhs, lambda t, kids: rebuild(t, kids, self.shift), {})

    def _allocate(self, depth: Dim) -> None:
        """Scratch for the left side, if it is staged and fits."""
        emitter = self.emitter
        if plain(self.lhs, [Axis(n, e) for n, e in self.k]):
            return
        self.rows_last = bool(unit_strides([self.lhs], self.tiling.m))
        elements = emitter.size(self.blocks.block_rows * depth)
        assert elements is not None, "what is staged has a constant size"
        self.scratch = emitter.local(elements, held(self.tiling.term))

    def _unit(self, scope: Scope, finish: Finish) -> None:
        """All tiles of one unit, whose coordinates `scope` binds."""
        emitter, tiling, blocks = self.emitter, self.tiling, self.blocks
        rows, columns = (axis_symbol(a) for a in blocks.units[-2:])
        first = rows * blocks.block_rows
        last = dims.minimum(first + blocks.block_rows, tiling.m.extent)
        if self.scratch is not None:
            self._stage_left(scope, first, last)
        begin = columns * blocks.block_panels
        end = dims.minimum(begin + blocks.block_panels, blocks.panels)
        panel, row = emitter.fresh("q"), emitter.fresh("r")
        with (
            scope.loop(panel, end, begin=begin) as over,
            over.loop(row, last, begin=first, step=tiling.rows) as inner,
        ):
            self._tile(inner, dims.symbol(panel), dims.symbol(row), (first, last), finish)

    def _tile(
        self, scope: Scope, panel: Dim, row: Dim, block: tuple[Dim, Dim], finish: Finish
    ) -> None:
        tiling, emitter = self.tiling, self.emitter
        dtype = held(tiling.term)
        acc = emitter.fresh("t")
        body = Scope(scope, {tiling.m.name, tiling.n.name})
        total: Value = Ref(acc, dtype)
        finish(body, total)
        tile = Tile(
            acc,
            dtype,
            tiling.m.name,
            row,
            block[1],
            tiling.rows,
            tiling.n.name,
            panel * tiling.cols,
            tiling.n.extent,
            tiling.cols,
            tuple(self.k),
            widened(self._left(scope, block[0]), dtype),
            widened(self._right(scope, panel), dtype),
            tuple(body.stmts),
        )
        scope.add(tile)

    def _store_roots(self, scope: Scope, total: Value) -> None:
        term = self.tiling.term
        if total.dtype != term.dtype:
            total = self.emitter.let(ApplyValue(CAST, (total,), term.dtype), scope)
        scope.memo[term] = total
        for root in self.tiling.roots:
            self.emitter.store(root, scope)

    def _left(self, scope: Scope, first: Dim) -> Value:
        if self.scratch is None:
            assert isinstance(self.lhs, Load), "what is not a load is staged"
            return self.emitter.node(self.lhs, scope)
        return LoadValue(self.scratch, self._scratch_offset(first))

    def _scratch_offset(self, first: Dim) -> Dim:
        """Scratch is [row][k...], or [k...][row] where that is how the left side is walked."""
        row = axis_symbol(self.tiling.m) - first
        at: Dim = 0 if self.rows_last else row
        for (name, _), width in zip(self.k, self.widths, strict=True):
            at = at * width + dims.symbol(name)
        return at * self.blocks.block_rows + row if self.rows_last else at

    def _right(self, scope: Scope, panel: Dim) -> Value:
        if self.rhs is None:
            assert isinstance(self.tiling.rhs, Load), "what is not a load is staged"
            node = self.emitter.node(self.tiling.rhs, scope)
            assert isinstance(node, LoadValue), "a load's value is one"
            return replace(node, offset=dims.substitute(node.offset, self.shift))
        at = panel_offset(self.rhs, panel, self.tiling, self.blocks.panels)
        return LoadValue(self.rhs.buffer, dims.substitute(at, self.shift))

    def _stage_left(self, scope: Scope, first: Dim, last: Dim) -> None:
        """Compute the block's rows of the left side into scratch."""
        emitter, scratch = self.emitter, self.scratch
        assert scratch is not None, "the left side is staged"
        m = self.tiling.m
        emitter.ranges[m.name] = first, last
        inner = [Axis(n, e) for n, e in self.k]
        best = max(inner, key=lambda a: (unit_strides([self.lhs], a), a is inner[-1]))
        ordered = [m, *(a for a in inner if a is not best), best]
        if self.rows_last:
            ordered = [*inner, m]

        def fill(inner: Scope) -> None:
            value = widened(emitter.value(self.lhs, inner), scratch.dtype)
            inner.add(StoreStmt(scratch, self._scratch_offset(first), value))

        emitter.nest(ordered, scope, LoopKind.VECTOR, fill)
        del emitter.ranges[m.name]
