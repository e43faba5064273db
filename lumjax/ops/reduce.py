"""Reductions other than the sum: products, extrema, bitwise reductions, positions of extrema.

Kinks follow JAX (ties share the derivative evenly), and products differentiate correctly through
zeros, to any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ShapeError
from lumjax.ops.arithmetic import div
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    apply,
    canonical_axes,
    canonical_axis,
    check_dtype,
    silent,
    text,
)
from lumjax.ops.compare import eq, ne, or_
from lumjax.ops.elementwise import add, cast, mul, select
from lumjax.ops.view import (
    broadcast_in_dim,
    broadcasted_iota,
    concatenate,
    full,
    reduce_sum,
    reduced_shape,
    reduction_batch,
    reshape,
    shape_of,
    slice,
    transpose,
    zeros,
)
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Sample, Value, aval_of
from lumjax.trace.dim import Dim, same
from lumjax.trace.form import Expand, Form, Reduce, ReduceOp

_Tangents = Sequence[Value | None]


def _f32(*shape: int) -> ShapedArray:
    return ShapedArray(shape, dt.float32)


def lowest(dtype: dt.DType) -> Any:
    """The identity of max: -inf, the least integer, or False."""
    return _extreme(dtype, largest=False)


def highest(dtype: dt.DType) -> Any:
    """The identity of min: inf, the greatest integer, or True."""
    return _extreme(dtype, largest=True)


def _extreme(dtype: dt.DType, largest: bool) -> Any:
    if dt.is_floating(dtype):
        return np.asarray(np.inf if largest else -np.inf, dtype)
    if dt.is_bool(dtype):
        return np.asarray(largest)
    info = dt.iinfo(dtype)
    return np.asarray(info.max if largest else info.min, dtype)


def is_ordered(dtype: dt.DType) -> bool:
    """Whether max and min are defined: bool, integers and real floats."""
    return dt.is_bool(dtype) or dt.is_integer(dtype) or dt.is_floating(dtype)


def _checked(
    operation: str, accepts: Callable[[dt.DType], bool], required: str
) -> Callable[..., tuple[ShapedArray, ...]]:
    """The aval rule of a reduction over the dtypes that `accepts` names."""

    def aval(x: ShapedArray, *, axes: tuple[int, ...]) -> tuple[ShapedArray, ...]:
        check_dtype(operation, x, accepts(x.dtype), required)
        return (x.with_shape(reduced_shape(operation, x.shape, axes)),)

    return aval


def _kept(x: Value, axes: Sequence[int]) -> list[int]:
    return [k for k in range(len(shape_of(x))) if k not in axes]


def spread(reduced: Value, x: Value, axes: Sequence[int]) -> Value:
    """A reduction's result repeated to the shape of its operand."""
    return broadcast_in_dim(reduced, shape_of(x), _kept(x, axes))


# ---- reduce_max, reduce_min


def reduce_max(operand: Value, axes: Any) -> Value:
    """The maximum over `axes`; nan wins; the least value (-inf) where nothing is reduced."""
    axes = canonical_axes("reduce_max", axes, len(shape_of(operand)))
    return apply(reduce_max_p, operand, axes=axes)[0]


def reduce_min(operand: Value, axes: Any) -> Value:
    """The minimum over `axes`; nan wins; the greatest value (inf) where nothing is reduced."""
    axes = canonical_axes("reduce_min", axes, len(shape_of(operand)))
    return apply(reduce_min_p, operand, axes=axes)[0]


@silent
def _reduce_max_eval(x: NDArray, *, axes: tuple[int, ...]) -> tuple[NDArray]:
    return (np.asarray(np.maximum.reduce(x, axis=axes, initial=lowest(x.dtype)), x.dtype),)


@silent
def _reduce_min_eval(x: NDArray, *, axes: tuple[int, ...]) -> tuple[NDArray]:
    return (np.asarray(np.minimum.reduce(x, axis=axes, initial=highest(x.dtype)), x.dtype),)


