"""dot_general: sums of products over matching axes, with batch axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ArgumentValueError, DTypeError, ShapeError
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    all_weak,
    apply,
    check_distinct,
    check_dtype,
    check_same_dtypes,
    silent,
    static_ints,
    text,
)
from lumjax.ops.compare import ne
from lumjax.ops.elementwise import add, cast, promote_values
from lumjax.ops.precision import Canonical, canonical_precision, rounding
from lumjax.ops.view import shape_of, transpose, zeros
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, Primitive, Sample, Value, aval_of
from lumjax.trace.dim import Dim, same
from lumjax.trace.form import Contract, Expand, Form
from lumjax.trace.view import IndexMap, coordinates

_Pair: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
DotDimensionNumbers: TypeAlias = tuple[
    _Pair, _Pair
]  # (contracting, batch), each (lhs axes, rhs axes)
_Tangents: TypeAlias = Sequence[Value | None]


def sum_of_products_dtype(dtype: dt.DType, preferred: dt.DType | None) -> dt.DType:
    """The dtype in which products of `dtype` are summed for a result of `preferred`."""
    if preferred is None or preferred == dtype:
        return dt.accumulation_dtype(dtype)
    return dt.accumulation_dtype(dt.promote((dtype, False), (preferred, False))[0])


def check_preferred(operation: str, aval: ShapedArray, preferred: dt.DType | None) -> dt.DType:
    """The result dtype of a contraction of operands like `aval`."""
    if preferred is None or preferred == aval.dtype:
        return aval.dtype
    kinds = (dt.is_bool, dt.is_integer, dt.is_floating, dt.is_complex)
    given, wanted = (next(i for i, k in enumerate(kinds) if k(d)) for d in (aval.dtype, preferred))
    if wanted < given or given == 0:
        raise DTypeError(
            operation=operation,
            required="a preferred_element_type of the operands' kind, or one that contains it",
            got=f"{dt.short_name(preferred)} for operands {dt.short_name(aval.dtype)}",
            fix="convert the operands instead",
        )
    return preferred


def dot_general(
    lhs: Value,
    rhs: Value,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Value:
    """Sums of products over the contracting axes, for every index of batch and free axes.

    `dimension_numbers` is ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)). The result
    has the batch axes, the free axes of lhs, the free axes of rhs. 16-bit floats accumulate in
    float32. `out_sharding` has no say on one device.
    """
    del out_sharding
    if aval_of(lhs).dtype != aval_of(rhs).dtype:
        lhs, rhs = promote_values(lhs, rhs, operation="dot_general")
    (lc, rc), (lb, rb) = dimension_numbers
    lc, rc, lb, rb = (static_ints("dot_general", "an axis", axes) for axes in (lc, rc, lb, rb))
    ndims = len(shape_of(lhs)), len(shape_of(rhs))
    lc, lb = (tuple([a + ndims[0] if a < 0 else a for a in axes]) for axes in (lc, lb))
    rc, rb = (tuple([a + ndims[1] if a < 0 else a for a in axes]) for axes in (rc, rb))
    preferred = None if preferred_element_type is None else dt.canonicalize(preferred_element_type)
    return apply(
        dot_general_p,
        lhs,
        rhs,
        dimension_numbers=((lc, rc), (lb, rb)),
        precision=canonical_precision(precision),
        preferred_element_type=preferred,
    )[0]


def _free(ndim: int, *taken: Sequence[int]) -> list[int]:
    used = {a for axes in taken for a in axes}
    return [k for k in range(ndim) if k not in used]


def _aval(
    lhs: ShapedArray,
    rhs: ShapedArray,
    *,
    dimension_numbers: DotDimensionNumbers,
    precision: Canonical | None,
    preferred_element_type: dt.DType | None,
) -> tuple[ShapedArray, ...]:
    (lc, rc), (lb, rb) = dimension_numbers
    check_same_dtypes("dot_general", (lhs, rhs))
    check_dtype("dot_general", lhs, dt.is_numeric(lhs.dtype), "numeric operands")
    for aval, axes in ((lhs, (*lc, *lb)), (rhs, (*rc, *rb))):
        check_distinct("dot_general", "contracting and batch axes", axes)
        if any(not 0 <= a < aval.ndim for a in axes):
            raise ArgumentValueError(
                operation="dot_general",
                required=f"axes in [0, {aval.ndim}) for operand {aval}",
                got=text(axes),
                fix="choose axes that the operand has",
            )
    for what, left, right in (("contracting", lc, rc), ("batch", lb, rb)):
        sizes = [lhs.shape[a] for a in left], [rhs.shape[a] for a in right]
        if len(left) != len(right) or not all(map(same, *sizes)):
            raise ShapeError(
                operation="dot_general",
                required=f"{what} axes of equal number and sizes",
                got=f"{lhs} axes {text(left)} (sizes {text(sizes[0])}), "
                f"{rhs} axes {text(right)} (sizes {text(sizes[1])})",
                fix=f"check the shapes and the {what} dimension numbers",
            )
    shape = [
        *(lhs.shape[a] for a in lb),
        *(lhs.shape[a] for a in _free(lhs.ndim, lc, lb)),
        *(rhs.shape[a] for a in _free(rhs.ndim, rc, rb)),
    ]
    dtype = check_preferred("dot_general", lhs, preferred_element_type)
    return (ShapedArray(tuple(shape), dtype, all_weak(lhs, rhs)),)


@silent
def _eval(
    x: NDArray,
    y: NDArray,
    *,
    dimension_numbers: DotDimensionNumbers,
    precision: Canonical | None,
    preferred_element_type: dt.DType | None,
) -> tuple[NDArray]:
    (lc, rc), (lb, rb) = dimension_numbers
    dtype = preferred_element_type or x.dtype
    wide = sum_of_products_dtype(x.dtype, preferred_element_type)
    left, right = _free(x.ndim, lc, lb), _free(y.ndim, rc, rb)
    batch, rows, cols, terms = (
        [v.shape[a] for a in axes] for v, axes in ((x, lb), (x, left), (y, right), (x, lc))
    )
    m, n, k = math.prod(rows), math.prod(cols), math.prod(terms)
    a = x.astype(wide, copy=False).transpose(*lb, *left, *lc).reshape(*batch, m, k)
    b = y.astype(wide, copy=False).transpose(*rb, *rc, *right).reshape(*batch, k, n)
    return (np.matmul(a, b).reshape((*batch, *rows, *cols)).astype(dtype, copy=False),)


def _form(
    lhs: ShapedArray,
    rhs: ShapedArray,
    *,
    dimension_numbers: DotDimensionNumbers,
    precision: Canonical | None,
    preferred_element_type: dt.DType | None,
) -> Form:
    if dt.is_bool(lhs.dtype):
        return Expand()
    (lc, rc), (lb, rb) = dimension_numbers
    left, right = _free(lhs.ndim, lc, lb), _free(rhs.ndim, rc, rb)
    domain = (
        *(lhs.shape[a] for a in (*lb, *left)),
        *(rhs.shape[a] for a in right),
        *(lhs.shape[a] for a in lc),
    )
    symbols = coordinates(domain)
    batch, rest = symbols[: len(lb)], symbols[len(lb) :]
    reduced = symbols[len(domain) - len(lc) :]
    x: dict[int, Dim] = {**dict(zip(lb, batch, strict=True)), **dict(zip(lc, reduced, strict=True))}
    y: dict[int, Dim] = {**dict(zip(rb, batch, strict=True)), **dict(zip(rc, reduced, strict=True))}
    x.update(zip(left, rest, strict=False))
    y.update(zip(right, rest[len(left) :], strict=False))
    return Contract(
        IndexMap(domain, tuple([x[k] for k in range(lhs.ndim)])),
        IndexMap(domain, tuple([y[k] for k in range(rhs.ndim)])),
        len(lc),
        rounding(precision, lhs.dtype, preferred_element_type or lhs.dtype),
    )


def _expand(x: Value, y: Value, **params: Any) -> tuple[Value]:
    """The bool contraction: whether any product is true."""
    wide = dot_general(cast(x, dt.int32), cast(y, dt.int32), params["dimension_numbers"])
    return (ne(wide, zeros(shape_of(wide), dt.int32)),)


def _jvp(primals: Sequence[Value], tangents: _Tangents, **params: Any) -> Jvp:
    (x, y), (dx, dy) = primals, tangents
    out = dot_general(x, y, **params)
    parts = [
        dot_general(a, b, **params)
        for a, b in ((dx, y), (x, dy))
        if a is not None and b is not None
    ]
    return (out,), (None if not parts else parts[0] if len(parts) == 1 else add(*parts),)


def _transpose(
    cts: _Tangents,
    inputs: Sequence[Any],
    *,
    dimension_numbers: DotDimensionNumbers,
    precision: Canonical | None,
    preferred_element_type: dt.DType | None,
) -> _Tangents:
    if (ct := cts[0]) is None:
        return None, None
    (lc, rc), (lb, rb) = dimension_numbers
    x, y = inputs
    if isinstance(x, Linear):
        found = _operand_cotangent(ct, x.aval, y, (lc, lb, rc, rb), True, precision)
        return found, None
    found = _operand_cotangent(ct, y.aval, x, (rc, rb, lc, lb), False, precision)
    return None, found


def _operand_cotangent(
    ct: Value,
    wanted: ShapedArray,
    other: Value,
    axes: tuple[tuple[int, ...], ...],
    wanted_first: bool,
    precision: Canonical | None,
) -> Value:
    """Contract the cotangent with the other operand over that operand's free axes."""
    contracting, batch, other_contracting, other_batch = axes
    other_free = _free(len(shape_of(other)), other_contracting, other_batch)
    kept = _free(wanted.ndim, contracting, batch)
    first = len(batch) + (len(kept) if wanted_first else 0)
    numbers = (
        (range(first, first + len(other_free)), other_free),
        (range(len(batch)), other_batch),
    )
    found = dot_general(ct, other, numbers, precision)
    # It has the batch axes, the kept axes, and the contracted ones in the order of `other`.
    order = sorted(range(len(contracting)), key=other_contracting.__getitem__)
    source = [*batch, *kept, *(contracting[k] for k in order)]
    moved = transpose(found, [source.index(k) for k in range(wanted.ndim)])
    return moved if aval_of(moved).dtype == wanted.dtype else cast(moved, wanted.dtype)


