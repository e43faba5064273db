"""Reductions and cumulative operations: nan, empty axes, narrow dtypes, zeros and ties."""

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.errors import ArgumentValueError, DTypeError, ShapeError
from lumjax.grad.jacobian import hessian, jacfwd, jacrev
from lumjax.ops import cumulative, elementwise, layout, reduce
from lumjax.trace.array import Array
from tests.ops import laws

X = np.asarray([[3.0, -1.0, 2.0], [0.5, np.nan, -4.0]], np.float32)
FLOATS = [dt.float16, dt.bfloat16, dt.float32]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), ()])
def test_nan_wins_extrema(dtype, axes):
    x = X.astype(dtype)
    laws.close(reduce.reduce_max(x, axes), np.asarray(np.max(X, axes)).astype(dtype))
    laws.close(reduce.reduce_min(x, axes), np.asarray(np.min(X, axes)).astype(dtype))


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (dt.float32, -np.inf, np.inf),
        (dt.int8, -128, 127),
        (dt.uint8, 0, 255),
        (dt.bool_, False, True),
    ],
)
def test_identities_where_nothing_is_reduced(dtype, low, high):
    x = np.zeros((0, 2), dtype)
    assert reduce.reduce_max(x, (0,)).data.tolist() == [low, low]
    assert reduce.reduce_min(x, (0,)).data.tolist() == [high, high]
    assert reduce.reduce_max(x, (0,)).dtype == dtype
    if dtype != dt.bool_:
        assert reduce.reduce_prod(x, (0,)).data.tolist() == [1, 1]


def test_bitwise_reductions():
    x = np.asarray([[0b1100, 0b1010], [0b0110, 0b0011]], np.int32)
    assert reduce.reduce_and(x, (1,)).data.tolist() == [0b1000, 0b0010]
    assert reduce.reduce_or(x, (1,)).data.tolist() == [0b1110, 0b0111]
    assert reduce.reduce_xor(x, None).data == 0b1100 ^ 0b1010 ^ 0b0110 ^ 0b0011
    flags = np.asarray([[True, False], [True, True]])
    assert reduce.reduce_and(flags, (1,)).data.tolist() == [False, True]
    assert reduce.reduce_or(np.zeros((0,), bool), (0,)).data == np.False_
    assert reduce.reduce_and(np.zeros((0,), np.uint8), (0,)).data == 255


@pytest.mark.parametrize("dtype", [*FLOATS, dt.int32, dt.bool_])
def test_first_index_wins(dtype):
    x = np.asarray([[1, 0, 1, 0], [0, 0, 1, 1]]).astype(dtype)
    assert reduce.argmax(x, 1).data.tolist() == [0, 2]
    assert reduce.argmin(x, 1).data.tolist() == [1, 0]
    assert reduce.argmax(x, -2, dt.uint8).data.tolist() == [0, 0, 0, 1]
    assert reduce.argmax(x, 0, dt.uint8).dtype == dt.uint8


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_wins_positions(dtype):
    x = np.asarray([1, np.nan, np.inf, np.nan, -np.inf], dtype)
    for f, prim in ((reduce.argmax, reduce.argmax_p), (reduce.argmin, reduce.argmin_p)):
        assert f(x, 0).data == 1
        (expanded,) = prim.expand(Array(x), axes=(0,), index_dtype=dt.int32)
        assert expanded.data == 1
        assert f(x, 0).dtype == expanded.dtype
    zeros = np.asarray([-0.0, 0.0], dtype)
    assert reduce.argmax(zeros, 0).data == 0


def test_products_of_narrow_dtypes_accumulate_wide():
    x = np.asarray([300.0, 300.0, 1e-3, 1e-3], np.float16)
    want = np.prod(x.astype(np.float32)).astype(np.float16)
    assert reduce.reduce_prod(x, None).data == want
    assert cumulative.cumprod(x).data[-1] == want
    assert cumulative.cumsum(np.ones(4096, dt.bfloat16)).data[-1] == 4096


CUMULATIVE = [
    (cumulative.cumsum, np.cumsum),
    (cumulative.cumprod, np.cumprod),
    (cumulative.cummax, np.maximum.accumulate),
    (cumulative.cummin, np.minimum.accumulate),
    (cumulative.cumlogsumexp, np.logaddexp.accumulate),
]


@pytest.mark.parametrize(("f", "want"), CUMULATIVE)
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative(f, want, reverse):
    rng = np.random.default_rng(0)
    for shape, axis in [((5,), 0), ((2, 4), 1), ((3, 0), 1), ((1, 2), -2)]:
        x = rng.normal(size=shape)
        y = np.flip(want(np.flip(x, axis), axis=axis), axis) if reverse else want(x, axis=axis)
        laws.close(f(x.astype(np.float32), axis, reverse), y.astype(np.float32))
    if f not in (cumulative.cumlogsumexp,):
        x = rng.integers(-3, 4, 6).astype(np.int8)
        y = np.flip(want(np.flip(x))) if reverse else want(x)
        assert f(x, 0, reverse).data.tolist() == y.astype(np.int8).tolist()


