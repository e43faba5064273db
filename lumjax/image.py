"""Resizing images: jax.image.

>>> import lumjax.numpy as jnp
>>> resize(jnp.array([0.0, 2.0]), (4,), "linear").tolist()
[0.0, 0.5, 1.5, 2.0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.numpy import linear
from lumjax.trace.core import aval_of

Kernel = Callable[[Any], Any]


class ResizeMethod(Enum):
    """How `resize` interpolates."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name: "nearest", "linear", "cubic", "lanczos3", "area" and synonyms.

        >>> ResizeMethod.from_string("bilinear")
        <ResizeMethod.LINEAR: 1>
        """
        if s in _NAMES:
            return _NAMES[s]
        raise ArgumentValueError(
            operation="image.resize",
            required=f"one of {', '.join(_NAMES)}",
            got=repr(s),
            fix="choose one of these",
        )


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    "area": ResizeMethod.AREA,
}


# ---- kernels: functions of the distance


def _triangle(x: Any) -> Any:
    return jnp.maximum(0, 1 - jnp.abs(x))


def _keys_cubic(x: Any) -> Any:
    """Keys 1981, with a = -1/2."""
    out = ((1.5 * x - 2.5) * x) * x + 1.0
    out = jnp.where(x >= 1.0, ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0, out)
    return jnp.where(x >= 2.0, 0.0, out)


def _sharp_cubic(x: Any) -> Any:
    """Keys' kernel with a = -3/4, which PyTorch and OpenCV use."""
    a = -0.75
    out = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    out = jnp.where(x >= 1.0, ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a, out)
    return jnp.where(x >= 2.0, 0.0, out)


def _lanczos(radius: float) -> Kernel:
    def kernel(x: Any) -> Any:
        y = radius * jnp.sin(np.pi * x) * jnp.sin(np.pi * x / radius)
        safe = jnp.where(x != 0, np.pi**2 * x**2, 1)
        return jnp.where(x > radius, 0.0, jnp.where(x > 1e-3, y / safe, 1))

    return kernel


_KERNELS: dict[ResizeMethod, tuple[int, Kernel | None]] = {
    ResizeMethod.LINEAR: (1, _triangle),
    ResizeMethod.LANCZOS3: (3, _lanczos(3.0)),
    ResizeMethod.LANCZOS5: (5, _lanczos(5.0)),
    ResizeMethod.CUBIC: (2, _keys_cubic),
    ResizeMethod.CUBIC_PYTORCH: (2, _sharp_cubic),
    ResizeMethod.AREA: (1, None),
}


# ---- weights


def _weights(
    n: int, m: int, scale: Any, shift: Any, kernel: Kernel | None, antialias: bool, edge: int
) -> Any:
    """The weight of each of n inputs (rows) in each of m outputs (columns). The outermost pixels
    are repeated `edge` times.
    """
    dtype = jnp.result_type(scale, shift)
    inverse = 1.0 / scale
    sample = (jnp.arange(m, dtype=dtype) + 0.5) * inverse - shift * inverse - 0.5
    if kernel is None:
        left = jnp.arange(m, dtype=dtype) * inverse - shift * inverse
        begin = jnp.arange(n, dtype=dtype)
        overlap = jnp.minimum((left + inverse)[None, :], (begin + 1.0)[:, None])
        weights = jnp.maximum(0.0, overlap - jnp.maximum(left[None, :], begin[:, None]))
    else:
        places = jnp.arange(-edge, n + edge, dtype=dtype)
        width = jnp.maximum(inverse, 1.0) if antialias else 1.0
        weights = kernel(jnp.abs(sample[None, :] - places[:, None]) / width)
    if edge:
        rows = jnp.clip(jnp.arange(-edge, n + edge), 0, n - 1)
        return _normalised(ops.segment_sum(weights, rows, n))
    inside = jnp.logical_and(sample >= -0.5, sample <= n - 0.5)
    return jnp.where(inside[None, :], _normalised(weights), 0)


def _normalised(weights: Any) -> Any:
    total = jnp.sum(weights, axis=0, keepdims=True)
    enough = jnp.abs(total) > 1000.0 * float(np.finfo(np.float32).eps)
    return jnp.where(enough, weights / jnp.where(total != 0, total, 1), 0)


