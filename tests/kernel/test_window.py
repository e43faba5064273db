"""Convolutions are contractions that copy what their windows read once, and nothing larger."""

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.config import config
from lumjax.trace.dim import evaluate


def convolve(stride, dilation, groups, padding):
    def f(x, w):
        return lumjax.lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            padding,
            rhs_dilation=(dilation, dilation),
            feature_group_count=groups,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )

    return f


def arrays(groups, height=20, width=27):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 8, height, width)).astype(np.float32)
    w = rng.standard_normal((12, 8 // groups, 3, 3)).astype(np.float32)
    return jnp.array(x), jnp.array(w)


def kernels(f, *args):
    compiled = lumjax.jit(f).lower(*args).compile()
    found = [k for s in compiled.executable.native() for k in s.kernels]
    assert not any(k.rejected for k in found)
    return compiled, found


def copies(kernel):
    """The elements of a kernel's workspace."""
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    return [int(evaluate(b.shape[0], sizes)) for b in kernel.workspace]


@pytest.mark.parametrize(
    ("stride", "dilation", "groups", "padding"),
    [
        (1, 1, 1, "SAME"),
        (1, 2, 2, "SAME"),
        (2, 1, 1, "SAME"),
        (2, 2, 2, ((2, 1), (0, 3))),
        (2, 1, 4, "VALID"),
    ],
)
def test_what_windows_read_is_copied_once(stride, dilation, groups, padding):
    f, (x, w) = convolve(stride, dilation, groups, padding), arrays(groups)
    compiled, (kernel,) = kernels(f, x, w)
    assert kernel.compiled.kernel.programs == ("CONTRACT",)
    assert sum(copies(kernel.compiled.kernel)) <= 1.4 * (x.size + w.size)
    with config.scope(interpret=True):
        want = lumjax.jit(f)(x, w)
    np.testing.assert_allclose(compiled(x, w), want, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("argument", [0, 1])
def test_gradients_copy_their_windows_once(argument):
    f, (x, w) = convolve(1, 1, 1, "SAME"), arrays(1)
    g = jnp.cos(f(x, w))

    def gradient(g, x, w):
        return lumjax.grad(lambda *a: jnp.sum(f(*a) * g), argument)(x, w)

    compiled, (kernel,) = kernels(gradient, g, x, w)
    assert kernel.compiled.kernel.programs == ("CONTRACT",)
    parts = 16 * w.size if argument else 0  # a long sum is split
    assert sum(copies(kernel.compiled.kernel)) <= 1.4 * (g.size + x.size + w.size) + parts
    with config.scope(interpret=True):
        want = lumjax.jit(gradient)(g, x, w)
    np.testing.assert_allclose(compiled(g, x, w), want, rtol=1e-3, atol=1e-3)


def test_padding_may_hold_any_value():
    x, w = arrays(1)

    def f(x, w):
        return convolve(1, 1, 1, "VALID")(
            jnp.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)), constant_values=3.0), w
        )

    compiled, (kernel,) = kernels(f, x, w)
    with config.scope(interpret=True):
        want = lumjax.jit(f)(x, w)
    np.testing.assert_allclose(compiled(x, w), want, rtol=2e-4, atol=2e-4)
    assert sum(copies(kernel.compiled.kernel)) <= 1.6 * (x.size + w.size)
