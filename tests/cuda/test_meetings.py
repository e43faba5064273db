"""Blocks that wait for each other: kernels with one fault each, which the executor must report in
whatever order blocks run, and clean ones, which it must not.
"""

from __future__ import annotations

import numpy as np
import pytest

from lumjax.cuda import nvrtc, ptx
from lumjax.cuda.header import HEADER, MEETING
from lumjax.cuda.ptx import ExecutionError

BLOCKS, THREADS, STEPS = 5, 64, 3
SIGNATURE = 'extern "C" __global__ void k(float* y, u64* c, const float* x, int n)'
PLACE = "const int b = blockIdx.x, t = b * 64 + threadIdx.x, all = 64 * gridDim.x;"
# Every element becomes the sum of one of its own block's neighbour and of one of another block.
STEP = f"""
  {PLACE}
  y[t] = x[t];
  for (int s = 0; s < n; s++) {{
    lj_meet(c, 2 * s + 1);
    const float v = y[all - 1 - t] + y[(t + 64) % all];
    lj_meet(c, 2 * s + 2);
    y[t] = v;
  }}
"""
# Carries alternate between two halves of a buffer: one barrier for each step.
ALTERNATING = f"""
  {PLACE}
  for (int s = 0; s < n; s++) {{
    const float* from = s ? y + (s & 1 ? 0 : all) : x;
    const float v = from[all - 1 - t] + from[(t + 64) % all];
    (y + (s & 1 ? all : 0))[t] = v;
    lj_meet(c, s + 1);
  }}
  y[2 * all + t] = (y + (n & 1 ? 0 : all))[all - 1 - t];
"""
WAIT = "while (came < number * gridDim.x)"
UNORDERED = "races|nothing has written"


def without(text, part, put=""):
    assert part in text
    return text.replace(part, put)


PLANTED = {
    "no barrier before reading": (without(STEP, "lj_meet(c, 2 * s + 1);"), MEETING, UNORDERED),
    "no barrier before writing": (without(STEP, "lj_meet(c, 2 * s + 2);"), MEETING, UNORDERED),
    "a barrier before the write": (
        without(STEP, "y[t] = x[t];", "lj_meet(c, 1); y[t] = x[t];").replace(
            "lj_meet(c, 2 * s + 1);", "if (s) lj_meet(c, 2 * s + 1);"), MEETING, UNORDERED),
    "a barrier of the block for all blocks": (
        without(STEP, "lj_meet(c, 2 * s + 1);", "__syncthreads();").replace("2 * s + 2", "s + 1"),
        MEETING, UNORDERED),
    "the number of the time before": (
        STEP, without(MEETING, WAIT, "while (came < (number - 1) * gridDim.x)"), UNORDERED),
    "the same number twice": (without(STEP, "2 * s + 2", "2 * s + 1"), MEETING, UNORDERED),
    "one block too few": (
        STEP, without(MEETING, WAIT, "while (came < number * gridDim.x - 1)"), UNORDERED),
    "one block too many": (
        STEP, without(MEETING, WAIT, "while (came < number * gridDim.x + 1)"), "never come"),
    "a number too high": (without(STEP, "2 * s + 2", "2 * s + 3"), MEETING, "never come"),
    "a block that stays away": (
        without(STEP, "lj_meet(c, 2 * s + 1);", "if (b != 3) lj_meet(c, 2 * s + 1);"), MEETING,
        "never come|races|nothing has written"),
    "a block that ends early": (
        without(STEP, "y[t] = x[t];", "if (b == 2) return; y[t] = x[t];"), MEETING, "never come"),
    "no barrier of the block before arriving": (
        STEP, without(MEETING, "{\n  __syncthreads();", "{"), UNORDERED),
    "no barrier of the block after waiting": (
        STEP, without(MEETING, "  }\n  __syncthreads();", "  }\n"), UNORDERED),
    "an arrival that releases nothing": (
        STEP, without(MEETING, "red.release.gpu", "red.relaxed.gpu"), UNORDERED),
    "a wait that acquires nothing": (
        STEP, without(MEETING, "ld.acquire.gpu", "ld.relaxed.gpu"), UNORDERED),
    "a counter that a kernel sets itself": (
        STEP.replace("y[t] = x[t];", "if (!t) *c = 0; y[t] = x[t];"), MEETING,
        "races|memory of a barrier"),
    "a counter that is read besides": (
        STEP.replace("y[t] = v;", "y[t] = v + *c;"), MEETING, "memory of a barrier"),
    "one buffer for both carries": (
        without(ALTERNATING, "(y + (s & 1 ? all : 0))[t] = v;", "y[t] = v;").replace(
            "s ? y + (s & 1 ? 0 : all) : x", "s ? y : x"), MEETING, UNORDERED),
    "a carry of the step before": (
        without(ALTERNATING, "s & 1 ? 0 : all", "s & 1 ? all : 0"), MEETING, UNORDERED),
    "no barrier between steps": (
        without(ALTERNATING, "lj_meet(c, s + 1);", "__syncthreads();") + "lj_meet(c, 1);", MEETING,
        UNORDERED),
}  # fmt: skip


