"""Integer operations by the semantics table: nothing traps and every result is defined."""

from __future__ import annotations

from lumjax.cpu.emit import Function, Reg, bits, constant, everywhere


def _constant(x: Reg, value: int) -> Reg:
    return constant(x.type, value, x.lanes)


def _equal(f: Function, x: Reg, value: int) -> Reg:
    return f.compare("icmp eq", x, _constant(x, value))


def _safe(f: Function, y: Reg, is_signed: bool) -> tuple[Reg, Reg, Reg | None]:
    """(a divisor that cannot trap, y == 0, y == -1 for signed numbers)."""
    zero = _equal(f, y, 0)
    minus = _equal(f, y, -1) if is_signed else None
    bad = zero if minus is None else f.binary("or", zero, minus)
    return f.select(bad, _constant(y, 1), y), zero, minus


def _cannot_trap(y: Reg) -> bool:
    """Whether a divisor is a constant that cannot trap: LLVM multiplies instead, as long as it
    sees the constant.
    """
    return everywhere(y) not in (None, 0, -1)


def divide(f: Function, x: Reg, y: Reg, is_signed: bool) -> Reg:
    """Truncated; x / 0 has every bit set; INT_MIN / -1 is INT_MIN."""
    if _cannot_trap(y):
        return f.binary("sdiv" if is_signed else "udiv", x, y)
    safe, zero, minus = _safe(f, y, is_signed)
    quotient = f.binary("sdiv" if is_signed else "udiv", x, safe)
    if minus is not None:
        quotient = f.select(minus, f.binary("sub", _constant(x, 0), x), quotient)
    return f.select(zero, _constant(x, -1), quotient)


def remainder(f: Function, x: Reg, y: Reg, is_signed: bool) -> Reg:
    """The remainder of truncated division; x rem 0 is x, INT_MIN rem -1 is 0."""
    if _cannot_trap(y):
        return f.binary("srem" if is_signed else "urem", x, y)
    safe, zero, _ = _safe(f, y, is_signed)
    return f.select(zero, x, f.binary("srem" if is_signed else "urem", x, safe))


def shift(f: Function, operation: str, x: Reg, y: Reg) -> Reg:
    """`shl`, `lshr` or `ashr`; a count outside 0..bits-1 shifts everything out."""
    last = _constant(y, bits(y.type) - 1)
    inside = f.compare("icmp ule", y, last)
    if operation == "ashr":
        return f.binary("ashr", x, f.select(inside, y, last))
    shifted = f.binary(operation, x, f.select(inside, y, _constant(y, 0)))
    return f.select(inside, shifted, _constant(x, 0))


def sign(f: Function, x: Reg, is_signed: bool) -> Reg:
    """-1, 0 or 1."""
    zero, one = _constant(x, 0), _constant(x, 1)
    if not is_signed:
        return f.select(f.compare("icmp ne", x, zero), one, zero)
    below = f.select(f.compare("icmp slt", x, zero), _constant(x, -1), zero)
    return f.select(f.compare("icmp sgt", x, zero), one, below)


def absolute(f: Function, x: Reg, is_signed: bool) -> Reg:
    """The absolute value; INT_MIN stays."""
    return f.intrinsic("llvm.abs", x, extra="i1 false") if is_signed else x


def count_ones(f: Function, x: Reg, _: bool) -> Reg:
    """The number of one bits."""
    return f.intrinsic("llvm.ctpop", x)


def leading_zeros(f: Function, x: Reg, _: bool) -> Reg:
    """The number of zero bits above the highest one bit."""
    return f.intrinsic("llvm.ctlz", x, extra="i1 false")
