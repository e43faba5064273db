"""CONTRACT kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lumjax import dtype as dt
from lumjax.kernel import contract, ir
from lumjax.kernel.lower import Reject, lower
from lumjax.kernel.term import Load, Reduction
from lumjax.kernel.tiles import FAR, LASTING, MANY_ROWS, dot_shape
from lumjax.target import Backend, Target
from lumjax.trace import dim as dims
from tests.kernel.build import (
    SUM,
    TARGET,
    axis,
    buf,
    check,
    group,
    lit,
    load,
    op,
    reduce,
    root,
    sym,
)
from tests.kernel.test_row import softmax_terms


def tiles(kernel):
    found = []

    def walk(stmts):
        for s in stmts:
            if isinstance(s, ir.Tile):
                found.append(s)
            if isinstance(s, ir.Loop):
                walk(s.body)

    for phase in kernel.phases:
        walk(phase.body)
    return found


def matmul(layout, m, n, k, dtype=dt.float32):
    x = load("x", m, k, dtype=dtype) if layout[0] == "N" else load("x", k, m, dtype=dtype)
    y = load("y", k, n, dtype=dtype) if layout[1] == "N" else load("y", n, k, dtype=dtype)
    return reduce(SUM, k, op("mul", x, y))


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(
    "shape", [(3, 5, 4), (9, 20, 7), (1, 3, 2), (2, 1, 3), (13, 17, 1), (4, 0, 3), (3, 4, 0)]
)
def test_layouts(layout, shape):
    m, n, k = (axis(a, s) for a, s in zip("mnk", shape))
    kernel = check(group(root("o", (m, n), matmul(layout, m, n, k))))
    if min(shape) > 1:
        assert len(tiles(kernel)) == 1
        assert bool(kernel.workspace) == (layout[1] == "T")  # a transposed right side is staged


@pytest.mark.parametrize("layout", ["NN", "NT"])
def test_a_transposed_result_swaps_the_sides(layout):
    m, n, k = axis("m", 5), axis("n", 6), axis("k", 4)
    kernel = check(group(root("o", (n, m), matmul(layout, m, n, k))))
    assert len(tiles(kernel)) == 1


@pytest.mark.parametrize("dtype", dt.FLOATING)
def test_dtypes(dtype):
    m, n, k = axis("m", 5), axis("n", 6), axis("k", 4)
    kernel = check(group(root("o", (m, n), matmul("NN", m, n, k, dtype))), tolerance=5e-2)
    (tile,) = tiles(kernel)
    assert tile.dtype == dt.accumulation_dtype(dtype)


def test_bias_and_relu_in_the_epilogue():
    m, n, k = axis("m", 7), axis("n", 20), axis("k", 4)
    total = op("add", matmul("NN", m, n, k), load("b", n))
    out = op("max", total, lit(0.0))
    mask = op("lt", lit(0.0), total)
    kernel = check(
        group(root("o", (m, n), out), root("p", (m, n), op("select", mask, total, lit(0.0))))
    )
    assert len(kernel.phases) == 1


def test_batched_heads():
    b, h, t, s, d = axis("b", 2), axis("h", 3), axis("t", 4), axis("s", 5), axis("d", 6)
    q, k = load("q", b, t, h, d), load("k", b, s, h, d)
    check(group(root("o", (b, h, t, s), op("mul", reduce(SUM, d, op("mul", q, k)), lit(0.5)))))


def test_a_product_spread_over_two_row_and_two_column_axes():
    a, b, c, d, e = axis("a", 2), axis("b", 3), axis("c", 4), axis("d", 5), axis("e", 3)
    check(
        group(
            root(
                "o", (a, c, b, d), reduce(SUM, e, op("mul", load("x", a, b, e), load("y", e, c, d)))
            )
        )
    )


def grouped(out, split, made):
    """Roots over (..., groups, features) of what is made of sums, a scale by groups and a bias by
    features."""
    g, f = split
    whole = sym(g) * f.extent + sym(f)
    bias = Load(buf("bias", g.extent * f.extent), (whole,))
    total, scale = made(whole), load("scale", out[0], g)
    return [
        root("p", (*out, g, f), op("mul", op("add", total, bias), scale)),
        root("q", (*out, g, f), op("sub", total, scale)),
    ]


@pytest.mark.parametrize("layout", "NT")
@pytest.mark.parametrize("sizes", [(4, 4), (2, 3), (5, 7), (3, 1)])
def test_columns_in_groups_fill_a_vector(sizes, layout):
    """A result whose groups are scaled has rows of groups, not of groups by features."""
    b, m, k = axis("b", 2), axis("m", 9), axis("k", 6)
    g, f = axis("g", sizes[0]), axis("f", sizes[1])

    def product(column):
        place = (sym(k), column) if layout == "N" else (column, sym(k))
        shape = (6, sizes[0] * sizes[1]) if layout == "N" else (sizes[0] * sizes[1], 6)
        return reduce(SUM, k, op("mul", load("x", b, m, k), Load(buf("y", *shape), place)))

    kernel = check(group(*grouped((b, m), (g, f), product)))
    (tile,) = tiles(kernel)
    assert dims.same(tile.n_end, sizes[0] * sizes[1])


def test_wide_columns_in_groups_stay_apart():
    b, m, k, g, f = axis("b", 2), axis("m", 5), axis("k", 6), axis("g", 2), axis("f", 16)

    def product(column):
        y = Load(buf("y", 6, 32), (sym(k), column))
        return reduce(SUM, k, op("mul", load("x", b, m, k), y))

    (tile,) = tiles(check(group(*grouped((b, m), (g, f), product))))
    assert not dims.same(tile.n_end, 32)


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_convolutions_in_groups(stride):
    """What a stride spreads out is cut by remainders and its columns are joined."""
    b, h, w, g, f = axis("b", 2), axis("h", 6), axis("w", 6), axis("g", 2), axis("f", 3)
    u, v, o = axis("u", 3), axis("v", 3), axis("o", 4)
    few = 6 // stride

    def product(column):
        inside, coords = 1, []
        for place, tap in ((h, u), (w, v)):
            at = sym(place) - sym(tap) + 1
            for e in (at, stride * few - 1 - at):
                inside = dims.logical_and(inside, dims.less_equal(0, e))
            inside = dims.logical_and(inside, dims.equal(dims.remainder(at, stride), 0))
            coords.append(dims.floor_divide(at, stride))
        dy = Load(buf("dy", 2, few, few, 4), (sym(b), *coords, sym(o)), inside, lit(0.0))
        weight = Load(buf("weight", 3, 3, 6, 4), (sym(u), sym(v), column, sym(o)))
        return reduce(SUM, (u, v, o), op("mul", dy, weight))

    check(group(*grouped((b, h, w), (g, f), product)))


def test_operands_that_are_terms_are_staged():
    m, n, k = axis("m", 5), axis("n", 6), axis("k", 4)
    x = op("tanh", load("x", m, k))
    y = op("add", load("y", k, n), load("z", n))
    kernel = check(group(root("o", (m, n), reduce(SUM, k, op("mul", x, y)))))
    assert len(tiles(kernel)) == 1
    assert kernel.scratch
    assert kernel.workspace


def convolution(batch, size, kernel, stride, cin, cout, pad):
    out = (size + 2 * pad - kernel) // stride + 1
    b, h, w, o = axis("b", batch), axis("h", out), axis("w", out), axis("o", cout)
    u, v, c = axis("u", kernel), axis("v", kernel), axis("c", cin)
    row, col = sym(h) * stride + sym(u) - pad, sym(w) * stride + sym(v) - pad
    inside = 1
    for e in (row, col):
        inside = dims.logical_and(
            inside, dims.logical_and(dims.less_equal(0, e), dims.less(e, size))
        )
    fill = None if isinstance(inside, int) else lit(0.0)
    x = Load(buf("x", batch, size, size, cin), (sym(b), row, col, sym(c)), inside, fill)
    return (b, h, w, o), (u, v, c), x


@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (1, 1), (2, 1)])
def test_convolution(stride, pad):
    out, red, x = convolution(2, 6, 3, stride, 2, 5, pad)
    weight = load("weight", *red, out[3])
    kernel = check(group(root("o", out, reduce(SUM, red, op("mul", x, weight)))))
    assert len(tiles(kernel)) == 1


def test_the_weight_gradient_of_a_convolution():
    (b, h, w, o), red, x = convolution(3, 5, 3, 1, 2, 4, 1)
    dy = load("dy", b, h, w, o)
    check(group(root("dw", (*red, o), reduce(SUM, (b, h, w), op("mul", x, dy)))))


def test_the_input_gradient_of_a_convolution():
    b, h, w, c = axis("b", 2), axis("h", 5), axis("w", 5), axis("c", 3)
    u, v, o = axis("u", 3), axis("v", 3), axis("o", 4)
    row, col = sym(h) - sym(u) + 1, sym(w) - sym(v) + 1
    inside = 1
    for e in (row, col):
        inside = dims.logical_and(inside, dims.logical_and(dims.less_equal(0, e), dims.less(e, 5)))
    dy = Load(buf("dy", 2, 5, 5, 4), (sym(b), row, col, sym(o)), inside, lit(0.0))
    check(
        group(
            root(
                "dx",
                (b, h, w, c),
                reduce(SUM, (u, v, o), op("mul", dy, load("weight", u, v, c, o))),
            )
        )
    )


def test_a_long_sum_is_split():
    m, n, k = axis("m", 16), axis("n", 16), axis("k", 40000)
    kernel = lower(group(root("o", (m, n), matmul("TN", m, n, k))), TARGET)
    assert len(kernel.phases) == 2


@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_split_sums_are_right(layout, monkeypatch):
    monkeypatch.setattr("lumjax.kernel.contract.TILE_WORK", 16)
    monkeypatch.setattr("lumjax.kernel.contract.SHALLOW", 2)
    m, n, k = axis("m", 3), axis("n", 5), axis("k", 30)
    x, y = load("x", m, k), load("y", n, k)
    total = reduce(
        SUM, k, op("mul", op("tanh", x), y) if layout == "TT" else op("mul", x, load("z", k, n))
    )
    kernel = check(group(root("o", (m, n), op("add", total, load("b", n)))))
    assert len(kernel.workspace) == (2 if layout == "TT" else 1)


def test_many_blocks(monkeypatch):
    monkeypatch.setattr("lumjax.kernel.contract.FEW_JOBS", 0)
    m, n, k = axis("m", 20), axis("n", 37), axis("k", 2)
    g = group(root("o", (m, n), matmul("NT", m, n, k)))
    kernel = check(g)
    for chunk in (1, 2, 9):
        check(g, kernel=kernel, chunks=chunk)


@pytest.fixture
def shallow(monkeypatch):
    """Sums are cut, and right sides copied, at sizes that the interpreter can run."""
    depths = {
        "DEPTH_OF_DOTS": 16,
        "DEPTH_PACKED": 5,
        "DEPTH_ACROSS": 4,
        "PAGE": 1,
        "DEPTH_IN_PLACE": 4,
        "DEPTH_OF_ROWS": 3,
    }
    rows = {"MANY_ROWS": 7, "ROWS_FOR_COPY": 7}
    for name, value in {**depths, **rows, "LONG": 4, "ROOM": 1 << 11}.items():
        monkeypatch.setattr(f"lumjax.kernel.contract.{name}", value)
    tiny = Target(Backend.CPU, "test", "", 32, 16, 2, l1=64, l2=1 << 10)
    monkeypatch.setattr("tests.kernel.build.TARGET", tiny)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.usefixtures("shallow")
def test_a_sum_that_is_cut(layout, rows):
    m, n, k = axis("m", rows), axis("n", 27), axis("k", 19)
    total = op("max", op("add", matmul(layout, m, n, k), load("b", n)), lit(0.0))
    g = group(root("o", (m, n), total))
    kernel = check(g)
    if rows == 7:
        check(g, kernel=kernel, chunks=1)
    if layout in ("NN", "TN") or rows == 7:
        assert kernel.scratch  # sums, or the right side where all of the sum is walked at once
        assert not kernel.workspace


@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize("dtype", [dt.float16, dt.float64])
@pytest.mark.parametrize("rows", [2, 7])
def test_a_sum_over_two_axes_is_cut(dtype, rows):
    b, m, n = axis("b", 2), axis("m", rows), axis("n", 18)
    h, d = axis("h", 4), axis("d", 3)
    x, y = load("x", m, h, b, d, dtype=dtype), load("y", b, h, d, n, dtype=dtype)
    kernel = check(
        group(root("o", (b, m, n), reduce(SUM, (h, d), op("mul", x, y)))), tolerance=5e-2
    )
    assert kernel.scratch


@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize("m", [4, 256, 1024])
@pytest.mark.parametrize("n", [64, 1024])
@pytest.mark.parametrize("k", [32, 128, 512, 1024, 4096])
def test_what_is_cut_and_what_is_copied(layout, m, n, k):
    target = replace(TARGET, l1=32 << 10, l2=512 << 10)
    rows, columns = axis("m", m), axis("n", n)
    kernel = lower(
        group(root("o", (rows, columns), matmul(layout, rows, columns, axis("k", k)))), target
    )
    assert not isinstance(kernel, Reject)
    read = {v.buffer.name for t in tiles(kernel) for v in (t.lhs, t.rhs)}
    scratch = {s.buffer.name for s in kernel.scratch}
    copied, summed = scratch & read, bool(scratch - read)
    if k < contract.LONG or 4 * k * n <= 2 * target.l1:
        assert not scratch, "a short sum, or a right side that fits the cache"
        many = layout == "NT" and m >= contract.ROWS_FOR_COPY and k * n * 4 <= 2 * target.l1
        panels = read & {b.name for b in kernel.workspace}
        assert len(panels) == many, "many rows read a small right side from panels"
    elif layout == "NT" and m < contract.ROWS_FOR_COPY:
        assert not copied, "dot products copy nothing"
        assert summed <= (k > contract.DEPTH_OF_DOTS and 4 * m * k > target.l2 // 2)
    elif m < MANY_ROWS:
        assert not copied, "few rows read the right side where it lies"
    else:
        most = contract.DEPTH_ACROSS if layout == "TN" else contract.DEPTH_PACKED
        assert len(copied) == (2 if layout == "TN" and 4 * m >= contract.PAGE else 1)
        assert summed == (k > most), "a sum that can be walked at once is not cut"
        assert all(t.long == (k >= LASTING) for t in tiles(kernel))
    if k < LASTING:
        assert not any(t.long for t in tiles(kernel))


@pytest.mark.parametrize("m", [8, 16, 32, 256])
@pytest.mark.parametrize(("k", "n"), [(512, 1024), (1024, 4096)])
def test_what_comes_from_behind_the_caches_is_fetched_ahead(m, k, n):
    target = replace(TARGET, l1=32 << 10, l2=1 << 20)
    rows, columns = axis("m", m), axis("n", n)
    kernel = lower(
        group(root("o", (rows, columns), matmul("NN", rows, columns, axis("k", k)))), target
    )
    assert not isinstance(kernel, Reject)
    found = tiles(kernel)
    far = 4 * k * n > FAR * target.l2 and m < MANY_ROWS and m > found[0].rows
    assert {t.ahead for t in found} == {far}


@pytest.mark.parametrize("layout", ["N", "T"])
@pytest.mark.parametrize("vector", ["plain", "term"])
@pytest.mark.usefixtures("shallow")
def test_a_vector_times_a_matrix_is_tiles_of_one_row(layout, vector):
    n, k = axis("n", 35), axis("k", 21)
    matrix = load("y", k, n) if layout == "N" else load("y", n, k)
    x = load("x", k) if vector == "plain" else op("tanh", load("x", k))
    total = reduce(SUM, k, op("mul", x, matrix))
    kernel = check(group(root("o", (n,), op("add", total, load("b", n)))))
    assert {t.rows for t in tiles(kernel)} == {1}


@pytest.mark.parametrize(("lanes", "registers"), [(2, 16), (4, 16), (8, 16), (16, 32)])
@pytest.mark.parametrize("rows", [1, 2, 5, 64])
def test_dot_products_fit_the_registers(lanes, registers, rows):
    target = replace(TARGET, vector_bytes=4 * lanes, vector_registers=registers)
    tall, cols = dot_shape(dt.float32, target, rows)
    assert 1 <= tall <= max(rows, 1)
    assert cols <= lanes
    assert tall * cols + tall + 1 <= registers


def test_two_contractions_are_not_one_kernel():
    m, n, k, j = axis("m", 32), axis("n", 32), axis("k", 32), axis("j", 32)
    other = reduce(SUM, j, op("mul", load("a", m, j), load("b", j, n)))
    refused = lower(group(root("o", (m, n), op("add", matmul("NN", m, n, k), other))), TARGET)
    assert isinstance(refused, Reject)
    assert isinstance(refused.term, Reduction)


def test_a_pointwise_root_beside_a_contraction_is_a_phase_of_its_own():
    m, n, k = axis("m", 32), axis("n", 32), axis("k", 33)
    b = load("b", m, n)
    total = op("add", matmul("NN", m, n, k), b)
    kernel = lower(group(root("o", (m, n), total), root("p", (m, n), op("tanh", b))), TARGET)
    assert len(tiles(kernel)) == 1
    assert len(kernel.phases) == 2


def test_a_softmax_over_a_product_asks_for_the_product():
    m, n, k = axis("m", 32), axis("n", 32), axis("k", 33)
    product = matmul("NN", m, n, k)
    refused = lower(group(root("o", (m, n), softmax_terms(m, n, product))), TARGET)
    assert refused == Reject(product, refused.why)


@pytest.mark.parametrize(("width", "registers"), [(64, 32), (16, 32), (32, 16)])
@pytest.mark.parametrize("columns", [3, 20, 50])
def test_tiles_of_other_machines(width, registers, columns):
    target = replace(TARGET, vector_bytes=width, vector_registers=registers)
    m, n, k = axis("m", 13), axis("n", columns), axis("k", 3)
    g = group(root("o", (m, n), matmul("TN", m, n, k)))
    kernel = check(g, kernel=lower(g, target))
    (tile,) = tiles(kernel)
    assert tile.cols % (width // 4) == 0
    assert tile.rows * tile.cols // (width // 4) < registers


def test_a_batch_axis_may_come_last():
    m, n, k, b = axis("m", 4), axis("n", 5), axis("k", 3), axis("b", 2)
    product = op("mul", load("x", b, m, k), load("y", k, n, b))
    check(group(root("o", (m, n, b), reduce(SUM, k, product))))
    product = op("mul", load("x", k, m, b), load("y", b, n, k))
    check(group(root("o", (n, m, b), reduce(SUM, k, product))))
