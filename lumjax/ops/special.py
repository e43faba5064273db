"""Special functions: the error functions, the log-gamma function and its derivative."""

from __future__ import annotations

import math

import numpy as np

from lumjax import dtype as dt
from lumjax.ops import numerics
from lumjax.ops.arithmetic import abs, div, floor, recip, sqrt, square
from lumjax.ops.compare import eq, lt
from lumjax.ops.elementwise import (
    add,
    cast,
    constant,
    mul,
    neg,
    select,
    sin,
    sub,
    unary,
)
from lumjax.ops.record import (
    FLOATS,
    widened,
)
from lumjax.ops.transcendental import exp, log, log1p, polynomial, tan
from lumjax.trace.core import Value, aval_of
from lumjax.trace.form import Expand

# ---- error functions

_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
    0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip


def _expand_erfc(x: Value) -> Value:
    """Chebyshev fit of Press et al., relative error 1.2e-7 everywhere."""
    size = abs(x)
    t = recip(add(constant(1, x), mul(constant(0.5, x), size)))
    upper = mul(t, exp(sub(polynomial(_ERFC, t), square(x))))
    return select(lt(x, constant(0, x)), sub(constant(2, x), upper), upper)


def _erf_slope(t: Value, x: Value, sign: float) -> Value:
    return mul(t, mul(constant(sign * 2 / math.sqrt(math.pi), x), exp(neg(square(x)))))


erf_p, erf = unary(
    "erf", widened(lambda x: numerics.special().erf(x)), FLOATS, "The error function.",
    tangent=lambda t, x, _: _erf_slope(t, x, 1.0),
    expand=lambda x: sub(constant(1, x), _expand_erfc(x)), flops=30,
)  # fmt: skip
erfc_p, erfc = unary(
    "erfc", numerics.erfc, FLOATS, "1 - erf(x), accurate for large x.",
    tangent=lambda t, x, _: _erf_slope(t, x, -1.0), expand=_expand_erfc, flops=40,
)  # fmt: skip


def _expand_erf_inv(x: Value) -> Value:
    """`numerics.erf_inv` in primitives: one polynomial per range of w = -log(1 - x*x)."""
    dtype = aval_of(x).dtype
    if dtype.itemsize == 2:
        return cast(_expand_erf_inv(cast(x, dt.float32)), dtype)
    tables, steps, shifts = numerics.erf_inv_tables(dtype)
    w = neg(log1p(mul(x, neg(x))))
    root = sqrt(w)
    factor = polynomial(tables[-1], sub(root, constant(shifts[-1], x)))
    for k in range(len(steps) - 1, -1, -1):
        argument = sub(root if k else w, constant(shifts[k], x))
        factor = select(lt(w, constant(steps[k], x)), polynomial(tables[k], argument), factor)
    edge = eq(abs(x), constant(1, x))
    return select(edge, mul(x, constant(np.inf, x)), mul(factor, x))


erf_inv_p, erf_inv = unary(
    "erf_inv", numerics.erf_inv, FLOATS,
    "The inverse error function, by the polynomials that JAX uses (see `numerics.erf_inv`).",
    tangent=lambda t, x, out: mul(
        t, mul(constant(math.sqrt(math.pi) / 2, x), exp(square(out)))
    ),
    expand=_expand_erf_inv, form=Expand(), flops=60, domain=(-0.95, 0.95),
)  # fmt: skip

# ---- gamma functions

_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)  # fmt: skip
_SHIFT = 8  # the asymptotic series below are used from here on


def _expand_lgamma(x: Value) -> Value:
    """Lanczos' series (g = 7, n = 9), reflected for x < 1/2."""
    one = constant(1, x)
    reflected = lt(x, constant(0.5, x))
    z = select(reflected, neg(x), sub(x, one))
    series = constant(_LANCZOS[0], x)
    for k, c in enumerate(_LANCZOS[1:], start=1):
        series = add(series, div(constant(c, x), add(z, constant(k, x))))
    t = add(z, constant(7.5, x))
    right = add(
        sub(mul(add(z, constant(0.5, x)), log(t)), t),
        add(log(series), constant(0.5 * math.log(2 * math.pi), x)),
    )
    slope = abs(sin(mul(constant(math.pi, x), sub(x, floor(x)))))
    left = sub(sub(constant(math.log(math.pi), x), log(slope)), right)
    return select(reflected, left, right)


def _reflect(x: Value) -> tuple[Value, Value]:
    """Whether x is left of 1/2, and the point, x or 1 - x, at which the series is evaluated."""
    reflected = lt(x, constant(0.5, x))
    return reflected, select(reflected, sub(constant(1, x), x), x)


def _expand_digamma(x: Value) -> Value:
    """Eight steps of the recurrence, then the asymptotic series."""
    reflected, z = _reflect(x)
    total = constant(0, x)
    for k in range(_SHIFT):
        total = sub(total, recip(add(z, constant(k, x))))
    z = add(z, constant(_SHIFT, x))
    w = recip(square(z))
    terms = (-3617 / 8160, 1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
    series = mul(w, polynomial(terms, w))
    right = add(total, sub(sub(log(z), div(constant(0.5, x), z)), series))
    pi = constant(math.pi, x)
    left = sub(right, div(pi, tan(mul(pi, sub(x, floor(x))))))
    return select(reflected, left, right)


def trigamma(x: Value) -> Value:
    """The second derivative of lgamma: recurrence, then asymptotic series; in float32 for 16-bit
    floats.
    """
    dtype = aval_of(x).dtype
    if dtype.itemsize == 2:
        return cast(trigamma(cast(x, np.float32)), dtype)
    reflected, z = _reflect(x)
    total = constant(0, x)
    for k in range(_SHIFT):
        total = add(total, recip(square(add(z, constant(k, x)))))
    z = add(z, constant(_SHIFT, x))
    w = recip(square(z))
    terms = (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)
    series = add(recip(z), mul(w, constant(0.5, x)))
    right = add(total, add(series, mul(mul(w, recip(z)), polynomial(terms, w))))
    pi = constant(math.pi, x)
    left = sub(square(div(pi, sin(mul(pi, sub(x, floor(x)))))), right)
    return select(reflected, left, right)


lgamma_p, lgamma = unary(
    "lgamma", widened(numerics.log_gamma), FLOATS, "log(abs(gamma(x))).",
    tangent=lambda t, x, _: mul(t, digamma(x)), expand=_expand_lgamma,
    flops=80, domain=(0.3, 6.0),
)  # fmt: skip
digamma_p, digamma = unary(
    "digamma", widened(numerics.digamma), FLOATS, "The derivative of lgamma; NaN at its poles.",
    tangent=lambda t, x, _: mul(t, trigamma(x)), expand=_expand_digamma,
    flops=80, domain=(0.3, 6.0),
)  # fmt: skip
