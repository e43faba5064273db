"""Whole numbers and the parts of floats: gcd, packed bits, frexp."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.control.scan import while_loop
from lumjax.errors import ArgumentValueError, DTypeError
from lumjax.numpy.complexes import imag
from lumjax.numpy.creation import asarray, broadcast_to
from lumjax.numpy.indexing import where
from lumjax.numpy.logic import isfinite
from lumjax.numpy.manipulation import moveaxis, ravel
from lumjax.numpy.reductions import sum as _sum
from lumjax.trace.core import aval_of

ArrayLike = Any


def _integers(operation: str, *xs: ArrayLike) -> list[Any]:
    values = ops.promote_values(*[asarray(x) for x in xs])
    if not dt.is_integer(aval_of(values[0]).dtype):
        raise DTypeError(
            operation=f"jnp.{operation}", required="integers", got=str(aval_of(values[0])),
            fix="convert with astype first",
        )  # fmt: skip
    return list(ops.broadcast_values(*values, operation=f"jnp.{operation}"))


def gcd(x1: ArrayLike, x2: ArrayLike) -> Any:
    """The greatest common divisor of integers.

    >>> gcd(asarray([12, 18]), 8).tolist()
    [4, 2]
    """
    one, two = _integers("gcd", x1, x2)

    def step(state: Any) -> Any:
        a, b = state
        more = b != 0
        return where(more, b, a), where(more, ops.rem(a, where(more, b, 1)), 0)

    start = [ops.abs(one), ops.abs(two)] if dt.is_signed(aval_of(one).dtype) else [one, two]
    return while_loop(lambda s: (s[1] != 0).any(), step, tuple(start))[0]


def lcm(x1: ArrayLike, x2: ArrayLike) -> Any:
    """The least common multiple of integers.

    >>> int(lcm(4, 6))
    12
    """
    one, two = _integers("lcm", x1, x2)
    if dt.is_signed(aval_of(one).dtype):
        one, two = ops.abs(one), ops.abs(two)
    divisor = gcd(one, two)
    return where(divisor == 0, 0, one * (two // where(divisor == 0, 1, divisor)))


def bitwise_count(x: ArrayLike, /) -> Any:
    """How many bits of |x| are 1: uint8.

    >>> bitwise_count(asarray([0, 7, -1])).tolist()
    [0, 3, 1]
    """
    (value,) = _integers("bitwise_count", x)
    size = ops.abs(value) if dt.is_signed(aval_of(value).dtype) else value
    return ops.cast(ops.population_count(size), np.uint8)


def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Any:
    """Bools or integers as bits, eight to a byte, padded with 0.

    >>> packbits(asarray([1, 0, 0, 0, 0, 0, 0, 1])).tolist()
    [129]
    """
    value = asarray(a)
    if not (dt.is_integer(aval_of(value).dtype) or dt.is_bool(aval_of(value).dtype)):
        raise DTypeError(
            operation="jnp.packbits", required="bools or integers", got=str(aval_of(value)),
            fix="compare with 0 first",
        )  # fmt: skip
    _check_order("packbits", bitorder)
    if axis is None:
        value, axis = ravel(value), 0
    bits = moveaxis(ops.cast(value != 0, np.uint8), axis, -1)
    *lead, n = aval_of(bits).shape
    count = -(-int(n) // 8)  # type: ignore[arg-type]
    bits = ops.pad(bits, np.uint8(0), [(0, 0, 0)] * len(lead) + [(0, count * 8 - int(n), 0)])  # type: ignore[arg-type]
    bits = ops.reshape(bits, (*lead, count, 8))
    weights = np.uint8(1) << np.arange(8, dtype=np.uint8)
    weights = weights[::-1] if bitorder == "big" else weights
    packed = _sum(bits * asarray(np.ascontiguousarray(weights)), axis=-1, dtype=np.uint8)
    return moveaxis(packed, -1, axis)


def unpackbits(
    a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Any:
    """The bits of uint8 as an axis eight times as long, or the first `count` of them.

    >>> unpackbits(asarray(np.array([5], np.uint8))).tolist()
    [0, 0, 0, 0, 0, 1, 0, 1]
    """
    value = asarray(a)
    if aval_of(value).dtype != dt.uint8:
        raise DTypeError(
            operation="jnp.unpackbits", required="uint8", got=str(aval_of(value)),
            fix="convert with astype first",
        )  # fmt: skip
    _check_order("unpackbits", bitorder)
    if axis is None:
        value, axis = ravel(value), 0
    line = moveaxis(value, axis, -1)
    shifts = np.arange(8, dtype=np.uint8)
    shifts = shifts[::-1] if bitorder == "big" else shifts
    bits = (line[..., None] >> asarray(np.ascontiguousarray(shifts))) & np.uint8(1)
    shape: Any = aval_of(line).shape
    bits = ops.reshape(bits, (*shape[:-1], 8 * shape[-1]))
    if count is not None:
        have = 8 * shape[-1]
        if count > have:
            bits = ops.pad(
                bits, np.uint8(0), [(0, 0, 0)] * (len(shape) - 1) + [(0, count - have, 0)]
            )
        else:
            bits = bits[..., :count]
    return moveaxis(bits, -1, axis)


def _check_order(name: str, bitorder: str) -> None:
    if bitorder not in ("big", "little"):
        raise ArgumentValueError(
            operation=f"jnp.{name}", required="bitorder 'big' or 'little'", got=repr(bitorder),
            fix="choose one of these",
        )  # fmt: skip


# ---- parts of floats


def _floats(x: ArrayLike) -> Any:
    value = asarray(x)
    return value if dt.is_inexact(aval_of(value).dtype) else ops.cast(value, np.float64)


def frexp(x: ArrayLike, /) -> tuple[Any, Any]:
    """The mantissa in [0.5, 1) and the int32 exponent with x = mantissa * 2**exponent.

    >>> [float(v) for v in frexp(6.0)]
    [0.75, 3.0]
    """
    value = _floats(x)
    kind = aval_of(value).dtype
    info = dt.finfo(kind)
    width, mantissa = int(info.bits), int(info.nmant)
    whole = np.dtype(f"i{width // 8}")
    normal = ops.abs(value) >= np.asarray(info.tiny, kind)
    scale = np.asarray(2.0 ** (mantissa + 2), kind)
    scaled = where(normal, value, value * scale)
    bits = ops.bitcast(scaled, whole)
    field = (1 << (width - 1 - mantissa)) - 1
    shifted = ops.shift_right_logical(bits, np.asarray(mantissa, whole))
    bias = field // 2
    exponent = ops.cast(shifted & np.asarray(field, whole), np.int32) - (bias - 1)
    exponent = where(normal, exponent, exponent - (mantissa + 2))
    cleared = bits & np.asarray(~(field << mantissa), whole)
    half = ops.bitcast(cleared | np.asarray((bias - 1) << mantissa, whole), kind)
    keep = ops.or_(ops.eq(value, np.zeros((), kind)), ops.not_(isfinite(value)))
    return where(keep, value, half), where(keep, 0, exponent)


def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """x1 * 2**x2, in two steps where 2**x2 alone would overflow.

    >>> float(ldexp(0.75, 3))
    6.0
    """
    value, power = _floats(x1), asarray(x2)
    if not dt.is_integer(aval_of(power).dtype):
        raise DTypeError(
            operation="jnp.ldexp", required="an integer exponent", got=str(aval_of(power)),
            fix="convert with astype first",
        )  # fmt: skip
    shape = ops.broadcast_shapes(aval_of(value).shape, aval_of(power).shape)
    value, power = broadcast_to(value, shape), broadcast_to(ops.cast(power, np.int32), shape)
    kind = aval_of(value).dtype
    power = ops.clamp(-2200, power, 2200)
    # Three factors: none of them leaves the range before the product does.
    third = power // 3
    step = ops.exp2(ops.cast(third, kind))
    rest = ops.exp2(ops.cast(power - 2 * third, kind))
    return value * step * step * rest


def spacing(x: ArrayLike, /) -> Any:
    """The distance to the next float away from 0.

    >>> float(spacing(1.0)) == float(np.spacing(np.float32(1)))
    True
    """
    value = _floats(x)
    kind = aval_of(value).dtype
    target = where(ops.lt(value, 0), np.asarray(-np.inf, kind), np.asarray(np.inf, kind))
    gap = ops.sub(ops.nextafter(value, target), value)
    return where(isfinite(value), gap, np.asarray(np.nan, kind))


def iscomplex(x: ArrayLike) -> Any:
    """Where the imaginary part is not 0.

    >>> iscomplex(asarray([1.0, 1j])).tolist()
    [False, True]
    """
    value = asarray(x)
    return imag(value) != 0


def isreal(x: ArrayLike) -> Any:
    """Where the imaginary part is 0."""
    return ops.not_(iscomplex(x))
