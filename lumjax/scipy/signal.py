"""Convolutions under scipy.signal's names.

>>> convolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])).tolist()
[1.0, 3.0, 2.0]
"""

from __future__ import annotations

from typing import Any

from lumjax import lax
from lumjax import numpy as jnp
from lumjax.errors import ArgumentValueError, ShapeError, UnsupportedError
from lumjax.numpy.linalg import inexact

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve"]

ArrayLike = Any
MODES = ("full", "same", "valid")


def _operands(operation: str, in1: Any, in2: Any, mode: str, rank: int | None) -> tuple[Any, Any]:
    """Both as floats; of "valid" the larger one first."""
    x, y = inexact(in1, in2)
    one, two = jnp.shape(x), jnp.shape(y)
    if mode not in MODES:
        raise ArgumentValueError(
            operation=operation, required=f"one of the modes {', '.join(MODES)}", got=repr(mode),
            fix="choose one",
        )  # fmt: skip
    fits = [a >= b for a, b in zip(one, two, strict=False)]
    swap = mode == "valid" and not all(fits)
    if len(one) != len(two) or 0 in (*one, *two) or rank not in (None, len(one)):
        required = f"two arrays of {'the same' if rank is None else rank} axes with elements"
    elif swap and any(a > b for a, b in zip(one, two, strict=True)):
        required = 'for "valid" one array at least as large as the other along every axis'
    else:
        return (y, x) if swap else (x, y)
    raise ShapeError(
        operation=operation, required=required, got=f"shapes {one} and {two}",
        fix="reshape or pad the operands",
    )  # fmt: skip


def _slid(x: Any, y: Any, mode: str, precision: Any) -> Any:
    """The convolution by its definition."""
    rank = jnp.ndim(x)
    if not rank:
        return x * y
    sizes: tuple[int, ...] = jnp.shape(y)
    padding = {
        "full": [(n - 1, n - 1) for n in sizes],
        "same": [(n // 2, (n - 1) // 2) for n in sizes],
        "valid": [(0, 0) for _ in sizes],
    }[mode]
    out = lax.conv_general_dilated(
        x[None, None], jnp.flip(y)[None, None], (1,) * rank, padding, precision=precision
    )
    return out[0, 0]


def convolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: Any = None
) -> Any:
    """The convolution of two arrays: all of it ("full"), as much as `in1` ("same"), or where they
    overlap wholly ("valid"). `method` is "direct" ("auto") or "fft".

    Shapes: (n, ...) and (m, ...) -> (n + m - 1, ...), (n, ...) or (|n - m| + 1, ...).

    >>> convolve(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0]), mode="valid").tolist()
    [3.0, 5.0]
    """
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    if method not in ("auto", "direct"):
        raise ArgumentValueError(
            operation="scipy.signal.convolve", required='method "auto", "direct" or "fft"',
            got=repr(method), fix="choose one",
        )  # fmt: skip
    x, y = _operands("scipy.signal.convolve", in1, in2, mode, None)
    return _slid(x, y, mode, precision)


def correlate(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: Any = None
) -> Any:
    """The cross-correlation: a convolution with `in2` reversed and conjugated.

    >>> correlate(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0]), mode="same").tolist()
    [1.0, 2.0, 3.0]
    """
    return convolve(in1, jnp.flip(jnp.conj(jnp.asarray(in2))), mode, method, precision)


def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: Any = None,
) -> Any:
    """The convolution of two matrices, with zeros around them.

    >>> convolve2d(jnp.eye(2), jnp.ones((1, 2))).tolist()
    [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    """
    if boundary != "fill" or fillvalue != 0:
        raise UnsupportedError(
            operation="scipy.signal.convolve2d", required="boundary='fill' and fillvalue=0",
            got=f"{boundary!r}, {fillvalue}", fix="pad in1 with jnp.pad, and use mode='valid'",
        )  # fmt: skip
    x, y = _operands("scipy.signal.convolve2d", in1, in2, mode, 2)
    return _slid(x, y, mode, precision)


def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: Any = None,
) -> Any:
    """The cross-correlation of two matrices, with zeros around them.

    >>> correlate2d(jnp.eye(2), jnp.array([[1.0, 2.0]]), mode="valid").tolist()
    [[1.0], [2.0]]
    """
    turned = jnp.flip(jnp.conj(jnp.asarray(in2)))
    return convolve2d(in1, turned, mode, boundary, fillvalue, precision)


def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: Any = None) -> Any:
    """The convolution by Fourier transforms, over `axes` (all by default).

    Along the other axes the operands broadcast.

    >>> fftconvolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])).round(3).tolist()
    [1.0, 3.0, 2.0]
    """
    if axes is None:
        x, y = _operands("scipy.signal.fftconvolve", in1, in2, mode, None)
        over = tuple(range(jnp.ndim(x)))
    else:
        x, y = inexact(in1, in2)
        rank = jnp.ndim(x)
        over = tuple(k % rank for k in ((axes,) if isinstance(axes, int) else axes))
    if not over:
        return x * y
    one, two = ([jnp.shape(v)[k] for k in over] for v in (x, y))
    full = [a + b - 1 for a, b in zip(one, two, strict=True)]
    if jnp.iscomplexobj(x):
        product = jnp.fft.fftn(x, full, over) * jnp.fft.fftn(y, full, over)
        out = jnp.fft.ifftn(product, full, over)
    else:
        product = jnp.fft.rfftn(x, full, over) * jnp.fft.rfftn(y, full, over)
        out = jnp.fft.irfftn(product, full, over)
    kept = {"full": full, "same": one, "valid": [a - b + 1 for a, b in zip(one, two, strict=True)]}
    index = [slice(None)] * jnp.ndim(out)
    for k, n, whole in zip(over, kept[mode], full, strict=True):
        index[k] = slice((whole - n) // 2, (whole - n) // 2 + n)
    return out[tuple(index)]
