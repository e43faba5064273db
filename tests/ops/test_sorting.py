"""sort and top_k: nan last, zeros of both signs equal, ties in order, several keys, derivatives."""

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.errors import ArgumentValueError, DTypeError, ShapeError
from lumjax.grad.jacobian import jacfwd, jacrev
from lumjax.ops.sorting import argsort, sort, sort_p, top_k, top_k_p
from lumjax.trace.array import Array
from lumjax.trace.batch import MappedAxis
from tests.ops import laws

SPECIAL = [3.0, np.nan, -0.0, 0.0, -np.inf, np.inf, np.nan, 0.0, -0.0, 1.0]


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16, dt.float32])
def test_order_of_special_values(dtype):
    x = np.asarray(SPECIAL, dtype)
    want = [4, 2, 3, 7, 8, 9, 0, 5, 1, 6]
    assert argsort(x).data.tolist() == want
    values = sort(x).data
    assert np.signbit(values[1:5].astype(float)).tolist() == [True, False, False, True]
    np.testing.assert_array_equal(values.astype(float), x[want].astype(float))
    assert values.dtype == dtype


@pytest.mark.parametrize(
    "dtype", [dt.float32, dt.bfloat16, dt.int8, dt.uint32, dt.bool_, dt.complex64]
)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_against_jax(dtype, axis):
    lax = pytest.importorskip("jax").lax
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (4, 7)).astype(dtype)
    if dtype == dt.complex64:
        x = x + 1j * rng.integers(0, 2, (4, 7)).astype(np.float32)
    laws.close(sort(x, axis), np.asarray(lax.sort(x, dimension=axis % 2)))
    payload = np.arange(28, dtype=np.int32).reshape(4, 7)
    ours = sort((x, payload), axis)
    theirs = lax.sort((x, payload), dimension=axis % 2)
    for a, b in zip(ours, theirs, strict=True):
        laws.close(a, np.asarray(b))


@pytest.mark.parametrize("seed", range(6))
def test_several_keys_against_jax(seed):
    lax = pytest.importorskip("jax").lax
    rng = np.random.default_rng(seed)
    keys = [rng.integers(0, 3, 12).astype(t) for t in (np.float32, np.int8, np.uint8)]
    args = (*keys, np.arange(12, dtype=np.int32))
    for count in (1, 2, 3):
        ours = sort(args, 0, num_keys=count)
        theirs = lax.sort(args, dimension=0, num_keys=count)
        for a, b in zip(ours, theirs, strict=True):
            laws.close(a, np.asarray(b))


def test_keys_of_a_generator_are_carried_along():
    keys = np.arange(6, dtype=np.uint32).reshape(3, 2).view(dt.key).reshape(3)
    order, moved = sort((np.asarray([2, 0, 1]), keys))
    assert order.data.tolist() == [0, 1, 2]
    assert moved.data["fry"].tolist() == [[2, 3], [4, 5], [0, 1]]


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.int8, dt.uint8, dt.bool_])
@pytest.mark.parametrize("k", [0, 1, 3, 7])
def test_top_k_against_jax(dtype, k):
    lax = pytest.importorskip("jax").lax
    x = np.random.default_rng(k).integers(0, 4, (2, 7)).astype(dtype)
    for a, b in zip(top_k(x, k), lax.top_k(x, k), strict=True):
        laws.close(a, np.asarray(b))


def test_top_k_of_special_values_and_other_axes():
    x = np.asarray(SPECIAL, np.float32)
    values, at = top_k(x, 5)
    assert at.data.tolist() == [1, 6, 5, 0, 9]
    assert np.isnan(values.data[:2]).all()
    y = np.arange(6, dtype=np.float32).reshape(3, 2)
    values, at = top_k(y, 2, axis=0)
    assert values.data.tolist() == [[4, 5], [2, 3]]
    assert at.data.tolist() == [[2, 2], [1, 1]]


def test_derivatives_follow_the_permutation():
    x = np.asarray([3.0, 1.0, 2.0, 1.0])
    with config.scope(enable_x64=True):
        rows = np.eye(4)[[1, 3, 2, 0]]
        for jacobian in (jacfwd, jacrev):
            np.testing.assert_array_equal(jacobian(sort)(x).data, rows)
            best = jacobian(lambda x: top_k(x, 2)[0])(x).data
            np.testing.assert_array_equal(best, np.eye(4)[[0, 2]])
        second = jacrev(lambda y: sort((x, y))[1])(np.ones(4)).data
        np.testing.assert_array_equal(second, rows)
        assert jacrev(sort)(np.zeros((0,))).data.shape == (0, 0)
        (values, _), (dv, di) = top_k_p.jvp((Array(x),), (None,), k=1)
        assert values.data == 3
        assert dv is None
        assert di is None


def test_mapped_and_unmapped_operands_sort_together():
    x = np.asarray([[2.0, 1.0], [1.0, 2.0]], np.float32)
    shared = np.asarray([10, 20], np.int32)
    outs, dims = sort_p.batch(
        MappedAxis(2), (x, shared), (1, None), dimension=0, is_stable=True, num_keys=1
    )
    assert dims == (0, 0)
    assert outs[1].data.tolist() == [[20, 10], [10, 20]]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: sort(()), ArgumentValueError, "at least one"),
        (lambda x: sort((x, x), num_keys=3), ArgumentValueError, "num_keys"),
        (lambda x: sort((x, x[:1])), ShapeError, "one shape"),
        (lambda x: sort(x, 2), ArgumentValueError, "axis in"),
        (lambda x: sort(np.zeros(2, dt.key)), DTypeError, "ordered dtype"),
        (lambda x: top_k(x, 3), ArgumentValueError, "between 0 and"),
        (lambda x: top_k(x, -1), ArgumentValueError, "between 0 and"),
        (lambda x: top_k(np.zeros(2, np.complex64), 1), DTypeError, "real or bool"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call(np.ones((3, 2), np.float32))
    assert caught.value.source.file == __file__
