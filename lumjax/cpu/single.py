"""The exponential functions that models use most, on float32 lanes: within 2.1 ulp."""

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
_TANH = (
    0.0022927448134928757, -0.008343945512944958, 0.02176891864989293, -0.05395925957700947,
    0.13333303556914372, -0.33333333172140334,
)  # fmt: skip


def exp(f: Function, x: Reg) -> Reg:
    """e**x, denormal results, infinities and NaN included."""
    x = clamp(f, x, -104.0, 89.0)
    shifted = fused(f, x, number(x, 1 / math.log(2)), number(x, _MAGIC))
    whole = offset(f, shifted, -_MAGIC)
    r = fused(f, whole, number(x, -_LN2_HIGH), x)
    return _power(f, fused(f, whole, number(x, -_LN2_LOW), r), shifted)


def exp2(f: Function, x: Reg) -> Reg:
    """2**x, exact at whole numbers, denormal results, infinities and NaN included."""
    x = clamp(f, x, -151.0, 129.0)
    shifted = offset(f, x, _MAGIC)
    r = subtract(f, x, offset(f, shifted, -_MAGIC))
    return _power(f, scale(f, r, math.log(2)), shifted)


def _power(f: Function, r: Reg, shifted: Reg) -> Reg:
    """e**r * 2**k for |r| <= log(2)/2 and a whole k that is offset by the magic constant."""
    y = offset(f, fused(f, multiply(f, r, r), polynomial(f, r, _EXP_TAIL), r), 1.0)
    # the scale is applied in two halves: neither overflows, and a denormal is rounded once
    lanes = r.lanes
    magic = constant("i32", 0x4B400000, lanes)
    n = f.binary("sub", f.convert("bitcast", shifted, "i32"), magic)
    first = f.binary("ashr", n, constant("i32", 1, lanes))
    for part in (first, f.binary("sub", n, first)):
        biased = f.binary("add", part, constant("i32", 127, lanes))
        power = f.binary("shl", biased, constant("i32", 23, lanes))
        y = multiply(f, y, f.convert("bitcast", power, "float"))
    return y


def logistic(f: Function, x: Reg) -> Reg:
    """1 / (1 + e**-x)."""
    small = exp(f, f.negate(size(f, x)))
    top = choose(f, test(f, "oge", x, 0.0), 1.0, small)
    return divide(f, top, offset(f, small, 1.0))


def tanh(f: Function, x: Reg) -> Reg:
    """The hyperbolic tangent."""
    a = size(f, x)
    z = multiply(f, a, a)
    near = fused(f, multiply(f, a, z), polynomial(f, z, _TANH), a)
    e = exp(f, add(f, a, a))
    far = subtract(f, number(x, 1.0), divide(f, number(x, 2.0), offset(f, e, 1.0)))
    return signed(f, choose(f, test(f, "olt", a, 0.625), near, far), x)