def _batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Dims,
    *,
    dimension_numbers: DotDimensionNumbers,
    precision: Canonical | None,
    preferred_element_type: dt.DType | None,
) -> Batched:
    (lc, rc), (lb, rb) = dimension_numbers
    (x, y), (dx, dy) = args, dims

    def moved(axes: tuple[int, ...], dim: int | None) -> tuple[int, ...]:
        return tuple([a + (dim is not None and a >= dim) for a in axes])

    lc, lb, rc, rb = moved(lc, dx), moved(lb, dx), moved(rc, dy), moved(rb, dy)
    if dx is not None and dy is not None:
        numbers, out = ((lc, rc), ((dx, *lb), (dy, *rb))), 0
    else:
        numbers = ((lc, rc), (lb, rb))
        left = _free(len(shape_of(x)), lc, lb)
        out = len(lb) + (
            left.index(dx)
            if dx is not None
            else len(left) + _free(len(shape_of(y)), rc, rb).index(dy if dy is not None else 0)
        )
    return (dot_general(x, y, numbers, precision, preferred_element_type),), (out,)


def _sample(
    lhs: tuple[int, ...],
    rhs: tuple[int, ...],
    contracting: _Pair,
    batch: _Pair = ((), ()),
    dtype: dt.DType = dt.float32,
    preferred: dt.DType | None = None,
) -> Sample:
    params = {
        "dimension_numbers": (contracting, batch),
        "precision": None,
        "preferred_element_type": preferred,
    }
    return Sample((ShapedArray(lhs, dtype), ShapedArray(rhs, dtype)), params)


