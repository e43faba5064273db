"""The register-tiled contraction: rows x columns of accumulators that stay in registers over k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lumjax import dtype as dt
from lumjax.cpu import analysis, math, real
from lumjax.cpu.convert import Lanes, cast, compute_type, fill, parts, round_to_dtype, widen
from lumjax.cpu.emit import Reg, bits, constant, number
from lumjax.cpu.index import Index
from lumjax.cpu.values import Values, restore
from lumjax.kernel.ir import LoadValue, Stmt, Tile, Value
from lumjax.target import Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

UNROLL = 4  # steps of the innermost k loop per trip
LIGHT_EPILOGUE = 48  # operations, over the whole tile, up to which the epilogue is written out

Rows = list[list[Lanes]]


def tile_shape(dtype: dt.DType, target: Target) -> tuple[int, int]:
    """The rows and columns of a tile that fill the machine's registers and no more."""
    rows, vectors = (8, 3) if target.vector_registers >= 32 else (6, 2)
    return rows, vectors * target.lanes(max(4, dtype.itemsize))


def collapsed(stmt: Tile) -> Tile:
    """The tile with neighbouring k loops made one where both operands walk them as one."""
    loads = [v for v in (stmt.lhs, stmt.rhs) if isinstance(v, LoadValue)]
    names = frozenset(name for name, _ in stmt.k)
    if len(loads) < 2 or any(dims.symbols(v.mask) & names for v in loads):
        return stmt
    loops = list(stmt.k)
    gone: dict[str, Dim] = {}
    for at in range(len(loops) - 1, 0, -1):
        (outer, count), (inner, extent) = loops[at - 1], loops[at]
        steps = [
            (dims.coefficient(v.offset, outer), dims.coefficient(v.offset, inner)) for v in loads
        ]
        if all(a is not None and b is not None and dims.same(a, b * extent) for a, b in steps):
            loops[at - 1 : at + 1] = [(inner, count * extent)]
            gone[outer] = 0
    if not gone:
        return stmt
    left, right = (replace(v, offset=dims.substitute(v.offset, gone)) for v in loads)
    return replace(stmt, k=tuple(loops), lhs=left, rhs=right)


