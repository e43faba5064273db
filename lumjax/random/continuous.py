"""More continuous distributions, by JAX's formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.random.core import (
    Key,
    drawn_shape,
    exponential,
    floating,
    normal,
    rademacher,
    split,
    uniform,
)
from lumjax.random.gamma import common_shape, gamma, spread
from lumjax.trace.core import aval_of

Shape = Sequence[Any]


def multivariate_normal(
    key: Key,
    mean: Any,
    cov: Any,
    shape: Shape | None = None,
    dtype: Any = None,
    method: str = "cholesky",
    *,
    out_sharding: Any = None,
) -> Any:
    """Normal vectors with a mean (..., n) and covariance matrix (..., n, n): (*shape, n).

    `method` is how the covariance is factored: "cholesky", "eigh" or "svd" (the latter two take
    singular matrices too).

    >>> from lumjax.random.core import key
    >>> multivariate_normal(key(0), jnp.zeros(2), jnp.eye(2), (5,)).shape
    (5, 2)
    """
    del out_sharding
    middle, matrix = jnp.linalg.inexact(mean, cov)
    if method not in ("cholesky", "eigh", "svd"):
        raise ArgumentValueError(
            operation="random.multivariate_normal",
            required="method 'cholesky', 'eigh' or 'svd'",
            got=repr(method),
            fix="choose one of these",
        )
    one, two = aval_of(middle), aval_of(matrix)
    if one.ndim < 1 or two.ndim < 2 or two.shape[-2:] != (one.shape[-1],) * 2:
        raise ShapeError(
            operation="random.multivariate_normal",
            required="mean (..., n) and cov (..., n, n)",
            got=f"{one} and {two}",
            fix="check the operands",
        )
    kind = floating("random.multivariate_normal", one.dtype if dtype is None else dtype)
    batch = [jnp.zeros(tuple(s)) for s in (one.shape[:-1], two.shape[:-2])]
    lead = common_shape("random.multivariate_normal", shape, *batch)
    if method == "cholesky":
        factor = jnp.linalg.cholesky(matrix)
    elif method == "eigh":
        w, v = jnp.linalg.eigh(matrix)
        factor = v * jnp.sqrt(w[..., None, :])
    else:
        u, s, _ = jnp.linalg.svd(matrix)
        factor = u * jnp.sqrt(s[..., None, :])
    draw = normal(key, (*lead, one.shape[-1]), kind)
    return middle + jnp.einsum("...ij,...j->...i", factor, draw)


def pareto(
    key: Key, b: Any, shape: Shape | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Pareto with exponent b, from 1 on."""
    del out_sharding
    kind = floating("random.pareto", dtype)
    shape = common_shape("random.pareto", shape, b)
    return jnp.exp(exponential(key, shape, kind) / jnp.asarray(b, kind))


def weibull_min(
    key: Key, scale: Any, concentration: Any, shape: Shape = (), dtype: Any = None
) -> Any:
    """Weibull with a scale and a concentration."""
    kind = floating("random.weibull_min", dtype)
    draw = uniform(key, drawn_shape("random.weibull_min", shape), kind)
    return jnp.power(-jnp.log1p(-draw), 1.0 / jnp.asarray(concentration)) * scale


