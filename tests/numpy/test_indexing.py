"""x[...], x.at[...] and their relatives: NumPy's rules, and what JAX does where NumPy has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lumjax
import lumjax.numpy as jnp
from lumjax.errors import (
    ArgumentTypeError,
    ConcretizationError,
    IndexRangeError,
    ScalarRangeError,
    ShapeError,
)
from tests.numpy.oracle import check, lines
from tests.strategies import indices, shapes

SHAPES = shapes(3, sizes=(1, 2, 3, 4, 0))


def numbers(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


@st.composite
def indexed(draw: Any, **options: Any) -> tuple[np.ndarray[Any, Any], Any]:
    shape = draw(SHAPES)
    return numbers(shape), draw(indices(shape, **options))


@settings(max_examples=400, deadline=None)
@given(indexed())
def test_getitem_is_numpys(case):
    x, index = case
    np.testing.assert_array_equal(np.asarray(jnp.asarray(x)[index]), x[index], strict=True)


@settings(max_examples=60, deadline=None)
@given(indexed(advanced=False))
def test_getitem_is_the_same_when_traced(case):
    x, index = case
    found = lumjax.vmap(lambda v: v[index])(jnp.stack([x, x + 1000]))
    np.testing.assert_array_equal(np.asarray(found), np.stack([x[index], (x + 1000)[index]]))


@settings(max_examples=60, deadline=None)
@given(indexed())
def test_gradient_of_getitem_counts_the_reads(case):
    x, index = case
    got = lumjax.grad(lambda v: v[index].sum())(jnp.asarray(x, np.float32))
    want = np.zeros(x.shape, np.float32)
    np.add.at(want, index, 1)
    np.testing.assert_array_equal(np.asarray(got), want)


def reads_once(x: np.ndarray[Any, Any], index: Any) -> bool:
    return len(np.unique(x[index])) == x[index].size


@settings(max_examples=300, deadline=None)
@given(indexed(), st.sampled_from(["set", "add", "mul", "min", "max", "subtract"]))
def test_updates_are_numpys(case, kind):
    x, index = case
    if kind == "set" and not reads_once(x, index):
        return  # the order of NumPy's writes is its own affair; test_the_last_set_wins has ours
    y = (numbers(x[index].shape) % 7 - 3).astype(np.int32)
    want = x.copy()
    if kind == "set":
        want[index] = y
    else:
        functions = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
                     "subtract": np.subtract}  # fmt: skip
        functions[kind].at(want, index, y)
    got = getattr(jnp.asarray(x).at[index], kind)(y)
    np.testing.assert_array_equal(np.asarray(got), want, strict=True)


@settings(max_examples=100, deadline=None)
@given(indexed())
def test_a_scalar_update_broadcasts(case):
    x, index = case
    want = x.copy()
    want[index] = -5
    np.testing.assert_array_equal(np.asarray(jnp.asarray(x).at[index].set(-5)), want)


def test_values_take_the_arrays_dtype():
    assert jnp.zeros(2, int).at[0].set(2.7).tolist() == [2, 0]


def test_a_traced_mask_of_the_whole_array_needs_no_known_values():
    x, mask = jnp.arange(4.0), jnp.array([True, False, True, False])
    assert lumjax.jit(lambda v, m: v.at[m].set(-1.0))(x, mask).tolist() == [-1.0, 1.0, -1.0, 3.0]


def test_known_boxes_are_windows():
    f = lambda v, u: v.at[1, 1:3].set(u).at[..., -1].add(1.0).at[0].mul(2.0)
    x, u = jnp.ones((3, 4)), jnp.array([5.0, 6.0])
    assert "scatter" not in str(lumjax.make_jaxpr(f)(x, u))
    assert lumjax.jit(f)(x, u).tolist() == [
        [2.0, 2.0, 2.0, 4.0],
        [1.0, 5.0, 6.0, 2.0],
        [1.0, 1.0, 1.0, 2.0],
    ]
    gx, gu = lumjax.grad(lambda v, w: f(v, w).sum(), argnums=(0, 1))(x, u)
    assert gx.tolist() == [[2.0] * 4, [1.0, 0.0, 0.0, 1.0], [1.0] * 4]
    assert gu.tolist() == [1.0, 1.0]


def test_the_last_set_wins():
    got = jnp.zeros(3).at[np.array([1, 1, 2, 1])].set(np.array([1.0, 2.0, 3.0, 4.0]))
    assert got.tolist() == [0.0, 4.0, 3.0]


@pytest.mark.parametrize(
    "expression",
    lines("""
    f34.at[1].set(0)
    f34.at[1, 2].add(2)
    f34.at[t6 % 3].add(1.0)
    f34.at[t6 % 3].mul(2.0)
    f34.at[t6 % 3, 1].max(0.5)
    f34.at[t6 % 3, t6].min(-0.5)
    f34.at[::2].multiply(3)
    f34.at[0].divide(2)
    f34.at[0].subtract(f4)
    p34.at[0].power(2)
    i34.at[1].add(True)
    bf4.at[1].add(1.5)
    f34.at[b34].set(7)
    f34.at[b34].add(1)
    f34.at[b34].mul(-1)
    f34.at[1].apply(jnp.exp)
    f34.at[..., 0].set(i34[:, 0])
    f34.at[:, None].set(0) if False else f34.at[:, 1:3].set(f1)
    f34.at[1].get()
    f34.at[jnp.array([5, -1])].get(mode='fill', fill_value=9)
    f34.at[jnp.array([5, -1])].get(mode='clip')
    f34.at[jnp.array([5, 1])].get(mode='fill')
    i34.at[jnp.array([5, 1])].get(mode='fill')
    jax.jit(lambda x, i: x[i])(f34, 9)
    jax.jit(lambda x, i: x[i])(f34, -9)
    jax.jit(lambda x, i: x[i, :2])(f34, -1)
    jax.jit(lambda x, i: x[:, i])(f34, jnp.array([9, -1]))
    jax.jit(lambda x, i: x.at[i].set(0))(f34, 9)
    jax.jit(lambda x, i: x.at[i].add(1))(f34, jnp.array([9, 1, -1, -9]))
    jax.jit(lambda x, i: x.at[i].set(0, mode='clip'))(f34, 9)
    jax.jit(lambda x, i: x.at[i, 1:].mul(2))(f34, 1)
    jax.jit(lambda x, m: jnp.where(m, x, 0)[0])(f34, b34)
    f34[jnp.array([0, 2]), None, 1:]
    f34[:, jnp.array([[0, 1], [2, 3]])]
    f234[jnp.array([0, 1]), :, jnp.array([0, 1])]
    f234[:, jnp.array([0, 1]), jnp.array([0, 1])]
    f234[0, :, jnp.array([0, 1])]
    f34[u8 % 3]
    f34[b34]
    f34[b4[:3]]
    f34[True]
    f34[None, ..., -1]
    f34[::-2, 1:3]
    w[None]
    s[()]
    s[...]
    f34[np.int64(1)]
    f34[k]
