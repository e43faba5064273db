"""FOLD: loops over tiles of a stream, with contractions and row programs on each tile.

A job has a block of rows at one point of the grid. It walks the stream tile by tile, carrying what
`fold_state` holds, and stores the roots at the end; those that vary along the stream in a second
loop. Results depend on shapes only, never on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lumjax import dtype as dt
from lumjax.kernel.emit import Emitter, Scope, held, ordered_axes
from lumjax.kernel.fold_loop import Body
from lumjax.kernel.fold_parts import Parts
from lumjax.kernel.fold_shape import FEW_ROWS, carry_right, inner_right, left_side, shape, stageable
from lumjax.kernel.fold_skip import Guard
from lumjax.kernel.fold_state import State
from lumjax.kernel.ir import If, IndexValue, Let, LoadValue, LoopKind, Value
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.roles import Roles, direct
from lumjax.kernel.share import extent
from lumjax.kernel.skip import decide
from lumjax.kernel.term import Axis, Buffer, Root, Term
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

JOB_WORK = 1 << 20  # multiply-adds per job: tens of microseconds
FEW_JOBS = 4  # with fewer blocks of rows, parts of the stream are jobs too
ENOUGH_JOBS = 8
MOST_PARTS = 16
WHOLE_ROWS = 1  # of a job's scratch: rows no longer than this are not streamed


def worth_folding(emitter: Emitter, roles: Roles) -> bool:
    """Whether a loop over tiles is possible, and better than whole rows in cache."""
    if emitter.target is None or not all(stageable(emitter, i) for i in roles.inner):
        return False
    if roles.inner or roles.columns:
        return all(emitter.size(a.extent) is not None for a in roles.columns)
    itemsize = max(c.term.dtype.itemsize for c in roles.carries)
    return extent(emitter, roles.stream) * itemsize > WHOLE_ROWS * emitter.scratch_bytes


def emit_fold(emitter: Emitter, roles: Roles, roots: Sequence[Root]) -> None:
    """Append the phases that compute `roots`, whose roles are given."""
    _Fold(emitter, roles, roots).emit()


class _Fold:
    def __init__(self, emitter: Emitter, roles: Roles, roots: Sequence[Root]) -> None:
        self.emitter = emitter
        self.roles = roles
        self.roots = roots
        self.rows = roles.rows or Axis(emitter.fresh("row"), 1)
        self.shape = shape(emitter, roles, self.rows)
        stream = ordered_axes([c.term for c in roles.carries])
        self.others = [a for a in stream if a.name != roles.along.name]
        outer = (*roles.grid, *self.others)
        where = outer, self.rows, roles.along, self.shape
        sides = {
            i: (
                left_side(emitter, i, self.rows, self.shape),
                inner_right(emitter, i, *where),
            )
            for i in roles.inner
        }
        values = {c: carry_right(emitter, c, *where) for c in roles.carries if c.columns}
        self.state = State(emitter, roles, self.rows, self.shape.height)
        self.state.turned = frozenset(c.term for c, right in values.items() if right.turned)
        decision = decide(roles) if self.many_tiles() else None
        self.guard = None if decision is None else Guard(emitter, decision)
        self.allowed: Dim = 0
        self.parts: Parts | None = None
        self.count: Dim = 1  # parts of the stream
        self.number: Dim = 0  # of the block of rows
        self.body = Body(emitter, roles, self.shape, self.state, sides, values, decision)

    def many_tiles(self) -> bool:
        """Whether there may be tiles that masks decide."""
        return extent(self.emitter, [self.roles.along]) > self.shape.width

    # ---- jobs

    def emit(self) -> None:
        """The phases that store the roots."""
        emitter, shape = self.emitter, self.shape
        blocks = Axis(emitter.fresh("rb"), dims.ceiling_divide(self.rows.extent, shape.block))
        units = (*self.roles.grid, blocks)
        total = math.prod((a.extent for a in units), start=1)
        share = self.share(extent(emitter, self.roles.grid))
        if share is not None:
            self.parts_of(units, total, share)
        chunk = emitter.chunk(max(1, JOB_WORK // self.work()))
        top = Scope(bound={job := emitter.fresh("job")})
        begin = dims.symbol(job) * chunk
        flat = emitter.fresh("p")
        self.allow(top)
        with top.loop(flat, dims.minimum(begin + chunk, total), begin=begin) as unit:
            self.number = dims.symbol(flat, 0, total - 1)
            emitter.decode(units, self.number, unit)
            self.unit(unit, axis_symbol(blocks) * shape.block)
        emitter.phase(job, dims.ceiling_divide(total, chunk), top)

    def allow(self, top: Scope) -> None:
        """Find out, once for each job, whether tiles may be skipped."""
        if self.guard is not None:
            self.allowed = self.guard.allow(top)

    # ---- parts

    def share(self, grid: int) -> int | None:
        """How many tiles a part of the stream has; None where there are rows enough for jobs."""
        emitter = self.emitter
        units = grid * -(-extent(emitter, [self.rows]) // self.shape.height)
        tiles = -(-extent(emitter, [self.roles.along]) // self.shape.width)
        parts = min(MOST_PARTS, tiles // 2, self.work() // JOB_WORK, -(-ENOUGH_JOBS // units))
        if units >= FEW_JOBS or parts < 2 or self.roles.late:
            return None
        return -(-tiles // parts)

    def parts_of(self, units: Sequence[Axis], total: Dim, share: int) -> None:
        """A phase whose jobs walk parts of the stream and leave their carries in a workspace."""
        emitter, shape, state = self.emitter, self.shape, self.state
        length = emitter.chunk(share)
        count = dims.ceiling_divide(self.tiles, length)
        parts = Parts(emitter, state, shape.height, total * count)
        top = Scope(bound={job := emitter.fresh("job")})
        unit, part = emitter.fresh("u"), emitter.fresh("u")
        at = dims.symbol(job)
        top.add(Let(unit, IndexValue(dims.floor_divide(at, count), dt.int64)))
        top.add(Let(part, IndexValue(dims.remainder(at, count), dt.int64)))
        top.bound.update((unit, part))
        self.allow(top)
        emitter.decode(units, dims.symbol(unit, 0, total - 1), top)
        self.enter(top, axis_symbol(units[-1]) * shape.block)
        begin = dims.symbol(part) * length
        span = begin, dims.minimum(begin + length, self.tiles)
        state.begin(top)
        state.clear(top)
        self.stream(top, lambda inner: self.tile(inner, None, self.allowed), span)
        parts.save(top, at)
        del emitter.ranges[self.rows.name]
        emitter.phase(job, total * count, top)
        self.parts, self.count = parts, count

    @property
    def tiles(self) -> Dim:
        """How many tiles the stream has."""
        return dims.ceiling_divide(self.roles.along.extent, self.shape.step)

    def work(self) -> int:
        """Roughly the multiply-adds of one block of rows."""
        emitter = self.emitter
        each = 16 + sum(extent(emitter, i.term.axes) for i in self.roles.inner)
        each += sum(extent(emitter, c.columns) for c in self.roles.carries if c.columns)
        rows = min(self.shape.height, extent(emitter, [self.rows]))
        if self.roles.inner or self.roles.columns:
            rows = max(rows, FEW_ROWS)  # they all wait for the stream
        return max(1, rows * each * extent(emitter, self.roles.stream))

    def enter(self, scope: Scope, first: Dim) -> None:
        """Begin with a block of rows."""
        emitter, state = self.emitter, self.state
        state.first, state.last = first, dims.minimum(first + self.shape.block, self.rows.extent)
        emitter.ranges[self.rows.name] = first, state.last
        for left, _ in self.body.sides.values():
            left.stage(emitter, scope, first)

    def unit(self, scope: Scope, first: Dim) -> None:
        """One block of rows."""
        emitter, state = self.emitter, self.state
        self.enter(scope, first)
        if state.scaled:
            self.turns(scope)
        else:
            state.clear(scope)
            if self.parts is not None:
                self.merge(scope)
            else:
                self.stream(scope, lambda inner: self.tile(inner, None, self.allowed))
        self.store(scope)
        if self.roles.late:
            self.stream(scope, self.store_late)
        del emitter.ranges[self.rows.name]

    def merge(self, scope: Scope) -> None:
        """Combine the parts of the block's rows."""
        assert self.parts is not None, "there are parts"
        self.parts.merge(scope, self.number * self.count, self.count, self.body.peaks)

    def turns(self, scope: Scope) -> None:
        """The loop; if that leaves anything that is not finite, again without skipping tiles; and
        if need be again with the statistics that are final by then.
        """
        emitter, state = self.emitter, self.state
        assert state.again is not None, "there is a scaled sum"
        state.begin(scope)
        most = 2 if self.guard is None and self.parts is None else 3
        with scope.loop(name := emitter.fresh("turn"), most) as each:
            turn = dims.symbol(name, 0, most - 1)
            wanted = emitter.fresh("v")
            each.add(Let(wanted, LoadValue(state.again, 0)))
            each.bound.add(wanted)
            inside = Scope(each)
            redo = IndexValue(dims.equal(turn, most - 1), dt.bool_)
            skip = dims.logical_and(self.allowed, dims.equal(turn, 0))
            state.clear(inside)
            if self.parts is None:
                self.stream(inside, lambda inner: self.tile(inner, redo, skip))
            else:
                self.either(inside, turn, redo)
            state.judge(inside, lambda row: self.marks(row, turn))
            each.add(If(dims.symbol(wanted, 0, 1), tuple(inside.stmts)))

    def either(self, scope: Scope, turn: Dim, redo: Value) -> None:
        """Combine the parts at first, walk the whole stream in later turns."""
        first, later = Scope(scope), Scope(scope)
        self.merge(first)
        self.stream(later, lambda inner: self.tile(inner, redo, 0))
        scope.add(If(dims.equal(turn, 0), tuple(first.stmts)))
        scope.add(If(dims.less(0, turn), tuple(later.stmts)))

    def marks(self, scope: Scope, turn: Dim) -> list[Value]:
        """What else must be finite at the current row for skipped tiles to be idle."""
        if self.guard is None:
            return []
        sums = [c.term for c in self.roles.carries if c.term.scale is not None]
        wide = {t.scale: held(t) for t in sums if t.scale is not None}
        return self.guard.marks(scope, wide, IndexValue(dims.less(0, turn), dt.bool_))

    def tile(self, scope: Scope, redo: Value | None, skip: Dim) -> None:
        """One tile of the stream, unless it is idle and may be skipped."""
        if self.guard is None:
            self.body.emit(scope, redo)
            return
        idle = dims.logical_and(skip, self.guard.decision.idle(self.body.ranges()))
        inside = Scope(scope)
        self.body.emit(inside, redo)
        scope.add(If(dims.logical_not(idle), tuple(inside.stmts)))

    def stream(
        self, scope: Scope, emit: Callable[[Scope], None], span: tuple[Dim, Dim] | None = None
    ) -> None:
        """The loop over the tiles of the stream, or a span of them, at each point of its other
        axes.
        """
        emitter = self.emitter
        begin, end = (0, self.tiles) if span is None else span

        def tiles(inner: Scope) -> None:
            with inner.loop(tile := emitter.fresh("s"), end, begin=begin) as each:
                self.body.enter(dims.symbol(tile))
                emit(each)

        emitter.nest(self.others, scope, LoopKind.SERIAL, tiles)

    # ---- stores

    def store(self, scope: Scope) -> None:
        """The roots that do not vary along the stream."""
        fixed = {self.rows.name, *(a.name for a in self.roles.grid)}
        groups: dict[tuple[Axis, ...], list[Root]] = {}
        for root in self.roots:
            if root not in self.roles.late:
                kept = tuple(a for a in root.axes if a.name not in fixed)
                groups.setdefault(kept, []).append(root)
        for axes, together in groups.items():
            if axes:
                self.store_columns(scope, axes, together)
                continue
            with self.state.over_rows(scope, LoopKind.VECTOR) as row:
                self.state.finals(row)
                for root in together:
                    self.emitter.store(root, row)

    def store_columns(self, scope: Scope, axes: Sequence[Axis], roots: Sequence[Root]) -> None:
        """Roots over rows and columns."""
        used = {t for r in roots for t in direct([r.term])}
        mine = [c for c in self.roles.carries if c.columns and c.term in used]

        def point(inner: Scope) -> None:
            for carry in mine:
                self.state.final_sum(inner, carry)
            for root in roots:
                self.emitter.store(root, inner)

        with self.state.over_rows(scope, LoopKind.SERIAL) as row:
            self.state.finals(row)
            self.emitter.nest(axes, row, LoopKind.VECTOR, point)

    def store_late(self, scope: Scope) -> None:
        """One tile of the roots that vary along the stream."""
        body, along, emitter = self.body, self.roles.along, self.emitter
        used = {t for r in self.roles.late for t in direct([r.term])}
        tiles: dict[Term, Buffer] = {t: b for t, b in body.layout.inner.items() if t in used}
        for inner in self.roles.inner:
            if inner.term in used:
                body.contract(scope, inner)
        with self.state.over_rows(scope, LoopKind.SERIAL) as row:
            self.state.finals(row)
            with row.loop(along.name, body.end, LoopKind.VECTOR, body.begin) as point:
                body.read(point, tiles)
                for root in self.roles.late:
                    emitter.store(root, point)
