"""Less common operations of jax.lax, all of them composed of others."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax import ops, tree
from lumjax.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from lumjax.ops import Precision, collective
from lumjax.trace.core import aval_of

PrecisionLike: TypeAlias = str | Precision | tuple[str, str] | tuple[Precision, Precision] | None


class GatherScatterMode(StrEnum):
    """What an index out of range does: FILL_OR_DROP, CLIP, or PROMISE_IN_BOUNDS (it clips)."""

    FILL_OR_DROP = "fill"
    CLIP = "clip"
    PROMISE_IN_BOUNDS = "promise_in_bounds"

    @staticmethod
    def from_any(s: Any) -> GatherScatterMode:
        """The mode of a name; None is FILL_OR_DROP.

        >>> GatherScatterMode.from_any("clip").name
        'CLIP'
        """
        return GatherScatterMode({"drop": "fill", None: "fill"}.get(s, s))


def dtype(x: Any) -> np.dtype[Any]:
    """The dtype of an array or number.

    >>> dtype(1.0)
    dtype('float32')
    """
    return aval_of(x).dtype


# ---- shapes


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """`x` with leading axes of size 1 up to `rank` axes.

    >>> broadcast_to_rank(np.ones(3, np.float32), 2).shape
    (1, 3)
    """
    shape = aval_of(x).shape
    if len(shape) > rank:
        raise ShapeError(
            operation="lax.broadcast_to_rank", required=f"at most {rank} axes",
            got=str(aval_of(x)), fix="choose a greater rank",
        )  # fmt: skip
    return ops.reshape(x, (*[1] * (rank - len(shape)), *shape))


def tile(operand: Any, reps: Sequence[int]) -> Any:
    """`operand` repeated along each axis.

    >>> tile(np.array([1, 2]), (2,)).tolist()
    [1, 2, 1, 2]
    """
    shape: Any = aval_of(operand).shape
    if len(reps) != len(shape):
        raise ShapeError(
            operation="lax.tile", required=f"{len(shape)} repetitions", got=str(tuple(reps)),
            fix="give one for each axis",
        )  # fmt: skip
    pairs = [n for r, s in zip(reps, shape, strict=True) for n in (r, s)]
    wide = ops.broadcast_in_dim(operand, pairs, range(1, 2 * len(shape), 2))
    return ops.reshape(wide, [r * s for r, s in zip(reps, shape, strict=True)])


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Any]:
    """Consecutive pieces of the given sizes along an axis.

    >>> [x.tolist() for x in split(np.array([1, 2, 3]), (1, 2))]
    [[1], [2, 3]]
    """
    shape: Any = aval_of(operand).shape
    place = ops.canonical_axis("lax.split", axis, len(shape))
    if builtins.sum(sizes) != shape[place]:
        raise ShapeError(
            operation="lax.split", required=f"sizes that sum to {shape[place]}",
            got=str(tuple(sizes)), fix="cover the axis",
        )  # fmt: skip
    out: list[Any] = []
    start = 0
    for size in sizes:
        low, high = [0] * len(shape), list(shape)
        low[place], high[place] = start, start + size
        out.append(ops.slice(operand, low, high))
        start += size
    return out


def unstack(x: Any, axis: int = 0) -> list[Any]:
    """The slices along an axis, which they lack."""
    count: Any = aval_of(x).shape[axis]
    return [ops.squeeze(p, (axis,)) for p in split(x, (1,) * count, axis)]


def stack(operands: Sequence[Any], axis: int = 0) -> Any:
    """Arrays of one shape along a new axis."""
    rank = aval_of(operands[0]).ndim + 1
    place = ops.canonical_axis("lax.stack", axis, rank)
    return ops.concatenate([ops.expand_dims(a, (place,)) for a in operands], place)


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Any:
    """An array of zeros (nothing here is left uninitialised)."""
    del out_sharding
    return ops.full(shape, 0, dt.canonicalize(dtype))


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Any:
    """Rows of `src` at index vectors along `axes`, wrapped into range.

    >>> index_take(np.array([5, 6, 7]), [np.array([-1, 0])], (0,)).tolist()
    [7, 5]
    """
    shape: Any = aval_of(src).shape
    columns = [ops.expand_dims(ops.asvalue(i), (1,)) for i in idxs]
    indices = ops.concatenate(columns, 1)
    sizes = ops.asvalue(np.asarray([[shape[a] for a in axes]], aval_of(indices).dtype))
    indices = ops.remainder(indices, sizes)
    windows = [1 if k in axes else n for k, n in enumerate(shape)]
    numbers = ops.GatherDimensionNumbers(
        tuple(range(1, len(shape) - len(axes) + 1)), tuple(axes), tuple(axes)
    )
    return ops.gather(src, indices, numbers, windows, mode="promise_in_bounds")


# ---- numbers


def mulhi(x: Any, y: Any) -> Any:
    """The upper half of the product of 8-, 16- or 32-bit integers.

    >>> int(mulhi(np.uint32(2**31), np.uint32(4)))
    2
    """
    a, b = ops.promote_values(x, y)
    kind = aval_of(a).dtype
    width = 8 * kind.itemsize
    if not dt.is_integer(kind) or width == 64:
        raise DTypeError(
            operation="lax.mulhi", required="8-, 16- or 32-bit integers", got=str(aval_of(a)),
            fix="convert with astype first",
        )  # fmt: skip
    half = width // 2
    mask = np.asarray((1 << half) - 1, kind)
    shift = ops.shift_right_arithmetic if dt.is_signed(kind) else ops.shift_right_logical
    by = np.asarray(half, kind)
    low_a, low_b, high_a, high_b = (
        ops.and_(a, mask), ops.and_(b, mask), _by(shift, a, by), _by(shift, b, by),
    )  # fmt: skip
    carry = _by(ops.shift_right_logical, ops.mul(low_a, low_b), by)
    first = ops.add(ops.mul(high_a, low_b), carry)
    second = ops.add(ops.mul(low_a, high_b), ops.and_(first, mask))
    return ops.add(ops.add(ops.mul(high_a, high_b), _by(shift, first, by)), _by(shift, second, by))


def _by(shift: Callable[[Any, Any], Any], x: Any, amount: Any) -> Any:
    return shift(x, ops.broadcast_in_dim(amount, aval_of(x).shape, ()))


def polygamma(m: Any, x: Any) -> Any:
    """The m-th derivative of digamma; differentiable in x."""
    order, value = ops.promote_values(m, x)
    order, value = ops.broadcast_values(order, value)
    shape, kind = aval_of(order).shape, aval_of(order).dtype
    zero, one, two = (ops.full(shape, k, kind) for k in (0, 1, 2))
    first = ops.eq(order, zero)
    shifted = ops.add(ops.select(first, one, order), one)
    even = ops.eq(ops.rem(order, two), zero)
    sign = ops.select(even, ops.neg(one), one)
    high = ops.mul(ops.mul(sign, ops.exp(ops.lgamma(shifted))), ops.zeta(shifted, value))
    return ops.select(first, ops.digamma(value), high)


def igamma(a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function P(a, x)."""
    return ops.igamma(a, x)