"""),
)
def test_expressions(expression):
    check(expression)


@pytest.mark.parametrize("index", [3, -4, (0, 4), np.array([0, 3]), (slice(None), np.array([-5]))])
def test_known_indices_out_of_range_raise(index):
    x = jnp.zeros((3, 4))
    with pytest.raises(IndexRangeError):
        x[index]
    with pytest.raises(IndexError):
        x.at[index].set(1)
    with pytest.raises(IndexRangeError):
        lumjax.jit(lambda v: v[index])(x)


def test_too_many_indices_raise():
    for index in [(0, 0, 0), (..., ...), (0, ..., 0, 0)]:
        with pytest.raises(IndexError):
            jnp.zeros((3, 4))[index]


def test_bad_indices_raise():
    x = jnp.zeros((3, 4))
    for index in [1.5, "a", np.array([1.5]), 2j, (0, 0.5)]:
        with pytest.raises(ArgumentTypeError):
            x[index]
    with pytest.raises(IndexError):
        x[np.array([True, False])]


def test_traced_masks_and_bounds_say_what_to_do():
    x = jnp.arange(4.0)
    with pytest.raises(ConcretizationError, match="where"):
        lumjax.jit(lambda v: v[v > 1])(x)
    with pytest.raises(ConcretizationError, match="dynamic_slice"):
        lumjax.jit(lambda v, i: v[i:])(x, 1)


def test_values_that_do_not_fit_raise():
    with pytest.raises(ShapeError):
        jnp.zeros((3, 4)).at[0].set(jnp.zeros(3))
    with pytest.raises(ArgumentTypeError):
        jnp.zeros(3).at[0].set(1j)


def test_arrays_are_immutable():
    x = jnp.zeros(3)
    with pytest.raises(TypeError, match="at"):
        x[0] = 1.0
    with pytest.raises(TypeError, match="immutable"):
        del x[0]


def test_arrays_of_one_bool_as_indices():
    x = np.arange(6.0, dtype="f4").reshape(2, 3)
    for flag in (True, False):
        for made in (jnp.asarray(flag), np.asarray(flag), np.bool_(flag)):
            for index in (lambda f: f, lambda f: (f, 1), lambda f: (..., f), lambda f: (0, f)):
                got = jnp.asarray(x)[index(made)]
                np.testing.assert_array_equal(got, x[index(flag)])


def test_positions_are_of_the_default_integer():
    """As JAX's: int64 where 64-bit types are enabled."""
    for wide, dtype in ((False, "int32"), (True, "int64")):
        with lumjax.enable_x64(wide):
            x = jnp.asarray([2, 0, 1], "int8")
            found = [
                *jnp.nonzero(x), *jnp.nonzero(x, size=2), jnp.argwhere(x), jnp.flatnonzero(x),
                *jnp.unique(x, True, True, True)[1:], *jnp.unique_all(x)[1:], jnp.lexsort((x,)),
                jnp.bincount(x), jnp.indices((2,)), jnp.argsort(x), jnp.argmax(x),
                jnp.cumulative_sum(x), jnp.cumulative_prod(x),
            ]  # fmt: skip
            assert {str(v.dtype) for v in found} == {dtype}
            assert jnp.cumulative_sum(x > 0, include_initial=True).tolist() == [0, 1, 1, 2]
    assert jnp.unstack(jnp.zeros((0, 2))) == ()
    assert jnp.diff(jnp.arange(3), n=0, prepend=0).shape == (3,)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16", "complex64"])
