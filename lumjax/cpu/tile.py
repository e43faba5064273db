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
from lumjax.kernel.ir import ApplyValue, LoadValue, Stmt, StoreStmt, Tile, Value
from lumjax.record import record
from lumjax.target import Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import Trait

UNROLL = 1  # steps of the innermost k loop per trip: with 2 or 4, LLVM lifts loads and spills
LINE = 64  # bytes of a line of the cache
LIGHT_EPILOGUE = 48  # operations, over the whole tile, up to which the epilogue is written out

Rows = list[list[Lanes]]


def source(side: Value) -> LoadValue | None:
    """The load that a side is, cast or not."""
    if isinstance(side, ApplyValue) and Trait.CAST in side.op.traits:
        (side,) = side.args
    return side if isinstance(side, LoadValue) else None


def collapsed(stmt: Tile) -> Tile:
    """The tile with neighbouring k loops made one where both operands walk them as one."""
    loads = [v for v in map(source, (stmt.lhs, stmt.rhs)) if v is not None]
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
    sides: list[Value] = []
    for side, load in zip((stmt.lhs, stmt.rhs), loads, strict=True):
        moved = replace(load, offset=dims.substitute(load.offset, gone))
        sides.append(replace(side, args=(moved,)) if isinstance(side, ApplyValue) else moved)
    return replace(stmt, k=tuple(loops), lhs=sides[0], rhs=sides[1])


@record
class Piece:
    """One form of the tile: its rows and vectors of columns, and which of them exist."""

    m0: Reg
    m_end: Reg | None  # None: every row exists
    rows: Sequence[Index]
    columns: Sequence[Index]
    mask: Reg | None  # of the only vector of columns; None: every column exists
    unroll: int


