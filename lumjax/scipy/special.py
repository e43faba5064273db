"""Special functions under scipy's names.

>>> from lumjax.scipy.special import gammaln
>>> float(gammaln(3.0)) == float(np.log(np.float32(2)))
True
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import nn, ops
from lumjax import numpy as jnp
from lumjax.errors import ArgumentValueError
from lumjax.nn import logsumexp, sigmoid
from lumjax.trace.core import aval_of
from lumjax.typing import ArrayLike

__all__ = [
    "beta",
    "betainc",
    "betaln",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "exp1",
    "expi",
    "expit",
    "expn",
    "factorial",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "poch",
    "polygamma",
    "rel_entr",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]


def _float(x: ArrayLike) -> Any:
    value = jnp.asarray(x)
    aval = aval_of(value)
    return value if dt.is_inexact(aval.dtype) else ops.cast(value, np.float64, weak=aval.weak)


def softmax(x: ArrayLike, /, *, axis: Any = None) -> Any:
    """exp(x) / sum(exp(x)), over all elements by default."""
    return nn.softmax(_float(x), axis=axis)


def log_softmax(x: ArrayLike, /, *, axis: Any = None) -> Any:
    """The logarithm of `softmax`."""
    return nn.log_softmax(_float(x), axis=axis)


def gammaln(x: ArrayLike) -> Any:
    """log(|gamma(x)|)."""
    return ops.lgamma(_float(x))


def digamma(x: ArrayLike) -> Any:
    """The derivative of gammaln."""
    return ops.digamma(_float(x))


def erf(x: ArrayLike) -> Any:
    """The error function.

    >>> erf(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return ops.erf(_float(x))


def erfc(x: ArrayLike) -> Any:
    """1 - erf(x), accurate for large x."""
    return ops.erfc(_float(x))


def erfinv(x: ArrayLike) -> Any:
    """The inverse error function."""
    return ops.erf_inv(_float(x))


expit = sigmoid


def logit(x: ArrayLike) -> Any:
    """log(x / (1 - x)), the inverse of expit."""
    value = _float(x)
    return jnp.log(value / (1 - value))


def xlogy(x: ArrayLike, y: ArrayLike) -> Any:
    """`x` * log(y), 0 where x is 0.

    >>> xlogy(0.0, 0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    a, b = ops.promote_values(_float(x), _float(y))
    zero = a == 0
    return jnp.where(zero, jnp.zeros_like(a), a * jnp.log(jnp.where(zero, 1, b)))


def xlog1py(x: ArrayLike, y: ArrayLike) -> Any:
    """`x` * log1p(y), 0 where x is 0."""
    a, b = ops.promote_values(_float(x), _float(y))
    zero = a == 0
    return jnp.where(zero, jnp.zeros_like(a), a * jnp.log1p(jnp.where(zero, 0, b)))


def entr(x: ArrayLike) -> Any:
    """The entropy term -x * log(x); 0 at 0, -inf below."""
    value = _float(x)
    return jnp.where(value < 0, -jnp.inf, -xlogy(value, value))


def ndtr(x: ArrayLike) -> Any:
    """The standard normal distribution function."""
    value = _float(x)
    half = float(np.sqrt(0.5))
    scaled = value * half
    size = jnp.abs(scaled)
    tail = jnp.where(scaled > 0, 2 - ops.erfc(size), ops.erfc(size))
    return 0.5 * jnp.where(size < half, 1 + ops.erf(scaled), tail)


def log_ndtr(x: ArrayLike) -> Any:
    """log(ndtr(x)), by an asymptotic series far to the left."""
    value = _float(x)
    dtype = value.dtype
    lower = -20.0 if dt.canonicalize(dtype) == dt.float64 else -10.0
    upper = 8.0 if dt.canonicalize(dtype) == dt.float64 else 5.0
    middle = jnp.log(ndtr(jnp.maximum(value, lower)))
    far = jnp.minimum(value, lower)
    series = sum(sign / far ** (2 * k) for k, sign in ((0, 1.0), (1, -1.0), (2, 3.0), (3, -15.0)))
    left = -0.5 * far * far - jnp.log(-far) - 0.5 * float(np.log(2 * np.pi)) + jnp.log(series)
    return jnp.where(value > upper, -ndtr(-value), jnp.where(value > lower, middle, left))


# ---- gamma and beta


def gammasgn(x: ArrayLike) -> Any:
    """The sign of the gamma function; NaN at its poles.

    >>> gammasgn(jnp.array([0.5, -0.5])).tolist()
    [1.0, -1.0]
    """
    value = _float(x)
    floor = jnp.floor(value)
    sign = jnp.where((value > 0) | (floor % 2 == 0), 1.0, -1.0)
    sign = jnp.where((value < 0) & (value == floor), jnp.nan, sign)
    zero = jnp.where(jnp.signbit(value), -1.0, 1.0)
    out = jnp.where(value == 0, zero, jnp.where(value == -jnp.inf, jnp.nan, sign))
    return jnp.astype(out, aval_of(value).dtype)


def gamma(x: ArrayLike) -> Any:
    """The gamma function.

    >>> round(float(gamma(5.0)))
    24
    """
    return gammasgn(x) * jnp.exp(gammaln(x))


def factorial(n: ArrayLike, exact: bool = False) -> Any:
    """N! as a float; 0 for negative n."""
    if exact:
        raise ArgumentValueError(
            operation="scipy.special.factorial",
            required="exact=False",
            got="exact=True",
            fix="use math.factorial for exact integers",
        )
    value = _float(n)
    return jnp.where(value < 0, 0, jnp.exp(gammaln(value + 1)))


def betaln(a: ArrayLike, b: ArrayLike) -> Any:
    """log(|beta(a, b)|)."""
    x, y = ops.promote_values(_float(a), _float(b))
    return gammaln(x) + gammaln(y) - gammaln(x + y)


def beta(a: ArrayLike, b: ArrayLike) -> Any:
    """The beta function.

    >>> round(float(beta(2.0, 2.0)), 4)
    0.1667
    """
    x, y = ops.promote_values(_float(a), _float(b))
    return gammasgn(x) * gammasgn(y) * gammasgn(x + y) * jnp.exp(betaln(x, y))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Any:
    """The regularised incomplete beta function; differentiable in x."""
    return ops.betainc(*ops.promote_values(_float(a), _float(b), _float(x)))


def gammainc(a: ArrayLike, x: ArrayLike) -> Any:
    """The regularised lower incomplete gamma function.

    >>> round(float(gammainc(1.0, 1.0)), 4)
    0.6321
    """
    return ops.igamma(*ops.promote_values(_float(a), _float(x)))


def gammaincc(a: ArrayLike, x: ArrayLike) -> Any:
    """The regularised upper incomplete gamma function, 1 - gammainc(a, x)."""
    return ops.igammac(*ops.promote_values(_float(a), _float(x)))


def multigammaln(a: ArrayLike, d: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension d."""
    value = _float(a)
    terms = [gammaln(value - k / 2) for k in range(d)]
    return sum(terms, d * (d - 1) / 4 * math.log(math.pi) + jnp.zeros_like(value))


def poch(z: ArrayLike, m: ArrayLike) -> Any:
    """The rising factorial gamma(z + m) / gamma(z)."""
    x, y = ops.promote_values(_float(z), _float(m))
    size = jnp.exp(gammaln(x + y) - gammaln(x))
    return jnp.where(y == 0, 1, gammasgn(x + y) * gammasgn(x) * size)


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Any:
    """Hurwitz' zeta function, Riemann's without q; differentiable in q."""
    if q is None:
        raise ArgumentValueError(
            operation="scipy.special.zeta",
            required="q",
            got="None",
            fix="pass q=1 for Riemann's zeta function",
        )
    return ops.zeta(*ops.promote_values(_float(x), _float(q)))


def polygamma(n: ArrayLike, x: ArrayLike) -> Any:
    """The n-th derivative of digamma; differentiable in x.

    >>> round(float(polygamma(1, 1.0)), 4)
    1.6449
    """
    order, value = ops.promote_values(_float(n), _float(x))
    shifted = jnp.where(order == 0, 1, order) + 1
    sign = jnp.where(order % 2 == 0, -1.0, 1.0)
    high = sign * jnp.exp(gammaln(shifted)) * ops.zeta(shifted, value)
    return jnp.where(order == 0, digamma(value), high)


# ---- normal distribution


def ndtri(p: ArrayLike) -> Any:
    """The quantile of the standard normal distribution, the inverse of ndtr.

    >>> float(ndtri(0.5))
    0.0
    """
    value = _float(p)
    root = np.asarray(math.sqrt(2), aval_of(value).dtype)
    inside = ops.erf_inv(2 * jnp.clip(value, 0, 1) - 1) * root
    return jnp.where((value < 0) | (value > 1), jnp.nan, inside)


# ---- entropies


def rel_entr(p: ArrayLike, q: ArrayLike) -> Any:
    """The relative entropy term p * log(p / q)."""
    x, y = ops.promote_values(_float(p), _float(q))
    both = (x > 0) & (y > 0)
    value = xlogy(jnp.where(both, x, 1), jnp.where(both, x, 1)) - xlogy(
        jnp.where(both, x, 1), jnp.where(both, y, 1)
    )
    return jnp.where(both, value, jnp.where((x == 0) & (y >= 0), 0, jnp.inf))


def kl_div(p: ArrayLike, q: ArrayLike) -> Any:
    """The Kullback-Leibler term p * log(p / q) - p + q."""
    x, y = ops.promote_values(_float(p), _float(q))
    return rel_entr(x, y) - x + y


# ---- Bessel functions


def i0e(x: ArrayLike) -> Any:
    """exp(-|x|) times the modified Bessel function of order 0."""
    return ops.bessel_i0e(_float(x))


def i0(x: ArrayLike) -> Any:
    """The modified Bessel function of order 0.

    >>> float(i0(0.0))
    1.0
    """
    value = _float(x)
    return jnp.exp(jnp.abs(value)) * ops.bessel_i0e(value)


def i1e(x: ArrayLike) -> Any:
    """exp(-|x|) times the modified Bessel function of order 1."""
    return ops.bessel_i1e(_float(x))


def i1(x: ArrayLike) -> Any:
    """The modified Bessel function of order 1."""
    value = _float(x)
    return jnp.exp(jnp.abs(value)) * ops.bessel_i1e(value)


# ---- exponential integrals


def expn(n: ArrayLike, x: ArrayLike) -> Any:
    """The exponential integral of order n, the integral of exp(-x t) / t^n from 1 on.

    Differentiable in x.
    """
    return ops.expn(*ops.promote_values(_float(n), _float(x)))


def exp1(x: ArrayLike) -> Any:
    """The exponential integral of order 1.

    >>> round(float(exp1(1.0)), 4)
    0.2194
    """
    value = _float(x)
    return expn(jnp.ones_like(value), value)


def expi(x: ArrayLike) -> Any:
    """The exponential integral Ei, the integral of exp(t) / t from -inf to x.

    >>> round(float(expi(1.0)), 4)
    1.8951
    """
    return ops.expi(_float(x))
