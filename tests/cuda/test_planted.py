"""Kernels with one fault each, which the executor must report; and clean ones, which it must not.

The order in which threads run decides what a faulty kernel computes, never whether it is reported.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from lumjax.cuda import ptx
from lumjax.cuda.ptx import ExecutionError
from tests.cuda.launching import kernels_of, launch

T = "int t = threadIdx.x;"
S = "__shared__ float s[256];"
STAGED = f"{S} {T} float a = 0; for (int i = 0; i < 4; i++) {{ s[t] = x[t + i];"
UNORDERED = "races|nothing has written"

PLANTED = {
    "no barrier before the next round": (
        STAGED + "__syncthreads(); a += s[(t + 37) & 255]; } y[t] = a;", UNORDERED),
    "no barrier before reading": (
        STAGED + "a += s[(t + 37) & 255]; __syncthreads(); } y[t] = a;", UNORDERED),
    "no barrier at all": (f"{S} {T} s[t] = x[t]; y[t] = s[255 - t];", UNORDERED),
    "no barrier in a warp": (
        f"{S} {T} if (t < 32) {{ s[t] = x[t]; y[t] = s[t ^ 1]; }}", UNORDERED),
    "a shuffle instead of a barrier": (
        f"{S} {T} if (t < 32) {{ s[t] = x[t]; float v = __shfl_xor_sync(~0u, x[t], 1);"
        "y[t] = s[t ^ 1] + v; }", UNORDERED),
    "a barrier of half a warp for all of it": (
        f"{S} {T} s[t] = x[t]; __syncwarp(t & 16 ? 0xffff0000u : 0xffffu); y[t] = s[t ^ 16];",
        UNORDERED),
    "a barrier of a warp for two": (
        f"{S} {T} s[t] = x[t]; __syncwarp(); y[t] = s[t ^ 32];", UNORDERED),
    "overwritten while others read": (
        f"{S} {T} if (t < 64) s[t] = x[t]; __syncthreads(); y[t] = s[t & 63];"
        "if (t >= 64 && t < 128) s[t - 64] = 1;", "races"),
    "overwritten in a warp that reads": (
        f"{S} {T} s[t] = x[t]; __syncwarp(); float v = s[t ^ 31]; s[t] = 2; y[t] = v;", "races"),
    "two threads write one place": (f"{T} if (t < 2) y[0] = t;", "races"),
    "two blocks write one place": (f"{T} if (!t) y[0] = x[blockIdx.x];", "races"),
    "two blocks add up in one place": (
        f"{T} y[t] = 0; if (blockIdx.x) y[t] += x[t];", "races"),
    "one block reads what another wrote": (
        f"{T} if (blockIdx.x == 1) y[t] = y[t + 128]; else if (!blockIdx.x) y[t + 128] = x[t];",
        UNORDERED),
    "an atomic sum read before the barrier": (
        f"__shared__ int c; {T} if (!t) c = 0; __syncthreads(); atomicAdd(&c, 1); y[t] = c;",
        "races"),
    "an atomic sum that nobody began": (
        f"__shared__ int c; {T} atomicAdd(&c, 1); __syncthreads(); y[t] = c;",
        "nothing has written"),
    "a read behind the input": (f"{T} y[t] = x[t + n];", "out of bounds"),
    "a read before the input": (f"{T} y[t] = x[t - n];", "out of bounds"),
    "a write behind the output": (f"{T} y[t + 1] = x[t];", "out of bounds"),
    "a write to an input": (f"{T} ((float*)x)[t] = 1; y[t] = 1;", "only read"),
    "an index into the next shared array": (
        f"__shared__ float q[256]; {S} {T} q[t] = 1; s[t + n] = x[t]; __syncthreads();"
        "y[t] = s[t] * q[t];", "out of bounds"),
    "an index behind a local array": (
        f"float a[8]; {T} for (int i = 0; i < 8; i++) a[(i * n) & 7] = x[i];"
        "y[t] = a[(t + n) & 15];", "out of bounds"),
    "a local element that nobody wrote": (
        f"float a[8]; {T} for (int i = 0; i < 7; i++) a[(i * n) & 7] = x[i]; y[t] = a[t & 7];",
        "nothing has written"),
    "a shared element that nobody wrote": (
        f"{S} {T} if (t) s[t] = x[t]; __syncthreads(); y[t] = s[t];", "nothing has written"),
    "an output added to": (f"{T} y[t] += x[t];", "nothing has written"),
    "four floats from an odd place": (
        f"{T} float4 v = *(const float4*)(x + 1 + 4 * (t & 7)); y[t] = v.x + v.w;", "misaligned"),
    "two floats to an odd place": (
        f"{T} if (t < 100) *(float2*)(y + 2 * t + 1) = make_float2(1, 2);", "misaligned"),
    "two barriers that are taken for one": (
        f"{S} {T} s[t] = x[t]; if (t < 100) {{ __syncthreads(); }} else {{ __syncthreads();"
        "s[t] += 1; } y[t] = s[t];", "wait elsewhere"),
    "half a warp in a shuffle of all": (
        f"{T} float v = x[t]; if ((t & 31) < 16) v += __shfl_xor_sync(~0u, v, 1); y[t] = v;"
        "__syncthreads(); if (!t) y[0] = 1;", "never come|wait elsewhere"),
    "a shuffle from who takes no part": (
        f"{T} float v = x[t]; if ((t & 31) < 16) v += __shfl_sync(0xffffu, v, 20); y[t] = v;",
        "takes no part"),
    "a shuffle without oneself": (
        f"{T} y[t] = __shfl_sync(1u, x[t], 0);", "takes no part"),
    "a loop that waits for itself": (
        f"{T} volatile float* p = y; y[t] = 0; while (p[t] == 0.0f); ", "does not end"),
    "a trap": (f"{T} if (t == n) __trap(); y[t] = 1;", "is a trap"),
}  # fmt: skip
BLOCKS = {"two blocks write one place": 2, "two blocks add up in one place": 2,
          "one block reads what another wrote": 2}  # fmt: skip


@cache
def planted():
    return kernels_of({name: body for name, (body, _) in PLANTED.items()})


@cache
def clean():
    return kernels_of({name: body for name, (body, _) in CLEAN.items()})


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_reported_in_every_order(name):
    kernel, kind = planted()[name], PLANTED[name][1]
    for seed in (0, 1, 7):
        threads = 128 if name.startswith("one block reads") else 256
        with pytest.raises(ExecutionError, match=kind):
            launch(kernel, seed, BLOCKS.get(name, 1), threads)


def test_a_report_names_the_kernel_the_thread_the_line_and_the_place():
    name = "a read behind the input"
    line = list(PLANTED).index(name) + 1
    where = rf"kernel k\d+, thread 255 of block 0, line {line}: .* at 0 bytes behind buffer 0"
    with pytest.raises(ExecutionError, match=where) as caught:
        launch(planted()[name])
    assert caught.value.kind == "is out of bounds"


N = np.arange(256)
CLEAN = {
    "barriers around each round": (
        STAGED + "__syncthreads(); a += s[(t + 37) & 255]; __syncthreads(); } y[t] = a;",
        4.0 * ((N + 37) & 255) + 6),
    "barriers of a warp": (
        f"{S} {T} s[t] = x[t]; __syncwarp(); float v = s[t ^ 1]; __syncwarp(); s[t] = v;"
        "__syncwarp(); y[t] = s[t ^ 2];", N ^ 3),
    "barriers of half a warp": (
        f"{S} {T} unsigned m = t & 16 ? 0xffff0000u : 0xffffu; s[t] = x[t]; __syncwarp(m);"
        "float v = s[t ^ 1]; __syncwarp(m); s[t] = v; y[t] = v;", N ^ 1),
    "one value read by all and changed by one": (
        f"{S} {T} s[t] = x[t]; __syncthreads(); float v = s[9]; __syncthreads();"
        "if (!t) s[9] = v + 1; __syncthreads(); y[t] = s[9];", np.full(256, 10.0)),
    "one value of each warp": (
        f"__shared__ float s[8]; {T} int w = t >> 5; if (!(t & 31)) s[w] = x[w]; __syncwarp();"
        "float v = s[w]; __syncwarp(); if (!(t & 31)) s[w] = v + 1; __syncwarp(); y[t] = s[w];",
        1.0 + N // 32),
    "threads that end before a barrier": (
        f"{S} {T} if (t >= 200) {{ y[t] = 0; return; }} s[t] = x[t]; __syncthreads();"
        "y[t] = s[199 - t];", np.where(N < 200, 199 - N, 0)),
    "an atomic sum": (
        f"__shared__ int c; {T} if (!t) c = 0; __syncthreads(); atomicAdd(&c, t);"
        "__syncthreads(); y[t] = c;", np.full(256, 255 * 128)),
    "a local array": (
        f"float a[8]; {T} for (int i = 0; i < 8; i++) a[(i * n) & 7] = x[i];"
        "y[t] = a[(t + n) & 7];", (5 * (N + 5)) & 7),
    "votes": (
        f"{T} y[t] = __popc(__ballot_sync(~0u, x[t] > 3)) + 100 * __any_sync(~0u, t == 40)"
        "+ 1000 * __all_sync(~0u, t > 40);",
        np.where(N < 32, 28, 32) + 100 * (N // 32 == 1) + 1000 * (N // 32 > 1)),
    "shuffles": (
        f"{T} float v = x[t]; y[t] = __shfl_xor_sync(~0u, v, 5) + 1000 * __shfl_up_sync(~0u, v, 3)"
        "+ 1000000 * __shfl_down_sync(~0u, v, 30, 16);",
        (N ^ 5) + 1000.0 * np.where(N % 32 < 3, N, N - 3) + np.float32(1e6) * N),
    "a sum over a block": (
        f"__shared__ float w[8]; {T} float v = x[t];"
        "for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);"
        "if (!(t & 31)) w[t >> 5] = v; __syncthreads(); v = 0;"
        "for (int k = 0; k < 8; k++) v += w[k]; y[t] = v;", np.full(256, 255 * 128.0)),
    "four floats at once": (
        f"{T} if (t < 64) ((float4*)y)[t] = ((const float4*)x)[t];", N),
}  # fmt: skip


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_kernel_raises_no_alarm(name):
    want = np.asarray(CLEAN[name][1], np.float32)
    for seed in (0, 1, 7):
        np.testing.assert_array_equal(launch(clean()[name], seed), want)


def test_blocks_have_shared_memory_of_their_own():
    """What one block left in it is nothing to the next."""
    kernel = clean()["a sum over a block"]
    x, y = np.arange(260, dtype=np.float32), np.zeros(256, np.float32)
    for _ in range(2):
        memory = ptx.Memory()
        memory.add(x, writable=False)
        memory.add(y, written=False)
        args = [x.ctypes.data, y.ctypes.data, np.int32(5)]
        with pytest.raises(
            ExecutionError, match=r"races with another access \(last written by block 0"
        ):
            kernel.launch(memory, (3,), (256,), args)
    own = f"{S} {T} s[t] = x[t]; __syncthreads(); y[t + 256 * blockIdx.x] = s[255 - t];"
    got = launch(kernels_of({"own": own})["own"], blocks=4, outputs=1024)
    np.testing.assert_array_equal(got.reshape(4, 256), np.tile(np.float32(255 - N), (4, 1)))
