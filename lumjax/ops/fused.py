"""What must equal XLA's bits: fma, x * y + z rounded once, and the logarithm written with it.

Sources: Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums: proved algorithms
using rounding to odd"; Moshier's Cephes library, logf.
"""

from __future__ import annotations

import numpy as np

from lumjax import dtype as dt
from lumjax.ops.compare import and_, lt, or_
from lumjax.ops.elementwise import (
    add,
    broadcast_values,
    cast,
    constant,
    elementwise,
    mul,
    promote_values,
    select,
    sub,
)
from lumjax.ops.integer import bitcast, shift_right_logical
from lumjax.ops.record import FLOATS, NDArray
from lumjax.trace.core import Value, aval_of


def _two_sum(a: NDArray, b: NDArray) -> tuple[NDArray, NDArray]:
    """The rounded sum and its error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _narrow(x: NDArray, y: NDArray, z: NDArray) -> NDArray:
    """In float64, where the product of two float32 is exact; the sum is rounded to odd there, so
    that the second rounding, to float32, is the only one that counts.
    """
    total, error = _two_sum(x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64))
    bits = np.asarray(total).view(np.int64)
    inexact = np.isfinite(error) & (error != 0) & (bits & 1 == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(np.float64).astype(np.float32)


def _split(a: NDArray) -> tuple[NDArray, NDArray]:
    """Two halves of 26 bits whose sum is `a`."""
    high = a * 134217729.0  # 2**27 + 1
    high = high - (high - a)
    return high, a - high


def _wide(x: NDArray, y: NDArray, z: NDArray) -> NDArray:
    """In pairs of float64: the product's error is added after the sum's."""
    product = x * y
    (a, b), (c, d) = _split(x), _split(y)
    error = ((a * c - product) + a * d + b * c) + b * d
    total, rest = _two_sum(product, z)
    better = total + (rest + error)
    return np.where(np.isfinite(better), better, total)


def multiply_add(x: NDArray, y: NDArray, z: NDArray) -> NDArray:
    """The product plus z; 16-bit floats are computed in float32, as compiled code does."""
    if x.dtype == np.float64:
        return _wide(x, y, z)
    return _narrow(x, y, z).astype(x.dtype)


fma_p = elementwise(
    "fma", 3, multiply_add, FLOATS,
    tangents=(
        lambda t, x, y, z, _: mul(t, y), lambda t, x, y, z, _: mul(x, t), lambda t, *_: t,
    ),
    expand=lambda x, y, z: add(mul(x, y), z), flops=2,
)  # fmt: skip


def fma(x: Value, y: Value, z: Value) -> Value:
    """The floats x * y + z, rounded once."""
    operands = promote_values(x, y, z, operation="fma")
    FLOATS.check("fma", aval_of(operands[0]))
    return fma_p.bind(*broadcast_values(*operands, operation="fma"))[0]


_HORNER = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip


def xla_log(x: Value) -> Value:
    """The natural logarithm of positive normal float32 numbers, to the last bit as XLA computes it
    on a CPU; `log` is closer to the exact value.
    """
    bits = bitcast(x, dt.int32)
    exponent = sub(shift_right_logical(bits, 23), 126)
    mantissa = bitcast(or_(and_(bits, 0x007FFFFF), 0x3F000000), dt.float32)  # in [1/2, 1)
    low = lt(mantissa, float(np.float32(np.sqrt(0.5))))
    e = cast(sub(exponent, cast(low, dt.int32)), dt.float32)
    m = add(sub(mantissa, 1.0), select(low, mantissa, constant(0, mantissa)))
    square = mul(m, m)
    cube = mul(square, m)
    # Nine coefficients in three interleaved groups, as Eigen evaluates them.
    groups = [fma(fma(a, m, b), m, c) for a, b, c in zip(*[iter(_HORNER)] * 3, strict=True)]
    y = fma(fma(groups[0], cube, groups[1]), cube, groups[2])
    y = fma(y, cube, mul(e, -2.12194440e-4))
    return add(add(sub(m, mul(square, 0.5)), y), mul(e, 0.693359375))
