"""Operators that sample images at places that are computed."""

from __future__ import annotations

import math
from itertools import product as every
from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.onnx.contraction import counts, windows, with_bias
from lumjax.onnx.graph import Node
from lumjax.onnx.values import Op, bounded, host, scalar

# ---- GridSample


def _reflected(k: Any, size: int, corners: bool) -> Any:
    """A place outside mirrored at the border: at the middle of the last element, or at its end."""
    if corners:
        period = max(2 * (size - 1), 1)
        k = k % period
        return jnp.where(k > size - 1, period - k, k) if size > 1 else jnp.zeros_like(k)
    k = k % (2 * size)
    return jnp.where(k >= size, 2 * size - 1 - k, k)


def _placed(k: Any, size: int, mode: str, corners: bool) -> tuple[Any, Any]:
    """Whole places inside the image, and whether each counts."""
    inside = (k >= 0) & (k < size)
    if mode == "reflection":
        return jnp.clip(_reflected(k, size, corners), 0, size - 1), None
    return jnp.clip(k, 0, size - 1), inside if mode == "zeros" else None


def _cubic(t: Any) -> list[Any]:
    """Weights of the neighbours at -1, 0, 1 and 2."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((d - 5) * d + 8) * d * a - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _neighbours(at: Any, mode: str) -> list[tuple[Any, Any]]:
    """(whole place, weight) of what makes up the value at a place."""
    if mode == "nearest":
        return [(jnp.round(at), None)]
    low = jnp.floor(at)
    t = at - low
    weights = [1 - t, t] if mode == "linear" else _cubic(t)
    first = 0 if mode == "linear" else -1
    return [(low + first + k, w) for k, w in enumerate(weights)]


_GRID_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def _grid_sample(node: Node, x: Any, grid: Any) -> Any:
    modes = ("linear", "nearest", "cubic", *_GRID_MODES)
    mode = node.choice("mode", "linear", modes)
    mode = _GRID_MODES.get(mode, mode)
    padding = node.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    corners, rank = bool(node.integer("align_corners", 0)), len(x.shape) - 2
    if rank < 1 or grid.shape[-1] != rank or not all(x.shape):
        raise node.wrong("an image, and places with as many numbers as it has axes",
                         f"{tuple(x.shape)} and {tuple(grid.shape)}")  # fmt: skip
    bounded(node, (*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    taps: list[list[tuple[Any, Any]]] = []
    for k in range(rank):
        size, g = x.shape[2 + k], grid[..., rank - 1 - k]
        at = (g + 1) / 2 * (size - 1) if corners else ((g + 1) * size - 1) / 2
        if padding == "border" and mode != "cubic":
            at = jnp.clip(at, 0, size - 1)
        taps.append(_neighbours(at, mode))
    total: Any = 0
    lead = np.arange(x.shape[0], dtype=np.int32).reshape((-1,) + (1,) * rank)
    moved = jnp.moveaxis(x, 1, -1)
    for corner in every(*taps):
        places: list[Any] = []
        weight: Any = None
        for k, (place, w) in enumerate(corner):
            whole, inside = _placed(place.astype(jnp.int32), x.shape[2 + k], padding, corners)
            places.append(whole)
            for factor in (w, inside):
                if factor is not None:
                    factor = factor.astype(x.dtype)
                    weight = factor if weight is None else weight * factor
        value = moved[(lead, *places)]
        total = total + (value if weight is None else value * weight[..., None])
    return jnp.moveaxis(total, -1, 1)


# ---- bilinear values, zero outside


def _bilinear(image: Any, y: Any, x: Any) -> Any:
    """[channels, ...] of an image [channels, height, width] at places; zero outside it."""
    height, width = image.shape[-2:]
    low_y, low_x = jnp.floor(y), jnp.floor(x)
    total: Any = 0
    for dy, dx in every((0, 1), (0, 1)):
        at_y, at_x = low_y + dy, low_x + dx
        weight = (1 - jnp.abs(y - at_y)) * (1 - jnp.abs(x - at_x))
        inside = (at_y >= 0) & (at_y < height) & (at_x >= 0) & (at_x < width)
        row = jnp.clip(at_y, 0, height - 1).astype(jnp.int32)
        column = jnp.clip(at_x, 0, width - 1).astype(jnp.int32)
        total = total + image[:, row, column] * jnp.where(inside, weight, 0).astype(image.dtype)
    return total


def _deformable(node: Node, x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    sizes, group = tuple(w.shape[2:]), node.integer("group", 1)
    parts, (n, c, height, width) = node.integer("offset_group", 1), x.shape
    window = windows(node, (height, width), sizes)
    found = counts(node, (height, width), window)
    taps = math.prod(sizes)
    if c != w.shape[1] * group or c % parts or w.shape[0] % group:
        raise node.wrong("channels that fit the groups", f"{x.shape}, {w.shape}, {group}, {parts}")
    bounded(node, (n, c, taps, *found), x.dtype)
    offset = offset.reshape(n, parts, *sizes, 2, *found)
    base: list[Any] = []
    for k in range(2):
        start = np.arange(found[k]) * window.strides[k] - window.pads[k][0]
        along = np.arange(sizes[k]) * window.dilations[k]
        shape = [1, 1, 1, 1]
        shape[k], shape[2 + k] = sizes[k], found[k]
        base.append((along[:, None] + start).reshape(shape).astype(x.dtype))
    rows, columns = offset[:, :, :, :, 0] + base[0], offset[:, :, :, :, 1] + base[1]
    images = x.reshape(n, parts, c // parts, height, width)
    values = jnp.stack([
        jnp.stack([_bilinear(images[b, p], rows[b, p], columns[b, p]) for p in range(parts)])
        for b in range(n)
    ])  # fmt: skip
    if mask is not None:
        values = values * mask.reshape(n, parts, 1, *sizes, *found)
    values = values.reshape(n, group, c // group * taps, math.prod(found))
    kernels = w.reshape(group, w.shape[0] // group, c // group * taps)
    y = jnp.einsum("gok,ngkl->ngol", kernels, values).reshape(n, w.shape[0], *found)
    return with_bias(y, bias)


# ---- RoiAlign


def _samples(start: Any, size: Any, count: int, points: int) -> Any:
    """The places of `points` samples in each of `count` bins."""
    bin_size = size / count
    bins = np.arange(count, dtype=size.dtype)[:, None] * bin_size
    return start + bins + (np.arange(points, dtype=size.dtype) + 0.5) * bin_size / points


def _roi(node: Node, image: Any, box: Any, points: tuple[int, int]) -> Any:
    """What one region gives: [channels, height, width]."""
    rows, columns = node.integer("output_height", 1), node.integer("output_width", 1)
    half = node.text("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    if node.opset < 16:
        half = False
    scale, shift = node.number("spatial_scale", 1.0), 0.5 if half else 0.0
    x1, y1, x2, y2 = (box[k] * scale - shift for k in range(4))
    height, width = y2 - y1, x2 - x1
    if not half:
        height, width = jnp.maximum(height, 1.0), jnp.maximum(width, 1.0)
    y = _samples(y1, height, rows, points[0])[:, :, None, None]
    x = _samples(x1, width, columns, points[1])[None, None]
    y, x = jnp.broadcast_arrays(y, x)
    return _pooled(node, image, y, x)


def _pooled(node: Node, image: Any, y: Any, x: Any) -> Any:
    """Samples more than one element outside count as zero; the others are held to the image."""
    size_y, size_x = image.shape[-2:]
    inside = (y >= -1) & (y <= size_y) & (x >= -1) & (x <= size_x)
    y, x = jnp.clip(y, 0, size_y - 1), jnp.clip(x, 0, size_x - 1)
    if node.choice("mode", "avg", ("avg", "max")) == "avg":
        return jnp.mean(jnp.where(inside, _bilinear(image, y, x), 0), axis=(2, 4))
    low_y, low_x = jnp.floor(y), jnp.floor(x)
    best: Any = None
    for dy, dx in every((0, 1), (0, 1)):  # the largest weighted neighbour, as the standard tests
        at_y, at_x = low_y + dy, low_x + dx
        weight = (1 - jnp.abs(y - at_y)) * (1 - jnp.abs(x - at_x))
        row = jnp.minimum(at_y, size_y - 1).astype(jnp.int32)
        column = jnp.minimum(at_x, size_x - 1).astype(jnp.int32)
        value = image[:, row, column] * weight.astype(image.dtype)
        best = value if best is None else jnp.maximum(best, value)
    return jnp.max(jnp.where(inside, best, 0), axis=(2, 4))


def _roi_align(node: Node, x: Any, boxes: Any, batch: Any) -> Any:
    ratio = node.integer("sampling_ratio", 0)
    out = node.integer("output_height", 1), node.integer("output_width", 1)
    if len(boxes.shape) != 2 or boxes.shape[1] != 4 or len(x.shape) != 4 or ratio < 0:
        raise node.wrong("images and boxes [n, 4]", f"{tuple(x.shape)} and {tuple(boxes.shape)}")
    bounded(node, (boxes.shape[0], x.shape[1], *out, max(ratio, 1) ** 2), x.dtype)
    points = [(ratio, ratio)] * boxes.shape[0]
    if not ratio:  # how many depends on the boxes
        sizes = host(node, boxes).astype(np.float64) * node.number("spatial_scale", 1.0)
        spans = np.stack([sizes[:, 3] - sizes[:, 1], sizes[:, 2] - sizes[:, 0]], 1)
        if (
            node.opset < 16
            or node.text("coordinate_transformation_mode", "") == "output_half_pixel"
        ):
            spans = np.maximum(spans, 1)
        each = np.maximum(np.ceil(np.minimum(spans / np.array(out), 4096)), 1).astype(int)
        points = [(int(a), int(b)) for a, b in each]
        for a, b in points:
            bounded(node, (x.shape[1], *out, a, b), x.dtype)
    found = [_roi(node, x[batch[k]], boxes[k], points[k]) for k in range(boxes.shape[0])]
    if not found:
        return jnp.zeros((0, x.shape[1], *out), x.dtype)
    return jnp.stack(found).astype(x.dtype)


# ---- MaxRoiPool


def _bins(start: Any, end: Any, count: int, size: int) -> Any:
    """Which places of an axis lie in each bin of each region: [regions, bins, size]."""
    length = jnp.maximum(end - start + 1, 1) / count
    steps = np.arange(count, dtype=np.float32)
    low = jnp.floor(steps * length[:, None]) + start[:, None]
    high = jnp.ceil((steps + 1) * length[:, None]) + start[:, None]
    places = np.arange(size, dtype=np.float32)
    return (places >= low[..., None]) & (places < high[..., None])


def _largest(x: Any, inside: Any) -> Any:
    """The largest of the last axis in each bin: [regions, channels, rows, bins]."""
    values = jnp.where(inside[:, None, None], x[:, :, :, None], -np.inf)
    return jnp.max(values, axis=-1)


def _max_roi_pool(node: Node, x: Any, regions: Any) -> Any:
    rows, columns = node.integers("pooled_shape")
    if len(x.shape) != 4 or len(regions.shape) != 2 or regions.shape[1] != 5 or not all(x.shape):
        raise node.wrong("images and regions [n, 5]", f"{x.shape} and {regions.shape}")
    count, (_, channels, height, width) = regions.shape[0], x.shape
    bounded(node, (count, channels, height, columns, width), x.dtype)
    bounded(node, (count, channels, columns, rows, height), x.dtype)
    ends = jnp.floor(regions[:, 1:] * node.number("spatial_scale", 1.0) + 0.5)  # halves go up
    images = x[regions[:, 0].astype(jnp.int32)]
    found = _largest(images, _bins(ends[:, 0], ends[:, 2], columns, width))
    found = jnp.swapaxes(found, 2, 3)
    found = _largest(found, _bins(ends[:, 1], ends[:, 3], rows, height))
    found = jnp.swapaxes(found, 2, 3)
    return jnp.where(jnp.isneginf(found), 0, found).astype(x.dtype)


# ---- NonMaxSuppression


def _overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of a box [y1, x1, y2, x2] with others."""
    low, high = np.maximum(a[:2], b[:, :2]), np.minimum(a[2:], b[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=1)
    areas = np.prod(a[2:] - a[:2]) + np.prod(b[:, 2:] - b[:, :2], axis=1)
    union = areas - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1), 0)


