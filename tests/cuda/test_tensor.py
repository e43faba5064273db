"""Tensor cores and asynchronous copies on the executor: layouts as PTX's manual gives them, copies
that nobody waited for reported. What a GPU does is not asked here.
"""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest

from lumjax.cuda import nvrtc, ptx
from lumjax.cuda.header import HEADER
from lumjax.cuda.ptx import ExecutionError
from tests.cuda.launching import kernels_of, launch

RNG = np.random.default_rng(3)
KINDS = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
# One warp, all of it by hand: a is [16][16], b is [16][8], c is [16][8].
FRAGMENTS = """
extern "C" __global__ void product(const u16* a, const u16* b, const float* c, float* d) {
  int lane = threadIdx.x, g = lane >> 2, i = lane & 3;
  u32 x[4], y[2];
  float z[4];
  for (int r = 0; r < 4; r++) {
    const u16* at = a + (g + 8 * (r & 1)) * 16 + 2 * i + 8 * (r >> 1);
    x[r] = at[0] | (u32)at[1] << 16;
    z[r] = c[(g + 8 * (r >> 1)) * 8 + 2 * i + (r & 1)];
  }
  for (int r = 0; r < 2; r++) {
    const u16* at = b + (2 * i + 8 * r) * 8 + g;
    y[r] = at[0] | (u32)at[8] << 16;
  }
  lj_mma_KIND(z, x, y);
  for (int r = 0; r < 4; r++) d[(g + 8 * (r >> 1)) * 8 + 2 * i + (r & 1)] = z[r];
}
"""
TEN_BITS = """
extern "C" __global__ void product(const float* a, const float* b, const float* c, float* d) {
  int lane = threadIdx.x, g = lane >> 2, i = lane & 3;
  u32 x[4], y[2];
  float z[4];
  for (int r = 0; r < 4; r++) {
    x[r] = lj_ten_bits(a[(g + 8 * (r & 1)) * 8 + i + 4 * (r >> 1)]);
    z[r] = c[(g + 8 * (r >> 1)) * 8 + 2 * i + (r & 1)];
  }
  for (int r = 0; r < 2; r++) y[r] = lj_ten_bits(b[(i + 4 * r) * 8 + g]);
  lj_mma_tf32(z, x, y);
  for (int r = 0; r < 4; r++) d[(g + 8 * (r >> 1)) * 8 + 2 * i + (r & 1)] = z[r];
}
"""
MATRICES = """
extern "C" __global__ void rows(const u16* a, u16* d) {
  __shared__ __align__(16) u16 s[32][8];
  int lane = threadIdx.x;
  for (int k = 0; k < 8; k++) s[lane][k] = a[8 * lane + k];
  __syncwarp();
  u32 r[4];
  LOAD
  for (int k = 0; k < COUNT; k++) {
    d[64 * k + 2 * lane] = (u16)r[k];
    d[64 * k + 2 * lane + 1] = (u16)(r[k] >> 16);
  }
}
"""


def run(source, name, out, *inputs, seed=0):
    memory = ptx.Memory()
    for x in inputs:
        memory.add(x, writable=False)
    memory.add(out, written=False)
    kernel = ptx.load(nvrtc.ptx(HEADER + source))[name]
    args = [x.ctypes.data for x in (*inputs, out)]
    kernel.launch(memory, (1,), (32,), args, seed=seed)
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 5])
def test_a_product_of_16_bit_floats_is_exact_and_rounded_once(kind, seed):
    a, b = (RNG.normal(size=s).astype(KINDS[kind]) for s in ((16, 16), (16, 8)))
    c = RNG.normal(size=(16, 8)).astype(np.float32)
    source = FRAGMENTS.replace("KIND", kind)
    got = run(source, "product", np.zeros((16, 8), np.float32), a.view(np.uint16),
              b.view(np.uint16), c, seed=seed)  # fmt: skip
    want = a.astype(np.float64) @ b.astype(np.float64) + c
    np.testing.assert_array_equal(got, want.astype(np.float32))


