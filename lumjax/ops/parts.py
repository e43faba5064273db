"""Complex numbers and their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.ops.elementwise import (
    asvalue,
    binary,
    constant,
    neg,
    unary,
)
from lumjax.ops.record import (
    COMPLEX,
    Accepts,
    NDArray,
    real_part,
)
from lumjax.trace.core import Linear, Value, aval_of

_PARTS = Accepts("a float32 or float64", frozenset({dt.float32, dt.float64}))


def _whole(dtype: dt.DType) -> dt.DType:
    return {dt.float32: dt.complex64, dt.float64: dt.complex128}[dtype]


def _assemble(x: NDArray, y: NDArray) -> NDArray:
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), _whole(x.dtype))
    out.real, out.imag = x, y  # x + 1j * y would turn an infinite y into a NaN real part
    return out


def _complex_tangent(t: Value, part: int) -> Value:
    zero = constant(0, t)
    return complex(t, zero) if part == 0 else complex(zero, t)


def _complex_transpose(ct: Value, x: Any, y: Any) -> Sequence[Value | None]:
    return (
        real(ct) if isinstance(x, Linear) else None,
        imag(neg(ct)) if isinstance(y, Linear) else None,
    )


complex_p, complex = binary(
    "complex", _assemble, _PARTS, "x + i y, from real parts.",
    tangents=(lambda t, *_: _complex_tangent(t, 0), lambda t, *_: _complex_tangent(t, 1)),
    transpose=_complex_transpose, result=_whole,
)  # fmt: skip
real_p, _real = unary(
    "real", np.real, COMPLEX, "The real part of a complex number.",
    tangent=lambda t, *_: real(t), transpose=lambda ct, _: (complex(ct, constant(0, ct)),),
    result=real_part,
)  # fmt: skip
imag_p, _imag = unary(
    "imag", np.imag, COMPLEX, "The imaginary part of a complex number.",
    tangent=lambda t, *_: imag(t), transpose=lambda ct, _: (complex(constant(0, ct), neg(ct)),),
    result=real_part,
)  # fmt: skip
conj_p, _conj = unary(
    "conj", np.conj, COMPLEX, "The complex conjugate.",
    tangent=lambda t, *_: conj(t), transpose=lambda ct, _: (conj(ct),),
)  # fmt: skip


def _is_complex(x: Value) -> bool:
    return dt.is_complex(aval_of(x).dtype)


def real(x: Value) -> Value:
    """The real part; real arrays are returned as they are."""
    x = asvalue(x, "real")
    return _real(x) if _is_complex(x) else x


def imag(x: Value) -> Value:
    """The imaginary part; 0 for real arrays."""
    x = asvalue(x, "imag")
    return _imag(x) if _is_complex(x) else constant(0, x)


def conj(x: Value) -> Value:
    """The complex conjugate; real arrays are returned as they are."""
    x = asvalue(x, "conj")
    return _conj(x) if _is_complex(x) else x