@pytest.mark.parametrize("shape", [(4,), (3, 2), (2, 0), (2, 2000)])
def test_one_row_is_the_same_by_every_way(dtype, shape):
    """The short way of eager programs, and the way of traced ones."""
    x = jnp.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    kinds = {"bool": ("min", "max"), "complex64": ("add", "multiply")}
    kinds = kinds.get(dtype, ("add", "multiply", "min", "max"))

    def every(x):
        for index in (0, 1, -1, -shape[0]):
            yield x[index]
            yield x.at[index].set(1)
            for kind in kinds:
                yield getattr(x.at[index], kind)(2)
                yield getattr(x.at[index], kind)(x[1])

    for a, b in zip(every(x), lumjax.jit(lambda x: list(every(x)))(x), strict=True):
        assert (a.dtype, a.weak_type) == (x.dtype, False)
        np.testing.assert_array_equal(a, b)
    for wrong in (shape[0], -shape[0] - 1):
        with pytest.raises(IndexError):
            x[wrong]
        with pytest.raises(IndexError):
            x.at[wrong].set(1)
    y = lumjax.grad(lambda x: (x[1] * x.at[0].set(2.0)[0]).sum())(jnp.ones((3, 2)))
    np.testing.assert_array_equal(y, [[0, 0], [2, 2], [0, 0]])


SPECIALS = (0.1, -0.0, 2.0, 1e300, -1e39, np.inf, -np.inf, np.nan, 3, -7, 2**31 - 1, True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8", "bool"])
def test_a_number_is_converted_the_same_way_everywhere(dtype):
    x = jnp.ones(3).astype(dtype)
    with np.errstate(all="raise"):
        written = [x.at[1].set(v) for v in SPECIALS]
    traced = lumjax.jit(lambda x: [x.at[1].set(v) for v in SPECIALS])(x)
    given = [x.at[1].set(jnp.asarray(v)) for v in SPECIALS]
    for a, b, c in zip(written, traced, given, strict=True):
        assert (a.dtype, a.weak_type) == (x.dtype, b.weak_type)
        for other in (b, c):
            np.testing.assert_array_equal(np.asarray(a).view("u1"), np.asarray(other).view("u1"))


def test_a_number_that_does_not_fit_is_refused_everywhere():
    for x in (jnp.ones(3), jnp.ones(3, int)):
        with pytest.raises(ScalarRangeError):
            x.at[1].set(2**31)


KINDS = ("int8", "int32", "int64", "uint8")


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_index_arrays_of_different_integers(first, second):
    x = numbers((3, 4))
    i, j = np.array([0, 2], first), np.array([[1], [3]], second)
    want = np.array(x)
    want[i, j] = 100
    with lumjax.enable_x64(True):
        pick = lumjax.jit(lambda i, j: jnp.asarray(x)[i, j]) if first < second else None
        assert np.array_equal(jnp.asarray(x)[i, j], x[i, j])
        assert np.array_equal(jnp.asarray(x).at[i, j].set(100), want)
        assert pick is None or np.array_equal(pick(i, j), x[i, j])
