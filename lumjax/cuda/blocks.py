"""The statements of a phase as CUDA C: what threads share out, what they do together, barriers.

At the level of the block (`Body.alone` false) every thread computes the same values; inside of a
loop that is shared out each has its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, assert_never

from lumjax import dtype as dt
from lumjax.cpu import analysis
from lumjax.cuda import scalar
from lumjax.cuda.packs import loaded_from, packing
from lumjax.cuda.scalar import Value, identity, named, stored, value_type
from lumjax.kernel import ir
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    If,
    Let,
    LoadValue,
    Loop,
    LoopKind,
    Stmt,
    StoreStmt,
    Tile,
)
from lumjax.kernel.term import Buffer
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr, IndexOp
from lumjax.trace.form import ReduceOp

Tiles: TypeAlias = "Callable[[Body, Tile], None]"
_NAME = re.compile(r"\W")
_OF_C = (
    "i8 u8 i16 u16 i32 u32 i64 u64 table lane min max if else for do while switch case default int "
    "long short char float double bool signed unsigned void const static auto break continue goto "
    "return struct union enum class this new delete true false and or not xor inline extern using "
    "template typename operator sizeof register volatile asm try catch throw"
)
_WORDS = frozenset(_OF_C.split())
_SHORT = (
    1 << 30
)  # below what index arithmetic stays to be of 32 bits: a loop's last step may pass it
_OF_32 = (dt.int8, dt.int16, dt.int32, dt.uint8, dt.uint16)


def name_of(name: str) -> str:
    """A name of the Kernel IR as one of C: none of its words, and none that is made up here, which
    end in an underscore and a number.
    """
    plain = _NAME.sub("_", name).replace("_", "__")
    return f"{plain}_" if plain in _WORDS else plain


def shared_out(stmt: object) -> bool:
    """Whether threads share out a loop's iterations."""
    if not isinstance(stmt, Loop) or stmt.kind is not LoopKind.VECTOR:
        return False
    return analysis.vectorizable(stmt) and not complex_sums(stmt.body)


def complex_sums(body: Sequence[Stmt]) -> bool:
    """Whether complex numbers are accumulated: the threads of a block don't put those together."""
    return any(
        isinstance(s, Accumulate) and s.value.dtype in dt.COMPLEX for s in analysis.inside(body)
    )


@record
class Total:
    """An accumulator: its dtype and monoid; the C variables of its value."""

    dtype: dt.DType
    op: ReduceOp
    names: tuple[str, ...]

    @property
    def value(self) -> Value:
        """What it is now."""
        return Value(self.dtype, self.names)


