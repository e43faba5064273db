"""MAP kernels."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.kernel import ir
from lumjax.kernel.term import Load
from lumjax.trace import dim as dims
from tests.kernel.build import axis, buf, check, group, index, lit, load, op, root, sym


def test_a_chain_over_contiguous_axes_is_one_flat_vector_loop():
    i, j, k = axis("i", 3), axis("j", 4), axis("k", 5)
    x = load("x", i, j, k)
    kernel = check(group(root("o", (i, j, k), op("tanh", op("mul", x, x)))))
    (phase,) = kernel.phases
    (loop,) = phase.body
    assert loop.kind is ir.LoopKind.VECTOR
    assert len(kernel.sizes) == 4  # three extents and the share of a job


def test_several_roots_share_loads():
    i, j = axis("i", 3), axis("j", 7)
    x, y, b = load("x", i, j), load("y", i, j), load("b", j)
    s = op("add", x, op("mul", y, b))
    kernel = check(group(root("o", (i, j), s), root("p", (i, j), op("neg", s))))
    assert len(kernel.phases) == 1


@pytest.mark.parametrize("n", [0, 1, 2, 17])
def test_sizes(n):
    i, j = axis("i", 3), axis("j", n)
    check(group(root("o", (j, i), op("add", load("x", i, j), load("c")))))


@pytest.mark.parametrize("dtype", dt.FLOATING + dt.INTEGER + (dt.bool_,))
def test_dtypes(dtype):
    i = axis("i", 5)
    x, y = load("x", i, dtype=dtype), load("y", i, dtype=dtype)
    check(group(root("o", (i,), op("select", op("lt", x, y), x, y))), tolerance=1e-2)


def test_transpose_pad_and_iota():
    i, j = axis("i", 6), axis("j", 5)
    inside = dims.logical_and(dims.less_equal(1, sym(i)), dims.less(sym(i), 5))
    padded = Load(buf("x", 4, 5), (sym(i) - 1, sym(j)), inside, lit(0.0))
    mask = op("lt", index(sym(i)), index(sym(j)))
    check(group(root("o", (i, j), op("select", mask, padded, load("y", j, i)))))


def test_gather_rows():
    i, j = axis("i", 5), axis("j", 3)
    clipped = dims.minimum(dims.maximum(dims.symbol("g", None), 0), 3)
    rows = load("rows", i, dtype=np.int32)
    gathered = Load(buf("table", 4, 3), (clipped, sym(j)), indices=(("g", rows),))
    check(group(root("o", (i, j), gathered)), rows=np.array([3, -7, 2, 99, 0], np.int32))


def test_roots_of_different_axes_are_separate_phases():
    i, j = axis("i", 3), axis("j", 4)
    kernel = check(group(root("o", (i,), load("x", i)), root("p", (j,), op("neg", load("y", j)))))
    assert len(kernel.phases) == 2


@pytest.mark.parametrize("shape", [(16, 16), (17, 33), (40, 19)])
def test_transposes_are_blocked(shape):
    i, j, b = axis("i", shape[0]), axis("j", shape[1]), axis("b", 2)
    kernel = check(group(root("o", (b, j, i), op("add", load("x", b, i, j), load("y", j, i)))))
    assert [len(p.body) for p in kernel.phases] == [1]
    check(group(root("o", (j, i), load("x", i, j))), chunks=1)


@pytest.mark.parametrize("shape", [(16, 16), (17, 33)])
def test_what_is_the_same_along_a_row_makes_no_blocks(shape):
    i, j = axis("i", shape[0]), axis("j", shape[1])
    kernel = check(group(root("o", (i, j), op("mul", load("x", i), load("y", j)))))
    (outer,) = kernel.phases[0].body
    (inner,) = [s for s in outer.body if isinstance(s, ir.Loop)]
    assert inner.kind is ir.LoopKind.VECTOR
    assert dims.substitute(inner.end, dict(zip(kernel.sizes, kernel.extents))) == shape[1]


def test_an_index_by_rows_makes_no_blocks():
    i, j = axis("i", 40), axis("j", 50)
    at = op("add", load("first", i, dtype=np.int32), load("step", j, dtype=np.int32))
    clipped = dims.minimum(dims.maximum(dims.symbol("g", None), 0), 49)
    gathered = Load(buf("x", 40, 50), (sym(i), clipped), indices=(("g", at),))
    kernel = check(group(root("o", (i, j), gathered)))
    (rows,) = kernel.phases[0].body
    assert [s.kind for s in rows.body if isinstance(s, ir.Loop)] == [ir.LoopKind.VECTOR]


def test_long_rows_are_cut_into_pieces(monkeypatch):
    monkeypatch.setattr("lumjax.kernel.share.WORK_PER_JOB", 64)
    i, h, j = axis("i", 2), axis("h", 3), axis("j", 70)
    x = load("x", h, i, j)
    kernel = check(group(root("o", (i, h, j), op("tanh", op("mul", x, load("y", j))))))
    (phase,) = kernel.phases
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    assert dims.evaluate(phase.jobs, sizes) == 2 * 3 * 2
