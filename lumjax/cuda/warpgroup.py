"""A tile of a contraction for sm_90a: bulk copies and products of warpgroups.

One warp asks for boxes of both sides, a few slots of shared memory ahead; warpgroups multiply what
has come, 64 rows each, and say when a slot may be filled again. It is for sides of 16-bit floats
that are read as they lie, in steps of 16 bytes, and for float32 along the sum that may be cut to
tf32; the tile of `tile.py` is for everything else, and for arrays that turn out not to lie so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import accumulate

from lumjax import dtype as dt
from lumjax.cpu import analysis
from lumjax.cuda.blocks import Body
from lumjax.cuda.maps import ALIGNMENT, BYTES, SPAN, Chart
from lumjax.cuda.packs import same
from lumjax.cuda.tile import Elements, each, finish, narrow
from lumjax.kernel import ir
from lumjax.kernel.ir import Kernel, LoadValue, Tile
from lumjax.kernel.rounded import rounding_of
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr, IndexOp

GROUP, ROWS = 128, 64  # threads of a warpgroup, rows that it multiplies
STEP = 32  # bytes of the sum that one product takes
KINDS = {dt.float16: "f16", dt.bfloat16: "bf16", dt.float32: "tf32"}
SIDES = (64, 128)  # of tiles
MOST_SLOTS, ROOM = 6, 200 << 10  # in shared memory, and bytes of that
ATOM, BLOCK = 1024, 8192  # bytes of 8 rows of a box, and of 64


@record
class Source:
    """One side: how it is copied. `turned`: terms of the sum don't lie side by side, and there is a
    box for each 64 places along `var`; else one box for all. `outer` are the places in the chart's
    other dimensions.
    """

    chart: Chart
    var: str
    turned: bool
    count: int
    outer: tuple[Dim, ...]

    @property
    def size(self) -> int:
        """Bytes in a slot."""
        return self.count * SPAN

    def matrix(self, at: str, step: str) -> str:
        """The matrix at an address, so many products further along the sum."""
        if self.turned:
            return f"lj_matrix({at} + {step} * {2 * ATOM}, {BLOCK}, {ATOM}, 1)"
        return f"lj_matrix({at} + {step} * 32, 16, {ATOM}, 1)"


@record
class Pipeline:
    """A tile, its sides, and how many slots there are."""

    stmt: Tile
    kind: str
    sides: tuple[Source, Source]
    slots: int

    @property
    def depth(self) -> int:
        """Terms of a slot's sums: as many bytes as boxes are swizzled by."""
        return SPAN // self.sides[0].chart.size

    @property
    def groups(self) -> int:
        """Warpgroups that multiply."""
        return self.stmt.rows // ROWS

    @property
    def threads(self) -> int:
        """Those, and a warp that copies."""
        return GROUP * self.groups + 32

    @property
    def slot(self) -> int:
        """Bytes of a slot."""
        return sum(s.size for s in self.sides)

    @property
    def shared(self) -> int:
        """Bytes of shared memory: slots, and two barriers for each."""
        return self.slots * (self.slot + 16)

    @property
    def product(self) -> tuple[str, int]:
        """Which function multiplies."""
        return self.kind, self.stmt.cols


