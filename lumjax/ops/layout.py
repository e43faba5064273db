"""Movement: operations that rearrange elements, and reduce_sum, which is broadcast's transpose.

Each is an IndexMap from output coordinates to input coordinates. Their transposes need each other,
so they share this file; it imports nothing from the elementwise operations, which import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.ops.checks import (
    Batched,
    Dims,
    NDArray,
    Shape,
    apply,
    canonical_axes,
    check_distinct,
    check_dtype,
    check_length,
    check_sizes,
    linear_jvp,
    silent,
    static_dims,
    static_ints,
    text,
)
from lumjax.trace import view as index_map
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Sample, Value, aval_of, set_methods
from lumjax.trace.dim import Dim, same, same_shape
from lumjax.trace.form import Move, Reduce, ReduceOp

_SMALL = 4096  # elements below which a broadcast is copied: cheaper than building a strided view
_F32 = dt.float32


def _f32(*shape: int) -> ShapedArray:
    return ShapedArray(shape, _F32)


def shape_of(x: Value) -> Shape:
    """The shape of anything an operation accepts."""
    return aval_of(x).shape


# ---- broadcast_in_dim


def broadcast_in_dim(
    operand: Value, shape: Any, broadcast_dimensions: Any, *, out_sharding: Any = None
) -> Value:
    """`operand` repeated to `shape`; its axis k becomes axis broadcast_dimensions[k] of the result.

    Sizes agree there, or the operand's is 1.
    """
    del out_sharding
    return apply(
        broadcast_in_dim_p,
        operand,
        shape=static_dims("broadcast_in_dim", "a size", shape),
        broadcast_dimensions=static_ints("broadcast_in_dim", "a dimension", broadcast_dimensions),
    )[0]


def _broadcast_aval(
    x: ShapedArray, *, shape: Shape, broadcast_dimensions: tuple[int, ...]
) -> tuple[ShapedArray, ...]:
    check_sizes("broadcast_in_dim", shape)
    check_length("broadcast_in_dim", "broadcast dimensions", broadcast_dimensions, x.ndim)
    ordered = all(a < b for a, b in pairwise(broadcast_dimensions))
    if not ordered or any(not 0 <= d < len(shape) for d in broadcast_dimensions):
        raise ArgumentValueError(
            operation="broadcast_in_dim",
            required=f"increasing broadcast dimensions in [0, {len(shape)})",
            got=text(broadcast_dimensions),
            fix="transpose the operand first, or choose axes of the result",
        )
    if any(
        not same(n, 1) and not same(n, shape[d])
        for n, d in zip(x.shape, broadcast_dimensions, strict=True)
    ):
        raise ShapeError(
            operation="broadcast_in_dim",
            required="operand sizes that are 1 or equal to the result's",
            got=f"{x} to {text(shape)} along dimensions {text(broadcast_dimensions)}",
            fix="make the sizes agree",
        )
    return (x.with_shape(shape),)


def _broadcast_eval(
    x: NDArray, *, shape: Any, broadcast_dimensions: tuple[int, ...]
) -> tuple[NDArray]:
    if len(broadcast_dimensions) != len(shape):
        padded = [1] * len(shape)
        for n, d in zip(x.shape, broadcast_dimensions, strict=True):
            padded[d] = n
        x = x.reshape(padded)
    size = 1
    for n in shape:
        size *= n
    if size > _SMALL:
        return (np.broadcast_to(x, shape),)
    out = np.empty(shape, x.dtype)
    out[...] = x
    return (out,)


def _broadcast_form(x: ShapedArray, *, shape: Shape, broadcast_dimensions: tuple[int, ...]) -> Move:
    return Move((index_map.broadcast(x.shape, shape, broadcast_dimensions),))


def _broadcast_transpose(
    cts: Sequence[Value | None],
    inputs: Sequence[Any],
    *,
    shape: Shape,
    broadcast_dimensions: tuple[int, ...],
) -> Sequence[Value | None]:
    (ct,), (x,) = cts, inputs
    if ct is None:
        return (None,)
    sizes = x.aval.shape
    kept = {d for n, d in zip(sizes, broadcast_dimensions, strict=True) if same(n, shape[d])}
    summed = reduce_sum(ct, [d for d in range(len(shape)) if d not in kept])
    return (reshape(summed, sizes),)


def _broadcast_batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Dims,
    *,
    shape: Shape,
    broadcast_dimensions: tuple[int, ...],
) -> Batched:
    x = batch_first(args[0], dims[0], axis.size)
    moved = (0, *(d + 1 for d in broadcast_dimensions))
    return (broadcast_in_dim(x, (axis.size, *shape), moved),), (0,)


broadcast_in_dim_p = Primitive(
    "broadcast_in_dim",
    aval=_broadcast_aval,
    eval=_broadcast_eval,
    form=_broadcast_form,
    jvp=linear_jvp(broadcast_in_dim),
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
    samples=(
        Sample((_f32(),), {"shape": (2, 3), "broadcast_dimensions": ()}),
        Sample((_f32(3),), {"shape": (2, 3), "broadcast_dimensions": (1,)}),
        Sample((_f32(2, 1),), {"shape": (2, 4, 3), "broadcast_dimensions": (0, 2)}),
        Sample((_f32(1),), {"shape": (0, 1), "broadcast_dimensions": (1,)}),
        Sample((ShapedArray((2,), dt.key),), {"shape": (2, 2), "broadcast_dimensions": (0,)}),
    ),
)


# ---- reshape


def reshape(operand: Value, new_sizes: Any, *, out_sharding: Any = None) -> Value:
    """The elements in row-major order under another shape; one size may be -1."""
    del out_sharding
    sizes = static_dims("reshape", "a size", new_sizes)
    shape = aval_of(operand).shape
    if any(same(d, -1) for d in sizes):
        sizes = _fill_in_size(shape, sizes)
    elif same_shape(shape, sizes) and not isinstance(operand, (np.ndarray, np.generic, int, float)):
        return operand
    return apply(reshape_p, operand, new_sizes=sizes)[0]


def _fill_in_size(shape: Shape, sizes: Shape) -> Shape:
    known = _product([d for d in sizes if not same(d, -1)])
    total = _product(shape)
    if sum(same(d, -1) for d in sizes) > 1 or same(known, 0) or not same(total % known, 0):
        raise ShapeError(
            operation="reshape",
            required="at most one size of -1, and other sizes that divide the number of elements",
            got=f"{text(shape)} to {text(sizes)}",
            fix="give the sizes in full",
        )
    return tuple(total // known if same(d, -1) else d for d in sizes)


def _product(shape: Sequence[Dim]) -> Dim:
    size: Dim = 1
    for n in shape:
        size = size * n
    return size


def _reshape_aval(x: ShapedArray, *, new_sizes: Shape) -> tuple[ShapedArray, ...]:
    check_sizes("reshape", new_sizes)
    if not same(_product(x.shape), _product(new_sizes)):
        raise ShapeError(
            operation="reshape",
            required=f"sizes with {_product(x.shape)} elements, as {x} has",
            got=f"{text(new_sizes)} with {_product(new_sizes)}",
            fix="choose sizes with the same product",
        )
    return (x.with_shape(new_sizes),)


def _reshape_transpose(
    cts: Sequence[Value | None], inputs: Sequence[Any], *, new_sizes: Shape
) -> Sequence[Value | None]:
    return (None if cts[0] is None else reshape(cts[0], inputs[0].aval.shape),)


def _reshape_batch(
    axis: MappedAxis, args: Sequence[Value], dims: Dims, *, new_sizes: Shape
) -> Batched:
    return (reshape(batch_first(args[0], dims[0], axis.size), (axis.size, *new_sizes)),), (0,)


reshape_p = Primitive(
    "reshape",
    aval=_reshape_aval,
    eval=lambda x, *, new_sizes: (x.reshape(new_sizes),),
    form=lambda x, *, new_sizes: Move((index_map.reshape(x.shape, new_sizes),)),
    jvp=linear_jvp(reshape),
    transpose=_reshape_transpose,
    batch=_reshape_batch,
    samples=(
        Sample((_f32(2, 3),), {"new_sizes": (3, 2)}),
        Sample((_f32(4, 3, 2),), {"new_sizes": (2, 6, 1, 2)}),
        Sample((_f32(),), {"new_sizes": (1, 1)}),
        Sample((_f32(0, 3),), {"new_sizes": (3, 0, 2)}),
    ),
)


# ---- transpose


def transpose(operand: Value, permutation: Any) -> Value:
    """`operand` with axes reordered: axis k of the result is its axis permutation[k]."""
    return apply(
        transpose_p, operand, permutation=static_ints("transpose", "an axis", permutation)
    )[0]


def _transpose_aval(x: ShapedArray, *, permutation: tuple[int, ...]) -> tuple[ShapedArray, ...]:
    if sorted(permutation) != list(range(x.ndim)):
        raise ArgumentValueError(
            operation="transpose",
            required=f"a permutation of the {x.ndim} axes of {x}",
            got=text(permutation),
            fix="name every axis once, as a nonnegative number",
        )
    return (x.with_shape(tuple([x.shape[p] for p in permutation])),)


def _inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def _transpose_transpose(
    cts: Sequence[Value | None], inputs: Sequence[Any], *, permutation: tuple[int, ...]
) -> Sequence[Value | None]:
    return (None if cts[0] is None else transpose(cts[0], _inverse(permutation)),)


def _transpose_batch(
    axis: MappedAxis, args: Sequence[Value], dims: Dims, *, permutation: tuple[int, ...]
) -> Batched:
    dim = dims[0] or 0
    return (transpose(args[0], (dim, *(p + (p >= dim) for p in permutation))),), (0,)


transpose_p = Primitive(
    "transpose",
    aval=_transpose_aval,
    eval=lambda x, *, permutation: (x.transpose(permutation),),
    form=lambda x, *, permutation: Move((index_map.transpose(x.shape, permutation),)),
    jvp=linear_jvp(transpose),
    transpose=_transpose_transpose,
    batch=_transpose_batch,
    samples=(
        Sample((_f32(2, 3),), {"permutation": (1, 0)}),
        Sample((_f32(2, 3, 4),), {"permutation": (2, 0, 1)}),
        Sample((_f32(0, 1),), {"permutation": (1, 0)}),
        Sample((_f32(),), {"permutation": ()}),
    ),
)


def moveaxis(x: Value, source: int, destination: int) -> Value:
    """`x` with axis `source` moved to position `destination`; both nonnegative."""
    if source == destination:
        return x
    order = [k for k in range(len(shape_of(x))) if k != source]
    order.insert(destination, source)
    return transpose(x, order)


def batch_first(x: Value, dim: int | None, size: Dim) -> Value:
    """A batch rule's operand with the mapped axis first; one that is not mapped is repeated."""
    if dim is not None:
        return moveaxis(x, dim, 0)
    shape = shape_of(x)
    return broadcast_in_dim(x, (size, *shape), range(1, len(shape) + 1))


