"""jnp.fft against JAX: values, lengths, norms, derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from tests.numpy.oracle import check, jax, lines


@pytest.mark.parametrize(
    "expression",
    lines("""
    jnp.fft.fft(f34)
    jnp.fft.fft(c4)
    jnp.fft.fft(f34, axis=0)
    jnp.fft.fft(f34, n=6)
    jnp.fft.fft(f34, n=2, norm='ortho')
    jnp.fft.ifft(f34, norm='forward')
    jnp.fft.ifft(c4)
    jnp.fft.rfft(f34)
    jnp.fft.rfft(i34)
    jnp.fft.rfft(f34, axis=0, norm='forward')
    jnp.fft.irfft(f34)
    jnp.fft.irfft(c4, n=5, norm='ortho')
    jnp.fft.hfft(c4)
    jnp.fft.ihfft(f4)
    jnp.fft.fft2(f234)
    jnp.fft.ifft2(f234, s=(2, 6))
    jnp.fft.rfft2(f234)
    jnp.fft.irfft2(f234)
    jnp.fft.fftn(f234)
    jnp.fft.fftn(f234, axes=(0, 2))
    jnp.fft.ifftn(f234, s=(2, 2))
    jnp.fft.rfftn(f234, axes=(2, 0))
    jnp.fft.irfftn(f234, s=(4, 5), axes=(1, 2), norm='ortho')
    jnp.fft.fft(f04)
    jnp.fft.fftfreq(5)
    jnp.fft.fftfreq(4, 0.5)
    jnp.fft.rfftfreq(5, 2.0)
    jnp.fft.fftshift(f34)
    jnp.fft.fftshift(f34, axes=1)
    jnp.fft.ifftshift(f34, axes=(0,))
    lax.fft(f34, 'rfft', (3, 4))
    lax.fft(c4, lax.FftType.IRFFT, (6,))
    jax.grad(lambda x: jnp.abs(jnp.fft.rfft(x)).sum())(f34)
    jax.grad(lambda x: (jnp.fft.irfft(jnp.fft.rfft(x) ** 2, n=5) ** 2).sum())(f34)
    jax.grad(lambda x: jnp.abs(jnp.fft.fft2(x)).sum())(f34)
    jax.vmap(jnp.fft.fft, 1)(f34)
    jax.jit(jnp.fft.rfft)(f34)
"""),
)
def test_expressions(expression):
    check(expression, 5e-6, signs=False)


def test_complex_gradient():
    x = np.array([1 + 2j, -0.5j, 3, -1 - 1j], "c8")
    ours = lumjax.grad(lambda v: (jnp.abs(jnp.fft.ifft(v)) ** 3).sum())(jnp.asarray(x))
    theirs = jax.grad(lambda v: (jax.numpy.abs(jax.numpy.fft.ifft(v)) ** 3).sum())(x)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_errors():
    x = jnp.ones((3, 4))
    for bad in (
        lambda: jnp.fft.fft(x, norm="odd"),
        lambda: jnp.fft.fft(x, n=0),
        lambda: jnp.fft.fft(x, axis=(0, 1)),
        lambda: jnp.fft.fft2(x, axes=(0,)),
        lambda: jnp.fft.fftn(x, s=(2,), axes=(0, 1)),
        lambda: jnp.fft.fftn(x, axes=(0, 0)),
        lambda: lax.fft(x, "odd", (4,)),
    ):
        with pytest.raises(ArgumentValueError):
            bad()
    with pytest.raises(ArgumentTypeError):
        jnp.fft.rfft(x * 1j)
    with pytest.raises(ShapeError):
        lax.fft(x, "fft", (5,))
