"""Exponentials, logarithms, trigonometric and hyperbolic functions, and the error function.

Each is computed in float64 and rounded; its expansion in core primitives is a definition, not how
it is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lumjax import dtype as dt
from lumjax.ops import numerics
from lumjax.ops.arithmetic import abs, div, floor, recip, rsqrt, sign, sqrt, square
from lumjax.ops.compare import eq, gt, lt, ne
from lumjax.ops.elementwise import (
    add,
    binary,
    constant,
    cos,
    mul,
    neg,
    promote_values,
    select,
    sin,
    sub,
    unary,
)
from lumjax.ops.record import (
    FLOATS,
    INEXACT,
    INTEGERS,
    widened,
)
from lumjax.trace.core import Value, aval_of

# ---- exponentials and logarithms

exp2_p, exp2 = unary(
    "exp2", widened(np.exp2), INEXACT, "2**x, elementwise.",
    tangent=lambda t, x, out: mul(t, mul(constant(math.log(2), out), out)), flops=12,
)  # fmt: skip
log2_p, log2 = unary(
    "log2", widened(np.log2), INEXACT, "The logarithm to base 2.",
    tangent=lambda t, x, _: div(t, mul(constant(math.log(2), x), x)), flops=14, domain=(0.2, 4.0),
)  # fmt: skip
exp_p, exp = unary(
    "exp", widened(np.exp), INEXACT, "e**x, elementwise.",
    tangent=lambda t, x, out: mul(t, out),
    expand=lambda x: exp2(mul(x, constant(math.log2(math.e), x))), flops=12,
)  # fmt: skip
log_p, log = unary(
    "log", widened(np.log), INEXACT, "The natural logarithm.",
    tangent=lambda t, x, _: div(t, x),
    expand=lambda x: mul(log2(x), constant(math.log(2), x)), flops=14, domain=(0.2, 4.0),
)  # fmt: skip
expm1_p, expm1 = unary(
    "expm1", widened(np.expm1), INEXACT, "exp(x) - 1, accurate near 0.",
    tangent=lambda t, x, out: mul(t, add(out, constant(1, out))),
    expand=lambda x: sub(exp(x), constant(1, x)), flops=16,
)  # fmt: skip
log1p_p, log1p = unary(
    "log1p", widened(np.log1p), INEXACT, "log(1 + x), accurate near 0.",
    tangent=lambda t, x, _: div(t, add(x, constant(1, x))),
    expand=lambda x: log(add(x, constant(1, x))), flops=18, domain=(-0.8, 4.0),
)  # fmt: skip


def _logistic_expansion(x: Value) -> Value:
    return recip(add(constant(1, x), exp(neg(x))))


logistic_p, logistic = unary(
    "logistic", widened(numerics.logistic), INEXACT, "The sigmoid 1 / (1 + exp(-x)).",
    tangent=lambda t, x, out: mul(t, mul(out, sub(constant(1, out), out))),
    expand=_logistic_expansion, flops=18,
)  # fmt: skip


def _pow_base_tangent(t: Value, x: Value, y: Value, _: Value) -> Value:
    """Y * x**(y-1), and 0 where y is 0, at x = 0 too."""
    zero = eq(y, constant(0, y))
    return mul(t, select(zero, constant(0, x), mul(y, pow(x, sub(y, constant(1, y))))))


def _pow_exponent_tangent(t: Value, x: Value, y: Value, out: Value) -> Value:
    """log(x) * x**y, and 0 where x is 0."""
    safe = select(eq(x, constant(0, x)), constant(1, x), x)
    return mul(t, mul(log(safe), out))


def _expand_pow(x: Value, y: Value) -> Value:
    """2**(y log2 x), with the sign of odd powers of negative numbers; 1 where y is 0."""
    if dt.is_complex(aval_of(x).dtype):
        return exp2(mul(y, log2(x)))
    size = exp2(mul(y, log2(abs(x))))
    half = mul(y, constant(0.5, y))
    odd = ne(floor(half), half)
    signed = select(eq(floor(y), y), select(odd, neg(size), size), constant(math.nan, x))
    powers = select(lt(x, constant(0, x)), signed, size)
    return select(eq(y, constant(0, y)), constant(1, x), powers)


pow_p, _pow = binary(
    "pow", widened(np.power), INEXACT, "x**y, elementwise.",
    tangents=(_pow_base_tangent, _pow_exponent_tangent),
    expand=_expand_pow, flops=40, domain=(0.2, 2.5),
)  # fmt: skip
ipow_p, ipow = binary(
    "ipow", numerics.power, INTEGERS,
    "x**y of integers modulo 2**bits; a negative exponent truncates towards zero.",
    flops=40, domain=(0, 5),
)  # fmt: skip


def pow(x: Value, y: Value) -> Value:
    """x**y, elementwise, of floats, complex numbers or integers (see `ipow`)."""
    x, y = promote_values(x, y, operation="pow")
    return ipow(x, y) if dt.is_integer(aval_of(x).dtype) else _pow(x, y)


cbrt_p, cbrt = unary(
    "cbrt", widened(np.cbrt), FLOATS, "The real cube root.",
    tangent=lambda t, x, out: mul(t, mul(constant(1 / 3, x), recip(square(out)))),
    expand=lambda x: mul(sign(x), exp2(mul(log2(abs(x)), constant(1 / 3, x)))),
    flops=20, domain=(0.2, 4.0),
)  # fmt: skip

# ---- trigonometric functions


def _one_minus_square(x: Value) -> Value:
    """1 - x*x without cancellation near 1."""
    one = constant(1, x)
    return mul(sub(one, x), add(one, x))


def _acosh_tangent(t: Value, x: Value, _: Value) -> Value:
    """Two roots: that of the product x*x - 1 has the wrong sign left of the imaginary axis."""
    one = constant(1, x)
    return mul(t, mul(rsqrt(sub(x, one)), rsqrt(add(x, one))))


def _expand_atan(x: Value) -> Value:
    """Cephes' single-precision arctangent: two reductions of the range and an odd polynomial."""
    one = constant(1, x)
    if dt.is_complex(aval_of(x).dtype):  # (log(1 + ix) - log(1 - ix)) / 2i
        turned = mul(x, constant(1j, x))
        return mul(sub(log(add(one, turned)), log(sub(one, turned))), constant(-0.5j, x))
    size = abs(x)
    large, middle = (
        gt(size, constant(2.414213562373095, x)),
        gt(size, constant(0.4142135623730950, x)),
    )
    shifted = select(middle, div(sub(size, one), add(size, one)), size)
    inner = select(large, neg(recip(size)), shifted)
    offset = select(
        large, constant(math.pi / 2, x), select(middle, constant(math.pi / 4, x), mul(x, 0.0))
    )
    z = square(inner)
    terms = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
    series = add(inner, mul(mul(inner, z), polynomial(terms, z)))
    result = add(offset, series)
    return select(lt(x, constant(0, x)), neg(result), result)


