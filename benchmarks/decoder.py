"""Writing with a transformer, token by token, on a cache of keys and values: as people write it."""

from __future__ import annotations

from typing import Any

import lumjax.numpy as jnp
from lumjax import nn


def layer_norm(x: Any, p: Any) -> Any:
    """Over the last axis."""
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * p["scale"] + p["bias"]


def heads_of(x: Any, p: Any, heads: int) -> Any:
    """Queries, keys and values of each head, (time, head, width)."""
    return (a.reshape(x.shape[0], heads, -1) for a in jnp.split(x @ p["qkv"], 3, -1))


def mixed(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """Values by their keys' nearness to the queries, where `seen` (query, key) allows it."""
    scores = jnp.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    scores = jnp.where(seen, scores, -jnp.inf)
    return jnp.einsum("hqk,khd->qhd", nn.softmax(scores, -1), v).reshape(q.shape[0], -1)


def rest(x: Any, merged: Any, p: Any) -> Any:
    """What follows attention in a layer."""
    x = x + merged @ p["out"]
    return x + nn.gelu(layer_norm(x, p["norm2"]) @ p["up"]) @ p["down"]


def scores_of(x: Any, params: Any) -> Any:
    """Logits of what follows the last place."""
    return layer_norm(x[-1:], params["norm"])[0] @ params["head"]


def prefill(params: Any, tokens: Any, room: int, heads: int) -> tuple[Any, Any]:
    """Logits after a prompt, and its keys and values in caches of `room` places."""
    count = tokens.shape[0]
    x = params["tokens"][tokens] + params["places"][:count]
    seen = jnp.arange(count)[:, None] >= jnp.arange(count)
    caches = []
    for p in params["layers"]:
        q, k, v = heads_of(layer_norm(x, p["norm1"]), p, heads)
        empty = jnp.zeros((room, *k.shape[1:]), k.dtype)
        caches.append((empty.at[:count].set(k), empty.at[:count].set(v)))
        x = rest(x, mixed(q, k, v, seen), p)
    return scores_of(x, params), caches


def step(params: Any, caches: Any, token: Any, places: Any, heads: int) -> tuple[Any, Any]:
    """Logits after one more token; `places` has a row for each there is, this one included."""
    count = places.shape[0]
    x = (params["tokens"][token] + params["places"][count - 1])[None]
    grown = []
    for p, (keys, values) in zip(params["layers"], caches, strict=True):
        q, k, v = heads_of(layer_norm(x, p["norm1"]), p, heads)
        keys, values = keys.at[count - 1].set(k[0]), values.at[count - 1].set(v[0])
        grown.append((keys, values))
        x = rest(x, mixed(q, keys[:count], values[:count], True), p)
    return scores_of(x, params), grown


def padded(params: Any, caches: Any, token: Any, place: Any, heads: int) -> tuple[Any, Any]:
    """The same where sizes never change: all places are read, those to come masked."""
    x = (params["tokens"][token] + params["places"][place])[None]
    grown = []
    for p, (keys, values) in zip(params["layers"], caches, strict=True):
        q, k, v = heads_of(layer_norm(x, p["norm1"]), p, heads)
        keys, values = keys.at[place].set(k[0]), values.at[place].set(v[0])
        grown.append((keys, values))
        x = rest(x, mixed(q, keys, values, jnp.arange(keys.shape[0]) <= place), p)
    return scores_of(x, params), grown
