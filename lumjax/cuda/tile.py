"""A tile of a contraction as CUDA C.

Both sides go through shared memory, several slices of the sum under way at a time. Threads hold the
tile's elements in registers, finish and store them: each a small grid of sums, or, where both sides
are 16-bit floats or may be rounded, the parts of products that tensor cores compute for a warp.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.cpu import analysis
from lumjax.cuda.blocks import Body, name_of
from lumjax.cuda.packs import same
from lumjax.cuda.scalar import SIXTEEN, Value, value_type
from lumjax.cuda.staging import Side, Staging, bounds, forget, loads_of
from lumjax.errors import UnsupportedError
from lumjax.kernel import ir
from lumjax.kernel.emit import CAST
from lumjax.kernel.ir import Tile
from lumjax.kernel.rounded import rounding_of
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.form import Rounding, ScalarOp, Trait

Elements: TypeAlias = Iterator[tuple[str, str, str, Sequence[str]]]
WARP = 32
DEPTH, DEPTH_OF_CORES = 16, 32  # of a slice of the sum
SLICES = 3  # in shared memory at a time, two where there is no room
MOST_HELD = 64  # elements that one thread holds
ROWS, COLUMNS = 16, 8  # of one product of tensor cores
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
    assert not stmt.pairs, "pairs are made for CPUs that multiply them"
    if stmt.dtype in dt.COMPLEX:
        _plain(body, stmt)
        return
    body.touch([stmt])
    opened = [(n, body.totals[n]) for n in analysis.accumulated(stmt.body)]
    with body.partial(opened), body.by_itself():
        _Tile(body, stmt, plan_of(stmt, body.threads)).run()


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


# ---- what a tile takes


class Cores(Protocol):
    """How a tile's elements are held and multiplied."""

    depth: int
    height: int  # rows and columns that are in shared memory
    width: int
    kind: str
    turns: bool  # whether sides are in shared memory as they are read, along the sum or not

    def declare(self, body: Body) -> None:
        """Zeros in registers, and where in the tile the thread is."""
        ...

    def multiply(self, body: Body, slot: str, sides: tuple[Side, Side]) -> None:
        """Add a slice's products."""
        ...

    def elements(self, body: Body) -> Elements:
        """Loops over what the thread holds: row, column, value, and what must hold besides."""
        ...


