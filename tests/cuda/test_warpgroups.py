"""Products of warpgroups on the executor: layouts as PTX's manual and CUTLASS's notes give them,
results that nobody waited for reported. What a GPU does is not asked here.
"""

from __future__ import annotations

import re
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from lumjax.cuda import nvrtc, ptx
from lumjax.cuda.header import HEADER
from lumjax.cuda.header90 import HEADER_90, products
from lumjax.cuda.ptx import ExecutionError
from lumjax.errors import UnsupportedError

RNG = np.random.default_rng(5)
KINDS = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
WIDE = {0: 1, 1: 8, 2: 4, 3: 2}  # by swizzle: how many 16 bytes lie side by side
# What a host would have copied lies in `image`: the left side, then the right one.
KERNEL = """
extern "C" __global__ void product(const u64* image, float* d, int n) {
  extern __shared__ __align__(1024) u8 s[];
  int t = threadIdx.x, lane = t & 31;
  float sum[COLS / 2];
  for (int k = t; k < BYTES / 8; k += 128) ((u64*)s)[k] = image[k];
  lj_show();
  __syncthreads();
  for (int k = 0; k < COLS / 2; k++) sum[k] = 0;
  lj_products_begin();
  #pragma unroll
  for (int k = 0; k < STEPS; k++)
    lj_products_KIND_COLS<TURNED>(sum,
      lj_matrix(s + k * LEFT_STEP, LEFT, MODE),
      lj_matrix(s + BYTES_LEFT + k * RIGHT_STEP, RIGHT, MODE), k > 0);
  lj_products_close();
  lj_products_wait<0>();
  for (int k = 0; k < COLS / 2; k++) {
    int row = 16 * (t >> 5) + (lane >> 2) + 8 * (k >> 1 & 1);
    d[row * COLS + 8 * (k >> 2) + 2 * (lane & 3) + (k & 1)] = sum[k];
  }
}
"""


