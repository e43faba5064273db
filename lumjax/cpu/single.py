"""The exponential functions that models use most, on float32 lanes: within 4 ulp."""

from __future__ import annotations

import math

from lumjax.cpu.emit import Function, Reg, constant
from lumjax.cpu.real import (
    add,
    choose,
    clamp,
    divide,
    fused,
    multiply,
    number,
    offset,
    polynomial,
    scale,
    signed,
    size,
    subtract,
    test,
)

_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # the first has 9 bits: its products are exact
_MAGIC = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, left in the low bits
_EXP_TAIL = (
    0.0013926926614021907, 0.008363773874405574, 0.04166655011030512, 0.16666573381900845, 0.5,
)  # fmt: skip
_ERF_NEAR = (  # erf(x)/x in x*x, for |x| < 0.95
    8.215423955443143e-05, -0.0008105965185370779, 0.005197797173733787, -0.026858104291623615,
    0.11283672545622682, -0.37612632285683299, 1.1283791664947858,
)  # fmt: skip
_ERF_FAR = (  # -log2(erfc(x))/x in x, for x in 0.95 to 4
    1.8147820156051764e-05, -0.0004852348656870994, 0.005334640759278562, -0.034450595939485004,
    0.1534646633241954, 0.9162098415109899, 1.6283252292132526,
)  # fmt: skip
_ERFCX = (  # (1 + 2a) erfc(a) e**(a*a) in (a - 2)/(a + 2), for a in 0 to 10.1
    -0.0004003397632906765, -0.0012295209668290678, 0.0013134813338300613, 0.008631348606325397,
    -0.008059933513558411, -0.05420421193090722, 0.1640553636343167, -0.16603143254625172,
    -0.09276398173881485, 1.2769783935666161,
)  # fmt: skip
_SCALEF = "llvm.x86.avx512.mask.scalef.ps"


def exp(f: Function, x: Reg) -> Reg:
    """e**x, denormal results, infinities and NaN included."""
    r, shifted = _reduced(f, clamp(f, x, -104.0, 89.0))
    return _scaled(f, offset(f, _less_one(f, r), 1.0), shifted)


def exp2(f: Function, x: Reg) -> Reg:
    """2**x, exact at whole numbers, denormal results, infinities and NaN included."""
    x = clamp(f, x, -151.0, 129.0)
    shifted = offset(f, x, _MAGIC)
    r = subtract(f, x, offset(f, shifted, -_MAGIC))
    r = scale(f, r, math.log(2))
    return _scaled(f, offset(f, _less_one(f, r), 1.0), shifted)


