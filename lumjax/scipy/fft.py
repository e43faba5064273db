"""The discrete cosine transform of type 2 and its inverse.

>>> [round(v, 4) for v in dct(jnp.array([1.0, 1.0])).tolist()]
[4.0, 0.0]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops
from lumjax.errors import ArgumentValueError
from lumjax.numpy.linalg import inexact
from lumjax.trace.core import aval_of

__all__ = ["dct", "idct"]


def _prepared(name: str, x: Any, type: int, n: int | None, axis: int, norm: str | None) -> Any:
    if type != 2 or norm not in (None, "backward", "ortho"):
        raise ArgumentValueError(
            operation=f"scipy.fft.{name}",
            required="type 2 and norm 'backward' or 'ortho'",
            got=f"type={type!r}, norm={norm!r}",
            fix="scale the result yourself for other norms",
        )
    value = jnp.moveaxis(inexact(x)[0], axis, -1)
    if n is None:
        return value
    have: Any = aval_of(value).shape[-1]
    config = [(0, 0, 0)] * (aval_of(value).ndim - 1) + [(0, n - have, 0)]
    return ops.pad(value, np.zeros((), aval_of(value).dtype), config)


def _scale(size: int, dtype: dt.DType) -> Any:
    """The orthonormal transform's divisor of each term."""
    factor = np.full(size, 2.0)
    factor[:1] = 4.0
    return jnp.asarray(np.sqrt(factor * size).astype(dtype))


def _twist(size: int, dtype: dt.DType, sign: float) -> Any:
    wide = np.complex64 if dtype == dt.float32 else np.complex128
    return jnp.asarray(np.exp(sign * 0.5j * math.pi * np.arange(size) / max(size, 1)).astype(wide))


def dct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Any:
    """The cosine transform of real arrays along an axis, cut or padded to n elements first."""
    value = _prepared("dct", x, type, n, axis, norm)
    if dt.is_complex(aval_of(value).dtype):
        parts = [dct(p, norm=norm) for p in (ops.real(value), ops.imag(value))]
        return jnp.moveaxis(ops.complex(*parts), -1, axis)
    size, kind = int(aval_of(value).shape[-1]), aval_of(value).dtype
    mixed = jnp.concatenate([value[..., ::2], jnp.flip(value[..., 1::2], -1)], axis=-1)
    out = 2 * ops.real(jnp.fft.fft(mixed) * _twist(size, kind, -1.0))
    if norm == "ortho":
        out = out / _scale(size, kind)
    return jnp.moveaxis(out, -1, axis)


def idct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Any:
    """The inverse of `dct`."""
    value = _prepared("idct", x, type, n, axis, norm)
    if dt.is_complex(aval_of(value).dtype):
        parts = [idct(p, norm=norm) for p in (ops.real(value), ops.imag(value))]
        return jnp.moveaxis(ops.complex(*parts), -1, axis)
    size, kind = int(aval_of(value).shape[-1]), aval_of(value).dtype
    if norm != "ortho":
        value = value / _scale(size, kind)
    value = value / _scale(size, kind)
    found = ops.real(jnp.fft.ifft(value * _twist(size, kind, 1.0) * (2 * size)))
    place = np.empty(size, np.int64)
    half = -(-size // 2)
    place[::2], place[1::2] = np.arange(half), np.arange(size - 1, half - 1, -1)
    return jnp.moveaxis(found[..., place], -1, axis)
