"""The register-tiled contraction against the literal interpreter and NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lumjax.dtype as dt
from lumjax.cpu.dots import of_dots
from lumjax.cpu.objects import host_target
from lumjax.cpu.render import render
from lumjax.cpu.tile import collapsed
from lumjax.kernel.emit import CAST
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    LoadValue,
    Loop,
    LoopKind,
    Ref,
    Scratch,
    StoreStmt,
    Tile,
)
from lumjax.kernel.term import Buffer
from lumjax.kernel.tiles import tile_shape
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp
from tests.cpu.kernels import compare, const, kernel, op, run, sym
from tests.cpu.random_kernels import array

RNG = np.random.default_rng(11)
F32 = dt.float32
ADD = op("add", 2, np.add)
m, n, k = sym("m"), sym("n"), sym("k")
mt, nt = sym("mt"), sym("nt")


def matmul(M, N, K, rows, cols, dtype=F32, body=None, outputs=None, extra=(), static=True):
    """C = A @ B in tiles; `body` makes the epilogue from the value of the sum."""
    sizes = {}
    if not static:
        sizes = {"M": M, "N": N, "K": K}
        M, N, K = (sym(s, 1) for s in "MNK")
    A, B, C = Buffer("a", (M, K), dtype), Buffer("b", (K, N), dtype), Buffer("c", (M, N), dtype)
    held = dt.accumulation_dtype(dtype)
    total = Ref("acc", held)
    value = total if held == dtype else ApplyValue(CAST, (total,), dtype)
    stmts = body(total, C, N) if body else (StoreStmt(C, m * N + n, value),)
    tile = Tile(
        "acc", held, "m", mt, M, rows, "n", nt, N, cols, (("k", K),),
        LoadValue(A, m * K + k), LoadValue(B, k * N + n), stmts,
    )  # fmt: skip
    loop = Loop(
        "nt", 0, N, cols, LoopKind.SERIAL, (Loop("mt", 0, M, rows, LoopKind.SERIAL, (tile,)),)
    )
    return kernel(
        [loop], outputs or [C], [A, B, *extra], sizes=tuple(sizes), extents=tuple(sizes.values())
    )


def operands(M, N, K, dtype=F32):
    return {
        "a": array(RNG, M * K, dtype).reshape(M, K),
        "b": array(RNG, K * N, dtype).reshape(K, N),
        "c": np.zeros((M, N), dtype),
    }


SHAPES = [(1, 1, 1), (6, 16, 4), (7, 17, 5), (12, 32, 8), (5, 3, 9), (13, 20, 1), (6, 48, 6)]


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_edges(shape, static):
    rows, cols = tile_shape(F32, host_target(), 100)
    M, N, K = shape
    kern = matmul(M, N, K, rows, cols, static=static)
    compare(kern, operands(M, N, K), {} if static else {"M": M, "N": N, "K": K})


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("cols", [1, 3, 8, 12, 24])
def test_any_tile_shape(rows, cols):
    compare(matmul(7, 25, 6, rows, cols), operands(7, 25, 6))


def dots(M, N, K, rows, cols, dtype=F32, static=True):
    """C = A @ B.T where both lie along the sum."""
    kern = matmul(M, N, K, rows, cols, dtype, static=static)
    (outer,) = kern.phases[0].body
    (inner,) = outer.body
    (tile,) = inner.body
    b = replace(tile.rhs.buffer, shape=tile.rhs.buffer.shape[::-1])
    depth = K if static else sym("K", 1)
    tile = replace(tile, rhs=LoadValue(b, n * depth + k))
    loop = replace(outer, body=(replace(inner, body=(tile,)),))
    inputs = [b if i.name == "b" else i for i in kern.inputs]
    kern = kernel([loop], kern.outputs, inputs, sizes=kern.sizes, extents=kern.extents)
    return kern, tile


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("shape", [(6, 8, 32), (7, 9, 17), (2, 3, 40), (1, 13, 19), (5, 4, 3)])
@pytest.mark.parametrize(("rows", "cols"), [(3, 4), (1, 8), (2, 3), (4, 1)])
def test_dot_products(shape, static, rows, cols):
    target = replace(host_target(), vector_bytes=32, vector_registers=16)
    kern, tile = dots(*shape, rows, cols, static=static)
    assert of_dots(tile, target) == (not static or shape[2] >= 8)
    arrays = operands(*shape)
    arrays["b"] = np.ascontiguousarray(arrays["b"].T)
    compare(kern, arrays, {} if static else dict(zip("MNK", shape, strict=True)))


@pytest.mark.parametrize("dtype", dt.FLOATING, ids=str)
def test_dot_products_of_every_dtype(dtype):
    lanes = host_target().lanes(dt.accumulation_dtype(dtype).itemsize)
    kern, tile = dots(7, 9, 2 * lanes + 1, 2, 2, dtype)
    assert of_dots(tile, host_target())
    arrays = operands(7, 9, 2 * lanes + 1, dtype)
    arrays["b"] = np.ascontiguousarray(arrays["b"].T)
    compare(kern, arrays)


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16], ids=str)
@pytest.mark.parametrize("cast", [("lhs", "rhs"), ("rhs",)], ids=str)
def test_dot_products_of_what_is_cast(dtype, cast):
    lanes = host_target().lanes(4)
    kern, tile = dots(7, 9, 2 * lanes + 1, 2, 2, dtype)
    sides = {s: ApplyValue(CAST, (getattr(tile, s),), F32) for s in cast}
    tile = replace(tile, **sides)
    assert of_dots(tile, host_target())
    (outer,) = kern.phases[0].body
    loop = replace(outer, body=(replace(outer.body[0], body=(tile,)),))
    kern = replace(kern, phases=(replace(kern.phases[0], body=(loop,)),))
    arrays = operands(7, 9, 2 * lanes + 1, dtype)
    arrays["b"] = np.ascontiguousarray(arrays["b"].T)
    compare(kern, arrays)


def test_a_tile_of_more_dot_products_than_registers_is_none():
    _, tile = dots(6, 16, 32, 6, 8)
    assert not of_dots(tile, replace(host_target(), vector_bytes=32, vector_registers=16))


@pytest.mark.parametrize("ahead", [False, True])
def test_what_is_fetched_ahead_changes_nothing(ahead):
    base = matmul(1, 70, 9, 1, 16)
    (outer,) = base.phases[0].body
    (inner,) = outer.body
    loop = replace(outer, body=(replace(inner, body=(replace(inner.body[0], ahead=ahead),)),))
    kern = kernel([loop], base.outputs, base.inputs)
    assert ("i32 0, i32 3, i32 1)" in render(kern, host_target())) == ahead
    compare(kern, operands(1, 70, 9))


@pytest.mark.parametrize("dtype", dt.NUMERIC, ids=str)
def test_every_dtype(dtype):
    rows, cols = tile_shape(dtype, host_target(), 100)
    M, N, K = 2 * rows + 1, cols + 3, 5
    arrays = operands(M, N, K, dtype)
    if dtype == dt.bool_:
        a, b = (RNG.integers(0, 2, s).astype(bool) for s in ((M, K), (K, N)))
        arrays |= {"a": a, "b": b}
    compare(matmul(M, N, K, rows, cols, dtype), arrays)


def test_a_light_and_a_heavy_epilogue():
    bias = Buffer("bias", (20,), F32)

    def light(total, C, N):
        return (StoreStmt(C, m * N + n, ApplyValue(ADD, (total, LoadValue(bias, n)), F32)),)

    def heavy(total, C, N):
        value = total
        for _ in range(3):
            value = ApplyValue(op("tanh", 1, np.tanh), (value,), F32)
        return (StoreStmt(C, m * N + n, ApplyValue(ADD, (value, LoadValue(bias, n)), F32)),)

    for body in (light, heavy):
        kern = matmul(13, 20, 7, 6, 16, body=body, extra=[bias])
        compare(kern, operands(13, 20, 7) | {"bias": array(RNG, 20, F32)}, rtol=1e-4)


@pytest.mark.parametrize("heavy", [False, True])
def test_an_epilogue_that_reduces_over_everything(heavy):
    out = Buffer("out", (1,), F32)

    def body(total, C, N):
        value = ApplyValue(op("tanh", 1, np.tanh), (total,), F32) if heavy else total
        return (StoreStmt(C, m * N + n, total), Accumulate("s", value))

    base = matmul(13, 20, 7, 6, 16, body=body)
    stmts = [
        Accumulator("s", F32, ReduceOp.SUM, const(F32, 1)),
        *base.phases[0].body,
        StoreStmt(out, 0, Ref("s", F32)),
    ]
    kern = kernel(stmts, [base.outputs[0], out], base.inputs)
    compare(kern, operands(13, 20, 7) | {"out": np.zeros(1, F32)}, rtol=1e-4)


def test_an_epilogue_that_reduces_rows():
    rows, cols, M, N, K = 4, 8, 10, 8, 3
    A, B, out = Buffer("a", (M, K), F32), Buffer("b", (K, N), F32), Buffer("out", (M,), F32)
    tile = Tile(
        "acc", F32, "m", mt, dims.minimum(mt + 1, M), rows, "n", 0, N, cols, (("k", K),),
        LoadValue(A, m * K + k), LoadValue(B, k * N + n), (Accumulate("s", Ref("acc", F32)),),
    )  # fmt: skip
    loop = Loop("mt", 0, M, 1, LoopKind.SERIAL, (
        Accumulator("s", F32, ReduceOp.MAX, const(F32, -np.inf)), tile,
        StoreStmt(out, mt, Ref("s", F32)),
    ))  # fmt: skip
    arrays = operands(M, N, K)
    del arrays["c"]
    compare(kernel([loop], [out], [A, B]), arrays | {"out": np.zeros(M, F32)})


def test_convolution_with_padding_is_a_tile_over_three_k_loops():
    size, cin, cout = 9, 3, 18
    x, w = Buffer("x", (size, size, cin), F32), Buffer("w", (3, 3, cin, cout), F32)
    out = Buffer("out", (size, size, cout), F32)
    kh, kw, c = sym("kh"), sym("kw"), sym("c")
    row, col = dims.floor_divide(m, size), dims.remainder(m, size)
    y0, x0 = row + kh - 1, col + kw - 1
    inside = dims.logical_and(
        dims.logical_and(dims.less_equal(0, y0), dims.less(y0, size)),
        dims.logical_and(dims.less_equal(0, x0), dims.less(x0, size)),
    )
    tile = Tile(
        "acc", F32, "m", mt, size * size, 6, "n", nt, cout, 16, (("kh", 3), ("kw", 3), ("c", cin)),
        LoadValue(x, (y0 * size + x0) * cin + c, inside, const(F32, 0)),
        LoadValue(w, ((kh * 3 + kw) * cin + c) * cout + n),
        (StoreStmt(out, m * cout + n, Ref("acc", F32)),),
    )  # fmt: skip
    loop = Loop("mt", 0, size * size, 6, LoopKind.SERIAL, (
        Loop("nt", 0, cout, 16, LoopKind.SERIAL, (tile,)),
    ))  # fmt: skip
    arrays = {
        "x": array(RNG, size * size * cin, F32), "w": array(RNG, 9 * cin * cout, F32),
        "out": np.zeros(size * size * cout, F32),
    }  # fmt: skip
    compare(kernel([loop], [out], [x, w]), arrays)


@pytest.mark.parametrize("static", [True, False])
def test_k_loops_that_both_operands_walk_as_one_become_one(static):
    M, N, H, W = 7, 18, 3, sym("W", 1)
    sizes = {} if static else {"W": 5}
    if static:
        W = 5
    A, B, C = Buffer("a", (M, H, W), F32), Buffer("b", (H, W, N), F32), Buffer("c", (M, N), F32)
    h, w = sym("h"), sym("w")
    tile = Tile(
        "acc", F32, "m", mt, M, 6, "n", nt, N, 16, (("h", H), ("w", W)),
        LoadValue(A, (m * H + h) * W + w), LoadValue(B, (h * W + w) * N + n),
        (StoreStmt(C, m * N + n, Ref("acc", F32)),),
    )  # fmt: skip
    assert [str(extent) for _, extent in collapsed(tile).k] == ["15" if static else "3*W"]
    loop = Loop("mt", 0, M, 6, LoopKind.SERIAL, (Loop("nt", 0, N, 16, LoopKind.SERIAL, (tile,)),))
    kern = kernel([loop], [C], [A, B], sizes=tuple(sizes), extents=tuple(sizes.values()))
    arrays = {
        "a": array(RNG, M * 15, F32).reshape(M, 3, 5),
        "b": array(RNG, 15 * N, F32).reshape(3, 5, N), "c": np.zeros((M, N), F32),
    }  # fmt: skip
    compare(kern, arrays, sizes)


def test_operands_that_are_terms_and_a_transposed_right_operand():
    M, N, K = 8, 19, 6
    A, B, C = Buffer("a", (M, K), F32), Buffer("bt", (N, K), F32), Buffer("c", (M, N), F32)
    square = op("square", 1, np.square)
    tile = Tile(
        "acc", F32, "m", mt, M, 6, "n", nt, N, 16, (("k", K),),
        ApplyValue(square, (LoadValue(A, m * K + k),), F32),
        ApplyValue(ADD, (LoadValue(B, n * K + k), const(F32, 1)), F32),
        (StoreStmt(C, m * N + n, Ref("acc", F32)),),
    )  # fmt: skip
    loop = Loop("mt", 0, M, 6, LoopKind.SERIAL, (Loop("nt", 0, N, 16, LoopKind.SERIAL, (tile,)),))
    arrays = operands(M, N, K)
    arrays["bt"] = np.ascontiguousarray(arrays.pop("b").T)
    compare(kernel([loop], [C], [A, B]), arrays)


def test_blocks_of_k_from_packed_scratch():
    M, N, K, KC, cols = 13, 21, 11, 4, 16
    A, B, C = Buffer("a", (M, K), F32), Buffer("b", (K, N), F32), Buffer("c", (M, N), F32)
    P, kb, kk, q = Buffer("p", (KC * cols,), F32), sym("kb"), sym("kk"), sym("q")
    depth = dims.minimum(KC, K - kb)
    here = LoadValue(B, (kb + kk) * N + nt + q, dims.less(nt + q, N), const(F32, 0))
    pack = Loop("kk", 0, depth, 1, LoopKind.SERIAL, (
        Loop("q", 0, cols, 1, LoopKind.VECTOR, (StoreStmt(P, kk * cols + q, here),)),
    ))  # fmt: skip
    old = LoadValue(C, m * N + n, dims.less(0, kb), const(F32, 0))
    tile = Tile(
        "acc", F32, "m", mt, M, 6, "n", nt, N, cols, (("k", depth),),
        LoadValue(A, m * K + kb + k), LoadValue(P, k * cols + n - nt),
        (StoreStmt(C, m * N + n, ApplyValue(ADD, (old, Ref("acc", F32)), F32)),),
    )  # fmt: skip
    loop = Loop("kb", 0, K, KC, LoopKind.SERIAL, (
        Loop("nt", 0, N, cols, LoopKind.SERIAL, (
            pack, Loop("mt", 0, M, 6, LoopKind.SERIAL, (tile,)),
        )),
    ))  # fmt: skip
    compare(kernel([loop], [C], [A, B], scratch=[Scratch(P, KC * cols)]), operands(M, N, K))


def test_random_numbers_agree_with_numpy():
    rows, cols = tile_shape(F32, host_target(), 100)
    M, N, K = 67, 93, 130
    a, b = RNG.normal(size=(M, K)).astype(np.float32), RNG.normal(size=(K, N)).astype(np.float32)
    arrays = {"a": a, "b": b, "c": np.zeros((M, N), np.float32)}
    run(matmul(M, N, K, rows, cols), arrays)
    np.testing.assert_allclose(arrays["c"], a.astype(float) @ b, rtol=1e-5, atol=2e-5)
