"""Kernel IR to LLVM IR text: one function per phase.

Loops become loops; a VECTOR loop runs a register's worth of iterations at a time, its remainder
under a mask. An accumulator that a VECTOR loop feeds has partial sums, combined in a fixed order.

    void NAME_phaseN(ptr table, ptr slots, i64 job, ptr scratch)

`table` is the program's array of addresses and sizes, `slots` (i32) says where in it each of the
kernel's buffers, then sizes, is found; `scratch` is memory of the running thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from lumjax import dtype as dt
from lumjax.cpu import analysis, dots, math, tile, turn
from lumjax.cpu.convert import Lanes, select, widen
from lumjax.cpu.emit import Function, Module, Reg, constant, number
from lumjax.cpu.index import Index, exactly
from lumjax.cpu.memory import ZEROS_TEXT
from lumjax.cpu.values import Sum, Values, restore
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    If,
    IndexValue,
    Kernel,
    Let,
    Loop,
    LoopKind,
    Phase,
    Stmt,
    StoreStmt,
    Tile,
)
from lumjax.target import Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

UNROLL_LIMIT = 64


def render(kernel: Kernel, target: Target) -> str:
    """The module's text: a function `NAME_phaseN` for each phase.

    Raises UnsupportedError where the kernel has an operation without native code.
    """
    module = Module()
    module.half = "+f16c" in target.features or target.arch.startswith(("apple", "neoverse"))
    module.half = module.half or "+fp-armv8" in target.features
    module.fma = any(flag in target.features for flag in ("+fma", "+fp-armv8", "+neon"))
    module.scalef = "+avx512f" in target.features and "+avx512vl" in target.features
    written: dict[int, str] = {}  # phases may come again
    for k, phase in enumerate(kernel.phases):
        name = f"{kernel.name}_phase{k}"
        known = written.setdefault(id(phase), name)
        if known is name:
            Renderer(module, kernel, target, name).phase(phase)
        else:
            module.functions.append(f"@{name} = alias void (ptr, ptr, i64, ptr), ptr @{known}")
    return ZEROS_TEXT + module.text()


def unsupported(kernel: Kernel) -> str | None:
    """The first operation of a kernel that has no native code, as text; None if there is none."""
    return analysis.unsupported(kernel, math.supported)


def scratch_bytes(kernel: Kernel) -> int:
    """The scratch memory that one thread needs."""
    return sum(_padded(s.elements * s.buffer.dtype.itemsize) for s in kernel.scratch)


def _padded(size: int) -> int:
    return -(-size // 64) * 64


class Renderer(Values):
    """Emits the statements of one phase."""

    def __init__(self, module: Module, kernel: Kernel, target: Target, name: str) -> None:
        table, slots, scratch = (Reg(n, "ptr") for n in ("%table", "%slots", "%scratch"))
        super().__init__(Function(module, name, [table, slots, Reg("%job", "i64"), scratch]))
        self.kernel = kernel
        self.target = target
        self.hints: dict[str, Dim] = dict(zip(kernel.sizes, kernel.extents, strict=False))
        self.chain = 0  # which of the partial values an Accumulate uses

    # ---- the frame of a phase

    def phase(self, phase: Phase) -> None:
        """The whole function."""
        self._parameters()
        self.symbols[phase.job] = Index(Reg("%job", "i64"))
        names = analysis.stored(phase.body)
        self.memory.enter(names)
        self.body(phase.body)
        self.memory.leave(names)
        self.f.finish()

    def _parameters(self) -> None:
        f, kernel = self.f, self.kernel
        for k, buffer in enumerate(kernel.buffers):
            self.memory.pointers[buffer.name] = f.pure(f"load ptr, ptr {self._slot(k)}")
        for k, name in enumerate(kernel.sizes, len(kernel.buffers)):
            self.symbols[name] = Index(Reg(f.pure(f"load i64, ptr {self._slot(k)}"), "i64"))
        offset = 0
        for scratch in kernel.scratch:
            at = f.element("i8", "%scratch", constant("i64", offset))
            self.memory.pointers[scratch.buffer.name] = at
            offset += _padded(scratch.elements * scratch.buffer.dtype.itemsize)

    def _slot(self, k: int) -> str:
        where = self.f.element("i32", "%slots", constant("i64", k))
        slot = Reg(self.f.pure(f"load i32, ptr {where}"), "i32")
        return self.f.element("i64", "%table", self.f.convert("sext", slot, "i64"))

    # ---- statements

    def body(self, body: Sequence[Stmt]) -> None:
        """Statements in order."""
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        """One statement."""
        match stmt:
            case Let(name=name, value=value):
                self.symbols.pop(name, None)
                self.lets.pop(name, None)
                if isinstance(value, IndexValue) and value.dtype in dt.INTEGER:
                    self.symbols[name] = self.ix.index(value.expr)
                else:
                    self.lets[name] = self.value(value)
            case Accumulator(name=name, dtype=dtype, op=op):
                start = widen(self.f, self.value(stmt.init), self.lanes)
                self.sums[name] = Sum(dtype, op, start)
            case Accumulate(name=name, value=value):
                self.accumulate(self.sums[name], self.value(value))
            case StoreStmt():
                condition = self.both(self.mask, self.ix.condition(stmt.mask))
                self.memory.store(
                    stmt.buffer, stmt.offset, self.ix, self.value(stmt.value), condition
                )
            case Loop():
                self.loop(stmt)
            case Tile():
                kind = dots.DotRenderer if dots.of_dots(stmt, self.target) else tile.TileRenderer
                kind(self, stmt, self.target, self.body).run()
            case If():
                self.branch(stmt)
            case _:
                assert_never(stmt)

    def accumulate(self, total: Sum, value: Lanes) -> None:
        """One step of an accumulator, in the lanes that are on."""
        if self.lanes > 1 and total.partials:
            k = self.chain % len(total.partials)
            old = total.partials[k]
        else:
            k, old = -1, total.value
        value = widen(self.f, value, old.lanes)
        new = self.combine(total.op, old, value)
        if self.mask is not None and old.lanes > 1:
            new = select(self.f, self.f.splat(self.mask, old.lanes), new, old)
        if k < 0:
            total.value = new
        else:
            total.partials[k] = new

    def branch(self, stmt: If) -> None:
        """If the condition differs between lanes the body runs under a mask."""
        condition = self.ix.condition(stmt.condition)
        names = analysis.stored(stmt.body)
        if condition.lanes > 1:
            with self.masked(condition), self.scope(names):
                self.body(stmt.body)
            return
        sums = [self.sums[n] for n in analysis.accumulated(stmt.body)]
        with self.f.branch(condition, [r for s in sums for r in s.regs()]) as frame:
            with self.scope(names):
                self.body(stmt.body)
            frame.carried = [r for s in sums for r in s.regs()]
        restore(sums, frame.results)

    # ---- loops

    def loop(self, stmt: Loop) -> None:
        """A loop, in the way its kind allows."""
        free = self.lanes == 1 and self.mask is None
        square = turn.turned(stmt, self.target, self.hints) if free else None
        if square is None:
            self._looped(stmt)
        else:
            self._turned(stmt, square)

    def _looped(self, stmt: Loop) -> None:
        begin, end = self.ix.index(stmt.begin), self.ix.index(stmt.end)
        first, last = begin.value, end.value
        if first is not None and last is not None:
            trips = range(first, last, stmt.step)
            if not trips:
                return
            if stmt.kind is LoopKind.UNROLL and len(trips) <= UNROLL_LIMIT:
                self._unrolled(stmt, trips)
                return
        lanes, chains = self.shape(stmt)
        opened = self.open_sums(stmt)
        bounds = self.ix.scalar(begin), self.ix.scalar(end)
        if lanes > 1:
            self._vector(stmt, *bounds, lanes, chains)
        else:
            self._run(stmt, *bounds, stmt.step)
        self.close_sums(opened)

    def _turned(self, stmt: Loop, square: turn.Square) -> None:
        """Squares of vectors, then the rest of the inner loop and that of the outer one."""
        (inner,) = stmt.body
        assert isinstance(inner, Loop), "a loop around a loop is turned"
        lanes = square.lanes
        middle, half = (
            s.begin + dims.floor_divide(s.end - s.begin, lanes) * lanes for s in (stmt, inner)
        )
        bounds = (inner.begin, half), (stmt.begin, middle)
        (n0, n1), (k0, k1) = ([self.ix.scalar(self.ix.index(d)) for d in pair] for pair in bounds)
        with (
            self.f.loop(n0, n1, lanes, []) as across,
            self.f.loop(k0, k1, lanes, []) as along,
            self.scope(analysis.stored(inner.body)),
        ):
            self._square(stmt.var, inner.var, (along.index, across.index), square)
        rest = replace(inner, begin=half)
        self._looped(replace(stmt, end=middle, body=(rest,)))
        self._looped(replace(stmt, begin=middle))

    def _square(self, k: str, n: str, at: tuple[Reg, Reg], square: turn.Square) -> None:
        """One square at (k, n): read along k, stored along n."""
        lanes, stores = square.lanes, square.stores
        rows: list[list[Lanes]] = []
        for j in range(lanes):
            self.symbols[k], self.symbols[n] = Index(at[0], 0, 1), Index(at[1], j)
            with self.in_lanes(lanes):
                rows.append([widen(self.f, self.value(s.value), lanes) for s in stores])
        for s, values in zip(stores, zip(*rows, strict=True), strict=True):
            for j, reg in enumerate(turn.transpose(self.f, [v.reg for v in values])):
                self.symbols[k], self.symbols[n] = Index(at[0], j), Index(at[1], 0, 1)
                value = replace(values[0], regs=(reg,), exact=all(v.exact for v in values))
                with self.in_lanes(lanes):
                    self.memory.store(s.buffer, s.offset, self.ix, value, None)

    def _unrolled(self, stmt: Loop, trips: range) -> None:
        for k in trips:
            with self.scope():
                self.symbols[stmt.var] = exactly(k)
                self.body(stmt.body)

    def shape(self, stmt: Loop) -> tuple[int, int]:
        """(lanes, how many vectors side by side) of a loop; (1, 1) if it runs one by one."""
        if stmt.kind is not LoopKind.VECTOR or self.lanes > 1 or not analysis.vectorizable(stmt):
            return 1, 1
        weight = analysis.weigh(stmt.body)
        lanes = max(2, self.target.vector_bytes // max(2, weight.widest))
        trips = analysis.trips(stmt, self.hints)
        if trips is not None:
            lanes = min(lanes, 1 << max(0, trips - 1).bit_length())
        if weight.nested or weight.heavy > 2:
            return lanes, 1
        chains = 4 if analysis.accumulated(stmt.body) else 2
        if weight.operations > 8 or weight.heavy:
            chains //= 2
        while chains > 1 and trips is not None and lanes * chains > trips:
            chains //= 2
        return lanes, chains

    def _vector(self, stmt: Loop, begin: Reg, end: Reg, lanes: int, chains: int) -> None:
        """Whole vectors, `chains` at a time, then what is left under a mask."""
        f, whole = self.f, lanes * chains
        left = dims.remainder(stmt.end - stmt.begin, whole * stmt.step)
        if isinstance(left, int):
            middle = f.add(end, constant("i64", -left))
        else:
            count = f.add(end, f.multiply(begin, constant("i64", -1)))
            if stmt.step > 1:
                count = f.add(count, constant("i64", stmt.step - 1))
                count = f.binary("sdiv", count, constant("i64", stmt.step))
            count = f.intrinsic("llvm.smax", count, constant("i64", 0))
            count = f.binary("and", count, constant("i64", -whole))
            middle = f.add(begin, f.multiply(count, constant("i64", stmt.step)))
        first, last = number(begin), number(middle)
        if first is None or last is None or first < last:
            self._run(stmt, begin, middle, whole * stmt.step, lanes, chains)
        if not isinstance(left, int) or left:
            self._run(stmt, middle, end, lanes * stmt.step, lanes, masked=True)

    def _run(
        self,
        stmt: Loop,
        begin: Reg,
        end: Reg,
        step: int,
        lanes: int = 1,
        chains: int = 1,
        masked: bool = False,
    ) -> None:
        """The loop itself; each trip is `chains` times `lanes` iterations of the statement."""
        sums = [self.sums[n] for n in analysis.accumulated(stmt.body)]
        names = analysis.stored(stmt.body)
        width = lanes if lanes > 1 else self.lanes
        with self.f.loop(begin, end, step, [r for s in sums for r in s.regs()]) as frame:
            restore(sums, frame.carried)
            for self.chain in range(chains):
                offset = self.chain * lanes * stmt.step
                index = Index(frame.index, offset, stmt.step if lanes > 1 else 0)
                with self.in_lanes(width), self.scope(names):
                    condition = self._within(frame.index, end, stmt.step) if masked else None
                    self.symbols[stmt.var] = index
                    with self.masked(condition):
                        self.body(stmt.body)
            frame.carried = [r for s in sums for r in s.regs()]
        restore(sums, frame.results)
        self.chain = 0

    def _within(self, first: Reg, end: Reg, step: int) -> Reg:
        """The lanes of the variable that are below `end`."""
        room = self.f.add(end, self.f.multiply(first, constant("i64", -1)))
        return self.ix.compare("sge", Index(room, -1, -step))

    # ---- partial sums

    def open_sums(self, stmt: Loop) -> list[Sum]:
        """Give partial values to the accumulators that this loop feeds from lanes alone."""
        if self.lanes > 1:
            return []
        seen = analysis.read(stmt.body)
        opened: list[Sum] = []
        for name in analysis.accumulated(stmt.body):
            total = self.sums[name]
            shapes = {self.shape(v) for v in analysis.feeding(stmt, name)} - {(1, 1)}
            if total.partials or name in seen or len(shapes) != 1:
                continue
            ((lanes, chains),) = shapes
            self.open_sum(total, lanes, chains)
            opened.append(total)
        return opened

    def close_sums(self, opened: Sequence[Sum]) -> None:
        """Fold the partial values into the accumulators' values."""
        for total in opened:
            self.close_sum(total)
