"""What the machine can do: bytes copied and multiply-adds per second, measured in the same run."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from lumjax.cpu import objects

COPIED = 1 << 26  # bytes of the array that each thread copies: beyond every cache
CHAINS, TURNS = 12, 1 << 20


@dataclass(frozen=True)
class Roof:
    """Bytes per second (read and written both counted), and float32 operations per second."""

    bandwidth: float
    flops: float

    def seconds(self, moved: float, flops: float) -> float:
        """The least that so much work takes."""
        return max(moved / self.bandwidth, flops / self.flops)


def roof(threads: int, rounds: int = 7) -> Roof:
    """The best of some rounds."""
    with ThreadPoolExecutor(threads) as pool:
        return Roof(_copying(pool, threads, rounds), _multiplying(pool, threads, rounds))


def _best(
    pool: ThreadPoolExecutor, threads: int, rounds: int, work: Callable[[int], object]
) -> float:
    """Seconds until all threads have done their work, in the fastest round."""
    taken: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        list(pool.map(work, range(threads)))
        taken.append(time.perf_counter() - started)
    return min(taken)


def _copying(pool: ThreadPoolExecutor, threads: int, rounds: int) -> float:
    pairs = [tuple(np.ones(COPIED, np.uint8) for _ in range(2)) for _ in range(threads)]
    seconds = _best(pool, threads, rounds, lambda k: np.copyto(*pairs[k]))
    return 2 * COPIED * threads / seconds


def _multiplying(pool: ThreadPoolExecutor, threads: int, rounds: int) -> float:
    target = objects.host_target()
    lanes = target.vector_bytes // 4
    code = objects.object_code(_text(lanes), target)
    (address,) = objects.load(code, ["roof_chains"], {})
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
    sums = [np.zeros(lanes, np.float32) for _ in range(threads)]
    seconds = _best(pool, threads, rounds, lambda k: run(sums[k].ctypes.data))
    return 2.0 * CHAINS * TURNS * lanes * threads / seconds


def _text(lanes: int) -> str:
    """LLVM text of a loop of independent chains of multiply-adds, whose sum is stored."""
    v = f"<{lanes} x float>"
    one = f"<{', '.join(['float 0x3FF0000020000000'] * lanes)}>"
    lines = [f"define void @roof_chains(ptr %out) {{\nentry:\n  %one = load {v}, ptr %out, align 4"]
    lines.append("  br label %loop\nloop:\n  %i = phi i64 [ 0, %entry ], [ %j, %loop ]")
    name = f"@llvm.fma.v{lanes}f32"
    lines += [f"  %a{k} = phi {v} [ %one, %entry ], [ %b{k}, %loop ]" for k in range(CHAINS)]
    lines += [f"  %b{k} = call {v} {name}({v} %a{k}, {v} {one}, {v} %one)" for k in range(CHAINS)]
    lines.append(f"  %j = add i64 %i, 1\n  %more = icmp ult i64 %j, {TURNS}")
    lines.append("  br i1 %more, label %loop, label %end\nend:")
    total = "%b0"
    for k in range(1, CHAINS):
        lines.append(f"  %s{k} = fadd {v} {total}, %b{k}")
        total = f"%s{k}"
    lines.append(f"  store {v} {total}, ptr %out, align 4\n  ret void\n}}")
    lines.append(f"declare {v} @llvm.fma.v{lanes}f32({v}, {v}, {v})")
    return "\n".join(lines)
