"""Operators that gather, scatter, sort and search."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.values import (
    Op,
    axis_of,
    bounded,
    common,
    concrete,
    host,
    is_float,
    loose,
    scalar,
)


def _inside(node: Node, indices: Any, size: int) -> None:
    """Indices that are known lie in an axis of this size."""
    found = concrete(indices)
    if found is not None and found.size and not -size <= found.min() <= found.max() < size:
        raise node.wrong(
            f"indices from {-size} to {size - 1}", f"some from {found.min()} to {found.max()}"
        )


def _gather(node: Node, x: Any, indices: Any) -> Any:
    axis = axis_of(node, node.integer("axis", 0), len(x.shape))
    _inside(node, indices, x.shape[axis])
    bounded(node, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    xp, (x, indices) = common(x, indices)
    return x[(slice(None),) * axis + (xp.asarray(indices),)]


def _grid(shape: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """For every element its own place, with `indices` along one axis."""
    rank = len(shape)
    places = [
        np.arange(d, dtype=indices.dtype).reshape((1,) * k + (-1,) + (1,) * (rank - k - 1))
        for k, d in enumerate(indices.shape)
    ]
    return tuple(indices if k == axis else p for k, p in enumerate(places))


def _gather_elements(node: Node, x: Any, indices: Any) -> Any:
    axis = axis_of(node, node.integer("axis", 0), len(x.shape))
    if len(indices.shape) != len(x.shape):
        raise node.wrong(f"indices with {len(x.shape)} axes", f"{len(indices.shape)}")
    _inside(node, indices, x.shape[axis])
    return x[_grid(x.shape, indices, axis)]


def _points(node: Node, x: Any, indices: Any, batch: int) -> tuple[Any, ...]:
    """Where the last axis of `indices` points, behind `batch` axes that both have."""
    depth = indices.shape[-1]
    if batch + depth > len(x.shape):
        raise node.wrong(f"at most {len(x.shape) - batch} indices for a place", str(depth))
    for k in range(depth):
        _inside(node, indices[..., k], x.shape[batch + k])
    rank = len(indices.shape) - 1
    lead = [
        np.arange(indices.shape[k], dtype=indices.dtype).reshape((-1,) + (1,) * (rank - k - 1))
        for k in range(batch)
    ]
    return (*lead, *(indices[..., k] for k in range(depth)))


def _gather_nd(node: Node, x: Any, indices: Any) -> Any:
    return x[_points(node, x, indices, node.integer("batch_dims", 0))]


def _scattered(node: Node, x: Any, places: tuple[Any, ...], updates: Any) -> Any:
    at = x.at[places]
    match node.choice("reduction", "none", ("none", "add", "mul", "max", "min")):
        case "add":
            return at.add(updates)
        case "mul":
            return at.multiply(updates)
        case "max":
            return at.max(updates)
        case "min":
            return at.min(updates)
        case _:
            return at.set(updates)


def _scatter_elements(node: Node, x: Any, indices: Any, updates: Any) -> Any:
    axis = axis_of(node, node.integer("axis", 0), len(x.shape))
    if indices.shape != updates.shape or len(indices.shape) != len(x.shape):
        raise node.wrong("indices and updates of one shape", f"{indices.shape}, {updates.shape}")
    _inside(node, indices, x.shape[axis])
    return _scattered(node, x, _grid(x.shape, indices, axis), updates)


def _scatter_nd(node: Node, x: Any, indices: Any, updates: Any) -> Any:
    return _scattered(node, x, _points(node, x, indices, 0), updates)


def _tensor_scatter(node: Node, past: Any, update: Any, starts: Any = None) -> Any:
    axis = axis_of(node, node.integer("axis", -2), len(past.shape))
    size, length = past.shape[axis], update.shape[axis]
    if starts is None:
        starts = jnp.zeros(past.shape[0], jnp.int32)
    steps = jnp.arange(length, dtype=starts.dtype)
    first = starts.reshape((-1,) + (1,) * (len(past.shape) - 1))
    places = first + steps.reshape((-1,) + (1,) * (len(past.shape) - axis - 1))
    if node.choice("mode", "linear", ("linear", "circular")) == "circular":
        places = places % size
    _inside(node, places, size)
    grid = _grid(past.shape, jnp.zeros(update.shape, starts.dtype), axis)
    return past.at[tuple(places if k == axis else g for k, g in enumerate(grid))].set(update)


def _one_hot(node: Node, indices: Any, depth: np.ndarray | None, values: Any) -> Any:
    count = int(scalar(node, depth, "a depth"))
    rank = len(indices.shape) + 1
    axis = axis_of(node, node.integer("axis", -1), rank)
    shape = (*indices.shape[:axis], count, *indices.shape[axis:])
    bounded(node, shape, values.dtype)
    if is_float(indices):
        indices = indices.astype(jnp.int32)
    indices = jnp.expand_dims(jnp.where(indices < 0, indices + count, indices), axis)
    steps = jnp.arange(count, dtype=indices.dtype).reshape((-1,) + (1,) * (rank - axis - 1))
    return jnp.where(indices == steps, values[1], values[0])


def _non_zero(node: Node, x: Any) -> Any:
    return np.stack(np.nonzero(np.atleast_1d(host(node, x)))).astype(np.int64)


def _compress(node: Node, x: Any, condition: np.ndarray | None) -> Any:
    assert condition is not None
    if node.has("axis"):
        axis = axis_of(node, node.integer("axis"), len(x.shape))
    else:
        x, axis = x.reshape(-1), 0
    kept = np.nonzero(condition)[0]
    _inside(node, kept, x.shape[axis])
    return x[(slice(None),) * axis + (kept,)]


def _unique(node: Node, x: Any) -> tuple[Any, ...]:
    values = host(node, x)
    axis = axis_of(node, node.integer("axis"), values.ndim) if node.has("axis") else None
    rows = values.reshape(-1) if axis is None else values
    plain = rows.astype(np.float32) if rows.dtype.name == "bfloat16" else rows
    _, first, inverse, counts = np.unique(
        plain, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not node.integer("sorted", 1):
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        first, inverse, counts = first[order], place[inverse], counts[order]
    found = np.take(rows, first, axis=axis or 0)
    return found, *(a.astype(np.int64) for a in (first, inverse, counts))


def _top_k(node: Node, x: Any, k: np.ndarray | None = None) -> tuple[Any, Any]:
    axis = axis_of(node, node.integer("axis", -1), len(x.shape))
    count = node.integer("k") if node.opset < 10 else int(scalar(node, k, "a number of elements"))
    if not 0 <= count <= x.shape[axis]:
        raise node.wrong(f"at most {x.shape[axis]} elements", str(count))
    down = bool(node.integer("largest", 1))
    order = jnp.argsort(x, axis=axis, stable=True, descending=down)
    order = order[(slice(None),) * axis + (slice(0, count),)]
    return jnp.take_along_axis(x, order, axis), order.astype(_index())


def _index() -> Any:
    return loose(np.zeros((), np.int64)).dtype


def _argument(node: Node, x: Any, largest: bool) -> Any:
    axis = axis_of(node, node.integer("axis", 0), len(x.shape))
    find = jnp.argmax if largest else jnp.argmin
    keep = bool(node.integer("keepdims", 1))
    if not node.integer("select_last_index", 0):
        return find(x, axis=axis, keepdims=keep).astype(_index())
    found = find(jnp.flip(x, axis), axis=axis, keepdims=keep)
    return (x.shape[axis] - 1 - found).astype(_index())


def _running(node: Node, x: Any, axis: np.ndarray | None, product: bool) -> Any:
    place = axis_of(node, int(scalar(node, axis, "an axis")), len(x.shape))
    backward, exclusive = node.integer("reverse", 0), node.integer("exclusive", 0)
    y = jnp.flip(x, place) if backward else x
    y = (jnp.cumprod if product else jnp.cumsum)(y, axis=place, dtype=x.dtype)
    if exclusive:
        lead = (slice(None),) * place
        neutral = jnp.full_like(y[(*lead, slice(0, 1))], 1 if product else 0)
        y = jnp.concatenate([neutral, y[(*lead, slice(0, -1))]], place)
        y = y[(*lead, slice(0, x.shape[place]))]
    return jnp.flip(y, place) if backward else y


def _reverse_sequence(node: Node, x: Any, lengths: Any) -> Any:
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    if sorted((time, batch)) != [0, 1] or len(x.shape) < 2:
        raise node.wrong("time and batch as the first two axes", f"{time}, {batch}")
    steps = jnp.arange(x.shape[time], dtype=lengths.dtype)
    steps = steps[:, None] if time == 0 else steps[None, :]
    ends = lengths[None, :] if time == 0 else lengths[:, None]
    order = jnp.where(steps < ends, ends - 1 - steps, steps)
    return jnp.take_along_axis(x, order.reshape(order.shape + (1,) * (len(x.shape) - 2)), time)


def _search_features(node: Node, x: Any, indices: Any) -> Any:
    places = indices.reshape(-1)
    _inside(node, places, x.shape[-1])
    found = x[..., places]
    return found.reshape(1, -1) if len(x.shape) == 1 else found


def _binarizer(node: Node, x: Any) -> Any:
    return (x > node.number("threshold", 0.0)).astype(x.dtype)


def _hardmax(node: Node, x: Any) -> Any:
    shape = x.shape
    if node.opset < 13:
        lead = node.integer("axis", 1) % max(len(shape), 1)
        x, axis = x.reshape(math.prod(shape[:lead]), -1), 1
    else:
        axis = axis_of(node, node.integer("axis", -1), len(shape))
    steps = jnp.arange(x.shape[axis]).reshape((-1,) + (1,) * (len(x.shape) - axis - 1))
    found = jnp.argmax(x, axis=axis, keepdims=True) == steps
    return found.astype(x.dtype).reshape(shape)


OPS = {
    "Gather": Op(_gather, raw=True),
    "GatherElements": Op(_gather_elements),
    "GatherND": Op(_gather_nd),
    "Scatter": Op(_scatter_elements),
    "ScatterElements": Op(_scatter_elements),
    "ScatterND": Op(_scatter_nd),
    "TensorScatter": Op(_tensor_scatter),
    "OneHot": Op(_one_hot, static=(1,)),
    "NonZero": Op(_non_zero, raw=True),
    "Compress": Op(_compress, static=(1,)),
    "Unique": Op(_unique, raw=True),
    "TopK": Op(_top_k, static=(1,)),
    "ArgMax": Op(lambda node, x: _argument(node, x, True)),
    "ArgMin": Op(lambda node, x: _argument(node, x, False)),
    "CumSum": Op(lambda node, x, axis: _running(node, x, axis, False), static=(1,)),
    "CumProd": Op(lambda node, x, axis: _running(node, x, axis, True), static=(1,)),
    "ReverseSequence": Op(_reverse_sequence),
    "Hardmax": Op(_hardmax),
    "ai.onnx.ml:ArrayFeatureExtractor": Op(_search_features),
    "ai.onnx.ml:Binarizer": Op(_binarizer),
}