class Body:
    """Lines of C, and what the names of the Kernel IR mean where they stand."""

    def __init__(
        self, threads: int, each: bool, hints: Mapping[str, Dim], tiles: Tiles, short: bool = False
    ) -> None:
        self.threads, self.hints, self._tiles = threads, hints, tiles
        self.short, self.fits = short, True  # of 32 bits, and whether that is proved so far
        self.counts = False  # whether indices are multiplied or divided
        self.ix = "i32" if short else "i64"  # the type of what index expressions are
        self.lines: list[str] = []
        self.depth = 0
        self.made = 0
        self.alone = each  # whether each thread goes its own way here
        self.values: dict[str, Value] = {}
        self.totals: dict[str, Total] = {}
        self.symbols: dict[str, str] = {}  # what index symbols are called, if not by their names
        self.ranges: dict[str, Dim] = {}  # index symbols with the bounds they have here
        self.packs: dict[int, str] = {}  # loads and stores of several elements, by identity
        self.exchanged: frozenset[str] = frozenset()
        self.local: frozenset[str] = frozenset()  # buffers in shared memory
        self.slices = 2  # of a contraction's sides that are in shared memory at a time
        self.offset: int | None = None  # the bytes of what the launch adds that are taken
        self.read: set[str] = set()  # since the last barrier, of what is exchanged
        self.written: set[str] = set()

    # ---- lines

    def add(self, line: str) -> None:
        """A line."""
        self.lines.append("  " * self.depth + line)

    def fresh(self, prefix: str = "t") -> str:
        """A name that is new."""
        self.made += 1
        return f"{prefix}_{self.made}"

    @contextmanager
    def scope(self, head: str = "") -> Generator[None]:
        """A block; its bindings end with it."""
        self.add(f"{head} {{" if head else "{")
        saved = self.values.copy(), self.totals.copy(), self.symbols.copy(), self.ranges.copy()
        self.depth += 1
        yield
        self.depth -= 1
        self.values, self.totals, self.symbols, self.ranges = saved
        self.add("}")

    @contextmanager
    def by_itself(self) -> Generator[None]:
        """Code in which each thread goes its own way."""
        before, self.alone = self.alone, True
        yield
        self.alone = before

    def shared_array(self, kind: str, name: str, extents: Sequence[int]) -> None:
        """Declare an array in shared memory."""
        inner = "".join(f"[{n}]" for n in extents[1:])
        if self.offset is None:
            self.add(f"__shared__ __align__(16) {kind} {name}[{extents[0]}]{inner};")
            return
        of = f"(*{{}}){inner}" if inner else "* {}"
        self.add(f"{kind} {of.format('const ' + name)} = ({kind} {of.format('')})(lj_scratch + "
                 f"{self.offset});")  # fmt: skip
        self.offset += -(-math.prod(extents) * scalar.size_of(kind) // 16) * 16

    def bind(self, value: Value, prefix: str = "t") -> Value:
        """A value under names."""
        if all(re.fullmatch(r"\w+", p) for p in value.parts):
            return value
        names = tuple(self.fresh(prefix) for _ in value.parts)
        for name, part in zip(names, value.parts, strict=True):
            self.add(f"const {value_type(value.dtype)} {name} = {part};")
        return Value(value.dtype, names, value.exact)

    # ---- barriers

    def enter(self, body: Sequence[Stmt]) -> None:
        """A job begins: what it both stores and reads may go from thread to thread."""
        self.exchanged = frozenset() if self.alone else analysis.stored(body) & loaded_from(body)

    def leave(self, body: Sequence[Stmt]) -> None:
        """A job ends: the next one uses the same scratch."""
        if self._exchanges(body) and (self.read or self.written):
            self.barrier()

    def barrier(self) -> None:
        """All threads wait for each other."""
        self.add("__syncthreads();")
        self.read.clear()
        self.written.clear()

    def touch(self, body: Sequence[Stmt]) -> None:
        """Statements follow: a barrier before them if they meet what other threads did."""
        if self.alone:
            return
        read = loaded_from(body) & self.exchanged
        written = analysis.stored(body) & self.exchanged
        if read & self.written or written & (self.read | self.written):
            self.barrier()
        self.read |= read
        self.written |= written

    # ---- index expressions

    def index(self, dim: Dim) -> str:
        """An index expression as C."""
        self.fits = self.fits and (not self.short or self._is_short(dim))
        if isinstance(dim, int):
            return f"{dim}ll" if abs(dim) > 1 << 30 else str(dim)
        match dim.op:
            case IndexOp.SYMBOL:
                return self.symbol(dim.name or "")
            case IndexOp.ADD | IndexOp.MUL:
                sign = " + " if dim.op is IndexOp.ADD else " * "
                return f"({sign.join(map(self.index, dim.args))})"
            case IndexOp.FLOORDIV | IndexOp.MOD:
                return self.division(dim)
            case IndexOp.MIN | IndexOp.MAX:
                name = "lj_min" if dim.op is IndexOp.MIN else "lj_max"
                first, *rest = map(self.index, dim.args)
                for other in rest:
                    first = f"{name}<{self.ix}>({first}, {other})"
                return first
            case IndexOp.SELECT:
                test, a, b = dim.args
                first, second = (f"({self.ix}){self.index(x)}" for x in (a, b))
                return f"({self.condition(test)} ? {first} : {second})"
            case _:
                return f"({self.ix})({self.condition(dim)})"

    def division(self, dim: Expr) -> str:
        """A quotient or remainder, rounded down; of 32 bits where that is enough. Division of 64
        bits is a call on a GPU, for which registers are put aside.
        """
        a, b = map(self.index, dim.args)
        spans = [self.interval(d) for d in dim.args]
        least = [0, 1]
        if all(
            lo is not None and hi is not None and lo >= low and hi < 1 << 31
            for (lo, hi), low in zip(spans, least, strict=True)
        ):
            sign = "/" if dim.op is IndexOp.FLOORDIV else "%"
            return f"({self.ix})((u32){a} {sign} (u32){b})"
        short = "(i32)" if self.short else ""
        return f"{short}lj_floor_{'div' if dim.op is IndexOp.FLOORDIV else 'mod'}({a}, {b})"

    def interval(self, dim: Dim) -> tuple[int | None, int | None]:
        """The bounds of an index expression in the traced program: a run to verify a kernel has
        smaller sizes.
        """
        found = dims.substitute(dim, {**self.hints, **self.ranges})
        return dims.bounds(found)

    def _is_short(self, dim: Dim) -> bool:
        """Whether an expression fits 32 bits, in whatever order it is computed."""
        op = dim.op if isinstance(dim, Expr) else None
        self.counts |= op in (IndexOp.MUL, IndexOp.FLOORDIV, IndexOp.MOD)
        inner = dim.args if isinstance(dim, Expr) and op in (IndexOp.ADD, IndexOp.MUL) else ()
        read = {  # of what is loaded the dtype alone is known
            n: dims.symbol(n, -2 * _SHORT, 2 * _SHORT - 1)
            for n in dims.symbols(dim) - self.ranges.keys()
            if n in self.values and self.values[n].dtype in _OF_32
        }
        spans = [self.interval(dims.substitute(d, read)) for d in (dim, *inner)]
        most = [max(-lo - 1, hi, 1) for lo, hi in spans if lo is not None and hi is not None]
        limit = 2 * _SHORT if read and not inner else _SHORT
        if len(most) < len(spans) or max(most) >= limit:
            return False
        return (sum if op is IndexOp.ADD else math.prod)(most[1:]) < 2 * _SHORT

    def ranged(self, name: str, least: Dim, end: Dim) -> None:
        """A symbol goes from one expression up to below another."""
        low, high = self.interval(least)[0], self.interval(end)[1]
        self.ranges.pop(name, None)
        if low is not None and high is not None:
            self.ranges[name] = dims.symbol(name, low, max(low, high - 1))

    def symbol(self, name: str) -> str:
        """A loop variable, a size, or an integer Let."""
        if name in self.symbols:
            return self.symbols[name]
        value = self.values.get(name)
        if value is None:
            return name_of(name)
        if value.dtype == dt.uint64:
            return f"lj_index({value.text})"
        return f"({self.ix}){value.text}"

    def condition(self, dim: Dim) -> str:
        """Whether an index expression is nonzero."""
        if isinstance(dim, int):
            return "true" if dim else "false"
        match dim.op:
            case IndexOp.NONNEGATIVE:
                return f"({self.index(dim.args[0])} >= 0)"
            case IndexOp.ZERO:
                return f"({self.index(dim.args[0])} == 0)"
            case IndexOp.AND | IndexOp.OR:
                sign = " && " if dim.op is IndexOp.AND else " || "
                return f"({sign.join(map(self.condition, dim.args))})"
            case _:
                inner = dim.args[0] if dim.op is IndexOp.NONZERO else dim
                return f"({self.index(inner)} != 0)"

    # ---- values

    def value(self, value: ir.Value, prefix: str = "t") -> Value:
        """A value; what it needs is computed in lines before, itself under a name with a prefix."""
        return self._computed(value, {}, prefix)

    def _value(self, value: ir.Value, memo: dict[int, Value]) -> Value:
        found = memo.get(id(value))
        if found is None:
            found = memo[id(value)] = self._computed(value, memo, "t")
        return found

    def _computed(self, value: ir.Value, memo: dict[int, Value], prefix: str) -> Value:
        match value:
            case ir.Const():
                return scalar.from_bits(value.dtype, value.bits)
            case ir.Ref(name=name):
                if name in self.totals:
                    return self.totals[name].value
                if name in self.values:
                    return self.values[name]
                wide = "(i64)" if self.short else ""
                return scalar.cast(Value(dt.int64, (wide + self.symbol(name),)), value.dtype)
            case ir.IndexValue():
                return scalar.cast(
                    Value(dt.int64, (f"(i64)({self.index(value.expr)})",)), value.dtype
                )
            case LoadValue():
                return self.load(value, prefix)
            case ir.ApplyValue():
                args = [self.bind(self._value(a, memo)) for a in value.args]
                return self.bind(scalar.apply(value.op, args, value.dtype), prefix)
        assert_never(value)

    def load(self, value: LoadValue, prefix: str) -> Value:
        """An element, or the fill where the mask is off: then nothing is touched."""
        packed = self.packs.get(id(value))
        if packed is not None:
            return self.bind(scalar.loaded(value.dtype, [packed]), prefix)
        name, count = name_of(value.buffer.name), scalar.parts(value.dtype)
        at = self.index(value.offset)
        cells = [f"{name}[{at}]"] if count == 1 else [f"{name}[2 * {at} + {k}]" for k in range(2)]
        found = scalar.loaded(value.dtype, cells)
        if isinstance(value.mask, int) and value.mask:
            return self.bind(found)
        fill = (
            scalar.constant(value.dtype, 0) if value.dtype != dt.key else Value(dt.key, ("0ull",))
        )
        if value.fill is not None:
            fill = scalar.from_bits(value.dtype, value.fill.bits)
        test = self.fresh("on")
        self.add(f"const bool {test} = {self.condition(value.mask)};")
        chosen = [f"({test} ? {a} : {b})" for a, b in zip(found.parts, fill.parts, strict=True)]
        return self.bind(Value(value.dtype, tuple(chosen), found.exact), prefix)

    # ---- statements

    def statements(self, body: Sequence[Stmt]) -> None:
        """Statements in order."""
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        """One statement."""
        match stmt:
            case Let(name=name, value=value):
                self.touch([stmt])
                self.let(name, value)
            case Accumulator():
                self.touch([stmt])
                self.accumulator(stmt)
            case Accumulate(name=name, value=value):
                self.touch([stmt])
                total = self.totals[name]
                self.accumulate(total, self.value(value))
            case StoreStmt():
                self.touch([stmt])
                self.store_by_one(stmt)
            case Loop():
                self.loop(stmt)
            case Tile():
                self._tiles(self, stmt)
            case If():
                self.branch(stmt)
            case _:
                assert_never(stmt)

    def let(self, name: str, value: ir.Value) -> None:
        """Name a value."""
        self.symbols.pop(name, None)
        self.ranges.pop(name, None)
        if isinstance(value, ir.IndexValue) and value.dtype in dt.INTEGER:
            self.ranged(name, value.expr, value.expr + 1)
        found = self.value(value, name_of(name))
        if isinstance(value, ir.Ref) and value.name in self.totals:  # what it is now
            names = tuple(self.fresh(name_of(name)) for _ in found.parts)
            for own, part in zip(names, found.parts, strict=True):
                self.add(f"const {value_type(found.dtype)} {own} = {part};")
            found = Value(found.dtype, names)
        self.values[name] = self.bind(found, name_of(name))

    def accumulator(self, stmt: Accumulator) -> None:
        """Declare an accumulator."""
        init = self.value(stmt.init)
        names = tuple(self.fresh(name_of(stmt.name)) for _ in init.parts)
        for name, part in zip(names, init.parts, strict=True):
            self.add(f"{value_type(stmt.dtype)} {name} = {part};")
        self.totals[stmt.name] = Total(stmt.dtype, stmt.op, names)

    def accumulate(self, total: Total, value: Value) -> None:
        """One step of an accumulator."""
        value = self.bind(value)
        new = named(scalar.COMBINE[total.op], [total.value, value], total.dtype)
        if len(new.parts) > 1:
            new = self.bind(new)
        for name, part in zip(total.names, new.parts, strict=True):
            self.add(f"{name} = {part};")

    def store_by_one(self, stmt: StoreStmt) -> None:
        """A store: of what threads do together, one of them does it."""
        if self.alone:
            self.store(stmt)
            return
        with self.scope("if (threadIdx.x == 0)"), self.by_itself():
            self.store(stmt)

    def store(self, stmt: StoreStmt) -> None:
        """A store by each thread."""
        value = self.value(stmt.value)
        packed = self.packs.get(id(stmt))
        if packed is not None:
            self.add(f"{packed} = {stored(value)[0]};")
            return
        cells = self.cells(stmt.buffer, stmt.offset)
        test = ""
        if not (isinstance(stmt.mask, int) and stmt.mask):
            test = f"if ({self.condition(stmt.mask)}) "
        for cell, part in zip(cells, stored(value), strict=True):
            self.add(f"{test}{cell} = {part};")

    def cells(self, buffer: Buffer, offset: Dim) -> list[str]:
        """The places of an element."""
        name, at = name_of(buffer.name), self.index(offset)
        if scalar.parts(buffer.dtype) == 1:
            return [f"{name}[{at}]"]
        return [f"{name}[2 * {at} + {k}]" for k in range(2)]

    def branch(self, stmt: If) -> None:
        """A branch: at the level of the block all threads go the same way."""
        test = self.fresh("on")
        self.add(f"const bool {test} = {self.condition(stmt.condition)};")
        inner = self._exchanges(stmt.body)
        if inner and (self.read or self.written):
            self.barrier()
        with self.scope(f"if ({test})"):
            self.statements(stmt.body)
            if inner and (self.read or self.written):  # nothing is pending, taken or not
                self.barrier()

    def _exchanges(self, body: Sequence[Stmt]) -> bool:
        """Whether statements touch what goes from thread to thread."""
        touched = analysis.stored(body) | loaded_from(body)
        return not self.alone and bool(touched & self.exchanged)

    # ---- loops

    def loop(self, stmt: Loop) -> None:
        """A loop: shared out, or run by each thread."""
        if not self.alone and shared_out(stmt):
            self.touch([stmt])
            self._shared(stmt)
            return
        head = self._head(stmt, f"{self.index(stmt.begin)}", str(stmt.step))
        if self.alone:
            with self.scope(head):
                self.statements(stmt.body)
            return
        inner = self._exchanges(stmt.body)
        if inner and (self.read or self.written):
            self.barrier()
        with self.scope(head):
            self.statements(stmt.body)
            if inner and (self.read or self.written):
                self.barrier()

    def _head(self, stmt: Loop, begin: str, step: str) -> str:
        self.symbols.pop(stmt.var, None)
        self.values.pop(stmt.var, None)
        self.ranged(stmt.var, stmt.begin, stmt.end)
        name, end = name_of(stmt.var), self.fresh("end")
        self.add(f"const {self.ix} {end} = {self.index(stmt.end)};")
        return f"for ({self.ix} {name} = {begin}; {name} < {end}; {name} += {step})"

    def _shared(self, stmt: Loop) -> None:
        """Iterations in turn to each thread; sums are taken apart and then put together."""
        opened = [(n, self.totals[n]) for n in analysis.accumulated(stmt.body)]
        with self.partial(opened), self.by_itself():
            begin = self.fresh("begin")
            self.add(f"const {self.ix} {begin} = {self.index(stmt.begin)};")
            first = f"{begin} + ({self.ix})threadIdx.x * {stmt.step}"
            packed = packing(stmt)
            if packed is not None:
                first = self._packed(stmt, begin, *packed)
            head = self._head(stmt, first, str(self.threads * stmt.step))
            with self.scope(head):
                self.statements(stmt.body)

    @contextmanager
    def partial(self, opened: Sequence[tuple[str, Total]]) -> Generator[None]:
        """A part in which each thread has sums of its own, which go into the block's at its end."""
        with self.scope():
            for name, total in opened:
                self._open(name, total)
            yield
            for name, total in opened:
                (own,) = self.totals[name].names
                kind, pair = value_type(total.dtype), [Value(total.dtype, (x,)) for x in "ab"]
                step = named(scalar.COMBINE[total.op], pair, total.dtype).text
                self.add(f"{own} = lj_block<{self.threads // 32}>({own}, "
                         f"[] ({kind} a, {kind} b) -> {kind} {{ return {step}; }});")  # fmt: skip
                self.accumulate(total, Value(total.dtype, (own,)))

    def _open(self, name: str, total: Total) -> None:
        start = identity(total.op, total.dtype)
        names = tuple(self.fresh(name_of(name)) for _ in start.parts)
        for own, part in zip(names, start.parts, strict=True):
            self.add(f"{value_type(total.dtype)} {own} = {part};")
        self.totals[name] = Total(total.dtype, total.op, names)

    # ---- several elements at once

    def _packed(self, stmt: Loop, begin: str, width: int, accesses: Sequence[Any]) -> str:
        """The loop over whole packs, if all of them are aligned; where the rest begins."""
        buffers = [(a.buffer, a.offset) for a in accesses]
        var = name_of(stmt.var)
        self.ranged(stmt.var, stmt.begin, stmt.end)
        self.symbols[stmt.var] = begin
        tests = [f"lj_aligned<{scalar.storage_type(b.dtype)}, {width}>({name_of(b.name)} + "
                 f"{self.index(offset)})" for b, offset in buffers]  # fmt: skip
        aligned, first, end = self.fresh("aligned"), self.fresh("first"), self.fresh("end")
        self.add(f"const bool {aligned} = {' && '.join(dict.fromkeys(tests))};")
        self.add(f"const {self.ix} {end} = {self.index(stmt.end)};")
        self.add(f"{self.ix} {first} = {begin};")
        del self.symbols[stmt.var]
        base = self.fresh("base")
        with self.scope(f"if ({aligned} && {end} > {begin})"):
            self.add(f"{first} = {end} - ({end} - {begin}) % {width};")
            step = self.threads * width
            with self.scope(f"for ({self.ix} {base} = {begin} + ({self.ix})threadIdx.x * {width}; "
                            f"{base} < {first}; {base} += {step})"):  # fmt: skip
                self._pack(stmt, base, var, width, accesses)
        return f"{first} + ({self.ix})threadIdx.x"

    def _pack(self, stmt: Loop, base: str, var: str, width: int, accesses: Sequence[Any]) -> None:
        self.ranged(stmt.var, stmt.begin, stmt.end)
        self.symbols[stmt.var] = base
        stores: list[str] = []
        for access in accesses:
            kind = f"lj_pack<{scalar.storage_type(access.buffer.dtype)}, {width}>"
            name = self.fresh("pack")
            place = f"(({{}}{kind}*)({name_of(access.buffer.name)} + {self.index(access.offset)}))"
            if isinstance(access, StoreStmt):
                self.add(f"{kind} {name};")
                stores.append(f"*{place.format('')} = {name};")
            else:
                self.add(f"const {kind} {name} = *{place.format('const ')};")
            self.packs[id(access)] = f"{name}.e[lane]"
        del self.symbols[stmt.var]
        self.add("#pragma unroll")
        with self.scope(f"for (int lane = 0; lane < {width}; lane++)"):
            self.add(f"const {self.ix} {var} = {base} + lane;")
            self.statements(stmt.body)
        for line in stores:
            self.add(line)
        for access in accesses:
            del self.packs[id(access)]
