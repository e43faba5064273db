"""reduce_window, transposed and local convolutions, image resizing and segments against JAX."""

from __future__ import annotations

import numpy as np
import pytest

# ruff: noqa: E501
import lumjax
import lumjax.numpy as jnp
from lumjax import lax, ops
from lumjax.errors import ArgumentValueError, ConcretizationError, ShapeError
from tests.numpy.oracle import OURS, THEIRS, assert_same, check, jax, leaves, lines

pytestmark = pytest.mark.sampled(4)
RNG = np.random.default_rng(5)
EXTRA = {
    "rw": RNG.normal(size=(2, 7, 6)),
    "ties": RNG.integers(0, 3, size=(1, 8, 8)).astype(float),
    "ids": np.array([0, 2, 2, 5]),
    "nan8": np.array([1.0, np.nan, 2, 3, 0, 5, 4, 1]),
    "long": RNG.normal(size=(40,)),
    "k5": RNG.normal(size=(3, 3, 3, 5)),
    "local": RNG.normal(size=(4, 27, 5, 4)),
}
for key, value in EXTRA.items():
    value = value.astype("i4" if value.dtype.kind == "i" else "f4")
    OURS[key], THEIRS[key] = jnp.asarray(value), jax.numpy.asarray(value)


@pytest.mark.parametrize(
    "expression",
    lines("""
    lax.reduce_window(rw, 0.0, lax.add, (1, 2, 2), (1, 2, 2), 'VALID')
    lax.reduce_window(rw, 0.0, lax.add, (1, 3, 2), (1, 1, 1), 'SAME')
    lax.reduce_window(rw, -np.inf, lax.max, (1, 3, 3), (1, 2, 2), 'SAME')
    lax.reduce_window(rw, -np.inf, lax.max, (1, 3, 3), (1, 2, 2), 'SAME_LOWER')
    lax.reduce_window(rw, np.inf, lax.min, (2, 7, 1), (1, 1, 1), 'VALID')
    lax.reduce_window(rw, 1.0, lax.mul, (1, 2, 3), (1, 1, 2), ((0, 0), (1, 2), (0, 1)))
    lax.reduce_window(rw, 0.0, lax.add, (1, 2, 2), (1, 1, 2), 'VALID', (1, 2, 1), (1, 1, 2))
    lax.reduce_window(rw, 2.0, lax.add, (1, 9, 2), (1, 1, 1), 'SAME')
    lax.reduce_window(long, -np.inf, lax.max, (21,), (1,), 'VALID')
    lax.reduce_window(long, 0.0, lax.add, (13,), (3,), 'SAME', None, (2,))
    lax.reduce_window(long, 0.0, lax.add, (40,), (1,), 'VALID')
    lax.reduce_window(i34, np.int32(0), lax.add, (2, 2), (1, 1), 'VALID')
    lax.reduce_window(i34, np.int32(-2**31), lax.max, (2, 2), (1, 1), 'SAME')
    lax.reduce_window(nan8, -np.inf, lax.max, (3,), (1,), 'VALID')
    lax.reduce_window(f4, 0.0, lax.add, (9,), (1,), 'VALID')
    lax.reduce_window(f04, 0.0, lax.add, (1, 2), (1, 1), 'VALID')
    lax.conv_transpose(img, ker, (2, 2), 'SAME')
    lax.conv_transpose(img, ker, (3, 1), 'VALID')
    lax.conv_transpose(img, ker, (1, 1), ((1, 1), (0, 2)))
    lax.conv_transpose(img, ker, (2, 2), ((1, 1), (0, 1)), use_consistent_padding=True)
    lax.conv_transpose(img, k5, (2, 1), 'SAME', (2, 1))
    lax.conv_transpose(img, jnp.transpose(k5, (0, 1, 3, 2)), (2, 2), 'SAME', transpose_kernel=True)
    lax.conv_transpose(nchw, oihw, (2, 2), 'VALID', dimension_numbers=('NCHW', 'OIHW', 'NCHW'))
    lax.conv_general_dilated_patches(nchw, (3, 2), (1, 2), 'SAME')
    lax.conv_general_dilated_patches(img, (2, 2), (1, 1), 'VALID', None, (2, 1), ('NHWC', 'OIHW', 'NHWC'))
    lax.conv_general_dilated_local(nchw, local, (1, 1), 'VALID', (3, 3))
    list(map(int, lax.reduce_window_shape_tuple((5, 6), (2, 3), (1, 2), ((0, 0), (1, 1)))))
    list(map(int, lax.conv_shape_tuple((2, 3, 8, 9), (4, 3, 3, 2), (2, 1), ((1, 1), (0, 0)))))
    list(map(int, lax.conv_general_shape_tuple((2, 8, 9, 3), (3, 2, 3, 4), (2, 1), 'SAME', ('NHWC', 'HWIO', 'NHWC'))))
    lax.conv_general_permutations(('NHWC', 'HWIO', 'NHWC'))
    jax.image.resize(rw, (2, 4, 9), 'linear')
    jax.image.resize(rw, (2, 14, 3), 'bilinear', antialias=False)
    jax.image.resize(rw, (2, 3, 12), 'nearest')
    jax.image.resize(rw, (2, 9, 4), 'cubic')
    jax.image.resize(rw, (2, 9, 4), 'cubic-pytorch', antialias=False)
    jax.image.resize(rw, (2, 9, 4), 'cubic-pytorch')
    jax.image.resize(rw, (2, 5, 8), 'lanczos3')
    jax.image.resize(rw, (2, 5, 8), 'lanczos5', False)
    jax.image.resize(rw, (2, 5, 3), 'area')
    jax.image.resize(rw, (2, 7, 6), 'linear')
    jax.image.resize(i34, (6, 2), jax.image.ResizeMethod.LINEAR)
    jax.image.resize(i34, (6, 2), 'nearest')
    jax.image.resize(f04, (0, 8), 'linear')
    jax.image.scale_and_translate(rw, (2, 5, 6), (1,), jnp.array([0.7]), jnp.array([0.4]), 'linear')
    jax.image.scale_and_translate(rw, (2, 5, 8), (1, -1), jnp.array([0.7, 2.0]), jnp.array([0.4, -1]), 'cubic')
    jax.ops.segment_sum(f4, ids)
    jax.ops.segment_sum(jnp.reshape(f34, (4, 3)), ids, 4)
    jax.ops.segment_sum(f4, ids, 6, bucket_size=2)
    jax.ops.segment_sum(f4, jnp.array([0, -1, 1, 9]), 3)
    jax.ops.segment_max(f4, ids, 6)
    jax.ops.segment_min(i4, ids, 6)
    jax.ops.segment_prod(f4, ids, 6)
    jax.ops.segment_sum(f0, i0, 2)
    jax.ops.segment_sum(f0, i0, 0)
    jax.ops.segment_max(f4, ids, 6, True, False, None, 'clip')
"""),
)
def test_expressions(expression):
    check(expression, 2e-5, signs=False)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("lax.reduce_window(ties, -np.inf, lax.max, (1, 3, 3), (1, 2, 2), 'SAME')", "ties"),
        ("lax.reduce_window(ties, -np.inf, lax.max, (1, 2, 2), (1, 2, 2), 'VALID')", "ties"),
        ("lax.reduce_window(ties, np.inf, lax.min, (1, 3, 2), (1, 1, 1), 'VALID')", "ties"),
        ("lax.reduce_window(long, -np.inf, lax.max, (11,), (2,), 'SAME')", "long"),
        ("lax.reduce_window(rw, 0.0, lax.add, (1, 3, 3), (1, 2, 2), 'SAME') ** 2", "rw"),
        ("lax.conv_transpose(img, ker, (2, 2), 'SAME') ** 2", "img"),
        ("lax.conv_transpose(img, ker, (2, 2), 'SAME') ** 2", "ker"),
        ("jax.image.resize(rw, (2, 4, 9), 'cubic') ** 2", "rw"),
        ("jax.ops.segment_max(f4, ids, 6)[:3:2]", "f4"),
        ("jax.ops.segment_sum(f4, ids, 6) ** 2", "f4"),
    ],
)
def test_gradients(expression, name):
    def gradient(lib, space):
        weigh = space["jnp"].cos

        def loss(x):
            out = eval(expression, {**space, name: x})
            return (out * weigh(space["jnp"].arange(out.size) * 1.0).reshape(out.shape)).sum()

        return lib.grad(loss)(space[name])

    assert_same(leaves([gradient(lumjax, OURS)]), leaves([gradient(jax, THEIRS)]), 1e-4, False)


