"""Operators that move elements, make constants and tell shapes.

They work on NumPy arrays as on lumjax's, so that known values stay known, strings among them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.tensors import dtype_of
from lumjax.onnx.values import (
    FOLDED,
    Op,
    axes_of,
    axis_of,
    bounded,
    common,
    is_known,
    loose,
    scalar,
    whole,
)


def _identity(node: Node, x: Any) -> Any:
    return x


def _constant(node: Node) -> Any:
    for name in ("value", "value_float", "value_int", "value_string"):
        if not node.has(name):
            continue
        match name:
            case "value":
                return node.tensor(name)
            case "value_float":
                return np.array(node.number(name), np.float32)
            case "value_int":
                return np.array(node.integer(name), np.int64)
            case _:
                return np.array(node.text(name), object)
    if node.has("value_floats"):
        return np.array(node.numbers("value_floats"), np.float32)
    if node.has("value_ints"):
        return np.array(node.integers("value_ints"), np.int64)
    if node.has("value_strings"):
        return np.array(node.texts("value_strings"), object)
    raise node.wrong("a value", f"the attributes {sorted(node.attributes)}")


def _filled(node: Node, shape: np.ndarray | None) -> Any:
    value = node.tensor("value") if node.has("value") else np.zeros(1, np.float32)
    if value.size != 1:
        raise node.wrong("a value of one element", f"shape {value.shape}")
    sizes = bounded(node, whole(node, shape), value.dtype)
    return made(np.broadcast_to(value.reshape(()), sizes))


def made(view: np.ndarray) -> Any:
    """A value that is made of few: NumPy's while it is small, computed where it is used else."""
    if view.size <= FOLDED:
        return np.array(view)
    small = tuple(slice(None) if s else slice(0, 1) for s in view.strides)
    return jnp.broadcast_to(loose(np.array(view[small])), view.shape)


def _shape(node: Node, x: Any) -> Any:
    rank = len(x.shape)
    start, end = node.integer("start", 0), node.integer("end", rank)
    return np.array(x.shape[slice(start, end)], np.int64)


def _size(node: Node, x: Any) -> Any:
    return np.array(math.prod(x.shape), np.int64)


def _reshape(node: Node, x: Any, shape: np.ndarray | None) -> Any:
    sizes = list(whole(node, shape))
    if not node.integer("allowzero", 0):
        for k, d in enumerate(sizes):
            if d == 0:
                if k >= len(x.shape):
                    raise node.wrong(f"at most {len(x.shape)} sizes to copy", str(sizes))
                sizes[k] = x.shape[k]
    return x.reshape(tuple(sizes))


def _flatten(node: Node, x: Any) -> Any:
    axis, rank = node.integer("axis", 1), len(x.shape)
    if not -rank <= axis <= rank:
        raise node.wrong(f"an axis of {rank} axes", str(axis))
    axis = axis + rank if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _axes(node: Node, axes: np.ndarray | None) -> tuple[int, ...] | None:
    """Axes as an input, as they were as an attribute before opset 13; None if not given."""
    if axes is not None:
        return whole(node, axes, "axes")
    return node.integers("axes") if node.has("axes") else None


def _squeeze(node: Node, x: Any, axes: np.ndarray | None = None) -> Any:
    rank, given = len(x.shape), _axes(node, axes)
    if given is None:
        dropped = tuple(k for k, d in enumerate(x.shape) if d == 1)
    else:
        dropped = axes_of(node, given, rank)
    if any(x.shape[k] != 1 for k in dropped):
        raise node.wrong("axes of size 1", f"axes {dropped} of shape {tuple(x.shape)}")
    return x.reshape(tuple(d for k, d in enumerate(x.shape) if k not in dropped))


def _unsqueeze(node: Node, x: Any, axes: np.ndarray | None = None) -> Any:
    given = _axes(node, axes) or ()
    if len(given) + len(x.shape) > 32:
        raise node.wrong("at most 32 axes", str(len(given) + len(x.shape)))
    places = axes_of(node, given, len(x.shape) + len(given))
    sizes = iter(x.shape)
    rank = len(x.shape) + len(places)
    return x.reshape(tuple(1 if k in places else next(sizes) for k in range(rank)))


def _transpose(node: Node, x: Any) -> Any:
    rank = len(x.shape)
    order = node.integers("perm", tuple(reversed(range(rank))))
    if sorted(order) != list(range(rank)):
        raise node.wrong(f"an order of {rank} axes", str(order))
    return x.transpose(order)


def _concat(node: Node, *xs: Any) -> Any:
    axis = axis_of(node, node.integer("axis", 1), len(xs[0].shape))
    if len({np.dtype(x.dtype) for x in xs}) > 1:
        raise node.wrong("arrays of one dtype", ", ".join(str(x.dtype) for x in xs))
    xp, arrays = common(*xs)
    return xp.concatenate(arrays, axis=axis)


