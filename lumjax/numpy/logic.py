"""Comparisons, logic, bits, and tests of single elements under NumPy's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.numpy.creation import asarray
from lumjax.numpy.elementwise import as_float, as_floats, plain, strong
from lumjax.trace.core import aval_of

ArrayLike = Any


def _comparison(name: str, f: Callable[[Any, Any], Any], doc: str) -> Callable[..., Any]:
    def run(x: ArrayLike, y: ArrayLike, /) -> Any:
        return f(plain(x), plain(y))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = doc
    return run


equal = _comparison("equal", ops.eq, "Whether x == y; NaN equals nothing.")
not_equal = _comparison("not_equal", ops.ne, "Whether x != y.")


def _ordering(
    name: str, f: Callable[[Any, Any], Any], strict: Callable[[Any, Any], Any], doc: str
) -> Callable[..., Any]:
    def compare(x: Any, y: Any) -> Any:
        if not any(dt.is_complex(aval_of(v).dtype) for v in (x, y)):
            return f(x, y)
        a, b = ops.broadcast_values(*ops.promote_values(x, y))
        tie = ops.and_(ops.eq(ops.real(a), ops.real(b)), f(ops.imag(a), ops.imag(b)))
        return ops.or_(strict(ops.real(a), ops.real(b)), tie)

    order = "Complex numbers are ordered by their real part, then by their imaginary part."
    return _comparison(name, compare, f"{doc} {order}")


less = _ordering("less", ops.lt, ops.lt, "Whether x < y.")
less_equal = _ordering("less_equal", ops.le, ops.lt, "Whether x <= y.")
greater = _ordering("greater", ops.gt, ops.gt, "Whether x > y.")
greater_equal = _ordering("greater_equal", ops.ge, ops.gt, "Whether x >= y.")


def truth(x: ArrayLike) -> Any:
    """Whether x is not 0."""
    value = asarray(x)
    return value if dt.is_bool(aval_of(value).dtype) else ops.ne(value, 0)


def logical_and(x: ArrayLike, y: ArrayLike, /) -> Any:
    """Whether both are true."""
    return ops.and_(truth(x), truth(y))


def logical_or(x: ArrayLike, y: ArrayLike, /) -> Any:
    """Whether either is true."""
    return ops.or_(truth(x), truth(y))


def logical_xor(x: ArrayLike, y: ArrayLike, /) -> Any:
    """Whether exactly one is true."""
    return ops.xor(truth(x), truth(y))


def logical_not(x: ArrayLike, /) -> Any:
    """Whether x is false."""
    return ops.not_(truth(x))


bitwise_and = _comparison("bitwise_and", ops.and_, "`x` & y, bit by bit.")
bitwise_or = _comparison("bitwise_or", ops.or_, "`x` | y, bit by bit.")
bitwise_xor = _comparison("bitwise_xor", ops.xor, "`x` ^ y, bit by bit.")
left_shift = bitwise_left_shift = _comparison("left_shift", ops.shift_left, "`x` << y.")


def bitwise_not(x: ArrayLike, /) -> Any:
    """~x, bit by bit."""
    return ops.not_(asarray(x))


invert = bitwise_invert = bitwise_not


def right_shift(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` >> y, keeping the sign."""
    a, b = ops.promote_values(plain(x), plain(y))
    signed = dt.is_signed(aval_of(a).dtype)
    return (ops.shift_right_arithmetic if signed else ops.shift_right_logical)(a, b)


bitwise_right_shift = right_shift


def isnan(x: ArrayLike, /) -> Any:
    """Whether x is NaN."""
    value = asarray(x)
    return ops.ne(value, value)


def isfinite(x: ArrayLike, /) -> Any:
    """Whether x is neither infinite nor NaN."""
    value = asarray(x)
    if not dt.is_inexact(aval_of(value).dtype):
        return ops.full(aval_of(value).shape, True, np.bool_)
    if dt.is_complex(aval_of(value).dtype):
        return ops.and_(ops.is_finite(ops.real(value)), ops.is_finite(ops.imag(value)))
    return ops.is_finite(value)


def isinf(x: ArrayLike, /) -> Any:
    """Whether x is infinite."""
    value = asarray(x)
    if not dt.is_inexact(aval_of(value).dtype):
        return ops.full(aval_of(value).shape, False, np.bool_)
    if dt.is_complex(aval_of(value).dtype):
        return ops.or_(isinf(ops.real(value)), isinf(ops.imag(value)))
    return strong(ops.eq(ops.abs(value), np.inf))


def isposinf(x: ArrayLike, /) -> Any:
    """Whether x is +inf."""
    return ops.eq(as_float(x), np.inf)


def isneginf(x: ArrayLike, /) -> Any:
    """Whether x is -inf."""
    return ops.eq(as_float(x), -np.inf)


def signbit(x: ArrayLike, /) -> Any:
    """Whether the sign bit is set (true for -0.0)."""
    value = asarray(x)
    aval = aval_of(value)
    if dt.is_bool(aval.dtype) or dt.is_unsigned(aval.dtype):
        return ops.full(aval.shape, False, np.bool_)
    if dt.is_floating(aval.dtype):
        value = ops.bitcast(value, np.dtype(f"i{aval.dtype.itemsize}"))
    return strong(ops.lt(value, 0))


def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """|x1| with the sign of x2."""
    a, b = as_floats(x1, x2)
    size = ops.abs(a)
    out = ops.select(signbit(b), ops.neg(size), size)
    return out if aval_of(b).weak else strong(out)


def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: Any = 0.0,
    posinf: Any = None,
    neginf: Any = None,
) -> Any:
    """NaN and infinities replaced; by default by 0 and the dtype's extremes."""
    del copy
    value = asarray(x)
    dtype = aval_of(value).dtype
    if not dt.is_floating(dtype):
        return value
    info = dt.finfo(dtype)
    top = float(info.max) if posinf is None else posinf
    bottom = float(info.min) if neginf is None else neginf
    out = ops.select(ops.ne(value, value), ops.cast(nan, dtype), value)
    out = ops.select(ops.eq(value, np.inf), ops.cast(top, dtype), out)
    return ops.select(ops.eq(value, -np.inf), ops.cast(bottom, dtype), out)