def _extremum_jvp(reduction: Callable[..., Value]) -> Callable[..., Jvp]:
    """Every element that attains the extremum gets an equal share of the derivative."""

    def jvp(primals: Sequence[Value], tangents: _Tangents, *, axes: tuple[int, ...]) -> Jvp:
        (x,), (t,) = primals, tangents
        out = reduction(x, axes)
        if t is None or any(same(shape_of(x)[a], 0) for a in axes):
            return (out,), (None,)
        dtype = aval_of(x).dtype
        attained = eq(x, spread(out, x, axes))
        chosen = reduce_sum(select(attained, t, zeros(shape_of(x), dtype)), axes)
        return (out,), (div(chosen, reduce_sum(cast(attained, dtype), axes)),)

    return jvp


reduce_max_p = Primitive(
    "reduce_max",
    aval=_checked("reduce_max", is_ordered, "a real or bool operand"),
    eval=_reduce_max_eval,
    form=lambda x, *, axes: Reduce(ReduceOp.MAX, axes),
    jvp=_extremum_jvp(reduce_max),
    batch=lambda axis, args, dims, *, axes: reduction_batch(reduce_max_p, args, dims, axes),
    samples=(
        Sample((_f32(3),), {"axes": (0,)}),
        Sample((_f32(2, 3, 4),), {"axes": (0, 2)}),
        Sample((_f32(0, 2),), {"axes": (0,)}),
        Sample((_f32(1, 2),), {"axes": ()}),
        Sample((ShapedArray((2, 3), dt.int8),), {"axes": (1,)}),
        Sample((ShapedArray((2, 3), dt.bfloat16),), {"axes": (1,)}),
        Sample((ShapedArray((2, 3), dt.bool_),), {"axes": (1,)}),
    ),
)

reduce_min_p = Primitive(
    "reduce_min",
    aval=_checked("reduce_min", is_ordered, "a real or bool operand"),
    eval=_reduce_min_eval,
    form=lambda x, *, axes: Reduce(ReduceOp.MIN, axes),
    jvp=_extremum_jvp(reduce_min),
    batch=lambda axis, args, dims, *, axes: reduction_batch(reduce_min_p, args, dims, axes),
    samples=(
        Sample((_f32(3),), {"axes": (0,)}),
        Sample((_f32(2, 3, 4),), {"axes": (1,)}),
        Sample((_f32(2, 0),), {"axes": (1,)}),
        Sample((ShapedArray((3,), dt.uint8),), {"axes": (0,)}, low=0.0),
    ),
)


# ---- reduce_prod


def reduce_prod(operand: Value, axes: Any) -> Value:
    """The product over `axes`, in the operand's dtype; 16-bit floats accumulate in float32."""
    axes = canonical_axes("reduce_prod", axes, len(shape_of(operand)))
    return apply(reduce_prod_p, operand, axes=axes)[0]


@silent
def _reduce_prod_eval(x: NDArray, *, axes: tuple[int, ...]) -> tuple[NDArray]:
    product = np.multiply.reduce(x, axis=axes, dtype=dt.accumulation_dtype(x.dtype))
    return (np.asarray(product).astype(x.dtype),)


def _reduce_prod_jvp(
    primals: Sequence[Value], tangents: _Tangents, *, axes: tuple[int, ...]
) -> Jvp:
    """Products of pairs, pairs of pairs...: no division, so zeros are exact at every order."""
    (x,), (t,) = primals, tangents
    out = reduce_prod(x, axes)
    shape, dtype = shape_of(x), aval_of(x).dtype
    if t is None or any(same(shape[a], 0) for a in axes):
        return (out,), (None,)
    wide = dt.accumulation_dtype(dtype)
    value, tangent = (_flatten_axes(cast(v, wide), axes) for v in (x, t))
    while (n := int(shape_of(value)[0])) > 1:
        half = n // 2
        (a, b, rest), (da, db, drest) = _thirds(value, half), _thirds(tangent, half)
        value = concatenate([mul(a, b), *rest], 0)
        tangent = concatenate([add(mul(da, b), mul(a, db)), *drest], 0)
    return (out,), (cast(reshape(tangent, shape_of(out)), dtype),)


def _flatten_axes(x: Value, axes: tuple[int, ...]) -> Value:
    """`x` with `axes` merged into one leading axis."""
    kept, shape = _kept(x, axes), shape_of(x)
    count: Dim = 1
    for a in axes:
        count = count * shape[a]
    return reshape(transpose(x, (*axes, *kept)), (count, *(shape[k] for k in kept)))