def layout(rows, depth, mode, turned, size=2):
    """(byte of each element [row][depth] of a side, lead, stride, bytes of a step of the sum, bytes
    of the side).
    """
    wide, each = WIDE[mode], 16 // size
    i, k = np.meshgrid(np.arange(rows), np.arange(depth), indexing="ij")
    if turned:  # along rows in memory: `wide` pieces of 8 rows, for each of 8 depths
        piece, within = i // each, i % each
        if mode == 0:
            stride, lead = 128 * (depth // 8), 128
            at = piece * stride + k % 8 * 16 + k // 8 * lead
            step = 2 * lead
        else:
            stride = 8 * 16 * wide
            lead = stride * (depth // 8)
            at = piece % wide * 16 + piece // wide * lead + k % 8 * 16 * wide + k // 8 * stride
            step = 2 * stride
    else:
        piece, within = k // each, k % each
        if mode == 0:
            lead, stride = 16 * rows, 128
            at, step = i // 8 * stride + i % 8 * 16 + piece * lead, 2 * lead
        else:
            lead, stride = 16, 8 * 16 * wide
            at, step = i // 8 * stride + i % 8 * 16 * wide + piece * 16, 32
    at = at ^ (at // 128 % wide) * 16
    size_all = -(-(int(at.max()) + 16) // 1024) * 1024
    return at + within * size, lead, stride, step, size_all


def prepared(kind, cols, mode, turned, depth, dtype=None, size=2):
    """(source, image, both sides)"""
    dtype = dtype or KINDS[kind]
    sides = [RNG.normal(size=(n, depth)).astype(dtype) for n in (64, cols)]
    image, values = bytearray(), {}
    for name, side, turn in zip(("LEFT", "RIGHT"), sides, turned, strict=True):
        at, lead, stride, step, total = layout(len(side), depth, mode, turn, size)
        room = np.full(total, 0xFF, np.uint8)
        for b in range(size):
            room[at + b] = side.view(np.uint8).reshape(*side.shape, size)[..., b]
        values |= {f"BYTES_{name}": total, f"{name}_STEP": step, name: f"{lead}, {stride}"}
        image += room.tobytes()
    values |= {"BYTES": len(image), "STEPS": depth * size // 32, "COLS": cols, "MODE": mode,
               "KIND": kind, "TURNED": ", ".join(str(int(t)) for t in turned)}  # fmt: skip
    pattern = "|".join(sorted(values, key=len, reverse=True))
    text = re.sub(pattern, lambda m: str(values[m[0]]), KERNEL)
    return text, np.frombuffer(bytes(image), np.uint64), sides


def run(source, image, cols, kind="bf16", seed=0, threads=128):
    out = np.zeros((64, cols), np.float32)
    memory = ptx.Memory()
    memory.add(image, writable=False)
    memory.add(out, written=False)
    text = HEADER + HEADER_90 + products(kind, cols) + source
    kernel = ptx.load(nvrtc.ptx(text, "compute_90a", ("-lineinfo",)))["product"]
    args = [image.ctypes.data, out.ctypes.data, np.int32(0)]
    kernel.launch(memory, (1,), (threads,), args, image.nbytes, seed)
    return out


@pytest.mark.parametrize("turned", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize("mode", WIDE)
@pytest.mark.parametrize(("kind", "cols"), [("bf16", 64), ("f16", 128), ("bf16", 8)])
def test_products_of_all_layouts(kind, cols, mode, turned):
    if turned[1] and cols // 8 < WIDE[mode]:
        cols = 8 * WIDE[mode]
    depth = max(16, 8 * WIDE[mode])
    source, image, (left, right) = prepared(kind, cols, mode, turned, depth)
    got = run(source, image, cols, kind, seed=mode)
    want = left.astype(np.float64) @ right.astype(np.float64).T
    np.testing.assert_allclose(got, want, 1e-6, 1e-5)
    if depth == 16:
        np.testing.assert_array_equal(got, want.astype(np.float32))


def test_the_widest_product():
    source, image, (left, right) = prepared("bf16", 256, 1, (False, True), 64)
    got = run(source, image, 256)
    want = left.astype(np.float64) @ right.astype(np.float64).T
    np.testing.assert_allclose(got, want, 1e-6, 1e-5)


def test_float32_is_cut_to_ten_bits():
    source, image, (left, right) = prepared("tf32", 64, 1, (False, False), 32, np.float32, 4)
    got = run(source.replace("tf32_64<0, 0>", "tf32_64"), image, 64, "tf32")
    cut = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (left, right)]
    cut = [x.astype(np.float64) for x in cut]
    np.testing.assert_allclose(got, cut[0] @ cut[1].T, 1e-6, 1e-5)


# ---- planted

WAIT = "lj_products_wait<0>();"
PLANTED = {
    "sums are read before the wait": (
        WAIT, "if (n == 0) d[t] = sum[0]; " + WAIT, "have not finished"),
    "no wait": (WAIT, "", "have not finished"),
    "a wait for a group too few": (WAIT, "lj_products_wait<1>();", "have not finished"),
    "a group that nobody closed": ("lj_products_close();", "", "have not finished"),
    "no fence before products": ("lj_products_begin();", "", "without a wgmma.fence"),
    "sides that are not shown": ("lj_show();", "", "fence.proxy.async"),
    "sides shown before they are written": (
        "((u64*)s)[k] = image[k];\n  lj_show();", "{ lj_show(); ((u64*)s)[k] = image[k]; }",
        "fence.proxy.async"),
    "no barrier after the sides are written": ("__syncthreads();", "", "races|nothing has written"),
    "a side overwritten before the wait": (WAIT, "((u64*)s)[t] = 0; " + WAIT, "races"),
    "a side overwritten while another warp's products read it": (
        WAIT, WAIT + " if (t < 32) ((u64*)s)[BYTES_LEFT_ / 8 + t] = 0;", "races"),
    "one warp takes no part": ("lj_products_begin();", "if (t < 32) return; lj_products_begin();",
                               "never come"),
    "half a warp takes no part": (
        "lj_products_begin();", "if ((t & 63) > 47) return; lj_products_begin();", "never come"),
    "warps of a group ask for different matrices": (
        "lj_matrix(s + k", "lj_matrix(s + (t >> 6) * 1024 + k", "wait elsewhere"),
    "a side behind shared memory": (
        "lj_matrix(s + k", "lj_matrix(s + BYTES_ + k", "out of bounds"),
    "a bit that means nothing": ("1024, 1)", "1024, 1) | 1ull << 50", "no known way"),
    "ends before its products": (WAIT, "if (n == 0) return; " + WAIT, "ends before"),
}  # fmt: skip
WRONG = {
    "a stride too small": ("16, 1024, 1", "16, 512, 1"),
    "another swizzle": ("16, 1024, 1", "16, 1024, 2"),
    "not swizzled": ("16, 1024, 1", "16, 1024, 0"),
    "steps too wide": ("k * 32", "k * 64"),
    "a side turned": ("<0, 0>", "<1, 0>"),
    "rows of the wrong half": ("8 * (k >> 1 & 1)", "8 * (k & 1)"),
    "columns by one": ("2 * (lane & 3)", "(lane & 3)"),
    "sums begun anew": ("k > 0", "0"),
}  # fmt: skip


@cache
def plain():
    return prepared("bf16", 64, 1, (False, False), 64)


def planted(old, new):
    source, image, sides = plain()
    assert old in source
    new = new.replace("BYTES_LEFT_", "8192").replace("BYTES_", str(image.nbytes))
    return source.replace(old, new), image, sides


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_reported_in_every_order(name):
    old, new, kind = PLANTED[name]
    source, image, _ = planted(old, new)
    for seed in (0, 1, 7):
        with pytest.raises(ExecutionError, match=kind):
            run(source, image, 64, seed=seed)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_layout_is_found_by_comparison(name):
    source, image, (left, right) = planted(*WRONG[name])
    try:
        got = run(source, image, 64)
    except ExecutionError:
        return
    want = left.astype(np.float64) @ right.astype(np.float64).T
    assert not np.allclose(got, want, 1e-2, 1e-1)


CLEAN = {
    "as it is": ("", "", 1),
    "two groups under way": (
        WAIT, "lj_products_bf16_64<0, 0>(sum, lj_matrix(s, 16, 1024, 1),"
        "lj_matrix(s + 8192, 16, 1024, 1), 1);"
        "lj_products_close(); lj_products_wait<1>(); lj_products_wait<0>();", 2),
    "overwritten after a wait and a barrier": (
        WAIT, WAIT + " __syncthreads(); ((u64*)s)[t] = 0;", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_kernel_raises_no_alarm(name):
    old, new, times = CLEAN[name]
    source, image, (left, right) = planted(old, new) if old else plain()
    want = left.astype(np.float64) @ right.astype(np.float64).T
    if times == 2:
        want += left[:, :16].astype(np.float64) @ right[:, :16].astype(np.float64).T
    for seed in (0, 1, 7):
        np.testing.assert_allclose(run(source, image, 64, seed=seed), want, 1e-6, 1e-5)


@pytest.mark.parametrize(
    "line",
    [
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {a, a, a, a}, s, s, p;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f, f, f, f}, {a, a, a, a}, s, p, 1, "
        "1, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {a, a}, s, s, p, 1, 1, 0, 0;",
    ],
)
def test_what_is_not_known_is_named(line):
    names = ".reg .b32 a; .reg .b64 s; .reg .pred p; .reg .f32 f;"
    text = f'extern "C" __global__ void k() {{ asm volatile("{{{names}\\n{line}}}"); }}'
    with pytest.raises(UnsupportedError, match=r"wgmma\.mma_async"):
        ptx.load(nvrtc.ptx(text, "compute_90a"))