def rayleigh(
    key: Key, scale: Any, shape: Shape | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Rayleigh with a scale."""
    del out_sharding
    kind = floating("random.rayleigh", dtype)
    shape = common_shape("random.rayleigh", shape, scale)
    draw = uniform(key, shape, kind)
    return spread(scale, shape, kind) * jnp.sqrt(jnp.log(draw) * kind.type(-2))


def lognormal(
    key: Key,
    sigma: Any = 1.0,
    shape: Shape | None = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """The exponential of a normal draw with standard deviation sigma."""
    del out_sharding
    kind = dt.canonicalize(np.float64 if dtype is None else dtype)
    if not dt.is_complex(kind):
        kind = floating("random.lognormal", kind)
    shape = common_shape("random.lognormal", shape, sigma)
    return jnp.exp(normal(key, shape, kind) * jnp.asarray(sigma, kind))


def triangular(
    key: Key,
    left: Any,
    mode: Any,
    right: Any,
    shape: Shape | None = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Triangular on [left, right] with its peak at mode.

    >>> from lumjax.random.core import key
    >>> x = triangular(key(0), 1.0, 2.0, 4.0, (10,))
    >>> bool(((x >= 1) & (x <= 4)).all())
    True
    """
    del out_sharding
    kind = floating("random.triangular", dtype)
    shape = common_shape("random.triangular", shape, left, mode, right)
    low, top, high = (spread(v, shape, kind) for v in (left, mode, right))
    draw = uniform(key, shape, kind)
    rising = low + jnp.sqrt(draw * (high - low) * (top - low))
    falling = high - jnp.sqrt((1 - draw) * (high - low) * (high - top))
    return jnp.where(draw < (top - low) / (high - low), rising, falling)


def wald(
    key: Key, mean: Any, shape: Shape | None = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Wald (inverse Gaussian) with a mean and scale 1."""
    del out_sharding
    kind = floating("random.wald", dtype)
    shape = common_shape("random.wald", shape, mean)
    middle = spread(mean, shape, kind)
    keys = split(key)
    draw = normal(keys[0], shape, kind)
    y, square = draw * draw, middle * middle
    root = jnp.sqrt(4 * middle * y + square * (y * y))
    x = middle + square * y / 2 - middle / 2 * root
    return jnp.where(uniform(keys[1], shape, kind) <= middle / (middle + x), x, square / x)


def maxwell(key: Key, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Maxwell with scale 1: the length of a normal vector in space."""
    del out_sharding
    kind = floating("random.maxwell", dtype)
    draw = normal(key, (*drawn_shape("random.maxwell", shape), 3), kind)
    return jnp.linalg.norm(draw, axis=-1)


def double_sided_maxwell(
    key: Key, loc: Any, scale: Any, shape: Shape = (), dtype: Any = None
) -> Any:
    """Maxwell with a random sign, scaled and moved; the parameters' axes come last."""
    kind = floating("random.double_sided_maxwell", dtype)
    own = common_shape("random.double_sided_maxwell", None, loc, scale)
    shape = drawn_shape("random.double_sided_maxwell", shape)
    full = (*(shape or own), *own)
    keys = split(key)
    return rademacher(keys[1], full, kind) * maxwell(keys[0], full, kind) * scale + loc


def generalized_normal(
    key: Key, p: Any, shape: Shape = (), dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Density proportional to exp(-|x|^p)."""
    del out_sharding
    kind = floating("random.generalized_normal", dtype)
    shape = drawn_shape("random.generalized_normal", shape)
    keys = split(key)
    size = gamma(keys[0], 1 / p, shape, kind)
    return rademacher(keys[1], shape, kind) * size ** (1 / p)


def ball(
    key: Key,
    d: int,
    p: float = 2,
    shape: Shape = (),
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Uniform in the unit ball of the p-norm in d dimensions: (*shape, d).

    >>> from lumjax.random.core import key
    >>> x = ball(key(0), 3, shape=(10,))
    >>> bool(((x**2).sum(-1) <= 1).all())
    True
    """
    del out_sharding
    kind = floating("random.ball", dtype)
    shape = drawn_shape("random.ball", shape)
    keys = split(key)
    direction = generalized_normal(keys[0], p, (*shape, d), kind)
    extra = exponential(keys[1], shape, kind)
    size = jnp.sum(jnp.abs(direction) ** p, axis=-1) + extra
    return direction / (size ** (1 / p))[..., None]


def orthogonal(
    key: Key,
    n: int,
    shape: Shape = (),
    dtype: Any = None,
    m: int | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Uniform among orthogonal (n, n) matrices, or among (n, m) ones with orthonormal columns
    (rows, if n < m).

    >>> from lumjax.random.core import key
    >>> q = orthogonal(key(0), 3)
    >>> bool(jnp.allclose(q @ q.T, jnp.eye(3), atol=1e-5))
    True
    """
    del out_sharding
    kind = dt.canonicalize(np.float64 if dtype is None else dtype)
    columns = n if m is None else m
    size = (*drawn_shape("random.orthogonal", shape), max(n, columns), min(n, columns))
    q, r = jnp.linalg.qr(normal(key, size, kind))
    q = q * jnp.expand_dims(ops.sign(jnp.linalg.diagonal(r)), -2)
    return jnp.matrix_transpose(q) if n < columns else q
