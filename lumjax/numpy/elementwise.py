"""Elementwise functions under NumPy's names: operands broadcast and promote by JAX's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.control.custom import custom_jvp
from lumjax.errors import ArgumentValueError
from lumjax.numpy import lexicographic
from lumjax.numpy.creation import asarray
from lumjax.trace.core import aval_of

ArrayLike = Any


def _float(x: Any) -> Any:
    """The operand as a float or complex array; integers and bools become float32 (float64 under
    x64).
    """
    value = asarray(x)
    aval = aval_of(value)
    if dt.is_inexact(aval.dtype):
        return value
    return ops.cast(value, np.float64, weak=aval.weak)


def _floats(*xs: Any) -> list[Any]:
    return ops.promote_values(*[_float(x) for x in ops.promote_values(*map(_plain, xs))])


def strong(x: Any) -> Any:
    """`x` without a weak type."""
    aval = aval_of(x)
    return ops.cast(x, aval.dtype) if aval.weak else x


def _settled(out: Any, x: Any, y: Any) -> Any:
    """`out`, weak only if both operands were."""
    return out if aval_of(asarray(x)).weak and aval_of(asarray(y)).weak else strong(out)


def _plain(x: Any) -> Any:
    return x if isinstance(x, (bool, int, float, complex)) else asarray(x)


def _unary(name: str, f: Callable[[Any], Any], doc: str) -> Callable[[ArrayLike], Any]:
    def run(x: ArrayLike, /) -> Any:
        return f(_float(x))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = doc
    return run


exp = _unary("exp", ops.exp, "e**x.\n\n>>> exp(0.0)\nArray(1., dtype=float32, weak_type=True)\n")
exp2 = _unary("exp2", ops.exp2, "2**x.")
expm1 = _unary("expm1", ops.expm1, "e**x - 1, accurate near 0.")
log = _unary("log", ops.log, "The natural logarithm; NaN below 0, -inf at 0.")
log2 = _unary("log2", lambda x: strong(ops.log2(x)), "The logarithm to base 2.")
log1p = _unary("log1p", ops.log1p, "log(1 + x), accurate near 0.")
sqrt = _unary("sqrt", ops.sqrt, "The square root; NaN below 0.")
cbrt = _unary("cbrt", ops.cbrt, "The real cube root.")
sin = _unary("sin", ops.sin, "The sine of x in radians.")
cos = _unary("cos", ops.cos, "The cosine of x in radians.")
tan = _unary("tan", ops.tan, "The tangent of x in radians.")
arcsin = asin = _unary("arcsin", ops.asin, "The angle whose sine is x, in [-pi/2, pi/2].")
arccos = acos = _unary("arccos", ops.acos, "The angle whose cosine is x, in [0, pi].")
arctan = atan = _unary("arctan", ops.atan, "The angle whose tangent is x, in (-pi/2, pi/2).")
sinh = _unary("sinh", ops.sinh, "The hyperbolic sine.")
cosh = _unary("cosh", ops.cosh, "The hyperbolic cosine.")
tanh = _unary("tanh", ops.tanh, "The hyperbolic tangent.")
arcsinh = asinh = _unary("arcsinh", ops.asinh, "The inverse hyperbolic sine.")
arccosh = acosh = _unary("arccosh", ops.acosh, "The inverse hyperbolic cosine.")
arctanh = atanh = _unary("arctanh", ops.atanh, "The inverse hyperbolic tangent.")


def log10(x: ArrayLike, /) -> Any:
    """The logarithm to base 10."""
    value = _float(x)
    return strong(ops.mul(ops.log(value), 1 / np.log(10).item()))


def arctan2(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The angle of the point (x2, x1), in [-pi, pi]."""
    return ops.atan2(*_floats(x1, x2))


atan2 = arctan2


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """sqrt(x1**2 + x2**2) without overflow; its gradient at the origin is 0."""
    return _settled(_hypot(*ops.broadcast_values(*_floats(x1, x2))), x1, x2)