def _expand_atan2(y: Value, x: Value) -> Value:
    """The arctangent of the slope, turned by half a circle left of the axis."""
    zero, half_turn = constant(0, x), constant(math.pi, x)
    base = atan(div(y, x))
    turned = select(lt(y, zero), sub(base, half_turn), add(base, half_turn))
    return select(lt(x, zero), turned, base)


def polynomial(coefficients: Sequence[float], x: Value) -> Value:
    """The polynomial with the given coefficients, highest power first, by Horner's rule."""
    total = constant(coefficients[0], x)
    for c in coefficients[1:]:
        total = add(mul(total, x), constant(c, x))
    return total


tan_p, tan = unary(
    "tan", widened(np.tan), INEXACT, "The tangent of x in radians.",
    tangent=lambda t, x, out: mul(t, add(constant(1, out), square(out))),
    expand=lambda x: div(sin(x), cos(x)), flops=30, domain=(-1.2, 1.2),
)  # fmt: skip
asin_p, asin = unary(
    "asin", widened(np.arcsin), INEXACT, "The inverse sine.",
    tangent=lambda t, x, _: mul(t, rsqrt(_one_minus_square(x))),
    expand=lambda x: atan(mul(x, rsqrt(_one_minus_square(x)))), flops=30, domain=(-0.9, 0.9),
)  # fmt: skip
acos_p, acos = unary(
    "acos", widened(np.arccos), INEXACT, "The inverse cosine.",
    tangent=lambda t, x, _: neg(mul(t, rsqrt(_one_minus_square(x)))),
    expand=lambda x: sub(constant(math.pi / 2, x), asin(x)), flops=30, domain=(-0.9, 0.9),
)  # fmt: skip
atan_p, atan = unary(
    "atan", widened(np.arctan), INEXACT, "The inverse tangent.",
    tangent=lambda t, x, _: div(t, add(constant(1, x), square(x))),
    expand=_expand_atan, flops=30, domain=(-4.0, 4.0),
)  # fmt: skip
atan2_p, atan2 = binary(
    "atan2", widened(np.arctan2), FLOATS,
    "The angle of the point (y, x): the first operand is the ordinate.",
    tangents=(
        lambda t, y, x, _: mul(t, div(x, add(square(y), square(x)))),
        lambda t, y, x, _: neg(mul(t, div(y, add(square(y), square(x))))),
    ),
    expand=_expand_atan2, flops=40,
)  # fmt: skip

