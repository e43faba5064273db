"""The beta distribution with shapes a and b on [loc, loc + scale]; arguments broadcast.

>>> round(float(cdf(0.5, 2.0, 2.0)), 4)
0.5
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.scipy.special import betainc, betaln, xlog1py, xlogy
from lumjax.scipy.stats.common import density, floats, logarithm

ArrayLike = Any


def logpdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Any:
    """The logarithm of the density; -inf outside of the support.

    >>> round(float(logpdf(0.5, 2.0, 2.0)), 4)
    0.4055
    """
    x, a, b, loc, scale = floats(x, a, b, loc, scale)
    y = (x - loc) / scale
    inside = (y >= 0) & (y <= 1)
    safe = jnp.where(inside, y, 0.5)
    shape = xlogy(a - 1, safe) + xlog1py(b - 1, -safe)
    return jnp.where(inside, shape - betaln(a, b) - jnp.log(scale), -np.inf)


def cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The probability of at most x."""
    x, a, b, loc, scale = floats(x, a, b, loc, scale)
    return betainc(a, b, jnp.clip((x - loc) / scale, 0, 1))


def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The probability of more than x."""
    x, a, b, loc, scale = floats(x, a, b, loc, scale)
    return betainc(b, a, 1 - jnp.clip((x - loc) / scale, 0, 1))


pdf = density(logpdf)
logcdf = logarithm(cdf)
logsf = logarithm(sf, "logsf")
