"""jnp.fft: Fourier transforms along any axes, under NumPy's names.

Every transform takes `s` or `n`, the lengths to which the input is cut or padded with zeros, axes,
and `norm`: "backward" (the inverse is scaled by 1 / n), "forward" or "ortho". The result is complex
(real for irfft and hfft); float64 and complex128 keep double precision under x64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError
from lumjax.numpy.creation import arange, asarray
from lumjax.numpy.manipulation import moveaxis, roll
from lumjax.ops.fourier import FftType
from lumjax.trace.core import aval_of
from lumjax.trace.dim import same

ArrayLike = Any
Lengths = Sequence[int] | None


def _bad(name: str, required: str, got: Any) -> ArgumentValueError:
    return ArgumentValueError(
        operation=f"jnp.fft.{name}", required=required, got=repr(got), fix="correct the argument"
    )


def _scale(name: str, norm: str | None, lengths: Sequence[int]) -> float:
    size = math.prod(lengths)
    match norm:
        case None | "backward":
            return 1.0
        case "ortho":
            return math.sqrt(size) if name.startswith("i") else 1 / math.sqrt(size)
        case "forward":
            return float(size) if name.startswith("i") else 1 / size
        case _:
            raise _bad(name, "norm 'backward', 'forward' or 'ortho'", norm)


def _transformed(
    name: str, kind: FftType, a: ArrayLike, s: Lengths, axes: Lengths, norm: str | None
) -> Any:
    x = asarray(a)
    rank = aval_of(x).ndim
    if s is not None and any(n <= 0 for n in s):
        raise _bad(name, "positive lengths", tuple(s))
    if s is not None and axes is not None and len(s) != len(axes):
        raise _bad(name, "as many lengths as axes", (s, axes))
    chosen = range(rank - len(s), rank) if axes is None and s is not None else axes
    chosen = range(rank) if chosen is None else chosen
    places = [ops.canonical_axis(f"jnp.fft.{name}", k, rank) for k in chosen]
    if len(set(places)) != len(places):
        raise _bad(name, "distinct axes", axes)
    last = tuple(range(rank - len(places), rank))
    x = moveaxis(x, tuple(places), last)
    have: Any = aval_of(x).shape[rank - len(places) :]
    if s is not None:
        lengths = tuple(s)
        x = _fitted(x, (*lengths[:-1], lengths[-1] // 2 + 1) if kind is FftType.IRFFT else lengths)
    elif kind is FftType.IRFFT and places:
        lengths = (*have[:-1], max(0, 2 * (have[-1] - 1)))
    else:
        lengths = tuple(have)
    if kind is FftType.RFFT and lengths and same(lengths[-1], 0):
        raise _bad(name, "at least one sample", tuple(aval_of(x).shape))
    out = ops.fft(x, kind, lengths)
    if (scale := _scale(name, norm, lengths)) != 1.0:
        out = ops.mul(out, np.asarray(scale, aval_of(out).dtype))
    return moveaxis(out, last, tuple(places))


def _fitted(x: Any, lengths: Sequence[int]) -> Any:
    """The last axes cut to `lengths`, or padded with zeros."""
    shape: Any = aval_of(x).shape
    lead = len(shape) - len(lengths)
    config = [(0, 0, 0)] * lead + [
        (0, n - m, 0) for n, m in zip(lengths, shape[lead:], strict=True)
    ]
    return ops.pad(x, np.zeros((), aval_of(x).dtype), config)


def _along(
    name: str, kind: FftType, a: ArrayLike, n: int | None, axis: int | None, norm: str | None
) -> Any:
    if isinstance(axis, (list, tuple)):
        raise _bad(name, "one axis", axis)
    return _transformed(
        name, kind, a, None if n is None else (n,), None if axis is None else (axis,), norm
    )


def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The transform along one axis.

    >>> fft(asarray([1.0, 0.0, 0.0])).real.tolist()
    [1.0, 1.0, 1.0]
    """
    return _along("fft", FftType.FFT, a, n, axis, norm)


def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `fft`."""
    return _along("ifft", FftType.IFFT, a, n, axis, norm)


def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The transform of real input along one axis: n // 2 + 1 terms.

    >>> rfft(asarray([1.0, 0.0, 0.0, 0.0])).real.tolist()
    [1.0, 1.0, 1.0]
    """
    return _along("rfft", FftType.RFFT, a, n, axis, norm)