def sections(node: Node, size: int, given: np.ndarray | None, count: int) -> list[int]:
    """The sizes of the parts into which an axis is split."""
    sizes = None if given is None else list(whole(node, given, "sizes of parts"))
    if sizes is None and node.has("split"):
        sizes = list(node.integers("split"))
    if sizes is None:
        if not 0 < count <= 1 << 16:
            raise node.wrong("a number of outputs", str(count))
        part = -(-size // count)
        sizes = [max(min(part, size - k * part), 0) for k in range(count)]
    if sum(sizes) != size or any(s < 0 for s in sizes):
        raise node.wrong(f"parts that add up to {size}", str(sizes))
    return sizes


def _split(node: Node, x: Any, given: np.ndarray | None = None) -> tuple[Any, ...]:
    axis = axis_of(node, node.integer("axis", 0), len(x.shape))
    count = node.integer("num_outputs", len(node.outputs))
    sizes = sections(node, x.shape[axis], given, count)
    starts = np.cumsum([0, *sizes])
    lead = (slice(None),) * axis
    return tuple(x[(*lead, slice(int(a), int(b)))] for a, b in pairwise(starts))


def _slice(node: Node, x: Any, *given: np.ndarray | None) -> Any:
    if node.opset < 10:
        starts, ends = node.integers("starts"), node.integers("ends")
        axes = node.integers("axes", tuple(range(len(starts))))
        steps = (1,) * len(starts)
    else:
        parts = [None if g is None else whole(node, g, "places") for g in given]
        starts, ends, axes, steps = (*parts, None, None)[:4]
        starts, ends = starts or (), ends or ()
        axes = tuple(range(len(starts))) if axes is None else axes
        steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.wrong("equally many starts, ends, axes and steps that are not 0", str(given))
    cut = [slice(None)] * len(x.shape)
    for axis, entry in zip(axes_of(node, axes, len(x.shape)), zip(starts, ends, steps, strict=True),
                           strict=True):  # fmt: skip
        cut[axis] = _cut(x.shape[axis], *entry)
    return x[tuple(cut)]


def _cut(size: int, start: int, end: int, step: int) -> slice:
    """Python's slice for ONNX's: ends are held to the axis, in either direction."""
    start, end = (k + size if k < 0 else k for k in (start, end))
    if not size:
        return slice(0, 0)
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, None if end < 0 else end, step)


def _expand(node: Node, x: Any, shape: np.ndarray | None) -> Any:
    sizes = np.broadcast_shapes(tuple(x.shape), whole(node, shape))
    bounded(node, sizes, x.dtype)
    if is_known(x):
        return made(np.broadcast_to(x, sizes))
    return jnp.broadcast_to(x, sizes)


def _tile(node: Node, x: Any, repeats: np.ndarray | None) -> Any:
    times = whole(node, repeats, "repeats")
    if len(times) != len(x.shape):
        raise node.wrong(f"{len(x.shape)} repeats", str(len(times)))
    sizes = bounded(node, [n * d for n, d in zip(times, x.shape, strict=True)], x.dtype)
    if is_known(x) and math.prod(sizes) <= FOLDED:
        return np.tile(x, times)
    return jnp.tile(loose(x), times)


def _pad(
    node: Node, x: Any, pads: np.ndarray | None = None, value: Any = None,
    axes: np.ndarray | None = None,
) -> Any:  # fmt: skip
    given = node.integers("pads") if pads is None else whole(node, pads, "pads")
    rank = len(x.shape)
    if pads is None and node.has("value"):
        value = np.asarray(node.number("value"), np.dtype(x.dtype))
    places = range(rank) if axes is None else axes_of(node, whole(node, axes, "axes"), rank)
    if len(given) != 2 * len(places):
        raise node.wrong(f"{2 * len(places)} pads", str(len(given)))
    widths = [(0, 0)] * rank
    for k, axis in enumerate(places):
        widths[axis] = (given[k], given[k + len(places)])
    return padded(node, x, widths, node.choice("mode", "constant", _MODES), value)


_MODES = ("constant", "reflect", "edge", "wrap")


