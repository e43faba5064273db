"""The tiles of a contraction: their shapes, and the loops around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from lumjax import dtype as dt
from lumjax.kernel.columns import Joined
from lumjax.kernel.emit import (
    CAST,
    Emitter,
    Scope,
    combine,
    held,
    unit_strides,
)
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
from lumjax.kernel.prepare import offset
from lumjax.kernel.rewrite import axis_symbol, rebuild, rewrite
from lumjax.kernel.schedule import DEFAULT, Schedule
from lumjax.kernel.share import extent
from lumjax.kernel.split import Part, combine_parts
from lumjax.kernel.term import Axis, Buffer, Load, Reduction, Root, Term
from lumjax.record import record
from lumjax.target import Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr
from lumjax.trace.form import ReduceOp

GAP = 16  # elements: rows a power of two apart would share few sets of the cache
LASTING = 128  # terms of a sum that takes longer than memory
FAR = 4  # times the second-level cache: what is larger comes from behind it
MANY_ROWS = 48  # rows for which the right side's part of a block is copied


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
    dots: bool = False  # both sides lie along the sum: vectors go along it, nothing is copied
    pairs: bool = False  # two terms of the sum are one: see pairs.py
    places: tuple[tuple[str, tuple[Dim, Dim]], ...] = ()  # see residue.py: Cut
    ends: tuple[tuple[str, Dim], ...] = ()
    joined: tuple[Joined, ...] = ()  # axes that became one, first ones first


@record
class Blocks:
    """How the result is cut: a unit is rows by column panels at one point of `outer`.

    With a `depth` the sum is cut too, along its first axis: the tiles of a unit add up in scratch,
    where the unit's parts of the `right` and the `left` side may be copied.
    """

    block_rows: Dim
    block_panels: Dim
    panels: Dim
    units: tuple[Axis, ...]
    chunk: Dim
    depth: Dim | None = None
    right: bool = False
    left: bool = False


@record
class Area:
    """The rows and the column panels of a unit."""

    first: Dim
    last: Dim
    begin: Dim
    end: Dim
    columns: tuple[Dim, Dim]


@record
class Panels:
    """The right side in a workspace: [outer point][panel][k...][column]."""

    buffer: Buffer
    outer: tuple[Axis, ...]
    k: tuple[Axis, ...]


# ---- shapes


def tile_shape(
    dtype: dt.DType,
    target: Target,
    columns: int,
    schedule: Schedule = DEFAULT,
    rows: int = MANY_ROWS,
) -> tuple[int, int]:
    """Rows and columns of the register tile for results of `rows` rows and `columns` columns."""
    lanes = target.lanes(dt.accumulation_dtype(dtype).itemsize)
    many = target.vector_registers >= 32
    across = -(-columns // lanes)
    vectors = min(schedule.vectors or (3 if many else 2), across)
    if schedule.rows:
        return schedule.rows, vectors * lanes
    most = balanced({1: 12, 2: 12, 3: 8}[vectors] if many else {1: 8, 2: 6}[vectors], rows)
    if not schedule.vectors:
        vectors = max(vectors, min(wider(most, target), across))
    return most, vectors * lanes


def wider(rows: int, target: Target) -> int:
    """The vectors of columns for which few rows leave registers."""
    return 8 if rows == 1 else min(4, (target.vector_registers - 1) // (rows + 1))


def dot_shape(dtype: dt.DType, target: Target, rows: int) -> tuple[int, int]:
    """Rows and columns of a tile of dot products for results of `rows` rows: a register for each
    sum, for each row's load and for one column's.
    """
    lanes = target.lanes(dt.accumulation_dtype(dtype).itemsize)
    cols = min(4, lanes)
    most = balanced((target.vector_registers - 1) // (cols + 1), rows)
    while most * 2 * cols + most + 1 <= target.vector_registers and 2 * cols <= min(lanes, 8):
        cols *= 2
    return most, cols


def lie_along(
    emitter: Emitter, term: Reduction, sides: tuple[Term, Term], k: Sequence[Axis], n: Axis
) -> bool:
    """Whether both sides are read along the innermost axis of the sum, and only along it."""
    assert emitter.target is not None, "tiles are shaped for a target"
    lanes = emitter.target.lanes(dt.accumulation_dtype(term.dtype).itemsize)
    long = lanes > 1 and extent(emitter, k[-1:]) >= 2 * lanes
    return long and all(plain(s, k, k[-1]) for s in sides) and not plain(sides[1], k, n)


def balanced(rows: int, extent: int) -> int:
    """At most `rows` rows a tile, such that few are wasted at the end of `extent`."""
    choices = range(max(1, min(rows, extent) * 2 // 3), min(rows, max(1, extent)) + 1)
    return min(reversed(choices), key=lambda r: -(-extent // r) * (r + 1))


def panel_offset(staged: Panels, panel: Dim, tiling: Tiling, panels: Dim) -> Dim:
    """Where the element of the right side at the current (outer, k, n) lies, in panel `panel`."""
    shape = (*(a.extent for a in staged.outer), panels, *(a.extent for a in staged.k), tiling.cols)
    column = axis_symbol(tiling.n) - panel * tiling.cols
    coords = (*map(axis_symbol, staged.outer), panel, *map(axis_symbol, staged.k), column)
    return offset(shape, coords)


def staged_dtype(tiling: Tiling) -> dt.DType:
    """The dtype in which a side is staged."""
    return dt.uint32 if tiling.pairs else held(tiling.term)


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
        self.packed: Buffer | None = None
        self.sums: Buffer | None = None

    def emit(self) -> None:
        """One phase that stores the roots."""
        top = Scope(bound={job := self.emitter.fresh("job")})
        units = math.prod((a.extent for a in self.blocks.units), start=1)
        begin = dims.symbol(job) * self.blocks.chunk
        end = dims.minimum(begin + self.blocks.chunk, units)
        if self.blocks.depth is None:
            self._allocate(math.prod(self.widths, start=1))
            self._pack()
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

    def _take_share(self, axis: Axis, start: Dim, share: Dim) -> None:
        """Restrict the first k axis to [start, start + share)."""
        inner = Axis(self.emitter.fresh("k"), share)
        length = dims.minimum(share, axis.extent - start)
        self.k[0] = inner.name, length
        self.widths[0] = share
        self.shift = {axis.name: start + dims.symbol(inner.name)}
        self.lhs = rewrite(self.tiling.lhs, lambda t, kids: rebuild(t, kids, self.shift), {})

    def _allocate(self, depth: Dim) -> None:
        """Scratch for the left side, if it is copied."""
        if plain(self.lhs, [Axis(n, e) for n, e in self.k]) and not self.blocks.left:
            return
        self.rows_last = bool(unit_strides([self.lhs], self.tiling.m))
        self.scratch = self._local(self.blocks.block_rows * depth, staged_dtype(self.tiling))

    def _pack(self) -> None:
        """Scratch for the right side's part, if it is copied."""
        if self.blocks.right:
            width = self.blocks.block_panels * self.tiling.cols + GAP
            size = math.prod(self.widths, start=width)
            self.packed = self._local(size, staged_dtype(self.tiling))

    def _local(self, elements: Dim, dtype: dt.DType) -> Buffer:
        size = self.emitter.size(elements)
        assert size is not None, "what is staged has a constant size"
        return self.emitter.local(size, dtype)

    def _unit(self, scope: Scope, finish: Finish) -> None:
        """All tiles of one unit, whose coordinates `scope` binds."""
        tiling, blocks = self.tiling, self.blocks
        rows, columns = (axis_symbol(a) for a in blocks.units[-2:])
        first = rows * blocks.block_rows
        last = dims.minimum(first + blocks.block_rows, tiling.m.extent)
        begin = columns * blocks.block_panels
        end = dims.minimum(begin + blocks.block_panels, blocks.panels)
        width = blocks.block_panels * tiling.cols
        stop = dims.minimum(columns * width + width, tiling.n.extent)
        area = Area(first, last, begin, end, (columns * width, stop))
        if blocks.depth is None:
            self._area(scope, area, finish)
        else:
            self._deep(scope, area, blocks.depth, finish)

    def _deep(self, scope: Scope, area: Area, depth: Dim, finish: Finish) -> None:
        """The unit's sums in scratch, one part of the sum after the other; then what is made of
        them.
        """
        emitter, tiling, blocks = self.emitter, self.tiling, self.blocks
        width = blocks.block_panels * tiling.cols
        sums = self.sums = self._local(blocks.block_rows * width, held(tiling.term))
        row, column = axis_symbol(tiling.m), axis_symbol(tiling.n)
        at = (row - area.first) * width + column - area.columns[0]
        part = emitter.fresh("d")
        with scope.loop(part, dims.ceiling_divide(tiling.k[0].extent, depth)) as inner:
            self._take_share(tiling.k[0], dims.symbol(part, 0) * depth, depth)
            self._allocate(math.prod(self.widths, start=1))
            self._pack()
            before = LoadValue(sums, at, dims.less(0, dims.symbol(part, 0)))

            def add(inside: Scope, total: Value) -> None:
                value = ApplyValue(combine(ReduceOp.SUM), (before, total), sums.dtype)
                inside.add(StoreStmt(sums, at, value))

            self._area(inner, area, add)
        begin, stop = area.columns
        with (
            scope.loop(tiling.m.name, area.last, begin=area.first) as over,
            over.loop(tiling.n.name, stop, LoopKind.VECTOR, begin=begin) as inside,
        ):
            finish(inside, emitter.let(LoadValue(sums, at), inside))

    def _area(self, scope: Scope, area: Area, finish: Finish) -> None:
        """All tiles of a unit, for the part of the sum that is walked."""
        emitter, tiling = self.emitter, self.tiling
        if self.packed is not None:
            self._stage_right(scope, area, self.packed)
        if self.scratch is not None:
            self._stage_left(scope, area.first, area.last)
        panel, row = emitter.fresh("q"), emitter.fresh("r")
        over_panels = (panel, area.end, LoopKind.SERIAL, area.begin, 1)
        over_rows = (row, area.last, LoopKind.SERIAL, area.first, tiling.rows)
        loops = (over_rows, over_panels) if self.packed is not None else (over_panels, over_rows)
        with scope.loop(*loops[0]) as over, over.loop(*loops[1]) as inner:
            self._tile(inner, dims.symbol(panel), dims.symbol(row), area, finish)

    def _tile(self, scope: Scope, panel: Dim, row: Dim, area: Area, finish: Finish) -> None:
        tiling, emitter = self.tiling, self.emitter
        dtype = held(tiling.term)
        depth = extent(emitter, [Axis("k", width) for width in self.widths])
        acc = emitter.fresh("t")
        body = Scope(scope, {tiling.m.name, tiling.n.name})
        total: Value = Ref(acc, dtype)
        finish(body, total)
        sides = self._left(scope, area.first), self._right(scope, panel, area)
        lhs, rhs = sides if tiling.pairs else (widened(s, dtype) for s in sides)
        tile = Tile(
            acc,
            dtype,
            tiling.m.name,
            row,
            area.last,
            tiling.rows,
            tiling.n.name,
            panel * tiling.cols,
            tiling.n.extent,
            tiling.cols,
            tuple(self.k),
            lhs,
            rhs,
            tuple(body.stmts),
            self._comes_from_far(),
            depth >= LASTING,
            tiling.pairs,
        )
        scope.add(tile)

    def _comes_from_far(self) -> bool:
        """Whether the right side is read in place from memory, for one row or tile by tile."""
        tiling, target = self.tiling, self.emitter.target
        if self.sums is None or self.packed is not None or tiling.dots or target is None:
            return False
        size = extent(self.emitter, (*tiling.k, tiling.n)) * held(tiling.term).itemsize
        several = extent(self.emitter, [tiling.m]) > tiling.rows
        return tiling.rows == 1 or (several and size > FAR * target.l2)

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

    def _right(self, scope: Scope, panel: Dim, area: Area) -> Value:
        if self.packed is not None:
            return LoadValue(self.packed, self._packed_offset(area))
        if self.rhs is None:
            assert isinstance(self.tiling.rhs, Load), "what is not a load is staged"
            node = self.emitter.node(self.tiling.rhs, scope)
            assert isinstance(node, LoadValue), "a load's value is one"
            return replace(node, offset=dims.substitute(node.offset, self.shift))
        at = panel_offset(self.rhs, panel, self.tiling, self.blocks.panels)
        return LoadValue(self.rhs.buffer, dims.substitute(at, self.shift))

    def _packed_offset(self, area: Area) -> Dim:
        """Scratch for the right side is [k...][column], with a gap after each row."""
        at: Dim = 0
        for (name, _), width in zip(self.k, self.widths, strict=True):
            at = at * width + dims.symbol(name)
        column = axis_symbol(self.tiling.n) - area.columns[0]
        return at * (self.blocks.block_panels * self.tiling.cols + GAP) + column

    def _stage_right(self, scope: Scope, area: Area, packed: Buffer) -> None:
        """Copy the unit's part of the right side."""
        emitter, tiling = self.emitter, self.tiling
        right = rewrite(tiling.rhs, lambda t, kids: rebuild(t, kids, self.shift), {})
        emitter.ranges[tiling.n.name] = area.columns

        def fill(inner: Scope) -> None:
            value = widened(emitter.value(right, inner), packed.dtype)
            inner.add(StoreStmt(packed, self._packed_offset(area), value))

        emitter.nest((*(Axis(n, e) for n, e in self.k), tiling.n), scope, LoopKind.VECTOR, fill)
        del emitter.ranges[tiling.n.name]

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
