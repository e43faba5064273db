"""Index expressions as machine code: scalars, or lanes where they depend on the vector variable.

An `Index` is base + offset + stride * lane. Most expressions stay in that form, so that a load
knows whether its lanes are one address, neighbours or strangers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from lumjax.cpu.emit import Function, Reg, constant, everywhere, listed, number
from lumjax.record import record
from lumjax.trace.dim import Dim, Expr, IndexOp, bounds

_ZERO = constant("i64", 0)
_I32 = 1 << 31


@record
class Index:
    """An integer per lane: base + offset + stride * lane; a base with lanes has stride 0."""

    base: Reg
    offset: int = 0
    stride: int = 0

    @property
    def uniform(self) -> bool:
        """Whether every lane has the same value."""
        return self.base.lanes == 1 and self.stride == 0

    @property
    def value(self) -> int | None:
        """The value of a constant."""
        known = number(self.base)
        return known + self.offset if self.uniform and known is not None else None


def exactly(value: int) -> Index:
    """A constant index."""
    return Index(_ZERO, value)


class Indexer:
    """Emits index expressions, `lanes` at a time, with the symbols' values from `lookup`."""

    def __init__(self, f: Function, lanes: int, lookup: Callable[[str], Index]) -> None:
        self.f = f
        self.lanes = lanes
        self.lookup = lookup

    # ---- from an Index to registers

    def scalar(self, index: Index) -> Reg:
        """The register of a uniform index."""
        return self.f.add(index.base, constant("i64", index.offset))

    def vector(self, index: Index) -> Reg:
        """The index in every lane."""
        if index.base.lanes > 1:
            shift = constant("i64", index.offset, self.lanes)
            return self.f.binary("add", index.base, shift) if index.offset else index.base
        first = self.scalar(index)
        if not index.stride:
            return self.f.splat(first, self.lanes)
        steps = listed("i64", [index.stride * k for k in range(self.lanes)])
        return self.f.binary("add", self.f.splat(first, self.lanes), steps)

    def reg(self, index: Index) -> Reg:
        """A scalar if uniform, else a vector."""
        return self.scalar(index) if index.uniform else self.vector(index)

    # ---- from an expression to an Index

    def index(self, dim: Dim) -> Index:
        """The expression's value."""
        if isinstance(dim, int):
            return exactly(dim)
        match dim.op:
            case IndexOp.SYMBOL:
                return self.lookup(dim.name or "")
            case IndexOp.ADD:
                return self.total(self.terms(dim))
            case IndexOp.MUL:
                return self._product(dim.args)
            case IndexOp.FLOORDIV | IndexOp.MOD:
                return self._division(dim)
            case IndexOp.MIN:
                return self._fold("llvm.smin", dim.args)
            case IndexOp.MAX:
                return self._fold("llvm.smax", dim.args)
            case IndexOp.SELECT:
                return self._choice(dim.args)
            case IndexOp.NONNEGATIVE | IndexOp.ZERO | IndexOp.NONZERO | IndexOp.AND | IndexOp.OR:
                return Index(self.f.convert("zext", self.condition(dim), "i64"))
        assert_never(dim.op)

    def terms(self, dim: Dim) -> list[Index]:
        """The summands of an expression; products with shifted variables are multiplied out."""
        parts = dim.args if isinstance(dim, Expr) and dim.op is IndexOp.ADD else (dim,)
        result: list[Index] = []
        for p in parts:
            if isinstance(p, Expr) and p.op is IndexOp.MUL:
                result += self._expanded(p.args)
            else:
                result.append(self.index(p))
        return result

    def _expanded(self, args: Sequence[Dim]) -> list[Index]:
        """A product as a sum: (i + 3)*n becomes i*n + 3*n, whose second part is invariant."""
        result = [self.index(args[0])]
        for a in args[1:]:
            factors = self._apart(self.index(a))
            if all(r.value is not None for r in result):
                factors = [self.index(a)]
            else:
                result = [piece for r in result for piece in self._apart(r)]
            result = [self._times(r, factor) for r in result for factor in factors]
        return result

    def _apart(self, index: Index) -> list[Index]:
        """An index as its variable part and its constant offset."""
        if index.value is not None or not index.offset or index.base.lanes > 1:
            return [index]
        return [Index(index.base, 0, index.stride), exactly(index.offset)]

    def total(self, parts: Sequence[Index]) -> Index:
        """The sum, added up from the outermost scope inwards."""
        scalars = sorted((p.base for p in parts if p.base.lanes == 1), key=self.f.depth)
        vectors = [p.base for p in parts if p.base.lanes > 1]
        base = _ZERO
        for s in scalars:
            base = self.f.add(base, s)
        offset, stride = sum(p.offset for p in parts), sum(p.stride for p in parts)
        if not vectors:
            return Index(base, offset, stride)
        whole = self.vector(Index(base, offset, stride))
        for v in vectors:
            whole = self.f.binary("add", whole, v)
        return Index(whole)

    def _product(self, args: Sequence[Dim]) -> Index:
        result = self.index(args[0])
        for a in args[1:]:
            result = self._times(result, self.index(a))
        return result

    def _times(self, a: Index, b: Index) -> Index:
        if a.value is not None or not b.uniform:
            a, b = b, a
        factor = b.value
        if factor is not None:
            scaled = self.f.multiply(a.base, constant("i64", factor, a.base.lanes))
            return Index(scaled, a.offset * factor, a.stride * factor)
        if b.uniform and a.base.lanes == 1:
            by = self.scalar(b)
            first = self.f.multiply(self.scalar(Index(a.base, a.offset)), by)
            if not a.stride:
                return Index(first)
            steps = listed("i64", [a.stride * k for k in range(self.lanes)])
            spread = self.f.binary("mul", steps, self.f.splat(by, self.lanes))
            return Index(self.f.binary("add", self.f.splat(first, self.lanes), spread))
        return Index(self.f.binary("mul", self.vector(a), self.vector(b)))

    def _pair(self, a: Index, b: Index) -> tuple[Reg, Reg]:
        if a.uniform and b.uniform:
            return self.scalar(a), self.scalar(b)
        return self.vector(a), self.vector(b)

    def _division(self, dim: Expr) -> Index:
        """Floor division or its remainder; a divisor of 0 counts as 1."""
        quotient = dim.op is IndexOp.FLOORDIV
        low, high = bounds(dim.args[0])
        natural = low is not None and low >= 0
        x, y = self._pair(self.index(dim.args[0]), self.index(dim.args[1]))
        divisor = dim.args[1] if isinstance(dim.args[1], int) else None
        if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
            operation, by = ("ashr", divisor.bit_length() - 1) if quotient else ("and", divisor - 1)
            return Index(self.f.binary(operation, x, constant("i64", by, x.lanes)))
        least = bounds(dim.args[1])[0]
        if least is None or least < 1:
            none = self.f.compare("icmp eq", y, constant("i64", 0, y.lanes))
            y = self.f.select(none, constant("i64", 1, y.lanes), y)
        elif natural:
            name = "udiv" if quotient else "urem"
            fits = high is not None and high < _I32 and divisor is not None and divisor < _I32
            return Index(self._natural(name, x, y, short=fits and x.lanes > 1))
        return Index(self._floor(quotient, x, y))

    def _natural(self, operation: str, x: Reg, y: Reg, short: bool) -> Reg:
        if not short:
            return self.f.binary(operation, x, y)
        divisor = everywhere(y)  # written out, LLVM sees it and multiplies instead
        assert divisor is not None, "only constants are known to be short"
        narrow = self.f.convert("trunc", x, "i32")
        short_one = self.f.binary(operation, narrow, constant("i32", divisor, x.lanes))
        return self.f.convert("zext", short_one, "i64")

    def _floor(self, quotient: bool, x: Reg, y: Reg) -> Reg:
        f, zero = self.f, constant("i64", 0, x.lanes)
        rest = f.binary("srem", x, y)
        across = f.compare("icmp slt", f.binary("xor", rest, y), zero)
        adjust = f.binary("and", across, f.compare("icmp ne", rest, zero))
        if quotient:
            extra = f.convert("zext", adjust, "i64")
            return f.binary("sub", f.binary("sdiv", x, y), extra)
        return f.binary("add", rest, f.select(adjust, y, zero))

    def _fold(self, name: str, args: Sequence[Dim]) -> Index:
        result = self.index(args[0])
        for a in args[1:]:
            result = Index(self.f.intrinsic(name, *self._pair(result, self.index(a))))
        return result

    def _choice(self, args: Sequence[Dim]) -> Index:
        condition = self.condition(args[0])
        a, b = self.index(args[1]), self.index(args[2])
        if condition.lanes > 1:
            return Index(self.f.select(condition, self.vector(a), self.vector(b)))
        return Index(self.f.select(condition, *self._pair(a, b)))

    # ---- truth

    def condition(self, dim: Dim) -> Reg:
        """Whether the expression is nonzero: an i1, or one per lane."""
        if isinstance(dim, int):
            return constant("i1", int(dim != 0))
        match dim.op:
            case IndexOp.NONNEGATIVE:
                return self.compare("sge", self.index(dim.args[0]))
            case IndexOp.ZERO:
                return self.compare("eq", self.index(dim.args[0]))
            case IndexOp.AND | IndexOp.OR:
                return self.connect(dim.op.value, [self.condition(a) for a in dim.args])
            case _:
                inner = dim.args[0] if dim.op is IndexOp.NONZERO else dim
                return self.compare("ne", self.index(inner))

    def compare(self, predicate: str, index: Index) -> Reg:
        """The index compared with 0."""
        f, known = self.f, index.value
        if known is not None:
            truth = {"sge": known >= 0, "eq": known == 0, "ne": known != 0}[predicate]
            return constant("i1", truth)
        if index.base.lanes > 1 or not index.stride:
            reg = self.reg(index)
            return f.compare(f"icmp {predicate}", reg, constant("i64", 0, reg.lanes))
        # 32-bit lanes are enough once the first lane is clamped to where the outcome is decided
        span = abs(index.stride) * self.lanes + 1
        if span >= 1 << 29:
            reg = self.vector(index)
            return f.compare(f"icmp {predicate}", reg, constant("i64", 0, reg.lanes))
        first = f.intrinsic(
            "llvm.smin", self.scalar(Index(index.base, index.offset)), constant("i64", 1 << 30)
        )
        first = f.intrinsic("llvm.smax", first, constant("i64", -(1 << 30)))
        narrow = f.splat(f.convert("trunc", first, "i32"), self.lanes)
        steps = listed("i32", [index.stride * k for k in range(self.lanes)])
        reg = f.binary("add", narrow, steps)
        return f.compare(f"icmp {predicate}", reg, constant("i32", 0, self.lanes))

    def connect(self, operation: str, conditions: Sequence[Reg]) -> Reg:
        """`and` or `or` of conditions; constants fold."""
        neutral = int(operation == "and")
        result: Reg | None = None
        for c in sorted(conditions, key=self.f.depth):
            known = number(c)
            if known == neutral:
                continue
            if known is not None:
                return c
            if result is None:
                result = c
            else:
                lanes = max(result.lanes, c.lanes)
                result = self.f.binary(
                    operation, self.f.splat(result, lanes), self.f.splat(c, lanes)
                )
        return constant("i1", neutral) if result is None else result