def padded(node: Node, x: Any, widths: list[tuple[int, int]], mode: str, value: Any = None) -> Any:
    """An array with elements put before and after, or with negative widths taken away."""
    bounded(node, [max(d + max(a, 0) + max(b, 0), 0) for d, (a, b)
                   in zip(x.shape, widths, strict=True)], x.dtype)  # fmt: skip
    cut = tuple(slice(max(-a, 0), d - max(-b, 0)) for d, (a, b)
                in zip(x.shape, widths, strict=True))  # fmt: skip
    if any(c.stop < c.start for c in cut):
        raise node.wrong("sizes that are not negative", f"pads {widths} of {tuple(x.shape)}")
    x = x[cut]
    widths = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode != "constant":
        if any(sum(w) and not d for w, d in zip(widths, x.shape, strict=True)):
            raise node.wrong("something to repeat", f"shape {tuple(x.shape)}")
        xp, (x,) = common(x)
        return xp.pad(x, widths, mode=mode)
    if value is None:
        value = np.zeros((), np.dtype(x.dtype))
    xp, (x, value) = common(x, value)
    return xp.pad(x, widths, mode=mode, constant_values=value.reshape(()))


def _range(node: Node, *given: np.ndarray | None) -> Any:
    start, limit, delta = (scalar(node, g, "a number") for g in given)
    assert given[0] is not None
    dtype = given[0].dtype
    if not delta or not all(math.isfinite(v) for v in (start, limit, delta)):
        raise node.wrong("finite numbers and a step that is not 0", f"{start, limit, delta}")
    count = max(math.ceil((limit - start) / delta), 0)
    bounded(node, (count,), dtype)
    if count <= FOLDED:
        return (start + np.arange(count) * delta).astype(dtype)
    return (start + jnp.arange(count) * delta).astype(loose(given[0]).dtype)


def _eye(node: Node, x: Any) -> Any:
    dtype = dtype_of(node.integer("dtype"), str(node)) if node.has("dtype") else np.dtype(x.dtype)
    rows, columns = bounded(node, x.shape, dtype)
    return loose(np.eye(rows, columns, node.integer("k", 0), dtype=np.int8).astype(dtype))


def _lower(node: Node, x: Any, k: np.ndarray | None = None) -> Any:
    diagonal = 0 if k is None else int(scalar(node, k, "a diagonal"))
    if len(x.shape) < 2:
        raise node.wrong("an array of matrices", f"shape {tuple(x.shape)}")
    rows, columns = x.shape[-2:]
    diagonal = max(min(diagonal, columns), -rows)  # further out changes nothing
    xp, (x,) = common(x)
    return xp.triu(x, diagonal) if node.integer("upper", 1) else xp.tril(x, diagonal)


def _depth_to_space(node: Node, x: Any) -> Any:
    block, (n, c, h, w) = node.integer("blocksize"), x.shape
    if block < 1 or c % (block * block):
        raise node.wrong("channels that are a multiple of the block", f"{c} and {block}")
    deep = c // (block * block)
    if node.choice("mode", "DCR", ("DCR", "CRD")) == "DCR":
        x = x.reshape(n, block, block, deep, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, deep, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(n, deep, h * block, w * block)


def _space_to_depth(node: Node, x: Any) -> Any:
    block, (n, c, h, w) = node.integer("blocksize"), x.shape
    if block < 1 or h % block or w % block:
        raise node.wrong("sizes that are multiples of the block", f"{h, w} and {block}")
    x = x.reshape(n, c, h // block, block, w // block, block)
    if node.text("mode", "DCR") == "CRD":
        x = x.transpose(0, 1, 3, 5, 2, 4)
    else:
        x = x.transpose(0, 3, 5, 1, 2, 4)
    return x.reshape(n, c * block * block, h // block, w // block)


OPS = {
    "Identity": Op(_identity, raw=True),
    "Constant": Op(_constant, raw=True),
    "ConstantOfShape": Op(_filled, static=(0,), fold=False),
    "Shape": Op(_shape, raw=True),
    "Size": Op(_size, raw=True),
    "Reshape": Op(_reshape, static=(1,), raw=True),
    "Flatten": Op(_flatten, raw=True),
    "Squeeze": Op(_squeeze, static=(1,), raw=True),
    "Unsqueeze": Op(_unsqueeze, static=(1,), raw=True),
    "Transpose": Op(_transpose, raw=True),
    "Concat": Op(_concat, raw=True),
    "Split": Op(_split, static=(1,), raw=True),
    "Slice": Op(_slice, static=(1, 2, 3, 4), raw=True),
    "Expand": Op(_expand, static=(1,), raw=True, fold=False),
    "Tile": Op(_tile, static=(1,), raw=True, fold=False),
    "Pad": Op(_pad, static=(1, 3), raw=True),
    "Range": Op(_range, static=(0, 1, 2), fold=False),
    "EyeLike": Op(_eye, raw=True, fold=False),
    "Trilu": Op(_lower, static=(1,), raw=True),
    "DepthToSpace": Op(_depth_to_space, raw=True),
    "SpaceToDepth": Op(_space_to_depth, raw=True),
}