class TileRenderer:
    """Emits one Tile; `body` renders statements."""

    def __init__(
        self, r: Values, stmt: Tile, target: Target, body: Callable[[Sequence[Stmt]], None]
    ) -> None:
        self.r = r
        self.stmt = stmt = collapsed(stmt)
        self.body = body
        width = bits(compute_type(stmt.dtype)) // 8 if stmt.dtype != dt.bool_ else 1
        self.lanes = max(2, min(target.lanes(max(1, width)), 1 << (stmt.cols - 1).bit_length()))
        self.vectors = -(-stmt.cols // self.lanes)
        self.sums = [r.sums[n] for n in analysis.accumulated(stmt.body)]

    def run(self) -> None:
        """The tile; one that may reach over an edge has a second, careful form."""
        r, stmt = self.r, self.stmt
        rows = dims.less_equal(stmt.m0 + stmt.rows, stmt.m_end)
        columns = dims.less_equal(stmt.n0 + self.vectors * self.lanes, stmt.n_end)
        aligned = stmt.cols % self.lanes == 0
        whole = r.ix.condition(dims.logical_and(rows, columns) if aligned else 0)
        if number(whole) != 0:
            self._branch(whole, edge=False)
        if number(whole) != 1:
            some = dims.logical_and(dims.less(stmt.m0, stmt.m_end), dims.less(stmt.n0, stmt.n_end))
            other = r.f.binary("xor", whole, constant("i1", 1))
            self._branch(r.ix.connect("and", [other, r.ix.condition(some)]), edge=True)

    def _branch(self, condition: Reg, edge: bool) -> None:
        before = [reg for s in self.sums for reg in s.regs()]
        with self.r.f.branch(condition, before) as frame:
            with self.r.scope(analysis.stored(self.stmt.body)):
                self._emit(edge)
            frame.carried = [reg for s in self.sums for reg in s.regs()]
        restore(self.sums, frame.results)

    def _emit(self, edge: bool) -> None:
        r, stmt = self.r, self.stmt
        m0, n0 = (r.ix.scalar(r.ix.index(d)) for d in (stmt.m0, stmt.n0))
        m_end, n_end = (r.ix.scalar(r.ix.index(d)) for d in (stmt.m_end, stmt.n_end))
        rows = [Index(m0, k) for k in range(stmt.rows)]
        columns = [Index(n0, j * self.lanes, 1) for j in range(self.vectors)]
        masks: list[Reg | None] = [None] * self.vectors
        if edge:
            rows = [self._clamped(row, m_end) for row in rows]
            masks = [self._within(column, n_end, j) for j, column in enumerate(columns)]
        start = widen(r.f, fill(stmt.dtype, 0), self.lanes)
        finished = self._contract(
            0, [[start] * self.vectors for _ in rows], rows, columns, masks, 1 if edge else UNROLL
        )
        self._epilogue(finished, m0, m_end if edge else None, columns, masks)

    def _clamped(self, row: Index, m_end: Reg) -> Index:
        last = self.r.f.add(m_end, constant("i64", -1))
        return Index(self.r.f.intrinsic("llvm.smin", self.r.ix.scalar(row), last))

    def _within(self, column: Index, n_end: Reg, j: int) -> Reg | None:
        """The columns of a vector that exist; the tile's own width counts too."""
        negative = self.r.f.multiply(column.base, constant("i64", -1))
        room = self.r.f.add(n_end, negative)
        room = self.r.f.intrinsic("llvm.smin", room, constant("i64", self.stmt.cols))
        with self.r.in_lanes(self.lanes):
            return self.r.ix.compare("sge", Index(room, -1 - j * self.lanes, -1))

    # ---- the sum

    def _contract(
        self,
        level: int,
        totals: Rows,
        rows: Sequence[Index],
        columns: Sequence[Index],
        masks: Sequence[Reg | None],
        unroll: int,
    ) -> Rows:
        """The k loops from `level` inwards."""
        r, loops = self.r, self.stmt.k
        if level == len(loops):
            return self._step(totals, rows, columns, masks)
        name, extent = loops[level]
        end = r.ix.scalar(r.ix.index(extent))
        inner = level == len(loops) - 1
        step = unroll if inner and (isinstance(extent, dims.Expr) or extent >= unroll) else 1
        left = dims.remainder(extent, step)
        middle = end
        if isinstance(left, dims.Expr):
            middle = r.f.binary("and", end, constant("i64", -step))
        elif left:
            middle = r.f.add(end, constant("i64", -left))
        spans = [(constant("i64", 0), middle, step)]
        if isinstance(left, dims.Expr) or left:
            spans.append((middle, end, 1))
        for begin, stop, by in spans:
            with r.f.loop(begin, stop, by, _flat(totals)) as frame:
                totals = self._shaped(frame.carried)
                for u in range(by):
                    r.symbols[name] = Index(frame.index, u)
                    totals = self._contract(level + 1, totals, rows, columns, masks, unroll)
                frame.carried = _flat(totals)
            totals = self._shaped(frame.results)
        return totals

    def _shaped(self, regs: Sequence[Reg]) -> Rows:
        size, dtype = parts(self.stmt.dtype), self.stmt.dtype
        values = [Lanes(dtype, tuple(regs[k : k + size])) for k in range(0, len(regs), size)]
        return [values[k : k + self.vectors] for k in range(0, len(values), self.vectors)]

    def _step(
        self,
        totals: Rows,
        rows: Sequence[Index],
        columns: Sequence[Index],
        masks: Sequence[Reg | None],
    ) -> Rows:
        """One k: every row's left operand times the vectors of right operands."""
        r, stmt = self.r, self.stmt
        right: list[Lanes] = []
        with r.in_lanes(self.lanes):
            for column, mask in zip(columns, masks, strict=True):
                r.symbols[stmt.n] = column
                with r.masked(mask):
                    right.append(self._operand(stmt.rhs))
        result: Rows = []
        for row, old in zip(rows, totals, strict=True):
            r.symbols[stmt.m] = row
            left = self._operand(stmt.lhs)
            result.append([self._fused(left, b, c) for b, c in zip(right, old, strict=True)])
        return result

    def _operand(self, value: Value) -> Lanes:
        f = self.r.f
        found = cast(f, round_to_dtype(f, self.r.value(value)), self.stmt.dtype)
        return widen(f, found, self.lanes)

    def _fused(self, a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        f, dtype = self.r.f, self.stmt.dtype
        if dtype in dt.FLOATING:
            return Lanes(dtype, (real.fused(f, a.reg, b.reg, c.reg),))
        product = math.RULES["mul"](f, [a, b], dtype)
        return math.RULES["add"](f, [c, product], dtype)

    # ---- the epilogue

    def _epilogue(
        self,
        finished: Rows,
        m0: Reg,
        m_end: Reg | None,
        columns: Sequence[Index],
        masks: Sequence[Reg | None],
    ) -> None:
        """The body for every row and vector of columns; `m_end` is given if rows may be missing."""
        weight = analysis.weigh(self.stmt.body)
        pieces = self.stmt.rows * self.vectors
        cost = (weight.operations + 8 * weight.heavy) * pieces
        light = cost <= LIGHT_EPILOGUE and not weight.nested
        if self.stmt.dtype == dt.bool_ or (light and m_end is None):
            for k, row in enumerate(finished):
                self._guarded_row(Index(m0, k), m_end, row, columns, masks)
        else:
            self._rolled(finished, m0, m_end, columns, masks)

    def _guarded_row(
        self,
        row: Index,
        m_end: Reg | None,
        values: Sequence[Lanes],
        columns: Sequence[Index],
        masks: Sequence[Reg | None],
    ) -> None:
        if m_end is None:
            self._row(row, values, columns, masks)
            return
        f = self.r.f
        inside = f.compare("icmp slt", self.r.ix.scalar(row), m_end)
        with f.branch(inside, [reg for s in self.sums for reg in s.regs()]) as frame:
            self._row(row, values, columns, masks)
            frame.carried = [reg for s in self.sums for reg in s.regs()]
        restore(self.sums, frame.results)

    def _row(
        self,
        row: Index,
        values: Sequence[Lanes],
        columns: Sequence[Index],
        masks: Sequence[Reg | None],
    ) -> None:
        """The body for one row."""
        r, stmt = self.r, self.stmt
        saved = [s.partials for s in self.sums]
        for s in self.sums:
            r.open_sum(s, self.lanes, 1)
        with r.in_lanes(self.lanes):
            for value, column, mask in zip(values, columns, masks, strict=True):
                with r.masked(mask), r.scope(analysis.stored(stmt.body)):
                    r.symbols[stmt.m], r.symbols[stmt.n] = row, column
                    r.lets[stmt.acc] = value
                    self.body(stmt.body)
        for s, old in zip(self.sums, saved, strict=True):
            r.close_sum(s)
            s.partials = old

    def _rolled(
        self,
        finished: Rows,
        m0: Reg,
        m_end: Reg | None,
        columns: Sequence[Index],
        masks: Sequence[Reg | None],
    ) -> None:
        """A loop over rows, with the sums parked on the stack."""
        f = self.r.f
        flat = _flat(finished)
        kind = flat[0].type
        align = bits(kind) // 8
        park = f.first(f"alloca [{len(flat) * self.lanes} x {kind}], align 64")
        for k, reg in enumerate(flat):
            at = f.element(kind, park, constant("i64", k * self.lanes))
            f.effect(f"store {reg}, ptr {at}, align {align}")
        count = constant("i64", self.stmt.rows)
        if m_end is not None:
            room = f.add(m_end, f.multiply(m0, constant("i64", -1)))
            count = f.intrinsic("llvm.smin", room, count)
        per_row = self.vectors * parts(self.stmt.dtype)
        before = [reg for s in self.sums for reg in s.regs()]
        with f.loop(constant("i64", 0), count, 1, before) as frame:
            restore(self.sums, frame.carried)
            start = f.multiply(frame.index, constant("i64", per_row * self.lanes))
            base = f.element(kind, park, start)
            regs: list[Reg] = []
            for k in range(per_row):
                at = f.element(kind, base, constant("i64", k * self.lanes))
                text = f.here(f"load {flat[0].full}, ptr {at}, align {align}")
                regs.append(Reg(text, kind, self.lanes))
            (values,) = self._shaped(regs)
            self._row(Index(f.add(m0, frame.index)), values, columns, masks)
            frame.carried = [reg for s in self.sums for reg in s.regs()]
        restore(self.sums, frame.results)


def _flat(rows: Rows) -> list[Reg]:
    return [reg for row in rows for value in row for reg in value.regs]
