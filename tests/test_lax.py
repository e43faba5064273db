"""lax against JAX: the functions with their own code here; errors."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.errors import ShapeError
from tests.numpy.oracle import check, lines


@pytest.mark.parametrize(
    "expression",
    lines("""
    lax.select(b4, f4, f4 * 2)
    lax.select_n(b4, f4, f4 * 2)
    lax.select_n(jnp.array([0, 2, 1, 0]), f4, f4 * 2, f4 * 3)
    lax.clamp(0.0, f4, 1.0)
    lax.clamp(jnp.float32(-1), f4, jnp.float32(2))
    lax.convert_element_type(f4, jnp.int32)
    lax.convert_element_type(e4, 'int32')
    lax.convert_element_type(2, jnp.float32)
    lax.bitcast_convert_type(f4, jnp.int32)
    lax.sort(f34)
    lax.sort(f34, dimension=0)
    lax.sort((t6, jnp.arange(6)), num_keys=1)
    lax.sort_key_val(t6, jnp.arange(6))
    lax.top_k(f34, 2)
    lax.broadcast(f4, (2, 3))
    lax.broadcast_in_dim(f4, (2, 4, 3), (1,))
    lax.broadcasted_iota(jnp.int32, (2, 3), 1)
    lax.iota(jnp.float32, 4)
    lax.collapse(f234, 1)
    lax.collapse(f234, 0, 2)
    lax.slice_in_dim(f34, 1, 3, axis=1)
    lax.slice_in_dim(f34, 0, None, 2, axis=1)
    lax.slice_in_dim(f34, -2, None)
    lax.slice(f34, (0, 1), (3, 4), (2, 1))
    lax.index_in_dim(f34, 1)
    lax.index_in_dim(f34, -1, axis=1, keepdims=False)
    lax.dynamic_slice(f34, (1, 1), (2, 2))
    lax.dynamic_slice(f34, (9, k), (2, 2))
    lax.dynamic_slice(f34, (-1, -1), (2, 2))
    lax.dynamic_slice_in_dim(f34, k, 1, axis=1)
    lax.dynamic_index_in_dim(f34, k, 1)
    lax.dynamic_index_in_dim(f34, k, 1, keepdims=False)
    lax.dynamic_update_slice(f34, jnp.ones((2, 2)), (k, 1))
    lax.dynamic_update_slice_in_dim(f34, jnp.ones((1, 4)), k, axis=0)
    lax.dynamic_update_index_in_dim(f34, f4, k, 0)
    lax.full((2, 3), 1.5)
    lax.full((2,), 1, jnp.int8)
    lax.full_like(f34, 2)
    lax.full_like(f34, 2.5, dtype=jnp.int32, shape=(2,))
    lax.expand_dims(f4, (0, 2))
    lax.squeeze(f14, (0,))
    lax.reshape(f34, (4, 3))
    lax.transpose(f34, (1, 0))
    lax.rev(f34, (0,))
    lax.concatenate([f34, f34], 1)
    lax.pad(f34, jnp.float32(0), ((1, 2, 0), (0, 1, 1)))
    lax.pad(f34, jnp.float32(9), ((-1, 0, 0), (0, -2, 1)))
    lax.dot(f34, f43)
    lax.dot_general(f234, f245, (((2,), (1,)), ((0,), (0,))))
    lax.dot_general(f34, f34, (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST)
    lax.batch_matmul(f234, f245)
    lax.cumsum(f34, axis=1)
    lax.cumsum(f34, axis=0, reverse=True)
    lax.cumprod(f34, axis=1)
    lax.cummax(f34, axis=1)
    lax.cummin(f34, axis=0, reverse=True)
    lax.cumlogsumexp(f34, axis=1)
    lax.argmax(f34, 1, jnp.int32)
    lax.argmin(f34, 0, jnp.int32)
    lax.reduce(f34, jnp.float32(0), lax.add, (0,))
    lax.reduce(f34, jnp.float32(-jnp.inf), lax.max, (0, 1))
    lax.reduce(i34, jnp.int32(1), lambda a, b: a * b, (1,))
    lax.associative_scan(lax.add, f34)
    lax.associative_scan(lax.mul, f34, axis=1, reverse=True)
    lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (p34, f34))
    lax.associative_scan(lax.max, f0)
    lax.rsqrt(p34)
    lax.integer_pow(f4, 3)
    lax.pow(p34, f34)
    lax.div(i4, jnp.array([2, 2, 0, -2]))
    lax.rem(i4, jnp.array([2, -4, 0, 3]))
    lax.rem(f4, 1.25) if False else lax.rem(f4, jnp.full(4, 1.25, jnp.float32))
    lax.shift_left(i4, jnp.array([1, 2, 3, 40]))
    lax.shift_right_logical(i4, jnp.array([1, 2, 3, 40]))
    lax.shift_right_arithmetic(i4, jnp.array([1, 2, 3, 40]))
    lax.population_count(i4)
    lax.clz(i4)
    lax.bitwise_not(i4)
    lax.erf(f34)
    lax.erfc(f34)
    lax.erf_inv(p34)
    lax.lgamma(p34)
    lax.digamma(p34)
    lax.logistic(f34)
    lax.expm1(f34)
    lax.log1p(p34)
    lax.exp2(f34)
    lax.sign(e4)
    lax.is_finite(e4)
    lax.nextafter(f4, f4 + 1)
    lax.reciprocal(f4)
    lax.square(f4)
    lax.cbrt(f4)
    lax.round(f4, lax.RoundingMethod.TO_NEAREST_EVEN)
    lax.round(f4)
    lax.stop_gradient(f4)
    lax.scan(lambda c, x: (c + x, c * x), 0.0, f4)
    lax.scan(lambda c, x: (c + x, c), jnp.float32(0), f4, reverse=True)
    lax.scan(lambda c, _: (c * 2, c), 1, None, length=4)
    lax.scan(lambda c, x: (c + x['a'], None), jnp.zeros(4), {'a': f34}, unroll=2)
    lax.map(lambda x: x * 2, f34)
    lax.fori_loop(0, 5, lambda i, v: v + i, 0)
    lax.fori_loop(0, k, lambda i, v: v * 2.0, 1.0)
    lax.while_loop(lambda v: v < 100, lambda v: v * 3, 1)
    lax.cond(True, lambda x: x + 1, lambda x: x - 1, f4)
    lax.cond(k > 5, lambda x: x + 1, lambda x: x - 1, f4)
    lax.switch(k, [lambda x: x, lambda x: x * 2, lambda x: x * 3], f4)
    lax.switch(9, [lambda x: x, lambda x: x * 2], f4)
    lax.conv_general_dilated(nchw, oihw, (1, 1), 'SAME')
    lax.conv_general_dilated(nchw, oihw, (2, 1), 'VALID')
    lax.conv_general_dilated(nchw, oihw, (1, 1), ((1, 2), (0, 1)), (1, 2), (2, 1))
    lax.conv_general_dilated(img, ker, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
    lax.conv_general_dilated(nchw, oihw[:3, :1], (1, 1), 'SAME', feature_group_count=3)
    lax.conv(nchw, oihw, (1, 1), 'SAME')
    lax.conv_with_general_padding(nchw, oihw, (1, 1), ((0, 0), (1, 1)), (1, 1), (1, 1))
    lax.broadcast_shapes((2, 1), (3,))
    lax.reduce_sum(f34, (0,)) if False else jnp.sum(f34, 0)
"""),
)
def test_expressions(expression):
    check(expression, 2e-5)


def test_collectives_over_a_named_axis():
    x = jnp.arange(6.0).reshape(3, 2)
    out = lumjax.vmap(lambda v: v / lax.psum(v, "i"), axis_name="i")(x)
    np.testing.assert_allclose(np.asarray(out), np.asarray(x) / np.asarray(x).sum(0))
    assert lumjax.vmap(lambda v: lax.pmean(v, "i"), axis_name="i")(x).shape == (3, 2)
    ids = lumjax.vmap(lambda v: lax.axis_index("i"), axis_name="i")(x)
    assert ids.tolist() == [0, 1, 2]


def test_associative_scan_is_differentiable():
    x = jnp.arange(1.0, 6.0)
    got = lumjax.grad(lambda v: lax.associative_scan(lax.mul, v)[-1])(x)
    np.testing.assert_allclose(np.asarray(got), 120 / np.arange(1.0, 6.0), rtol=1e-6)


def test_errors():
    with pytest.raises(ShapeError):
        lax.associative_scan(lambda a, b: a, (jnp.ones(3), jnp.ones(4)))
    with pytest.raises(TypeError):
        lax.select(jnp.ones(3), jnp.ones(3), jnp.ones(3))
    with pytest.raises(TypeError):
        lax.dot_general(jnp.ones((2, 3)), jnp.ones((2, 3)), (((1,), (0,)), ((), ())))
    with pytest.raises(TypeError):
        lax.concatenate([jnp.ones((2, 3)), jnp.ones((3, 3))], 1)
