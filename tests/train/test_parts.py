"""Results of a large batch from its parts: those of the whole batch, in the memory of one part."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.errors import ArgumentValueError, DTypeError, ShapeError
from lumjax.train import accumulate


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return jnp.mean(jnp.square(hidden - y.astype(hidden.dtype)))


def problem(n, dtype=np.float32):
    random = np.random.default_rng(0)
    params = {"w": random.standard_normal((5, 4)).astype(dtype), "b": np.zeros(4, dtype)}
    return params, random.standard_normal((n, 5)).astype(dtype), random.integers(0, 2, (n, 4))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 6, 12])
def test_value_and_gradients_are_those_of_the_whole_batch(steps, compiled):
    params, x, y = problem(12)
    fun = accumulate(lumjax.value_and_grad(loss), steps)
    value, grads = (lumjax.jit(fun) if compiled else fun)(params, x, y)
    expected, slopes = lumjax.value_and_grad(loss)(params, x, y)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for name in params:
        assert grads[name].shape == params[name].shape
        np.testing.assert_allclose(grads[name], slopes[name], rtol=1e-4, atol=1e-6)


def test_half_floats_are_added_up_in_float32():
    ones = np.ones(4096, jnp.bfloat16)
    mean = accumulate(lambda _, x: jnp.mean(x), 4096)(None, ones)  # in bfloat16 256 + 1 is 256
    assert mean.dtype == jnp.bfloat16
    assert float(mean) == 1


def test_the_memory_is_that_of_a_part():
    def wide(w, x):
        return jnp.mean(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]))

    w = np.ones((4, 256), np.float32), np.ones((256, 256), np.float32)
    x = np.ones((1 << 13, 4), np.float32)
    whole = lumjax.jit(lumjax.grad(wide)).lower(w, x).compile()
    parts = lumjax.jit(accumulate(lumjax.grad(wide), 64)).lower(w, x).compile()
    sizes = [c.memory_analysis().temp_size_in_bytes for c in (whole, parts)]
    assert sizes[1] < sizes[0] / 4, sizes


def test_results_of_any_structure():
    fun = accumulate(lambda p, x: {"sum": p + x.mean(), "pair": (x.max(), None)}, 2)
    found = fun(1.0, np.array([1.0, 2.0, 3.0, 6.0], np.float32))
    assert (float(found["sum"]), float(found["pair"][0])) == (4.0, 4.0)


def test_what_does_not_fit():
    with pytest.raises(ShapeError, match="a multiple of 5"):
        accumulate(loss, 5)(*problem(12))
    with pytest.raises(ShapeError, match=r"shape \(\)"):
        accumulate(lambda p, x: x, 2)(None, 1.0)
    with pytest.raises(ArgumentValueError, match="at least 1 step"):
        accumulate(loss, 0)
    with pytest.raises(DTypeError, match=r"i32 at \['n'\]"):
        accumulate(lambda p, x: {"n": jnp.argmax(x)}, 2)(None, np.ones(4, np.float32))
