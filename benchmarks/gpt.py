"""A 12-layer transformer's training step: cold compile and warm step, lumjax and JAX.

`python -m benchmarks gpt`: both from an empty cache, then lumjax in a new process from its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import lumjax
from benchmarks.peers import jax_modules, load
from benchmarks.timing import interleaved, report

SOURCE = Path(__file__).resolve().parent / "transformer.py"
SHAPE = {"batch": 4, "time": 256, "width": 256, "heads": 4, "words": 8192}


def main(out: str, layers: int = 12, rounds: int = 5) -> None:
    """Print the figures and write them as JSON."""
    import jax

    ours, theirs = load(SOURCE, {}), load(SOURCE, jax_modules())
    step, args = ours.build(layers, **SHAPE)
    jax_step, jax_args = theirs.build(layers, **SHAPE)
    with tempfile.TemporaryDirectory() as folder, lumjax.config.scope(cache_dir=folder):
        cold, compiled = _compiled(lambda: lumjax.jit(step).lower(*args).compile())
        jax_cold, jax_compiled = _compiled(lambda: jax.jit(jax_step).lower(*jax_args).compile())
        cached = _from_cache(folder, layers)
        got, want = compiled(*args)[0], jax_compiled(*jax_args)[0]
        executable: Any = compiled.executable
        times = interleaved(
            {
                "lumjax": lambda: compiled(*args),
                "jax": lambda: jax.block_until_ready(jax_compiled(*jax_args)),
            },
            rounds,
        )
        stages = list(executable.native())
        extra = {
            "cold trace and compile, s (wall, CPU)": {"lumjax": cold, "jax": jax_cold},
            "trace and compile from the cache on disk, s (wall, CPU)": {"lumjax": cached},
            "loss": {"lumjax": float(got), "jax": float(want)},
            "regions": len(stages),
            "unique regions": len({s.region.key for s in stages}),
            "kernels": sum(len(s.kernels) for s in stages),
            "unique kernels": len({k.compiled.digest for s in stages for k in s.kernels}),
            "rejected": sum(bool(k.rejected) for s in stages for k in s.kernels),
            "by eval": sorted({e.eqn.prim.name for e in executable.evaluated()}),
            "memory between kernels, MB": round(executable.arena_bytes / 1e6, 1),
            "JAX's temporaries, MB": round(
                jax_compiled.memory_analysis().temp_size_in_bytes / 1e6, 1
            ),
        }
    np.testing.assert_allclose(float(got), float(want), rtol=1e-3)
    report(f"gpt at {layers} layers", times, "jax", out, extra)


def _compiled(make: Any) -> tuple[tuple[float, float], Any]:
    wall, cpu = time.perf_counter(), _cpu()
    made = make()
    return (round(time.perf_counter() - wall, 2), round(_cpu() - cpu, 2)), made


def _cpu() -> float:
    """Seconds of CPU time of this process and of those that it has started and seen end."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _from_cache(folder: str, layers: int) -> tuple[float, float]:
    """How long a new process takes to trace, and to compile from a cache that is full."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpt", str(layers)],
        env={**os.environ, "LUMJAX_CACHE_DIR": folder},
        cwd=SOURCE.parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    wall, cpu = json.loads(done.stdout.splitlines()[-1])
    return wall, cpu


if __name__ == "__main__":
    example = load(SOURCE, {})
    one, given = example.build(int(sys.argv[1]), **SHAPE)
    print(json.dumps(_compiled(lambda: lumjax.jit(one).lower(*given).compile())[0]))
