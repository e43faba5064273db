"""Special functions under scipy's names.

>>> from lumjax.scipy.special import gammaln
>>> float(gammaln(3.0)) == float(np.log(np.float32(2)))
True
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops
from lumjax.nn import logsumexp, sigmoid
from lumjax.typing import ArrayLike

__all__ = [
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "expit",
    "gammaln",
    "log_ndtr",
    "logit",
    "logsumexp",
    "ndtr",
    "xlog1py",
    "xlogy",
]


def _float(x: ArrayLike) -> Any:
    return jnp.asarray(x) * 1.0


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
