"""Losses, and one step of an optimiser."""

from __future__ import annotations

from typing import Any

from lumjax import nn
from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.values import Op, concrete


def _likelihood(node: Node, scores: Any, labels: Any, weights: Any = None) -> Any:
    """The negative of the scores [n, classes, ...] that labels [n, ...] name."""
    classes = scores.shape[1]
    if (scores.shape[0], *scores.shape[2:]) != tuple(labels.shape):
        raise node.wrong("scores [n, classes, ...] and labels [n, ...]",
                         f"{tuple(scores.shape)} and {tuple(labels.shape)}")  # fmt: skip
    counted: Any = jnp.ones(labels.shape, bool)
    if node.has("ignore_index"):
        counted = labels != node.integer("ignore_index")
    safe = jnp.where(counted, labels, 0)
    known = concrete(safe)
    if known is not None and known.size and not 0 <= known.min() <= known.max() < classes:
        raise node.wrong(f"labels from 0 to {classes - 1}", f"{known.min()} to {known.max()}")
    picked = jnp.take_along_axis(scores, safe[:, None], 1)[:, 0]
    share = jnp.ones(labels.shape, scores.dtype) if weights is None else weights[safe]
    share = jnp.where(counted, share, 0).astype(scores.dtype)
    loss = -picked * share
    match node.choice("reduction", "mean", ("none", "sum", "mean")):
        case "none":
            return loss
        case "sum":
            return jnp.sum(loss)
        case _:
            return jnp.sum(loss) / jnp.sum(share)


def _cross_entropy(node: Node, scores: Any, labels: Any, weights: Any = None) -> Any:
    logarithms = nn.log_softmax(scores, axis=1)
    loss = _likelihood(node, logarithms, labels, weights)
    return (loss, logarithms)[: max(len(node.outputs), 1)]


def _groups(node: Node, xs: tuple[Any, ...], size: int) -> list[tuple[Any, ...]]:
    """Tensors with what belongs to each: first all tensors, then all gradients, and so on."""
    if len(xs) % size:
        raise node.wrong(f"{size} inputs for each tensor", str(len(xs)))
    count = len(xs) // size
    return [tuple(xs[k::count]) for k in range(count)]


def _flattened(found: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(x for part in zip(*found, strict=True) for x in part)


def _adagrad(node: Node, rate: Any, step: Any, *xs: Any) -> Any:
    rate = rate / (1 + step.astype(rate.dtype) * node.number("decay_factor", 0.0))
    found: list[tuple[Any, ...]] = []
    for x, g, h in _groups(node, xs, 3):
        g = node.number("norm_coefficient", 0.0) * x + g
        h = h + g * g
        x = x - rate * g / (jnp.sqrt(h) + node.number("epsilon", 0.0))
        found.append((x, h))
    return _flattened(found)


def _adam(node: Node, rate: Any, step: Any, *xs: Any) -> Any:
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)
    t = step.astype(rate.dtype)
    started = t > 0
    safe = jnp.where(started, t, 1)
    adjusted = rate * jnp.sqrt(1 - beta**safe) / (1 - alpha**safe)
    rate = jnp.where(started, adjusted, rate)
    found: list[tuple[Any, ...]] = []
    for x, g, v, h in _groups(node, xs, 4):
        g = node.number("norm_coefficient", 0.0) * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        x = x - rate * v / (jnp.sqrt(h) + node.number("epsilon", 1e-6))
        found.append(((1 - node.number("norm_coefficient_post", 0.0)) * x, v, h))
    return _flattened(found)


def _momentum(node: Node, rate: Any, step: Any, *xs: Any) -> Any:
    alpha, nesterov = node.number("alpha"), node.text("mode") == "nesterov"
    beta = jnp.where(step > 0, node.number("beta"), 1.0).astype(rate.dtype)
    found: list[tuple[Any, ...]] = []
    for x, g, v in _groups(node, xs, 3):
        g = node.number("norm_coefficient") * x + g
        v = alpha * v + beta * g
        x = x - rate * (g + alpha * v if nesterov else v)
        found.append((x, v))
    return _flattened(found)


_DOMAIN = "ai.onnx.preview.training"
OPS = {
    "NegativeLogLikelihoodLoss": Op(_likelihood),
    "SoftmaxCrossEntropyLoss": Op(_cross_entropy),
    f"{_DOMAIN}:Adagrad": Op(_adagrad),
    f"{_DOMAIN}:Adam": Op(_adam),
    f"{_DOMAIN}:Momentum": Op(_momentum),
}
