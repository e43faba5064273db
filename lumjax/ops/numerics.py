"""The meaning of scalar functions where NumPy's own is not the one lumjax promises.

Plain functions of NumPy arrays, shared by the records' `eval` and by `ScalarOp.numpy`: casts
saturate, integer
division by zero is defined, shifts by the width or more are defined. Callers silence floating-point
warnings.
"""

from __future__ import annotations

import math
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt

NDArray: TypeAlias = np.ndarray[Any, Any]


@cache
def special() -> ModuleType:
    """scipy.special, loaded on first use (it takes a large part of a second)."""
    import scipy.special  # noqa: PLC0415

    return scipy.special


def cast_array(x: NDArray, dtype: dt.DType) -> NDArray:
    """`x` in another dtype: float to integer truncates and saturates with NaN -> 0, integers wrap,
    complex to real
    drops the imaginary part, anything to bool is `x != 0`.
    """
    if dt.is_complex(x.dtype) and not dt.is_complex(dtype) and dtype != dt.bool_:
        x = x.real
    if dt.is_floating(x.dtype) and dt.is_integer(dtype):
        return saturate(x, dtype)
    if dtype == dt.bool_:
        return np.asarray(x != np.zeros((), x.dtype))
    return x.astype(dtype)


def saturate(x: NDArray, dtype: dt.DType) -> NDArray:
    """A float array as integers: truncated, clamped to the dtype's range, NaN -> 0."""
    info = np.iinfo(dtype)
    wide = x.astype(np.float64)  # exact for every float dtype
    end = 2.0 ** (info.bits - 1 if dt.is_signed(dtype) else info.bits)  # max + 1, exact
    inside = (wide > float(info.min) - 1.0) & (wide < end)
    whole = np.where(inside, wide, 0.0).astype(dtype)
    below = np.where(wide <= float(info.min), dtype.type(info.min), whole)
    return np.where(wide >= end, dtype.type(info.max), below).astype(dtype)


def divide(x: NDArray, y: NDArray) -> NDArray:
    """Truncated division of integers; x / 0 is -1 (all bits one), INT_MIN / -1 is INT_MIN."""
    zero, overflow = _exceptions(x, y)
    safe = np.where(zero | overflow, np.ones((), y.dtype), y)
    floor = np.floor_divide(x, safe)
    inexact = (floor * safe != x) & ((x < 0) != (safe < 0))
    quotient = floor + inexact.astype(x.dtype)
    return np.where(zero, np.invert(np.zeros((), x.dtype)), quotient)


def remainder(x: NDArray, y: NDArray) -> NDArray:
    """The remainder of truncated division, with x's sign. Integers: x rem 0 is x, INT_MIN rem -1 is
    0.
    """
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    zero, overflow = _exceptions(x, y)
    result = np.fmod(x, np.where(zero | overflow, np.ones((), y.dtype), y))
    return np.where(zero, x, result)


