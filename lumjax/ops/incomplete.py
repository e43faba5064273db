"""Incomplete gamma and beta functions, zeta, Bessel functions, exponential integrals: by SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax.errors import GradientError
from lumjax.ops import numerics
from lumjax.ops.arithmetic import abs, div, recip, sign
from lumjax.ops.checks import Jvp, NDArray
from lumjax.ops.compare import eq, lt
from lumjax.ops.elementwise import (
    add,
    binary,
    broadcast_values,
    constant,
    elementwise,
    mul,
    neg,
    promote_values,
    select,
    sub,
    unary,
)
from lumjax.ops.record import FLOATS, widened
from lumjax.ops.special import lgamma
from lumjax.ops.transcendental import exp, log, log1p
from lumjax.trace.core import Value, aval_of
from lumjax.trace.form import Opaque

_SCIPY = Opaque("evaluated by SciPy")
_STEPS = 2000  # of the series below; they stop when nothing changes


def _refused(name: str, what: str) -> Callable[..., Any]:
    def tangent(*_: Any, **__: Any) -> Any:
        raise GradientError(
            operation=f"the derivative of {name}",
            required=f"no derivative with respect to {what}: it has no closed form",
            got="a tangent there",
            fix="hold it constant with lax.stop_gradient",
        )

    return tangent


def _no_jvp(name: str) -> Callable[..., Jvp]:
    return _refused(name, "its arguments")


# ---- derivatives in a: the series and the continued fraction, differentiated term by term


def _series(a: NDArray, x: NDArray) -> tuple[NDArray, NDArray]:
    """S and dS/da with P(a, x) = x^a e^-x / gamma(a + 1) S."""
    r, c, total = a.copy(), np.ones_like(a), np.ones_like(a)
    slope, change = np.zeros_like(a), np.zeros_like(a)
    for _ in range(_STEPS):
        r += 1
        ratio = x / r
        change = change * ratio - c * x / (r * r)
        slope = slope + change
        c = c * ratio
        total = total + c
        if np.all((np.abs(c) <= 1e-17 * total) & (np.abs(change) <= 1e-17 * np.abs(slope))):
            break
    return total, slope


def _fraction(a: NDArray, x: NDArray) -> tuple[NDArray, NDArray]:
    """F and dF/da with Q(a, x) = x^a e^-x / gamma(a) F (Cephes' continued fraction)."""
    y, z = 1 - a, x + 2 - a
    p2, q2, p1, q1 = np.ones_like(a), x, x + 1, z * x
    dp2, dq2, dp1, dq1 = np.zeros_like(a), np.zeros_like(a), np.zeros_like(a), -x
    total = p1 / q1
    slope = (dp1 - total * dq1) / q1
    for c in range(1, _STEPS):
        y, z = y + 1, z + 2
        yc = y * c
        p, q = p1 * z - p2 * yc, q1 * z - q2 * yc
        dp = dp1 * z - p1 - dp2 * yc + p2 * c
        dq = dq1 * z - q1 - dq2 * yc + q2 * c
        safe = np.where(q != 0, q, 1)
        old, total = total, np.where(q != 0, p / safe, total)
        before, slope = slope, np.where(q != 0, (dp - total * dq) / safe, slope)
        small = np.where(np.abs(p) > 1e15, 1e-15, 1.0)
        p2, p1, q2, q1 = p1 * small, p * small, q1 * small, q * small
        dp2, dp1, dq2, dq1 = dp1 * small, dp * small, dq1 * small, dq * small
        quiet = np.abs(old - total) <= 1e-16 * np.abs(total)
        if np.all(quiet & (np.abs(before - slope) <= 1e-15 * np.abs(slope))):
            break
    return total, slope


def _by_region(
    a: NDArray, x: NDArray, low: Callable[..., NDArray], high: Callable[..., NDArray]
) -> NDArray:
    """`low` where the series converges fast, `high` where the continued fraction does."""
    a, x = np.broadcast_arrays(a, x)
    out = np.full(a.shape, np.nan)
    right = (x >= 0) & (a > 0)
    upper = right & (x > 1) & (x > a) & np.isfinite(x)
    lower = right & ~upper & (x > 0) & np.isfinite(x)
    out[lower] = low(a[lower], x[lower])
    out[upper] = high(a[upper], x[upper])
    out[right & ((x == 0) | np.isinf(x))] = 0
    return out


def _weight(a: NDArray, x: NDArray) -> NDArray:
    return np.exp(a * np.log(x) - x - numerics.special().gammaln(a))


@widened
def _grad_a(a: NDArray, x: NDArray) -> NDArray:
    digamma = numerics.special().digamma

    def low(a: NDArray, x: NDArray) -> NDArray:
        total, slope = _series(a, x)
        return _weight(a, x) / a * ((np.log(x) - digamma(a + 1)) * total + slope)

    def high(a: NDArray, x: NDArray) -> NDArray:
        total, slope = _fraction(a, x)
        return -_weight(a, x) * ((np.log(x) - digamma(a)) * total + slope)

    return _by_region(a, x, low, high)


@widened
def _sample_grad(a: NDArray, x: NDArray) -> NDArray:
    """dx/da on P(a, x) = constant. The weight x^a e^-x cancels, so nothing underflows."""
    digamma = numerics.special().digamma

    def low(a: NDArray, x: NDArray) -> NDArray:
        total, slope = _series(a, x)
        return -(slope + total * (np.log(x) - digamma(a + 1))) * x / a

    def high(a: NDArray, x: NDArray) -> NDArray:
        total, slope = _fraction(a, x)
        return (slope + total * (np.log(x) - digamma(a))) * x

    return _by_region(a, x, low, high)


# ---- gamma


def _density(a: Value, x: Value) -> Value:
    """x^(a-1) e^-x / gamma(a)."""
    one = constant(1, a)
    return exp(sub(sub(mul(sub(a, one), log(x)), x), lgamma(a)))


_POSITIVE = (0.4, 4.0)

igamma_grad_a_p, igamma_grad_a = binary(
    "igamma_grad_a", _grad_a, FLOATS, "The derivative of igamma(a, x) in a.",
    jvp=_no_jvp("igamma_grad_a"), form=_SCIPY, flops=200, domain=_POSITIVE,
)  # fmt: skip
random_gamma_grad_p, random_gamma_grad = binary(
    "random_gamma_grad", _sample_grad, FLOATS,
    "How a sample x of the gamma distribution moves with its parameter a.",
    jvp=_no_jvp("random_gamma_grad"), form=_SCIPY, flops=200, domain=_POSITIVE,
)  # fmt: skip
igamma_p, igamma = binary(
    "igamma", widened(lambda a, x: numerics.special().gammainc(a, x)), FLOATS,
    "The regularised lower incomplete gamma function P(a, x).",
    tangents=(
        lambda t, a, x, out: mul(t, igamma_grad_a(a, x)),
        lambda t, a, x, out: mul(t, _density(a, x)),
    ),
    form=_SCIPY, flops=100, domain=_POSITIVE,
)  # fmt: skip
igammac_p, igammac = binary(
    "igammac", widened(lambda a, x: numerics.special().gammaincc(a, x)), FLOATS,
    "The regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x).",
    tangents=(
        lambda t, a, x, out: neg(mul(t, igamma_grad_a(a, x))),
        lambda t, a, x, out: neg(mul(t, _density(a, x))),
    ),
    form=_SCIPY, flops=100, domain=_POSITIVE,
)  # fmt: skip


@widened
def _zeta(x: NDArray, q: NDArray) -> NDArray:
    """SciPy leaves out what is left of 0, where q is no integer and x an even one."""
    out = numerics.special().zeta(x, q)
    return np.where(x == 1, np.inf, np.where(x < 1, np.nan, out))


zeta_p, zeta = binary(
    "zeta", _zeta, FLOATS, "Hurwitz' zeta function: the sum of (k + q)^-x over k >= 0, x > 1.",
    tangents=(
        _refused("zeta", "its exponent"),
        lambda t, x, q, out: mul(t, neg(mul(x, zeta(add(x, constant(1, x)), q)))),
    ),
    form=_SCIPY, flops=100, domain=(1.4, 4.0),
)  # fmt: skip


# ---- beta


def _log_beta(a: Value, b: Value) -> Value:
    return sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))


