"""The Poisson distribution with mean mu, shifted by loc; arguments broadcast.

>>> round(float(pmf(0, 1.0)), 4)
0.3679
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.scipy.special import gammaincc, gammaln, xlogy
from lumjax.scipy.stats.common import composed, floats

ArrayLike = Any


def logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Any:
    """The logarithm of the probability of k; -inf where k is below loc or no whole number."""
    k, mu, loc = floats(k, mu, loc)
    x = k - loc
    possible = (x >= 0) & (x == jnp.floor(x))
    count = jnp.where(possible, x, 0)
    return jnp.where(possible, xlogy(count, mu) - gammaln(count + 1) - mu, -np.inf)


def cdf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Any:
    """The probability of at most k.

    >>> round(float(cdf(1, 1.0)), 4)
    0.7358
    """
    k, mu, loc = floats(k, mu, loc)
    x = jnp.floor(k - loc)
    return jnp.where(x < 0, 0, gammaincc(jnp.maximum(x, 0) + 1, mu))


pmf = composed(jnp.exp, logpmf, "pmf", "The probability of k.")
