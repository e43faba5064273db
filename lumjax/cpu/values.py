"""Values and names while a phase is emitted: symbols, Lets, accumulators, lanes and masks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import assert_never

from lumjax import dtype as dt
from lumjax.cpu import analysis, math, real
from lumjax.cpu.convert import Lanes, cast, fill, from_bits, widen
from lumjax.cpu.emit import Function, Reg, constant, listed
from lumjax.cpu.index import Index, Indexer
from lumjax.cpu.memory import Memory
from lumjax.kernel.ir import ApplyValue, Const, IndexValue, LoadValue, Ref, Value
from lumjax.trace.dim import Dim, Expr, IndexOp, bounds
from lumjax.trace.form import ReduceOp

_I32 = 1 << 31
_COMBINE = {
    ReduceOp.SUM: "add",
    ReduceOp.PROD: "mul",
    ReduceOp.MAX: "max",
    ReduceOp.MIN: "min",
    ReduceOp.AND: "and",
    ReduceOp.OR: "or",
    ReduceOp.XOR: "xor",
}
_EXTREMES = {ReduceOp.MAX: "ogt", ReduceOp.MIN: "olt"}


def identity(op: ReduceOp, dtype: dt.DType) -> Lanes:
    """The monoid's neutral element (-0.0 for float sums, which keeps a sum of -0.0)."""
    if op in (ReduceOp.MAX, ReduceOp.MIN):
        low = op is ReduceOp.MAX
        if dtype in dt.INTEGER:
            info = dt.iinfo(dtype)
            return fill(dtype, int(info.min if low else info.max))
        if dtype == dt.bool_:
            return fill(dtype, not low)
        return fill(dtype, float("-inf") if low else float("inf"))
    if op is ReduceOp.SUM and dtype in dt.INEXACT:
        return fill(dtype, complex(-0.0, -0.0) if dtype in dt.COMPLEX else -0.0)
    ones = op is ReduceOp.AND and dtype != dt.bool_
    return fill(dtype, -1 if ones else int(op in (ReduceOp.PROD, ReduceOp.AND)))


@dataclass(slots=True)
class Sum:
    """An accumulator: its value, and partial values in lanes while a VECTOR loop feeds it."""

    dtype: dt.DType
    op: ReduceOp
    value: Lanes
    partials: list[Lanes] = field(default_factory=list[Lanes])

    def regs(self) -> list[Reg]:
        """All registers, for a loop to carry."""
        return [r for v in (self.value, *self.partials) for r in v.regs]

    def set(self, regs: Sequence[Reg]) -> None:
        """Replace all registers."""
        size = len(self.value.regs)
        groups = [tuple(regs[k : k + size]) for k in range(0, len(regs), size)]
        self.value = Lanes(self.dtype, groups[0])
        self.partials = [Lanes(self.dtype, g) for g in groups[1:]]


def restore(sums: Sequence[Sum], regs: Sequence[Reg]) -> None:
    """Give accumulators the registers that a loop or a branch left, in order."""
    at = 0
    for s in sums:
        size = len(s.regs())
        s.set(regs[at : at + size])
        at += size