def igammac(a: Any, x: Any) -> Any:
    """The regularised upper incomplete gamma function 1 - P(a, x)."""
    return ops.igammac(a, x)


def igamma_grad_a(a: Any, x: Any) -> Any:
    """The derivative of igamma in a."""
    return ops.igamma_grad_a(a, x)


def random_gamma_grad(a: Any, x: Any) -> Any:
    """How a sample x of the gamma distribution moves with its parameter a."""
    return ops.random_gamma_grad(a, x)


def zeta(x: Any, q: Any) -> Any:
    """Hurwitz' zeta function; differentiable in q."""
    return ops.zeta(x, q)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """A float rounded to fewer exponent and mantissa bits, to nearest even; too large is infinite.

    Subnormal results become 0.

    >>> float(reduce_precision(np.float32(1.001), 8, 7))
    1.0
    """
    kind = aval_of(operand).dtype
    if not dt.is_floating(kind):
        raise DTypeError(
            operation="lax.reduce_precision", required="floats", got=str(aval_of(operand)),
            fix="convert with astype first",
        )  # fmt: skip
    info = dt.finfo(kind)
    shape = aval_of(operand).shape
    width, have = int(info.bits), int(info.nmant)
    bits = np.dtype(f"u{width // 8}")
    word = ops.bitcast(operand, bits)

    def constant(value: int) -> Any:
        return ops.full(shape, value, bits)

    drop = have - mantissa_bits
    if drop > 0:
        odd = ops.and_(ops.shift_right_logical(word, constant(drop)), constant(1))
        word = ops.add(word, ops.add(constant((1 << (drop - 1)) - 1), odd))
        word = ops.and_(word, constant((1 << width) - (1 << drop)))
    out = ops.bitcast(word, kind)
    if exponent_bits < width - 1 - have:
        bias = (1 << (exponent_bits - 1)) - 1
        top = np.asarray(2.0**bias * (2.0 - 2.0**-mantissa_bits), kind)
        least = np.asarray(2.0 ** (1 - bias), kind)
        size = ops.abs(out)
        sign = ops.sign(out)
        out = ops.select(
            ops.gt(size, _wide(top, shape)), ops.mul(sign, np.asarray(np.inf, kind)), out
        )
        out = ops.select(
            ops.lt(size, _wide(least, shape)), ops.mul(operand, np.asarray(0, kind)), out
        )
    return ops.select(ops.is_nan(operand), operand, out)


