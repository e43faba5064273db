"""ROW and SPLIT kernels."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.kernel.ir import Let, LoadValue, Loop, LoopKind
from lumjax.kernel.lower import Reject, lower
from lumjax.kernel.term import Load
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp
from tests.kernel.build import (
    MAX,
    SUM,
    TARGET,
    axis,
    check,
    group,
    lit,
    load,
    op,
    reduce,
    root,
    sym,
)


def softmax_terms(i, k, x=None):
    x = x or load("x", i, k)
    e = op("exp", op("sub", x, reduce(MAX, k, x)))
    return op("div", e, reduce(SUM, k, e))


def mean(k, body):
    return op("mul", reduce(SUM, k, body), lit(1.0 / k.extent))


@pytest.mark.parametrize("n", [1, 3, 0])
@pytest.mark.parametrize("m", [1, 5, 33])
def test_softmax(n, m):
    i, k = axis("i", n), axis("k", m)
    kernel = check(group(root("o", (i, k), softmax_terms(i, k))))
    if n > 1 and m > 1:
        assert len(kernel.phases) == 1
        assert len(kernel.scratch) == 1  # the exponentials are computed once


def test_softmax_with_separate_axis_names():
    i, k, j, n = axis("i", 3), axis("k", 6), axis("j", 6), axis("n", 6)
    top = reduce(MAX, j, load("x", i, j))
    total = reduce(SUM, n, op("exp", op("sub", load("x", i, n), top)))
    e = op("exp", op("sub", load("x", i, k), top))
    check(group(root("o", (i, k), op("div", e, total))))


def test_softmax_over_the_first_axis_runs_down_columns():
    i, k = axis("i", 6), axis("k", 9)
    x = load("x", i, k)
    e = op("exp", op("sub", x, reduce(MAX, i, x)))
    check(group(root("o", (i, k), op("div", e, reduce(SUM, i, e)))))


def layer_norm(i, k):
    x = load("x", i, k)
    centred = op("sub", x, mean(k, x))
    scale = op(
        "div", lit(1.0), op("sqrt", op("add", mean(k, op("mul", centred, centred)), lit(1e-5)))
    )
    return centred, scale


def test_layer_norm():
    b, t, k = axis("b", 2), axis("t", 3), axis("k", 8)
    x = load("x", b, t, k)
    centred = op("sub", x, mean(k, x))
    scale = op(
        "div", lit(1.0), op("sqrt", op("add", mean(k, op("mul", centred, centred)), lit(1e-5)))
    )
    out = op("add", op("mul", op("mul", centred, scale), load("g", k)), load("h", k))
    kernel = check(group(root("o", (b, t, k), out), root("s", (b, t), scale)))
    assert len(kernel.phases) == 1


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.float64])
@pytest.mark.parametrize(("groups", "features"), [(4, 4), (5, 3), (3, 6)])
def test_rows_of_groups_run_along_memory(groups, features, dtype):
    """A group's few features fill no vector, and groups side by side lie apart: columns run over
    both.
    """
    n, p, g, f = axis("n", 9), axis("p", 12), axis("g", groups), axis("f", features)
    x, given = load("x", n, p, g, f, dtype=dtype), load("m", n, g, dtype=dtype)
    places = 1.0 / (p.extent * f.extent)

    def average(body):
        return op("mul", reduce(SUM, (p, f), body), lit(places, dtype))

    centred = op("sub", op("sub", x, given), average(x))
    scale = op("sqrt", op("add", average(op("mul", centred, centred)), lit(1.0, dtype)))
    top = reduce(MAX, (p, f), centred)
    out = op("add", op("div", centred, scale), op("mul", top, load("b", g, f, dtype=dtype)))
    kernel = check(
        group(root("o", (n, p, g, f), out), root("s", (n, g), scale)),
        tolerance=5e-2 if dtype == dt.bfloat16 else 1e-5,
    )
    assert kernel.programs == ("ROW",)
    for loop in vectors(s for p in kernel.phases for s in p.body):
        for load_ in loaded(loop.body):
            step = dims.coefficient(load_.offset, loop.var)
            assert step is not None
            assert dims.same(step, 0) or dims.same(step, 1)


def vectors(stmts):
    for s in stmts:
        if isinstance(s, Loop) and s.kind is LoopKind.VECTOR:
            yield s
        yield from vectors(getattr(s, "body", ()))


def loaded(stmts):
    for s in stmts:
        if isinstance(s, Let) and isinstance(s.value, LoadValue):
            yield s.value
        yield from loaded(getattr(s, "body", ()))


@pytest.mark.parametrize("order", ["npfg", "gpfn", "pnfg", "nfpg"])
def test_groups_that_do_not_lie_before_their_features_are_no_columns(order):
    sizes = {"n": 9, "p": 11, "g": 4, "f": 3}
    axes = {k: axis(k, v) for k, v in sizes.items()}
    x = load("x", *(axes[k] for k in order))
    total = reduce(SUM, (axes["p"], axes["f"]), x)
    check(group(root("o", (axes["n"], axes["g"]), op("mul", total, total))))


def layer_norm_backward(i, k):
    centred, scale = layer_norm(i, k)
    hat = op("mul", centred, scale)
    dy = load("dy", i, k)
    dh = op("mul", dy, load("g", k))
    inner = op("sub", op("sub", dh, mean(k, dh)), op("mul", hat, mean(k, op("mul", dh, hat))))
    return (
        root("dx", (i, k), op("mul", inner, scale)),
        root("dg", (k,), reduce(SUM, i, op("mul", dy, hat))),
        root("db", (k,), reduce(SUM, i, dy)),
    )


@pytest.mark.parametrize("n", [1, 7])
def test_layer_norm_backward_is_one_kernel(n):
    i, k = axis("i", n), axis("k", 8)
    kernel = check(group(*layer_norm_backward(i, k)))
    if n > 1:
        assert len(kernel.phases) == 2
        assert kernel.workspace


@pytest.mark.parametrize("n", [64, 301, 1000])
@pytest.mark.parametrize("m", [2, 3])
def test_many_short_rows_have_a_lane_each(n, m):
    """A policy with two actions: its loss, and gradients that are added up over the batch."""
    i, k = axis("i", n), axis("k", m)
    x = op("add", load("x", i, k), load("b", k))
    top = reduce(MAX, k, x)
    e = op("exp", op("sub", x, top))
    soft = op("div", e, reduce(SUM, k, e))
    gain = reduce(SUM, k, op("mul", soft, x))
    grad = op("mul", soft, op("sub", x, gain))
    kernel = check(
        group(
            root("g", (i, k), grad),
            root("db", (k,), reduce(SUM, i, grad)),
            root("s", (i,), gain),
        ),
        tolerance=1e-3,
        chunks=280,
    )
    assert kernel.programs == ("SPLIT",)
    assert {s.var for s in vectors(kernel.phases[0].body)} >= {"a0"}, "rows side by side"


def test_jobs_are_as_many_as_the_work_inside_rows_asks_for():
    """A sum over all of long sums is no small amount of work."""
    i, j, k = axis("i", 512), axis("j", 24), axis("k", 300)
    rows = reduce(SUM, k, op("mul", load("x", i, j, k), load("y", i, k)))
    kernel = lower(group(root("o", (), reduce(SUM, (i, j), rows)), root("r", (i, j), rows)), TARGET)
    assert not isinstance(kernel, Reject)
    assert kernel.programs == ("SPLIT",)
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    assert dims.evaluate(kernel.phases[0].jobs, sizes) > 8


@pytest.mark.parametrize(("columns", "jobs"), [(16, 1), (40, 3), (64, 4), (128, 8), (512, 8)])
def test_columns_of_many_rows_are_shared_out(columns, jobs):
    """A norm over the batch: no core idles for there are few columns."""
    i, k = axis("i", 20000), axis("k", columns)
    x = load("x", i, k)
    centred = op("sub", x, mean(i, x))
    kernel = lower(group(root("o", (k,), mean(i, op("mul", centred, centred)))), TARGET)
    assert not isinstance(kernel, Reject)
    assert kernel.programs == ("ROW",)
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    assert dims.evaluate(kernel.phases[0].jobs, sizes) == jobs


def test_cross_entropy_loss_of_rows():
    i, k = axis("i", 6), axis("k", 5)
    x = load("x", i, k)
    top = reduce(MAX, k, x)
    total = reduce(SUM, k, op("exp", op("sub", x, top)))
    label = load("label", i, dtype=np.int32)
    clipped = dims.minimum(dims.maximum(dims.symbol("g", None), 0), 4)
    picked = Load(x.buffer, (sym(i), clipped), indices=(("g", label),))
    row = op("sub", op("sub", picked, top), op("tanh", total))
    kernel = check(group(root("o", (), mean(i, row))))
    assert len(kernel.phases) == 2


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_column_sums(n):
    i, j = axis("i", n), axis("j", 6)
    check(group(root("o", (j,), reduce(SUM, i, load("x", i, j)))), tolerance=1e-4)


def test_large_sums_are_split():
    i, j, k = axis("i", 300), axis("j", 20), axis("k", 60)
    x = load("x", i, j, k)
    kernel = lower(
        group(root("o", (k,), reduce(SUM, (i, j), x)), root("p", (), reduce(SUM, (i, j, k), x))),
        TARGET,
    )
    assert len(kernel.workspace) == 2
    kernel = lower(group(root("p", (), reduce(SUM, (i, j, k), x))), TARGET)
    assert len(kernel.phases) == 2


def test_split_sums_are_right():
    i, j = axis("i", 50), axis("j", 6)
    x = load("x", i, j)
    total = reduce(SUM, (i, j), x)
    g = group(root("o", (j,), reduce(SUM, i, x)), root("p", (), op("neg", total)))
    kernel = check(g, tolerance=1e-4)
    for share in (1, 7, 49, 50, 51):
        check(g, tolerance=1e-4, kernel=kernel, chunks=share)


def test_many_small_sums_of_columns_are_not_split():
    """No partial sums where what a row of columns reads is in the cache, and rows are many."""
    h, i, j = axis("h", 1000), axis("i", 50), axis("j", 40)
    g = group(root("o", (h, j), reduce(SUM, i, load("x", h, i, j))))
    assert not lower(g, TARGET).workspace
    for rows, length in ((3, 50_000), (20, 5000)):  # too few of them; more than stays in the cache
        h, i = axis("h", rows), axis("i", length)
        assert lower(group(root("o", (h, j), reduce(SUM, i, load("x", h, i, j)))), TARGET).workspace
    h, i, j = axis("h", 9), axis("i", 5), axis("j", 7)
    check(group(root("o", (h, j), reduce(SUM, i, load("x", h, i, j)))), tolerance=1e-4)


@pytest.mark.parametrize("columns", [3, 4, 7, 8])
def test_vectors_run_across_rows_that_are_shorter_than_one(columns):
    i, j = axis("i", 100), axis("j", columns)
    kernel = check(group(root("o", (i, j), softmax_terms(i, j, load("x", i, j)))))
    (loop,) = (s for s in kernel.phases[0].body if isinstance(s, Loop))
    across = loop.kind is LoopKind.VECTOR or any(
        isinstance(s, Loop) and s.kind is LoopKind.VECTOR and s.var == "a0" for s in loop.body
    )
    assert across == (columns < 8)


@pytest.mark.parametrize("kind", list(ReduceOp))
@pytest.mark.parametrize("keep", ["row", "column", "none"])
def test_every_monoid(kind, keep):
    i, j = axis("i", 5), axis("j", 7)
    x = load("x", i, j, dtype=np.int32)
    kept, gone = {"row": ((i,), (j,)), "column": ((j,), (i,)), "none": ((), (i, j))}[keep]
    check(group(root("o", kept, reduce(kind, gone, x))))


@pytest.mark.parametrize("dtype", dt.FLOATING)
def test_float_dtypes(dtype):
    i, k = axis("i", 3), axis("k", 9)
    x = load("x", i, k, dtype=dtype)
    check(group(root("o", (i,), reduce(SUM, k, op("mul", x, x)))), tolerance=5e-2)


def test_matrix_vector_products_are_rows():
    i, k = axis("i", 5), axis("k", 6)
    v = load("v", k)
    check(group(root("o", (i,), reduce(SUM, k, op("mul", load("w", i, k), v)))))
    check(group(root("o", (i,), reduce(SUM, k, op("mul", load("w", k, i), v)))))


def test_integer_matmul_is_a_row_program():
    m, n, k = axis("m", 3), axis("n", 4), axis("k", 5)
    product = op("mul", load("x", m, k, dtype=np.int32), load("y", k, n, dtype=np.int32))
    check(group(root("o", (m, n), reduce(SUM, k, product))))


def test_what_does_not_fit_is_refused_by_name():
    i, j = axis("i", 500), axis("j", 600)
    x = load("x", i, j)
    total = reduce(SUM, (i, j), x)
    refused = lower(group(root("o", (i, j), op("div", x, total))), TARGET)
    assert isinstance(refused, Reject)
    assert refused.term is total


def test_a_small_whole_is_one_row():
    i, j = axis("i", 5), axis("j", 6)
    x = load("x", i, j)
    kernel = check(group(root("o", (i, j), op("div", x, reduce(SUM, (i, j), op("mul", x, x))))))
    assert len(kernel.phases) == 1


def test_a_reduction_of_a_reduction_is_refused():
    i, j, k = axis("i", 4), axis("j", 5), axis("k", 6)
    inner = reduce(MAX, k, load("x", i, j, k))
    got = lower(group(root("o", (i,), reduce(SUM, j, inner))), TARGET)
    assert isinstance(got, Reject)
    assert got.term is inner


def test_rows_of_two_axes_that_do_not_merge_are_split_together():
    b, t, k = axis("b", 3), axis("t", 4), axis("k", 5)
    x, dy = load("x", t, b, k), load("dy", b, t, k)
    scale = op("div", lit(1.0), op("sqrt", op("add", mean(k, op("mul", x, x)), lit(1.0))))
    grad = reduce(SUM, (b, t), op("mul", op("mul", dy, x), scale))
    kernel = check(group(root("dx", (b, t, k), op("mul", dy, scale)), root("dg", (k,), grad)))
    assert len(kernel.phases) == 2


def test_a_scaled_sum_of_everything_and_its_rows():
    i, k = axis("i", 5), axis("k", 6)
    x = load("x", i, k)
    rows = reduce(SUM, k, op("mul", x, x))
    whole = op("mul", reduce(SUM, i, op("sqrt", rows)), lit(0.5))
    check(group(root("o", (i,), rows), root("p", (), whole)))
    check(group(root("o", (i, k), op("mul", x, rows)), root("p", (), whole)))
