"""Movement, second half: slice, pad, concatenate, and the index constants iota and dim_value.

The operations of `layout` are offered here too, so that one import serves for all movement.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    Shape,
    all_weak,
    apply,
    canonical_axis,
    check_dtype,
    check_length,
    check_same_dtypes,
    check_sizes,
    linear_jvp,
    silent,
    static_dims,
    static_int,
    static_ints,
    text,
)
from lumjax.ops.layout import batch_first as batch_first
from lumjax.ops.layout import broadcast_in_dim as broadcast_in_dim
from lumjax.ops.layout import broadcast_in_dim_p as broadcast_in_dim_p
from lumjax.ops.layout import each_batch_first as each_batch_first
from lumjax.ops.layout import expand_dims as expand_dims
from lumjax.ops.layout import full as full
from lumjax.ops.layout import instantiate as instantiate
from lumjax.ops.layout import moveaxis as moveaxis
from lumjax.ops.layout import reduce_sum as reduce_sum
from lumjax.ops.layout import reduce_sum_p as reduce_sum_p
from lumjax.ops.layout import reduced_shape as reduced_shape
from lumjax.ops.layout import reduction_batch as reduction_batch
from lumjax.ops.layout import reshape as reshape
from lumjax.ops.layout import reshape_p as reshape_p
from lumjax.ops.layout import rev as rev
from lumjax.ops.layout import rev_p as rev_p
from lumjax.ops.layout import shape_of as shape_of
from lumjax.ops.layout import squeeze as squeeze
from lumjax.ops.layout import transpose as transpose
from lumjax.ops.layout import transpose_p as transpose_p
from lumjax.ops.layout import zero as zero
from lumjax.ops.layout import zeros as zeros
from lumjax.ops.size import dim_value as dim_value
from lumjax.ops.size import dim_value_p as dim_value_p
from lumjax.trace import view as index_map
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, Primitive, Sample, Value, aval_of
from lumjax.trace.dim import Dim, same, same_shape
from lumjax.trace.form import Iota, Move

Config = tuple[tuple[Dim, Dim, int], ...]
_Cotangents = Sequence[Value | None]


def _f32(*shape: int) -> ShapedArray:
    return ShapedArray(shape, dt.float32)


# ---- slice


def slice(operand: Value, start_indices: Any, limit_indices: Any, strides: Any = None) -> Value:
    """operand[start:limit:stride] along every axis.

    Bounds must lie inside the operand; strides are positive.
    """
    starts = static_dims("slice", "a start", start_indices)
    steps = (1,) * len(starts) if strides is None else static_ints("slice", "a stride", strides)
    limits = static_dims("slice", "a limit", limit_indices)
    return apply(slice_p, operand, start_indices=starts, limit_indices=limits, strides=steps)[0]


def _slice_aval(
    x: ShapedArray, *, start_indices: Shape, limit_indices: Shape, strides: tuple[int, ...]
) -> tuple[ShapedArray, ...]:
    check_length("slice", "start indices", start_indices, x.ndim)
    check_length("slice", "limit indices", limit_indices, x.ndim)
    check_length("slice", "strides", strides, x.ndim)
    for start, limit, step, n in zip(start_indices, limit_indices, strides, x.shape, strict=True):
        if step < 1 or not 0 <= start <= limit <= n:
            raise ArgumentValueError(
                operation="slice",
                required=f"0 <= start <= limit <= size along the axes of {x}, positive strides",
                got=f"starts {text(start_indices)}, limits {text(limit_indices)}, "
                f"strides {text(strides)}",
                fix="clip the bounds to the operand's shape",
            )
    sizes = [-((a - b) // s) for a, b, s in zip(start_indices, limit_indices, strides, strict=True)]
    return (x.with_shape(tuple(sizes)),)


def _slice_eval(
    x: NDArray, *, start_indices: Any, limit_indices: Any, strides: Any
) -> tuple[NDArray]:
    return (np.asarray(x[tuple(map(builtins.slice, start_indices, limit_indices, strides))]),)


def _slice_form(
    x: ShapedArray, *, start_indices: Shape, limit_indices: Shape, strides: tuple[int, ...]
) -> Move:
    return Move((index_map.slice(x.shape, start_indices, limit_indices, strides),))


def _slice_transpose(
    cts: Sequence[Value | None],
    inputs: Sequence[Any],
    *,
    start_indices: Shape,
    limit_indices: Shape,
    strides: tuple[int, ...],
) -> Sequence[Value | None]:
    if (ct := cts[0]) is None:
        return (None,)
    aval = inputs[0].aval
    config: list[tuple[Dim, Dim, int]] = []
    for a, step, n, m in zip(start_indices, strides, aval.shape, shape_of(ct), strict=True):
        covered = 0 if same(m, 0) else 1 + (m - 1) * step
        config.append((a, n - a - covered, step - 1))
    return (pad(ct, zero(aval.dtype), config),)


def _slice_batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Dims,
    *,
    start_indices: Shape,
    limit_indices: Shape,
    strides: tuple[int, ...],
) -> Batched:
    x = batch_first(args[0], dims[0], axis.size)
    return (slice(x, (0, *start_indices), (axis.size, *limit_indices), (1, *strides)),), (0,)


slice_p = Primitive(
    "slice",
    aval=_slice_aval,
    eval=_slice_eval,
    form=_slice_form,
    jvp=linear_jvp(slice),
    transpose=_slice_transpose,
    batch=_slice_batch,
    samples=(
        Sample((_f32(5),), {"start_indices": (1,), "limit_indices": (4,), "strides": (1,)}),
        Sample(
            (_f32(6, 7),), {"start_indices": (0, 2), "limit_indices": (6, 7), "strides": (2, 3)}
        ),
        Sample(
            (_f32(3, 2),), {"start_indices": (1, 1), "limit_indices": (1, 2), "strides": (2, 1)}
        ),
        Sample((_f32(),), {"start_indices": (), "limit_indices": (), "strides": ()}),
    ),
)


# ---- pad


def pad(operand: Value, padding_value: Value, padding_config: Any) -> Value:
    """`operand` padded with a rank-0 value. Per axis (low, high, interior).

    Negative low and high crop; `interior` values are put between neighbouring elements. Both
    operands have one dtype; a Python number takes the operand's.
    """
    if isinstance(padding_value, (bool, int, float, complex)):
        padding_value = np.asarray(padding_value, aval_of(operand).dtype)
    config = tuple(
        [(*static_dims("pad", "an amount of padding", (a, b)), static_int("pad", "interior", i))
         for a, b, i in padding_config]
    )  # fmt: skip
    return apply(pad_p, operand, padding_value, padding_config=config)[0]


def _padded(n: Dim, low: Dim, high: Dim, interior: int) -> Dim:
    spread = 0 if same(n, 0) else n + (n - 1) * interior
    return low + high + spread


def _pad_aval(
    x: ShapedArray, value: ShapedArray, *, padding_config: Config
) -> tuple[ShapedArray, ...]:
    check_same_dtypes("pad", (x, value))
    check_length("pad", "(low, high, interior) triples", padding_config, x.ndim)
    sizes = tuple([_padded(n, *c) for n, c in zip(x.shape, padding_config, strict=True)])
    if value.ndim or any(i < 0 for _, _, i in padding_config) or any(map(_is_negative, sizes)):
        raise ShapeError(
            operation="pad",
            required="a rank-0 padding value, interior >= 0, and a result of sizes >= 0",
            got=f"{x}, {value}, config {text(padding_config)}, result {text(sizes)}",
            fix="crop less than the size of the axis",
        )
    return (ShapedArray(sizes, x.dtype, all_weak(x, value)),)


def _is_negative(d: Dim) -> bool:
    return isinstance(d, int) and d < 0


def _valid_range(n: int, size: Any, low: int, interior: int) -> range:
    """The positions of a padded axis that hold elements of the operand."""
    step = interior + 1
    first = low if low >= 0 else low + -(low // step) * step
    return range(first, min(size, low + (n - 1) * step + 1), step)


def _pad_eval(x: NDArray, value: NDArray, *, padding_config: Any) -> tuple[NDArray]:
    sizes = tuple([_padded(n, *c) for n, c in zip(x.shape, padding_config, strict=True)])
    out = np.empty(sizes, x.dtype)
    out[...] = value
    to: list[builtins.slice] = []
    source: list[builtins.slice] = []
    for n, size, (low, _, interior) in zip(x.shape, sizes, padding_config, strict=True):
        places = _valid_range(n, size, low, interior)
        skipped = (places.start - low) // places.step
        to.append(
            builtins.slice(places.start, builtins.max(places.stop, places.start), places.step)
        )
        source.append(builtins.slice(skipped, skipped + len(places)))
    out[tuple(to)] = x[tuple(source)]
    return (out,)


def _pad_form(x: ShapedArray, value: ShapedArray, *, padding_config: Config) -> Move:
    amounts: list[list[Any]] = [[c[k] for c in padding_config] for k in range(3)]
    inner = index_map.pad(x.shape, *amounts)
    return Move((inner, index_map.broadcast((), inner.domain, ())))


def _pad_jvp(primals: Sequence[Value], tangents: _Cotangents, *, padding_config: Config) -> Jvp:
    x, value = primals
    out = pad(x, value, padding_config)
    if tangents[0] is None and tangents[1] is None:
        return (out,), (None,)
    dx, dv = map(instantiate, tangents, primals)
    return (out,), (pad(dx, dv, padding_config),)


def _pad_transpose(
    cts: _Cotangents, inputs: Sequence[Any], *, padding_config: Config
) -> _Cotangents:
    if (ct := cts[0]) is None:
        return None, None
    x, value = inputs
    operand_ct = padding_ct = None
    if isinstance(x, Linear):
        cropped = pad(ct, zero(x.aval.dtype), [(-low, -high, 0) for low, high, _ in padding_config])
        rank = len(padding_config)
        steps = [i + 1 for _, _, i in padding_config]
        operand_ct = slice(cropped, (0,) * rank, shape_of(cropped), steps)
    if isinstance(value, Linear):
        padding_ct = _sum_of_padding(
            ct, aval_of(x) if not isinstance(x, Linear) else x.aval, padding_config
        )
    return operand_ct, padding_ct


def _sum_of_padding(ct: Value, x: ShapedArray, config: Config) -> Value:
    """The sum of `ct` over padded positions, piece by piece.

    All minus the rest would be nan where both are infinite.
    """
    shape: list[Any] = list(shape_of(ct))
    inside: list[range] = [range(n) for n in shape]
    pieces: list[Value] = []
    for a, (n, (low, _, interior)) in enumerate(zip(x.shape, config, strict=True)):
        places = _valid_range(int(n), shape[a], int(low), interior)
        end = places[-1] + 1 if places else places.start
        outside = [
            range(builtins.min(places.start, shape[a])),
            range(builtins.min(end, shape[a]), shape[a]),
        ]
        if not places:
            outside = [range(shape[a])]
        outside += [
            range(places.start + r, end, places.step) for r in range(1, places.step) if places
        ]
        for piece in outside:
            if piece:
                ranges = [*inside[:a], piece, *inside[a + 1 :]]
                part = slice(ct, *zip(*((r.start, r.stop, r.step) for r in ranges), strict=True))
                pieces.append(reshape(reduce_sum(part, None), (1,)))
        inside[a] = places
        if not places:
            break
    return reduce_sum(concatenate(pieces, 0), (0,)) if pieces else zeros((), x.dtype)


def _pad_batch(
    axis: MappedAxis, args: Sequence[Value], dims: Dims, *, padding_config: Config
) -> Batched:
    x = batch_first(args[0], dims[0], axis.size)
    if dims[1] is None:
        return (pad(x, args[1], ((0, 0, 0), *padding_config)),), (0,)
    for a, (low, high, interior) in enumerate(padding_config, start=1):
        x = _pad_axis(x, args[1], a, low, high, interior)
    return (x,), (0,)


def _pad_axis(x: Value, values: Value, a: int, low: Dim, high: Dim, interior: int) -> Value:
    """Pad axis `a` with a value per row of axis 0."""

    def filler(*sizes: Dim) -> Value:
        return broadcast_in_dim(values, sizes, (0,))

    shape = shape_of(x)
    if interior and not same(shape[a], 0):
        gaps = filler(*shape[: a + 1], interior, *shape[a + 1 :])
        spread = concatenate([expand_dims(x, (a + 1,)), gaps], a + 1)
        x = reshape(spread, (*shape[:a], shape[a] * (interior + 1), *shape[a + 1 :]))
        x = _crop(x, a, 0, interior)
        shape = shape_of(x)
    before, after = [
        [] if not isinstance(n, int) or n <= 0 else [filler(*shape[:a], n, *shape[a + 1 :])]
        for n in (low, high)
    ]
    x = concatenate([*before, x, *after], a)
    return _crop(x, a, *(-n if isinstance(n, int) and n < 0 else 0 for n in (low, high)))


def _crop(x: Value, a: int, low: int, high: int) -> Value:
    shape = shape_of(x)
    starts = [low if k == a else 0 for k in range(len(shape))]
    limits = [n - high if k == a else n for k, n in enumerate(shape)]
    return slice(x, starts, limits)


pad_p = Primitive(
    "pad",
    aval=_pad_aval,
    eval=_pad_eval,
    form=_pad_form,
    jvp=_pad_jvp,
    transpose=_pad_transpose,
    batch=_pad_batch,
    samples=(
        Sample((_f32(3), _f32()), {"padding_config": ((1, 2, 0),)}),
        Sample((_f32(2, 3), _f32()), {"padding_config": ((0, 1, 2), (-1, 2, 1))}),
        Sample((_f32(4), _f32()), {"padding_config": ((-5, 3, 0),)}),
        Sample((_f32(5), _f32()), {"padding_config": ((-3, -1, 1),)}),
        Sample((_f32(0, 1), _f32()), {"padding_config": ((1, 1, 1), (0, 0, 3))}),
        Sample((_f32(), _f32()), {"padding_config": ()}),
    ),
)


# ---- concatenate


def concatenate(operands: Sequence[Value], dimension: int) -> Value:
    """The operands, of one dtype, one after the other along axis `dimension`."""
    if not operands:
        raise ArgumentValueError(
            operation="concatenate",
            required="at least one operand",
            got="none",
            fix="handle the empty case before the call",
        )
    axis = canonical_axis("concatenate", dimension, len(shape_of(operands[0])))
    return operands[0] if len(operands) == 1 else apply(concatenate_p, *operands, dimension=axis)[0]


def _concatenate_aval(*avals: ShapedArray, dimension: int) -> tuple[ShapedArray, ...]:
    check_same_dtypes("concatenate", avals)
    first, a = avals[0], dimension
    rest = [(*v.shape[:a], *v.shape[a + 1 :]) for v in avals]
    if any(
        v.ndim != first.ndim or not same_shape(r, rest[0]) for v, r in zip(avals, rest, strict=True)
    ):
        raise ShapeError(
            operation="concatenate",
            required=f"operands that agree in every axis but {a}",
            got=text(avals),
            fix="make the other sizes equal",
        )
    total: Dim = 0
    for v in avals:
        total = total + v.shape[a]
    return (
        ShapedArray(
            (*first.shape[:a], total, *first.shape[a + 1 :]), first.dtype, all_weak(*avals)
        ),
    )


def _concatenate_jvp(primals: Sequence[Value], tangents: _Cotangents, *, dimension: int) -> Jvp:
    out = concatenate(primals, dimension)
    if all(t is None for t in tangents):
        return (out,), (None,)
    return (out,), (concatenate(list(map(instantiate, tangents, primals)), dimension),)


def _concatenate_transpose(
    cts: _Cotangents, inputs: Sequence[Any], *, dimension: int
) -> _Cotangents:
    if (ct := cts[0]) is None:
        return (None,) * len(inputs)
    shape = shape_of(ct)
    found: list[Value | None] = []
    begin: Dim = 0
    for x in inputs:
        linear = isinstance(x, Linear)
        end = begin + (x.aval.shape if linear else shape_of(x))[dimension]
        starts = [begin if k == dimension else 0 for k in range(len(shape))]
        limits = [end if k == dimension else n for k, n in enumerate(shape)]
        found.append(slice(ct, starts, limits) if linear else None)
        begin = end
    return found


def _concatenate_batch(
    axis: MappedAxis, args: Sequence[Value], dims: Dims, *, dimension: int
) -> Batched:
    full_args = each_batch_first(args, dims, axis.size)
    return (concatenate(full_args, dimension + 1),), (0,)


concatenate_p = Primitive(
    "concatenate",
    aval=_concatenate_aval,
    eval=lambda *xs, dimension: (np.concatenate(xs, axis=dimension),),
    form=lambda *xs, dimension: Move(index_map.concatenate([x.shape for x in xs], dimension)),
    jvp=_concatenate_jvp,
    transpose=_concatenate_transpose,
    batch=_concatenate_batch,
    samples=(
        Sample((_f32(2), _f32(3)), {"dimension": 0}),
        Sample((_f32(2, 1), _f32(2, 0), _f32(2, 3)), {"dimension": 1}),
        Sample((_f32(0, 2), _f32(0, 2)), {"dimension": 0}),
        Sample((ShapedArray((2,), dt.key), ShapedArray((1,), dt.key)), {"dimension": 0}),
    ),
)


# ---- iota and dim_value


def iota(dtype: Any, size: Dim) -> Value:
    """0, 1, ..., size - 1."""
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int, *, out_sharding: Any = None) -> Value:
    """An array of `shape` that holds each element's position along axis `dimension`."""
    del out_sharding
    shape = static_dims("iota", "a size", shape)
    axis = canonical_axis("iota", dimension, len(shape))
    return apply(iota_p, dtype=dt.canonicalize(dtype), shape=shape, dimension=axis)[0]


