"""Extrema of complex numbers against JAX: order by real, then imaginary part; ties share."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.testing.checks import check_adjoint, check_vmap

PROGRAM = """
import json, sys
import jax, jax.numpy as jnp
import numpy as np
x, y = (np.array(v, np.float32).view(np.complex64)[..., 0] for v in json.load(sys.stdin))
x, y = jnp.asarray(x), jnp.asarray(y)
def parts(v):
    v = np.asarray(v)
    return [v.real.tolist(), v.imag.tolist()]
out = []
for one in (jnp.max, jnp.min):
    out.append(parts(one(x)))
    out.append(parts(one(x, axis=1)))
    out.append(parts(jax.grad(lambda v: jnp.sum(jnp.abs(one(v, axis=0) + 1j)))(x)))
    out.append(parts(one(x, axis=0, initial=2, where=jnp.real(x) > 0)))
for two in (jnp.maximum, jnp.minimum):
    out.append(parts(two(x, y)))
    out.append(parts(two(x, 1.0)))
    out.append(parts(jax.grad(lambda v: jnp.sum(jnp.abs(two(v, y) + 1j)))(x)))
print(json.dumps(out))
"""


def numbers(seed):
    """Small whole numbers, so that real parts and whole values repeat."""
    draw = np.random.default_rng(seed).integers(-2, 3, (4, 5, 2))
    return draw.astype(np.float32).tolist()


def results(name, given):
    program = PROGRAM.replace("import jax, jax.numpy", f"import {name} as jax, {name}.numpy")
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(given), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_extrema_are_those_of_jax():
    pytest.importorskip("jax")
    given = [numbers(0), numbers(1)]
    got, want = results("lumjax", given), results("jax", given)
    assert len(got) == len(want) == 14
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-6, err_msg=str(k))


def complexes(seed):
    rng = np.random.default_rng(seed)
    return jnp.asarray((rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))).astype("complex64"))


@pytest.mark.parametrize("f", [jnp.max, jnp.min, lambda x: jnp.maximum(x, x[::-1])])
def test_derivatives_lanes_and_jit(f):
    x = complexes(2)
    check_adjoint(f, (x,))
    check_vmap(f, (x,))
    np.testing.assert_array_equal(lumjax.jit(f)(x), f(x))


def test_nan_wins_and_nothing_is_an_error():
    x = complexes(3).at[1, 2].set(complex(0.0, np.nan))
    assert np.isnan(jnp.max(x).imag) or np.isnan(jnp.max(x).real)
    assert np.isnan(jnp.maximum(x, 0j)[1, 2])
    with pytest.raises(ValueError, match="initial"):
        jnp.max(jnp.zeros((0,), "complex64"))
