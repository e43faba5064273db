"""The fallback lowers anything: checked by interpretation against float64."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.kernel.scalar import lower_scalar
from lumjax.kernel.term import Load
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp
from tests.kernel import build
from tests.kernel.build import MAX, SUM, axis, buf, group, lit, load, op, reduce, root, run, sym


def check(r, tolerance=1e-5, **given):
    build.check(group(r), lower_scalar(r), tolerance, **given)


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("m", [0, 1, 4])
def test_softmax(n, m):
    i, k, j, q = axis("i", n), axis("k", m), axis("j", m), axis("q", m)
    top = reduce(MAX, j, load("x", i, j))
    total = reduce(SUM, q, op("exp", op("sub", load("x", i, q), top)))
    check(root("o", (i, k), op("div", op("exp", op("sub", load("x", i, k), top)), total)))


@pytest.mark.parametrize("dtype", dt.FLOATING + dt.INTEGER)
def test_matmul_in_every_dtype(dtype):
    m, n, k = axis("m", 3), axis("n", 4), axis("k", 5)
    product = op("mul", load("x", m, k, dtype=dtype), load("y", k, n, dtype=dtype))
    r = root("o", (m, n), reduce(SUM, k, product))
    check(r, tolerance={dt.float16: 2e-2, dt.bfloat16: 5e-2}.get(np.dtype(dtype), 1e-5))


@pytest.mark.parametrize("kind", list(ReduceOp))
def test_every_monoid(kind):
    dtype = np.int32
    i, j, k = axis("i", 3), axis("j", 4), axis("k", 2)
    check(root("o", (i,), reduce(kind, (j, k), load("x", k, i, j, dtype=dtype))))


def test_padding_reads_the_fill():
    i = axis("i", 7)
    inside = dims.logical_and(dims.less_equal(2, sym(i)), dims.less(sym(i), 5))
    padded = Load(buf("x", 3), (sym(i) - 2,), inside, lit(9.0))
    check(root("o", (i,), padded))


def test_gather_through_an_index_term():
    i, j = axis("i", 5), axis("j", 3)
    rows = load("rows", i, dtype=np.int32)
    clipped = dims.minimum(dims.maximum(dims.symbol("g", None), 0), 3)
    gathered = Load(buf("table", 4, 3), (clipped, sym(j)), indices=(("g", rows),))
    check(root("o", (i, j), gathered), rows=np.array([3, -7, 2, 99, 0], np.int32))


def test_scalar_output():
    i = axis("i", 6)
    check(root("o", (), reduce(SUM, i, load("x", i))))


def test_a_sum_over_an_axis_that_the_body_ignores_counts():
    i, k = axis("i", 3), axis("k", 4)
    check(root("o", (i,), reduce(SUM, k, load("x", i))))


def test_a_smaller_size_runs_in_the_same_kernel():
    i, j = axis("i", 6), axis("j", 5)
    r = root("o", (i,), reduce(SUM, j, load("x", i, j)))
    kernel = lower_scalar(r)
    values = dict(zip(kernel.sizes, kernel.extents, strict=True))
    assert sorted(values.values())[:2] == [5, 6]
    small = {n: {6: 2, 5: 3}.get(v, 1) for n, v in values.items()}
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffers = {"x": x, "o": np.zeros(2, np.float32)}
    run(kernel, buffers, **small)
    np.testing.assert_array_equal(buffers["o"], x.sum(1))


def test_one_axis_may_be_bound_and_free():
    i, k = axis("i", 3), axis("k", 5)
    x = load("x", i, k)
    e = op("exp", op("sub", x, reduce(MAX, k, x)))
    check(root("o", (i, k), op("div", e, reduce(SUM, k, e))))
    inner = op("div", x, reduce(SUM, k, op("mul", x, x)))
    check(root("o", (i,), reduce(SUM, k, inner)))