def _iota_aval(*, dtype: dt.DType, shape: Shape, dimension: int) -> tuple[ShapedArray, ...]:
    check_sizes("iota", shape)
    out = ShapedArray(shape, dtype)
    check_dtype("iota", out, dt.is_numeric(dtype) and not dt.is_bool(dtype), "a numeric dtype")
    canonical_axis("iota", dimension, len(shape))
    return (out,)


@silent
def _iota_eval(*, dtype: dt.DType, shape: Any, dimension: int) -> tuple[NDArray]:
    column = np.arange(shape[dimension]).astype(dtype)
    sizes = [n if k == dimension else 1 for k, n in enumerate(shape)]
    return (np.broadcast_to(column.reshape(sizes), shape),)


iota_p = Primitive(
    "iota",
    aval=_iota_aval,
    eval=_iota_eval,
    form=lambda *, dtype, shape, dimension: Iota(dimension),
    samples=(
        Sample((), {"dtype": dt.int32, "shape": (3,), "dimension": 0}),
        Sample((), {"dtype": dt.float32, "shape": (2, 3), "dimension": 1}),
        Sample((), {"dtype": dt.uint8, "shape": (300, 1), "dimension": 0}),
        Sample((), {"dtype": dt.int32, "shape": (0, 2), "dimension": 1}),
    ),
)