dot_general_p = Primitive(
    "dot_general",
    aval=_aval,
    eval=_eval,
    form=_form,
    expand=_expand,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    samples=(
        _sample((2, 3), (3, 4), ((1,), (0,))),
        _sample((4, 2, 3), (3, 4, 5), ((2,), (0,)), ((0,), (1,))),
        _sample((2, 3, 4), (4, 5, 2), ((0, 2), (2, 0))),
        _sample((3,), (3,), ((0,), (0,))),
        _sample((2,), (3, 1), ((), ())),
        _sample((2, 0), (0, 3), ((1,), (0,))),
        _sample((0, 2), (2, 1), ((1,), (0,))),
        _sample((2, 3), (3, 2), ((1,), (0,)), dtype=dt.bfloat16),
        _sample((2, 3), (3, 2), ((1,), (0,)), dtype=dt.bfloat16, preferred=dt.float32),
        _sample((2, 3), (3, 2), ((1,), (0,)), dtype=dt.int8, preferred=dt.int32),
        _sample((2, 3), (3, 2), ((1,), (0,)), dtype=dt.complex64),
        _sample((2, 3), (3, 2), ((1,), (0,)), dtype=dt.bool_),
    ),
)


def dot(
    lhs: Value,
    rhs: Value,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> Value:
    """The contraction of lhs's last axis with the first axis of a vector or matrix rhs."""
    del out_sharding
    left, right = len(shape_of(lhs)), len(shape_of(rhs))
    if not 1 <= left <= 2 or not 1 <= right <= 2:
        raise ShapeError(
            operation="dot",
            required="vectors or matrices",
            got=f"{aval_of(lhs)} and {aval_of(rhs)}",
            fix="use dot_general or matmul for other ranks",
        )
    numbers = (((left - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, numbers, precision, preferred_element_type)