def each_batch_first(args: Sequence[Value], dims: Sequence[int | None], size: Dim) -> list[Value]:
    """Every operand of a batch rule with the mapped axis first."""
    return [batch_first(x, d, size) for x, d in zip(args, dims, strict=True)]


def place_axis(x: Value, dim: int | None, position: int, size: Dim) -> Value:
    """`x` with its mapped axis `dim` at `position`; what is not mapped is repeated."""
    if dim is not None:
        return moveaxis(x, dim, position)
    shape = shape_of(x)
    kept = [k for k in range(len(shape) + 1) if k != position]
    return broadcast_in_dim(x, (*shape[:position], size, *shape[position:]), kept)


set_methods({"_place_axis": place_axis})  # vmap, a floor below, places its outputs with it


# ---- rev


def rev(operand: Value, dimensions: Any) -> Value:
    """`operand` reversed along `dimensions`."""
    return apply(rev_p, operand, dimensions=static_ints("rev", "a dimension", dimensions))[0]


def _rev_aval(x: ShapedArray, *, dimensions: tuple[int, ...]) -> tuple[ShapedArray, ...]:
    check_distinct("rev", "dimensions", dimensions)
    if any(not 0 <= d < x.ndim for d in dimensions):
        raise ArgumentValueError(
            operation="rev",
            required=f"dimensions in [0, {x.ndim}) for {x}",
            got=text(dimensions),
            fix="choose axes that the operand has",
        )
    return (x,)


