"""fma: x * y + z, rounded once. XLA fuses products and sums; what must equal its bits says so here.

Source: Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums: proved algorithms
using rounding to odd".
"""

from __future__ import annotations

import numpy as np

from lumjax.ops.elementwise import add, broadcast_values, elementwise, mul, promote_values
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
