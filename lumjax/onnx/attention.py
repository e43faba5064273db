"""Attention, and what transformers put before it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.tensors import dtype_of
from lumjax.onnx.values import Op, bounded


def _heads(node: Node, x: Any, name: str) -> Any:
    """[batch, heads, length, size], of [batch, length, heads * size] too."""
    if len(x.shape) == 4:
        return x
    count = node.integer(name)
    if len(x.shape) != 3 or count < 1 or x.shape[2] % count:
        raise node.wrong(f"[batch, length, width] of {count} heads", f"shape {tuple(x.shape)}")
    x = x.reshape(x.shape[0], x.shape[1], count, x.shape[2] // count)
    return x.transpose(0, 2, 1, 3)


def _bias(node: Node, mask: Any, shape: tuple[int, ...], past: int, valid: Any) -> tuple[Any, Any]:
    """What is added to the scores, and where a query sees a key; None for nothing."""
    queries, keys = shape[2:]
    seen: Any = None
    added: Any = None
    if mask is not None:
        short = keys - mask.shape[-1]
        if short > 0:  # keys that the mask does not reach are not seen
            fill = False if mask.dtype == bool else -math.inf
            widths = [(0, 0)] * (len(mask.shape) - 1) + [(0, short)]
            mask = jnp.pad(mask, widths, constant_values=np.asarray(fill, mask.dtype))
        seen, added = (mask, None) if mask.dtype == bool else (None, mask)
    places = np.arange(keys, dtype=np.int32)
    rows: Any = np.arange(queries, dtype=np.int32)[:, None] + past
    if valid is not None and not past:
        rows = rows + (valid.astype(jnp.int32).reshape(-1, 1, 1, 1) - queries)
    left, right = (node.integer(f"{side}_window_size", -1) for side in ("left", "right"))
    if node.integer("is_causal", 0):
        right = 0
    near: list[Any] = []
    if left >= 0:
        near.append(places >= rows - left)
    if right >= 0:
        near.append(places <= rows + right)
    for those in near:
        seen = those if seen is None else seen & those
    if valid is not None:
        there = places < valid.reshape(-1, 1, 1, 1)
        seen = there if seen is None else seen & there
    return added, seen


def _attention(
    node: Node, q: Any, k: Any, v: Any, mask: Any = None, past_key: Any = None,
    past_value: Any = None, valid: Any = None,
) -> Any:  # fmt: skip
    flat = len(q.shape) == 3
    q, k = _heads(node, q, "q_num_heads"), _heads(node, k, "kv_num_heads")
    v = _heads(node, v, "kv_num_heads")
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = jnp.concatenate([past_key, k], 2), jnp.concatenate([past_value, v], 2)
    group = q.shape[1] // max(k.shape[1], 1)
    if group * k.shape[1] != q.shape[1] or v.shape[1] != k.shape[1]:
        raise node.wrong("query heads that are a multiple of key heads",
                         f"{q.shape[1]}, {k.shape[1]}, {v.shape[1]}")  # fmt: skip
    shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    bounded(node, shape, q.dtype)
    root = math.sqrt(node.number("scale", 1 / math.sqrt(q.shape[3])))
    keys, values = (jnp.repeat(x, group, 1) if group > 1 else x for x in (k, v))
    scores = jnp.matmul(q * root, jnp.swapaxes(keys * root, -1, -2))
    stages = [scores]
    softcap = node.number("softcap", 0.0)
    if softcap:
        scores = jnp.tanh(scores / softcap) * softcap
    stages.append(scores)
    added, seen = _bias(node, mask, shape, past, valid)
    scores = scores if added is None else scores + added
    if seen is not None:
        scores = jnp.where(seen, scores, np.asarray(-math.inf, scores.dtype))
    stages.append(scores)
    weights = _weights(node, scores).astype(q.dtype)
    stages.append(weights)
    y = jnp.matmul(weights, values).astype(q.dtype)
    if flat:
        y = y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)
    mode = node.integer("qk_matmul_output_mode", 0)
    if not 0 <= mode <= 3:
        raise node.wrong("a qk_matmul_output_mode from 0 to 3", str(mode))
    return (y, k, v, stages[mode])[: max(len(node.outputs), 1)]


def _weights(node: Node, scores: Any) -> Any:
    """Softmax over the keys; rows that see none are zero."""
    code = node.integer("softmax_precision", 0)
    wide = scores.astype(dtype_of(code, str(node))) if code else scores
    top = jnp.max(wide, axis=-1, keepdims=True)
    top = jnp.where(jnp.isfinite(top), top, 0)
    powers = jnp.exp(wide - top)
    total = jnp.sum(powers, axis=-1, keepdims=True)
    return jnp.where(total == 0, 0, powers / jnp.where(total == 0, 1, total))


def _rotary(node: Node, x: Any, cos: Any, sin: Any, places: Any = None) -> Any:
    """Pairs of numbers turned by angles that grow with the place."""
    shape = x.shape
    heads = _heads(node, x, "num_heads") if len(shape) == 3 else x
    size = node.integer("rotary_embedding_dim", 0) or heads.shape[-1]
    if places is not None:
        cos, sin = cos[places], sin[places]
    cos, sin = cos[..., : size // 2][:, None], sin[..., : size // 2][:, None]
    turned, rest = heads[..., :size], heads[..., size:]
    if node.integer("interleaved", 0):
        first, second = turned[..., 0::2], turned[..., 1::2]
        parts = jnp.stack([first * cos - second * sin, first * sin + second * cos], -1)
        turned = parts.reshape(turned.shape)
    else:
        first, second = turned[..., : size // 2], turned[..., size // 2 :]
        turned = jnp.concatenate([first * cos - second * sin, first * sin + second * cos], -1)
    y = jnp.concatenate([turned, rest], -1) if rest.shape[-1] else turned
    return y.transpose(0, 2, 1, 3).reshape(shape) if len(shape) == 3 else y


OPS = {
    "Attention": Op(_attention),
    "RotaryEmbedding": Op(_rotary),
}
