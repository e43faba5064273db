"""The oracle of terms against NumPy written out."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.kernel import evaluate as ev
from lumjax.kernel.evaluate import (
    convert,
    evaluate,
    evaluate_at,
    evaluate_group,
    evaluate_term,
    identity,
    strain,
)
from lumjax.kernel.term import Apply, Load, Root
from lumjax.ops.integer import bitcast_op
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp
from tests.kernel.build import (
    MAX,
    SUM,
    axis,
    buf,
    cast,
    group,
    index,
    lit,
    load,
    op,
    reduce,
    root,
    sym,
)

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def test_axes_broadcast_and_transpose_by_name():
    i, j = axis("i", 3), axis("j", 4)
    x, y = normal(3, 4), normal(4)
    r = root("o", (j, i), op("add", load("x", i, j), load("y", j)))
    np.testing.assert_array_equal(evaluate(r, {"x": x, "y": y}), (x + y).T)


def test_contractions_and_their_epilogue():
    m, n, k = axis("m", 3), axis("n", 4), axis("k", 5)
    x, y = normal(3, 5), normal(5, 4)
    term = op("neg", reduce(SUM, k, op("mul", load("x", m, k), load("y", k, n))))
    got = evaluate(root("o", (m, n), term), {"x": x, "y": y}, wide=True)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, -(x.astype(float) @ y.astype(float)), rtol=1e-14)


def test_a_factor_is_not_taken_out_of_a_sum():
    k = axis("k", 3)
    x = np.array([1, -1, 1], np.float32)
    r = root("o", (), reduce(SUM, k, op("mul", load("x", k), load("s"))))
    assert np.isnan(evaluate(r, {"x": x, "s": np.float32(np.inf)}))


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_large_terms_are_computed_piece_by_piece(pieces, monkeypatch):
    i, j, k = axis("i", 7), axis("j", 5), axis("k", 6)
    x = normal(7, 5, 6)
    r = root("o", (i, j), reduce(MAX, k, load("x", i, j, k)))
    monkeypatch.setattr(ev, "ELEMENTS_AT_ONCE", max(1, 210 // pieces))
    np.testing.assert_array_equal(evaluate(r, {"x": x}), x.max(2))


def test_what_varies_along_no_axis_of_the_root_is_no_reason_to_cut_it(monkeypatch):
    i, k = axis("i", 100), axis("k", 50)
    x = normal(100)
    pieces, run = [], ev._Run
    monkeypatch.setattr(ev, "ELEMENTS_AT_ONCE", 100)
    monkeypatch.setattr(ev, "_Run", lambda *a: pieces.append(a) or run(*a))
    r = root("o", (i,), op("add", load("x", i), reduce(MAX, k, load("y", k))))
    evaluate(r, {"x": x, "y": normal(50)})
    assert len(pieces) == 1


def test_an_axis_bound_inside_and_free_outside():
    i, k = axis("i", 3), axis("k", 5)
    x = normal(3, 5)
    e = op("exp", op("sub", load("x", i, k), reduce(MAX, k, load("x", i, k))))
    r = root("o", (i, k), op("div", e, reduce(SUM, k, e)))
    want = np.exp(x - x.max(1, keepdims=True))
    want /= want.sum(1, keepdims=True)
    np.testing.assert_allclose(evaluate(r, {"x": x}), want, rtol=1e-6)
    coords = np.array([[0, 0], [2, 4], [1, 3]])
    np.testing.assert_allclose(evaluate_at(r, {"x": x}, coords), want[tuple(coords.T)], rtol=1e-6)


def test_samples_of_a_scalar_and_of_nothing():
    i = axis("i", 3)
    x = normal(3)
    r = root("o", (), reduce(SUM, i, load("x", i)))
    assert evaluate_at(r, {"x": x}, np.zeros((1, 0), int)).shape == (1,)
    r = root("o", (i,), load("x", i))
    assert evaluate_at(r, {"x": x}, np.zeros((0, 1), int)).shape == (0,)


def test_masked_loads_read_the_fill_and_never_leave_the_buffer():
    i = axis("i", 6)
    inside = dims.logical_and(dims.less_equal(2, sym(i)), dims.less(sym(i), 4))
    r = root("o", (i,), Load(buf("x", 2), (sym(i) - 2,), inside, lit(9.0)))
    np.testing.assert_array_equal(
        evaluate(r, {"x": np.array([1, 2], np.float32)}), [9, 9, 1, 2, 9, 9]
    )
    empty = root("o", (i,), Load(buf("x", 0), (sym(i),), dims.less(sym(i), 0), lit(9.0)))
    np.testing.assert_array_equal(evaluate(empty, {"x": np.zeros(0, np.float32)}), [9] * 6)


def test_gather():
    i, j = axis("i", 3), axis("j", 2)
    rows = np.array([2, 0, 1], np.int32)
    index_term = load("rows", i, dtype=np.int32)
    x = normal(4, 2)
    gathered = Load(buf("x", 4, 2), (dims.symbol("g", 0, 3), sym(j)), indices=(("g", index_term),))
    np.testing.assert_array_equal(
        evaluate(root("o", (i, j), gathered), {"x": x, "rows": rows}), x[rows]
    )


def test_a_sum_of_halves_accumulates_in_float32():
    i = axis("i", 4096)
    x = np.ones(4096, np.float16)
    total = reduce(SUM, i, load("x", i, dtype=np.float16))
    assert evaluate(root("o", (), total), {"x": x}) == 4096


def test_sums_over_an_axis_that_the_body_ignores_count():
    i, k = axis("i", 3), axis("k", 4)
    x = normal(3)
    np.testing.assert_allclose(
        evaluate(root("o", (i,), reduce(SUM, k, load("x", i))), {"x": x}), 4 * x, rtol=1e-6
    )


@pytest.mark.parametrize("kind", list(ReduceOp))
@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.bool_, np.float32])
def test_identities_are_neutral(kind, dtype):
    if kind in (ReduceOp.AND, ReduceOp.OR, ReduceOp.XOR) and dtype is np.float32:
        return
    i = axis("i", 1)
    dtype = np.dtype(dtype)
    for value in (0, 1):
        x = np.array([value], dtype)
        r = root("o", (), reduce(kind, i, load("x", i, dtype=dtype)))
        assert evaluate(r, {"x": x}) == x[0]
    assert identity(kind, dtype).dtype == dtype


def test_casts_saturate_and_wrap():
    x = np.array([np.nan, np.inf, -np.inf, 300.7, -300.7, 3.9, -3.9])
    np.testing.assert_array_equal(convert(x, dt.int8), [0, 127, -128, 127, -128, 3, -3])
    np.testing.assert_array_equal(convert(x, dt.uint8), [0, 255, 0, 255, 0, 3, 0])
    np.testing.assert_array_equal(convert(np.array([300, -1]), dt.uint8), [44, 255])
    np.testing.assert_array_equal(
        convert(np.array([0.0, 0.5, np.nan]), dt.bool_), [False, True, True]
    )
    np.testing.assert_array_equal(convert(np.array([1 + 2j]), dt.float32), [1])
    assert convert(np.array([2.0**63]), dt.int64) == np.iinfo(np.int64).max


def test_wide_casts_keep_their_precision_but_truncate():
    i = axis("i", 2)
    r = root("o", (i,), cast(load("x", i), dt.bfloat16))
    x = np.array([1.001, 2.003], np.float32)
    np.testing.assert_array_equal(evaluate(r, {"x": x}, wide=True), x.astype(float))
    r = root("o", (i,), cast(cast(load("x", i), dt.int32), dt.float32))
    np.testing.assert_array_equal(evaluate(r, {"x": x}, wide=True), [1, 2])


def test_terms_and_groups():
    i, j = axis("i", 3), axis("j", 2)
    x = normal(3)
    got = evaluate_term(load("x", i), (i, j), {"x": x})
    np.testing.assert_array_equal(got, np.broadcast_to(x[:, None], (3, 2)))
    g = group(root("o", (i,), load("x", i)), root("p", (), lit(2.0)))
    out = evaluate_group(g, {"x": x})
    assert out["o"].shape == (3,)
    assert out["p"] == 2


def test_how_near_intermediates_come_to_overflow():
    i, j = axis("i", 3), axis("j", 4)
    x = np.array([[1e30, -1e30, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1]], np.float32)
    largest = float(np.finfo(np.float32).max)
    total = reduce(SUM, (j,), load("x", i, j))
    near = strain(root("o", (i,), total), {"x": x})
    np.testing.assert_allclose(near, np.array([2e30, 2, 4]) / largest)  # though the sum is 2
    product = reduce(SUM, (j,), op("mul", load("x", i, j), load("y", j)))
    arrays = {"x": x, "y": np.array([2, 2, 0, 0], np.float32)}
    near = strain(root("o", (i,), product), arrays, coords=np.array([[0], [2]]))
    np.testing.assert_allclose(near, np.array([4e30, 4]) / largest)
    half = cast(op("mul", load("h", i), lit(1000.0)), dt.float16)
    h = {"h": np.array([1, -2, 65.504], np.float32)}
    np.testing.assert_allclose(strain(root("o", (i,), half), h)[2], 1.0, rtol=1e-3)


def test_infinities_overflow_if_they_are_made_of_finite_values():
    i = axis("i", 3)
    x = {"x": np.array([1, -np.inf, 0], np.float32)}
    grown = op("exp", op("mul", load("x", i), lit(1e4)))
    assert list(strain(root("o", (i,), grown), x) == np.inf) == [True, False, False]
    small = op("lt", load("x", i), lit(0.5))
    for value in (grown, lit(-np.inf)):  # what is not chosen does not count
        masked = root("o", (i,), op("select", small, load("x", i), value))
        assert list(strain(masked, x) == np.inf) == [value is grown, False, False]


def test_sizes_are_symbols_too():
    n = dims.symbol("n", 1)
    i = axis("i", n)
    r = Root(buf("o", n), (i,), op("mul", load("x", i), index(n, dt.float32)))
    np.testing.assert_array_equal(evaluate(r, {"x": np.ones(3, np.float32)}, {"n": 3}), [3, 3, 3])


def test_more_axes_than_numpy_has_dimensions():
    term = lit(0.0)
    for k in range(80):
        a = axis(f"a{k}", 2)
        term = op("add", term, reduce(SUM, a, load(f"x{k}", a)))
    buffers = {f"x{k}": np.ones(2, np.float32) for k in range(80)}
    assert evaluate(root("o", (), term), buffers) == 160


def test_noise_moves_results_by_rounding_errors():
    i = axis("i", 100)
    x = normal(100)
    r = root("o", (i,), op("exp", load("x", i)))
    exact = evaluate(r, {"x": x}, wide=True)
    noisy = evaluate(r, {"x": x}, wide=True, noise=1)
    error = np.abs(noisy / exact - 1)
    assert 0 < error.max() < 1e-5
    again = evaluate(r, {"x": x}, wide=True, noise=1)
    np.testing.assert_array_equal(noisy, again)
    assert np.any(noisy != evaluate(r, {"x": x}, wide=True, noise=2))


def test_bits_stay_bits_when_floats_are_wide():
    i = axis("i", 3)
    bits = np.array([0x3F800000, 0x40490FDB, 0x80000000], np.uint32)
    term = Apply(bitcast_op(dt.float32), (load("x", i, dtype=dt.uint32),), dt.float32)
    for wide in (False, True):
        values = evaluate(root("o", (i,), term), {"x": bits}, wide=wide)
        np.testing.assert_array_equal(values, bits.view(np.float32))
