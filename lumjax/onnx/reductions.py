"""Operators that reduce axes, and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import nn
from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.values import Op, axes_of, axis_of, is_float, whole

Reduction = Callable[[Any, tuple[int, ...]], Any]  # keeps the axes


def _reduction(f: Reduction) -> Op:
    def compute(node: Node, x: Any, axes: np.ndarray | None = None) -> Any:
        given = whole(node, axes, "axes") if axes is not None else node.integers("axes", ())
        rank = len(x.shape)
        if given:
            places = axes_of(node, given, rank)
        else:
            places = () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
        found = f(x, places).astype(x.dtype)
        if node.integer("keepdims", 1):
            return found
        return found.reshape(tuple(d for k, d in enumerate(x.shape) if k not in places))

    return Op(compute, static=(1,))


def _sum(x: Any, axes: tuple[int, ...]) -> Any:
    return jnp.sum(x, axis=axes, keepdims=True, dtype=x.dtype)


def _real(x: Any) -> Any:
    return x if is_float(x) else x.astype(jnp.float64 if x.dtype.itemsize > 4 else jnp.float32)


def _mean(x: Any, axes: tuple[int, ...]) -> Any:
    return jnp.mean(_real(x), axis=axes, keepdims=True)


def _product(x: Any, axes: tuple[int, ...]) -> Any:
    return jnp.prod(x, axis=axes, keepdims=True, dtype=x.dtype)


def _edge(x: Any, axes: tuple[int, ...], largest: bool) -> Any:
    """Of no elements, the value that every other exceeds."""
    if x.dtype == bool:
        return (jnp.any if largest else jnp.all)(x, axis=axes, keepdims=True)
    if is_float(x):
        first = -math.inf if largest else math.inf
    else:
        first = dt.iinfo(x.dtype).min if largest else dt.iinfo(x.dtype).max
    return (jnp.max if largest else jnp.min)(x, axis=axes, keepdims=True, initial=first)


def _norm(x: Any, axes: tuple[int, ...]) -> Any:
    values = _real(x)
    return jnp.sqrt(_sum(values * values, axes))


def _log_sum_exp(x: Any, axes: tuple[int, ...]) -> Any:
    return nn.logsumexp(_real(x), axis=axes, keepdims=True)


def _softmax(node: Node, x: Any, logarithm: bool) -> Any:
    f = nn.log_softmax if logarithm else nn.softmax
    shape = x.shape
    if node.opset < 13:
        lead = axis_of(node, node.integer("axis", 1), len(shape))
        return f(x.reshape(math.prod(shape[:lead]), -1), axis=1).reshape(shape)
    return f(x, axis=axis_of(node, node.integer("axis", -1), len(shape)))


OPS = {
    "ReduceSum": _reduction(_sum),
    "ReduceMean": _reduction(_mean),
    "ReduceProd": _reduction(_product),
    "ReduceMax": _reduction(lambda x, axes: _edge(x, axes, True)),
    "ReduceMin": _reduction(lambda x, axes: _edge(x, axes, False)),
    "ReduceL1": _reduction(lambda x, axes: _sum(jnp.abs(x), axes)),
    "ReduceL2": _reduction(_norm),
    "ReduceSumSquare": _reduction(lambda x, axes: _sum(x * x, axes)),
    "ReduceLogSum": _reduction(lambda x, axes: jnp.log(_real(_sum(x, axes)))),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "Softmax": Op(lambda node, x: _softmax(node, x, False)),
    "LogSoftmax": Op(lambda node, x: _softmax(node, x, True)),
}