def plan_of(stmt: Tile, threads: int) -> Cores:
    """Tensor cores where both sides are 16-bit floats or may be rounded, else a grid."""
    sides = stmt.lhs, stmt.rhs
    kinds = {narrow(v).dtype for v in sides}
    rounded = all(rounding_of(v) for v in sides)
    if stmt.dtype == dt.float32 and len(kinds) == 1 and (rounded or kinds <= set(SIXTEEN)):
        fragments = fragments_of(stmt.rows, stmt.cols, threads // WARP)
        if fragments is not None:
            kind = kinds.pop()
            return _Products(kind, *fragments) if kind in SIXTEEN else _Thin(*fragments)
    return _Grid(value_type(stmt.dtype), stmt, grid_of(stmt.rows, stmt.cols, threads), threads)


def narrow(value: ir.Value) -> ir.Value:
    """What tensor cores multiply: the 16-bit float that is made wider only to be multiplied, or
    that the value may be rounded to; else the value.
    """
    match rounding_of(value), value:
        case Rounding.BF16, ir.ApplyValue(args=(inner,)):
            return ir.ApplyValue(CAST, (inner,), dt.bfloat16)
        case Rounding.TF32, ir.ApplyValue(args=(inner,)):
            return inner
        case _, ir.ApplyValue(op=op, args=(inner,), dtype=dt.float32) if Trait.CAST in op.traits:
            return inner if inner.dtype in SIXTEEN else value
        case _:
            return value


def _bare(value: ir.Value) -> ir.Value:
    """The value as its dtype has it."""
    return value.args[0] if isinstance(value, ir.ApplyValue) and rounding_of(value) else value


def sides_of(stmt: Tile, plan: Cores, names: Sequence[str]) -> tuple[Side, Side]:
    """Both sides as they are in shared memory. `names`: of the left and the right array, and of the
    first and the last row, the first and the last column.
    """
    made: list[Side] = []
    places = ((stmt.m, *names[2:4], plan.height), (stmt.n, *names[4:6], plan.width))
    for value, name, (var, first, end, count) in zip(
        (stmt.lhs, stmt.rhs), names, places, strict=False
    ):
        kind = plan.kind
        value = narrow(value) if kind == "u16" else _bare(value)
        deep = plan.turns and bool(stmt.k) and not _along(value, var)
        made.append(Side(value, var, first, end, count, kind, deep, name))
    return made[0], made[1]


def _along(value: ir.Value, var: str) -> bool:
    """Whether a side is read along its own axis."""
    return any(same(dims.coefficient(n.offset, var), 1) for n in loads_of(value))


def shared_bytes(stmt: Tile, threads: int) -> int:
    """The shared memory of one slice."""
    if stmt.dtype in dt.COMPLEX:
        return 0
    plan = plan_of(stmt, threads)
    return sum(s.size(plan.depth) for s in sides_of(stmt, plan, [""] * 6))


# ---- the statements


class _Tile:
    """The lines of one tile."""

    def __init__(self, body: Body, stmt: Tile, plan: Cores) -> None:
        self.body, self.stmt, self.plan = body, stmt, plan
        names = ("lhs", "rhs", "m", "m_end", "n", "n_end")
        self.names = [body.fresh(n) for n in names]
        self.sides = sides_of(stmt, plan, self.names)
        self.staging = Staging(body, stmt, self.sides, plan.depth)

    def run(self) -> None:
        """The whole tile."""
        body, stmt = self.body, self.stmt
        for name, dim in zip(
            self.names[2:], (stmt.m0, stmt.m_end, stmt.n0, stmt.n_end), strict=True
        ):
            body.add(f"const i64 {name} = {body.index(dim)};")
        for side in self.sides:
            body.shared_array(side.kind, side.name, (body.slices, *side.extents(self.plan.depth)))
        self.staging.prepare()
        self.plan.declare(body)
        self.pipeline()
        finish(body, stmt, self.names[2:], self.plan.elements(body))

    def pipeline(self) -> None:
        """All slices: the last of those that have room is begun before the first is multiplied."""
        body, plan, ahead = self.body, self.plan, self.body.slices - 1
        number, count, put, at = (body.fresh(n) for n in ("slice", "slices", "put", "at"))
        waits = self.staging.asynchronous
        body.add(f"const i64 {count} = ({self.staging.total} + {plan.depth - 1}) / {plan.depth};")
        body.add("__syncthreads();")
        body.add(f"int {put} = 0, {at} = 0;")
        body.add("#pragma unroll 1")
        with body.scope(f"for (i64 {number} = -{ahead}; {number} < {count}; {number}++)"):
            with body.scope(f"if ({number} >= 0)"):
                if waits:
                    body.add(f"lj_wait<{ahead - 1}>();")
                body.add("__syncthreads();")
            with body.scope(f"if ({number} + {ahead} < {count})"):
                begin = body.fresh("begin")
                body.add(f"const i64 {begin} = ({number} + {ahead}) * {plan.depth};")
                self.staging.stage(put, begin)
            if waits:
                body.add("lj_commit();")
            body.add(f"{put} = {put} == {ahead} ? 0 : {put} + 1;")
            body.add(f"if ({number} < 0) continue;")
            plan.multiply(body, at, self.sides)
            body.add(f"{at} = {at} == {ahead} ? 0 : {at} + 1;")


def finish(body: Body, stmt: Tile, names: Sequence[str], elements: Elements) -> None:
    """The statements for each element. `names`: of the first and the last row, the first and the
    last column.
    """
    m, n = name_of(stmt.m), name_of(stmt.n)
    for name in (stmt.m, stmt.n):
        forget(body, name)
    bounds(body, stmt)
    for row, col, value, tests in elements:
        body.add(f"const i64 {m} = {names[0]} + {row}, {n} = {names[2]} + {col};")
        every = [f"{m} < {names[1]}", f"{n} < {names[3]}", f"{row} < {stmt.rows}",
                 f"{col} < {stmt.cols}", *tests]  # fmt: skip
        with body.scope(f"if ({' && '.join(every)})"):
            body.values[stmt.acc] = Value(stmt.dtype, (value,))
            body.statements(stmt.body)


@contextmanager
def each(body: Body, name: str, count: int) -> Generator[str]:
    """A loop that is written out, over a name."""
    body.add("#pragma unroll")
    with body.scope(f"for (int {name} = 0; {name} < {count}; {name}++)"):
        yield name


class _Grid:
    """Each thread computes a small grid of elements."""

    turns = False

    def __init__(self, kind: str, stmt: Tile, grid: Grid, threads: int) -> None:
        self.kind, self.grid, self.depth = kind, grid, DEPTH
        self.rows, self.cols = stmt.rows, stmt.cols
        self.height, self.width = (-(-n // 8) * 8 for n in (stmt.rows, stmt.cols))
        self.idle = grid.rows * grid.cols < threads

    def declare(self, body: Body) -> None:
        """Zeros in registers, and where in the tile the thread is."""
        self.sums, self.row, self.col = (body.fresh(n) for n in ("sum", "row", "col"))
        grid = self.grid
        body.add(f"{self.kind} {self.sums}[{grid.down}][{grid.across}];")
        body.add(f"const int {self.row} = threadIdx.x / {grid.cols};")
        body.add(f"const int {self.col} = threadIdx.x % {grid.cols};")
        i, j = body.fresh("i"), body.fresh("j")
        with each(body, i, grid.down), each(body, j, grid.across):
            body.add(f"{self.sums}[{i}][{j}] = 0;")

    def multiply(self, body: Body, slot: str, sides: tuple[Side, Side]) -> None:
        """Add a slice's products."""
        with body.scope(f"if ({self.row} < {self.grid.rows})" if self.idle else ""):
            self._multiply(body, slot, sides)

    def _multiply(self, body: Body, slot: str, sides: tuple[Side, Side]) -> None:
        grid, kind = self.grid, self.kind
        d, i, j = (body.fresh(n) for n in "dij")
        left, right = body.fresh("left"), body.fresh("right")
        body.add("#pragma unroll 4")
        with body.scope(f"for (int {d} = 0; {d} < {self.depth}; {d}++)"):
            body.add(f"{kind} {left}[{grid.down}], {right}[{grid.across}];")
            with each(body, i, grid.down):
                row = _inside(self.row, i, grid.rows, grid.down, self.rows)
                body.add(f"{left}[{i}] = {sides[0].cell(slot, d, row)};")
            with each(body, j, grid.across):
                col = _inside(self.col, j, grid.cols, grid.across, self.cols)
                body.add(f"{right}[{j}] = {sides[1].cell(slot, d, col)};")
            with each(body, i, grid.down), each(body, j, grid.across):
                body.add(self._step(f"{self.sums}[{i}][{j}]", f"{left}[{i}]", f"{right}[{j}]"))

    def _step(self, term: str, a: str, b: str) -> str:
        kind = self.kind
        if kind in ("float", "double"):
            return f"{term} = fma{'f' if kind == 'float' else ''}({a}, {b}, {term});"
        if kind == "bool":
            return f"{term} = {term} | ({a} & {b});"
        return f"{term} = lj_add<{kind}>({term}, lj_mul<{kind}>({a}, {b}));"

    def elements(self, body: Body) -> Elements:
        """Loops over what the thread holds."""
        grid = self.grid
        row, col, i, j = (body.fresh(n) for n in "rcij")
        with each(body, i, grid.down), each(body, j, grid.across):
            body.add(f"const int {row} = {self.row} + {i} * {grid.rows};")
            body.add(f"const int {col} = {self.col} + {j} * {grid.cols};")
            tests = [f"{self.row} < {grid.rows}"] if self.idle else []
            yield row, col, f"{self.sums}[{i}][{j}]", tests


def _inside(first: str, k: str, stride: int, steps: int, count: int) -> str:
    """A row or column of the tile, the last one where a thread's would be behind it."""
    place = f"{first} + {k} * {stride}"
    return place if steps * stride <= count else f"min({place}, {count - 1})"


# ---- tensor cores


@record
class Fragments:
    """How warps share a tile: `down` by `across` products of 16 rows and 8 columns for each of
    `rows` by `cols` warps.
    """

    rows: int
    cols: int
    down: int
    across: int


def fragments_of(rows: int, cols: int, warps: int) -> tuple[Fragments, bool] | None:
    """The fragments with the least work for a warp, and among those the squarest; whether some
    warps have none. None if they do not fit its registers.
    """
    high, wide = -(-rows // ROWS), -(-cols // COLUMNS)
    found: list[tuple[tuple[int, int], Fragments]] = []
    for r in range(1, warps + 1):
        for c in range(1, warps // r + 1):
            made = Fragments(r, c, -(-high // r), -(-wide // c))
            if (made.down * 4) * made.across <= MOST_HELD:
                score = made.down * made.across, abs(2 * made.down - made.across)
                found.append((score, made))
    if not found:
        return None
    best = min(found, key=lambda f: f[0])[1]
    return best, best.rows * best.cols < warps


class _Products:
    """Each warp computes products on tensor cores."""

    kind = "u16"
    turns = True
    depth = DEPTH_OF_CORES
    steps = 16  # of the sum, in one product

    def __init__(self, dtype: dt.DType, fragments: Fragments, idle: bool) -> None:
        self.dtype, self.fragments, self.idle = dtype, fragments, idle
        self.height = fragments.rows * fragments.down * ROWS
        self.width = fragments.cols * fragments.across * COLUMNS

    def declare(self, body: Body) -> None:
        """Zeros in registers, and where in the tile the warp is."""
        f = self.fragments
        self.sums, self.lane, self.warp = (body.fresh(n) for n in ("sum", "lane", "warp"))
        self.row, self.col = body.fresh("row"), body.fresh("col")
        body.add(f"float {self.sums}[{f.down}][{f.across}][4];")
        body.add(f"const int {self.lane} = threadIdx.x & 31, {self.warp} = threadIdx.x >> 5;")
        body.add(f"const int {self.row} = {self.warp} / {f.cols} * {f.down * ROWS};")
        body.add(f"const int {self.col} = {self.warp} % {f.cols} * {f.across * COLUMNS};")
        i, j, e = (body.fresh(n) for n in "ije")
        with each(body, i, f.down), each(body, j, f.across), each(body, e, 4):
            body.add(f"{self.sums}[{i}][{j}][{e}] = 0;")

    def multiply(self, body: Body, slot: str, sides: tuple[Side, Side]) -> None:
        """Add a slice's products: no warp is divided, as all lanes of one go the same way."""
        f = self.fragments
        d = body.fresh("d")
        with (
            body.scope(f"if ({self.warp} < {f.rows * f.cols})" if self.idle else ""),
            each(body, d, self.depth // self.steps),
        ):
            self._multiply(body, slot, sides, d)

    def _multiply(self, body: Body, slot: str, sides: tuple[Side, Side], d: str) -> None:
        f, lane = self.fragments, self.lane
        a, b, i, j = (body.fresh(n) for n in "abij")
        left, right = sides
        body.add(f"u32 {a}[{f.down}][4], {b}[{f.across}][2];")
        with each(body, i, f.down):
            # rows 0 to 7 and 8 to 15 at the first depths, then both at the others
            upper, lower = f"({lane} >> 4) * 8", f"({lane} & 15)"
            if not left.deep:
                upper, lower = f"({lane} & 7) + ({lane} >> 4) * 8", f"({lane} >> 3 & 1) * 8"
            cell = left.cell(slot, f"16 * {d} + {upper}", f"{self.row} + {ROWS} * {i} + {lower}")
            body.add(f"lj_matrices4<{_word(not left.deep)}>({a}[{i}], &{cell});")
        with each(body, j, f.across):
            upper, lower = f"({lane} >> 3 & 1) * 8", f"({lane} & 7)"
            if not right.deep:
                upper, lower = f"({lane} & 15)", "0"
            cell = right.cell(
                slot, f"16 * {d} + {upper}", f"{self.col} + {COLUMNS} * {j} + {lower}"
            )
            body.add(f"lj_matrices2<{_word(not right.deep)}>({b}[{j}], &{cell});")
        with each(body, i, f.down), each(body, j, f.across):
            name = "lj_mma_f16" if self.dtype == dt.float16 else "lj_mma_bf16"
            body.add(f"{name}({self.sums}[{i}][{j}], {a}[{i}], {b}[{j}]);")

    def elements(self, body: Body) -> Elements:
        """Loops over what the thread holds."""
        f, lane = self.fragments, self.lane
        row, col, i, j, e = (body.fresh(n) for n in "rcije")
        with each(body, i, f.down), each(body, j, f.across), each(body, e, 4):
            down, right = f"({lane} >> 2) + 8 * ({e} >> 1)", f"2 * ({lane} & 3) + ({e} & 1)"
            body.add(f"const int {row} = {self.row} + {ROWS} * {i} + {down};")
            body.add(f"const int {col} = {self.col} + {COLUMNS} * {j} + {right};")
            tests = [f"{self.warp} < {f.rows * f.cols}"] if self.idle else []
            yield row, col, f"{self.sums}[{i}][{j}][{e}]", tests


class _Thin(_Products):
    """The same of float32 values, which are rounded to ten bits behind the point."""

    kind = "float"
    depth, steps = DEPTH, 8

    def __init__(self, fragments: Fragments, idle: bool) -> None:
        super().__init__(dt.float32, fragments, idle)

    def _multiply(self, body: Body, slot: str, sides: tuple[Side, Side], d: str) -> None:
        f, at = self.fragments, f"8 * {d} + ({self.lane} & 3)"
        a, b, i, j, e = (body.fresh(n) for n in "abije")
        left, right = sides
        row, col = (f"{n} + ({self.lane} >> 2)" for n in (self.row, self.col))
        body.add(f"u32 {a}[{f.down}][4], {b}[{f.across}][2];")
        with each(body, i, f.down), each(body, e, 4):
            place, depth = f"{row} + {ROWS} * {i} + 8 * ({e} & 1)", f"{at} + 4 * ({e} >> 1)"
            body.add(f"{a}[{i}][{e}] = lj_ten_bits({left.cell(slot, depth, place)});")
        with each(body, j, f.across), each(body, e, 2):
            place = f"{col} + {COLUMNS} * {j}"
            body.add(f"{b}[{j}][{e}] = lj_ten_bits({right.cell(slot, f'{at} + 4 * {e}', place)});")
        with each(body, i, f.down), each(body, j, f.across):
            body.add(f"lj_mma_tf32({self.sums}[{i}][{j}], {a}[{i}], {b}[{j}]);")


def _word(test: bool) -> str:
    return "true" if test else "false"


assert math.gcd(DEPTH, 16) == 16, "copies of 16 bytes fill a slice"