def _rev_transpose(
    cts: Sequence[Value | None], inputs: Sequence[Any], *, dimensions: tuple[int, ...]
) -> Sequence[Value | None]:
    return (None if cts[0] is None else rev(cts[0], dimensions),)


def _rev_batch(
    axis: MappedAxis, args: Sequence[Value], dims: Dims, *, dimensions: tuple[int, ...]
) -> Batched:
    dim = dims[0] or 0
    return (rev(args[0], [d + (d >= dim) for d in dimensions]),), (dim,)


rev_p = Primitive(
    "rev",
    aval=_rev_aval,
    eval=lambda x, *, dimensions: (np.asarray(np.flip(x, dimensions)),),
    form=lambda x, *, dimensions: Move((index_map.flip(x.shape, dimensions),)),
    jvp=linear_jvp(rev),
    transpose=_rev_transpose,
    batch=_rev_batch,
    samples=(
        Sample((_f32(),), {"dimensions": ()}),
        Sample((_f32(3),), {"dimensions": (0,)}),
        Sample((_f32(2, 3, 2),), {"dimensions": (2, 0)}),
        Sample((_f32(0, 2),), {"dimensions": (0,)}),
        Sample((_f32(),), {"dimensions": ()}),
    ),
)


# ---- reduce_sum


