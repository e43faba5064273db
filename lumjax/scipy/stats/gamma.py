"""The gamma distribution with shape a, from loc on, stretched by scale; arguments broadcast.

>>> round(float(cdf(1.0, 1.0)), 4)
0.6321
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.scipy.special import gammainc, gammaincc, gammaln, xlogy
from lumjax.scipy.stats.common import density, floats, logarithm

ArrayLike = Any


def logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The logarithm of the density; -inf below loc.

    >>> float(logpdf(2.0, 1.0))
    -2.0
    """
    x, a, loc, scale = floats(x, a, loc, scale)
    inside = x >= loc
    y = jnp.where(inside, (x - loc) / scale, 1)
    found = xlogy(a - 1, y) - y - gammaln(a) - jnp.log(scale)
    return jnp.where(inside, found, -np.inf)


def cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The probability of at most x."""
    x, a, loc, scale = floats(x, a, loc, scale)
    return gammainc(a, jnp.maximum((x - loc) / scale, 0))


def sf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The probability of more than x."""
    x, a, loc, scale = floats(x, a, loc, scale)
    return gammaincc(a, jnp.maximum((x - loc) / scale, 0))


pdf = density(logpdf)
logcdf = logarithm(cdf)
logsf = logarithm(sf, "logsf")