@custom_jvp
def _hypot(x: Any, y: Any) -> Any:
    a, b = ops.abs(x), ops.abs(y)
    big, small = ops.max(a, b), ops.min(a, b)
    safe = ops.select(ops.eq(big, 0), 1.0, big)
    ratio = ops.div(small, safe)
    out = ops.mul(big, ops.sqrt(ops.add(1.0, ops.mul(ratio, ratio))))
    return ops.select(ops.eq(big, np.inf), np.inf, out)


@_hypot.defjvp
def _hypot_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The slopes x / h, y / h: those of the larger and the smaller would fail at ties.

    The square roots are 0 where they are chosen, and have no derivative there.
    """
    out = _hypot(*primals)
    origin = ops.eq(out, 0)
    over = ops.select(origin, 1.0, out)
    slopes = [ops.select(origin, ops.sqrt(ops.mul(x, x)), ops.div(x, over)) for x in primals]
    products = [ops.mul(s, t) for s, t in zip(slopes, tangents, strict=True)]
    return out, ops.add(*products)


def add(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` + y; bools combine by or.

    >>> add(asarray([1.0, 2.0]), 0.5)
    Array([1.5, 2.5], dtype=float32)
    """
    a, b = ops.promote_values(_plain(x), _plain(y))
    return ops.or_(a, b) if dt.is_bool(aval_of(a).dtype) else ops.add(a, b)


