"""Sequences, which are lists, and optionals, of which the empty one is None."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax.onnx.graph import Node
from lumjax.onnx.movement import sections
from lumjax.onnx.values import Op, axis_of, common, scalar


def _items(node: Node, x: Any) -> list[Any]:
    if not isinstance(x, list):
        raise node.wrong("a sequence", "an array" if hasattr(x, "dtype") else str(type(x)))
    return list(x)


def _place(node: Node, x: np.ndarray | None, size: int) -> int:
    k = int(scalar(node, x, "a position"))
    if not -size <= k < size:
        raise node.wrong(f"a position in {size} elements", str(k))
    return k % size


def _construct(node: Node, *xs: Any) -> Any:
    return list(xs)


def _empty(node: Node) -> Any:
    return []


def _insert(node: Node, x: Any, value: Any, place: np.ndarray | None = None) -> Any:
    items = _items(node, x)
    if place is None:
        return [*items, value]
    k = int(scalar(node, place, "a position"))
    if not -len(items) <= k <= len(items):
        raise node.wrong(f"a position in {len(items)} elements", str(k))
    k = k + len(items) if k < 0 else k
    return [*items[:k], value, *items[k:]]


def _erase(node: Node, x: Any, place: np.ndarray | None = None) -> Any:
    items = _items(node, x)
    k = len(items) - 1 if place is None else _place(node, place, len(items))
    return [*items[:k], *items[k + 1 :]]


def _at(node: Node, x: Any, place: np.ndarray | None) -> Any:
    items = _items(node, x)
    return items[_place(node, place, len(items))]


def _length(node: Node, x: Any) -> Any:
    return np.array(len(_items(node, x)), np.int64)


def _to_sequence(node: Node, x: Any, given: np.ndarray | None = None) -> Any:
    axis = axis_of(node, node.integer("axis", 0), len(x.shape))
    size = x.shape[axis]
    if given is None:
        sizes = [1] * size
    elif given.ndim == 0:
        part = int(given)
        if part < 1:
            raise node.wrong("parts that are not empty", str(part))
        sizes = [min(part, size - k) for k in range(0, size, part)]
    else:
        sizes = sections(node, size, given, 1)
    starts = np.cumsum([0, *sizes])
    lead = (slice(None),) * axis
    parts = [x[(*lead, slice(int(a), int(a) + n))] for a, n in zip(starts, sizes, strict=False)]
    if given is not None or node.integer("keepdims", 1):
        return parts
    return [p.reshape((*x.shape[:axis], *x.shape[axis + 1 :])) for p in parts]


def _from_sequence(node: Node, x: Any) -> Any:
    items = _items(node, x)
    if not items:
        raise node.wrong("a sequence with elements", "an empty one")
    xp, arrays = common(*items)
    if node.integer("new_axis", 0):
        return xp.stack(arrays, axis_of(node, node.integer("axis"), len(arrays[0].shape) + 1))
    return xp.concatenate(arrays, axis_of(node, node.integer("axis"), len(arrays[0].shape)))


def _optional(node: Node, x: Any = None) -> Any:
    return x


def _has(node: Node, x: Any = None) -> Any:
    return np.array(x is not None)


def _get(node: Node, x: Any) -> Any:
    if x is None:
        raise node.wrong("an optional with an element", "an empty one")
    return x


OPS = {
    "SequenceConstruct": Op(_construct, raw=True),
    "SequenceEmpty": Op(_empty, raw=True),
    "SequenceInsert": Op(_insert, static=(2,), raw=True),
    "SequenceErase": Op(_erase, static=(1,), raw=True),
    "SequenceAt": Op(_at, static=(1,), raw=True),
    "SequenceLength": Op(_length, raw=True),
    "SplitToSequence": Op(_to_sequence, static=(1,), raw=True),
    "ConcatFromSequence": Op(_from_sequence, raw=True),
    "Optional": Op(_optional, raw=True),
    "OptionalHasElement": Op(_has, raw=True),
    "OptionalGetElement": Op(_get, raw=True),
}
