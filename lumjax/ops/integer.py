"""Operations on the bits of integers, and reinterpretation of bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ShapeError
from lumjax.ops import numerics
from lumjax.ops.compare import and_, or_
from lumjax.ops.elementwise import (
    add,
    asvalue,
    binary,
    constant,
    mul,
    sub,
    unary,
)
from lumjax.ops.record import (
    INTEGERS,
    REALS,
    JvpResult,
    NDArray,
    map_at,
)
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Sample, Value, aval_of
from lumjax.trace.form import Form, Map, Opaque, ScalarOp, Trait

shift_left_p, shift_left = binary(
    "shift_left", numerics.shift_left, INTEGERS,
    "x << y; 0 where y is negative or not less than the number of bits.", domain=(0, 40),
)  # fmt: skip
shift_right_arithmetic_p, shift_right_arithmetic = binary(
    "shift_right_arithmetic", numerics.shift_right_arithmetic, INTEGERS,
    "x >> y filling with x's sign, also where y is out of range.", domain=(0, 40),
)  # fmt: skip
shift_right_logical_p, shift_right_logical = binary(
    "shift_right_logical", numerics.shift_right_logical, INTEGERS,
    "x >> y filling with zeros; 0 where y is out of range.", domain=(0, 40),
)  # fmt: skip


def _mask(x: Value, byte: int) -> Value:
    """A constant like x whose every byte is `byte`."""
    return constant(int.from_bytes(bytes([byte]) * aval_of(x).dtype.itemsize, "little"), x)


def _expand_count(x: Value) -> Value:
    """Add neighbouring fields of 1, 2 and 4 bits, then all bytes by one multiplication."""

    def fields(v: Value, width: int, byte: int) -> tuple[Value, Value]:
        mask = _mask(v, byte)
        return and_(v, mask), and_(shift_right_logical(v, constant(width, v)), mask)

    for width, byte in ((1, 0x55), (2, 0x33), (4, 0x0F)):
        x = add(*fields(x, width, byte))
    top = 8 * (aval_of(x).dtype.itemsize - 1)
    return shift_right_logical(mul(x, _mask(x, 0x01)), constant(top, x))


def _expand_clz(x: Value) -> Value:
    """Copy the highest one bit to all lower places, then count."""
    bits = 8 * aval_of(x).dtype.itemsize
    step = 1
    while step < bits:
        x = or_(x, shift_right_logical(x, constant(step, x)))
        step *= 2
    return sub(constant(bits, x), _expand_count(x))


population_count_p, population_count = unary(
    "population_count", numerics.population_count, INTEGERS,
    "The number of one bits, in x's dtype.", expand=_expand_count, flops=4,
)  # fmt: skip
clz_p, clz = unary(
    "clz", numerics.count_leading_zeros, INTEGERS,
    "The number of zero bits above the highest one bit, in x's dtype.", expand=_expand_clz, flops=4,
)  # fmt: skip


# ---- bitcast


def _bitcast_aval(x: ShapedArray, *, dtype: dt.DType) -> tuple[ShapedArray, ...]:
    for aval in (x, x.with_dtype(dtype)):
        REALS.check("bitcast", aval)
    old, new = x.dtype.itemsize, dtype.itemsize
    shape = x.shape
    if new < old:
        shape = (*shape, old // new)
    elif new > old:
        if not shape or shape[-1] != new // old:
            raise ShapeError(
                operation="bitcast",
                required=f"a last axis of size {new // old}, whose elements make one {dtype}",
                got=str(x),
                fix="reshape the operand first",
            )
        shape = shape[:-1]
    return (ShapedArray(shape, dtype, x.weak),)


def _bitcast_eval(x: NDArray, *, dtype: dt.DType) -> tuple[NDArray]:
    x = np.ascontiguousarray(x).reshape(x.shape)
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new:
        return (x.view(dtype),)
    if new < old:
        return (x.reshape(*x.shape, 1).view(dtype),)
    return (x.view(dtype).reshape(x.shape[:-1]),)


def _bitcast_form(x: ShapedArray, *, dtype: dt.DType) -> Form:
    if x.dtype.itemsize != dtype.itemsize:
        return Opaque("a bitcast that changes the shape runs in NumPy")
    return Map(bitcast_op(dtype))


@cache
def bitcast_op(dtype: dt.DType) -> ScalarOp:
    """The scalar operation that reads the same bits as `dtype`."""
    return ScalarOp(
        "bitcast", 1, lambda x: np.ascontiguousarray(x).view(dtype), traits=frozenset({Trait.CAST})
    )


def _bitcast_jvp(primals: Sequence[Value], ts: Sequence[Value | None], **params: Any) -> JvpResult:
    return bitcast_p.bind(*primals, **params), (None,)


def _bitcast_batch(
    axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None], **params: Any
) -> tuple[Sequence[Value], Sequence[int | None]]:
    return bitcast_p.bind(map_at(args[0], dims[0], 0, axis.size), **params), (0,)


bitcast_p = Primitive(
    "bitcast",
    aval=_bitcast_aval,
    eval=_bitcast_eval,
    form=_bitcast_form,
    jvp=_bitcast_jvp,
    batch=_bitcast_batch,
    samples=tuple(
        Sample((ShapedArray((3, 2), a),), {"dtype": b})
        for a, b in (
            (dt.float32, dt.uint32),
            (dt.int32, dt.float32),
            (dt.uint32, dt.uint16),
            (dt.uint16, dt.uint32),
            (dt.bfloat16, dt.int16),
        )
    ),
)


def bitcast(x: Value, dtype: Any) -> Value:
    """The bits of x as another dtype; a last axis appears or disappears where the widths differ."""
    target = dt.canonicalize(dtype)
    x = asvalue(x, "bitcast")
    _bitcast_aval(aval_of(x), dtype=target)
    return bitcast_p.bind(x, dtype=target)[0]
