"""Rendered kernels against the literal interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lumjax.dtype as dt
from lumjax.config import config
from lumjax.cpu import objects
from lumjax.cpu.objects import host_target, object_code
from lumjax.cpu.render import render, unsupported
from lumjax.errors import UnsupportedError, VerificationError
from lumjax.kernel.contract import tile_shape
from lumjax.kernel.emit import CAST
from lumjax.kernel.emulate import emulate
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    If,
    IndexValue,
    Kernel,
    Let,
    LoadValue,
    Loop,
    LoopKind,
    Phase,
    Ref,
    Scratch,
    StoreStmt,
)
from lumjax.kernel.term import Buffer
from lumjax.target import Backend, Target
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp
from tests.cpu.kernels import compare, const, kernel, map_kernel, op, sym
from tests.cpu.random_kernels import Generator, array
from tests.cpu.test_tile import matmul

pytestmark = pytest.mark.sampled(4)

F32 = dt.float32
RNG = np.random.default_rng(3)
ADD = op("add", 2, np.add)
MUL = op("mul", 2, np.multiply)
SIZES = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100]
V, S, U = LoopKind.VECTOR, LoopKind.SERIAL, LoopKind.UNROLL
i, j, k, n = sym("i"), sym("j"), sym("k"), sym("n")


def vec(size, dtype=F32, name="x"):
    return Buffer(name, (size,), dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [d for d in dt.NUMERIC if d not in dt.COMPLEX], ids=str)
def test_maps_of_every_dtype_and_size(dtype, size):
    name, function = ("or", np.bitwise_or) if dtype == dt.bool_ else ("add", np.add)
    kern = map_kernel(op(name, 2, function), [dtype, dtype], dtype, size)
    arrays = {
        "x0": array(RNG, size, dtype),
        "x1": array(RNG, size, dtype),
        "out": np.zeros(size, dtype),
    }
    compare(kern, arrays)


@pytest.mark.parametrize("dtype", [*dt.COMPLEX, dt.key], ids=dt.short_name)
@pytest.mark.parametrize("size", [0, 1, 5, 8, 19])
@pytest.mark.parametrize("pattern", ["plain", "reverse", "stride", "mask"])
def test_wide_elements_move(dtype, size, pattern):
    x, out = vec(2 * size + 1, dtype), vec(size, dtype, "out")
    at = {"plain": i, "reverse": size - 1 - i, "stride": 2 * i, "mask": i}[pattern]
    mask = dims.less(i, 3) if pattern == "mask" else 1
    fill = const(dtype, np.zeros((), dtype)) if pattern == "mask" else None
    body = [StoreStmt(out, i, LoadValue(x, at, mask, fill), mask)]
    raw = RNG.integers(1, 255, (2 * size + 1) * dtype.itemsize, dtype=np.uint8)
    if dtype != dt.key:
        raw = RNG.normal(size=(2 * size + 1) * 2).astype(
            np.float32 if dtype == dt.complex64 else float
        )
    arrays = {"x": raw.view(dtype).copy(), "out": np.zeros(size, dtype)}
    compare(kernel([Loop("i", 0, size, 1, V, tuple(body))], [out], [x]), arrays)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 33])
def test_extents_are_arguments(size):
    x, out = Buffer("x", (n,), F32), Buffer("out", (n,), F32)
    body = StoreStmt(out, n - 1 - i, ApplyValue(MUL, (LoadValue(x, i), const(F32, 3.0)), F32))
    kern = kernel([Loop("i", 0, n, 1, V, (body,))], [out], [x], sizes=("n",), extents=(40,))
    compare(kern, {"x": array(RNG, size, F32), "out": np.zeros(size, F32)}, {"n": size})


@pytest.mark.parametrize("size", SIZES)
def test_a_padded_load_touches_no_memory_outside(size):
    x, out = vec(size), vec(size + 8, F32, "out")
    at, mask = i - 3, dims.logical_and(dims.less_equal(3, i), dims.less(i, size + 3))
    body = StoreStmt(out, i, LoadValue(x, at, mask, const(F32, -7.0)))
    kern = kernel([Loop("i", 0, size + 8, 1, V, (body,))], [out], [x])
    compare(kern, {"x": array(RNG, size, F32), "out": np.zeros(size + 8, F32)})


@pytest.mark.parametrize("dtype", [dt.int32, dt.uint8, dt.int64, dt.uint64], ids=str)
def test_gather_through_an_integer_let(dtype):
    table, idx, out = vec(10, F32, "t"), vec(37, dtype, "idx"), vec(37, F32, "out")
    g = sym("g", None)
    legal = dims.logical_and(dims.less_equal(0, g), dims.less(g, 10))
    body = (
        Let("g", LoadValue(idx, i)),
        StoreStmt(out, i, LoadValue(table, g, legal, const(F32, 9.0))),
    )
    data = RNG.integers(0, 13, 37).astype(dtype)
    if dtype == dt.int32:
        data[::5] = -1
    if dtype == dt.uint64:
        data[3] = 2**64 - 1
    kern = kernel([Loop("i", 0, 37, 1, V, body)], [out], [table, idx])
    compare(kern, {"t": array(RNG, 10, F32), "idx": data, "out": np.zeros(37, F32)})


def test_scatter_of_unique_destinations():
    idx, x, out = vec(20, dt.int32, "idx"), vec(20), vec(60, F32, "out")
    g = sym("g", None)
    body = (Let("g", LoadValue(idx, i)), StoreStmt(out, 2 * g, LoadValue(x, i), dims.less(g, 15)))
    arrays = {
        "idx": RNG.permutation(20).astype(np.int32), "x": array(RNG, 20, F32),
        "out": np.zeros(60, F32),
    }  # fmt: skip
    compare(kernel([Loop("i", 0, 20, 1, V, body)], [out], [idx, x]), arrays)


@pytest.mark.parametrize("kind", [V, S, U])
@pytest.mark.parametrize("size", [0, 1, 5, 8, 37, 64])
@pytest.mark.parametrize("reduce", list(ReduceOp))
def test_reductions(reduce, size, kind):
    dtype = dt.int32 if reduce in (ReduceOp.AND, ReduceOp.OR, ReduceOp.XOR, ReduceOp.PROD) else F32
    x, out = vec(size, dtype), vec(1, dtype, "out")
    body = [
        Accumulator("s", dtype, reduce, const(dtype, 1)),
        Loop("i", 0, size, 1, kind, (Accumulate("s", LoadValue(x, i)),)),
        StoreStmt(out, 0, Ref("s", dtype)),
    ]
    compare(kernel(body, [out], [x]), {"x": array(RNG, size, dtype), "out": np.zeros(1, dtype)})


@pytest.mark.parametrize("reduce", [ReduceOp.MAX, ReduceOp.MIN])
def test_extrema_carry_nan_from_any_lane(reduce):
    x, out = vec(37), vec(1, F32, "out")
    start = -np.inf if reduce is ReduceOp.MAX else np.inf
    body = [
        Accumulator("s", F32, reduce, const(F32, start)),
        Loop("i", 0, 37, 1, V, (Accumulate("s", LoadValue(x, i)),)),
        StoreStmt(out, 0, Ref("s", F32)),
    ]
    for place in range(37):
        data = array(RNG, 37, F32)
        data[place] = np.nan
        got = compare(kernel(body, [out], [x]), {"x": data, "out": np.zeros(1, F32)})
        assert np.isnan(got["out"][0])


def test_sums_of_rows_and_columns_with_a_row_value_hoisted():
    rows, cols = 5, 21
    x, scale = Buffer("x", (rows, cols), F32), vec(rows, F32, "scale")
    total, column, out = (
        Buffer(b, s, F32) for b, s in (("t", (rows,)), ("c", (cols,)), ("out", (rows, cols)))
    )
    load = LoadValue(x, i * cols + j)
    zero = const(F32, 0)
    body = [
        Loop("i", 0, rows, 1, S, (
            Accumulator("s", F32, ReduceOp.SUM, zero),
            Loop("j", 0, cols, 1, V, (Accumulate("s", load),)),
            Let("r", ApplyValue(MUL, (Ref("s", F32), LoadValue(scale, i)), F32)),
            StoreStmt(total, i, Ref("r", F32)),
            Loop("j", 0, cols, 1, V, (
                StoreStmt(out, i * cols + j, ApplyValue(ADD, (load, Ref("r", F32)), F32)),
            )),
        )),
        Loop("j", 0, cols, 1, V, (
            Accumulator("s", F32, ReduceOp.SUM, zero),
            Loop("i", 0, rows, 1, S, (Accumulate("s", load),)),
            StoreStmt(column, j, Ref("s", F32)),
        )),
    ]  # fmt: skip
    arrays = {
        "x": array(RNG, rows * cols, F32).reshape(rows, cols), "scale": array(RNG, rows, F32),
        "t": np.zeros(rows, F32), "c": np.zeros(cols, F32), "out": np.zeros((rows, cols), F32),
    }  # fmt: skip
    compare(kernel(body, [total, column, out], [x, scale]), arrays)


def test_two_loops_feed_one_accumulator():
    x, y, out = vec(40), vec(12, dt.float64, "y"), vec(1, F32, "out")
    body = [
        Accumulator("s", F32, ReduceOp.SUM, const(F32, 0)),
        Loop("k", 0, 3, 1, S, (
            Loop("i", 0, 40, 1, V, (Accumulate("s", LoadValue(x, i)),)),
            Loop("i", 0, 12, 1, V, (Accumulate("s", ApplyValue(CAST, (LoadValue(y, i),), F32)),)),
            Accumulate("s", const(F32, 2.0)),
        )),
        StoreStmt(out, 0, Ref("s", F32)),
    ]  # fmt: skip
    arrays = {"x": array(RNG, 40, F32), "y": array(RNG, 12, dt.float64), "out": np.zeros(1, F32)}
    compare(kernel(body, [out], [x, y]), arrays)


def test_a_running_sum_that_is_read_stays_serial():
    x, out = vec(19), vec(19, F32, "out")
    body = [
        Accumulator("s", F32, ReduceOp.SUM, const(F32, 0)),
        Loop(
            "i", 0, 19, 1, V, (Accumulate("s", LoadValue(x, i)), StoreStmt(out, i, Ref("s", F32)))
        ),
    ]
    compare(kernel(body, [out], [x]), {"x": array(RNG, 19, F32), "out": np.zeros(19, F32)})


def test_triangular_loops_stay_serial():
    x, out = vec(19), vec(19, F32, "out")
    body = Loop("i", 0, 19, 1, V, (
        Accumulator("s", F32, ReduceOp.SUM, const(F32, 0)),
        Loop("j", 0, i + 1, 1, S, (Accumulate("s", LoadValue(x, j)),)),
        StoreStmt(out, i, Ref("s", F32)),
    ))  # fmt: skip
    compare(kernel([body], [out], [x]), {"x": array(RNG, 19, F32), "out": np.zeros(19, F32)})


def test_scratch_written_then_read():
    size = 23
    x, out, tmp = vec(size), vec(size, F32, "out"), vec(size, F32, "tmp")
    body = [
        Loop("k", 0, 2, 1, S, (
            Loop("i", 0, size, 1, V, (
                StoreStmt(tmp, i, ApplyValue(ADD, (LoadValue(x, i), IndexValue(k, F32)), F32)),
            )),
            Loop("i", 0, size, 1, V, (StoreStmt(out, i, LoadValue(tmp, size - 1 - i)),)),
            StoreStmt(out, 0, ApplyValue(ADD, (LoadValue(out, 0), LoadValue(out, 0)), F32)),
            StoreStmt(out, 1, ApplyValue(ADD, (LoadValue(out, 0), LoadValue(out, 0)), F32)),
        )),
    ]  # fmt: skip
    kern = kernel(body, [out], [x], scratch=[Scratch(tmp, size)])
    compare(kern, {"x": array(RNG, size, F32), "out": np.zeros(size, F32)})


def test_a_load_runs_only_if_its_loop_does():
    """Hoisted above the test for an empty range it would touch unmapped memory."""
    x, out = vec(4), vec(4, F32, "out")
    far = 1 << 45
    body = Loop("k", 0, n, 1, S, (
        Loop("i", 0, n, 1, V, (StoreStmt(out, i, LoadValue(x, far)),)),
        If(dims.less(k, 0), (StoreStmt(out, k, LoadValue(x, k * far + far)),)),
        StoreStmt(out, k, LoadValue(x, far + k)),
    ))  # fmt: skip
    kern = kernel([body], [out], [x], sizes=("n",))
    compare(kern, {"x": array(RNG, 4, F32), "out": np.zeros(4, F32)}, {"n": 0})
    guarded = Loop("k", 0, 3, 1, S, (If(dims.less(3, k), (StoreStmt(out, k, LoadValue(x, far)),)),))
    compare(kernel([guarded], [out], [x]), {"x": array(RNG, 4, F32), "out": np.zeros(4, F32)})


def test_phases_pass_partial_results_through_workspace():
    size = 103
    x, part, out = vec(size), vec(8, F32, "part"), vec(1, F32, "out")
    chunk, job = 13, sym("job", 0, 7)
    first = (
        Accumulator("s", F32, ReduceOp.SUM, const(F32, 0)),
        Loop("i", job * chunk, dims.minimum(job * chunk + chunk, size), 1, V, (
            Accumulate("s", LoadValue(x, i)),
        )),
        StoreStmt(part, job, Ref("s", F32)),
    )  # fmt: skip
    second = (
        Accumulator("s", F32, ReduceOp.SUM, const(F32, 0)),
        Loop("i", 0, 8, 1, S, (Accumulate("s", LoadValue(part, i)),)),
        StoreStmt(out, 0, Ref("s", F32)),
    )
    kern = Kernel(
        "k", (out,), (x,), (part,), (), (), (Phase("job", 8, first), Phase("job", 1, second))
    )
    arrays = {"x": array(RNG, size, F32), "part": np.zeros(8, F32), "out": np.zeros(1, F32)}
    compare(kern, arrays)


@pytest.mark.parametrize("step", [1, 2, 5])
def test_steps_and_nested_ifs(step):
    x, out = vec(41), vec(41, F32, "out")
    body = Loop("i", 1, 41, step, V, (
        If(dims.less(dims.remainder(i, 7), 4), (
            Let("v", LoadValue(x, i)),
            If(dims.less(i, 30), (StoreStmt(out, i, Ref("v", F32)),)),
        )),
    ))  # fmt: skip
    compare(kernel([body], [out], [x]), {"x": array(RNG, 41, F32), "out": np.full(41, -5.0, F32)})


def test_uniform_branches_carry_accumulators():
    x, out = vec(50), vec(1, F32, "out")
    body = [
        Accumulator("s", F32, ReduceOp.SUM, const(F32, 0)),
        Loop("k", 0, n, 1, S, (
            If(dims.less(dims.remainder(k, 3), 2), (
                Accumulate("s", LoadValue(x, k)),
                Loop("i", 0, 9, 1, V, (Accumulate("s", LoadValue(x, i + k)),)),
            )),
        )),
        StoreStmt(out, 0, Ref("s", F32)),
    ]  # fmt: skip
    kern = kernel(body, [out], [x], sizes=("n",), extents=(20,))
    for size in (0, 1, 20):
        compare(kern, {"x": array(RNG, 50, F32), "out": np.zeros(1, F32)}, {"n": size})


def test_index_values_and_division_of_negative_numbers():
    out = vec(40, dt.int32, "out")
    expr = 0
    for c in (2, 3, 8):
        expr = expr * 50 + dims.floor_divide(i - 17, c) + dims.remainder(i - 17, c)
    expr = expr + dims.select(dims.less(i, 5), i * i, dims.maximum(i, 9)) + dims.equal(i, 12)
    for dtype in (dt.int32, F32, dt.bool_, dt.uint8, dt.int64, dt.bfloat16):
        out = vec(40, dtype, "out")
        body = Loop("i", 0, 40, 1, V, (StoreStmt(out, i, IndexValue(expr, dtype)),))
        compare(kernel([body], [out]), {"out": np.zeros(40, dtype)})


@pytest.mark.parametrize(
    "dtype", [dt.int8, dt.uint32, dt.int64, F32, dt.float16, dt.bool_], ids=str
)
def test_iotas(dtype):
    """Narrow and wide, with and without known bounds, uniform and per lane."""
    out = vec(80, dtype, "out")
    known, whole = sym("i", 0, 39), Ref("j", dt.int64)
    body = Loop("i", 0, 40, 1, V, (
        StoreStmt(out, i, IndexValue(known * 3 - 7, dtype)),
        Let("j", IndexValue(i + n, dt.int64)),
        StoreStmt(out, i + 40, whole if dtype == dt.int64 else IndexValue(sym("j"), dtype)),
    ))  # fmt: skip
    kern = kernel([body], [out], sizes=("n",))
    compare(kern, {"out": np.zeros(80, dtype)}, {"n": 9}, rtol=1e-2)


@pytest.mark.parametrize("size", [1, 5, 17])
def test_strides_that_are_sizes_and_products_of_lanes(size):
    x, idx = Buffer("x", (n, 33), F32), vec(33, dt.int32, "idx")
    out = Buffer("out", (3, 33), F32)
    known = sym("i", 0, 32)
    third = dims.floor_divide(known, 3) + dims.remainder(known, 3)
    g = sym("g", None)
    product, odd = dims.minimum(g * i, 32), dims.truth(g - 2)
    body = Loop("i", 0, 33, 1, V, (
        Let("g", LoadValue(idx, i)),
        StoreStmt(out, i, LoadValue(x, i * n + (n - 1))),
        StoreStmt(out, i + 33, LoadValue(x, third)),
        StoreStmt(out, i + 66, LoadValue(x, product, odd, const(F32, 8))),
    ))  # fmt: skip
    kern = kernel([body], [out], [x, idx], sizes=("n",))
    arrays = {
        "x": array(RNG, size * 33, F32).reshape(size, 33), "out": np.zeros((3, 33), F32),
        "idx": RNG.integers(0, 5, 33).astype(np.int32),
    }  # fmt: skip
    compare(kern, arrays, {"n": size})


def test_choices_between_indices_and_wide_comparisons():
    x, out = vec(64), vec(40, F32, "out")
    far = 1 << 27
    at = dims.select(dims.less(n, 5), i, 39 - i) + dims.select(dims.less(i, n), 0, 2)
    mask = dims.logical_or(dims.less(i * far, n * far), dims.equal(i * far, 11 * far))
    body = Loop("i", 0, 40, 1, V, (StoreStmt(out, i, LoadValue(x, at, mask, const(F32, 5))),))
    kern = kernel([body], [out], [x], sizes=("n",))
    for size in (3, 8, 40):
        compare(kern, {"x": array(RNG, 64, F32), "out": np.zeros(40, F32)}, {"n": size})


@pytest.mark.parametrize("size", [0, 1, 2, 30, 41])
def test_steps_over_a_size(size):
    out = Buffer("out", (n + 1,), F32)
    body = Loop("i", 1, n, 2, V, (StoreStmt(out, i, IndexValue(i, F32)),))
    kern = kernel([body, If(1, (StoreStmt(out, n, const(F32, 4)),))], [out], sizes=("n",))
    compare(kern, {"out": np.zeros(size + 1, F32)}, {"n": size})


def test_division_by_a_size():
    out = vec(30, dt.int32, "out")
    a, b = sym("a", None), sym("b", 1)
    expr = dims.floor_divide(i - 9, a) * 100 + dims.remainder(i, b) + dims.floor_divide(i, b) * 7
    body = Loop("i", 0, 30, 1, V, (StoreStmt(out, i, IndexValue(expr, dt.int32)),))
    kern = kernel([body], [out], sizes=("a", "b"))
    for sizes in ({"a": 4, "b": 7}, {"a": -3, "b": 1}):
        compare(kern, {"out": np.zeros(30, np.int32)}, sizes)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_random_kernels(seed):
    g = Generator(seed)
    kern = g.build()
    compare(kern, g.arrays, g.sizes, rtol=2e-2 if g.dtype.itemsize < 4 else 1e-5)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64"])
def test_random_kernels_on_a_plainer_machine(cpu):
    if not host_target().features.count("+sse4.2"):
        pytest.skip("needs an x86-64 host")
    with config.scope(cpu=f"{cpu}:"):
        assert host_target().vector_bytes == 16
        for seed in range(5000, 5012):
            g = Generator(seed)
            compare(g.build(), g.arrays, g.sizes, rtol=2e-2 if g.dtype.itemsize < 4 else 1e-5)


def test_what_has_no_native_code_is_named():
    kern = map_kernel(op("digamma", 1), [F32], F32, 8)
    assert unsupported(kern) == "digamma(f32) -> f32"
    with pytest.raises(UnsupportedError):
        render(kern, host_target())
    assert unsupported(map_kernel(ADD, [F32, F32], F32, 8)) is None


# ---- the interpreter itself


def test_the_interpreter_checks_bounds():
    x, out = vec(4), vec(4, F32, "out")
    for at, where in ((i + 1, i), (i, i + 1)):
        kern = kernel(
            [Loop("i", 0, 4, 1, S, (StoreStmt(out, where, LoadValue(x, at)),))], [out], [x]
        )
        with pytest.raises(VerificationError, match=r"offset in 0\.\.3"):
            emulate(kern, {"x": np.zeros(4, F32), "out": np.zeros(4, F32)}, {})


def test_the_interpreter_checks_what_was_written():
    x, out = vec(4), vec(4, F32, "out")
    kern = kernel([StoreStmt(out, 0, LoadValue(out, 1))], [out], [x])
    with pytest.raises(VerificationError, match="written before"):
        emulate(kern, {"x": np.zeros(4, F32), "out": np.zeros(4, F32)}, {})
    kern = kernel([StoreStmt(x, 0, const(F32, 1))], [out], [x])
    with pytest.raises(VerificationError, match="an input"):
        emulate(kern, {"x": np.zeros(4, F32), "out": np.zeros(4, F32)}, {})
    with pytest.raises(VerificationError, match="buffer x"):
        emulate(kern, {"x": np.zeros(5, F32), "out": np.zeros(4, F32)}, {})


@pytest.mark.parametrize(
    ("arch", "features", "width", "registers"),
    [
        ("skylake-avx512", "+avx512f,+avx512vl,+avx512bw,+avx512dq,+fma,+f16c,+avx2", 64, 32),
        ("haswell", "+avx2,+fma,+f16c", 32, 16),
    ],
)
def test_code_for_other_machines_is_accepted(arch, features, width, registers):
    """Compiled, not run: every random kernel and one tile."""
    if not host_target().features.count("+sse4.2"):
        pytest.skip("needs an x86-64 host")
    target = Target(Backend.CPU, arch, features, width, registers, 2)
    rows, cols = tile_shape(F32, target, 100)
    kernels = [Generator(seed).build() for seed in range(7000, 7006)]
    with config.scope(cache=False):
        for kern in [*kernels, matmul(70, 100, 30, rows, cols)]:
            assert object_code(render(kern, target), target)


@pytest.mark.parametrize(
    ("name", "width", "fused"),
    [
        ("x86-64", 16, False),
        ("x86-64-v3", 32, True),
        ("haswell", 32, True),
        ("haswell:-fma", 32, False),
        ("x86-64-v4", 64, True),
    ],
)
def test_a_machine_by_its_name_has_what_such_have(name, width, fused):
    if not host_target().features.count("+sse4.2"):
        pytest.skip("needs an x86-64 host")
    with config.scope(cpu=name):
        target = host_target()
    assert target.vector_bytes == width
    assert ("+fma" in target.features.split(",")) == fused
    assert target.arch == name.partition(":")[0]


def test_what_was_cast_to_bfloat16_is_rounded_once():
    kern = map_kernel(CAST, [F32], dt.bfloat16, 41)
    assert render(kern, host_target()).count("fcmp uno <") == 3  # two vectors at once, then a rest
    x = array(np.random.default_rng(0), 41, F32)
    x[:6] = np.nan, np.inf, -np.inf, 1e-39, -0.0, 3.4e38
    compare(kern, {"x0": x, "out": np.zeros(41, dt.bfloat16)})


@pytest.mark.parametrize("seed", range(7000, 7010))
def test_text_for_neon_is_valid(seed):
    target = Target(Backend.CPU, "neoverse-n1", "+neon,+fp-armv8", 16, 32, 2)
    text = render(Generator(seed).build(), target)
    objects.library().parse_assembly(text).verify()
