"""A tile of a contraction as CUDA C.

Both sides go through shared memory, a slice of the sum at a time; they may be any terms, which are
evaluated on the way. Each thread has a small grid of elements in registers, which it finishes and
stores itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lumjax import dtype as dt
from lumjax.cpu import analysis
from lumjax.cuda.blocks import Body, name_of, same
from lumjax.cuda.scalar import Value, cast, rounded, value_type
from lumjax.errors import UnsupportedError
from lumjax.kernel import ir
from lumjax.kernel.ir import LoadValue, Tile
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.form import ScalarOp

DEPTH = 16  # of a slice of the sum
MOST_HELD = 64  # elements that one thread holds
_MULTIPLY = ScalarOp("mul", 2, np.multiply)


@record
class Grid:
    """How threads share a tile: each has `down` times `across` elements, strided by `rows` and
    `cols`, which are also how many threads there are that way.
    """

    rows: int
    cols: int
    down: int
    across: int


def grid_of(rows: int, cols: int, threads: int) -> Grid:
    """The grid with the most threads at work, and among those the squarest."""
    best: tuple[tuple[int, int], Grid] | None = None
    for across in range(1, cols + 1):
        wide = -(-cols // across)
        down = -(-rows // max(1, threads // wide))
        if wide <= threads and down * across <= MOST_HELD:
            grid = Grid(-(-rows // down), wide, down, across)
            score = down * across, abs(down - across)
            if best is None or score < best[0]:
                best = score, grid
    if best is None:
        raise UnsupportedError(
            operation="CUDA code for a tile",
            required=f"at most {MOST_HELD} elements for each of {threads} threads",
            got=f"{rows} rows of {cols}",
            fix="lower it with smaller tiles",
        )
    return best[1]


def render_tile(body: Body, stmt: Tile) -> None:
    """The statements of a tile."""
    if stmt.dtype in dt.COMPLEX:
        _plain(body, stmt)
        return
    body.touch([stmt])
    grid = grid_of(stmt.rows, stmt.cols, body.threads)
    opened = [(n, body.totals[n]) for n in analysis.accumulated(stmt.body)]
    with body.partial(opened), body.by_itself():
        _Tile(body, stmt, grid).run()


def _plain(body: Body, stmt: Tile) -> None:
    """Each thread computes some elements by itself, one after the other."""
    body.touch([stmt])
    with body.by_itself():
        point, m, n = body.fresh("point"), name_of(stmt.m), name_of(stmt.n)
        with body.scope(f"for (int {point} = threadIdx.x; {point} < {stmt.rows * stmt.cols}; "
                        f"{point} += {body.threads})"):  # fmt: skip
            body.add(f"const i64 {m} = {body.index(stmt.m0)} + {point} / {stmt.cols};")
            body.add(f"const i64 {n} = {body.index(stmt.n0)} + {point} % {stmt.cols};")
            body.add(f"if ({m} >= {body.index(stmt.m_end)} || {n} >= {body.index(stmt.n_end)})")
            body.add("  continue;")
            loops: ir.Stmt = ir.Accumulate(
                stmt.acc,
                ir.ApplyValue(_MULTIPLY, (stmt.lhs, stmt.rhs), stmt.dtype),
            )
            for var, extent in reversed(stmt.k):
                loops = ir.Loop(var, 0, extent, 1, ir.LoopKind.SERIAL, (loops,))
            zero = ir.Const(stmt.dtype, bytes(stmt.dtype.itemsize))
            body.statement(ir.Accumulator(stmt.acc, stmt.dtype, ir.ReduceOp.SUM, zero))
            body.statement(loops)
            body.statements(stmt.body)


class _Tile:
    """The lines of one tile."""

    def __init__(self, body: Body, stmt: Tile, grid: Grid) -> None:
        self.body, self.stmt, self.grid = body, stmt, grid
        self.kind = value_type(stmt.dtype)
        self.left, self.right, self.sums = (body.fresh(p) for p in ("lhs", "rhs", "sum"))
        self.extent = math.prod((e for _, e in stmt.k), start=1)
        self.total, self.slice = body.fresh("depth"), body.fresh("from")
        self.m0, self.n0 = body.fresh("m"), body.fresh("n")
        self.m_end, self.n_end = body.fresh("m_end"), body.fresh("n_end")
        self.row, self.col = body.fresh("row"), body.fresh("col")
        self.i, self.j = body.fresh("i"), body.fresh("j")

    def run(self) -> None:
        """The whole tile."""
        body, stmt, grid = self.body, self.stmt, self.grid
        for name, dim in ((self.m0, stmt.m0), (self.n0, stmt.n0), (self.m_end, stmt.m_end),
                          (self.n_end, stmt.n_end)):  # fmt: skip
            body.add(f"const i64 {name} = {body.index(dim)};")
        body.add(f"const i64 {self.total} = {body.index(self.extent)};")
        # one more column than is used, so that a column lies in different banks
        body.add(f"__shared__ {self.kind} {self.left}[{DEPTH}][{stmt.rows + 1}];")
        body.add(f"__shared__ {self.kind} {self.right}[{DEPTH}][{stmt.cols + 1}];")
        body.add(f"{self.kind} {self.sums}[{grid.down}][{grid.across}];")
        body.add(f"const int {self.row} = threadIdx.x / {grid.cols};")
        body.add(f"const int {self.col} = threadIdx.x % {grid.cols};")
        self.each_element(f"{self.sums}[{self.i}][{self.j}] = 0;")
        with body.scope(f"for (i64 {self.slice} = 0; {self.slice} < {self.total}; "
                        f"{self.slice} += {DEPTH})"):  # fmt: skip
            body.add("__syncthreads();")
            self.stage(stmt.lhs, self.left, stmt.m, self.m0, self.m_end, stmt.rows)
            self.stage(stmt.rhs, self.right, stmt.n, self.n0, self.n_end, stmt.cols)
            body.add("__syncthreads();")
            if grid.rows * grid.cols < body.threads:
                with body.scope(f"if ({self.row} < {grid.rows})"):
                    self.multiply()
            else:
                self.multiply()
        self.finish()

    def each_element(self, line: str) -> None:
        """A line for each element that a thread holds."""
        body = self.body
        body.add("#pragma unroll")
        with body.scope(self.down()):
            body.add("#pragma unroll")
            body.add(f"{self.across()} {line}")

    def down(self) -> str:
        """A loop over the rows of what a thread holds."""
        return f"for (int {self.i} = 0; {self.i} < {self.grid.down}; {self.i}++)"

    def across(self) -> str:
        """A loop over the columns of what a thread holds."""
        return f"for (int {self.j} = 0; {self.j} < {self.grid.across}; {self.j}++)"

    def stage(
        self, value: ir.Value, array: str, var: str, first: str, end: str, count: int
    ) -> None:
        """One side of a slice into shared memory; zeros outside of it."""
        body, k, at, cell = self.body, self.stmt.k, self.body.fresh("at"), self.body.fresh("cell")
        deep = _contiguous_along(value, k[-1][0]) if k else False
        depth, other = f"{cell} % {DEPTH}", f"{cell} / {DEPTH}"
        if not deep:
            depth, other = f"{cell} / {count}", f"{cell} % {count}"
        self.rows_and_columns()
        with body.scope(f"for (int {cell} = threadIdx.x; {cell} < {DEPTH * count}; "
                        f"{cell} += {body.threads})"):  # fmt: skip
            body.add(f"const int {at} = {depth}, {at}_o = {other};")
            name = name_of(var)
            body.symbols.pop(var, None)
            body.values.pop(var, None)
            body.add(f"const i64 {name} = {first} + {at}_o;")
            body.add(f"{self.kind} {at}_v = 0;")
            with body.scope(f"if ({name} < {end} && {self.slice} + {at} < {self.total})"):
                self.positions(f"{self.slice} + {at}")
                found = cast(rounded(body.value(value)), self.stmt.dtype)
                body.add(f"{at}_v = {found.text};")
            body.add(f"{array}[{at}][{at}_o] = {at}_v;")

    def rows_and_columns(self) -> None:
        """What the variables of the tile are bounded by."""
        stmt = self.stmt
        self.body.ranged(stmt.m, stmt.m0, stmt.m_end)
        self.body.ranged(stmt.n, stmt.n0, stmt.n_end)
        for var, extent in stmt.k:
            self.body.ranged(var, 0, extent)

    def positions(self, flat: str) -> None:
        """The variables of the sum, from their number."""
        body, rest = self.body, self.body.fresh("k")
        body.add(f"i64 {rest} = {flat};")
        for number_, (var, extent) in reversed(list(enumerate(self.stmt.k))):
            body.symbols.pop(var, None)
            body.values.pop(var, None)
            name = name_of(var)
            if number_ == 0:
                body.add(f"const i64 {name} = {rest};")
            else:
                bound, short = body.index(extent), body.interval(self.extent)[1]
                if short is not None and short < 1 << 31:
                    body.add(f"const i64 {name} = (u32){rest} % (u32){bound};")
                    body.add(f"{rest} = (u32){rest} / (u32){bound};")
                else:
                    body.add(f"const i64 {name} = lj_floor_mod({rest}, {bound});")
                    body.add(f"{rest} = lj_floor_div({rest}, {bound});")

    def multiply(self) -> None:
        """A slice's products, added to what the thread holds."""
        body, grid, kind, i, j = self.body, self.grid, self.kind, self.i, self.j
        left, right, d = body.fresh("left"), body.fresh("right"), body.fresh("d")
        body.add("#pragma unroll 4")
        with body.scope(f"for (int {d} = 0; {d} < {DEPTH}; {d}++)"):
            body.add(f"{kind} {left}[{grid.down}], {right}[{grid.across}];")
            row = _inside(self.row, i, grid.rows, grid.down, self.stmt.rows)
            col = _inside(self.col, j, grid.cols, grid.across, self.stmt.cols)
            body.add("#pragma unroll")
            body.add(f"{self.down()} {left}[{i}] = {self.left}[{d}][{row}];")
            body.add("#pragma unroll")
            body.add(f"{self.across()} {right}[{j}] = {self.right}[{d}][{col}];")
            term, a, b = f"{self.sums}[{i}][{j}]", f"{left}[{i}]", f"{right}[{j}]"
            if kind in ("float", "double"):
                step = f"fma{'f' if kind == 'float' else ''}({a}, {b}, {term})"
            elif kind == "bool":
                step = f"{term} | ({a} & {b})"
            else:
                step = f"lj_add<{kind}>({term}, lj_mul<{kind}>({a}, {b}))"
            self.each_element(f"{term} = {step};")

    def finish(self) -> None:
        """The statements for each element."""
        body, stmt, grid = self.body, self.stmt, self.grid
        m, n = name_of(stmt.m), name_of(stmt.n)
        for name in (stmt.m, stmt.n):
            body.symbols.pop(name, None)
            body.values.pop(name, None)
        self.rows_and_columns()
        body.add("#pragma unroll")
        with body.scope(self.down()):
            body.add("#pragma unroll")
            with body.scope(self.across()):
                r, c = body.fresh("r"), body.fresh("c")
                body.add(f"const int {r} = {self.row} + {self.i} * {grid.rows};")
                body.add(f"const int {c} = {self.col} + {self.j} * {grid.cols};")
                body.add(f"const i64 {m} = {self.m0} + {r}, {n} = {self.n0} + {c};")
                tests = [f"{m} < {self.m_end}", f"{n} < {self.n_end}", f"{r} < {stmt.rows}",
                         f"{c} < {stmt.cols}"]  # fmt: skip
                if grid.rows * grid.cols < body.threads:
                    tests.append(f"{self.row} < {grid.rows}")
                with body.scope(f"if ({' && '.join(tests)})"):
                    body.values[stmt.acc] = Value(stmt.dtype, (f"{self.sums}[{self.i}][{self.j}]",))
                    body.statements(stmt.body)


def _inside(first: str, k: str, stride: int, steps: int, count: int) -> str:
    """A row or column of the tile, the last one where a thread's would be behind it."""
    place = f"{first} + {k} * {stride}"
    return place if steps * stride <= count else f"min({place}, {count - 1})"


def _contiguous_along(value: ir.Value, var: str) -> bool:
    """Whether a side is read along a variable of the sum."""
    found: Sequence[LoadValue] = [n for n in analysis.nodes(value) if isinstance(n, LoadValue)]
    return any(same(dims.coefficient(n.offset, var), 1) for n in found)
