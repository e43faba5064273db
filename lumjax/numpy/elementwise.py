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


def as_float(x: Any) -> Any:
    """The operand as a float or complex array; integers and bools become float32 (float64 under
    x64).
    """
    value = asarray(x)
    aval = aval_of(value)
    if dt.is_inexact(aval.dtype):
        return value
    return ops.cast(value, np.float64, weak=aval.weak)


def as_floats(*xs: Any) -> list[Any]:
    """The operands in one floating-point or complex dtype."""
    return ops.promote_values(*[as_float(x) for x in ops.promote_values(*map(plain, xs))])


def strong(x: Any) -> Any:
    """`x` without a weak type."""
    aval = aval_of(x)
    return ops.cast(x, aval.dtype) if aval.weak else x


def _settled(out: Any, x: Any, y: Any) -> Any:
    """`out`, weak only if both operands were."""
    return out if aval_of(asarray(x)).weak and aval_of(asarray(y)).weak else strong(out)


def plain(x: Any) -> Any:
    """A Python number as it is, anything else as an array."""
    return x if isinstance(x, (bool, int, float, complex)) else asarray(x)


def _unary(name: str, f: Callable[[Any], Any], doc: str) -> Callable[[ArrayLike], Any]:
    def run(x: ArrayLike, /) -> Any:
        return f(as_float(x))

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
    value = ops.log(as_float(x))
    scale = 1 / np.log(10).item()
    if dt.is_complex(aval_of(value).dtype):  # by parts: -inf times a complex 0.43 has NaN in it
        return strong(ops.complex(*(ops.mul(p(value), scale) for p in (ops.real, ops.imag))))
    return strong(ops.mul(value, scale))