def subtract(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` - y."""
    return ops.sub(_plain(x), _plain(y))


def multiply(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` * y; bools combine by and."""
    a, b = ops.promote_values(_plain(x), _plain(y))
    return ops.and_(a, b) if dt.is_bool(aval_of(a).dtype) else ops.mul(a, b)


def divide(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` / y; integers give floats.

    >>> divide(asarray([1, 2]), 2)
    Array([0.5, 1. ], dtype=float32)
    """
    return ops.div(*_floats(x, y))


true_divide = divide


def floor_divide(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The quotient rounded down; integers by zero give -1 as in JAX."""
    return ops.floor_divide(_plain(x), _plain(y))


def remainder(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` modulo y, with the sign of y.

    >>> remainder(-1, 3)
    Array(2, dtype=int32, weak_type=True)
    """
    return ops.remainder(_plain(x), _plain(y))


mod = remainder


def fmod(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The remainder of the division truncated towards zero, with the sign of x."""
    a, b = ops.promote_values(_plain(x), _plain(y))
    if dt.is_bool(aval_of(a).dtype):
        a, b = ops.cast(a, np.int32), ops.cast(b, np.int32)
    if dt.is_integer(aval_of(a).dtype):
        b = ops.select(ops.eq(b, 0), 1, b)
    return ops.rem(a, b)


def divmod(x: ArrayLike, y: ArrayLike, /) -> tuple[Any, Any]:
    """(floor_divide(x, y), remainder(x, y))."""
    return floor_divide(x, y), remainder(x, y)


def modf(x: ArrayLike, /) -> tuple[Any, Any]:
    """The fractional and the integral part, both with x's sign."""
    value = _float(x)
    whole = ops.trunc(value)
    return ops.sub(value, whole), whole


def power(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` ** y. A known integer exponent is exact repeated multiplication.

    Integers to a negative known power raise ArgumentValueError; to a computed one they give 0,
    unless the base is 1 or -1.

    >>> power(asarray([2, 3]), 2)
    Array([4, 9], dtype=int32)
    """
    if isinstance(y, (int, np.integer)) and not isinstance(y, bool):
        return ops.power(asarray(x), int(y))
    return ops.power(_plain(x), _plain(y))


pow = power


def float_power(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` ** y in floating point."""
    return ops.pow(*_floats(x, y))


def negative(x: ArrayLike, /) -> Any:
    """-x."""
    return ops.neg(asarray(x))


def positive(x: ArrayLike, /) -> Any:
    """The operand itself."""
    return asarray(x)


def reciprocal(x: ArrayLike, /) -> Any:
    """1 / x."""
    return ops.recip(_float(x))


def square(x: ArrayLike, /) -> Any:
    """`x` * x; bools give integers.

    >>> jnp.square(jnp.array([-2, 3]))
    Array([4, 9], dtype=int32)
    """
    value = asarray(x)
    return ops.square(ops.cast(value, np.int32) if dt.is_bool(aval_of(value).dtype) else value)


def absolute(x: ArrayLike, /) -> Any:
    """|x|; the gradient at 0 is that of JAX, 1."""
    value = asarray(x)
    return value if dt.is_bool(aval_of(value).dtype) else ops.abs(value)


abs = absolute


def fabs(x: ArrayLike, /) -> Any:
    """|x| as a float."""
    return ops.abs(_float(x))


def sign(x: ArrayLike, /) -> Any:
    """-1, 0 or 1."""
    return ops.sign(asarray(x))


def _rounding(name: str, f: Callable[[Any], Any], doc: str) -> Callable[[ArrayLike], Any]:
    def run(x: ArrayLike, /) -> Any:
        value = asarray(x)
        whole = dt.is_integer(aval_of(value).dtype) or dt.is_bool(aval_of(value).dtype)
        return value if whole else f(_float(value))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = doc
    return run


floor = _rounding("floor", ops.floor, "The largest integer not above x.")
ceil = _rounding("ceil", ops.ceil, "The smallest integer not below x.")
trunc = fix = _rounding("trunc", ops.trunc, "`x` without its fraction.")


def rint(x: ArrayLike, /) -> Any:
    """The nearest integer as a float, ties to even."""
    value = asarray(x)
    out = ops.round(_float(value))
    return out if dt.is_inexact(aval_of(value).dtype) else strong(out)


def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Any:
    """The nearest multiple of 10**-decimals, ties to even.

    >>> round(asarray([0.5, 1.5, 2.5]))
    Array([0., 2., 2.], dtype=float32)
    """
    del out
    value = asarray(a)
    if dt.is_integer(aval_of(value).dtype):
        if decimals < 0:
            raise ArgumentValueError(
                operation="jnp.round",
                required="decimals >= 0 for integers",
                got=str(decimals),
                fix="convert to float first",
            )
        return value
    value = _float(value)
    if decimals == 0:
        return ops.round(value)
    factor = float(10.0**decimals)
    return ops.div(ops.round(ops.mul(value, factor)), factor)


around = round


def maximum(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The larger of two; NaN where either is. Ties share the gradient.

    >>> maximum(asarray([1, 5]), 3)
    Array([3, 5], dtype=int32)
    """
    return _extremum(x, y, ops.max, lexicographic.larger)


def minimum(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The smaller of two; NaN where either is."""
    return _extremum(x, y, ops.min, lexicographic.smaller)


def _extremum(x: ArrayLike, y: ArrayLike, real: Any, complexes: Any) -> Any:
    a, b = _plain(x), _plain(y)
    if dt.is_complex(aval_of(a).dtype) or dt.is_complex(aval_of(b).dtype):
        return complexes(*ops.broadcast_values(*ops.promote_values(a, b)))
    return real(a, b)


def fmax(x1: ArrayLike, x2: ArrayLike) -> Any:
    """The larger of two; a NaN yields to a number."""
    a, b = ops.broadcast_values(*ops.promote_values(_plain(x1), _plain(x2)))
    return ops.select(ops.or_(ops.gt(a, b), ops.ne(b, b)), a, b)


def fmin(x1: ArrayLike, x2: ArrayLike) -> Any:
    """The smaller of two; a NaN yields to a number."""
    a, b = ops.broadcast_values(*ops.promote_values(_plain(x1), _plain(x2)))
    return ops.select(ops.or_(ops.lt(a, b), ops.ne(b, b)), a, b)


def clip(
    arr: ArrayLike | None = None,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    a: Any = None,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
) -> Any:
    """`arr` limited to [min, max]; either bound may be missing. At a bound the gradient is one
    half.

    >>> clip(asarray([-1.0, 0.5, 2.0]), 0, 1)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    out = asarray(a if arr is None else arr)
    low = a_min if min is None else min
    high = a_max if max is None else max
    if low is not None:
        out = maximum(low, out)
    return out if high is None else minimum(high, out)


def _comparison(name: str, f: Callable[[Any, Any], Any], doc: str) -> Callable[..., Any]:
    def run(x: ArrayLike, y: ArrayLike, /) -> Any:
        return f(_plain(x), _plain(y))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = doc
    return run


equal = _comparison("equal", ops.eq, "Whether x == y; NaN equals nothing.")
not_equal = _comparison("not_equal", ops.ne, "Whether x != y.")
less = _comparison("less", ops.lt, "Whether x < y.")
less_equal = _comparison("less_equal", ops.le, "Whether x <= y.")
greater = _comparison("greater", ops.gt, "Whether x > y.")
greater_equal = _comparison("greater_equal", ops.ge, "Whether x >= y.")


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
    a, b = ops.promote_values(_plain(x), _plain(y))
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
    return ops.eq(_float(x), np.inf)


def isneginf(x: ArrayLike, /) -> Any:
    """Whether x is -inf."""
    return ops.eq(_float(x), -np.inf)


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
    a, b = _floats(x1, x2)
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


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """log(exp(x1) + exp(x2)) without overflow. Where both are -inf the gradient is 0."""
    return _logaddexp(*ops.broadcast_values(*_floats(x1, x2)))


@custom_jvp
def _logaddexp(a: Any, b: Any) -> Any:
    top, gap = ops.max(a, b), _gap(a, b)
    return ops.add(top, ops.log1p(ops.exp(ops.neg(ops.abs(gap)))))


def _gap(a: Any, b: Any) -> Any:
    """The difference; of equal infinities 0, but infinite where both are -inf."""
    gap = ops.sub(a, b)
    gap = ops.select(ops.and_(ops.eq(a, b), ops.ne(gap, gap)), 0.0, gap)
    return ops.select(ops.eq(ops.max(a, b), -np.inf), -np.inf, gap)


@_logaddexp.defjvp
def _logaddexp_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (a, b), (s, t) = primals, tangents
    slopes = ops.logistic(_gap(a, b)), ops.logistic(_gap(b, a))
    return _logaddexp(a, b), ops.add(ops.mul(s, slopes[0]), ops.mul(t, slopes[1]))


def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """log2(2**x1 + 2**x2) without overflow."""
    a, b = _floats(x1, x2)
    ln2 = float(np.log(2))
    return _settled(ops.div(logaddexp(ops.mul(a, ln2), ops.mul(b, ln2)), ln2), x1, x2)


def sinc(x: ArrayLike, /) -> Any:
    """sin(pi x) / (pi x), 1 at 0."""
    value = _float(x)
    zero = ops.eq(value, 0)
    angle = ops.mul(value, float(np.pi))
    safe = ops.select(zero, 1.0, angle)
    return ops.select(
        zero, ops.sub(1.0, ops.div(ops.mul(angle, angle), 6.0)), ops.div(ops.sin(safe), safe)
    )


def deg2rad(x: ArrayLike, /) -> Any:
    """Degrees as radians."""
    return ops.mul(_float(x), float(np.pi / 180))


def rad2deg(x: ArrayLike, /) -> Any:
    """Radians as degrees."""
    return ops.mul(_float(x), float(180 / np.pi))


radians, degrees = deg2rad, rad2deg


def nextafter(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The next float after x in the direction of y."""
    return ops.nextafter(*_floats(x, y))


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """0 below 0, x2 at 0, 1 above."""
    a, b = _floats(x1, x2)
    a, b = ops.broadcast_values(a, b)
    out = ops.select(ops.eq(a, 0), b, ops.select(ops.lt(a, 0), 0.0, 1.0))
    return _settled(ops.select(ops.ne(a, a), a, out), x1, x2)


def real(val: ArrayLike, /) -> Any:
    """The real part."""
    value = asarray(val)
    return ops.real(value) if dt.is_complex(aval_of(value).dtype) else value


def imag(val: ArrayLike, /) -> Any:
    """The imaginary part; 0 for real input."""
    value = asarray(val)
    if dt.is_complex(aval_of(value).dtype):
        return ops.imag(value)
    return ops.full(aval_of(value).shape, 0, aval_of(value).dtype)


def conjugate(x: ArrayLike, /) -> Any:
    """The complex conjugate."""
    value = asarray(x)
    return ops.conj(value) if dt.is_complex(aval_of(value).dtype) else value


conj = conjugate


def angle(z: ArrayLike, deg: bool = False) -> Any:
    """The angle of a complex number in the plane, in radians or degrees."""
    value = _float(z)
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
