"""Fourier transforms and what speech models put around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.tensors import dtype_of
from lumjax.onnx.values import Op, axis_of, bounded, scalar


def _complex(node: Node, x: Any) -> Any:
    """The last axis holds the real and the imaginary part, or the real part alone."""
    if not x.shape or x.shape[-1] not in (1, 2):
        raise node.wrong("real numbers [..., 1] or complex [..., 2]", f"shape {tuple(x.shape)}")
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _parts(z: Any, dtype: Any) -> Any:
    return jnp.stack([jnp.real(z), jnp.imag(z)], -1).astype(dtype)


def _fourier(
    node: Node, x: Any, length: np.ndarray | None = None, axis: np.ndarray | None = None
) -> Any:
    rank = len(x.shape)
    if axis is not None:
        along = int(scalar(node, axis, "an axis"))
    else:
        along = node.integer("axis", 1) if node.opset < 20 else -2
    place = axis_of(node, along, rank)
    if place == rank - 1:
        raise node.wrong("an axis before the last", str(along))
    inverse, half = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    z = _complex(node, x)
    n = None if length is None else int(scalar(node, length, "a length"))
    if n is not None:
        bounded(node, (*(d for k, d in enumerate(z.shape) if k != place), n), np.complex64)
    if inverse and half:
        y = jnp.fft.irfft(z, n=n, axis=place)
        return y[..., None].astype(x.dtype)
    if inverse:
        return _parts(jnp.fft.ifft(z, n=n, axis=place), x.dtype)
    if half and not jnp.iscomplexobj(z):
        return _parts(jnp.fft.rfft(z, n=n, axis=place), x.dtype)
    y = jnp.fft.fft(z, n=n, axis=place)
    if half:
        y = y[(slice(None),) * place + (slice(0, y.shape[place] // 2 + 1),)]
    return _parts(y, x.dtype)


def _short_time(
    node: Node, x: Any, step: np.ndarray | None, window: Any = None,
    length: np.ndarray | None = None,
) -> Any:  # fmt: skip
    z = _complex(node, x) if len(x.shape) == 3 else x
    hop = int(scalar(node, step, "a step"))
    if length is not None:
        size = int(scalar(node, length, "a length"))
    else:
        size = z.shape[1] if window is None else window.shape[0]
    if not 0 < size <= z.shape[1] or hop < 1:
        raise node.wrong(f"frames within {z.shape[1]} samples", f"size {size}, step {hop}")
    frames = (z.shape[1] - size) // hop + 1
    bounded(node, (z.shape[0], frames, size), np.complex64)
    places = np.arange(frames)[:, None] * hop + np.arange(size)
    rows = z[:, places.astype(np.int32)]
    rows = rows if window is None else rows * window
    if node.integer("onesided", 1) and not jnp.iscomplexobj(rows):
        return _parts(jnp.fft.rfft(rows, axis=-1), x.dtype)
    y = jnp.fft.fft(rows, axis=-1)
    if node.integer("onesided", 1) and not jnp.iscomplexobj(z):
        y = y[..., : size // 2 + 1]
    return _parts(y, x.dtype)


def _mel(node: Node, *given: np.ndarray | None) -> Any:
    """Triangles between neighbouring edges, which lie evenly on the mel scale."""
    bins, length, rate, lowest, highest = (scalar(node, g, "a number") for g in given)
    dtype = dtype_of(node.integer("output_datatype", 1), str(node))
    bins, length = int(bins), int(length)
    bounded(node, (length // 2 + 1, bins), np.float64)
    low, high = (2595 * np.log10(1 + f / 700) for f in (lowest, highest))
    step = (high - low) / (bins + 2)
    edges = 700 * (10 ** ((np.arange(bins + 2) * step + low) / 2595) - 1)
    edges = ((length + 1) * edges) // rate
    lower, middle, upper = edges[:-2], edges[1:-1], edges[2:]
    k = np.arange(length // 2 + 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = np.where(middle > lower, (k - lower) / (middle - lower), 1.0)
        falling = np.where(upper > middle, (upper - k) / (upper - middle), 0.0)
    found = np.where((k >= lower) & (k <= middle), rising, 0.0)
    found = np.where((k > middle) & (k < upper), falling, found)
    return found.astype(dtype)


OPS = {
    "DFT": Op(_fourier, static=(1, 2)),
    "STFT": Op(_short_time, static=(1, 3)),
    "MelWeightMatrix": Op(_mel, static=(0, 1, 2, 3, 4), fold=False),
}
