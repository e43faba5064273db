"""Barriers with phases, barriers with numbers and bulk copies on the executor: faults that must be
reported, and clean kernels that raise no alarm. What a GPU does is not asked here.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from lumjax.cuda import maps, nvrtc, ptx
from lumjax.cuda.header import HEADER
from lumjax.cuda.header90 import HEADER_90
from lumjax.cuda.ptx import ExecutionError
from lumjax.errors import UnsupportedError
from tests.cuda.launching import kernels_of, launch

ARCH = "compute_90a"
MEET = 'asm volatile("bar.sync %0, %1;" :: "r"(a), "r"(b) : "memory");'
BEFORE = f"""{HEADER}{HEADER_90}
LJ void meet(int a, int b) {{ {MEET} }}
LJ void pass(int a, int b) {{ {MEET.replace("sync", "arrive")} }}
"""
S = ("__shared__ __align__(128) float s[2][256]; __shared__ u64 full[2], empty[2];"
     "int t = threadIdx.x; float v = 0;")  # fmt: skip
MAKE = (
    "if (!t) { for (int k = 0; k < 2; k++) { lj_phases(full + k, 1); lj_phases(empty + k, 224); }"
)
READY = MAKE + "lj_show_phases(); } __syncthreads();"
ONE = S + READY + "if (!t) { lj_expect(full, 1024); lj_move(s[0], x, 1024, full); }"
# Warp 0 brings six rounds into two slots, the others add them up.
RING = S + READY + (
    "if (t < 32) { for (int k = 0; k < 6 && !t; k++) {"
    "lj_wait_for(empty + (k & 1), (k >> 1 & 1) ^ 1);"
    "lj_expect(full + (k & 1), 1024); lj_move(s[k & 1], x + 4 * (k & 1), 1024, full + (k & 1)); }"
    "y[t] = 0; return; }"
    "for (int k = 0; k < 6; k++) { lj_wait_for(full + (k & 1), k >> 1 & 1);"
    "v += s[k & 1][255 - t]; lj_arrive(empty + (k & 1)); } y[t] = v;"
)  # fmt: skip


def changed(text, old, new):
    assert text.count(old) == 1, (old, text)
    return text.replace(old, new)


HALF = S + "int h = t >> 7; s[0][t] = x[t]; meet(1 + h, 128); y[t] = s[0][t ^ 127];"
HANDED = S + (
    "if (t < 64) { s[0][t] = x[t]; pass(3, 256); y[t] = 0; }"
    "else { meet(3, 256); y[t] = s[0][t & 63]; }"
)
LATE = "races|nothing has written|nobody has waited for"
PLANTED = {
    "more bytes expected than come": (
        changed(ONE, "lj_expect(full, 1024)", "lj_expect(full, 1040)")
        + "lj_wait_for(full, 0); y[t] = s[0][255 - t];", "never ends"),
    "fewer bytes expected than come": (
        S + READY + "if (!t) { lj_expect(full, 512); lj_move(s[0], x, 512, full);"
        "lj_move(s[0] + 128, x + 128, 512, full); } lj_wait_for(full, 0); y[t] = s[0][255 - t];",
        "nobody has waited for"),
    "the parity of a phase that is over": (
        ONE + "lj_wait_for(full, 1); y[t] = s[0][255 - t];", LATE),
    "a parity that does not change": (
        changed(RING, "lj_wait_for(full + (k & 1), k >> 1 & 1)", "lj_wait_for(full + (k & 1), 0)"),
        LATE + "|never ends|all have arrived"),
    "a producer that begins with the wrong parity": (
        changed(RING, "(k >> 1 & 1) ^ 1", "k >> 1 & 1"), "never ends"),
    "a wait for a phase that nobody ends": (S + READY + "lj_wait_for(full, 0); y[t] = 1;",
                                            "never ends"),
    "no wait": (ONE + "__syncthreads(); y[t] = s[0][255 - t]; lj_wait_for(full, 0);", LATE),
    "a wait by one thread, and no barrier": (
        ONE + "if (!t) lj_wait_for(full, 0); y[t] = s[0][255 - t];", LATE),
    "never waited for": (ONE + "y[t] = 0;", "ends before"),
    "a barrier that nobody made": (
        S + "if (!t) { lj_expect(full, 1024); lj_move(s[0], x, 1024, full); } lj_wait_for(full, 0);"
        "y[t] = s[0][255 - t];", "nobody has made"),
    "made, and not shown to copies": (
        S + MAKE + "} __syncthreads();"
        "if (!t) { lj_expect(full, 1024); lj_move(s[0], x, 1024, full); }"
        "lj_wait_for(full, 0); y[t] = s[0][255 - t];", "fence.proxy.async"),
    "made, and no barrier before it is asked": (
        S + MAKE + "lj_show_phases(); } if (t == 40) lj_arrive(full); lj_wait_for(full, 0);"
        "y[t] = 1;",
        "races|nobody has made"),
    "made twice": (S + READY + "if (!t) lj_phases(full, 1); y[t] = 1;", "memory of a barrier"),
    "a barrier that is read": (S + READY + "y[t] = full[0];", "memory of a barrier"),
    "more arrive than were said": (
        S + READY + "if (t < 32 && t) lj_wait_for(full, 0); if (t < 32) lj_arrive(empty);"
        "if (t >= 32) lj_arrive(empty); if (!t) lj_expect(full, 16); y[t] = 1;",
        "all have arrived|never ends"),
    "a slot overwritten while it is read": (
        changed(RING, "lj_wait_for(empty + (k & 1), (k >> 1 & 1) ^ 1);", ""),
        LATE + "|all have arrived"),
    "arrived before the slot is read": (
        changed(RING, "v += s[k & 1][255 - t]; lj_arrive(empty + (k & 1));",
                "lj_arrive(empty + (k & 1)); v += s[k & 1][255 - t];"), LATE),
    "a leader arrives for its warp without a barrier": (
        changed(changed(RING, "lj_arrive(empty + (k & 1))",
                        "if (!(t & 31)) lj_arrive(empty + (k & 1))"),
                "empty + k, 224", "empty + k, 7"), LATE),
    "a ring with too few arrivals": (changed(RING, "empty + k, 224", "empty + k, 192"),
                                     LATE + "|all have arrived"),
    "a copy over what threads wrote, not shown": (
        S + READY + "s[0][t] = 1; __syncthreads(); if (!t) { lj_expect(full, 1024);"
        "lj_move(s[0], x, 1024, full); } lj_wait_for(full, 0); y[t] = s[0][255 - t];",
        "fence.proxy.async"),
    "shown before it is written": (
        S + READY + "lj_show(); s[0][t] = 1; __syncthreads(); if (!t) { lj_expect(full, 1024);"
        "lj_move(s[0], x, 1024, full); } lj_wait_for(full, 0); y[t] = s[0][255 - t];",
        "fence.proxy.async"),
    "a copy from an odd place": (changed(ONE, "s[0], x, 1024", "s[0], x + 1, 1024")
                                 + "lj_wait_for(full, 0); y[t] = s[0][t];", "misaligned"),
    "a copy to an odd place": (changed(ONE, "s[0], x, 1024", "s[0] + 2, x, 1024")
                               + "lj_wait_for(full, 0); y[t] = s[0][t];", "misaligned"),
    "a copy of an odd number of bytes": (changed(ONE, "s[0], x, 1024", "s[0], x, 1000")
                                         + "lj_wait_for(full, 0); y[t] = s[0][t];", "misaligned"),
    "a copy from behind the input": (changed(ONE, "s[0], x, 1024", "s[0], x + 8, 1024")
                                     + "lj_wait_for(full, 0); y[t] = s[0][t];", "out of bounds"),
    "a copy behind its array": (changed(ONE, "s[0], x, 1024", "s[1] + 4, x, 1024")
                                + "lj_wait_for(full, 0); y[t] = s[0][t];", "out of bounds"),
    "a barrier for too many threads": (HALF.replace("h, 128)", "h, 256)"), "never come"),
    "a barrier for too few threads": (HALF.replace("h, 128)", "h, 64)"), LATE),
    "a barrier for no whole warps": (
        HALF.replace("h, 128)", "h, 120)"), "another number of threads"),
    "two numbers of threads at one barrier": (
        HALF.replace("h, 128)", "h, t & 64 ? 128 : 64)"), "another number|never come|" + LATE),
    "one number for two halves": (
        S + "s[0][t] = x[t]; meet(1, 128); y[t] = s[0][(t + 64) & 255];", LATE),
    "passed where it should wait": (
        HALF.replace("meet(1 + h, 128)", "if (t & 64) pass(1 + h, 128); else meet(1 + h, 128)"),
        LATE),
    "handed on too early": (HANDED.replace("s[0][t] = x[t]; pass(3, 256);",
                                           "pass(3, 256); s[0][t] = x[t];"), LATE),
}  # fmt: skip
N = np.arange(256.0)
CLEAN = {
    "one copy": (ONE + "lj_wait_for(full, 0); y[t] = s[0][255 - t];", 255 - N),
    "a ring": (RING, np.where(N < 32, 0, 6 * (255 - N) + 12)),
    "leaders arrive for their warps": (
        changed(changed(RING, "lj_arrive(empty + (k & 1))",
                        "__syncwarp(); if (!(t & 31)) lj_arrive(empty + (k & 1))"),
                "empty + k, 224", "empty + k, 7"), np.where(N < 32, 0, 6 * (255 - N) + 12)),
    "copies over what threads wrote": (
        S + READY + "s[0][t] = 1; lj_show(); __syncthreads(); if (!t) { lj_expect(full, 1024);"
        "lj_move(s[0], x, 1024, full); } lj_wait_for(full, 0); y[t] = s[0][255 - t];", 255 - N),
    "shown by who copies": (
        S + READY + "s[0][t] = 1; __syncthreads(); if (!t) { lj_show(); lj_expect(full, 1024);"
        "lj_move(s[0], x, 1024, full); } lj_wait_for(full, 0); y[t] = s[0][255 - t];", 255 - N),
    "made anew": (
        ONE + "lj_wait_for(full, 0); v = s[0][t]; __syncthreads(); if (!t) { lj_phases_end(full);"
        "lj_phases(full, 256); } __syncthreads(); s[1][t] = v; lj_arrive(full);"
        "lj_wait_for(full, 0); y[t] = s[1][255 - t];", 255 - N),
    "phases without copies": (
        S + "if (!t) lj_phases(full, 256); __syncthreads(); for (int k = 0; k < 4; k++) {"
        "s[k & 1][t] = x[t] + k; lj_arrive(full); lj_wait_for(full, k & 1);"
        "v += s[k & 1][t ^ 100]; } y[t] = v;", 4.0 * (np.arange(256) ^ 100) + 6),
    "halves": (HALF, np.arange(256) ^ 127),
    "handed on": (HANDED, np.where(N < 64, 0, N % 64)),
    "all together by a number": (
        S + "s[0][t] = x[t]; meet(4, 256); y[t] = s[0][255 - t]; meet(4, 256); s[0][t] = 1;",
        255 - N),
}  # fmt: skip


@cache
def made(clean):
    return kernels_of({n: b for n, (b, _) in (CLEAN if clean else PLANTED).items()}, BEFORE, ARCH)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_reported_in_every_order(name):
    for seed in (0, 1, 7):
        with pytest.raises(ExecutionError, match=PLANTED[name][1]):
            launch(made(False)[name], seed)


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_kernel_raises_no_alarm(name):
    for seed in (0, 1, 7):
        np.testing.assert_array_equal(launch(made(True)[name], seed), CLEAN[name][1])


@pytest.mark.parametrize(
    "line",
    [
        "cp.async.bulk.commit_group;",
        "mbarrier.pending_count.b64 c, s;",
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [a];",
        "barrier.cluster.arrive;",
        "fence.proxy.alias;",
    ],
)
def test_what_is_not_known_is_named(line):
    text = 'extern "C" __global__ void k() { asm volatile("{.reg .b32 c, a; .reg .b64 s;\\n' + line
    with pytest.raises(UnsupportedError, match=line.split(";")[0].split()[0].split("::")[0][:22]):
        ptx.load(nvrtc.ptx(text + '}"); }', ARCH))


# ---- boxes of tensors

BOX = """
extern "C" __global__ void box(const u8* map, u16* y, int X, int Y, int Z) {
  __shared__ __align__(1024) u16 s[16][64];
  __shared__ u64 full;
  int t = threadIdx.x;
  if (!t) { lj_phases(&full, 1); lj_show_phases(); }
  __syncthreads();
  if (!t) {
    lj_see_map(map);
    lj_expect(&full, 2048);
    lj_move_box(s, map, &full, X, YZ);
  }
  lj_wait_for(&full, 0);
  for (int k = t; k < 1024; k += 32) y[k] = s[k / 64][k % 64];
}
"""


def boxed(x, chart, place, seed=0, encoded=None):
    """A box of an array as it lies in shared memory."""
    room = np.zeros(192, np.uint8)
    at = -room.ctypes.data % 64
    made = maps.emulated(maps.numbers(chart, {}), x.ctypes.data) if encoded is None else encoded
    room[at : at + 128] = np.frombuffer(made, np.uint8)
    y, memory = np.zeros((16, 64), np.uint16), ptx.Memory()
    memory.add(x, writable=False)
    memory.add(room[at : at + 128], writable=False)
    memory.add(y, written=False)
    source = BOX.replace("YZ", "Y, Z" if len(place) == 3 else "Y")
    kernel = ptx.load(nvrtc.ptx(BEFORE + source, ARCH))["box"]
    where = [np.int32(p) for p in (*place, 0)[:3]]
    kernel.launch(memory, (1,), (32,), [room.ctypes.data + at, y.ctypes.data, *where], seed=seed)
    return y


def aligned(shape):
    """1, 2, 3, ... at an address that is a multiple of 16."""
    count = int(np.prod(shape))
    room = np.zeros(count + 64, np.uint16)
    at = -room.ctypes.data % 128 // 2
    room[at : at + count] = np.arange(1, count + 1)
    return room[at : at + count].reshape(shape)


@pytest.mark.parametrize("place", [(0, 0), (64, 8), (128, 24), (-8, -3), (200, 0), (0, 1000)])
def test_boxes_are_swizzled_and_zero_outside(place):
    x = aligned((30, 160))
    got = boxed(x, maps.Chart(0, 2, 0, (150, 30), (160,), (64, 16)), place)
    padded = np.zeros((3000, 3000), np.uint16)
    padded[1000:1030, 1000:1150] = x[:, :150]
    want = padded[1000 + place[1] :, 1000 + place[0] :][:16, :64]
    at = np.arange(16)[:, None] * 8 + (np.arange(8) ^ np.arange(16)[:, None] % 8)
    np.testing.assert_array_equal(got.reshape(128, 8)[at.reshape(-1)].reshape(16, 64), want)


def test_boxes_of_three_dimensions():
    x = aligned((3, 8, 2, 64))
    chart = maps.Chart(0, 2, 64, (64, 8, 3), (128, 1024), (64, 8, 2))
    got = boxed(x, chart, (0, 0, 1))
    want = x[1:, :, 1].reshape(16, 64)
    at = np.arange(16)[:, None] * 8 + (np.arange(8) ^ np.arange(16)[:, None] % 8)
    np.testing.assert_array_equal(got.reshape(128, 8)[at.reshape(-1)].reshape(16, 64), want)


def test_what_is_no_tensor_map_or_leads_outside_is_reported():
    x = aligned((30, 160))
    with pytest.raises(ExecutionError, match="no tensor map"):
        boxed(x, None, (0, 0), encoded=bytes(128))
    wrong = maps.Chart(0, 2, 0, (160, 31), (160,), (64, 16))
    with pytest.raises(ExecutionError, match="out of bounds"):
        boxed(x, wrong, (0, 20))
    fewer = maps.Chart(0, 2, 0, (160, 30), (160,), (64, 8))
    with pytest.raises(ExecutionError, match="never ends"):
        boxed(x, fewer, (0, 0))
    assert maps.numbers(maps.Chart(0, 2, 0, (160, 30), (159,), (64, 8)), {}) is None
    assert maps.numbers(maps.Chart(0, 2, 4, (160, 30), (160,), (64, 8)), {}) is None