def _exceptions(x: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
    zero = y == 0
    if x.dtype.kind == "u":
        return zero, np.zeros_like(zero)
    return zero, (y == -1) & (x == np.iinfo(x.dtype).min)


def power(x: NDArray, y: NDArray) -> NDArray:
    """Powers of integers modulo 2**bits; a negative exponent truncates the real power towards
    zero, and 0 to a negative power is -1, as 1 / 0 is.
    """
    result = np.ones_like(x)
    base = np.where(y < 0, divide(np.ones_like(x), x), x)
    exponent = np.abs(y).view(_unsigned(y.dtype))  # |INT_MIN| is right as an unsigned number
    while exponent.any():
        result = np.where(exponent & 1, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return np.where((x == 0) & (y < 0), np.invert(np.zeros((), x.dtype)), result)


def integer_power(x: NDArray, y: int) -> NDArray:
    """x**y by repeated squaring, in the order that the expansion uses."""
    if y < 0:
        return np.divide(np.ones((), x.dtype), integer_power(x, -y))
    result = None
    while y:
        if y & 1:
            result = x if result is None else result * x
        y >>= 1
        if y:
            x = x * x
    return np.ones_like(x) if result is None else result


def sign(x: NDArray) -> NDArray:
    """-1, 0 or 1; keeps the sign of zeros and NaN; z/|z| for complex z."""
    return np.where(x == 0, x, np.sign(x))


def _unsigned(dtype: dt.DType) -> dt.DType:
    return np.dtype(f"u{dtype.itemsize}")


def shift_left(x: NDArray, y: NDArray) -> NDArray:
    """X << y; a count outside 0..bits-1 gives 0."""
    inside = y.view(_unsigned(y.dtype)) < 8 * x.itemsize
    return np.where(inside, np.left_shift(x, np.where(inside, y, 0)), np.zeros((), x.dtype))


def shift_right_logical(x: NDArray, y: NDArray) -> NDArray:
    """X >> y filling with zeros; a count outside 0..bits-1 gives 0."""
    count, bits = y.view(_unsigned(y.dtype)), x.view(_unsigned(x.dtype))
    inside = count < 8 * x.itemsize
    shifted = np.right_shift(bits, np.where(inside, count, 0))
    return np.where(inside, shifted, np.zeros((), bits.dtype)).view(x.dtype)


def shift_right_arithmetic(x: NDArray, y: NDArray) -> NDArray:
    """X >> y filling with the sign; a count outside 0..bits-1 fills every bit with it."""
    count = y.view(_unsigned(y.dtype))
    if x.dtype.kind == "u":
        signed = shift_right_arithmetic(x.view(f"i{x.itemsize}"), y.view(f"i{x.itemsize}"))
        return signed.view(x.dtype)
    last = np.asarray(8 * x.itemsize - 1, count.dtype)
    return np.right_shift(x, np.minimum(count, last).astype(x.dtype))


def population_count(x: NDArray) -> NDArray:
    """The number of one bits, in x's dtype."""
    return np.bitwise_count(x.view(_unsigned(x.dtype))).astype(x.dtype)


def count_leading_zeros(x: NDArray) -> NDArray:
    """The number of zero bits above the highest one bit, in x's dtype."""
    bits = x.view(_unsigned(x.dtype))
    step = 1
    while step < 8 * x.itemsize:
        bits = bits | (bits >> step)
        step *= 2
    return (8 * x.itemsize - np.bitwise_count(bits)).astype(x.dtype)


def logistic(x: NDArray) -> NDArray:
    """1 / (1 + exp(-x)) without overflow."""
    if dt.is_complex(x.dtype):
        return 1.0 / (1.0 + np.exp(-x))
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def erfc(x: NDArray) -> NDArray:
    """1 - erf(x). In float64 by the C library: SciPy's loses the last ten bits far out."""
    if x.dtype == dt.float64:
        return np.asarray(np.frompyfunc(math.erfc, 1, 1)(x), np.float64)
    return special().erfc(x.astype(np.float64)).astype(x.dtype)


def log_gamma(x: NDArray) -> NDArray:
    """Log |gamma(x)|, infinite at the poles and at both infinities."""
    with_poles = special().gammaln(x)  # which is infinite for denormal x too
    tiny = np.where(np.abs(x) < 1e-300, -np.log(np.abs(x)), with_poles)
    return np.where(np.isneginf(x), np.inf, tiny)


def digamma(x: NDArray) -> NDArray:
    """The derivative of `log_gamma`, NaN at the poles, whose two sides have opposite signs."""
    pole = (x <= 0) & (x == np.floor(x))
    return np.where(pole, np.nan, special().psi(x))


def equal_keys(x: NDArray, y: NDArray) -> NDArray:
    """Whether typed PRNG keys are equal, elementwise."""
    return np.asarray((x["fry"] == y["fry"]).all(-1))


# Giles' approximation of the inverse error function with XLA's coefficients, so that random.normal
# agrees with JAX.
# It isn't accurate to the last bits (86 ulp in float32); nothing else may use it for that reason.
ERF_INV_32 = (
    (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
     -0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
    (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
     -0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)  # fmt: skip
ERF_INV_64 = (
    (-3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
     1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
     6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
     2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
     1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
     4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
     0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
     0.24015818242558961693, 1.6536545626831027356),
    (2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
     1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
     2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
     6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
     0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
     -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334,
     3.0838856104922207635),
    (-2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
     -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
     2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
     -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
     7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
     1.0103004648645343977, 4.8499064014085844221),
)  # fmt: skip


def erf_inv_tables(
    dtype: dt.DType,
) -> tuple[tuple[tuple[float, ...], ...], tuple[float, ...], tuple[float, ...]]:
    """(polynomials, steps, shifts): polynomial k serves w below steps[k], the last one all larger
    w. Its argument
    is w - shifts[0] for the first, sqrt(w) - shifts[k] for the others.
    """
    if dtype == dt.float64:
        return ERF_INV_64, (6.25, 16.0), (3.125, 3.25, 5.0)
    return ERF_INV_32, (5.0,), (2.5, 3.0)


def erf_inv(x: NDArray) -> NDArray:
    """The inverse error function by Giles' polynomials, in x's own precision (16-bit floats in
    float32).
    """
    if x.dtype.itemsize == 2:
        return erf_inv(x.astype(np.float32)).astype(x.dtype)
    tables, steps, shifts = erf_inv_tables(x.dtype)
    w = -np.log1p(x * -x)
    root = np.sqrt(w)
    branches = [
        _polynomial(table, (root if k else w) - x.dtype.type(shift))
        for k, (table, shift) in enumerate(zip(tables, shifts, strict=True))
    ]
    factor = np.select([w < s for s in steps], branches[:-1], branches[-1])
    return np.where(np.abs(x) == 1, x * x.dtype.type(np.inf), factor * x)


def _polynomial(coefficients: tuple[float, ...], w: NDArray) -> NDArray:
    total = np.full_like(w, coefficients[0])
    for c in coefficients[1:]:
        total = total * w + w.dtype.type(c)
    return total
