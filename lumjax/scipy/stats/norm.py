"""The normal distribution with mean `loc` and deviation `scale`; arguments broadcast.

>>> round(float(cdf(0.0)), 2)
0.5
"""

from __future__ import annotations

import math
from typing import Any

from lumjax import numpy as jnp
from lumjax.numpy.elementwise import as_floats
from lumjax.scipy import special
from lumjax.typing import ArrayLike


def _standard(x: ArrayLike, loc: ArrayLike, scale: ArrayLike) -> tuple[Any, Any]:
    value, middle, width = as_floats(x, loc, scale)
    return (value - middle) / width, width


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The logarithm of the density.

    >>> round(float(logpdf(0.0)), 4)
    -0.9189
    """
    value, middle, width = as_floats(x, loc, scale)
    square = width * width
    offset = jnp.log(2 * math.pi * square)
    distance = value - middle
    return (offset + distance * distance / square) / -2


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The density."""
    return jnp.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The probability of at most x."""
    return special.ndtr(_standard(x, loc, scale)[0])


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The logarithm of the probability of at most x."""
    return special.log_ndtr(_standard(x, loc, scale)[0])


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The probability of more than x."""
    return special.ndtr(-_standard(x, loc, scale)[0])


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The logarithm of the probability of more than x."""
    return special.log_ndtr(-_standard(x, loc, scale)[0])


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The quantile: x with cdf(x) = q."""
    return special.ndtri(q) * jnp.asarray(scale) + jnp.asarray(loc)


def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Any:
    """The x with sf(x) = q."""
    return ppf(1 - jnp.asarray(q), loc, scale)