def test_reduce_window_of_a_tree_by_any_function():
    def best(a, b):
        first = a[0] >= b[0]
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    x = jnp.array([3.0, 1.0, 4.0, 1.0, 5.0])
    value, place = lax.reduce_window((x, jnp.arange(5)), (-jnp.inf, -1), best, (2,), (1,), "VALID")
    assert value.tolist() == [3.0, 4.0, 4.0, 5.0]
    assert place.tolist() == [0, 2, 2, 4]


def test_errors():
    x = jnp.ones((2, 3))
    with pytest.raises(ShapeError):
        lax.reduce_window(x, 0.0, lax.add, (2,), (1,), "VALID")
    with pytest.raises(ArgumentValueError):
        lax.conv_transpose(jnp.ones((1, 2, 1)), jnp.ones((2, 1, 1)), (1,), "ODD")
    with pytest.raises(ShapeError):
        lumjax.image.resize(x, (2,), "linear")
    with pytest.raises(ArgumentValueError):
        lumjax.image.resize(x, (2, 2), "odd")
    with pytest.raises(ArgumentValueError):
        lumjax.image.scale_and_translate(x, (2, 2), (0,), jnp.ones(1), jnp.ones(1), "nearest")
    with pytest.raises(ArgumentValueError):
        ops.segment_sum(x, jnp.array([0, 1]), -1)
    with pytest.raises(ConcretizationError):
        lumjax.jit(ops.segment_sum)(x, jnp.array([0, 1]))