def _thirds(x: Value, half: int) -> tuple[Value, Value, list[Value]]:
    """Rows [0, half), rows [half, 2 * half), and the odd last row if there is one."""
    n, *rest = shape_of(x)
    parts = [
        slice(x, (a, *(0 for _ in rest)), (b, *rest))
        for a, b in ((0, half), (half, 2 * half), (2 * half, n))
        if not same(a, b)
    ]
    return parts[0], parts[1], parts[2:]


def _is_number(dtype: dt.DType) -> bool:
    return dt.is_integer(dtype) or dt.is_inexact(dtype)


reduce_prod_p = Primitive(
    "reduce_prod",
    aval=_checked("reduce_prod", _is_number, "a numeric operand"),
    eval=_reduce_prod_eval,
    form=lambda x, *, axes: Reduce(ReduceOp.PROD, axes),
    jvp=_reduce_prod_jvp,
    batch=lambda axis, args, dims, *, axes: reduction_batch(reduce_prod_p, args, dims, axes),
    samples=(
        Sample((_f32(5),), {"axes": (0,)}),
        Sample((_f32(2, 3, 2),), {"axes": (0, 2)}),
        Sample((_f32(0, 2),), {"axes": (0,)}),
        Sample((_f32(1, 2),), {"axes": (0,)}),
        Sample((ShapedArray((2, 3), dt.int32),), {"axes": (1,)}),
    ),
)


# ---- reduce_and, reduce_or, reduce_xor


def reduce_and(operand: Value, axes: Any) -> Value:
    """Bitwise (logical for bool) and over `axes`; all ones where nothing is reduced."""
    axes = canonical_axes("reduce_and", axes, len(shape_of(operand)))
    return apply(reduce_and_p, operand, axes=axes)[0]


def reduce_or(operand: Value, axes: Any) -> Value:
    """Bitwise (logical for bool) or over `axes`; zero where nothing is reduced."""
    axes = canonical_axes("reduce_or", axes, len(shape_of(operand)))
    return apply(reduce_or_p, operand, axes=axes)[0]


def reduce_xor(operand: Value, axes: Any) -> Value:
    """Bitwise (logical for bool) exclusive or over `axes`; zero where nothing is reduced."""
    axes = canonical_axes("reduce_xor", axes, len(shape_of(operand)))
    return apply(reduce_xor_p, operand, axes=axes)[0]


def _bitwise(name: str, op: ReduceOp, ufunc: np.ufunc) -> Primitive:
    def evaluate(x: NDArray, *, axes: tuple[int, ...]) -> tuple[NDArray]:
        return (np.asarray(ufunc.reduce(x, axis=axes, dtype=x.dtype)),)

    def batch(
        axis: MappedAxis, args: Sequence[Value], dims: Dims, *, axes: tuple[int, ...]
    ) -> Batched:
        return reduction_batch(record, args, dims, axes)

    def jvp(primals: Sequence[Value], tangents: _Tangents, *, axes: tuple[int, ...]) -> Jvp:
        return record.bind(*primals, axes=axes), (None,)

    record = Primitive(
        name,
        aval=_checked(
            name, lambda d: dt.is_bool(d) or dt.is_integer(d), "a bool or integer operand"
        ),
        eval=evaluate,
        form=lambda x, *, axes: Reduce(op, axes),
        jvp=jvp,
        batch=batch,
        samples=(
            Sample((ShapedArray((2, 3), dt.bool_),), {"axes": (1,)}),
            Sample((ShapedArray((2, 3), dt.int32),), {"axes": (0, 1)}, low=-100.0, high=100.0),
            Sample((ShapedArray((0, 3), dt.bool_),), {"axes": (0,)}),
            Sample((ShapedArray((1, 3), dt.uint8),), {"axes": ()}, low=0.0),
        ),
    )
    return record


reduce_and_p = _bitwise("reduce_and", ReduceOp.AND, np.bitwise_and)
reduce_or_p = _bitwise("reduce_or", ReduceOp.OR, np.bitwise_or)
reduce_xor_p = _bitwise("reduce_xor", ReduceOp.XOR, np.bitwise_xor)


# ---- argmax, argmin