class Values:
    """What names mean at the current point of a function, and how values are computed there."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.memory = Memory(f)
        self.symbols: dict[str, Index] = {}
        self.lets: dict[str, Lanes] = {}
        self.sums: dict[str, Sum] = {}
        self.mask: Reg | None = None  # the lanes that are on; None: all
        self.ix = Indexer(f, 1, self.lookup)

    @property
    def lanes(self) -> int:
        """How many iterations run together here."""
        return self.ix.lanes

    # ---- names

    def lookup(self, name: str) -> Index:
        """The value of a symbol: a loop variable, a size, or an integer Let."""
        found = self.symbols.get(name)
        if found is None:
            value = self.lets[name]
            if value.dtype == dt.uint64:  # beyond int64 there is nothing to index
                top = constant("i64", (1 << 63) - 1, value.lanes)
                found = Index(self.f.intrinsic("llvm.umin", value.reg, top))
            else:
                found = Index(cast(self.f, value, dt.int64).reg)
            self.symbols[name] = found
        return found

    @contextmanager
    def scope(self, names: frozenset[str] = frozenset()) -> Generator[None]:
        """A block that stores to `names`; its own bindings end with it."""
        saved = self.symbols.copy(), self.lets.copy(), self.sums.copy()
        self.memory.enter(names)
        yield
        self.memory.leave(names)
        self.symbols, self.lets, self.sums = saved

    @contextmanager
    def in_lanes(self, lanes: int) -> Generator[None]:
        """A block that runs `lanes` iterations together."""
        saved = self.ix
        self.ix = Indexer(self.f, lanes, self.lookup)
        yield
        self.ix = saved

    @contextmanager
    def masked(self, condition: Reg | None) -> Generator[None]:
        """A block in which only the lanes of the condition are on."""
        saved = self.mask
        self.mask = self.both(saved, condition)
        yield
        self.mask = saved

    def both(self, a: Reg | None, b: Reg | None) -> Reg | None:
        """The conjunction of two masks, None for all lanes."""
        found = [c for c in (a, b) if c is not None and c.text not in ("true", "splat (i1 true)")]
        return self.ix.connect("and", found) if found else None

    # ---- values

    def value(self, value: Value) -> Lanes:
        """The lanes of a value (one lane if it is the same in all)."""
        return self._value(value, {})

    def _value(self, value: Value, memo: dict[int, Lanes]) -> Lanes:
        found = memo.get(id(value))
        if found is None:
            found = memo[id(value)] = self._compute(value, memo)
        return found

    def _compute(self, value: Value, memo: dict[int, Lanes]) -> Lanes:
        match value:
            case Const():
                return from_bits(value.dtype, value.bits)
            case Ref(name=name):
                return self._reference(name, value.dtype)
            case IndexValue():
                return self._index_value(value.expr, value.dtype)
            case LoadValue():
                condition = self.both(self.mask, self.ix.condition(value.mask))
                otherwise = None
                if value.fill is not None:
                    otherwise = from_bits(value.dtype, value.fill.bits)
                return self.memory.load(value.buffer, value.offset, self.ix, condition, otherwise)
            case ApplyValue():
                word = self._word(value)
                if word is not None:
                    return word
                args = [self._value(a, memo) for a in value.args]
                return math.apply(self.f, value.op, args, value.dtype)
        assert_never(value)

    def _word(self, value: ApplyValue) -> Lanes | None:
        """Two elements that lie side by side and are read as one."""
        first = analysis.adjacent(value)
        if first is None:
            return None
        return self.memory.words(first.buffer, first.offset, self.ix, self.mask)

    def _reference(self, name: str, dtype: dt.DType) -> Lanes:
        if name in self.sums:
            return self.sums[name].value
        if name not in self.lets:
            return self._index_lanes(self.symbols[name], dtype)
        return self.lets[name]

    def _index_value(self, expr: Dim, dtype: dt.DType) -> Lanes:
        if isinstance(expr, Expr) and bounds(expr) == (0, 1) and expr.op is not IndexOp.SYMBOL:
            return cast(self.f, Lanes(dt.bool_, (self.ix.condition(expr),)), dtype)
        low, high = bounds(expr)
        short = low is not None and high is not None and low >= -_I32 and high < _I32
        return self._index_lanes(self.ix.index(expr), dtype, short)

    def _index_lanes(self, index: Index, dtype: dt.DType, short: bool = False) -> Lanes:
        """An index as a value; narrow lanes are computed narrow."""
        fits = short or (dtype in dt.INTEGER and dtype.itemsize <= 4)
        if index.base.lanes == 1 and index.stride and fits and abs(index.stride) < 1 << 20:
            first = self.ix.scalar(replace(index, stride=0))
            narrow = self.f.splat(self.f.convert("trunc", first, "i32"), self.lanes)
            steps = self.f.binary(
                "add", narrow, listed("i32", [index.stride * k for k in range(self.lanes)])
            )
            return cast(self.f, Lanes(dt.int32, (steps,)), dtype)
        return cast(self.f, Lanes(dt.int64, (self.ix.reg(index),)), dtype)

    # ---- accumulators

    def combine(self, op: ReduceOp, a: Lanes, b: Lanes) -> Lanes:
        """One step of a monoid."""
        lanes = max(a.lanes, b.lanes)
        a, b = widen(self.f, a, lanes), widen(self.f, b, lanes)
        if op in _EXTREMES and a.dtype in dt.FLOATING:
            # half the instructions of the elementwise operation, which orders zeros by sign
            return Lanes(a.dtype, (real.extreme(self.f, _EXTREMES[op], a.reg, b.reg),))
        return math.RULES[_COMBINE[op]](self.f, [a, b], a.dtype)

    def open_sum(self, total: Sum, lanes: int, chains: int) -> None:
        """Give an accumulator partial values, neutral so far."""
        start = widen(self.f, identity(total.op, total.dtype), lanes)
        total.partials = [start] * chains

    def close_sum(self, total: Sum) -> None:
        """Fold partial values: vectors in pairs, then halves of a vector, then into the value."""
        values = total.partials
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [self.combine(total.op, a, b) for a, b in pairs]
        (value,) = values
        while value.lanes > 1:
            value = self.combine(total.op, self._half(value, 0), self._half(value, 1))
        total.partials = []
        total.value = self.combine(total.op, total.value, value)

    def _half(self, value: Lanes, which: int) -> Lanes:
        half = value.lanes // 2
        if half == 1:
            return Lanes(value.dtype, tuple(self.f.lane(r, which) for r in value.regs))
        picks = range(which * half, which * half + half)
        return Lanes(value.dtype, tuple(self.f.shuffle(r, None, picks) for r in value.regs))
