"""Resize and Upsample: along each axis a few weighted neighbours, found while tracing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.values import Op, axes_of, bounded, whole
from lumjax.record import record

_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@record
class Axis:
    """How one axis is resized: its sizes, the scale, and the part of it that is taken."""

    size: int
    out: int
    scale: float
    roi: tuple[float, float]


def _coordinates(node: Node, axis: Axis) -> np.ndarray:
    """Where each output lies in the input."""
    mode = node.choice("coordinate_transformation_mode", "half_pixel", _COORDINATES)
    mode = mode if node.opset > 10 else "asymmetric"
    x, size, scale = np.arange(axis.out, dtype=np.float64), axis.size, axis.scale
    width = size * scale  # may be a fraction
    match mode:
        case "half_pixel":
            return (x + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            adjusted = axis.out / width
            return size / 2 * (1 - adjusted) + (x + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (x + 0.5) / scale - 0.5 if axis.out > 1 else np.zeros_like(x)
        case "align_corners":
            return x * (size - 1) / (width - 1) if width != 1 else np.zeros_like(x)
        case "asymmetric":
            return x / scale
        case "tf_half_pixel_for_nn":
            return (x + 0.5) / scale
        case _:
            start, end = axis.roi
            if axis.out > 1:
                return start * (size - 1) + x * (end - start) * (size - 1) / (axis.out - 1)
            return np.full_like(x, 0.5 * (start + end) * (size - 1))


def _nearest(node: Node, at: np.ndarray) -> np.ndarray:
    usual = "round_prefer_floor" if node.opset > 10 else "floor"
    match node.choice("nearest_mode", usual, _NEAREST):
        case "floor":
            return np.floor(at)
        case "ceil":
            return np.ceil(at)
        case "round_prefer_ceil":
            return np.floor(at + 0.5)
        case _:
            return np.ceil(at - 0.5)


def _kernel(node: Node, mode: str, distance: np.ndarray) -> np.ndarray:
    """The weight of a neighbour at a distance."""
    d = np.abs(distance)
    if mode == "linear":
        return np.maximum(1 - d, 0)
    a = node.number("cubic_coeff_a", -0.75)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _taps(node: Node, axis: Axis, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """The places [outputs, taps] and weights of the neighbours of every output."""
    at = _coordinates(node, axis)
    if mode == "nearest":
        places = np.clip(_nearest(node, at), 0, axis.size - 1)[:, None]
        return places.astype(np.int64), np.ones_like(places)
    reach = 1 if mode == "linear" else 2
    stretch = 1.0
    if node.integer("antialias", 0) and axis.scale < 1:
        stretch = 1 / axis.scale
    span = min(math.ceil(reach * stretch), axis.size + 2)
    first = np.floor(at)[:, None]
    places = first + np.arange(-span + 1, span + 1)
    weights = _kernel(node, mode, (places - at[:, None]) / stretch)
    inside = (places >= 0) & (places < axis.size)
    if node.integer("exclude_outside", 0):
        weights = np.where(inside, weights, 0.0)
    if stretch > 1 or node.integer("exclude_outside", 0):
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return np.clip(places, 0, axis.size - 1).astype(np.int64), weights


def _along(node: Node, x: Any, k: int, axis: Axis, mode: str) -> Any:
    """One axis resized."""
    places, weights = _taps(node, axis, mode)
    lead, tail = (slice(None),) * k, (1,) * (len(x.shape) - k - 1)
    places = places.astype(np.int32)
    if mode == "nearest":
        return x[(*lead, places[:, 0])]
    total: Any = None
    for tap in range(places.shape[1]):
        weight = weights[:, tap]
        if np.any(weight):
            part = x[(*lead, places[:, tap])] * weight.reshape(-1, *tail).astype(x.dtype)
            total = part if total is None else total + part
    return (
        jnp.zeros((*x.shape[:k], axis.out, *x.shape[k + 1 :]), x.dtype) if total is None else total
    )


def _outside(node: Node, y: Any, axes: dict[int, Axis]) -> Any:
    """What lies outside the input takes the extrapolation value."""
    for k, axis in axes.items():
        at = _coordinates(node, axis)
        out = (at < 0) | (at > axis.size - 1)
        if out.any():
            shape = (-1,) + (1,) * (len(y.shape) - k - 1)
            value = jnp.asarray(node.number("extrapolation_value", 0.0)).astype(y.dtype)
            y = jnp.where(out.reshape(shape), value, y)
    return y


def _targets(
    node: Node, shape: tuple[int, ...], axes: tuple[int, ...], roi: np.ndarray | None,
    scales: np.ndarray | None, sizes: np.ndarray | None,
) -> dict[int, Axis]:  # fmt: skip
    if (scales is None or not scales.size) == (sizes is None or not sizes.size):
        raise node.wrong("either scales or sizes", "both" if scales is not None else "neither")
    crop = node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    count, found = len(axes), dict[int, Axis]()
    parts = [(0.0, 1.0)] * count
    if crop:
        if roi is None or roi.size != 2 * count:
            raise node.wrong(
                f"a roi of {2 * count} numbers", "none" if roi is None else f"{roi.size}"
            )
        ends = [float(r) for r in roi.reshape(-1)]
        parts = list(zip(ends[:count], ends[count:], strict=True))
    if scales is not None and scales.size:
        factors = [float(s) for s in scales.reshape(-1)]
        if len(factors) != count or not all(0 < f < 1e9 for f in factors):
            raise node.wrong(f"{count} positive scales", str(factors))
        for k, f, part in zip(axes, factors, parts, strict=True):
            out = math.floor(shape[k] * (part[1] - part[0]) * f)
            found[k] = Axis(shape[k], out, f, part)
        return found
    wanted = list(whole(node, sizes, "sizes"))
    if len(wanted) != count:
        raise node.wrong(f"{count} sizes", str(wanted))
    kept = node.choice("keep_aspect_ratio_policy", "stretch",
                       ("stretch", "not_larger", "not_smaller"))  # fmt: skip
    ratios = [w / max(shape[k], 1) for k, w in zip(axes, wanted, strict=True)]
    if kept != "stretch" and ratios:
        ratio = min(ratios) if kept == "not_larger" else max(ratios)
        wanted = [math.floor(ratio * shape[k] + 0.5) for k in axes]
        ratios = [ratio] * count
    for k, w, r, part in zip(axes, wanted, ratios, parts, strict=True):
        found[k] = Axis(shape[k], w, r, part)
    return found


def _resize(
    node: Node, x: Any, roi: np.ndarray | None = None, scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
) -> Any:  # fmt: skip
    if node.opset < 11:
        roi, scales = None, roi
    rank = len(x.shape)
    axes = axes_of(node, node.integers("axes", tuple(range(rank))), rank)
    mode = node.choice("mode", "nearest", ("nearest", "linear", "cubic"))
    targets = _targets(node, tuple(x.shape), axes, roi, scales, sizes)
    shape = [targets[k].out if k in targets else d for k, d in enumerate(x.shape)]
    bounded(node, shape, x.dtype)
    if not all(x.shape):
        raise node.wrong("an input with elements", f"shape {tuple(x.shape)}")
    crop = node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    y = x
    for k, axis in targets.items():
        if crop or axis.scale != 1 or axis.out != axis.size:
            y = _along(node, y, k, axis, mode)
    return _outside(node, y, targets) if crop else y


def _upsample(node: Node, x: Any, scales: np.ndarray | None = None) -> Any:
    factors = np.asarray(node.numbers("scales")) if scales is None else scales
    axes = tuple(range(len(x.shape)))
    targets = _targets(node, tuple(x.shape), axes, None, factors, None)
    bounded(node, [a.out for a in targets.values()], x.dtype)
    mode = node.choice("mode", "nearest", ("nearest", "linear"))
    y = x
    for k, axis in targets.items():
        at = np.arange(axis.out) / axis.scale
        if mode == "nearest":
            y = y[(slice(None),) * k + (np.floor(at).astype(np.int32),)]
            continue
        low = np.minimum(np.floor(at), axis.size - 1).astype(np.int32)
        high = np.minimum(low + 1, axis.size - 1)
        share = (at - low).reshape((-1,) + (1,) * (len(x.shape) - k - 1)).astype(x.dtype)
        lead = (slice(None),) * k
        y = y[(*lead, low)] * (1 - share) + y[(*lead, high)] * share
    return y


OPS = {
    "Resize": Op(_resize, static=(1, 2, 3)),
    "Upsample": Op(_upsample, static=(1,)),
}
