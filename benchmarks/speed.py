"""The programs of the table against jax.jit of the same source: compile, warm call, memory.

`python -m benchmarks speed`: one process, the two taking turns, medians; ratios to JAX.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import lumjax
from benchmarks.peers import jax_modules, load
from benchmarks.timing import interleaved, report

SOURCE = Path(__file__).resolve().parent / "programs.py"


def measure(name: str, size: int, ours: Any, theirs: Any, out: str, rounds: int) -> None:
    """Print one program's figures."""
    import jax

    f, args = ours.PROGRAMS[name].build(size)
    g, jax_args = theirs.PROGRAMS[name].build(size)
    cold: dict[str, float] = {}
    started = time.perf_counter()
    mine = lumjax.jit(f)
    got = mine(*args)
    cold["lumjax"] = time.perf_counter() - started
    started = time.perf_counter()
    other = jax.jit(g)
    want = jax.block_until_ready(other(*jax_args))
    cold["jax"] = time.perf_counter() - started
    far = max(
        float(np.max(np.abs(np.asarray(a) - np.asarray(b)), initial=0.0))
        for a, b in zip(lumjax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    )
    once = statistics.median(_seconds(lambda: mine(*args)) for _ in range(3))
    times = interleaved(
        {"lumjax": lambda: mine(*args), "jax": lambda: jax.block_until_ready(other(*jax_args))},
        rounds,
        repeat=max(1, int(0.02 / max(once, 1e-6))),
    )
    executable: Any = mine.lower(*args).compile().executable
    extra = {
        "cold call, s": {n: round(s, 2) for n, s in cold.items()},
        "memory between kernels, MB": round(executable.arena_bytes / 1e6, 2),
        "JAX's temporaries, MB": round(_temporaries(other, jax_args) / 1e6, 2),
        "largest difference": far,
    }
    report(f"{name.replace(' ', '_').replace(',', '')} at {size}", times, "jax", out, extra)


def _seconds(f: Any) -> float:
    started = time.perf_counter()
    f()
    return time.perf_counter() - started


def _temporaries(jitted: Any, args: tuple[Any, ...]) -> int:
    found = jitted.lower(*args).compile().memory_analysis()
    return int(getattr(found, "temp_size_in_bytes", 0))


def main(out: str, names: tuple[str, ...] = (), small: bool = False, rounds: int = 11) -> None:
    """Every program, or those with one of `names` in their name."""
    ours, theirs = load(SOURCE, {}), load(SOURCE, jax_modules())
    with tempfile.TemporaryDirectory() as folder, lumjax.config.scope(cache_dir=folder):
        for name, program in ours.PROGRAMS.items():
            if not names or any(n in name for n in names):
                size = program.small if small else program.large
                measure(name, size, ours, theirs, out, rounds)
