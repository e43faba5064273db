"""A decoder-only transformer, its loss and one step of Adam, written as people write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import nn


def layer_norm(x: Any, p: Any) -> Any:
    """Over the last axis."""
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * p["scale"] + p["bias"]


def attention(x: Any, p: Any, heads: int) -> Any:
    """Causal self-attention over (batch, time, width)."""
    b, t, c = x.shape
    q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
    q, k, v = (jnp.transpose(a.reshape(b, t, heads, -1), (0, 2, 1, 3)) for a in (q, k, v))
    scores = q @ jnp.swapaxes(k, -1, -2) * (c // heads) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    merged = jnp.transpose(nn.softmax(scores, -1) @ v, (0, 2, 1, 3)).reshape(b, t, c)
    return merged @ p["out"]


def logits(params: Any, tokens: Any, heads: int) -> Any:
    """(batch, time) -> (batch, time, vocabulary)."""
    x = params["tokens"][tokens] + params["places"][: tokens.shape[1]]
    for p in params["layers"]:
        x = x + attention(layer_norm(x, p["norm1"]), p, heads)
        x = x + nn.gelu(layer_norm(x, p["norm2"]) @ p["up"]) @ p["down"]
    return layer_norm(x, params["norm"]) @ params["head"]


def loss(params: Any, tokens: Any, labels: Any, heads: int) -> Any:
    """Mean cross entropy with integer labels."""
    scores = logits(params, tokens, heads)
    scores = scores - lumjax.lax.stop_gradient(jnp.max(scores, -1, keepdims=True))
    mine = jnp.take_along_axis(scores, labels[..., None], -1)[..., 0]
    return jnp.mean(jnp.log(jnp.sum(jnp.exp(scores), -1)) - mine)


def build(
    layers: int, batch: int, time: int, width: int, heads: int, words: int
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A training step and its arguments: (params, m, v, count, tokens, labels)."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return jnp.array((rng.standard_normal(shape) * 0.02).astype(np.float32))

    def norm() -> Any:
        return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}

    def layer() -> Any:
        return {
            "norm1": norm(),
            "qkv": normal(width, 3 * width),
            "out": normal(width, width),
            "norm2": norm(),
            "up": normal(width, 4 * width),
            "down": normal(4 * width, width),
        }

    params = {
        "tokens": normal(words, width),
        "places": normal(time, width),
        "layers": [layer() for _ in range(layers)],
        "norm": norm(),
        "head": normal(width, words),
    }
    zeros = lumjax.tree.map(jnp.zeros_like, params)
    tokens = jnp.array(rng.integers(0, words, (batch, time)).astype(np.int32))
    labels = jnp.array(rng.integers(0, words, (batch, time)).astype(np.int32))

    def step(params: Any, m: Any, v: Any, count: Any, tokens: Any, labels: Any) -> Any:
        value, grads = lumjax.value_and_grad(loss)(params, tokens, labels, heads)
        tree = lumjax.tree
        m = tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        fix1, fix2 = 1 - 0.9**count, 1 - 0.999**count
        params = tree.map(
            lambda p, m, v: p - 1e-3 * (m / fix1) / (jnp.sqrt(v / fix2) + 1e-8), params, m, v
        )
        return value, params, m, v

    return step, (params, zeros, zeros, jnp.float32(1.0), tokens, labels)