def _reduced(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """The parts of x = k log(2) + r with |r| <= log(2)/2: r, and k plus the magic number."""
    shifted = fused(f, x, number(x, 1 / math.log(2)), number(x, _MAGIC))
    whole = offset(f, shifted, -_MAGIC)
    r = fused(f, whole, number(x, -_LN2_HIGH), x)
    return fused(f, whole, number(x, -_LN2_LOW), r), shifted


def _scaled(f: Function, y: Reg, shifted: Reg) -> Reg:
    """The product y * 2**k for y near 1 and a whole k that is offset by the magic constant."""
    if f.module.scalef and y.lanes in (4, 8, 16):
        return _scalef(f, y, offset(f, shifted, -_MAGIC))
    # the scale is applied in two halves: neither overflows, and a denormal is rounded once
    lanes = y.lanes
    magic = constant("i32", 0x4B400000, lanes)
    n = f.binary("sub", f.convert("bitcast", shifted, "i32"), magic)
    first = f.binary("ashr", n, constant("i32", 1, lanes))
    for part in (first, f.binary("sub", n, first)):
        biased = f.binary("add", part, constant("i32", 127, lanes))
        power = f.binary("shl", biased, constant("i32", 23, lanes))
        y = multiply(f, y, f.convert("bitcast", power, "float"))
    return y


def _less_one(f: Function, r: Reg) -> Reg:
    """e**r - 1 for |r| <= log(2)/2."""
    return fused(f, multiply(f, r, r), polynomial(f, r, _EXP_TAIL), r)


def _scalef(f: Function, y: Reg, k: Reg) -> Reg:
    """The product y * 2**k, rounded once, by one instruction."""
    lanes = y.lanes
    name, mask = f"{_SCALEF}.{32 * lanes}", Reg("-1", f"i{max(8, lanes)}")
    last = [Reg("4", "i32")] if lanes == 16 else []  # round as the machine is set to
    operands = [y, k, Reg("zeroinitializer", "float", lanes), mask, *last]
    f.module.declare(name, y.full, [o.full for o in operands])
    return Reg(f.pure(f"call {y.full} @{name}({', '.join(map(str, operands))})"), "float", lanes)


def _exponent(f: Function, shifted: Reg) -> Reg:
    """What a whole k that is offset by the magic constant adds to the bits of a float."""
    return f.binary("shl", f.convert("bitcast", shifted, "i32"), constant("i32", 23, shifted.lanes))


def logistic(f: Function, x: Reg) -> Reg:
    """1 / (1 + e**-x)."""
    small = exp(f, f.negate(size(f, x)))
    top = choose(f, test(f, "oge", x, 0.0), 1.0, small)
    return divide(f, top, offset(f, small, 1.0))


def tanh(f: Function, x: Reg) -> Reg:
    """The hyperbolic tangent, by e**2|x| - 1 = 2**k (e**r - 1) + (2**k - 1)."""
    a = _at_most(f, size(f, x), 10.0)
    shifted = fused(f, a, number(x, 2 / math.log(2)), number(x, _MAGIC))
    whole = offset(f, shifted, -_MAGIC)
    r = fused(f, whole, number(x, -_LN2_HIGH), add(f, a, a))
    tail = _less_one(f, fused(f, whole, number(x, -_LN2_LOW), r))
    bits = f.binary("add", _exponent(f, shifted), constant("i32", 127 << 23, x.lanes))
    power = f.convert("bitcast", bits, "float")
    grown = fused(f, tail, power, offset(f, power, -1.0))
    return signed(f, divide(f, grown, offset(f, grown, 2.0)), x)


def erf(f: Function, x: Reg) -> Reg:
    """The error function."""
    a = _at_most(f, size(f, x), 4.0)
    near = multiply(f, a, polynomial(f, multiply(f, a, a), _ERF_NEAR))
    t = f.negate(multiply(f, a, polynomial(f, a, _ERF_FAR)))
    shifted = offset(f, t, _MAGIC)
    r = scale(f, subtract(f, t, offset(f, shifted, -_MAGIC)), math.log(2))
    rest = f.convert("bitcast", offset(f, _less_one(f, r), 1.0), "i32")
    rest = f.convert("bitcast", f.binary("add", rest, _exponent(f, shifted)), "float")
    far = subtract(f, number(x, 1.0), rest)
    return signed(f, choose(f, test(f, "olt", a, 0.95), near, far), x)


def erfc(f: Function, x: Reg) -> Reg:
    """1 - erf(x), accurate where it is small."""
    a = _at_most(f, size(f, x), 10.1)
    u = divide(f, number(x, 1.0), offset(f, a, 2.0))
    q = multiply(f, offset(f, a, -2.0), u)
    rest = fused(f, offset(f, q, 1.0), number(x, -2.0), a)  # with the next: a - 2 - q (a + 2)
    q = fused(f, u, fused(f, f.negate(a), q, rest), q)
    y = divide(f, polynomial(f, q, _ERFCX), fused(f, a, number(x, 2.0), number(x, 1.0)))
    square = multiply(f, a, a)
    lost = fused(f, a, a, f.negate(square))  # by rounding the square
    r, shifted = _reduced(f, f.negate(square))
    y = fused(f, y, _less_one(f, subtract(f, r, lost)), y)
    y = _scaled(f, y, shifted)
    return choose(f, test(f, "olt", x, 0.0), subtract(f, number(x, 2.0), y), y)


def _at_most(f: Function, x: Reg, high: float) -> Reg:
    """The smaller one; NaN stays NaN."""
    return choose(f, test(f, "ogt", x, high), high, x)