def pipeline_of(kernel: Kernel, stmt: Tile) -> Pipeline | None:
    """How a tile goes through a pipeline; None where it can't."""
    sides = narrow(stmt.lhs), narrow(stmt.rhs)
    kinds = {v.dtype for v in sides}
    if stmt.dtype != dt.float32 or len(kinds) != 1 or not kinds <= KINDS.keys():
        return None
    if dt.float32 in kinds and not all(rounding_of(v) for v in (stmt.lhs, stmt.rhs)):
        return None
    if stmt.rows not in SIDES or stmt.cols not in SIDES or len(stmt.k) != 1:
        return None
    if dims.symbols(stmt.k[0][1]) - set(kernel.sizes) or any(analysis.accumulated(stmt.body)):
        return None
    made: list[Source] = []
    places = ((stmt.m, stmt.m_end, stmt.rows), (stmt.n, stmt.n_end, stmt.cols))
    for value, place in zip(sides, places, strict=True):
        source = _source(kernel, value, place, stmt.k[0])
        if source is None:
            return None
        made.append(source)
    slot = sum(s.size for s in made) + 16
    slots = min(MOST_SLOTS, ROOM // slot)
    return Pipeline(stmt, KINDS[kinds.pop()], (made[0], made[1]), slots)


def _source(
    kernel: Kernel, value: ir.Value, place: tuple[str, Dim, int], k: tuple[str, Dim]
) -> Source | None:
    """A side that is an input's elements as they are, in steps that only sizes tell."""
    if not isinstance(value, LoadValue) or not isinstance(value.mask, int) or not value.mask:
        return None
    sizes, names = frozenset(kernel.sizes), [b.name for b in kernel.buffers]
    if value.buffer.name not in {b.name for b in kernel.inputs}:
        return None
    var, end, count = place
    extents = _known(end, sizes), _known(k[1], sizes)
    rest = dims.substitute(value.offset, {var: 0, k[0]: 0})
    others = sorted(dims.symbols(rest) - sizes)
    found = [dims.coefficient(value.offset, v) for v in (var, k[0], *others)]
    if any(not _step(s, sizes) for s in found) or None in extents or len(found) > 5:
        return None
    steps, along = [s for s in found if s is not None], [e for e in extents if e is not None]
    turned, size = not same(steps[1], 1), value.dtype.itemsize
    if turned and (size > 2 or not same(steps[0], 1)):
        return None
    first = slice(None) if turned else slice(None, None, -1)
    total = math.prod(value.buffer.shape, start=1)
    chart = Chart(
        names.index(value.buffer.name),
        size,
        dims.substitute(rest, dict.fromkeys(others, 0)),
        (*along[first], *(dims.ceiling_divide(total, s) for s in steps[2:])),
        (steps[1] if turned else steps[0], *steps[2:]),
        (SPAN // size, ROWS if turned else count, *[1] * len(others)),
    )
    return Source(chart, var, turned, count, tuple(dims.symbol(n) for n in others))


def _step(step: Dim | None, sizes: frozenset[str]) -> bool:
    """Whether a step is told by sizes alone, and is one."""
    return step is not None and dims.symbols(step) <= sizes and not same(step, 0)


def _known(end: Dim, sizes: frozenset[str]) -> Dim | None:
    """Where an axis ends: by sizes alone, if a tile's end is said to be no further."""
    if dims.symbols(end) <= sizes:
        return end
    if isinstance(end, Expr) and end.op is IndexOp.MIN:
        return next((a for a in end.args if dims.symbols(a) <= sizes), None)
    return None


def place_of_maps(kernel: Kernel) -> int:
    """The bytes of a kernel's table that come before its tensor maps."""
    words = len(kernel.buffers) + len(kernel.sizes)
    return -(-8 * words // ALIGNMENT) * ALIGNMENT


# ---- the statements


class Rendering:
    """The lines of one tile. `first` is where in the table its maps begin."""

    def __init__(self, plan: Pipeline, first: int) -> None:
        self.plan, self.first = plan, first

    def __call__(self, body: Body, stmt: Tile) -> None:
        """The statements of the tile."""
        assert stmt is self.plan.stmt, "a phase has one tile"
        body.touch([stmt])
        with body.by_itself():
            self.run(body, stmt)

    def run(self, body: Body, stmt: Tile) -> None:
        """The whole tile."""
        names = [body.fresh(n) for n in ("m", "m_end", "n", "n_end")]
        for name, dim in zip(names, (stmt.m0, stmt.m_end, stmt.n0, stmt.n_end), strict=True):
            body.add(f"const i64 {name} = {body.index(dim)};")
        self.declare(body)
        with body.scope(f"if ({self.group} == {self.plan.groups})"):
            self.copy(body, (names[0], names[2]))
        with body.scope("else"):
            self.multiply(body)
        finish(body, stmt, names, self.elements(body))
        body.add("__syncthreads();")
        with body.scope("if (threadIdx.x == 0)"), self.slot_by_slot(body) as slot:
            body.add(f"lj_phases_end({self.full} + {slot});")
            body.add(f"lj_phases_end({self.empty} + {slot});")

    def slot_by_slot(self, body: Body) -> AbstractContextManager[str]:
        """A loop over the slots."""
        return each(body, body.fresh("slot"), self.plan.slots)

    def declare(self, body: Body) -> None:
        """Barriers, sums, and which warpgroup the thread is of."""
        plan = self.plan
        names = ("full", "empty", "slabs", "sum", "group", "lane")
        self.full, self.empty, self.slabs, self.sums, self.group, self.lane = map(body.fresh, names)
        body.add("extern __shared__ __align__(1024) u8 lj_slots[];")
        body.add(f"u64* const {self.full} = (u64*)(lj_slots + {plan.slots * plan.slot});")
        body.add(f"u64* const {self.empty} = {self.full} + {plan.slots};")
        depth = body.index(plan.stmt.k[0][1])
        body.add(f"const int {self.slabs} = (int)(({depth} + {plan.depth - 1}) / {plan.depth});")
        body.add(f"const int {self.group} = threadIdx.x / {GROUP};")
        body.add(f"const int {self.lane} = threadIdx.x & 31;")
        with body.scope("if (threadIdx.x == 0)"):
            with self.slot_by_slot(body) as slot:
                body.add(f"lj_phases({self.full} + {slot}, 1);")
                body.add(f"lj_phases({self.empty} + {slot}, {4 * plan.groups});")
            body.add("lj_show_phases();")
        body.add("__syncthreads();")
        body.add(f"float {self.sums}[{plan.stmt.cols // 2}];")
        with each(body, body.fresh("i"), plan.stmt.cols // 2) as i:
            body.add(f"{self.sums}[{i}] = 0;")

    def rounds(self, body: Body) -> tuple[str, str, str]:
        """Names of a slab's number, of its slot and of the parity of that one's phase."""
        slab, slot, parity = (body.fresh(n) for n in ("slab", "at", "parity"))
        body.add(f"int {slot} = 0, {parity} = 0;")
        body.add("#pragma unroll 1")
        return slab, slot, parity

    def advance(self, body: Body, slot: str, parity: str) -> None:
        """On to the next slot."""
        body.add(f"{slot} = {slot} == {self.plan.slots - 1} ? 0 : {slot} + 1;")
        body.add(f"{parity} ^= {slot} == 0;")

    def copy(self, body: Body, firsts: Sequence[str]) -> None:
        """The warp that copies: one thread asks, the others wait for it."""
        plan = self.plan
        with body.scope(f"if ({self.lane} == 0)"):
            maps = [body.fresh("map") for _ in plan.sides]
            for k, name in enumerate(maps):
                body.add(f"const u8* const {name} = (const u8*)table + {self.first + BYTES * k};")
                body.add(f"lj_see_map({name});")
            slab, slot, parity = self.rounds(body)
            with body.scope(f"for (int {slab} = 0; {slab} < {self.slabs}; {slab}++)"):
                body.add(f"lj_wait_for({self.empty} + {slot}, {parity} ^ 1);")
                body.add(f"lj_expect({self.full} + {slot}, {plan.slot});")
                offsets = accumulate((s.size for s in plan.sides), initial=0)
                for side, name, first, offset in zip(
                    plan.sides, maps, firsts, offsets, strict=False
                ):
                    outer = "".join(f", (int){body.index(d)}" for d in side.outer)
                    for box in range(side.count // ROWS if side.turned else 1):
                        at = f"lj_slots + {slot} * {plan.slot} + {offset + box * BLOCK}"
                        along = f"(int){first} + {box * ROWS}" if box else f"(int){first}"
                        places = f"{slab} * {plan.depth}, {along}"
                        if side.turned:
                            places = f"{along}, {slab} * {plan.depth}"
                        barrier = f"{self.full} + {slot}"
                        body.add(f"lj_move_box({at}, {name}, {barrier}, {places}{outer});")
                self.advance(body, slot, parity)
        body.add("__syncwarp();")

    def multiply(self, body: Body) -> None:
        """A warpgroup: the products of a slab go on while the next one is waited for; then the slot
        before it is free.
        """
        plan, (left, right) = self.plan, self.plan.sides
        before, step = body.fresh("before"), body.fresh("step")
        body.add(f"int {before} = -1;")
        slab, slot, parity = self.rounds(body)
        with body.scope(f"for (int {slab} = 0; {slab} < {self.slabs}; {slab}++)"):
            body.add(f"lj_wait_for({self.full} + {slot}, {parity});")
            a, b = body.fresh("left"), body.fresh("right")
            body.add(
                f"const u8* const {a} = lj_slots + {slot} * {plan.slot} + {self.group} * {BLOCK};"
            )
            body.add(f"const u8* const {b} = lj_slots + {slot} * {plan.slot} + {left.size};")
            body.add("lj_products_begin();")
            turns = "" if plan.kind == "tf32" else f"<{int(left.turned)}, {int(right.turned)}>"
            with each(body, step, SPAN // STEP):
                body.add(f"lj_products_{plan.kind}_{plan.stmt.cols}{turns}({self.sums}, "
                         f"{left.matrix(a, step)}, {right.matrix(b, step)}, 1);")  # fmt: skip
            body.add("lj_products_close();")
            body.add("lj_products_wait<1>();")
            body.add(f"if ({before} >= 0 && {self.lane} == 0) lj_arrive({self.empty} + {before});")
            body.add(f"{before} = {slot};")
            self.advance(body, slot, parity)
        body.add("lj_products_wait<0>();")
        with each(body, body.fresh("i"), plan.stmt.cols // 2) as i:
            body.add(f"lj_settled({self.sums}[{i}]);")

    def elements(self, body: Body) -> Elements:
        """Loops over what a thread holds: row, column, value, and what must hold besides."""
        row, col, i = (body.fresh(n) for n in ("r", "c", "i"))
        with (
            body.scope(f"if ({self.group} < {self.plan.groups})"),
            each(body, i, self.plan.stmt.cols // 2),
        ):
            down = f"({self.lane} >> 2) + 8 * ({i} >> 1 & 1)"
            body.add(f"const int {row} = (threadIdx.x >> 5) * 16 + {down};")
            body.add(f"const int {col} = 8 * ({i} >> 2) + 2 * ({self.lane} & 3) + ({i} & 1);")
            yield row, col, f"{self.sums}[{i}]", []
