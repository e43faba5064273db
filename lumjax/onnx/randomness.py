"""Operators that draw. A model is a pure function: what a node draws follows from its seed, or from
its place in the model where it has none, and is the same in every call.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax import random
from lumjax.onnx.graph import Node
from lumjax.onnx.tensors import dtype_of
from lumjax.onnx.values import Op, bounded, loose


def _key(node: Node) -> Any:
    if node.has("seed"):
        seed = node.attributes["seed"]
        word = struct.pack("<d", float(seed))
    else:
        word = " ".join((node.name, *node.outputs)).encode()
    return random.key(zlib.crc32(word))


def _target(node: Node, shape: Any, like: Any = None) -> tuple[tuple[int, ...], Any]:
    if node.has("dtype"):
        dtype = dtype_of(node.integer("dtype"), str(node))
    else:
        dtype = np.dtype(np.float32 if like is None else like.dtype)
    return bounded(node, shape, dtype), loose(np.zeros((), dtype)).dtype


def _drawn(node: Node, shape: tuple[int, ...], dtype: Any, normal: bool) -> Any:
    wide = dtype if dtype in (jnp.float32, jnp.float64) else jnp.float32
    if normal:
        y = random.normal(_key(node), shape, wide)
        return (y * node.number("scale", 1.0) + node.number("mean", 0.0)).astype(dtype)
    low, high = node.number("low", 0.0), node.number("high", 1.0)
    return (random.uniform(_key(node), shape, wide) * (high - low) + low).astype(dtype)


def _of_shape(node: Node, normal: bool) -> Any:
    return _drawn(node, *_target(node, node.integers("shape")), normal)


def _like(node: Node, x: Any, normal: bool) -> Any:
    return _drawn(node, *_target(node, x.shape, x), normal)


def _bernoulli(node: Node, x: Any) -> Any:
    shape, dtype = _target(node, x.shape, x)
    return (random.uniform(_key(node), shape, jnp.float32) < x).astype(dtype)


def _multinomial(node: Node, x: Any) -> Any:
    count = node.integer("sample_size", 1)
    code = node.integer("dtype", 6)
    bounded(node, (*x.shape, count))
    noise = random.gumbel(_key(node), (x.shape[0], count, x.shape[1]), jnp.float32)
    found = jnp.argmax(x[:, None, :].astype(jnp.float32) + noise, axis=-1)
    return found.astype(loose(np.zeros((), dtype_of(code, str(node)))).dtype)


def _dropout(node: Node, x: Any, ratio: Any = None, training: np.ndarray | None = None) -> Any:
    if node.opset < 7 and not node.integer("is_test", 0):
        raise node.unsupported("a model for inference", "is_test of 0", "export it for inference")
    live = training is not None and bool(np.all(training)) and training.size > 0
    share = 0.5 if ratio is None else ratio
    if not live:
        return (x, jnp.ones(x.shape, bool))[: max(len(node.outputs), 1)]
    kept = random.uniform(_key(node), x.shape, jnp.float32) >= share
    scale = jnp.asarray(1 / (1 - share), x.dtype)
    return (jnp.where(kept, x * scale, jnp.zeros_like(x)), kept)[: max(len(node.outputs), 1)]


OPS = {
    "RandomNormal": Op(lambda node: _of_shape(node, True), fold=False),
    "RandomUniform": Op(lambda node: _of_shape(node, False), fold=False),
    "RandomNormalLike": Op(lambda node, x: _like(node, x, True), fold=False),
    "RandomUniformLike": Op(lambda node, x: _like(node, x, False), fold=False),
    "Bernoulli": Op(_bernoulli, fold=False),
    "Multinomial": Op(_multinomial, fold=False),
    "Dropout": Op(_dropout, static=(2,), fold=False),
}