def _beta_density(t: Value, a: Value, b: Value, x: Value, out: Value) -> Value:
    one = constant(1, x)
    exponent = add(mul(sub(b, one), log1p(neg(x))), mul(sub(a, one), log(x)))
    return mul(t, exp(sub(exponent, _log_beta(a, b))))


regularized_incomplete_beta_p = elementwise(
    "regularized_incomplete_beta", 3,
    widened(lambda a, b, x: numerics.special().betainc(a, b, x)), FLOATS,
    tangents=(_refused("betainc", "a"), _refused("betainc", "b"), _beta_density),
    form=_SCIPY, flops=150, domain=(0.3, 0.8),
)  # fmt: skip


def betainc(a: Value, b: Value, x: Value) -> Value:
    """The regularised incomplete beta function; differentiable in x.

    >>> round(float(betainc(2.0, 3.0, 0.5)), 4)
    0.6875
    """
    values = broadcast_values(*promote_values(a, b, x, operation="betainc"), operation="betainc")
    FLOATS.check("betainc", aval_of(values[0]))
    return regularized_incomplete_beta_p.bind(*values)[0]


# ---- exponential integrals


def _expn_slope(t: Value, n: Value, x: Value, out: Value) -> Value:
    one = constant(1, x)
    lower = div(mul(exp(neg(x)), add(one, recip(x))), x)  # -E_0' at n = 0
    first = eq(n, constant(0, n))
    return neg(mul(t, select(first, lower, expn(select(first, one, sub(n, one)), x))))


