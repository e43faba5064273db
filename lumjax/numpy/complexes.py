"""The parts of complex numbers under NumPy's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.numpy.creation import asarray
from lumjax.numpy.elementwise import as_float, rad2deg
from lumjax.trace.core import aval_of

ArrayLike = Any


def real(val: ArrayLike, /) -> Any:
    """The real part."""
    value = asarray(val)
    return ops.real(value) if dt.is_complex(aval_of(value).dtype) else value


def imag(val: ArrayLike, /) -> Any:
    """The imaginary part; 0 for real input."""
    value = asarray(val)
    if dt.is_complex(aval_of(value).dtype):
        return ops.imag(value)
    zero = ops.full(aval_of(value).shape, 0, aval_of(value).dtype)
    return ops.cast(zero, aval_of(value).dtype, weak=aval_of(value).weak)


def conjugate(x: ArrayLike, /) -> Any:
    """The complex conjugate."""
    value = asarray(x)
    return ops.conj(value) if dt.is_complex(aval_of(value).dtype) else value


conj = conjugate


def angle(z: ArrayLike, deg: bool = False) -> Any:
    """The angle of a complex number in the plane, in radians or degrees."""
    value = as_float(z)
    out = ops.atan2(imag(value), real(value))
    return rad2deg(out) if deg else out


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex: of an array, a number, or anything that has a dtype."""
    if x is None:
        return False
    return dt.is_complex(np.dtype(x.dtype) if hasattr(x, "dtype") else aval_of(asarray(x)).dtype)


def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex."""
    return not iscomplexobj(x)
