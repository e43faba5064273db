"""Student's t distribution with df degrees of freedom; arguments broadcast.

>>> round(float(pdf(0.0, 1.0)), 4)
0.3183
"""

from __future__ import annotations

import math
from typing import Any

from lumjax import numpy as jnp
from lumjax.scipy.special import betainc, gammaln
from lumjax.scipy.stats.common import density, floats, logarithm

ArrayLike = Any


def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The logarithm of the density."""
    x, df, loc, scale = floats(x, df, loc, scale)
    y = (x - loc) / scale
    norm = gammaln(df / 2) + jnp.log(math.pi * df * scale * scale) / 2 - gammaln((df + 1) / 2)
    return -(norm + (df + 1) / 2 * jnp.log1p(y * y / df))


def cdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The probability of at most x; differentiable in all but df.

    >>> round(float(cdf(1.0, 1.0)), 4)
    0.75
    """
    x, df, loc, scale = floats(x, df, loc, scale)
    y = (x - loc) / scale
    square = y * y
    # The smaller of the two arguments that sum to 1 keeps its digits.
    near = square < df
    centre = betainc(0.5, df / 2, jnp.where(near, square / (df + square), 0.5)) / 2
    tail = betainc(df / 2, 0.5, jnp.where(near, 0.5, df / (df + square))) / 2
    above = jnp.where(near, 0.5 + centre, 1 - tail)
    below = jnp.where(near, 0.5 - centre, tail)
    return jnp.where(y > 0, above, below)


def sf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The probability of more than x; differentiable in all but df."""
    x, df, loc, scale = floats(x, df, loc, scale)
    return cdf(2 * loc - x, df, loc, scale)


pdf = density(logpdf)
logcdf = logarithm(cdf)
logsf = logarithm(sf, "logsf")
