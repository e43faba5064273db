"""Functions that are the device header's own: what SciPy and NumPy give, at poles and ends too."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import config, ops
from lumjax import dtype as dt

POINTS = [0, -0.0, -1, -2, np.inf, -np.inf, np.nan, 1e-310, 1, 2, 1.4616321449683623, -3 + 1e-12]


def both(f, *args):
    """A function on CUDA, as a kernel, and in the interpreter."""
    made = lumjax.jit(f, backend="cuda:emulated", search=0)
    got = np.asarray(made(*args))
    found = made.lower(*args).compile().executable
    assert list(found.evaluated()) == []
    assert [k.rejected for s in found.native() for k in s.kernels] == [""]
    with config.scope(interpret=True):
        return got, np.asarray(lumjax.jit(f)(*args))


@pytest.mark.parametrize("dtype", [dt.float64, dt.float32, dt.bfloat16], ids=str)
@pytest.mark.parametrize("f", [ops.lgamma, ops.digamma])
def test_gamma_functions(f, dtype):
    rng = np.random.default_rng(0)
    drawn = [
        rng.uniform(-30, 30, 2000),
        rng.uniform(1.3, 1.6, 300),
        10.0 ** rng.uniform(-300, 300, 300),
    ]
    with config.scope(enable_x64=True), np.errstate(all="ignore"):
        x = np.concatenate([*drawn, POINTS]).astype(dtype)
        got, want = both(f, x)
        wide = want.astype(np.float64)
        special = ~np.isfinite(wide)
        np.testing.assert_array_equal(got[special].astype(np.float64), wide[special])
        # SciPy reflects with pi times x rounded: what that does to a cotangent is its own error.
        x, got, want = (v[~special].astype(np.float64) for v in (x, got, wide))
        slope = np.where(x < 0, (np.pi / np.sin(np.pi * (x - np.rint(x)))) ** 2, 0)
        unit = 8 * max(float(dt.finfo(dtype).eps), 2e-16)
        limit = unit * (1 + np.abs(want)) + 8e-16 * slope * np.abs(x)
        assert np.all(np.abs(got - want) <= limit)
        assert np.median(limit) < 100 * unit


@pytest.mark.parametrize("dtype", dt.INTEGER, ids=str)
def test_powers_of_integers(dtype):
    """Modulo 2 ** bits; of negative exponents and of zero as NumPy's division has them."""
    rng = np.random.default_rng(1)
    least = -5 if dt.is_signed(dtype) else 0
    with config.scope(enable_x64=True):
        x, y = (
            rng.integers(least, 7, 3000).astype(dtype),
            rng.integers(least, 90, 3000).astype(dtype),
        )
        y[:9] = dt.iinfo(dtype).min
        x[9:18] = dt.iinfo(dtype).max
        got, want = both(ops.ipow, x, y)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("to", [dt.uint16, dt.int16, dt.float16], ids=str)
def test_bits_of_bfloat16_stay_what_they_are(to):
    """Those of every value, each nan included."""
    x = np.arange(1 << 16, dtype=np.uint16)
    brains = jnp.asarray(x.view(dt.bfloat16))
    got, _ = both(lambda x: ops.bitcast(x, to), brains)
    if to == dt.float16:  # a nan of these is one sort
        plain = ~np.isnan(x.view(np.float16))
        assert np.array_equal(np.isnan(got), ~plain)
        got, x = got[plain], x[plain]
    np.testing.assert_array_equal(got.view(np.uint16), x)