def test_float32_is_cut_to_ten_bits():
    a, b, c = (RNG.normal(size=s).astype(np.float32) for s in ((16, 8), (8, 8), (16, 8)))
    a[0, :3], b[:3, 0] = (np.inf, 1 + 2.0**-11, -1 - 2.0**-11), 1
    got = run(TEN_BITS, "product", np.zeros((16, 8), np.float32), a, b, c)

    def cut(x):
        mantissa, exponent = np.frexp(x.astype(np.float64))
        scaled = np.abs(mantissa) * 2**11
        near = np.copysign(np.floor(scaled + 0.5), mantissa) / 2**11
        return np.where(np.isfinite(x), np.ldexp(near, exponent), x)

    with np.errstate(invalid="ignore"):
        want = cut(a) @ cut(b) + c
    np.testing.assert_allclose(got, want.astype(np.float32), 1e-7)
    assert cut(a)[0, 1] == 1 + 2.0**-10


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("count", [2, 4])
def test_matrices_are_handed_out(count, turned):
    call = f"lj_matrices{count}<{str(turned).lower()}>(r, s[lane]);"
    source = MATRICES.replace("LOAD", call).replace("COUNT", str(count))
    a = np.arange(256, dtype=np.uint16)
    got = run(source, "rows", np.zeros((count, 8, 8), np.uint16), a).reshape(count, 8, 8)
    want = a.reshape(4, 8, 8)[:count]
    np.testing.assert_array_equal(got, want.swapaxes(1, 2) if turned else want)


# ---- copies