def _interpolated(
    x: Any,
    shape: Sequence[int],
    axes: Sequence[int],
    scale: Sequence[Any],
    shift: Sequence[Any],
    method: ResizeMethod,
    antialias: bool,
    precision: Any,
) -> Any:
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        method = ResizeMethod.CUBIC
    radius, kernel = _KERNELS[method]
    edge = radius if method is ResizeMethod.CUBIC_PYTORCH else 0
    rank = aval_of(x).ndim
    operands: list[Any] = [x, list(range(rank))]
    out = list(range(rank))
    for k, axis in enumerate(axes):
        n, m = int(aval_of(x).shape[axis]), shape[axis]
        weights = _weights(n, m, scale[k], shift[k], kernel, antialias, edge)
        operands += [jnp.astype(weights, aval_of(x).dtype), [axis, rank + k]]
        out[axis] = rank + k
    return linear.einsum(*operands, out, precision=precision) if axes else x


def _checked(operation: str, image: Any, shape: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    x, wanted = jnp.asarray(image), tuple(int(n) for n in shape)
    if len(wanted) != aval_of(x).ndim:
        raise ShapeError(
            operation=operation,
            required=f"a new size for each of the {aval_of(x).ndim} axes",
            got=str(wanted),
            fix="repeat the sizes of axes that keep theirs",
        )
    return x, wanted


def _inexact(x: Any) -> Any:
    return x if dt.is_inexact(aval_of(x).dtype) else ops.cast(x, np.float64)


def resize(
    image: Any,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = ops.Precision.HIGHEST,
) -> Any:
    """An array resampled to `shape`; axes of equal size are left alone.

    Args:
        image: an array of any rank.
        shape: the new size of every axis.
        method: "nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5" or "area", or
            a ResizeMethod. All but "nearest" give floats.
        antialias: whether to smooth where the image becomes smaller.
        precision: of the products of image and weights.

    Raises:
        ShapeError: a shape of another rank.
        ArgumentValueError: an unknown method.

    >>> resize(jnp.arange(4.0), (2,), "nearest").tolist()
    [1.0, 3.0]
    """
    x, wanted = _checked("image.resize", image, shape)
    how = ResizeMethod.from_string(method) if isinstance(method, str) else method
    sizes = tuple(int(n) for n in aval_of(x).shape)
    axes = [k for k, (n, m) in enumerate(zip(sizes, wanted, strict=True)) if n != m]
    if how is ResizeMethod.NEAREST:
        for axis in axes:
            places = (np.arange(wanted[axis], dtype=np.float32) + np.float32(0.5)) * np.float32(
                sizes[axis]
            ) / np.float32(wanted[axis])  # fmt: skip
            x = jnp.take(x, np.floor(places).astype(np.int32), axis=axis)
        return x
    scale = [1.0 if wanted[k] == 0 else wanted[k] / sizes[k] for k in axes]
    return _interpolated(
        _inexact(x), wanted, axes, scale, [0.0] * len(axes), how, antialias, precision
    )


def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = ops.Precision.HIGHEST,
) -> Any:
    """An array resampled after each axis of `spatial_dims` is scaled, then moved.

    scale and translation have one number for each of spatial_dims, and gradients. Pixels from
    outside the image are 0. "nearest" is not offered, as in JAX.

    >>> x = jnp.array([1.0, 2.0, 3.0])
    >>> one, move = jnp.array([1.0]), jnp.array([1.0])
    >>> scale_and_translate(x, (3,), (0,), one, move, "linear").tolist()
    [0.0, 1.0, 2.0]
    """
    x, wanted = _checked("image.scale_and_translate", image, shape)
    how = ResizeMethod.from_string(method) if isinstance(method, str) else method
    if how is ResizeMethod.NEAREST:
        raise ArgumentValueError(
            operation="image.scale_and_translate",
            required="a method that interpolates",
            got="nearest",
            fix="use 'linear', or resize for the nearest neighbour",
        )
    axes = [ops.canonical_axis("image.scale_and_translate", d, len(wanted)) for d in spatial_dims]
    pair = [_inexact(v) for v in ops.promote_values(jnp.asarray(scale), jnp.asarray(translation))]
    factors, moves = ([v[k] for k in range(len(axes))] for v in pair)
    return _interpolated(_inexact(x), wanted, axes, factors, moves, how, antialias, precision)
