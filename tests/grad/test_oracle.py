"""Derivatives of composite functions against JAX: every mode, order and nesting, in float64."""

import numpy as np
import pytest

from lumjax.config import config
from lumjax.grad.forward import jvp
from lumjax.grad.jacobian import hessian, jacfwd, jacrev
from lumjax.grad.linear import linearize, vjp
from lumjax.grad.reverse import grad, value_and_grad
from lumjax.trace.array import Array
from lumjax.trace.batch import vmap
from tests.grad.words import ops

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

W = np.random.default_rng(1).standard_normal((4, 4))
V = np.random.default_rng(2).standard_normal(4)


def mlp(n, x):
    hidden = n.tanh(n.dot(W, n.tanh(n.dot(W, x))))
    return n.sum(n.square(n.subtract(hidden, V)))


def softmax_loss(n, x):
    shifted = n.subtract(x, n.max(x))
    return n.negative(n.take(n.subtract(shifted, n.log(n.sum(n.exp(shifted)))), 1))


def quotient(n, x):
    return n.sum(n.divide(n.sin(x), n.add(n.square(x), 1.0)))


def selected(n, x):
    return n.sum(n.where(n.greater(x, 0.0), n.exp(n.multiply(x, 0.5)), n.square(x)))


def rearranged(n, x):
    y = n.reshape(n.multiply(x, x), (2, 2))
    z = n.transpose(n.concatenate([y, n.flip(y, 0)]), (1, 0))
    return n.sum(n.multiply(n.sum(n.sin(z), 0), n.sum(z, 0)))


def products(n, x):
    return n.add(n.prod(x), n.sum(n.multiply(n.cumprod(x), n.cumsum(x))))


def norm_like(n, x):
    return n.sqrt(n.add(n.sum(n.square(x)), 1e-2))


def bilinear(n, x):
    return n.dot(n.dot(x, W), n.sin(x))


def shared(n, x):
    y = n.sin(x)
    z = n.multiply(y, n.add(y, x))
    return n.sum(n.multiply(n.log1p(n.square(z)), n.maximum(x, 0.3)))


SCALAR = [mlp, softmax_loss, quotient, selected, rearranged, products, norm_like, bilinear, shared]
POINT = np.array([0.5, -0.8, 1.3, -0.4])


@pytest.fixture(autouse=True)
def x64():
    with config.scope(enable_x64=True), jax.enable_x64(True):
        yield


def value(x):
    return np.asarray(x.data if isinstance(x, Array) else x)


def agree(ours, theirs):
    np.testing.assert_allclose(value(ours), np.asarray(theirs), rtol=1e-9, atol=1e-11)


@pytest.fixture(params=SCALAR, ids=lambda f: f.__name__)
def pair(request):
    f = request.param
    return (lambda x: f(ops, x)), (lambda x: f(jnp, x))


def test_first_order(pair):
    f, g = pair

    @jax.jit
    def expected(x):
        return *jax.value_and_grad(g)(x), *jax.jvp(g, (x,), (V,)), jax.jacfwd(g)(x)

    ours = *value_and_grad(f)(POINT), *jvp(f, (POINT,), (V,)), jacfwd(f)(POINT)
    for a, b in zip(ours, expected(POINT), strict=True):
        agree(a, b)
    agree(linearize(f, POINT)[1](V), ours[3].data)
    agree(jacrev(f)(POINT), ours[1].data)


def test_second_order(pair):
    f, g = pair
    expected = jax.jit(jax.hessian(g))(POINT)
    agree(hessian(f)(POINT), expected)
    agree(jacrev(jacfwd(f))(POINT), expected)
    agree(jacfwd(jacfwd(f))(POINT), expected)
    agree(jacrev(jacrev(f))(POINT), expected)


def test_third_order(pair):
    f, g = pair

    def directional(d, h):
        return lambda x: d(h, (x,), (V,))[1]

    theirs = jax.jit(directional(jax.jvp, directional(jax.jvp, jax.grad(g))))(POINT)
    agree(directional(jvp, directional(jvp, grad(f)))(POINT), theirs)
    agree(grad(directional(jvp, directional(jvp, f)))(POINT), theirs)
    agree(directional(jvp, grad(directional(jvp, f)))(POINT), theirs)

    def dot_v(h):
        return lambda x: ops.sum(ops.multiply(grad(h)(x), V))

    agree(grad(dot_v(dot_v(f)))(POINT), theirs)


XS = np.stack([POINT, -POINT, 0.5 * POINT])


def mixtures(n, f, grad, jvp, vjp, vmap, hessian):
    """Nestings of the transformations, as (function, point) pairs of one namespace."""
    return [
        vmap(grad(f))(XS),
        grad(lambda xs: n.sum(vmap(f)(xs)))(XS),
        vmap(hessian(f))(XS),
        grad(lambda xs: n.sum(n.sin(vmap(grad(f))(xs))))(XS),
        vmap(lambda t: jvp(grad(f), (POINT,), (t,))[1])(XS),
        vmap(lambda ct: vjp(lambda x: n.multiply(f(x), x), POINT)[1](ct)[0])(XS),
    ]


def test_mixed_with_vmap(pair):
    f, g = pair
    ours = mixtures(ops, f, grad, jvp, vjp, vmap, hessian)
    theirs = jax.jit(lambda: mixtures(jnp, g, jax.grad, jax.jvp, jax.vjp, jax.vmap, jax.hessian))()
    for a, b in zip(ours, theirs, strict=True):
        agree(a, b)


def test_central_differences(pair):
    f, _ = pair
    h = 1e-5
    step = [
        (value(f(POINT + h * e)) - value(f(POINT - h * e))) / (2 * h) for e in np.eye(len(POINT))
    ]
    np.testing.assert_allclose(value(grad(f)(POINT)), step, rtol=1e-7, atol=1e-8)


def rows(n, x, w):
    return n.tanh(n.dot(w, x)), n.sum(n.multiply(x, x))


@pytest.mark.parametrize("argnums", [0, 1, (0, 1), (1,), (-1, 0)])
def test_jacobians_of_trees(argnums):
    theirs = jax.jacrev(lambda x, w: rows(jnp, x, w), argnums)(V, W)
    for jacobian in (jacfwd, jacrev):
        ours = jacobian(lambda x, w: rows(ops, x, w), argnums)(V, W)
        flat, tree = jax.tree.flatten(ours, is_leaf=lambda x: isinstance(x, Array))
        expected, expected_tree = jax.tree.flatten(theirs)
        assert tree == expected_tree
        for a, b in zip(flat, expected, strict=True):
            assert a.shape == b.shape
            agree(a, b)


def test_pullback_of_a_tree():
    cts = (V, np.float64(0.3))
    _, ours = vjp(lambda x, w: rows(ops, x, w), V, W)
    _, theirs = jax.vjp(lambda x, w: rows(jnp, x, w), V, W)
    for a, b in zip(ours(cts), theirs(cts), strict=True):
        agree(a, b)
    for a, b in zip(ours(cts), theirs(cts), strict=True):  # a pullback can be used again
        agree(a, b)
