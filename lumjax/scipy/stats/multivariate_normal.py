"""The normal distribution of vectors with a mean and a covariance.

>>> import lumjax.numpy as jnp
>>> round(float(pdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2))), 4)
0.1592
"""

from __future__ import annotations

import math
from typing import Any

from lumjax import lax
from lumjax import numpy as jnp
from lumjax.errors import ShapeError, UnsupportedError
from lumjax.scipy.stats.common import density, floats

ArrayLike = Any


def logpdf(
    x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: bool | None = None
) -> Any:
    """The logarithm of the density.

    Shapes: (..., n), (..., n) and (..., n, n) or a number -> (...); or three numbers.
    """
    if allow_singular:
        raise UnsupportedError(
            operation="scipy.stats.multivariate_normal.logpdf",
            required="a covariance of full rank",
            got="allow_singular=True",
            fix="add a small multiple of the identity",
        )
    x, mean, cov = floats(x, mean, cov)
    if not jnp.ndim(mean):
        return (jnp.square(x - mean) / cov + jnp.log(2 * math.pi * cov)) / -2
    n, away = jnp.shape(mean)[-1], x - mean
    if not jnp.ndim(cov):
        square = jnp.sum(away * away, axis=-1) / cov
        return (square + n * jnp.log(2 * math.pi * cov)) / -2
    if jnp.ndim(cov) < 2 or jnp.shape(cov)[-2:] != (n, n):
        raise ShapeError(
            operation="scipy.stats.multivariate_normal.logpdf",
            required=f"a covariance of shape (..., {n}, {n})",
            got=str(jnp.shape(cov)),
            fix="pass the covariance of all pairs of coordinates",
        )
    factor = lax.linalg.cholesky(cov)
    lead = jnp.broadcast_shapes(jnp.shape(away)[:-1], jnp.shape(cov)[:-2])
    white = lax.linalg.triangular_solve(
        jnp.broadcast_to(factor, (*lead, n, n)),
        jnp.broadcast_to(away, (*lead, n))[..., None],
        left_side=True,
        lower=True,
    )[..., 0]
    volume = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    return jnp.sum(white * white, axis=-1) / -2 - n / 2 * math.log(2 * math.pi) - volume


pdf = density(logpdf)


def entropy(mean: ArrayLike | None = None, cov: ArrayLike = 1) -> Any:
    """The differential entropy, in nats; only the covariance matters.

    >>> round(float(entropy(cov=jnp.eye(2))), 4)
    2.8379
    """
    (matrix,) = floats(cov)
    matrix = matrix * jnp.eye(jnp.size(mean)) if not jnp.ndim(matrix) else matrix
    n = jnp.shape(matrix)[-1]
    return (n * math.log(2 * math.pi * math.e) + jnp.linalg.slogdet(matrix)[1]) / 2
