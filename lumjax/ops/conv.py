"""conv_general_dilated: convolutions with any layout, stride, padding, dilation and grouping.

A convolution is a contraction whose left map overlaps itself; both of its transposes are
convolutions again. Padding is multiplied like other zeros (by an infinite weight it gives nan);
the holes that lhs_dilation leaves are not: no tap meets them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ArgumentValueError, ShapeError, UnsupportedError
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    Shape,
    all_weak,
    apply,
    check_dtype,
    check_length,
    check_same_dtypes,
    silent,
    static_int,
    static_ints,
    text,
)
from lumjax.ops.contract import check_preferred, sum_of_products_dtype
from lumjax.ops.elementwise import add, cast, promote_values
from lumjax.ops.precision import canonical_precision, rounding
from lumjax.ops.spread import Spread
from lumjax.ops.view import moveaxis, pad_p, reshape, rev, shape_of, zeros
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, Primitive, Sample, Value, aval_of
from lumjax.trace.dim import Dim, ceiling_divide, logical_and, same
from lumjax.trace.form import Contract
from lumjax.trace.view import IndexMap, coordinates

_Tangents: TypeAlias = Sequence[Value | None]
_Padding: TypeAlias = tuple[tuple[int, int], ...]
_CHUNK = 1 << 25  # bytes of unfolded windows held at once


class ConvDimensionNumbers(NamedTuple):
    """Axis positions: (batch, feature, *spatial) of lhs and out, (out, in, *spatial) of rhs."""

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


def conv_dimension_numbers(
    lhs_shape: Sequence[Dim], rhs_shape: Sequence[Dim], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Layouts from None (NCHW, OIHW, NCHW), three strings, or three tuples of positions.

    >>> conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 16), ("NHWC", "HWIO", "NHWC"))
    ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
    """
    rank = len(lhs_shape)
    if len(rhs_shape) != rank or rank < 2:
        raise ShapeError(
            operation="conv_general_dilated",
            required="operands of one rank, at least 2",
            got=f"shapes {text(lhs_shape)} and {text(rhs_shape)}",
            fix="add axes of size 1",
        )
    if dimension_numbers is None:
        return ConvDimensionNumbers(*(tuple(range(rank)),) * 3)
    lhs, rhs, out = dimension_numbers
    if isinstance(lhs, str):
        lhs, out = (_positions(s, "NC", rhs, rank) for s in (lhs, out))
        rhs = _positions(rhs, "OI", rhs, rank)
    found = ConvDimensionNumbers(
        *(static_ints("conv_general_dilated", "an axis", s) for s in (lhs, rhs, out))
    )
    if any(sorted(s) != list(range(rank)) for s in found):
        raise _bad_layout(dimension_numbers, rank)
    return found


def _positions(spec: Any, names: str, rhs_spec: Any, rank: int) -> tuple[int, ...]:
    spatial = [c for c in rhs_spec if c not in "OI"]  # the order of spatial axes is the kernel's
    if sorted(spec) != sorted([*names, *spatial]) or len(set(spec)) != rank:
        raise _bad_layout(spec, rank)
    return tuple([spec.index(c) for c in (*names, *spatial)])


def _bad_layout(got: Any, rank: int) -> ArgumentValueError:
    return ArgumentValueError(
        operation="conv_general_dilated",
        required=f"dimension numbers naming each of {rank} axes once, as ('NCHW', 'OIHW', 'NCHW')",
        got=repr(got),
        fix="give N, C for operands, O, I for the kernel, and the same spatial letters in all",
    )


