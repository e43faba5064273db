"""Operators that reduce windows: pools, and their inverse."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import lax
from lumjax import numpy as jnp
from lumjax.onnx.contraction import Windows, counts, windows
from lumjax.onnx.graph import Node
from lumjax.onnx.values import Op, bounded, is_float, loose, whole


def _prepared(node: Node, x: Any) -> tuple[Windows, tuple[int, ...]]:
    """The windows, and how many there are along each axis."""
    if len(x.shape) < 3:
        raise node.wrong("a batch of channels with axes", f"shape {tuple(x.shape)}")
    window = windows(node, x.shape[2:], node.integers("kernel_shape"))
    found = counts(node, x.shape[2:], window, bool(node.integer("ceil_mode", 0)))
    bounded(node, (*x.shape[:2], *found), x.dtype)
    bounded(node, [d + a + b for d, (a, b) in zip(x.shape[2:], window.pads, strict=True)], x.dtype)
    return window, found


def _reduced(
    x: Any, window: Windows, found: tuple[int, ...], init: Any, f: Callable[..., Any]
) -> Any:
    """Every window reduced; padding holds `init`."""
    pads = [(0, 0), (0, 0)]
    for d, n, s, span, (low, _) in zip(
        x.shape[2:], found, window.strides, window.spans, window.pads, strict=True
    ):
        pads.append((low, max((n - 1) * s + span - d - low, 0)))
    return lax.reduce_window(
        x, np.asarray(init, x.dtype), f, (1, 1, *window.sizes), (1, 1, *window.strides), pads,
        window_dilation=(1, 1, *window.dilations),
    )  # fmt: skip


def _max_pool(node: Node, x: Any) -> Any:
    window, found = _prepared(node, x)
    least = -math.inf if is_float(x) else dt.iinfo(x.dtype).min
    if len(node.outputs) < 2 or not node.outputs[1]:
        return _reduced(x, window, found, least, lax.max)
    places, inside = _places(node, x.shape, window, found)
    flat = x.reshape(*x.shape[:2], -1)
    values = jnp.where(inside, flat[..., places], np.asarray(least, x.dtype))
    best = jnp.argmax(values, axis=-1, keepdims=True)
    top = jnp.take_along_axis(values, best, -1)[..., 0]
    order = _order(x.shape, bool(node.integer("storage_order", 0)))
    named = jnp.take_along_axis(jnp.broadcast_to(order[places], values.shape), best, -1)[..., 0]
    lead = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], 1)
    named = named + lead * math.prod(x.shape[2:])
    shape = (*x.shape[:2], *found)
    return top.reshape(shape), named.reshape(shape).astype(loose(np.zeros(1, np.int64)).dtype)


def _order(shape: tuple[int, ...], by_columns: bool) -> Any:
    """The number of each place, which Indices tells."""
    spatial = shape[2:]
    numbers = np.arange(math.prod(spatial))
    if by_columns:
        numbers = numbers.reshape(spatial[::-1]).transpose().reshape(-1)
    return jnp.asarray(numbers.astype(np.int32))


def _places(
    node: Node, shape: tuple[int, ...], window: Windows, found: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """For every window the places of its elements, and which lie inside: [windows, elements]."""
    rank = len(found)
    bounded(node, (*shape[:2], *found, *window.sizes), np.int64)
    place, inside = np.zeros((1,) * (2 * rank), np.int64), np.ones((1,) * (2 * rank), bool)
    for k, (d, n) in enumerate(zip(shape[2:], found, strict=True)):
        starts = np.arange(n) * window.strides[k] - window.pads[k][0]
        along = starts[:, None] + np.arange(window.sizes[k]) * window.dilations[k]
        sides = [1] * (2 * rank)
        sides[k], sides[rank + k] = along.shape
        along = along.reshape(sides)
        inside = inside & (along >= 0) & (along < d)
        place = place * d + np.clip(along, 0, d - 1)
    size = (math.prod(found), math.prod(window.sizes))
    return place.reshape(size), inside.reshape(size)


def _average_pool(node: Node, x: Any) -> Any:
    window, found = _prepared(node, x)
    total = _reduced(x, window, found, 0, lax.add)
    padded = bool(node.integer("count_include_pad", 0))
    number: Any = np.ones((1,) * len(found))
    for k, (d, n) in enumerate(zip(x.shape[2:], found, strict=True)):
        low, high = window.pads[k] if padded else (0, 0)
        starts = np.arange(n) * window.strides[k] - window.pads[k][0]
        along = starts[:, None] + np.arange(window.sizes[k]) * window.dilations[k]
        inside = ((along >= -low) & (along < d + high)).sum(1)
        number = number * inside.reshape((-1,) + (1,) * (len(found) - k - 1))
    return total / np.maximum(number, 1).astype(x.dtype)


def _power_pool(node: Node, x: Any) -> Any:
    p = node.integer("p", 2)
    if p < 1:
        raise node.wrong("a positive p", str(p))
    window, found = _prepared(node, x)
    return _reduced(jnp.abs(x) ** p, window, found, 0, lax.add) ** (1 / p)


def _global(f: Callable[..., Any]) -> Op:
    def compute(node: Node, x: Any) -> Any:
        return f(x, axis=tuple(range(2, len(x.shape))), keepdims=True)

    return Op(compute)


def _global_power(node: Node, x: Any) -> Any:
    p = node.integer("p", 2)
    axes = tuple(range(2, len(x.shape)))
    return jnp.sum(jnp.abs(x) ** p, axis=axes, keepdims=True) ** (1 / p)


def _unpool(node: Node, x: Any, places: Any, shape: np.ndarray | None = None) -> Any:
    window = windows(node, x.shape[2:], node.integers("kernel_shape"))
    small = [
        (d - 1) * s + span - a - b
        for d, s, span, (a, b) in zip(
            x.shape[2:], window.strides, window.spans, window.pads, strict=True
        )
    ]
    sizes = bounded(node, (*x.shape[:2], *small), x.dtype)
    out = sizes if shape is None else bounded(node, whole(node, shape), x.dtype)
    flat = jnp.zeros(math.prod(sizes), x.dtype).at[places.reshape(-1)].set(x.reshape(-1))
    found = flat.reshape(sizes)
    if len(out) != len(sizes) or any(a < b for a, b in zip(out, sizes, strict=True)):
        raise node.wrong(f"an output of at least {sizes}", str(out))
    return jnp.pad(found, [(0, a - b) for a, b in zip(out, sizes, strict=True)])


def _columns_to_image(
    node: Node, x: Any, image: np.ndarray | None, block: np.ndarray | None
) -> Any:
    spatial = bounded(node, whole(node, image, "a shape of images"), x.dtype)
    sizes = whole(node, block, "a shape of blocks")
    window = windows(node, spatial, sizes)
    found = counts(node, spatial, window)
    channels = x.shape[1] // math.prod(sizes)
    if len(x.shape) != 3 or x.shape[1:] != (channels * math.prod(sizes), math.prod(found)):
        raise node.wrong(f"columns of {math.prod(found)} blocks", f"shape {tuple(x.shape)}")
    shape = (x.shape[0], channels, *spatial)
    bounded(node, shape, x.dtype)
    places, inside = _places(node, shape, window, found)
    values = x.reshape(x.shape[0], channels, math.prod(sizes), math.prod(found))
    values = jnp.where(inside, jnp.swapaxes(values, -1, -2), 0).astype(x.dtype)
    flat = jnp.zeros((*shape[:2], math.prod(spatial)), x.dtype)
    return flat.at[..., places].add(values).reshape(shape)


@functools.cache
def _band(channels: int, before: int, after: int) -> np.ndarray:
    k = np.arange(channels)
    return ((k[:, None] - before <= k) & (k <= k[:, None] + after)).astype(np.float32)


def _local_response(node: Node, x: Any) -> Any:
    size = node.integer("size")
    alpha, beta = node.number("alpha", 0.0001), node.number("beta", 0.75)
    channels = x.shape[1]
    bounded(node, (channels, channels))
    band = _band(channels, min((size - 1) // 2, channels), min(size // 2, channels))
    squares = jnp.einsum("ij,nj...->ni...", band.astype(x.dtype), x * x)
    return x / (node.number("bias", 1.0) + alpha / size * squares) ** beta


OPS = {
    "MaxPool": Op(_max_pool),
    "AveragePool": Op(_average_pool),
    "LpPool": Op(_power_pool),
    "GlobalMaxPool": _global(jnp.max),
    "GlobalAveragePool": _global(jnp.mean),
    "GlobalLpPool": Op(_global_power),
    "MaxUnpool": Op(_unpool, static=(2,)),
    "Col2Im": Op(_columns_to_image, static=(1, 2)),
    "LRN": Op(_local_response),
}
