"""What only a GPU can tell. `LUMJAX_GPU_TESTS=BACKEND` runs them on another backend: `python -m
benchmarks gpu` does so where there is no GPU, which says nothing about one.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from benchmarks import conformance
from lumjax.launcher import device_of

BACKEND = os.environ.get("LUMJAX_GPU_TESTS") or ("cuda" if lumjax.doctor().ready else "")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not BACKEND, reason="no GPU here")]
RNG = np.random.default_rng(3)


def on_gpu(f, *args, unit=1e-4):
    """Twice: a graph is captured, and replayed; against the interpreter."""
    made = lumjax.jit(f, backend=BACKEND)
    for _ in range(2):
        got = lumjax.tree.leaves(made(*args))
        for x, y in zip(got, lumjax.tree.leaves(f(*args)), strict=True):
            x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
            np.testing.assert_allclose(x, y, unit, unit * np.abs(y).max(initial=0))


def arrays(*shapes, dtype="float32"):
    return [jnp.asarray(RNG.normal(size=s), dtype) for s in shapes]


def test_functions_of_the_header():
    device = device_of(BACKEND)
    rows = list(conformance.compared(device, device.info().arch, conformance.kept()))
    assert [r for r in rows if not r["fine"]] == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(64, 64, 64), (72, 136, 200), (33, 17, 65)])
def test_products(shape, dtype):
    m, n, k = shape
    a, b = arrays((m, k), (k, n), dtype=dtype)
    on_gpu(lambda a, b: jnp.tanh(a @ b), a, b, unit=1e-4 if dtype == "float32" else 2e-2)
    on_gpu(lambda a, b: a @ b.T, a, arrays((n, k), dtype=dtype)[0],
           unit=1e-4 if dtype == "float32" else 2e-2)  # fmt: skip


def test_gradients():
    x, w = arrays((20, 30), (30, 10))
    loss = lumjax.value_and_grad(lambda w, x: (jnp.tanh(x @ w) ** 2).mean())
    on_gpu(loss, w, x)


def test_rows_and_reductions():
    (x,) = arrays((70, 300))
    on_gpu(lambda x: (lumjax.nn.softmax(x, -1), x.sum(0), jnp.max(x, 1), (x * x).mean()), x)


@pytest.mark.parametrize("length", [3, 0])
def test_loops(length):
    xs = arrays((length, 8))[0]
    on_gpu(lambda xs: lumjax.lax.scan(lambda c, x: (c * 0.5 + x, c), jnp.ones(8), xs), xs)
    on_gpu(lambda x: lumjax.lax.while_loop(lambda c: c.sum() < 50, lambda c: c * 2 + 1, x),
           jnp.ones(5))  # fmt: skip


def test_results_stay_and_are_used_again():
    step = lumjax.jit(lambda w: w * 0.5 + 1, backend=BACKEND)
    (w,) = arrays((300,))
    found, want = w, np.asarray(w)
    for _ in range(4):
        found, want = step(found), want * np.float32(0.5) + 1
    np.testing.assert_allclose(found, want, 1e-6)