def _suppressed(
    node: Node, boxes: Any, scores: Any, most: np.ndarray | None = None,
    overlap: np.ndarray | None = None, least: np.ndarray | None = None,
) -> Any:  # fmt: skip
    places, values = host(node, boxes).astype(np.float64), host(node, scores)
    if places.ndim != 3 or values.ndim != 3 or places.shape[::2] != (values.shape[0], 4):
        raise node.wrong("boxes [n, k, 4] and scores [n, classes, k]",
                         f"{places.shape} and {values.shape}")  # fmt: skip
    limit = 0 if most is None else int(scalar(node, most, "a number of boxes"))
    edge = 0.0 if overlap is None else scalar(node, overlap, "a threshold")
    floor = -np.inf if least is None else scalar(node, least, "a threshold")
    if node.integer("center_point_box", 0):
        middle, half = places[..., [1, 0]], places[..., [3, 2]] / 2
        places = np.concatenate([middle - half, middle + half], -1)
    else:
        pairs = places.reshape(*places.shape[:2], 2, 2)
        places = np.concatenate([pairs.min(2), pairs.max(2)], -1)
    found: list[tuple[int, int, int]] = []
    for n, c in np.ndindex(*values.shape[:2]):
        order = np.argsort(-values[n, c], kind="stable")
        order = order[values[n, c][order] > floor] if least is not None else order
        kept = 0
        while len(order) and kept < limit:
            first, order = order[0], order[1:]
            found.append((n, c, int(first)))
            kept += 1
            order = order[_overlap(places[n, first], places[n, order]) <= edge]
    return np.array(found, np.int64).reshape(-1, 3)


OPS = {
    "GridSample": Op(_grid_sample),
    "DeformConv": Op(_deformable),
    "RoiAlign": Op(_roi_align),
    "MaxRoiPool": Op(_max_roi_pool),
    "NonMaxSuppression": Op(_suppressed, static=(2, 3, 4), raw=True),
}