def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `rfft`; `n` is the length of the output, by default an even one."""
    return _along("irfft", FftType.IRFFT, a, n, axis, norm)


def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The real transform of a signal that is its own reversed conjugate."""
    x = asarray(a)
    if not dt.is_complex(aval_of(x).dtype):
        x = ops.cast(x, np.complex128)
    size = int(2 * (aval_of(x).shape[axis] - 1)) if n is None else n
    out = _along("hfft", FftType.IRFFT, ops.conj(x), n, axis, norm)
    return ops.mul(out, np.asarray(size, aval_of(out).dtype))


def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `hfft`."""
    x = asarray(a)
    size = int(aval_of(x).shape[axis]) if n is None else n
    out = _along("ihfft", FftType.RFFT, x, n, axis, norm)
    return ops.mul(ops.conj(out), np.asarray(1 / size, aval_of(out).dtype))


def fftn(a: ArrayLike, s: Lengths = None, axes: Lengths = None, norm: str | None = None) -> Any:
    """The transform along several axes, by default all."""
    return _transformed("fftn", FftType.FFT, a, s, axes, norm)


def ifftn(a: ArrayLike, s: Lengths = None, axes: Lengths = None, norm: str | None = None) -> Any:
    """The inverse of `fftn`."""
    return _transformed("ifftn", FftType.IFFT, a, s, axes, norm)


def rfftn(a: ArrayLike, s: Lengths = None, axes: Lengths = None, norm: str | None = None) -> Any:
    """The transform of real input along several axes; the last one is halved."""
    return _transformed("rfftn", FftType.RFFT, a, s, axes, norm)


def irfftn(a: ArrayLike, s: Lengths = None, axes: Lengths = None, norm: str | None = None) -> Any:
    """The inverse of `rfftn`."""
    return _transformed("irfftn", FftType.IRFFT, a, s, axes, norm)


def _two(name: str, axes: Sequence[int]) -> Sequence[int]:
    if len(axes) != 2:
        raise _bad(name, "two axes", axes)
    return axes


def fft2(
    a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Any:
    """The transform along two axes."""
    return _transformed("fft2", FftType.FFT, a, s, _two("fft2", axes), norm)


def ifft2(
    a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Any:
    """The inverse of `fft2`."""
    return _transformed("ifft2", FftType.IFFT, a, s, _two("ifft2", axes), norm)


def rfft2(
    a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Any:
    """The transform of real input along two axes."""
    return _transformed("rfft2", FftType.RFFT, a, s, _two("rfft2", axes), norm)


def irfft2(
    a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Any:
    """The inverse of `rfft2`."""
    return _transformed("irfft2", FftType.IRFFT, a, s, _two("irfft2", axes), norm)


def fftfreq(n: int, d: ArrayLike = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `fft`'s terms for samples `d` apart.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    del device
    kind = dt.canonicalize(np.float64 if dtype is None else dtype)
    steps = np.fft.ifftshift(np.arange(-(n // 2), n - n // 2))
    return asarray(steps.astype(kind)) / ops.mul(asarray(d, kind), np.asarray(n, kind))


def rfftfreq(n: int, d: ArrayLike = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `rfft`'s terms for samples `d` apart.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    del device
    kind = dt.canonicalize(np.float64 if dtype is None else dtype)
    return arange(0, n // 2 + 1, dtype=kind) / ops.mul(asarray(d, kind), np.asarray(n, kind))


def _shifted(x: ArrayLike, axes: Any, inverse: bool) -> Any:
    value = asarray(x)
    rank = aval_of(value).ndim
    chosen = range(rank) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    sizes = [int(aval_of(value).shape[k]) for k in chosen]
    steps = tuple(-(n // 2) if inverse else n // 2 for n in sizes)
    return roll(value, steps, tuple(chosen))


def fftshift(x: ArrayLike, axes: Any = None) -> Any:
    """The zero frequency moved to the middle.

    >>> fftshift(asarray([0, 1, 2, 3])).tolist()
    [2, 3, 0, 1]
    """
    return _shifted(x, axes, False)


def ifftshift(x: ArrayLike, axes: Any = None) -> Any:
    """The inverse of `fftshift`."""
    return _shifted(x, axes, True)