def _wide(x: Any, shape: Any) -> Any:
    return ops.broadcast_in_dim(x, shape, ())


def rng_uniform(a: Any, b: Any, shape: Sequence[int]) -> Any:
    """Uniform numbers in [a, b) from NumPy's global generator: different at each call.

    Under jit the numbers are drawn once, when the function is traced. Use lumjax.random instead.
    """
    low, high = ops.promote_values(a, b)
    kind = aval_of(low).dtype
    draw = ops.asvalue(np.asarray(np.random.random_sample(tuple(shape)), kind))
    span = ops.sub(high, low)
    return ops.add(ops.mul(draw, _wide(span, tuple(shape))), _wide(low, tuple(shape)))


def _approximate(
    operand: Any, k: int, axis: int, override: int, aggregate: bool, largest: bool
) -> list[Any]:
    del override, aggregate
    if largest:
        return ops.top_k(operand, k, axis)
    values, places = ops.top_k(ops.neg(operand), k, axis)
    return [ops.neg(values), places]


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Any]:
    """The k greatest elements along an axis and their positions; exact here.

    >>> approx_max_k(np.array([1.0, 3.0, 2.0], np.float32), 2)[1].tolist()
    [1, 2]
    """
    del recall_target
    return _approximate(
        operand, k, reduction_dimension, reduction_input_size_override, aggregate_to_topk, True
    )


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Any]:
    """The k least elements along an axis and their positions; exact here."""
    del recall_target
    return _approximate(
        operand, k, reduction_dimension, reduction_input_size_override, aggregate_to_topk, False
    )


# ---- programs


def optimization_barrier(operand: Any, /) -> Any:
    """The identity on a pytree, across which nothing is merged, moved or recomputed."""
    flat, treedef = tree.flatten(operand)
    return treedef.unflatten(ops.barrier(*flat, id=next(_barriers)))


_barriers = itertools.count(-1, -1)  # those of checkpoint count upwards


def platform_dependent(
    *args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]
) -> Any:
    """The function for this platform ("cpu"), or `default`, applied to the arguments.

    >>> platform_dependent(2, cpu=lambda x: x + 1, default=lambda x: x)
    3
    """
    chosen = per_platform.get("cpu", default)
    if chosen is None:
        raise ArgumentValueError(
            operation="lax.platform_dependent", required="a function for 'cpu', or default",
            got=", ".join(per_platform) or "none", fix="pass default=",
        )  # fmt: skip
    return chosen(*args)


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """`x`: there is one device."""
    del shardings
    return x


# ---- collectives over an axis of vmap


def _position(axis_name: Any) -> tuple[Any, Any]:
    return collective.axis_index(axis_name), collective.axis_size(axis_name)


def _multiple(operation: str, length: Any, size: Any, tiled: bool) -> int:
    if (length % size != 0) if tiled else length != size:
        raise ShapeError(
            operation=operation,
            required=f"an axis whose length is {'a multiple of ' if tiled else ''}{size}",
            got=str(length),
            fix="check the axis and `tiled`",
        )
    return length // size


