"""The training step of examples/train/mnist.py on lumjax and, the same source, on JAX and optax."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import lumjax
from benchmarks.peers import jax_modules, load
from benchmarks.timing import interleaved, once, report

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "train" / "mnist.py"


def prepare(example: Any, model: str, optimizer: Any, key: Any, wait: Any) -> Any:
    """A function that takes one training step and waits for it; its first call compiles."""
    init, logits, _ = example.MODELS[model]
    params = init(key)
    state = [params, optimizer.init(params)]
    step = example.make_step(logits, optimizer)
    rng = np.random.default_rng(0)
    images = rng.random((50, 28, 28, 1), dtype=np.float32)
    labels = rng.integers(0, 10, 50).astype(np.int32)

    def run() -> float:
        state[0], state[1], loss = step(*state, images, labels)
        wait(state)
        return float(loss)

    return run


def main(out: str) -> None:
    """Cold compile (empty cache) and warm step of both models on both frameworks."""
    import jax
    import optax

    ours, theirs = load(EXAMPLE, {}), load(EXAMPLE, jax_modules())
    for model in ("mlp", "cnn"):
        with tempfile.TemporaryDirectory() as folder, lumjax.config.scope(cache_dir=folder):
            run = prepare(
                ours, model, lumjax.optim.adam(1e-3), lumjax.random.key(0), lambda state: None
            )
            peer = prepare(
                theirs, model, optax.adam(1e-3), jax.random.key(0), jax.block_until_ready
            )
            cold = {"lumjax": once(run), "jax": once(peer)}
        again = prepare(
            ours, model, lumjax.optim.adam(1e-3), lumjax.random.key(0), lambda state: None
        )
        once(again)
        times = interleaved({"lumjax": run, "jax": peer}, rounds=21, repeat=5)
        extra = {f"cold first step, {n} s": round(s, 2) for n, s in cold.items()}
        report(f"mnist-{model} training step, batch 50", times, "jax", out, extra)