def reduce_sum(operand: Value, axes: Any, *, out_sharding: Any = None) -> Value:
    """The sum over `axes`; 16-bit floats accumulate in float32, integers wrap."""
    del out_sharding
    axes = canonical_axes("reduce_sum", axes, len(shape_of(operand)))
    return apply(reduce_sum_p, operand, axes=axes)[0]


def reduced_shape(operation: str, shape: Shape, axes: tuple[int, ...]) -> Shape:
    """`shape` without `axes`, which must be distinct and in range."""
    check_distinct(operation, "axes", axes)
    if any(not 0 <= a < len(shape) for a in axes):
        raise ArgumentValueError(
            operation=operation,
            required=f"axes in [0, {len(shape)})",
            got=text(axes),
            fix="choose axes that the operand has",
        )
    return tuple([n for k, n in enumerate(shape) if k not in axes])


def _reduce_sum_aval(x: ShapedArray, *, axes: tuple[int, ...]) -> tuple[ShapedArray, ...]:
    check_dtype(
        "reduce_sum", x, dt.is_integer(x.dtype) or dt.is_inexact(x.dtype), "a numeric operand"
    )
    return (x.with_shape(reduced_shape("reduce_sum", x.shape, axes)),)


@silent
def _reduce_sum_eval(x: NDArray, *, axes: tuple[int, ...]) -> tuple[NDArray]:
    total = np.add.reduce(x, axis=axes, dtype=dt.accumulation_dtype(x.dtype))
    return (np.asarray(total, x.dtype),)


def _reduce_sum_transpose(
    cts: Sequence[Value | None], inputs: Sequence[Any], *, axes: tuple[int, ...]
) -> Sequence[Value | None]:
    if cts[0] is None:
        return (None,)
    shape = inputs[0].aval.shape
    return (broadcast_in_dim(cts[0], shape, [k for k in range(len(shape)) if k not in axes]),)


