"""Overheads: eager x + x on four elements, a jitted call of a tiny function, `import`."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

import lumjax
import lumjax.numpy as jnp
from benchmarks.timing import interleaved, once, report


def importing(module: str) -> float:
    """Seconds of a fresh interpreter that imports a module, less one that imports nothing."""
    command = [sys.executable, "-c"]
    bare = min(once(lambda: subprocess.run([*command, "pass"], check=True)) for _ in range(5))
    full = min(
        once(lambda: subprocess.run([*command, f"import {module}"], check=True)) for _ in range(5)
    )
    return full - bare


def main(out: str) -> None:
    """Measure and report."""
    import jax

    x, y, z = jnp.ones(4), jax.numpy.ones(4), np.ones(4, np.float32)
    eager = {
        "lumjax": lambda: x + x,
        "jax": lambda: jax.block_until_ready(y + y),
        "numpy": lambda: np.add(z, z),
    }
    extra = {f"import {m}, s": round(importing(m), 3) for m in ("lumjax", "jax.numpy", "numpy")}
    report("eager x + x on 4 elements", interleaved(eager, 51, 1000), "jax", out, extra)
    ours, theirs = lumjax.jit(lambda a: a * 2 + 1), jax.jit(lambda a: a * 2 + 1)
    jitted = {"lumjax": lambda: ours(x), "jax": lambda: theirs(y).block_until_ready()}
    report("jitted a * 2 + 1 on 4 elements", interleaved(jitted, 51, 1000), "jax", out, {})
