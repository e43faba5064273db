"""The programs of the race in `jnp`: what lumjax and JAX run, and JAX in float64 as the judge.

Those that are trained take (params, *batch) and give the loss.
"""

from __future__ import annotations

from typing import Any

import lumjax
import lumjax.numpy as jnp
from benchmarks import transformer
from benchmarks.programs import label_loss
from benchmarks.programs import layer_norm as layer_norm
from benchmarks.programs import rms_norm as rms_norm
from lumjax import lax, nn


def product_nn(a: Any, b: Any) -> Any:
    return a @ b


def product_nt(a: Any, b: Any) -> Any:
    return a @ b.T


def product_tn(a: Any, b: Any) -> Any:
    return a.T @ b


def gelu(x: Any) -> Any:
    return nn.gelu(x)


def softmax(x: Any) -> Any:
    return nn.softmax(x, -1)


def gelu_loss(weight: Any, x: Any) -> Any:
    return jnp.sum(nn.gelu(x) * weight)


def softmax_loss(weight: Any, x: Any) -> Any:
    return jnp.sum(nn.softmax(x, -1) * weight)


def layer_norm_loss(weight: Any, x: Any, scale: Any, bias: Any) -> Any:
    return jnp.sum(layer_norm(x, scale, bias) * weight)


def rms_norm_loss(weight: Any, x: Any, scale: Any) -> Any:
    return jnp.sum(rms_norm(x, scale) * weight)


labels = label_loss


def linear_labels(x: Any, w: Any, labels: Any) -> Any:
    return label_loss(x @ w, labels)


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    """The first step, with moments that are there already."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / (1 - 0.9)) / (jnp.sqrt(v / (1 - 0.999)) + 1e-8), m, v


def attention(q: Any, k: Any, v: Any) -> Any:
    s = jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
    time = q.shape[1]
    s = jnp.where(jnp.tril(jnp.ones((time, time), bool)), s, -jnp.inf)
    return jnp.einsum("hqk,hkd->hqd", nn.softmax(s, -1), v)


def attention_loss(weight: Any, q: Any, k: Any, v: Any) -> Any:
    return jnp.sum(attention(q, k, v) * weight)


def mlp(params: Any, x: Any, labels: Any) -> Any:
    x = nn.relu(x @ params["w1"] + params["b1"])
    return label_loss(x @ params["w2"] + params["b2"], labels)


def _convolve(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def cnn(params: Any, x: Any, labels: Any) -> Any:
    for k in "12":
        x = nn.relu(_convolve(x, params["conv" + k]) + params["bias" + k])
        n, height, width, channels = x.shape
        x = x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))
    return mlp(params, x.reshape(x.shape[0], -1), labels)


def residual(params: Any, x: Any, wanted: Any) -> Any:
    """Two convolutions, each normalised over the batch, beside the identity."""
    y = x
    for k in "12":
        y = _convolve(y, params["conv" + k])
        mean = jnp.mean(y, (0, 1, 2))
        variance = jnp.mean((y - mean) ** 2, (0, 1, 2))
        y = (y - mean) / jnp.sqrt(variance + 1e-5) * params["scale" + k] + params["shift" + k]
        y = nn.relu(y) if k == "1" else nn.relu(y + x)
    return jnp.mean((y - wanted) ** 2)


def gpt(params: Any, tokens: Any, labels: Any) -> Any:
    return transformer.loss(params, tokens, labels.reshape(tokens.shape), 6)


def lstm(x: Any, wx: Any, wh: Any, bias: Any) -> Any:
    """(time, batch, width) -> the hidden states."""

    def cell(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ wx + h @ wh + bias, 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros(x.shape[1:], x.dtype)
    return lax.scan(cell, (zero, zero), x)[1]


def lstm_loss(x: Any, wx: Any, wh: Any, bias: Any) -> Any:
    return jnp.mean(lstm(x, wx, wh, bias) ** 2)


def decode(params: Any, keys: Any, values: Any, token: Any, place: Any) -> Any:
    """The logits of one more token, given (layers, heads, positions, width) keys and values."""
    x = params["tokens"][token] + params["places"][place]
    heads = keys.shape[1]
    for p, ks, vs in zip(params["layers"], keys, values, strict=True):
        y = transformer.layer_norm(x, p["norm1"])
        q, k, v = jnp.split((y @ p["qkv"]).reshape(3 * heads, -1), 3)
        ks = jnp.concatenate([ks, k[:, None]], 1)
        vs = jnp.concatenate([vs, v[:, None]], 1)
        s = jnp.einsum("hd,hkd->hk", q, ks) * q.shape[-1] ** -0.5
        merged = jnp.einsum("hk,hkd->hd", nn.softmax(s, -1), vs).reshape(-1)
        x = x + merged @ p["out"]
        x = x + nn.gelu(transformer.layer_norm(x, p["norm2"]) @ p["up"]) @ p["down"]
    return transformer.layer_norm(x, params["norm"]) @ params["head"]


def jacobi(x: Any, f: Any) -> Any:
    """Ten sweeps of the Poisson equation on a square."""

    def sweep(_: Any, x: Any) -> Any:
        near = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        return x.at[1:-1, 1:-1].set(0.25 * (near - f[1:-1, 1:-1]))

    return lax.fori_loop(0, 10, sweep, x)


def gradients(a: Any, b: Any) -> Any:
    """Twenty steps of conjugate gradients for each of many systems."""

    def step(_: Any, state: Any) -> Any:
        x, r, p, rr = state
        ap = jnp.einsum("nij,nj->ni", a, p)
        alpha = (rr / jnp.sum(p * ap, -1))[:, None]
        x, r = x + alpha * p, r - alpha * ap
        new = jnp.sum(r * r, -1)
        return x, r, r + (new / rr)[:, None] * p, new

    start = (jnp.zeros_like(b), b, b, jnp.sum(b * b, -1))
    return lax.fori_loop(0, 20, step, start)[0]


def means(x: Any, centres: Any) -> Any:
    """One step of k-means: new centres."""
    far = jnp.sum(centres**2, -1) - 2 * x @ centres.T
    mine = jnp.argmin(far, -1)
    sums = jnp.zeros_like(centres).at[mine].add(x)
    counts = jnp.zeros(centres.shape[0], x.dtype).at[mine].add(1.0)
    return sums / jnp.maximum(counts, 1.0)[:, None]


def three(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def leaves(xs: Any) -> Any:
    return lumjax.tree.map(lambda x: x + 1.0, xs)


def twice(x: Any) -> Any:
    return x + x


def first(x: Any) -> Any:
    return x[0]


def changed(x: Any) -> Any:
    return x.at[0].set(1.0)
