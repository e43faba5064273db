"""The Dirichlet distribution with concentrations alpha.

>>> import lumjax.numpy as jnp
>>> round(float(pdf(jnp.array([0.5, 0.5]), jnp.array([2.0, 2.0]))), 4)
1.5
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.errors import ShapeError
from lumjax.scipy.special import gammaln, xlogy
from lumjax.scipy.stats.common import density, floats

ArrayLike = Any


def logpdf(x: ArrayLike, alpha: ArrayLike) -> Any:
    """The logarithm of the density; -inf for points off the simplex.

    Shapes: (K, ...) or (K - 1, ...), which leaves out the last coordinate, and (K,) -> (...).
    """
    x, alpha = floats(x, alpha)
    size = jnp.shape(alpha)[0] if jnp.ndim(alpha) == 1 else -1
    if jnp.ndim(x) < 1 or jnp.shape(x)[0] not in (size, size - 1):
        raise ShapeError(
            operation="scipy.stats.dirichlet.logpdf",
            required="K concentrations, and points with K or K - 1 coordinates along axis 0",
            got=f"{jnp.shape(x)} and {jnp.shape(alpha)}",
            fix="put the coordinates first",
        )
    if jnp.shape(x)[0] != size:
        x = jnp.concatenate([x, 1 - jnp.sum(x, axis=0, keepdims=True)])
    column = jnp.reshape(alpha, (size,) + (1,) * (jnp.ndim(x) - 1))
    norm = jnp.sum(gammaln(alpha)) - gammaln(jnp.sum(alpha))
    found = jnp.sum(xlogy(column - 1, x), axis=0) - norm
    close = jnp.finfo(jnp.result_type(x)).eps * 10
    on = jnp.all(x > 0, axis=0) & (jnp.abs(jnp.sum(x, axis=0) - 1) < close)
    return jnp.where(on, found, -np.inf)


pdf = density(logpdf)