COPIES = "__shared__ __align__(16) float s[4][256]; int t = threadIdx.x;"
COPY = "lj_copy<4>(&s[{0}][t], x + t + {0}, 4); lj_commit(); "
THREE = COPIES + "".join(COPY.format(k) for k in range(3))
LATE = "races|nothing has written|nobody has waited for"
MMA = "u32 a[4] = {0, 0, 0, 0}, b[2] = {0, 0}; float d[4] = {0, 0, 0, 0};"
PLANTED = {
    "a read before the wait": (
        COPIES + COPY.format(0) + "__syncthreads(); y[t] = s[0][t]; lj_wait<0>();", LATE),
    "a wait for one group too few": (
        THREE + "lj_wait<1>(); __syncthreads(); y[t] = s[2][t ^ 1];", LATE),
    "a wait for an older group than is read": (
        THREE + "lj_wait<2>(); __syncthreads(); y[t] = s[1][255 - t];", LATE),
    "a group that nobody closed": (
        COPIES + "lj_copy<4>(&s[0][t], x + t, 4); lj_wait<0>(); __syncthreads(); y[t] = s[0][t];",
        LATE),
    "a wait and no barrier": (THREE + "lj_wait<0>(); y[t] = s[0][t ^ 33];", LATE),
    "a barrier before the wait": (
        THREE + "__syncthreads(); lj_wait<0>(); y[t] = s[0][t ^ 33];", LATE),
    "a wait by half of the block": (
        THREE + "if (t < 128) lj_wait<0>(); __syncthreads(); y[t] = s[0][255 - t];", LATE),
    "a copy over what others still read": (
        THREE + "lj_wait<0>(); __syncthreads(); y[t] = s[0][t ^ 33];"
        "lj_copy<4>(&s[0][t], x + t, 4);", LATE),
    "a store over a copy": (
        COPIES + COPY.format(0) + "s[0][t] = 1; lj_wait<0>(); y[t] = s[0][t];", LATE),
    "a copy over a copy": (
        COPIES + COPY.format(0) + "lj_copy<4>(&s[0][t], x + t + 1, 4); lj_commit(); lj_wait<0>();"
        "y[t] = s[0][t];", LATE),
    "a ring that is a slot too short": (  # two slots for copies that are two ahead
        COPIES + "float v = 0; for (int k = 0; k < 2; k++) {"
        "lj_copy<4>(&s[k & 1][t], x + t + k, 4); lj_commit(); }"
        "for (int k = 0; k < 3; k++) { lj_wait<1>(); __syncthreads();"
        "if (k < 2) lj_copy<4>(&s[k & 1][t], x + t + k, 4); lj_commit(); v += s[k & 1][t ^ 33]; }"
        "y[t] = v;", LATE),
    "a slot that is read one round late": (
        COPIES + "float v = 0; for (int k = 0; k < 2; k++) { lj_copy<4>(&s[k][t], x + t + k, 4);"
        "lj_commit(); } for (int k = 0; k < 3; k++) { lj_wait<1>(); __syncthreads();"
        "v += s[(k + 1) % 3][t ^ 33]; lj_copy<4>(&s[(k + 2) % 3][t], x + t + k, 4); lj_commit(); }"
        "y[t] = v;", LATE),
    "a copy from an odd place": (
        COPIES + "if (t < 16) lj_copy<16>(&s[0][4 * t], x + 4 * t + 1, 16); y[t] = 0;",
        "misaligned"),
    "a copy to an odd place": (
        COPIES + "if (t < 16) lj_copy<16>(&s[0][4 * t + 2], x + 4 * t, 16); y[t] = 0;",
        "misaligned"),
    "a copy from behind the input": (
        COPIES + "lj_copy<4>(&s[0][t], x + t + n, 4); y[t] = 0;", "out of bounds"),
    "a copy behind its array": (
        COPIES + "lj_copy<4>(&s[3][0] + t + n, x + t, 4); y[t] = 0;", "out of bounds"),
    "a copy of more than has room": (
        COPIES + "lj_copy<4>(&s[0][t], x + t, 8); y[t] = 0;", "out of bounds"),
    "a product of half a warp": (
        COPIES + MMA + "if (t & 16) lj_mma_bf16(d, a, b); y[t] = d[0];",
        "never come|wait elsewhere"),
    "a product that some lanes left": (
        COPIES + MMA + "if ((t & 31) > 29) { y[t] = 1; return; } lj_mma_bf16(d, a, b);"
        "y[t] = d[0];", "never come"),
    "matrices from rows that are misaligned": (
        COPIES + "s[0][t] = s[1][t] = 1; __syncthreads(); u32 r[4]; lj_matrices4<false>(r,"
        "&s[0][(t & 31) * 2]); y[t] = r[0];", "misaligned"),
    "matrices that nobody has written": (
        COPIES + "if (t & 8) s[0][t] = 1; __syncthreads(); u32 r[4]; lj_matrices4<false>(r,"
        "&s[0][(t & 31) * 4]); y[t] = r[0];", "nothing has written"),
    "matrices without a barrier": (
        COPIES + "s[0][t] = 1; u32 r[4]; lj_matrices4<false>(r, &s[0][(t & 31) * 4]);"
        "y[t] = r[0];", "races|nothing has written"),
}  # fmt: skip
N = np.arange(256.0)
CLEAN = {
    "waits for each group": (
        THREE + "lj_wait<2>(); __syncthreads(); float v = s[0][t ^ 33]; lj_wait<1>();"
        "__syncthreads(); v += s[1][t ^ 33]; lj_wait<0>(); __syncthreads(); y[t] = v + s[2][t];",
        2 * (np.arange(256) ^ 33) + 1 + N + 2),
    "one's own copy needs no barrier": (
        THREE + "lj_wait<0>(); y[t] = s[0][t] + s[2][t];", 2 * N + 2),
    "a ring of three": (
        COPIES + "float v = 0; for (int k = 0; k < 2; k++) { lj_copy<4>(&s[k][t], x + t + k, 4);"
        "lj_commit(); } for (int k = 0; k < 4; k++) { lj_wait<1>(); __syncthreads();"
        "if (k < 2) lj_copy<4>(&s[(k + 2) % 3][t], x + t + k + 2, 4); lj_commit();"
        "v += s[k % 3][t ^ 33]; } y[t] = v;", 4.0 * (np.arange(256) ^ 33) + 6),
    "what is not given is zero": (
        COPIES + "if (t < 64) lj_copy<16>(&s[0][4 * t], x + 4 * t, 12 - 4 * (t & 1)); lj_commit();"
        "lj_wait<0>(); __syncthreads(); y[t] = s[0][t];",
        np.where(np.arange(256) % 8 < 3, N, np.where(np.isin(np.arange(256) % 8, (4, 5)), N, 0))),
}  # fmt: skip


@cache
def made(clean):
    return kernels_of({n: b for n, (b, _) in (CLEAN if clean else PLANTED).items()}, HEADER)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_reported_in_every_order(name):
    for seed in (0, 1, 7):
        with pytest.raises(ExecutionError, match=PLANTED[name][1]):
            launch(made(False)[name], seed)


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_kernel_raises_no_alarm(name):
    for seed in (0, 1, 7):
        np.testing.assert_array_equal(launch(made(True)[name], seed), CLEAN[name][1])


def test_what_is_not_known_is_named():
    from lumjax.errors import UnsupportedError

    text = HEADER + (
        'extern "C" __global__ void k() { asm volatile("cp.async.bulk.commit_group;"); }'
    )
    with pytest.raises(UnsupportedError, match=r"cp\.async\.bulk"):
        ptx.load(nvrtc.ptx(text, "compute_90"))
