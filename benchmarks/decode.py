"""A transformer writes 2,048 tokens after a prompt: one compilation for every length.

`python -m benchmarks decode`: lumjax (prompt and step compiled once each, sizes open, caches
donated) against its own step compiled for one length, and against JAX on padded caches; then fifty
batch sizes of one training step. The tables of docs/dynamic.md are filled in.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lumjax
from benchmarks.peers import jax_modules, load
from benchmarks.timing import once
from benchmarks.transformer import build

SOURCE = Path(__file__).resolve().parent / "decoder.py"
LAYERS, WIDTH, HEADS, WORDS, PROMPT, TOKENS = 6, 384, 6, 8192, 64, 2048
LENGTHS = (PROMPT + 1, 256, 512, 1024, 2048)


def compiled(m: Any, room: int) -> tuple[Any, Any]:
    """The prompt's function and the step's, both for every length."""
    length = lumjax.dim("T", max=room)
    prefill = lumjax.jit(partial(m.prefill, room=room, heads=HEADS), dynamic=(None, {0: length}))
    step = lumjax.jit(
        partial(m.step, heads=HEADS), donate_argnums=1, dynamic=(None, None, None, {0: length})
    )
    return prefill, step


def written(
    prefill: Any, step: Any, params: Any, prompt: Any, count: int, places: Any
) -> tuple[list[int], list[float]]:
    """The likeliest tokens, and the seconds that each took."""
    scores, caches = prefill(params, prompt)
    tokens, seconds = [int(np.argmax(scores))], list[float]()
    for k in range(count - 1):
        started = time.perf_counter()
        scores, caches = step(params, caches, np.int32(tokens[-1]), places(len(prompt) + k))
        tokens.append(int(np.argmax(scores)))
        seconds.append(time.perf_counter() - started)
    return tokens, seconds


def at_length(m: Any, step: Any, params: Any, caches: Any, length: int, rounds: int) -> list[float]:
    """Ratios of the open step's time to that of a step compiled for this length, in turns."""
    alone = lumjax.jit(partial(m.step, heads=HEADS), donate_argnums=1)
    places, ratios = np.zeros(length, np.int8), list[float]()
    states = {f: lumjax.tree.map(lambda x: x * 1, caches) for f in (step, alone)}

    def run(f: Any) -> None:
        _, states[f] = f(params, states[f], np.int32(1), places)

    for number in range(rounds + 2):
        pair = [once(lambda f=f: run(f)) for f in (step, alone)]
        if number > 1:
            ratios.append(pair[0] / pair[1])
    return ratios


def on_jax(params: Any, prompt: Any, room: int, count: int) -> tuple[list[int], list[float]]:
    """JAX's tokens and seconds, on caches of `room` places."""
    import jax

    m = load(SOURCE, jax_modules())
    theirs = jax.tree.map(lambda x: jax.numpy.asarray(np.asarray(x)), params)
    prefill = jax.jit(partial(m.prefill, room=room, heads=HEADS))
    step = jax.jit(partial(m.padded, heads=HEADS), donate_argnums=1)
    return written(prefill, step, theirs, prompt, count, np.int32)


def main(out: str, tokens: int = TOKENS, rounds: int = 15) -> None:
    """Print the figures and write them as JSON."""
    m, room = load(SOURCE, {}), PROMPT + tokens
    _, args = build(LAYERS, 1, room, WIDTH, HEADS, WORDS)
    params = args[0]
    prompt = np.random.default_rng(0).integers(0, WORDS, PROMPT).astype(np.int32)
    prefill, step = compiled(m, room)
    ours, seconds = written(
        prefill, step, params, prompt, tokens, lambda n: np.zeros(n + 1, np.int8)
    )
    theirs, theirs_seconds = on_jax(params, prompt, room, tokens)
    agree = next((k for k, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), tokens)
    _, caches = prefill(params, prompt)
    rows = {n: at_length(m, step, params, caches, n, rounds) for n in LENGTHS if n <= room}
    found: dict[str, Any] = {
        "tokens": tokens,
        "compilations": [len(prefill.explain()), len(step.explain())],
        "equal tokens before the first that differs": agree,
        "lumjax, ms a token": 1e3 * statistics.median(seconds[8:]),
        "jax on padded caches, ms a token": 1e3 * statistics.median(theirs_seconds[8:]),
        "open against one length": {n: statistics.median(r) for n, r in rows.items()},
    }
    found["fifty batch sizes, s"] = batches()
    for name, value in found.items():
        print(f"  {name}: {value}")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench_decode.json").write_text(json.dumps(found, indent=1))
    if tokens == TOKENS:
        _fill(found)


def batches() -> dict[str, float]:
    """Seconds of the first calls of a training step for batches of 1 to 50, empty caches before."""
    import jax

    def loss(p: Any, x: Any, y: Any, m: Any) -> Any:
        scores = m.maximum(x @ p[0] + p[1], 0) @ p[2] + p[3]
        return m.mean((scores - y) ** 2)

    rng = np.random.default_rng(0)
    shapes = ((784, 128), (128,), (128, 10), (10,))
    params = [rng.standard_normal(s).astype(np.float32) * 0.05 for s in shapes]
    found: dict[str, float] = {}
    for name, framework in (("lumjax", lumjax), ("jax", jax)):

        def step(p: Any, x: Any, y: Any, of: Any = framework) -> Any:
            slopes = of.grad(partial(loss, m=of.numpy))(p, x, y)
            return of.tree.map(lambda a, b: a - 0.1 * b, p, slopes)

        spec = {"dynamic": (None, {0: "batch"}, {0: "batch"})} if name == "lumjax" else {}
        jitted = framework.jit(step, **spec)
        with tempfile.TemporaryDirectory() as folder, lumjax.config.scope(cache_dir=folder):
            found[name] = once(lambda f=jitted: [_first(f, params, n) for n in range(1, 51)])
    return found


def _first(step: Any, params: Any, batch: int) -> None:
    out = step(params, np.ones((batch, 784), np.float32), np.zeros((batch, 10), np.float32))
    np.asarray(out[0])


def _fill(found: dict[str, Any]) -> None:
    """Put the figures into the page's tables."""
    page = Path(__file__).resolve().parent.parent / "docs" / "dynamic.md"
    text = page.read_text(encoding="utf-8")
    seconds = found["fifty batch sizes, s"]
    rows = [
        "| | compilations | seconds |",
        "|---|---|---|",
        f"| lumjax, `dynamic` | 1 | {seconds['lumjax']:.1f} |",
        f"| jax.jit | 50 | {seconds['jax']:.1f} |",
    ]
    text = _between(text, "batches", rows)
    ratios = found["open against one length"]
    rows = [
        "| | ms a token |",
        "|---|---|",
        f"| lumjax | {found['lumjax, ms a token']:.2f} |",
        f"| JAX, padded | {found['jax on padded caches, ms a token']:.2f} |",
        "",
        "| length | the step's time, to that of one compiled for this length |",
        "|---|---|",
        *(f"| {n} | {ratio:.2f} |" for n, ratio in ratios.items()),
    ]
    page.write_text(_between(text, "decode", rows), encoding="utf-8")


def _between(text: str, name: str, rows: list[str]) -> str:
    before, rest = text.split(f"<!-- {name} -->\n")
    after = rest.split(f"<!-- /{name} -->")[1]
    table = "\n".join(rows)
    return f"{before}<!-- {name} -->\n{table}\n<!-- /{name} -->{after}"