def reduction_batch(
    prim: Primitive, args: Sequence[Value], dims: Dims, axes: tuple[int, ...]
) -> Batched:
    """The batch rule of every reduction: the mapped axis is one more that is kept."""
    dim = dims[0] or 0
    moved = tuple([a + (a >= dim) for a in axes])
    return prim.bind(args[0], axes=moved), (dim - sum(a < dim for a in moved),)


reduce_sum_p = Primitive(
    "reduce_sum",
    aval=_reduce_sum_aval,
    eval=_reduce_sum_eval,
    form=lambda x, *, axes: Reduce(ReduceOp.SUM, axes),
    jvp=linear_jvp(reduce_sum),
    transpose=_reduce_sum_transpose,
    batch=lambda axis, args, dims, *, axes: reduction_batch(reduce_sum_p, args, dims, axes),
    samples=(
        Sample((_f32(3),), {"axes": (0,)}),
        Sample((_f32(2, 3, 4),), {"axes": (0, 2)}),
        Sample((_f32(2, 0),), {"axes": (1,)}),
        Sample((_f32(2, 1),), {"axes": ()}),
        Sample((ShapedArray((2, 3), dt.int32),), {"axes": (1,)}),
        Sample((ShapedArray((2, 3), dt.bfloat16),), {"axes": (0,)}),
    ),
)


# ---- constants and wrappers


def full(shape: Any, fill_value: Value, dtype: Any = None) -> Value:
    """An array of `shape` whose elements are all `fill_value`, cast to `dtype` if one is given.

    A traced fill value must have that dtype already: cast it first.
    """
    if dtype is not None:
        dtype = dt.canonicalize(dtype)
        if isinstance(fill_value, Array):
            fill_value = fill_value.data
        if isinstance(fill_value, (np.ndarray, np.generic, bool, int, float, complex)):
            fill_value = _scalar(fill_value, dtype)
        aval = aval_of(fill_value)
        check_dtype("full", aval, aval.dtype == dtype, f"a traced fill value of dtype {dtype}")
    if len(shape_of(fill_value)) != 0:
        raise ShapeError(
            operation="full",
            required="a rank-0 fill value",
            got=str(aval_of(fill_value)),
            fix="use broadcast_in_dim for a fill value with axes",
        )
    return broadcast_in_dim(fill_value, shape, ())


@np.errstate(all="ignore")
def _scalar(value: Any, dtype: dt.DType) -> NDArray:
    return np.asarray(value).astype(dtype)


def zero(dtype: dt.DType) -> NDArray:
    """The rank-0 zero of a dtype; of a key, the key whose words are zero."""
    return np.zeros((), dtype)


def zeros(shape: Shape, dtype: dt.DType) -> Value:
    """An array of zeros."""
    return broadcast_in_dim(zero(dtype), shape, ())


def instantiate(tangent: Value | None, primal: Value) -> Value:
    """A tangent or cotangent of `primal`, with a symbolic zero made real."""
    if tangent is not None:
        return tangent
    aval = aval_of(primal)
    return zeros(aval.shape, aval.dtype)


def squeeze(array: Value, dimensions: Any) -> Value:
    """`array` without the axes `dimensions`, each of size 1."""
    shape = shape_of(array)
    axes = canonical_axes("squeeze", dimensions, len(shape))
    if any(not same(shape[a], 1) for a in axes):
        raise ShapeError(
            operation="squeeze",
            required="axes of size 1",
            got=f"axes {text(axes)} of shape {text(shape)}",
            fix="squeeze only axes of size 1",
        )
    return reshape(array, [n for k, n in enumerate(shape) if k not in axes])


def expand_dims(array: Value, dimensions: Any) -> Value:
    """`array` with axes of size 1 inserted, at positions `dimensions` of the result."""
    shape = shape_of(array)
    places = static_ints("expand_dims", "a dimension", dimensions)
    axes = canonical_axes("expand_dims", places, len(shape) + len(places))
    sizes = iter(shape)
    return reshape(array, [1 if k in axes else next(sizes) for k in range(len(shape) + len(axes))])