expn_p, expn = binary(
    "expn", widened(lambda n, x: numerics.special().expn(n, x)), FLOATS,
    "The exponential integral of whole order n.",
    tangents=(_refused("expn", "its order"), _expn_slope), form=_SCIPY, flops=60,
    domain=(1.0, 1.0),
)  # fmt: skip
expi_p, expi = unary(
    "expi", widened(lambda x: numerics.special().expi(x)), FLOATS,
    "The exponential integral Ei.",
    tangent=lambda t, x, out: mul(t, div(exp(x), x)), form=_SCIPY, flops=60, domain=(0.5, 3.0),
)  # fmt: skip


# ---- Bessel functions


def _i0e_slope(t: Value, x: Value, out: Value) -> Value:
    return mul(t, sub(bessel_i1e(x), mul(sign(x), out)))


def _i1e_slope(t: Value, x: Value, out: Value) -> Value:
    """At 0 the quotient i1e(x) / x is 1/2."""
    small = constant(float(np.finfo(np.float32).eps), x)
    near = lt(abs(x), small)
    safe = select(near, small, x)
    slope = sub(bessel_i0e(safe), mul(out, add(sign(safe), div(constant(1, x), safe))))
    return mul(t, select(near, constant(0.5, x), slope))


bessel_i0e_p, bessel_i0e = unary(
    "bessel_i0e", widened(lambda x: numerics.special().i0e(x)), FLOATS,
    "exp(-|x|) times the modified Bessel function of order 0.",
    tangent=_i0e_slope, form=_SCIPY, flops=40,
)  # fmt: skip
bessel_i1e_p, bessel_i1e = unary(
    "bessel_i1e", widened(lambda x: numerics.special().i1e(x)), FLOATS,
    "exp(-|x|) times the modified Bessel function of order 1.",
    tangent=_i1e_slope, form=_SCIPY, flops=40,
)  # fmt: skip
