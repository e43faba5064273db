"""Programs as users write them (`jnp` only), for tests of what reaches the search as one region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import nn
from lumjax.expansion import expand
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Jaxpr
from lumjax.trace.simplify import simplify
from lumjax.trace.stage import stage
from lumjax.tree import flatten, unflatten

f32, i32 = np.dtype(np.float32), np.dtype(np.int32)


def aval(*shape: int, dtype: Any = f32) -> ShapedArray:
    """A float32 array's type."""
    return ShapedArray(shape, np.dtype(dtype))


def jaxpr_of(f: Callable[..., Any], *args: Any) -> Jaxpr:
    """The simplified, expanded program of `f` at pytrees of avals."""
    leaves, treedef = flatten(args)
    staged = stage(lambda *xs: flatten(f(*unflatten(treedef, xs)))[0], leaves)
    return simplify(expand(simplify(staged.jaxpr))[0])


def attention(q: Any, k: Any, v: Any, causal: bool = True) -> Any:
    """(B, H, T, D) -> (B, H, T, D)."""
    t = q.shape[-2]
    s = q @ jnp.swapaxes(k, -1, -2) / np.float32(np.sqrt(q.shape[-1]))
    if causal:
        s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -jnp.inf)
    return nn.softmax(s, axis=-1) @ v


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jnp.asarray(1.0) / jnp.sqrt(var + 1e-5) * g + b


def self_attention(x: Any, p: Any, heads: int) -> Any:
    b, t, c = x.shape
    q, k, v = jnp.split(x @ p["qkv"] + p["qkv_b"], 3, axis=-1)
    q, k, v = (a.reshape(b, t, heads, c // heads).transpose(0, 2, 1, 3) for a in (q, k, v))
    o = attention(q, k, v).transpose(0, 2, 1, 3).reshape(b, t, c)
    return o @ p["proj"] + p["proj_b"]


def block(x: Any, p: Any, heads: int) -> Any:
    x = x + self_attention(layer_norm(x, p["g1"], p["b1"]), p, heads)
    h = nn.gelu(layer_norm(x, p["g2"], p["b2"]) @ p["w1"] + p["w1_b"])
    return x + h @ p["w2"] + p["w2_b"]


def cross_entropy(logits: Any, labels: Any) -> Any:
    """As optax writes it."""
    logits = logits - lumjax.lax.stop_gradient(jnp.max(logits, -1, keepdims=True))
    picked = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return (jnp.log(jnp.sum(jnp.exp(logits), -1)) - picked).mean()


def gpt_loss(params: Any, tokens: Any, labels: Any, heads: int) -> Any:
    t = tokens.shape[1]
    x = params["wte"][tokens] + params["wpe"][jnp.arange(t)]
    for p in params["layers"]:
        x = block(x, p, heads)
    x = layer_norm(x, params["g"], params["b"])
    return cross_entropy(x @ params["head"], labels)


def adam(params: Any, grads: Any, m: Any, v: Any, count: Any) -> Any:
    map_ = lumjax.tree.map
    m = map_(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = map_(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
    c1, c2 = 1 - 0.9**count, 1 - 0.999**count
    params = map_(lambda p, m, v: p - 1e-3 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), params, m, v)
    return params, m, v


def gpt_step(
    layers: int, b: int = 4, t: int = 256, c: int = 256, heads: int = 4, vocab: int = 8192
):
    """A train step and its arguments' avals."""
    a = aval
    layer = {
        "g1": a(c),
        "b1": a(c),
        "qkv": a(c, 3 * c),
        "qkv_b": a(3 * c),
        "proj": a(c, c),
        "proj_b": a(c),
        "g2": a(c),
        "b2": a(c),
        "w1": a(c, 4 * c),
        "w1_b": a(4 * c),
        "w2": a(4 * c, c),
        "w2_b": a(c),
    }
    params = {
        "wte": a(vocab, c),
        "wpe": a(t, c),
        "layers": [dict(layer) for _ in range(layers)],
        "g": a(c),
        "b": a(c),
        "head": a(c, vocab),
    }

    def step(params: Any, m: Any, v: Any, count: Any, tokens: Any, labels: Any) -> Any:
        loss, grads = lumjax.value_and_grad(gpt_loss)(params, tokens, labels, heads)
        return loss, adam(params, grads, m, v, count)

    tokens = a(b, t, dtype=i32)
    return step, (params, params, params, a(), tokens, tokens)