class TileRenderer:
    """Emits one Tile; `body` renders statements."""

    def __init__(
        self, r: Values, stmt: Tile, target: Target, body: Callable[[Sequence[Stmt]], None]
    ) -> None:
        self.r = r
        self.stmt = stmt = collapsed(stmt)
        self.body = body
        self.target = target
        width = bits(compute_type(stmt.dtype)) // 8 if stmt.dtype != dt.bool_ else 1
        self.lanes = max(2, min(target.lanes(max(1, width)), 1 << (stmt.cols - 1).bit_length()))
        self.vectors = -(-stmt.cols // self.lanes)
        self.sums = [r.sums[n] for n in analysis.accumulated(stmt.body)]
        self.paired = stmt.pairs  # of dot products the lanes are still to be added
        self.rows_at: dict[Index, Index] = {}  # see _spread
        self.columns_at: dict[Index, Index] = {}

    def run(self) -> None:
        """The tile in three forms: whole; some rows missing; some columns missing."""
        r, stmt = self.r, self.stmt
        rows = r.ix.condition(dims.less_equal(stmt.m0 + stmt.rows, stmt.m_end))
        across = self.vectors * self.lanes
        columns = r.ix.condition(dims.less_equal(stmt.n0 + across, stmt.n_end))
        if stmt.cols % self.lanes:
            columns = constant("i1", 0)
        some = r.ix.condition(
            dims.logical_and(dims.less(stmt.m0, stmt.m_end), dims.less(stmt.n0, stmt.n_end))
        )
        absent = self._not(columns)
        self._branch(r.ix.connect("and", [rows, columns]), self._whole)
        self._branch(r.ix.connect("and", [some, columns, self._not(rows)]), self._rows)
        self._branch(r.ix.connect("and", [some, absent]), self._columns)

    def _not(self, condition: Reg) -> Reg:
        known = number(condition)
        if known is not None:
            return constant("i1", 1 - known)
        return self.r.f.binary("xor", condition, constant("i1", 1))

    def _branch(self, condition: Reg, emit: Callable[[], None]) -> None:
        if number(condition) == 0:
            return
        with self.r.f.branch(condition, self._carried()) as frame:
            with self.r.scope(analysis.stored(self.stmt.body)):
                emit()
            frame.carried = self._carried()
        restore(self.sums, frame.results)

    def _carried(self) -> list[Reg]:
        return [reg for s in self.sums for reg in s.regs()]

    # ---- the three forms

    def _start(self) -> tuple[Reg, Reg]:
        ix = self.r.ix
        return ix.scalar(ix.index(self.stmt.m0)), ix.scalar(ix.index(self.stmt.n0))

    def _whole(self) -> None:
        m0, n0 = self._start()
        rows = [Index(m0, k) for k in range(self.stmt.rows)]
        columns = [Index(n0, j * self.lanes, 1) for j in range(self.vectors)]
        self._emit(Piece(m0, None, rows, columns, None, UNROLL))

    def _rows(self) -> None:
        """The last rows are read twice and stored once."""
        m0, n0 = self._start()
        m_end = self.r.ix.scalar(self.r.ix.index(self.stmt.m_end))
        columns = [Index(n0, j * self.lanes, 1) for j in range(self.vectors)]
        self._emit(Piece(m0, m_end, self._clamped(m0, m_end, self.stmt.rows), columns, None, 1))

    def _columns(self) -> None:
        """One vector of columns at a time, under a mask."""
        f, stmt = self.r.f, self.stmt
        m0, n0 = self._start()
        m_end, n_end = (self.r.ix.scalar(self.r.ix.index(d)) for d in (stmt.m_end, stmt.n_end))
        rows = self._clamped(m0, m_end, self.stmt.rows)
        room = f.add(n_end, f.multiply(n0, constant("i64", -1)))
        room = f.intrinsic("llvm.smin", room, constant("i64", stmt.cols))
        with f.loop(constant("i64", 0), room, self.lanes, self._carried()) as frame:
            restore(self.sums, frame.carried)
            left = f.add(room, f.multiply(frame.index, constant("i64", -1)))
            with self.r.in_lanes(self.lanes):
                mask = self.r.ix.compare("sge", Index(left, -1, -1))
            column = Index(f.add(n0, frame.index), 0, 1)
            self._emit(Piece(m0, m_end, rows, [column], mask, 1))
            frame.carried = self._carried()
        restore(self.sums, frame.results)

    def _clamped(self, first: Reg, end: Reg, count: int) -> list[Index]:
        f, last = self.r.f, self.r.f.add(end, constant("i64", -1))
        places = [self.r.ix.scalar(Index(first, k)) for k in range(count)]
        return [Index(f.intrinsic("llvm.smin", place, last)) for place in places]

    def _emit(self, piece: Piece) -> None:
        self.rows_at = {}
        if piece.m_end is None:
            if self.stmt.long:
                self._fetch(piece)
            self.rows_at = self._spread(self.stmt.lhs, self.stmt.m, piece.rows)
        zero = widen(self.r.f, fill(self.stmt.dtype, 0), self.lanes)
        totals = [[zero] * len(piece.columns) for _ in piece.rows]
        self._epilogue(piece, self._contract(0, totals, piece))

    def _spread(self, side: Value, name: str, places: Sequence[Index]) -> dict[Index, Index]:
        """Places whose addresses on a side are kept in a register each: LLVM, which knows that they
        are evenly spaced, would compute all of them from one in every step of the sum.
        """
        f, load = self.r.f, source(side)
        if len(places) == 1 or load is None:
            return {}
        if isinstance(dims.coefficient(load.offset, name), int):
            return {}  # one address and constants
        hidden = [f.here(f'call i64 asm "", "=r,0"({self.r.ix.scalar(p)})') for p in places]
        return {p: Index(Reg(h, "i64")) for p, h in zip(places, hidden, strict=True)}

    def _fetch(self, piece: Piece) -> None:
        """Ask for the memory that the tile stores to: the sum is long enough for it to come."""
        r, stmt = self.r, self.stmt
        stores = [s for s in stmt.body if isinstance(s, StoreStmt) and dims.same(s.mask, 1)]
        for store in stores:
            if not dims.symbols(store.offset) <= r.symbols.keys() | {stmt.m, stmt.n}:
                continue
            for row in piece.rows:
                for column in self._lines(piece.columns, store.buffer.dtype.itemsize):
                    r.symbols[stmt.m], r.symbols[stmt.n] = row, column
                    with r.in_lanes(self.lanes):
                        r.memory.fetch(store.buffer, store.offset, r.ix, write=True)

    def _lines(self, columns: Sequence[Index], itemsize: int) -> Sequence[Index]:
        """The vectors of columns that begin another line of the cache."""
        return columns[:: max(1, LINE // (self.lanes * itemsize))]

    # ---- the sum

    def _contract(self, level: int, totals: Rows, piece: Piece) -> Rows:
        """The k loops from `level` inwards."""
        r, loops = self.r, self.stmt.k
        if level == len(loops):
            return self._step(totals, piece)
        name, extent = loops[level]
        end = r.ix.scalar(r.ix.index(extent))
        inner = level == len(loops) - 1
        long = isinstance(extent, dims.Expr) or extent >= piece.unroll
        step = piece.unroll if inner and long else 1
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
            with r.f.loop(begin, stop, by, flat(totals)) as frame:
                totals = self._shaped(frame.carried, len(piece.columns))
                for u in range(by):
                    r.symbols[name] = Index(frame.index, u)
                    totals = self._contract(level + 1, totals, piece)
                frame.carried = flat(totals)
            totals = self._shaped(frame.results, len(piece.columns))
        return totals

    def _shaped(self, regs: Sequence[Reg], width: int) -> Rows:
        size, dtype = parts(self.stmt.dtype), self.stmt.dtype
        values = [Lanes(dtype, tuple(regs[k : k + size])) for k in range(0, len(regs), size)]
        return [values[k : k + width] for k in range(0, len(values), width)]

    def _step(self, totals: Rows, piece: Piece) -> Rows:
        """One k: every row's left operand times the vectors of right operands; of the two, what
        there is less of stays in registers.
        """
        r, stmt = self.r, self.stmt
        result: Rows = [[] for _ in totals]
        if len(piece.rows) < len(piece.columns):
            left = [self._left(row) for row in piece.rows]
            for j, column in enumerate(piece.columns):
                right = self._right(column, piece)
                for k, old in enumerate(totals):
                    result[k].append(self._fused(left[k], right, old[j]))
        else:
            across = [self._right(column, piece) for column in piece.columns]
            for k, (row, old) in enumerate(zip(piece.rows, totals, strict=True)):
                one = self._left(row)
                result[k] = [self._fused(one, b, c) for b, c in zip(across, old, strict=True)]
        load = source(stmt.rhs) if stmt.ahead and piece.mask is None else None
        if load is not None:
            for column in self._lines(piece.columns, load.dtype.itemsize):
                r.symbols[stmt.n] = replace(column, offset=column.offset + stmt.cols)
                with r.in_lanes(self.lanes):
                    r.memory.fetch(load.buffer, load.offset, r.ix)
        return result

    def _left(self, row: Index) -> Lanes:
        self.r.symbols[self.stmt.m] = self.rows_at.get(row, row)
        return self._operand(self.stmt.lhs, self.lanes)

    def _right(self, column: Index, piece: Piece) -> Lanes:
        self.r.symbols[self.stmt.n] = column
        with self.r.in_lanes(self.lanes), self.r.masked(piece.mask):
            return self._operand(self.stmt.rhs, self.lanes)

    def _operand(self, value: Value, lanes: int) -> Lanes:
        f, r = self.r.f, self.r
        if self.stmt.pairs:
            if isinstance(value, LoadValue) and value.dtype == dt.bfloat16:
                word = r.memory.words(value.buffer, value.offset, r.ix, r.mask)
                assert word is not None, "pairs lie side by side"
                return widen(f, word, lanes)
            return widen(f, r.value(value), lanes)
        found = cast(f, round_to_dtype(f, self.r.value(value)), self.stmt.dtype)
        return widen(f, found, lanes)

    def _fused(self, a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        f, dtype = self.r.f, self.stmt.dtype
        if self.stmt.pairs:
            return Lanes(dtype, (real.paired(f, a.reg, b.reg, c.reg),))
        if dtype in dt.FLOATING:
            return Lanes(dtype, (real.fused(f, a.reg, b.reg, c.reg),))
        product = math.RULES["mul"](f, [a, b], dtype)
        return math.RULES["add"](f, [c, product], dtype)

    # ---- the epilogue

    def _epilogue(self, piece: Piece, finished: Rows) -> None:
        """The body for every row that exists, on each vector of columns."""
        weight = analysis.weigh(self.stmt.body)
        cost = (weight.operations + 8 * weight.heavy) * self.stmt.rows * self.vectors
        light = cost <= LIGHT_EPILOGUE and not weight.nested
        if self.stmt.dtype == dt.bool_ or (light and piece.m_end is None):
            for k, values in enumerate(finished):
                self._guarded_row(Index(piece.m0, k), values, piece)
        else:
            self._rolled(piece, finished)

    def _guarded_row(self, row: Index, values: Sequence[Lanes], piece: Piece) -> None:
        if piece.m_end is None:
            self._row(row, values, piece)
            return
        f = self.r.f
        inside = f.compare("icmp slt", self.r.ix.scalar(row), piece.m_end)
        with f.branch(inside, self._carried()) as frame:
            self._row(row, values, piece)
            frame.carried = self._carried()
        restore(self.sums, frame.results)

    def _row(self, row: Index, values: Sequence[Lanes], piece: Piece) -> None:
        """The body for one row."""
        r, stmt = self.r, self.stmt
        saved = [s.partials for s in self.sums]
        for s in self.sums:
            r.open_sum(s, self.lanes, 1)
        with r.in_lanes(self.lanes), r.masked(piece.mask):
            for value, column in zip(values, piece.columns, strict=True):
                with r.scope(analysis.stored(stmt.body)):
                    r.symbols[stmt.m], r.symbols[stmt.n] = row, column
                    r.lets[stmt.acc] = replace(value, paired=self.paired)
                    self.body(stmt.body)
        for s, old in zip(self.sums, saved, strict=True):
            r.close_sum(s)
            s.partials = old

    def _rolled(self, piece: Piece, finished: Rows) -> None:
        """A loop over rows, with the sums parked on the stack."""
        f, parked = self.r.f, flat(finished)
        kind = parked[0].type
        align = bits(kind) // 8
        park = f.first(f"alloca [{len(parked) * self.lanes} x {kind}], align 64")
        for k, reg in enumerate(parked):
            at = f.element(kind, park, constant("i64", k * self.lanes))
            f.effect(f"store {reg}, ptr {at}, align {align}")
        count = constant("i64", self.stmt.rows)
        if piece.m_end is not None:
            room = f.add(piece.m_end, f.multiply(piece.m0, constant("i64", -1)))
            count = f.intrinsic("llvm.smin", room, count)
        per_row = len(piece.columns) * parts(self.stmt.dtype)
        with f.loop(constant("i64", 0), count, 1, self._carried()) as frame:
            restore(self.sums, frame.carried)
            start = f.multiply(frame.index, constant("i64", per_row * self.lanes))
            base = f.element(kind, park, start)
            regs: list[Reg] = []
            for k in range(per_row):
                at = f.element(kind, base, constant("i64", k * self.lanes))
                text = f.here(f"load {parked[0].full}, ptr {at}, align {align}")
                regs.append(Reg(text, kind, self.lanes))
            (values,) = self._shaped(regs, per_row // parts(self.stmt.dtype))
            self._row(Index(f.add(piece.m0, frame.index)), values, piece)
            frame.carried = self._carried()
        restore(self.sums, frame.results)


def flat(rows: Rows) -> list[Reg]:
    """All registers of some rows."""
    return [reg for row in rows for value in row for reg in value.regs]