# ---- hyperbolic functions

sinh_p, sinh = unary(
    "sinh", widened(np.sinh), INEXACT, "The hyperbolic sine.",
    tangent=lambda t, x, _: mul(t, cosh(x)),
    expand=lambda x: mul(constant(0.5, x), sub(exp(x), exp(neg(x)))), flops=30,
)  # fmt: skip
cosh_p, cosh = unary(
    "cosh", widened(np.cosh), INEXACT, "The hyperbolic cosine.",
    tangent=lambda t, x, _: mul(t, sinh(x)),
    expand=lambda x: mul(constant(0.5, x), add(exp(x), exp(neg(x)))), flops=30,
)  # fmt: skip
tanh_p, tanh = unary(
    "tanh", widened(np.tanh), INEXACT, "The hyperbolic tangent.",
    tangent=lambda t, x, out: mul(t, _one_minus_square(out)),
    expand=lambda x: sub(mul(constant(2, x), logistic(mul(constant(2, x), x))), constant(1, x)),
    flops=20,
)  # fmt: skip
asinh_p, asinh = unary(
    "asinh", widened(np.arcsinh), INEXACT, "The inverse hyperbolic sine.",
    tangent=lambda t, x, _: mul(t, rsqrt(add(square(x), constant(1, x)))),
    expand=lambda x: log(add(x, sqrt(add(square(x), constant(1, x))))), flops=30,
)  # fmt: skip
acosh_p, acosh = unary(
    "acosh", widened(np.arccosh), INEXACT, "The inverse hyperbolic cosine.",
    tangent=_acosh_tangent,
    expand=lambda x: log(add(x, sqrt(sub(square(x), constant(1, x))))), flops=30, domain=(1.2, 4.0),
)  # fmt: skip
atanh_p, atanh = unary(
    "atanh", widened(np.arctanh), INEXACT, "The inverse hyperbolic tangent.",
    tangent=lambda t, x, _: div(t, _one_minus_square(x)),
    expand=lambda x: mul(
        constant(0.5, x), log(div(add(constant(1, x), x), sub(constant(1, x), x)))
    ),
    flops=30, domain=(-0.9, 0.9),
)  # fmt: skip