def arctan2(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The angle of the point (x2, x1), in [-pi, pi]."""
    return ops.atan2(*as_floats(x1, x2))


atan2 = arctan2


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """sqrt(x1**2 + x2**2) without overflow; its gradient at the origin is 0."""
    return _settled(_hypot(*ops.broadcast_values(*as_floats(x1, x2))), x1, x2)


@custom_jvp
def _hypot(x: Any, y: Any) -> Any:
    a, b = ops.abs(x), ops.abs(y)
    big, small = ops.max(a, b), ops.min(a, b)
    safe = ops.select(ops.eq(big, 0), 1.0, big)
    ratio = ops.div(small, safe)
    out = ops.mul(big, ops.sqrt(ops.add(1.0, ops.mul(ratio, ratio))))
    endless = ops.or_(ops.eq(a, np.inf), ops.eq(b, np.inf))  # even beside a NaN
    return ops.select(endless, np.inf, out)


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
    a, b = ops.promote_values(plain(x), plain(y))
    return ops.or_(a, b) if dt.is_bool(aval_of(a).dtype) else ops.add(a, b)


def subtract(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` - y."""
    return ops.sub(plain(x), plain(y))


def multiply(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` * y; bools combine by and."""
    a, b = ops.promote_values(plain(x), plain(y))
    return ops.and_(a, b) if dt.is_bool(aval_of(a).dtype) else ops.mul(a, b)


def divide(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` / y; integers give floats.

    >>> divide(asarray([1, 2]), 2)
    Array([0.5, 1. ], dtype=float32)
    """
    return ops.div(*as_floats(x, y))


true_divide = divide


def floor_divide(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The quotient rounded down; integers by zero give -1 as in JAX."""
    return ops.floor_divide(plain(x), plain(y))


def remainder(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` modulo y, with the sign of y.

    >>> remainder(-1, 3)
    Array(2, dtype=int32, weak_type=True)
    """
    return ops.remainder(plain(x), plain(y))


mod = remainder


def fmod(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The remainder of the division truncated towards zero, with the sign of x."""
    a, b = ops.promote_values(plain(x), plain(y))
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
    value = as_float(x)
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
    return ops.power(plain(x), plain(y))


pow = power


def float_power(x: ArrayLike, y: ArrayLike, /) -> Any:
    """`x` ** y in floating point."""
    return ops.pow(*as_floats(x, y))


def negative(x: ArrayLike, /) -> Any:
    """-x."""
    return ops.neg(asarray(x))


def positive(x: ArrayLike, /) -> Any:
    """The operand itself."""
    return asarray(x)


def reciprocal(x: ArrayLike, /) -> Any:
    """1 / x."""
    return ops.recip(as_float(x))


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
    return ops.abs(as_float(x))


def sign(x: ArrayLike, /) -> Any:
    """-1, 0 or 1."""
    return ops.sign(asarray(x))


def _rounding(name: str, f: Callable[[Any], Any], doc: str) -> Callable[[ArrayLike], Any]:
    def run(x: ArrayLike, /) -> Any:
        value = asarray(x)
        whole = dt.is_integer(aval_of(value).dtype) or dt.is_bool(aval_of(value).dtype)
        return value if whole else f(as_float(value))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = doc
    return run


floor = _rounding("floor", ops.floor, "The largest integer not above x.")
ceil = _rounding("ceil", ops.ceil, "The smallest integer not below x.")
trunc = fix = _rounding("trunc", ops.trunc, "`x` without its fraction.")


def rint(x: ArrayLike, /) -> Any:
    """The nearest integer as a float, ties to even."""
    value = asarray(x)
    out = _each_part(ops.round, as_float(value))
    return out if dt.is_inexact(aval_of(value).dtype) else strong(out)


def _each_part(f: Callable[[Any], Any], x: Any) -> Any:
    """`f` of a real array, or of the real and the imaginary part of a complex one."""
    if not dt.is_complex(aval_of(x).dtype):
        return f(x)
    return ops.complex(f(ops.real(x)), f(ops.imag(x)))


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
    value = as_float(value)
    if decimals == 0:
        return _each_part(ops.round, value)
    factor = float(10.0**decimals)
    return ops.div(_each_part(ops.round, ops.mul(value, factor)), factor)


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
    a, b = plain(x), plain(y)
    if dt.is_complex(aval_of(a).dtype) or dt.is_complex(aval_of(b).dtype):
        return complexes(*ops.broadcast_values(*ops.promote_values(a, b)))
    return real(a, b)


def fmax(x1: ArrayLike, x2: ArrayLike) -> Any:
    """The larger of two; a NaN yields to a number. Complex numbers are ordered by their real part,
    then by their imaginary part.
    """
    return _preferred(x1, x2, ops.gt, lexicographic.larger)


def fmin(x1: ArrayLike, x2: ArrayLike) -> Any:
    """The smaller of two; a NaN yields to a number. Complex numbers are ordered as by `fmax`."""
    return _preferred(x1, x2, ops.lt, lexicographic.smaller)


def _preferred(x: ArrayLike, y: ArrayLike, wins: Any, complexes: Any) -> Any:
    a, b = ops.broadcast_values(*ops.promote_values(plain(x), plain(y)))
    missing = ops.ne(b, b)
    if not dt.is_complex(aval_of(a).dtype):
        return ops.select(ops.or_(wins(a, b), missing), a, b)
    return ops.select(missing, a, ops.select(ops.ne(a, a), b, complexes(a, b)))


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


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """log(exp(x1) + exp(x2)) without overflow. Where both are -inf the gradient is 0. The imaginary
    part of complex results is in [-pi, pi).
    """
    return _logaddexp(*ops.broadcast_values(*as_floats(x1, x2)))


@custom_jvp
def _logaddexp(a: Any, b: Any) -> Any:
    if dt.is_complex(aval_of(a).dtype):
        top = lexicographic.larger(a, b)
        rest = ops.sub(ops.add(a, b), ops.add(top, top))
        out = ops.add(top, ops.log1p(ops.exp(rest)))
        turn = float(np.pi)
        angle = ops.sub(mod(ops.add(ops.imag(out), turn), 2 * turn), turn)
        return ops.complex(ops.real(out), angle)
    top, gap = ops.max(a, b), _gap(a, b)
    return ops.add(top, ops.log1p(ops.exp(ops.neg(ops.abs(gap)))))


def _gap(a: Any, b: Any) -> Any:
    """The difference; of equal infinities 0, but infinite where both are -inf."""
    gap = ops.sub(a, b)
    if dt.is_complex(aval_of(gap).dtype):
        return gap
    gap = ops.select(ops.and_(ops.eq(a, b), ops.ne(gap, gap)), 0.0, gap)
    return ops.select(ops.eq(ops.max(a, b), -np.inf), -np.inf, gap)


@_logaddexp.defjvp
def _logaddexp_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (a, b), (s, t) = primals, tangents
    slopes = ops.logistic(_gap(a, b)), ops.logistic(_gap(b, a))
    return _logaddexp(a, b), ops.add(ops.mul(s, slopes[0]), ops.mul(t, slopes[1]))


def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """log2(2**x1 + 2**x2) without overflow."""
    a, b = as_floats(x1, x2)
    ln2 = float(np.log(2))
    return _settled(ops.div(logaddexp(ops.mul(a, ln2), ops.mul(b, ln2)), ln2), x1, x2)


def sinc(x: ArrayLike, /) -> Any:
    """sin(pi x) / (pi x), 1 at 0."""
    value = as_float(x)
    zero = ops.eq(value, 0)
    angle = ops.mul(value, float(np.pi))
    safe = ops.select(zero, 1.0, angle)
    return ops.select(
        zero, ops.sub(1.0, ops.div(ops.mul(angle, angle), 6.0)), ops.div(ops.sin(safe), safe)
    )


def deg2rad(x: ArrayLike, /) -> Any:
    """Degrees as radians."""
    return ops.mul(as_float(x), float(np.pi / 180))


def rad2deg(x: ArrayLike, /) -> Any:
    """Radians as degrees."""
    return ops.mul(as_float(x), float(180 / np.pi))


radians, degrees = deg2rad, rad2deg


def nextafter(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The next float after x in the direction of y."""
    return ops.nextafter(*as_floats(x, y))


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """0 below 0, x2 at 0, 1 above."""
    a, b = as_floats(x1, x2)
    a, b = ops.broadcast_values(a, b)
    out = ops.select(ops.eq(a, 0), b, ops.select(ops.lt(a, 0), 0.0, 1.0))
    return _settled(ops.select(ops.ne(a, a), a, out), x1, x2)