def test_cumulative_extremes():
    x = np.asarray([-np.inf, -np.inf, 1.0, np.inf], np.float32)
    assert cumulative.cumlogsumexp(x).data.tolist() == [-np.inf, -np.inf, 1.0, np.inf]
    assert np.isnan(
        cumulative.cummax(np.asarray([1, np.nan, 3], dt.bfloat16)).data[1:].astype(float)
    ).all()


def weighted(f):
    """A scalar function whose derivative tells the elements apart."""

    def loss(x):
        y = f(x)
        w = np.arange(
            1.0, 1.0 + y.data.size if isinstance(y, Array) else 1.0 + int(np.prod(y.aval.shape))
        )
        return layout.reduce_sum(elementwise.mul(layout.reshape(y, (-1,)), w), (0,))

    return loss


POINTS = [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0], [1.5, -2.0, 0.7, 0.3, 2.0], [2.0]]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", ["prod", "cumprod", "cumlogsumexp"])
def test_derivatives_through_zeros_agree_with_jax_to_second_order(name, point):
    jax = pytest.importorskip("jax")
    ours = {
        "prod": lambda x: layout.reshape(reduce.reduce_prod(x, (0,)), (1,)),
        "cumprod": cumulative.cumprod,
        "cumlogsumexp": lambda x: cumulative.cumlogsumexp(x, reverse=True),
    }[name]
    theirs = {
        "prod": lambda x: jax.numpy.prod(x)[None],
        "cumprod": jax.lax.cumprod,
        "cumlogsumexp": lambda x: jax.lax.cumlogsumexp(x, reverse=True),
    }[name]
    x = np.asarray(point)
    with config.scope(enable_x64=True), jax.enable_x64(True):
        want = jax.jit(jax.jacfwd(theirs))(x)
        for jacobian in (jacfwd, jacrev):
            np.testing.assert_allclose(jacobian(ours)(x).data, want, rtol=1e-12, atol=1e-12)
        loss = lambda x: (theirs(x) * np.arange(1.0, 1.0 + len(theirs(x)))).sum()
        second = jax.jit(jax.hessian(loss))(x)
        np.testing.assert_allclose(hessian(weighted(ours))(x).data, second, rtol=1e-11, atol=1e-11)


def test_logsumexp_of_nothing_has_derivative_zero():
    with config.scope(enable_x64=True):
        x = np.asarray([-np.inf, -np.inf, -np.inf, 1.0])
        rows = jacrev(cumulative.cumlogsumexp)(x).data
        np.testing.assert_array_equal(rows, np.diag([0.0, 0, 0, 1]))
        np.testing.assert_array_equal(
            hessian(weighted(cumulative.cumlogsumexp))(x).data, np.zeros((4, 4))
        )


def test_ties_share_evenly():
    with config.scope(enable_x64=True):
        x = np.asarray([2.0, 2.0, 1.0, 2.0])
        third = [1 / 3, 1 / 3, 0, 1 / 3]
        np.testing.assert_allclose(jacrev(lambda x: reduce.reduce_max(x, (0,)))(x).data, third)
        np.testing.assert_allclose(jacfwd(lambda x: reduce.reduce_min(x, (0,)))(-x).data, third)
        for f, sign in ((cumulative.cummax, 1), (cumulative.cummin, -1)):
            want = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], third]
            np.testing.assert_allclose(jacrev(f)(sign * x).data, want)
            np.testing.assert_allclose(jacfwd(f)(sign * x).data, want)
        assert jacrev(lambda x: reduce.reduce_max(x, (0,)))(np.zeros(0)).data.shape == (0,)


def test_products_over_several_axes_differentiate():
    rng = np.random.default_rng(1)
    for shape, axes in [((2, 3, 4), (0, 2)), ((5, 2), (0,)), ((2, 0), (1,)), ((2, 2), ())]:
        laws.check_jvp(reduce.reduce_prod_p, [rng.normal(size=shape)], {"axes": axes}, rng)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: reduce.reduce_max(np.ones(2, np.complex64), None), DTypeError, "real or bool"),
        (lambda: reduce.reduce_prod(np.ones(2, bool), None), DTypeError, "numeric"),
        (lambda: reduce.reduce_and(np.ones(2, np.float32), None), DTypeError, "bool or integer"),
        (lambda: reduce.argmax(np.ones((2, 0), np.float32), 1), ShapeError, "at least one element"),
        (lambda: reduce.argmax(np.ones(2, np.float32), 0, dt.float32), DTypeError, "index dtype"),
        (lambda: reduce.argmax(np.ones(2, np.float32), 1), ArgumentValueError, "axis in"),
        (lambda: cumulative.cumsum(np.ones((), np.float32)), ArgumentValueError, "axis in"),
        (lambda: cumulative.cummax(np.ones(2, np.complex64)), DTypeError, "ordered"),
        (lambda: cumulative.cumlogsumexp(np.ones(2, np.int32)), DTypeError, "int|i32"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call()
    assert caught.value.source.file == __file__


def test_integers_have_no_tangent():
    x = np.asarray([1, 2], np.int32)
    for prim, params in [
        (reduce.reduce_or_p, {"axes": (0,)}),
        (reduce.argmin_p, {"axes": (0,), "index_dtype": dt.int32}),
    ]:
        _, (tangent,) = prim.jvp((x,), (None,), **params)
        assert tangent is None