def all_to_all(
    x: Any,
    axis_name: Any,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Lane i gets the i-th piece along `split_axis` from every lane, put along `concat_axis`.

    Without `tiled` the split axis, as long as the lanes are many, is replaced by a new one.
    """
    collective.one_group("lax.all_to_all", axis_index_groups)

    def bind(leaf: Any) -> Any:
        here, size = _position(axis_name)
        shape: Any = aval_of(leaf).shape
        source = ops.canonical_axis("lax.all_to_all", split_axis, len(shape))
        target = ops.canonical_axis("lax.all_to_all", concat_axis, len(shape))
        length = _multiple("lax.all_to_all", shape[source], size, tiled)
        every = collective.all_gather(leaf, axis_name)
        mine = ops.dynamic_slice_in_dim(every, ops.mul(here, length), length, source + 1)
        if not tiled:
            return ops.moveaxis(ops.squeeze(mine, (source + 1,)), 0, target)
        moved = ops.moveaxis(mine, 0, target)
        out = [n // size if k == source else n for k, n in enumerate(shape)]
        out[target] *= size
        return ops.reshape(moved, out)

    return tree.map(bind, x)


def psum_scatter(
    x: Any,
    axis_name: Any,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """The i-th piece, along an axis, of the sum over lanes, for lane i."""
    collective.one_group("lax.psum_scatter", axis_index_groups)

    def bind(leaf: Any) -> Any:
        here, size = _position(axis_name)
        shape: Any = aval_of(leaf).shape
        place = ops.canonical_axis("lax.psum_scatter", scatter_dimension, len(shape))
        length = _multiple("lax.psum_scatter", shape[place], size, tiled)
        total = collective.psum(leaf, axis_name)
        mine = ops.dynamic_slice_in_dim(total, ops.mul(here, length), length, place)
        return mine if tiled else ops.squeeze(mine, (place,))

    return tree.map(bind, x)


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Lane i gets the value of lane perm[i]."""
    return collective.ppermute(x, axis_name, [(source, k) for k, source in enumerate(perm)])


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """The mapped axis exchanged with an axis of each lane's value."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """The value of one lane, for all."""
    return tree.map(
        lambda leaf: ops.dynamic_index_in_dim(
            collective.all_gather(leaf, axis_name), source, 0, keepdims=False
        ),
        x,
    )


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Rows of `lhs` (m, k) in consecutive groups, each times its own matrix of `rhs` (g, k, n).

    >>> lhs, rhs = np.ones((3, 1), np.float32), np.array([[[1.0]], [[2.0]]], np.float32)
    >>> ragged_dot(lhs, rhs, np.array([1, 2])).tolist()
    [[1.0], [2.0], [2.0]]
    """
    del out_sharding
    if group_offset is not None:
        raise ArgumentTypeError(
            operation="lax.ragged_dot", required="group_offset None", got=repr(group_offset),
            fix="pass all groups",
        )  # fmt: skip
    a, b = ops.promote_values(lhs, rhs, operation="lax.ragged_dot")
    m, groups = aval_of(a).shape[0], aval_of(b).shape[0]
    ends = ops.cumsum(ops.asvalue(group_sizes), 0)
    kind = aval_of(ends).dtype
    row = ops.broadcasted_iota(kind, (m, groups), 0)
    wide = ops.broadcast_in_dim(ends, (m, groups), (1,))
    sizes = ops.broadcast_in_dim(ops.asvalue(group_sizes), (m, groups), (1,))
    inside = ops.and_(ops.lt(row, wide), ops.ge(row, ops.sub(wide, sizes)))
    k = aval_of(a).shape[1]
    mask = ops.broadcast_in_dim(inside, (m, groups, k), (0, 1))
    spread = ops.broadcast_in_dim(a, (m, groups, k), (0, 2))
    kept = ops.select(mask, spread, ops.full((m, groups, k), 0, aval_of(a).dtype))
    return ops.dot_general(kept, b, (((1, 2), (0, 1)), ((), ())), precision, preferred_element_type)
