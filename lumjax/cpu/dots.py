"""The contraction of two sides that both lie along the sum: rows x columns of dot products, each in
the lanes of one register.

Nothing is transposed and nothing copied: a step loads a vector of every row and of every column.
When the sum is complete the lanes of a row's registers are added up, all its columns together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lumjax import dtype as dt
from lumjax.cpu import math
from lumjax.cpu.convert import Lanes, compute_type, fill, widen
from lumjax.cpu.emit import Reg, bits, constant
from lumjax.cpu.index import Index
from lumjax.cpu.tile import Piece, Rows, TileRenderer, collapsed, flat, source
from lumjax.kernel.ir import Tile, Value
from lumjax.target import Target
from lumjax.trace import dim as dims


def of_dots(stmt: Tile, target: Target) -> bool:
    """Whether a tile is computed as dot products: both sides are read along the innermost loop of
    the sum, the right one not along its columns, and all the tile's sums fit the registers.
    """
    stmt = collapsed(stmt)
    if not stmt.k or stmt.dtype not in dt.FLOATING:
        return False
    (inner, extent) = stmt.k[-1]
    lanes = _lanes(stmt, target)
    if isinstance(extent, int) and extent < lanes:
        return False
    step = 2 if stmt.pairs else 1
    if lanes < 2 or stmt.cols > lanes:
        return False
    if not (_along(stmt.lhs, inner, step) and _along(stmt.rhs, inner, step)):
        return False
    held = stmt.rows * stmt.cols + stmt.rows + 1
    return not _along(stmt.rhs, stmt.n, 1) and held <= target.vector_registers


def _lanes(stmt: Tile, target: Target) -> int:
    return target.lanes(bits(compute_type(stmt.dtype)) // 8)


def _along(value: Value, name: str, step: int) -> bool:
    load = source(value)
    return (
        load is not None
        and dims.same(load.mask, 1)
        and dims.same(dims.coefficient(load.offset, name) or 0, step)
    )


class DotRenderer(TileRenderer):
    """Emits one Tile as dot products."""

    def run(self) -> None:
        """The tile in two forms: whole; some rows or columns missing."""
        r, stmt = self.r, self.stmt
        self.across = _lanes(stmt, self.target)  # lanes along the sum
        self.paired = False
        whole = r.ix.connect(
            "and",
            [
                r.ix.condition(dims.less_equal(stmt.m0 + stmt.rows, stmt.m_end)),
                r.ix.condition(dims.less_equal(stmt.n0 + stmt.cols, stmt.n_end)),
            ],
        )
        some = r.ix.condition(
            dims.logical_and(dims.less(stmt.m0, stmt.m_end), dims.less(stmt.n0, stmt.n_end))
        )
        self._branch(whole, self._all)
        self._branch(r.ix.connect("and", [some, self._not(whole)]), self._some)

    def _all(self) -> None:
        m0, n0 = self._start()
        rows = [Index(m0, k) for k in range(self.stmt.rows)]
        columns = [Index(n0, k) for k in range(self.stmt.cols)]
        mask = None
        if self.stmt.cols % self.lanes:
            mask = self._below(constant("i64", self.stmt.cols))
        self._dots(Piece(m0, None, rows, [Index(n0, 0, 1)], mask, 1), columns)

    def _some(self) -> None:
        """The last rows and columns are read twice and stored once."""
        f, stmt = self.r.f, self.stmt
        m0, n0 = self._start()
        m_end, n_end = (self.r.ix.scalar(self.r.ix.index(d)) for d in (stmt.m_end, stmt.n_end))
        columns = self._clamped(n0, n_end, stmt.cols)
        room = f.add(n_end, f.multiply(n0, constant("i64", -1)))
        mask = self._below(f.intrinsic("llvm.smin", room, constant("i64", stmt.cols)))
        rows = self._clamped(m0, m_end, stmt.rows)
        self._dots(Piece(m0, m_end, rows, [Index(n0, 0, 1)], mask, 1), columns)

    def _below(self, count: Reg) -> Reg:
        """The lanes before `count`."""
        with self.r.in_lanes(self.lanes):
            return self.r.ix.compare("sge", Index(count, -1, -1))

    def _dots(self, piece: Piece, columns: Sequence[Index]) -> None:
        zero = widen(self.r.f, fill(self.stmt.dtype, 0), self.across)
        self.rows_at = self.columns_at = {}
        if piece.m_end is None:
            self.rows_at = self._spread(self.stmt.lhs, self.stmt.m, piece.rows)
            self.columns_at = self._spread(self.stmt.rhs, self.stmt.n, columns)
        totals = self._along_sum(0, [[zero] * len(columns) for _ in piece.rows], piece, columns)
        self._epilogue(piece, [[self._added(row)] for row in totals])

    # ---- the sum

    def _along_sum(self, level: int, totals: Rows, piece: Piece, columns: Sequence[Index]) -> Rows:
        """The k loops from `level` inwards; the innermost a register's worth at a time."""
        r, width = self.r, len(columns)
        name, extent = self.stmt.k[level]
        end = r.ix.scalar(r.ix.index(extent))
        if level < len(self.stmt.k) - 1:
            with r.f.loop(constant("i64", 0), end, 1, flat(totals)) as frame:
                totals = self._shaped(frame.carried, width)
                r.symbols[name] = Index(frame.index)
                totals = self._along_sum(level + 1, totals, piece, columns)
                frame.carried = flat(totals)
            return self._shaped(frame.results, width)
        step = self.across
        left = dims.remainder(extent, step)
        middle = end
        if not isinstance(left, int) or left:
            middle = r.f.binary("and", end, constant("i64", -step))
        with r.f.loop(constant("i64", 0), middle, step, flat(totals)) as frame:
            totals = self._products(self._shaped(frame.carried, width), piece, columns, frame.index)
            frame.carried = flat(totals)
        totals = self._shaped(frame.results, width)
        if isinstance(left, int) and not left:
            return totals
        with r.f.loop(middle, end, step, flat(totals)) as frame:
            room = r.f.add(end, r.f.multiply(frame.index, constant("i64", -1)))
            with r.in_lanes(step):
                mask = r.ix.compare("sge", Index(room, -1, -1))
            with r.masked(mask):
                totals = self._shaped(frame.carried, width)
                frame.carried = flat(self._products(totals, piece, columns, frame.index))
        return self._shaped(frame.results, width)

    def _products(self, totals: Rows, piece: Piece, columns: Sequence[Index], at: Reg) -> Rows:
        """A vector of every row times a vector of every column."""
        r, stmt = self.r, self.stmt
        r.symbols[stmt.k[-1][0]] = Index(at, 0, 1)
        left: list[Lanes] = []
        result: Rows = [[] for _ in totals]
        with r.in_lanes(self.across):
            for row in piece.rows:
                r.symbols[stmt.m] = self.rows_at.get(row, row)
                left.append(self._operand(stmt.lhs, self.across))
            for j, column in enumerate(columns):
                r.symbols[stmt.n] = self.columns_at.get(column, column)
                right = self._operand(stmt.rhs, self.across)
                for k, old in enumerate(totals):
                    result[k].append(self._fused(left[k], right, old[j]))
        return result

    def _added(self, row: Sequence[Lanes]) -> Lanes:
        """One register with the sum of the lanes of each of a row's registers."""
        empty = widen(self.r.f, fill(self.stmt.dtype, 0), self.across)
        values = [*row, *([empty] * (self.lanes - len(row)))]
        while values[0].lanes > max(2, self.lanes):
            half = values[0].lanes // 2
            values = [self._sum(v, None, [range(half), range(half, 2 * half)]) for v in values]
        while len(values) > 1:
            lanes = 2 * values[0].lanes
            picks = [range(0, lanes, 2), range(1, lanes, 2)]
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [self._sum(a, b, picks) for a, b in pairs]
        return values[0]

    def _sum(self, a: Lanes, b: Lanes | None, picks: Sequence[Sequence[int]]) -> Lanes:
        f, second = self.r.f, None if b is None else b.reg
        x, y = (replace(a, regs=(f.shuffle(a.reg, second, p),)) for p in picks)
        return math.RULES["add"](f, [x, y], self.stmt.dtype)