def padtype_to_pads(
    in_shape: Sequence[int],
    window_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str,
) -> _Padding:
    """(low, high) padding per spatial axis for "SAME", "SAME_LOWER" or "VALID".

    >>> padtype_to_pads((5,), (4,), (2,), "SAME")
    ((1, 2),)
    """
    kind = padding.upper()
    if kind == "VALID":
        return ((0, 0),) * len(in_shape)
    if kind not in ("SAME", "SAME_LOWER"):
        raise ArgumentValueError(
            operation="conv_general_dilated",
            required="padding 'SAME', 'SAME_LOWER', 'VALID' or (low, high) pairs",
            got=repr(padding),
            fix="use one of these",
        )
    pads: list[tuple[int, int]] = []
    for n, k, s in zip(in_shape, window_shape, window_strides, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        half = total // 2
        pads.append((half, total - half) if kind == "SAME" else (total - half, half))
    return tuple(pads)


def dilated(n: Dim, dilation: int) -> Dim:
    """The extent of an axis whose elements are `dilation` apart."""
    return 0 if same(n, 0) else (n - 1) * dilation + 1


def conv_general_dilated(
    lhs: Value,
    rhs: Value,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Value:
    """Slide the kernel `rhs` over `lhs`; arguments are those of jax.lax.conv_general_dilated."""
    del out_sharding
    name = "conv_general_dilated"
    if aval_of(lhs).dtype != aval_of(rhs).dtype:
        lhs, rhs = promote_values(lhs, rhs, operation=name)
    numbers = conv_dimension_numbers(shape_of(lhs), shape_of(rhs), dimension_numbers)
    rank = len(numbers.lhs_spec) - 2
    strides = static_ints(name, "a stride", window_strides)
    ones = (1,) * rank
    base = ones if lhs_dilation is None else static_ints(name, "a dilation", lhs_dilation)
    taps = ones if rhs_dilation is None else static_ints(name, "a dilation", rhs_dilation)
    for what, values in (("strides", strides), ("lhs dilations", base), ("rhs dilations", taps)):
        check_length(name, what, values, rank)
    if isinstance(padding, str):
        if base != ones:
            raise UnsupportedError(
                operation=name,
                required="explicit padding when lhs is dilated",
                got=repr(padding),
                fix="give (low, high) pairs, or use conv_transpose",
            )
        sizes = [static_int(name, "a size", shape_of(lhs)[a]) for a in numbers.lhs_spec[2:]]
        kernel = [shape_of(rhs)[a] for a in numbers.rhs_spec[2:]]
        windows = [
            static_int(name, "a size", dilated(k, d)) for k, d in zip(kernel, taps, strict=True)
        ]
        padding = padtype_to_pads(sizes, windows, strides, padding)
    pads = tuple([static_ints(name, "a padding", p) for p in padding])
    return apply(
        conv_general_dilated_p,
        lhs,
        rhs,
        window_strides=strides,
        padding=pads,
        lhs_dilation=base,
        rhs_dilation=taps,
        dimension_numbers=numbers,
        feature_group_count=static_int(name, "feature_group_count", feature_group_count),
        batch_group_count=static_int(name, "batch_group_count", batch_group_count),
        precision=canonical_precision(precision),
        preferred_element_type=(
            None if preferred_element_type is None else dt.canonicalize(preferred_element_type)
        ),
    )[0]


def _check_groups(x: ShapedArray, w: ShapedArray, p: dict[str, Any]) -> None:
    lhs_spec, rhs_spec, _ = p["dimension_numbers"]
    features, batches = p["feature_group_count"], p["batch_group_count"]
    out, inner = w.shape[rhs_spec[0]], w.shape[rhs_spec[1]]
    ok = features >= 1 and batches >= 1 and (features == 1 or batches == 1)
    ok = ok and same(x.shape[lhs_spec[1]], inner * features)
    if (
        not ok
        or not same(out % (features * batches), 0)
        or not same(x.shape[lhs_spec[0]] % batches, 0)
    ):
        raise ShapeError(
            operation="conv_general_dilated",
            required="lhs features = kernel input features * feature_group_count, kernel output "
            "features divisible by the groups, batch divisible by batch_group_count, and at most "
            "one kind of group",
            got=f"lhs {x}, rhs {w}, {p['dimension_numbers']}, feature_group_count {features}, "
            f"batch_group_count {batches}",
            fix="check the layouts in dimension_numbers and the group counts",
        )


def _aval(x: ShapedArray, w: ShapedArray, **p: Any) -> tuple[ShapedArray, ...]:
    name = "conv_general_dilated"
    check_same_dtypes(name, (x, w))
    check_dtype(name, x, dt.is_numeric(x.dtype) and not dt.is_bool(x.dtype), "numeric operands")
    lhs_spec, rhs_spec, out_spec = p["dimension_numbers"]
    _check_groups(x, w, p)
    numbers = zip(p["window_strides"], p["lhs_dilation"], p["rhs_dilation"], strict=True)
    check_length(name, "(low, high) pairs", p["padding"], len(lhs_spec) - 2)
    if any(v < 1 for triple in numbers for v in triple) or any(
        len(pair) != 2 for pair in p["padding"]
    ):
        raise ArgumentValueError(
            operation=name,
            required="positive strides and dilations, and (low, high) pairs of padding",
            got=f"strides {p['window_strides']}, lhs_dilation {p['lhs_dilation']}, "
            f"rhs_dilation {p['rhs_dilation']}, padding {p['padding']}",
            fix="use 1 where nothing is skipped",
        )
    shape: list[Dim] = [0] * x.ndim
    shape[out_spec[0]] = x.shape[lhs_spec[0]] // p["batch_group_count"]
    shape[out_spec[1]] = w.shape[rhs_spec[0]]
    for k, a in enumerate(out_spec[2:]):
        shape[a] = _out_size(x.shape[lhs_spec[2 + k]], w.shape[rhs_spec[2 + k]], k, p)
    dtype = check_preferred(name, x, p["preferred_element_type"])
    return (ShapedArray(tuple(shape), dtype, all_weak(x, w)),)


def _out_size(n: Dim, taps: Dim, k: int, p: dict[str, Any]) -> Dim:
    low, high = p["padding"][k]
    extent = dilated(n, p["lhs_dilation"][k]) + low + high - dilated(taps, p["rhs_dilation"][k])
    size = extent // p["window_strides"][k] + 1
    return max(size, 0) if isinstance(size, int) else size


@silent
def _eval(x: NDArray, w: NDArray, **p: Any) -> tuple[NDArray]:
    spread = any(d > 1 for d in p["lhs_dilation"])
    return (_eval_spread(x, w, p) if spread else _eval_dense(x, w, p),)


def _eval_dense(x: NDArray, w: NDArray, p: dict[str, Any]) -> NDArray:
    (lhs_spec, rhs_spec, out_spec), batches = p["dimension_numbers"], p["batch_group_count"]
    groups = p["feature_group_count"] * batches
    dtype = p["preferred_element_type"] or x.dtype
    wide = sum_of_products_dtype(x.dtype, p["preferred_element_type"])
    x = x.transpose(lhs_spec).astype(wide, copy=False)
    w = w.transpose(rhs_spec).astype(wide, copy=False)
    sizes = [
        _out_size(n, m, k, p) for k, (n, m) in enumerate(zip(x.shape[2:], w.shape[2:], strict=True))
    ]
    config = [(lo, hi, 0) for lo, hi in p["padding"]]
    rest = (x.shape[0] // batches, w.shape[1])
    if 0 in sizes or 0 in rest or w.shape[0] == 0:
        out = np.zeros((rest[0], w.shape[0], *sizes), dtype)
    else:
        (x,) = pad_p.eval(x, np.zeros((), wide), padding_config=((0, 0, 0), (0, 0, 0), *config))
        spatial = x.shape[2:]
        if batches > 1:
            x = x.reshape(groups, *rest, *spatial)
        else:
            x = np.moveaxis(x.reshape(rest[0], groups, rest[1], *spatial), 1, 0)
        out = _correlate(x, w, sizes, p["window_strides"], p["rhs_dilation"])
    inverse = sorted(range(out.ndim), key=out_spec.__getitem__)
    return out.transpose(inverse).astype(dtype, copy=False)


def _eval_spread(x: NDArray, w: NDArray, p: dict[str, Any]) -> NDArray:
    """The places of the result by their remainders: the same taps of each meet elements of x."""
    _, rhs_spec, out_spec = p["dimension_numbers"]
    (aval,) = _aval(ShapedArray(x.shape, x.dtype), ShapedArray(w.shape, w.dtype), **p)
    out = np.zeros(aval.shape, aval.dtype)
    for places in itertools.product(*(range(d) for d in p["lhs_dilation"])):
        here = [slice(None)] * out.ndim
        taps = [slice(None)] * w.ndim
        padding: list[tuple[Any, Any]] = []
        dilation: list[int] = []
        for k, place in enumerate(places):
            spread = Spread.of(p, k)
            base = spread.base
            begin = place * spread.stride - spread.low
            first = spread.first(place)
            here[out_spec[2 + k]] = slice(place, None, base)
            taps[rhs_spec[2 + k]] = slice(first, None, spread.every)
            if begin % spread.common:
                taps[rhs_spec[2 + k]] = slice(0, 0)
            at = (begin + spread.dilation * first) // base
            dilation.append(spread.dilation // spread.common)
            count = len(range(place, out.shape[out_spec[2 + k]], base))
            some = len(range(*taps[rhs_spec[2 + k]].indices(w.shape[rhs_spec[2 + k]])))
            reach = at + (count - 1) * spread.stride + (some - 1) * dilation[-1] + 1
            padding.append((-at, reach - x.shape[p["dimension_numbers"][0][2 + k]]))
        part, kernel = out[tuple(here)], w[tuple(taps)]
        if part.size and kernel.size and x.size:
            ones = (1,) * len(places)
            changes = {"padding": tuple(padding), "rhs_dilation": dilation, "lhs_dilation": ones}
            part[...] = _eval_dense(x, kernel, {**p, **changes})
    return out


def _correlate(
    x: NDArray, w: NDArray, sizes: Sequence[Any], strides: Sequence[int], dilation: Sequence[int]
) -> NDArray:
    """(batch, out, *sizes) from x (group, batch, in, *spatial) and w (out, in, *taps)."""
    groups, batch, features, *_ = x.shape
    taps = w.shape[2:]
    rank, terms = len(taps), features * int(np.prod(taps, dtype=np.int64))
    kernel = w.reshape(groups, w.shape[0] // groups, terms).transpose(0, 2, 1)
    steps = (
        *x.strides[:3],
        *(a * s for a, s in zip(x.strides[3:], strides, strict=True)),
        *(a * d for a, d in zip(x.strides[3:], dilation, strict=True)),
    )
    windows = np.lib.stride_tricks.as_strided(
        x, (*x.shape[:3], *sizes, *taps), steps, writeable=False
    )
    order = (0, 1, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    rows = int(np.prod(sizes, dtype=np.int64))
    chunk = max(1, _CHUNK // max(1, groups * rows * terms * x.itemsize))
    out = np.empty((batch, w.shape[0], *sizes), x.dtype)
    for begin in range(0, batch, chunk):
        part = windows[:, begin : begin + chunk].transpose(order)
        count = part.shape[1]
        product = np.matmul(part.reshape(groups, count * rows, terms), kernel)
        product = product.reshape(groups, count, *sizes, -1)
        # (group, batch, *sizes, feature) -> (batch, group, feature, *sizes)
        product = product.transpose(1, 0, 2 + rank, *range(2, 2 + rank))
        out[begin : begin + chunk] = product.reshape(count, w.shape[0], *sizes)
    return out


def _form(x: ShapedArray, w: ShapedArray, **p: Any) -> Contract:
    lhs_spec, rhs_spec, out_spec = p["dimension_numbers"]
    (out,) = _aval(x, w, **p)
    inner = w.shape[rhs_spec[1]]
    spreads = [Spread.of(p, k) for k in range(x.ndim - 2)]
    extents = [w.shape[a] for a in rhs_spec[2:]]
    taps = [ceiling_divide(n, s.every) for n, s in zip(extents, spreads, strict=True)]
    domain = (*out.shape, inner, *taps)
    symbols = coordinates(domain)
    place, term = symbols[: x.ndim], symbols[x.ndim :]
    feature, row = place[out_spec[1]], place[out_spec[0]]
    lhs: list[Dim] = [0] * x.ndim
    rhs: list[Dim] = [0] * x.ndim
    valid: Dim = 1
    hit: Dim = 1
    per_group = w.shape[rhs_spec[0]] // (p["feature_group_count"] * p["batch_group_count"])
    group = feature // per_group if not same(per_group, 0) else 0
    batched = p["batch_group_count"] > 1
    lhs[lhs_spec[0]] = group * out.shape[out_spec[0]] + row if batched else row
    lhs[lhs_spec[1]] = term[0] if batched else group * inner + term[0]
    rhs[rhs_spec[0]], rhs[rhs_spec[1]] = feature, term[0]
    for k, spread in enumerate(spreads):
        at, tap, inside, hits = spread.window(
            place[out_spec[2 + k]], term[1 + k], x.shape[lhs_spec[2 + k]], extents[k]
        )
        lhs[lhs_spec[2 + k]], rhs[rhs_spec[2 + k]] = at, tap
        valid, hit = logical_and(valid, inside), logical_and(hit, hits)
    valid = logical_and(valid, hit)
    return Contract(
        IndexMap(domain, tuple(lhs), valid),
        IndexMap(domain, tuple(rhs), hit),
        len(term),
        rounding(p["precision"], x.dtype, out.dtype),
    )


def _jvp(primals: Sequence[Value], tangents: _Tangents, **params: Any) -> Jvp:
    (x, w), (dx, dw) = primals, tangents
    (out,) = conv_general_dilated_p.bind(x, w, **params)
    parts = [
        conv_general_dilated_p.bind(a, b, **params)[0]
        for a, b in ((dx, w), (x, dw))
        if a is not None and b is not None
    ]
    return (out,), (None if not parts else parts[0] if len(parts) == 1 else add(*parts),)


# ---- transposes


def split_axis(x: Value, axis: int, outer: Dim) -> Value:
    """Axis `axis` of size outer * n as two axes (outer, n)."""
    shape = shape_of(x)
    return reshape(x, (*shape[:axis], outer, shape[axis] // outer, *shape[axis + 1 :]))


def merge_axis(x: Value, source: int, destination: int) -> Value:
    """Remove axis `source` and fold it, as outer factor, into axis `destination` of the rest."""
    moved = moveaxis(x, source, destination)
    shape = shape_of(moved)
    d = destination
    return reshape(moved, (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :]))


def _swapped(spec: Sequence[int]) -> tuple[int, ...]:
    return (spec[1], spec[0], *spec[2:])


def _transpose(cts: _Tangents, inputs: Sequence[Any], **p: Any) -> _Tangents:
    if (ct := cts[0]) is None:
        return None, None
    x, w = inputs
    if isinstance(x, Linear):
        return _cast_to(_lhs_cotangent(ct, x.aval, w, p), x.aval), None
    return None, _cast_to(_rhs_cotangent(ct, x, w.aval, p), w.aval)


def _cast_to(x: Value, aval: ShapedArray) -> Value:
    return x if aval_of(x).dtype == aval.dtype else cast(x, aval.dtype)


def _spatial(aval: ShapedArray, spec: Sequence[int], dilation: Sequence[int]) -> list[Dim]:
    return [dilated(aval.shape[a], d) for a, d in zip(spec[2:], dilation, strict=True)]


def _lhs_cotangent(ct: Value, x: ShapedArray, w: Value, p: dict[str, Any]) -> Value:
    """The cotangent spread by the strides, convolved with the reversed kernel."""
    lhs_spec, rhs_spec, out_spec = p["dimension_numbers"]
    batches = p["batch_group_count"]
    groups = p["feature_group_count"] * batches
    extents = (
        _spatial(x, lhs_spec, p["lhs_dilation"]),
        _spatial(aval_of(w), rhs_spec, p["rhs_dilation"]),
        _spatial(aval_of(ct), out_spec, p["window_strides"]),
    )
    padding: list[tuple[Dim, Dim]] = []
    for (low, _), n, taps, spread in zip(p["padding"], *extents, strict=True):
        before = taps - low - 1
        padding.append((before, n + taps - 1 - spread - before))
    if groups > 1:
        w = merge_axis(split_axis(w, rhs_spec[0], groups), rhs_spec[0], rhs_spec[1])
    found = conv_general_dilated(
        ct,
        rev(w, rhs_spec[2:]),
        window_strides=p["lhs_dilation"],
        padding=padding,
        lhs_dilation=p["window_strides"],
        rhs_dilation=p["rhs_dilation"],
        dimension_numbers=(out_spec, _swapped(rhs_spec), lhs_spec),
        feature_group_count=groups,
        precision=p["precision"],
    )
    if batches > 1:
        found = merge_axis(split_axis(found, lhs_spec[1], batches), lhs_spec[1], lhs_spec[0])
    return found


def _rhs_cotangent(ct: Value, x: Value, w: ShapedArray, p: dict[str, Any]) -> Value:
    """The operand convolved with the cotangent: batch and features change places."""
    if any(same(n, 0) for n in shape_of(ct)):
        return zeros(w.shape, w.dtype)
    lhs_spec, rhs_spec, out_spec = p["dimension_numbers"]
    extents = (
        _spatial(aval_of(x), lhs_spec, p["lhs_dilation"]),
        _spatial(w, rhs_spec, p["rhs_dilation"]),
        _spatial(aval_of(ct), out_spec, p["window_strides"]),
    )
    padding = [
        (low, spread - n + taps - low - 1)
        for (low, _), n, taps, spread in zip(p["padding"], *extents, strict=True)
    ]
    return conv_general_dilated(
        x,
        ct,
        window_strides=p["rhs_dilation"],
        padding=padding,
        lhs_dilation=p["lhs_dilation"],
        rhs_dilation=p["window_strides"],
        dimension_numbers=(_swapped(lhs_spec), _swapped(out_spec), _swapped(rhs_spec)),
        feature_group_count=p["batch_group_count"],
        batch_group_count=p["feature_group_count"],
        precision=p["precision"],
    )


# ---- vmap


def _batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, **p: Any) -> Batched:
    (x, w), (dx, dw) = args, dims
    lhs_spec, rhs_spec, out_spec = p["dimension_numbers"]
    features, batches = p["feature_group_count"], p["batch_group_count"]
    n = axis.size
    if same(n, 0):
        shapes = [
            a.with_shape(_without(a.shape, d))
            for a, d in zip(map(aval_of, args), dims, strict=True)
        ]
        (out,) = _aval(*shapes, **p)
        return (zeros((0, *out.shape), out.dtype),), (0,)
    if dx is not None and dw is not None:
        # One more group: folded into the features, or into the batch where that is grouped already.
        into = lhs_spec[0] if batches > 1 else lhs_spec[1]
        groups = (
            {"batch_group_count": batches * n}
            if batches > 1
            else {"feature_group_count": features * n}
        )
        x, w = merge_axis(x, dx, into), merge_axis(w, dw, rhs_spec[0])
        (out,) = conv_general_dilated_p.bind(x, w, **{**p, **groups})
        return (split_axis(out, out_spec[1], n),), (out_spec[1],)
    if dx is not None:
        x = _merge_inside(x, dx, lhs_spec[0], batches)
        (out,) = conv_general_dilated_p.bind(x, w, **p)
        return (split_axis(out, out_spec[0], n),), (out_spec[0],)
    assert dw is not None, "a batch rule is called with a mapped operand"
    w = _merge_inside(w, dw, rhs_spec[0], features * batches)
    (out,) = conv_general_dilated_p.bind(x, w, **p)
    feature = out_spec[1]
    grouped = split_axis(split_axis(out, feature, features * batches), feature + 1, n)
    return (merge_axis(grouped, feature, feature + 1),), (feature,)


def _without(shape: Shape, dim: int | None) -> Shape:
    return shape if dim is None else (*shape[:dim], *shape[dim + 1 :])


def _merge_inside(x: Value, source: int, destination: int, groups: int) -> Value:
    """merge_axis, but below the `groups` outermost parts of the destination."""
    if groups == 1:
        return merge_axis(x, source, destination)
    shifted = destination + (source <= destination)
    x = split_axis(x, shifted, groups)
    x = merge_axis(x, source + (source > shifted), destination + 1)
    return merge_axis(x, destination, destination)


def _sample(
    lhs: tuple[int, ...], rhs: tuple[int, ...], dtype: dt.DType = dt.float32, **changes: Any
) -> Sample:
    rank = len(lhs) - 2
    params: dict[str, Any] = {
        "window_strides": (1,) * rank,
        "padding": ((0, 0),) * rank,
        "lhs_dilation": (1,) * rank,
        "rhs_dilation": (1,) * rank,
        "dimension_numbers": conv_dimension_numbers(lhs, rhs, changes.pop("layout", None)),
        "feature_group_count": 1,
        "batch_group_count": 1,
        "precision": None,
        "preferred_element_type": None,
        **changes,
    }
    return Sample((ShapedArray(lhs, dtype), ShapedArray(rhs, dtype)), params)


_NHWC = ("NHWC", "HWIO", "NHWC")

conv_general_dilated_p = Primitive(
    "conv_general_dilated",
    aval=_aval,
    eval=_eval,
    form=_form,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    samples=(
        _sample((2, 3, 5), (4, 3, 2)),
        _sample(
            (1, 5, 6, 2),
            (3, 2, 2, 3),
            layout=_NHWC,
            window_strides=(2, 1),
            padding=((1, 1), (0, 2)),
        ),
        _sample((2, 2, 4), (3, 2, 3), lhs_dilation=(2,), rhs_dilation=(2,), padding=((2, -1),)),
        _sample((2, 4, 5), (6, 2, 3), feature_group_count=2, padding=((1, 1),)),
        _sample((4, 2, 5), (6, 2, 3), batch_group_count=2, window_strides=(2,)),
        _sample((2, 3), (4, 3)),
        _sample((1, 1, 2), (1, 1, 4)),
        _sample((0, 2, 3), (1, 2, 2)),
        _sample((1, 2, 3), (2, 2, 2), dt.bfloat16, preferred_element_type=dt.float32),
        _sample((1, 2, 3), (2, 2, 2), dt.int32),
    ),
)
