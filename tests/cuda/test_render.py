"""Rendered kernels against the literal interpreter of the Kernel IR, on the checking executor."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax.dtype as dt
from lumjax.cuda import nvrtc
from lumjax.cuda.header import HEADER
from lumjax.cuda.render import render, unsupported
from lumjax.cuda.runtime import compiled
from lumjax.cuda.scalar import supported
from lumjax.kernel.emulate import emulate
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    If,
    Let,
    LoadValue,
    Loop,
    LoopKind,
    Ref,
    Scratch,
    StoreStmt,
)
from lumjax.kernel.term import Buffer
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp
from tests.cpu.kernels import const, kernel, map_kernel, op, sym
from tests.cpu.random_kernels import Generator
from tests.cpu.test_tile import matmul

F32 = dt.float32
RNG = np.random.default_rng(5)
ADD, MUL = op("add", 2, np.add), op("mul", 2, np.multiply)
V, S = LoopKind.VECTOR, LoopKind.SERIAL
i, j = sym("i", 0), sym("j", 0)
job = sym("job", 0)


def compare(kern, arrays, sizes=None, seeds=(0, 6), rtol=1e-5):
    """Run on the executor in several orders of threads: equal to the interpreter, bit by bit the
    same each time, and without a complaint.
    """
    sizes = sizes or {}
    assert unsupported(kern) is None
    theirs = {name: x.copy() for name, x in arrays.items()}
    emulate(kern, theirs, sizes)
    made = compiled(kern)
    first = None
    for seed in seeds:
        ours = {name: x.copy() for name, x in arrays.items()}
        table = [ours[b.name].ctypes.data for b in kern.buffers]
        made.run([*table, *(sizes[n] for n in kern.sizes)], sizes, seed)
        outs = [ours[b.name] for b in kern.outputs]
        for mine, buffer in zip(outs, kern.outputs, strict=True):
            wanted = theirs[buffer.name]
            if buffer.dtype in dt.INEXACT:
                wide = np.complex128 if buffer.dtype in dt.COMPLEX else np.float64
                np.testing.assert_allclose(mine.astype(wide), wanted.astype(wide), rtol, 1e-5)
            else:
                np.testing.assert_array_equal(mine, wanted)
        first = first or [x.tobytes() for x in outs]
        assert [x.tobytes() for x in outs] == first
    return made


def rows(kind=ReduceOp.SUM, dtype=F32, count=7, long=300):
    """y[i, j] = x[i, j] * (the reduction of row i): two loops over each row, one job for two."""
    x, y = Buffer("x", (count, long), dtype), Buffer("y", (count, long), dtype)
    at = i * long + j
    first = LoadValue(x, at)
    body = (
        Accumulator("s", dtype, kind, const(dtype, 0)),
        Loop("j", 0, long, 1, V, (Accumulate("s", first),)),
        Loop("j", 0, long, 1, V, (
            StoreStmt(y, at, ApplyValue(MUL, (first, Ref("s", dtype)), dtype)),)),
    )  # fmt: skip
    end = dims.minimum(job * 2 + 2, count)
    loop = Loop("i", job * 2, end, 1, S, body)
    return kernel([loop], [y], [x], jobs=-(-count // 2), name="rows")


def data(kern, low=-4, high=5):
    """Small whole numbers for every buffer of a kernel."""
    found = {}
    for b in kern.buffers:
        size = int(np.prod([int(n) for n in b.shape]))
        bottom = 0 if b.dtype in dt.UNSIGNED else low
        found[b.name] = RNG.integers(bottom, high, size).astype(b.dtype).reshape(b.shape)
    return found


@pytest.mark.parametrize("size", [31, 1029])
def test_maps_access_sixteen_bytes_where_they_can(size):
    kern = map_kernel(ADD, [F32, F32], F32, size)
    arrays = {"x0": RNG.normal(size=size).astype(F32), "x1": RNG.normal(size=size).astype(F32),
              "out": np.zeros(size, F32)}  # fmt: skip
    made = compare(kern, arrays)
    text = nvrtc.ptx(made.rendered.text)
    assert "ld.global.v4.f32" in text
    assert "st.global.v4.f32" in text


def test_an_array_that_is_not_aligned_is_read_one_by_one():
    """From an odd place in memory, where a wide access would be a fault."""
    kern = map_kernel(ADD, [F32, F32], F32, 100)
    room = np.arange(128, dtype=F32)
    x0, x1, out = room[1:101], np.ones(100, F32), np.zeros(100, F32)
    made = compiled(kern)
    made.run([out.ctypes.data, x0.ctypes.data, x1.ctypes.data], {})
    np.testing.assert_array_equal(out, x0 + 1)


def chosen():
    """y[j] = twice x[at[j], j]: a row that is known only where the loop has begun."""
    n = 40
    x, y, index = Buffer("x", (5, n), F32), Buffer("y", (n,), F32), Buffer("at", (n,), dt.int32)
    row = LoadValue(x, sym("row", None) * n + j)
    body = (Let("row", LoadValue(index, j)), StoreStmt(y, j, ApplyValue(ADD, (row, row), F32)))
    return kernel([Loop("j", 0, n, 1, V, body)], [y], [x, index], name="chosen")


def test_a_row_that_is_chosen_inside_of_the_loop_is_read_one_by_one():
    arrays = {"x": RNG.normal(size=(5, 40)).astype(F32), "y": np.zeros(40, F32),
              "at": RNG.integers(0, 5, 40).astype(np.int32)}  # fmt: skip
    compare(chosen(), arrays)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(ReduceOp.MAX, F32), (ReduceOp.SUM, dt.float64), (ReduceOp.XOR, dt.uint16),
     (ReduceOp.SUM, dt.complex64)],
    ids=str,
)  # fmt: skip
def test_rows_are_reduced_by_blocks(kind, dtype):
    kern = rows(kind, dtype)
    made = compare(kern, data(kern))
    if dtype not in dt.COMPLEX:
        assert "lj_block<8>" in made.rendered.text


def test_a_maximum_passes_nan_on():
    kern = rows(ReduceOp.MAX)
    arrays = data(kern)
    arrays["x"][3, 17] = np.nan
    made = compiled(kern)
    made.on_arrays(kern, arrays, {})
    assert np.isnan(arrays["y"][3]).all()
    assert not np.isnan(arrays["y"][2]).any()


@pytest.mark.parametrize("shape", [(1, 1, 1), (13, 50, 19), (20, 7, 40)])
@pytest.mark.parametrize("dtype", [F32, dt.bfloat16, dt.int8, dt.complex64], ids=str)
@pytest.mark.sampled(3)
def test_tiles(shape, dtype):
    kern = matmul(*shape, 8, 48, dtype)
    compare(kern, data(kern), seeds=(0, 3), rtol=1e-2 if dtype == dt.bfloat16 else 1e-5)


def reversed_rows():
    """Each row of x turned around through shared memory, in place of what the row before left."""
    n = 70
    x, y, tmp = Buffer("x", (5, n), F32), Buffer("y", (5, n), F32), Buffer("tmp", (n,), F32)
    at = i * n + j
    body = (
        Loop("j", 0, n, 1, V, (StoreStmt(tmp, j, LoadValue(x, at)),)),
        If(dims.less(i, 4), (StoreStmt(tmp, 3, ApplyValue(ADD, (
            LoadValue(tmp, 3), LoadValue(tmp, 60)), F32)),)),
        Loop("j", 0, n, 1, V, (StoreStmt(y, at, LoadValue(tmp, n - 1 - j)),)),
    )  # fmt: skip
    loop = Loop("i", 0, 5, 1, S, body)
    return kernel([loop], [y], [x], scratch=[Scratch(tmp, n)], name="reversed")


def test_scratch_goes_from_thread_to_thread_behind_barriers():
    made = compare(reversed_rows(), data(reversed_rows()))
    assert made.rendered.text.count("__syncthreads") - HEADER.count("__syncthreads") == 3


def large():
    """x turned around through more shared memory than a kernel declares."""
    n = 20_000
    x, y, tmp = Buffer("x", (n,), F32), Buffer("y", (n,), F32), Buffer("tmp", (n,), F32)
    body = (
        Loop("j", 0, n, 1, V, (StoreStmt(tmp, j, LoadValue(x, j)),)),
        Loop("j", 0, n, 1, V, (StoreStmt(y, j, LoadValue(tmp, n - 1 - j)),)),
    )
    return kernel(body, [y], [x], scratch=[Scratch(tmp, n)], name="large")


def test_large_scratch_is_memory_that_the_launch_adds():
    made = compare(large(), data(large()), seeds=(0,))
    assert made.rendered.launches[0].shared == 80_000


def independent(kern):
    """Whether VECTOR loops keep their promise: no iteration reads what another one stores."""

    def loops(body):
        for s in body:
            if isinstance(s, Loop):
                yield s
                yield from loops(s.body)

    for loop in loops(s for phase in kern.phases for s in phase.body):
        if loop.kind is V:
            for s in loop.body:
                if isinstance(s, StoreStmt):
                    back = getattr(s.value, "args", (s.value,))
                    if any(isinstance(v, LoadValue) and v.buffer is s.buffer
                           and v.offset is not s.offset for v in back):  # fmt: skip
                        return False
    return True


@pytest.mark.sampled(24)
@pytest.mark.parametrize("seed", range(80))
def test_random_kernels(seed):
    g = Generator(seed)
    kern = g.build()
    if independent(kern):
        compare(kern, g.arrays, g.sizes, (seed % 5,), 2e-2 if g.dtype.itemsize < 4 else 1e-5)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_kernels_take_few_registers_and_spill_nothing(arch):
    for kern in (rows(), matmul(64, 96, 80, 8, 48)):
        for usage in nvrtc.cubin(render(kern).text, arch).usage.values():
            assert usage.spills == 0
            assert usage.registers <= 128


def test_what_has_no_cuda_code_is_named():
    odd = op("mystery", 1, np.sin)
    assert not supported(odd, (F32,), F32)
    assert unsupported(map_kernel(odd, [F32], F32, 5)) == "mystery(f32) -> f32"
    big = Buffer("tmp", (60_000,), F32)
    x = Buffer("x", (1,), F32)
    stores = [StoreStmt(b, 0, const(F32, 1)) for b in (x, big)]
    kern = kernel(stores, [x], scratch=[Scratch(big, 60_000)])
    assert "scratch" in unsupported(kern)
