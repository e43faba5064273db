"""Every record compiled against its eval: the same samples through native kernels and through
NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import dtype as dt
from lumjax import ops
from lumjax.executable import Executable
from lumjax.trace.array import Array
from lumjax.trace.core import Effect
from lumjax.trace.stage import stage

CASES = [
    pytest.param(prim, sample, id=f"{name}-{k}")
    for name, prim in sorted(ops.PRIMITIVES.items())
    for k, sample in enumerate(prim.samples)
    if prim.effect is Effect.NONE and "axis_name" not in sample.params
]


def draw(rng, aval, low, high):
    shape, dtype = aval.shape, aval.dtype
    if dtype == dt.key:
        return rng.integers(0, 2**32, (*shape, 2), np.uint32).view(dt.key)[..., 0].reshape(shape)
    if dt.is_bool(dtype):
        return rng.integers(0, 2, shape).astype(bool)
    if dt.is_integer(dtype):
        info = np.iinfo(dtype)
        bottom, top = max(int(np.ceil(low)), info.min), min(int(np.floor(high)), info.max)
        return rng.integers(min(bottom, top), top, shape, endpoint=True).astype(dtype)
    values = rng.uniform(low, high, shape)
    if dt.is_complex(dtype):
        values = values + 1j * rng.uniform(low, high, shape)
    return np.asarray(values).astype(dtype)


def tolerance(dtype):
    if not dt.is_inexact(dtype):
        return {}
    if dtype in (dt.float16, dt.bfloat16):
        return {"rtol": 4 * float(dt.finfo(dtype).eps), "atol": 4 * float(dt.finfo(dtype).eps)}
    eps = float(np.finfo(dtype).eps)
    return {"rtol": 16 * eps, "atol": 16 * eps}


@pytest.mark.parametrize(("prim", "sample"), CASES)
def test_compiled_equals_eval(prim, sample):
    rng = np.random.default_rng(0)
    args = [draw(rng, a, sample.low, sample.high) for a in sample.avals]
    staged = stage(lambda *xs: prim.bind(*xs, **sample.params), sample.avals)
    got = Executable(staged.jaxpr).run([*staged.consts, *args])
    want = prim.eval(*args, **sample.params)
    for g, w, aval in zip(got, want, staged.jaxpr.out_avals, strict=True):
        data, w = g.data, np.asarray(w)
        assert data.shape == w.shape
        assert data.dtype == w.dtype == aval.dtype
        if limits := tolerance(w.dtype):
            wide = np.complex128 if dt.is_complex(w.dtype) else np.float64
            np.testing.assert_allclose(data.astype(wide), w.astype(wide), **limits)
        else:
            np.testing.assert_array_equal(data, w)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.complex64])
def test_arrays_over_scalars_of_numpy_run_compiled(dtype):
    """Their address is not where an array's would be."""
    x = dtype(3)
    out = lumjax.jit(lambda x: jnp.square(x) + 1)(Array(x))
    np.testing.assert_allclose(np.asarray(out), x * x + 1)
