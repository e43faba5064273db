"""Fit a noisy line with gradient descent: the smallest whole training program.

    python examples/train/regression.py

Expected: prints weights close to [2, -3] and a bias close to 0.5.
"""

import lumjax
import lumjax.numpy as jnp
from lumjax import random

# Data: y = 2 a - 3 b + 0.5 + noise
key_x, key_noise = random.split(random.key(0))
x = random.normal(key_x, (256, 2))
y = x @ jnp.array([2.0, -3.0]) + 0.5 + 0.1 * random.normal(key_noise, (256,))


def loss(params, x, y):
    """Mean squared error of a linear model."""
    prediction = x @ params["w"] + params["b"]
    return jnp.mean((prediction - y) ** 2)


@lumjax.jit
def step(params, x, y):
    """One step of gradient descent, compiled: forward, backward and update together."""
    gradients = lumjax.grad(loss)(params, x, y)
    return lumjax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


params = {"w": jnp.zeros(2), "b": jnp.zeros(())}
for _ in range(100):
    params = step(params, x, y)

if __name__ == "__main__":
    print("weights", params["w"], "bias", params["b"], "loss", loss(params, x, y))
