"""sort and top_k. nan sorts last, -0.0 and 0.0 are equal, and equal elements keep their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    apply,
    canonical_axis,
    check_dtype,
    static_int,
    text,
)
from lumjax.ops.index import gather
from lumjax.ops.reduce import is_ordered
from lumjax.ops.view import (
    batch_first,
    broadcasted_iota,
    each_batch_first,
    expand_dims,
    moveaxis,
    shape_of,
    zeros,
)
from lumjax.ops.windows import GatherDimensionNumbers
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Sample, Value, aval_of
from lumjax.trace.dim import same, same_shape
from lumjax.trace.form import Form, GatherMode, Order

_Tangents: TypeAlias = Sequence[Value | None]


def take_along_axis(x: Value, positions: Value, axis: int) -> Value:
    """x[..., positions[...], ...] along `axis`; sizes along the other axes are equal.

    Positions are in range.
    """
    rank = len(shape_of(x))
    if any(same(n, 0) for n in shape_of(x)):
        return zeros(shape_of(positions), aval_of(x).dtype)
    others = tuple([k for k in range(rank) if k != axis])
    numbers = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    indices = expand_dims(positions, (rank,))
    return gather(x, indices, numbers, (1,) * rank, mode=GatherMode.PROMISE)


# ---- sort


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """The operand sorted along `dimension`.

    The arrays of a tuple are permuted alike, ordered by the first `num_keys` of them.
    """
    several = isinstance(operand, (tuple, list))
    operands: Sequence[Value] = operand if several else (operand,)
    if not operands:
        raise ArgumentValueError(
            operation="sort", required="at least one operand", got="none", fix="pass an array"
        )
    axis = canonical_axis("sort", dimension, len(shape_of(operands[0])))
    keys = static_int("sort", "num_keys", num_keys)
    outs = apply(sort_p, *operands, dimension=axis, is_stable=bool(is_stable), num_keys=keys)
    return tuple(outs) if several else outs[0]


def argsort(operand: Value, dimension: int = -1, index_dtype: Any = dt.int32) -> Value:
    """The positions, along `dimension`, that sort the operand (stably)."""
    shape = shape_of(operand)
    axis = canonical_axis("argsort", dimension, len(shape))
    return sort((operand, broadcasted_iota(index_dtype, shape, axis)), axis)[1]


def is_sortable(dtype: dt.DType) -> bool:
    """Whether the dtype has an order; complex numbers go by real, then imaginary part."""
    return is_ordered(dtype) or dt.is_complex(dtype)


def _sort_aval(
    *avals: ShapedArray, dimension: int, is_stable: bool, num_keys: int
) -> tuple[ShapedArray, ...]:
    if not 1 <= num_keys <= len(avals):
        raise ArgumentValueError(
            operation="sort",
            required=f"num_keys between 1 and the number of operands, {len(avals)}",
            got=str(num_keys),
            fix="give at least as many operands as keys",
        )
    if any(not same_shape(a.shape, avals[0].shape) for a in avals):
        raise ShapeError(
            operation="sort",
            required="operands of one shape",
            got=text(avals),
            fix="broadcast the operands first",
        )
    canonical_axis("sort", dimension, avals[0].ndim)
    for a in avals[:num_keys]:
        check_dtype("sort", a, is_sortable(a.dtype), "keys of an ordered dtype")
    weak = all(a.weak for a in avals)
    return tuple([ShapedArray(a.shape, a.dtype, weak) for a in avals])


def _key_parts(x: NDArray) -> list[NDArray]:
    """Keys that NumPy orders as we do: 16-bit floats widened, complex numbers taken apart."""
    if dt.is_complex(x.dtype):
        return [x.real, x.imag]
    return [x.astype(dt.accumulation_dtype(x.dtype), copy=False)]


def _sort_eval(*xs: NDArray, dimension: int, is_stable: bool, num_keys: int) -> tuple[NDArray, ...]:
    parts = [p for x in xs[:num_keys] for p in _key_parts(x)]
    if len(parts) == 1:
        order = np.argsort(parts[0], axis=dimension, kind="stable")
    else:
        order = np.lexsort(parts[::-1], axis=dimension)
    return tuple([np.take_along_axis(x, order, dimension) for x in xs])


def _sort_jvp(primals: Sequence[Value], tangents: _Tangents, **p: Any) -> Jvp:
    """Tangents are carried along by the permutation."""
    if all(t is None for t in tangents):
        return sort_p.bind(*primals, **p), (None,) * len(primals)
    axis = p["dimension"]
    place = broadcasted_iota(dt.int32, shape_of(primals[0]), axis)
    *outs, order = sort_p.bind(*primals, place, **p)
    moved = [None if t is None else take_along_axis(t, order, axis) for t in tangents]
    return outs, moved


def _sort_batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Dims,
    *,
    dimension: int,
    is_stable: bool,
    num_keys: int,
) -> Batched:
    moved = each_batch_first(args, dims, axis.size)
    outs = sort_p.bind(*moved, dimension=dimension + 1, is_stable=is_stable, num_keys=num_keys)
    return outs, (0,) * len(outs)


def _sort_form(*avals: ShapedArray, dimension: int, is_stable: bool, num_keys: int) -> Form:
    return Order(dimension, num_keys)


def _sample(*avals: ShapedArray, dimension: int, num_keys: int = 1) -> Sample:
    return Sample(avals, {"dimension": dimension, "is_stable": True, "num_keys": num_keys})


def _f32(*shape: int) -> ShapedArray:
    return ShapedArray(shape, dt.float32)


_INT = ShapedArray((3, 4), dt.int8)

sort_p = Primitive(
    "sort",
    aval=_sort_aval,
    eval=_sort_eval,
    form=_sort_form,
    jvp=_sort_jvp,
    batch=_sort_batch,
    samples=(
        _sample(_f32(5), dimension=0),
        _sample(_f32(3, 4), _INT, dimension=0),
        _sample(_INT, _f32(3, 4), dimension=1, num_keys=2),
        _sample(_f32(0, 2), dimension=0),
        _sample(_f32(2, 1), dimension=1),
        _sample(ShapedArray((4,), dt.bfloat16), dimension=0),
        _sample(ShapedArray((4,), dt.complex64), dimension=0),
    ),
)


# ---- top_k


def top_k(operand: Value, k: int, axis: int = -1) -> list[Value]:
    """The k greatest elements along `axis` in descending order, and their positions (int32).

    nan counts as greatest; of equal elements the lower position comes first.
    """
    rank = len(shape_of(operand))
    last = canonical_axis("top_k", axis, rank)
    x = moveaxis(operand, last, rank - 1)
    values, positions = apply(top_k_p, x, k=static_int("top_k", "k", k))
    return [moveaxis(values, rank - 1, last), moveaxis(positions, rank - 1, last)]


def _top_k_aval(x: ShapedArray, *, k: int) -> tuple[ShapedArray, ...]:
    check_dtype("top_k", x, is_ordered(x.dtype), "a real or bool operand")
    n = x.shape[-1] if x.ndim else 0
    if k < 0 or (isinstance(n, int) and k > n):
        raise ArgumentValueError(
            operation="top_k",
            required=f"k between 0 and the size of the last axis, {n}",
            got=str(k),
            fix="choose a smaller k",
        )
    shape = (*x.shape[:-1], k)
    return ShapedArray(shape, x.dtype, x.weak), ShapedArray(shape, dt.int32, x.weak)


def _top_k_eval(x: NDArray, *, k: int) -> tuple[NDArray, ...]:
    n = x.shape[-1]
    (wide,) = _key_parts(x)
    # Descending and stable: sort the reversed axis ascending, then read it backwards.
    backwards = np.argsort(np.flip(wide, -1), axis=-1, kind="stable")
    order = (n - 1 - np.flip(backwards, -1))[..., :k]
    return np.take_along_axis(x, order, -1), order.astype(np.int32)


def _top_k_jvp(primals: Sequence[Value], tangents: _Tangents, *, k: int) -> Jvp:
    values, positions = top_k_p.bind(*primals, k=k)
    if tangents[0] is None:
        return (values, positions), (None, None)
    moved = take_along_axis(tangents[0], positions, len(shape_of(positions)) - 1)
    return (values, positions), (moved, None)


def _top_k_batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, *, k: int) -> Batched:
    return top_k_p.bind(batch_first(args[0], dims[0], axis.size), k=k), (0, 0)


top_k_p = Primitive(
    "top_k",
    aval=_top_k_aval,
    eval=_top_k_eval,
    form=lambda x, *, k: Order(x.ndim - 1, 1, descending=True, take=k, places=True),
    jvp=_top_k_jvp,
    batch=_top_k_batch,
    samples=(
        Sample((_f32(5),), {"k": 3}),
        Sample((ShapedArray((2, 3, 4), dt.int8),), {"k": 4}),
        Sample((_f32(2, 3),), {"k": 0}),
        Sample((ShapedArray((6,), dt.bfloat16),), {"k": 2}),
    ),
)
