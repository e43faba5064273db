"""Operators that normalise."""

from __future__ import annotations

import math
from typing import Any

from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.tensors import dtype_of
from lumjax.onnx.values import Op, axis_of


def _by_channel(a: Any, rank: int) -> Any:
    return a.reshape((-1,) + (1,) * (rank - 2))


def _batch(node: Node, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    rank, epsilon = len(x.shape), node.number("epsilon", 1e-5)
    training = bool(node.integer("training_mode", 0))
    if node.opset < 7 and not node.integer("is_test", 0):
        raise node.unsupported("a model for inference", "is_test of 0", "export it for inference")
    if not node.integer("spatial", 1):
        raise node.unsupported("statistics by channel", "spatial of 0", "export it as opset 9")
    used_mean, used_var = mean, var
    if training:
        axes = (0, *range(2, rank))
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        used_mean = jnp.mean(wide, axis=axes).astype(mean.dtype)
        used_var = jnp.var(wide, axis=axes).astype(var.dtype)
    factor = scale / jnp.sqrt(used_var + epsilon).astype(scale.dtype)
    y = (x - _by_channel(used_mean, rank)) * _by_channel(factor, rank) + _by_channel(bias, rank)
    if not training:
        return y.astype(x.dtype)
    keep = node.number("momentum", 0.9)
    moved = [(a * keep + b * (1 - keep)).astype(a.dtype)
             for a, b in ((mean, used_mean), (var, used_var))]  # fmt: skip
    return (y.astype(x.dtype), *moved)


def _instance(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    axes, rank = tuple(range(2, len(x.shape))), len(x.shape)
    y, _, _ = standardised(x, axes, node.number("epsilon", 1e-5))
    return y * _by_channel(scale, rank) + _by_channel(bias, rank)


def standardised(x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """Mean 0 and variance 1 along axes; the mean; one over the standard deviation."""
    mean = jnp.mean(x, axis=axes, keepdims=True)
    off = x - mean
    inverse = 1 / jnp.sqrt(jnp.mean(off * off, axis=axes, keepdims=True) + epsilon)
    return off * inverse, mean, inverse


def _layer(node: Node, x: Any, scale: Any, bias: Any = None) -> Any:
    axis = axis_of(node, node.integer("axis", -1), len(x.shape))
    stash = dtype_of(node.integer("stash_type", 1), str(node))
    axes = tuple(range(axis, len(x.shape)))
    y, mean, inverse = standardised(x.astype(stash), axes, node.number("epsilon", 1e-5))
    y = y.astype(x.dtype) * scale
    y = y if bias is None else y + bias
    return (y, mean, inverse)[: max(len(node.outputs), 1)]


def _root_mean_square(node: Node, x: Any, scale: Any) -> Any:
    axis = axis_of(node, node.integer("axis", -1), len(x.shape))
    wide = x.astype(dtype_of(node.integer("stash_type", 1), str(node)))
    square = jnp.mean(wide * wide, axis=tuple(range(axis, len(x.shape))), keepdims=True)
    return (wide / jnp.sqrt(square + node.number("epsilon", 1e-5))).astype(x.dtype) * scale


def _group(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    groups, (n, c, *spatial) = node.integer("num_groups"), x.shape
    if groups < 1 or c % groups:
        raise node.wrong("channels that are a multiple of the groups", f"{c} and {groups}")
    wide = x.astype(dtype_of(node.integer("stash_type", 1), str(node)))
    parts = wide.reshape(n, groups, c // groups, math.prod(spatial))
    y, _, _ = standardised(parts, (2, 3), node.number("epsilon", 1e-5))
    if scale.shape[0] == groups and node.opset < 21:  # one for each group, until opset 21
        y = y.astype(x.dtype) * scale[:, None, None] + bias[:, None, None]
        return y.reshape(x.shape)
    y = y.reshape(x.shape).astype(x.dtype)
    return y * _by_channel(scale, len(x.shape)) + _by_channel(bias, len(x.shape))


def _power_norm(node: Node, x: Any) -> Any:
    axis, p = axis_of(node, node.integer("axis", -1), len(x.shape)), node.integer("p", 2)
    if p not in (1, 2):
        raise node.wrong("p of 1 or 2", str(p))
    if p == 1:
        norm = jnp.sum(jnp.abs(x), axis=axis, keepdims=True)
    else:
        norm = jnp.sqrt(jnp.sum(x * x, axis=axis, keepdims=True))
    return jnp.where(norm == 0, jnp.zeros_like(x), x / jnp.where(norm == 0, 1, norm))


def _mean_variance(node: Node, x: Any) -> Any:
    axes = tuple(axis_of(node, a, len(x.shape)) for a in node.integers("axes", (0, 2, 3)))
    mean = jnp.mean(x, axis=axes, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(x * x, axis=axes, keepdims=True) - mean * mean)
    return (x - mean) / (deviation + 1e-9)


OPS = {
    "BatchNormalization": Op(_batch),
    "InstanceNormalization": Op(_instance),
    "LayerNormalization": Op(_layer),
    "RMSNormalization": Op(_root_mean_square),
    "GroupNormalization": Op(_group),
    "LpNormalization": Op(_power_norm),
    "MeanVarianceNormalization": Op(_mean_variance),
}