def kernel_of(body, header=MEETING):
    text = f"{HEADER}{header}{SIGNATURE} {{ {body} }}"
    return ptx.load(nvrtc.ptx(text, options=("-lineinfo",)))["k"]


def launch(kernel, seed=0, blocks=BLOCKS, steps=STEPS, count=True, begin=0):
    x, y = np.arange(64 * blocks, dtype=np.float32), np.zeros(3 * 64 * blocks, np.float32)
    counter = np.full(1, begin, np.uint64)
    memory = ptx.Memory()
    memory.add(x, writable=False)
    memory.add(y, written=False)
    memory.add(counter, written=count)
    args = [y.ctypes.data, counter.ctypes.data, x.ctypes.data, np.int32(steps)]
    kernel.launch(memory, (blocks,), (THREADS,), args, seed=seed)
    return y


def wanted(blocks=BLOCKS, steps=STEPS):
    y = np.arange(64 * blocks, dtype=np.float32)
    for _ in range(steps):
        y = y[::-1] + np.roll(y, -64)
    return y


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_reported_in_every_order(name):
    body, header, kind = PLANTED[name]
    kernel = kernel_of(body, header)
    for seed in (0, 1, 7):
        with pytest.raises(ExecutionError, match=kind):
            launch(kernel, seed)


def test_a_counter_that_nobody_set_is_reported():
    with pytest.raises(ExecutionError, match="nothing has written"):
        launch(kernel_of(STEP), count=False)


@pytest.mark.parametrize("begin", [1, 2 * BLOCKS])
def test_a_counter_with_what_another_launch_left_is_reported(begin):
    for seed in (0, 1, 7):
        with pytest.raises(ExecutionError, match=UNORDERED):
            launch(kernel_of(STEP), seed, begin=begin)


@pytest.mark.parametrize("blocks", [1, 2, BLOCKS, 9])
def test_clean_barriers_raise_no_alarm(blocks):
    for seed in (0, 1, 7):
        got = launch(kernel_of(STEP), seed, blocks)
        np.testing.assert_array_equal(got[: 64 * blocks], wanted(blocks))
        got = launch(kernel_of(ALTERNATING), seed, blocks, 4)
        np.testing.assert_array_equal(got[128 * blocks :], wanted(blocks, 4)[::-1])


def test_many_steps_keep_a_bounded_memory():
    np.testing.assert_array_equal(launch(kernel_of(STEP), 7, 3, 20)[:192], wanted(3, 20))


def test_what_is_moved_by_all_blocks_arrives():
    body = "lj_move((char*)y, (const char*)x, 4 * 64 * n - 4, (blockIdx.x + 2) % gridDim.x);"
    got = launch(kernel_of(body + " lj_meet(c, 1);"), 1, 3, 3)
    np.testing.assert_array_equal(got[:191], np.arange(191))
