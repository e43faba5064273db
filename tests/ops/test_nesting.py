"""jit, grad, vmap and hessian nested over structured operations, on lumjax and on JAX."""

import numpy as np
import pytest

import lumjax

jax = pytest.importorskip("jax")

rng = np.random.default_rng(0)
X = rng.normal(size=(4, 5)).astype(np.float32)
IMAGE = rng.normal(size=(2, 6, 6, 3)).astype(np.float32)
KERNEL = rng.normal(size=(3, 3, 3, 4)).astype(np.float32)
ROWS = np.asarray([2, 0, 2])
STARTS = np.asarray([0, 1, -1, 9])


def conv(m, image, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
    return m.lax.conv_general_dilated(image, kernel, (2, 1), "SAME", dimension_numbers=layout)


def third_derivative(m):
    f = lambda v: m.numpy.prod(m.numpy.sin(v))
    g = lambda v: m.numpy.sum(m.grad(f)(v) ** 2)
    return m.grad(lambda v: m.numpy.sum(m.grad(g)(v)))


CASES = {
    "rows, twice": (
        lambda m: m.grad(lambda x: m.numpy.sum(m.numpy.sin(x[ROWS]) * x[ROWS, 0:1])),
        (X,),
    ),
    "products": (
        lambda m: m.hessian(lambda v: m.numpy.prod(v) * m.numpy.sum(m.numpy.cumprod(v))),
        (X[0],),
    ),
    "running sums": (
        lambda m: m.vmap(m.grad(lambda v: m.numpy.sum(m.numpy.sin(m.numpy.cumsum(v)) ** 2))),
        (X,),
    ),
    "third order": (third_derivative, (X[0],)),
    "convolution": (
        lambda m: m.grad(lambda i, k: m.numpy.sum(m.numpy.tanh(conv(m, i, k))), argnums=(0, 1)),
        (IMAGE, KERNEL),
    ),
    "mapped convolution": (
        lambda m: m.vmap(
            m.grad(lambda i, k: m.numpy.sum(m.numpy.tanh(conv(m, i[None], k))), argnums=(0, 1)),
            in_axes=(0, None),
        ),
        (IMAGE, KERNEL),
    ),
    "sort": (
        lambda m: m.vmap(m.grad(lambda v: m.numpy.sum(m.numpy.sort(v) * np.arange(5.0)))),
        (X,),
    ),
    "top_k": (lambda m: m.vmap(lambda v: m.lax.top_k(v, 2)), (X,)),
    "dynamic_slice": (
        lambda m: m.vmap(m.grad(lambda v, s: m.numpy.sum(m.lax.dynamic_slice(v, (s,), (2,)) ** 2))),
        (X, STARTS),
    ),
    "dynamic_update_slice": (
        lambda m: m.vmap(
            m.grad(lambda v, s: m.numpy.sum(m.lax.dynamic_update_slice(v, v[:2] * 2, (s,)) ** 2))
        ),
        (X, STARTS),
    ),
    "writes": (
        lambda m: m.grad(lambda v: m.numpy.sum(m.numpy.sin(v.at[ROWS].set(v[1]) * v))),
        (X,),
    ),
    "sums by segment": (
        lambda m: m.grad(
            lambda v: m.numpy.sum(
                m.numpy.zeros((3, 5)).at[np.asarray([0, 2, 0, 5])].add(v, mode="drop") ** 2
            )
        ),
        (X,),
    ),
    "positions": (lambda m: m.vmap(lambda v: (m.numpy.argmax(v), m.numpy.argmin(v))), (X,)),
    "collectives": (
        lambda m: m.vmap(
            m.grad(lambda v: m.numpy.sum(m.lax.psum(m.numpy.sin(v), "i") * v)), axis_name="i"
        ),
        (X,),
    ),
    "collectives in jit": (
        lambda m: m.vmap(
            m.jit(lambda v: v / m.lax.psum(v, "i") + m.lax.axis_index("i")), axis_name="i"
        ),
        (X,),
    ),
    "running logsumexp": (
        lambda m: m.hessian(lambda v: m.numpy.sum(m.lax.cumlogsumexp(v) * np.arange(5.0))),
        (X[0],),
    ),
    "padding": (
        lambda m: m.grad(
            lambda v, p: m.numpy.sum(m.numpy.sin(m.lax.pad(v, p, ((1, -1, 1), (0, 2, 0))))),
            argnums=(0, 1),
        ),
        (X, np.float32(0.3)),
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_jax(name, jitted):
    make, args = CASES[name]
    f = lumjax.jit(make(lumjax)) if jitted else make(lumjax)
    ours = lumjax.tree.leaves(f(*args))
    theirs = jax.tree.leaves(jax.jit(make(jax))(*args))
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
