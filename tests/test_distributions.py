"""Distributions with parameters: JAX's samples within rounding, derivatives, and errors."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import random
from lumjax.config import config
from lumjax.errors import ArgumentValueError, DTypeError, ShapeError
from tests.test_random import jax, same

pytestmark = pytest.mark.sampled(4)
F = np.float32


@pytest.fixture(autouse=True)
def _interpreted():
    """What the distributions are does not depend on the compiler, and each shape has its loops."""
    with config.scope(interpret=True):
        yield


COV = F([[2, 0.5], [0.5, 1]])
DRAWS = [
    ("gamma", (0.5, (300,)), {}),
    ("gamma", (F([[0.3, 2.0, 50]]), (2, 3)), {}),
    ("gamma", (F([]),), {}),
    ("loggamma", (0.02, (100,)), {}),
    ("beta", (2.0, F([0.5, 3.0]), (100, 2)), {}),
    ("dirichlet", (F([0.3, 2, 4]), (50,)), {}),
    ("dirichlet", (F([[0.3, 2], [4, 1]]),), {}),
    ("chisquare", (3.0, (100,)), {}),
    ("f", (3.0, 5.0, (100,)), {}),
    ("t", (3.0, (100,)), {}),
    ("multivariate_normal", (F([1, 2]), COV, (50,)), {}),
    ("multivariate_normal", (np.zeros((3, 2), F), COV), {}),
    ("pareto", (3.0, (100,)), {}),
    ("weibull_min", (2.0, 3.0, (100,)), {}),
    ("rayleigh", (F(2.0), (100,)), {}),
    ("lognormal", (F(2.0), (100,)), {}),
    ("triangular", (1.0, 2.0, 4.0, (100,)), {}),
    ("wald", (F(2.0), (100,)), {}),
    ("maxwell", ((50,),), {}),
    ("double_sided_maxwell", (1.0, 2.0, (50,)), {}),
    ("generalized_normal", (3.0, (50,)), {}),
    ("ball", (3,), {"shape": (50,)}),
    ("ball", (3, 1.0), {"shape": (0,)}),
    ("orthogonal", (4,), {"shape": (2,)}),
    ("orthogonal", (2,), {"m": 3}),
]
COUNTS = [
    ("poisson", (3.0, (200,)), {}),
    ("poisson", (F([0.0, 2.0, 30.0, 1000.0]), (50, 4)), {}),
    ("binomial", (10, 0.3, (200,)), {}),
    ("binomial", (F([5, 100, 1000]), F([0.1, 0.5, 0.9]), (50, 3)), {}),
    ("binomial", (F([-1, np.nan, 5, np.inf]), F([0.5, 0.5, 2.0, 0.5])), {}),
    ("multinomial", (20, F([0.2, 0.3, 0.5])), {"shape": (20, 3)}),
    ("geometric", (0.3, (200,)), {}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), DRAWS)
def test_samples_agree_with_jax(name, args, kwargs):
    ours = np.asarray(getattr(random, name)(random.key(3), *args, **kwargs))
    theirs = np.asarray(getattr(jax.random, name)(jax.random.key(3), *args, **kwargs))
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "args", "kwargs"), COUNTS)
def test_counts_are_jaxs(name, args, kwargs):
    same(
        getattr(random, name)(random.PRNGKey(5), *args, **kwargs),
        getattr(jax.random, name)(jax.random.PRNGKey(5), *args, **kwargs),
    )


@pytest.mark.parametrize("method", ["eigh", "svd"])
def test_covariance_of_other_factors(method):
    draw = random.multivariate_normal(random.key(0), F([0, 0]), COV, (4000,), method=method)
    np.testing.assert_allclose(np.cov(np.asarray(draw).T), COV, atol=0.15)


@pytest.mark.parametrize("name", ["gamma", "loggamma", "chisquare"])
def test_samples_move_with_their_parameter(name):
    a = F([0.05, 0.7, 3.0, 40.0])
    ours = lumjax.grad(lambda v: getattr(random, name)(random.key(1), v).sum())(a)
    theirs = jax.grad(lambda v: getattr(jax.random, name)(jax.random.key(1), v).sum())(a)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-5)


def test_under_jit_and_vmap():
    keys = random.split(random.key(0), 3)
    want = jnp.stack([random.gamma(k, 2.0, (4,)) for k in keys])
    np.testing.assert_allclose(lumjax.vmap(lambda k: random.gamma(k, 2.0, (4,)))(keys), want, 1e-5)
    got = lumjax.jit(lambda k: random.poisson(k, 4.0, (5,)))(keys[0])
    same(got, random.poisson(keys[0], 4.0, (5,)))


def test_initializers():
    from lumjax.nn import initializers

    for shape, axis in (((4, 3), -1), ((3, 4), 0), ((2, 3, 4), -1), ((0, 3), -1)):
        ours = initializers.orthogonal(2.0, axis)(random.key(0), shape)
        theirs = jax.nn.initializers.orthogonal(2.0, axis)(jax.random.key(0), shape)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    for shape in ((3, 2, 4), (3, 5, 2, 2), (1, 2, 3, 2, 2)):
        ours = initializers.delta_orthogonal()(random.key(0), shape)
        theirs = jax.nn.initializers.delta_orthogonal()(jax.random.key(0), shape)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    with pytest.raises(ArgumentValueError):
        initializers.orthogonal()(random.key(0), (3,))
    with pytest.raises(ArgumentValueError):
        initializers.delta_orthogonal()(random.key(0), (3, 4, 2))


def test_errors():
    key = random.key(0)
    with pytest.raises(ShapeError):
        random.gamma(key, jnp.ones(3), (2,))
    with pytest.raises(DTypeError):
        random.beta(key, 1.0, 1.0, dtype=jnp.int32)
    with pytest.raises(DTypeError):
        random.poisson(key, 1.0, dtype=jnp.float32)
    with pytest.raises(ShapeError):
        random.dirichlet(key, 1.0)
    with pytest.raises(ShapeError):
        random.multivariate_normal(key, jnp.ones(2), jnp.eye(3))
    with pytest.raises(ArgumentValueError):
        random.multivariate_normal(key, jnp.ones(2), jnp.eye(2), method="lu")
