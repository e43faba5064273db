"""The chi-squared distribution with df degrees of freedom; arguments broadcast.

>>> round(float(cdf(2.0, 2)), 4)
0.6321
"""

from __future__ import annotations

from typing import Any

from lumjax.scipy.stats import gamma
from lumjax.scipy.stats.common import density, floats, logarithm

ArrayLike = Any


def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The logarithm of the density; -inf below loc."""
    x, df, loc, scale = floats(x, df, loc, scale)
    return gamma.logpdf(x, df / 2, loc, scale * 2)


def cdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The probability of at most x."""
    x, df, loc, scale = floats(x, df, loc, scale)
    return gamma.cdf(x, df / 2, loc, scale * 2)


def sf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The probability of more than x."""
    x, df, loc, scale = floats(x, df, loc, scale)
    return gamma.sf(x, df / 2, loc, scale * 2)


pdf = density(logpdf)
logcdf = logarithm(cdf)
logsf = logarithm(sf, "logsf")