def argmax(operand: Value, axis: int, index_dtype: Any = dt.int32) -> Value:
    """The position of the maximum along `axis`: the first of equals, the first nan if any."""
    axis = canonical_axis("argmax", axis, len(shape_of(operand)))
    dtype = dt.canonicalize(index_dtype)
    return apply(argmax_p, operand, axes=(axis,), index_dtype=dtype)[0]


def argmin(operand: Value, axis: int, index_dtype: Any = dt.int32) -> Value:
    """The position of the minimum along `axis`: the first of equals, the first nan if any."""
    axis = canonical_axis("argmin", axis, len(shape_of(operand)))
    dtype = dt.canonicalize(index_dtype)
    return apply(argmin_p, operand, axes=(axis,), index_dtype=dtype)[0]


_POSITION_SAMPLES = (
    Sample((_f32(3),), {"axes": (0,), "index_dtype": dt.int32}),
    Sample((_f32(2, 3, 4),), {"axes": (1,), "index_dtype": dt.int32}),
    Sample((ShapedArray((4, 3), dt.int8),), {"axes": (0,), "index_dtype": dt.uint8}),
    Sample((ShapedArray((3, 2), dt.bool_),), {"axes": (0,), "index_dtype": dt.int32}),
    Sample((_f32(0, 2),), {"axes": (1,), "index_dtype": dt.int32}),
)


def _position_aval(
    name: str, x: ShapedArray, *, axes: tuple[int, ...], index_dtype: dt.DType
) -> tuple[ShapedArray, ...]:
    check_dtype(name, x, is_ordered(x.dtype), "a real or bool operand")
    out = ShapedArray(reduced_shape(name, x.shape, axes), index_dtype, x.weak)
    check_dtype(name, out, dt.is_integer(index_dtype), "an integer index dtype")
    if len(axes) != 1 or same(x.shape[axes[0]], 0):
        raise ShapeError(
            operation=name,
            required="one axis, with at least one element",
            got=f"axes {text(axes)} of {x}",
            fix="handle empty arrays before the call",
        )
    return (out,)


def _position(
    name: str, find: Callable[..., Any], reduction: Callable[[Value, Any], Value]
) -> Primitive:
    """The record of argmax or argmin; `reduction` is the extremum whose position is wanted."""

    def aval(x: ShapedArray, **params: Any) -> tuple[ShapedArray, ...]:
        return _position_aval(name, x, **params)

    def evaluate(x: NDArray, *, axes: tuple[int, ...], index_dtype: dt.DType) -> tuple[NDArray]:
        wide = x.astype(dt.accumulation_dtype(x.dtype), copy=False)
        return (np.asarray(find(wide, axis=axes[0])).astype(index_dtype),)

    def expand(x: Value, *, axes: tuple[int, ...], index_dtype: dt.DType) -> tuple[Value]:
        extremum = spread(reduction(x, axes), x, axes)
        found = eq(x, extremum)
        if dt.is_floating(aval_of(x).dtype):
            found = or_(found, ne(x, x))
        shape = shape_of(x)
        place = broadcasted_iota(index_dtype, shape, axes[0])
        return (reduce_min(select(found, place, full(shape, highest(index_dtype))), axes),)

    def jvp(primals: Sequence[Value], tangents: _Tangents, **params: Any) -> Jvp:
        return record.bind(*primals, **params), (None,)

    def batch(
        axis: MappedAxis,
        args: Sequence[Value],
        dims: Dims,
        *,
        axes: tuple[int, ...],
        index_dtype: dt.DType,
    ) -> Batched:
        dim = dims[0] or 0
        moved = tuple([a + (a >= dim) for a in axes])
        outs = record.bind(args[0], axes=moved, index_dtype=index_dtype)
        return outs, (dim - (moved[0] < dim),)

    def form(x: ShapedArray, *, axes: tuple[int, ...], index_dtype: dt.DType) -> Form:
        return Expand()

    record = Primitive(
        name,
        aval=aval,
        eval=evaluate,
        form=form,
        expand=expand,
        jvp=jvp,
        batch=batch,
        samples=_POSITION_SAMPLES,
    )
    return record


argmax_p = _position("argmax", np.argmax, reduce_max)
argmin_p = _position("argmin", np.argmin, reduce_min)
