"""Scatters that multiply or take an extremum, with derivatives that are right under duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.ops.arithmetic import div, max_p, min_p
from lumjax.ops.checks import Jvp
from lumjax.ops.compare import eq
from lumjax.ops.cumulative import prefix_scan
from lumjax.ops.elementwise import add, cast, constant, mul, mul_p, select
from lumjax.ops.index import at_each, bind_scatter, read_back, scatter_add, scatter_record
from lumjax.ops.reduce import is_ordered
from lumjax.ops.sorting import argsort, sort, take_along_axis
from lumjax.ops.view import iota, pad, reshape, shape_of, zeros
from lumjax.trace.core import Primitive, Value, aval_of
from lumjax.trace.dim import Dim

_Tangents: TypeAlias = Sequence[Value | None]


def scatter_mul(
    operand: Value, scatter_indices: Value, updates: Value, dimension_numbers: Any, **options: Any
) -> Value:
    """`operand` with windows multiplied by `updates`, in order; options as for scatter."""
    return bind_scatter(
        scatter_mul_p, operand, scatter_indices, updates, dimension_numbers, **options
    )


def scatter_min(
    operand: Value, scatter_indices: Value, updates: Value, dimension_numbers: Any, **options: Any
) -> Value:
    """`operand` with windows lowered to `updates`; nan wins; options as for scatter."""
    return bind_scatter(
        scatter_min_p, operand, scatter_indices, updates, dimension_numbers, **options
    )


def scatter_max(
    operand: Value, scatter_indices: Value, updates: Value, dimension_numbers: Any, **options: Any
) -> Value:
    """`operand` with windows raised to `updates`; nan wins; options as for scatter."""
    return bind_scatter(
        scatter_max_p, operand, scatter_indices, updates, dimension_numbers, **options
    )


def _options(p: dict[str, Any]) -> dict[str, Any]:
    return {k: p[k] for k in ("indices_are_sorted", "unique_indices", "mode")}


def _mul_jvp(primals: Sequence[Value], tangents: _Tangents, **p: Any) -> Jvp:
    x, indices, updates = primals
    dx, _, du = tangents
    (out,) = scatter_mul_p.bind(x, indices, updates, **p)
    parts: list[Value] = []
    if dx is not None:
        parts.extend(scatter_mul_p.bind(dx, indices, updates, **p))
    if du is not None:
        weight = read_back(x, indices, shape_of(updates), 0, p)
        if not p["unique_indices"]:
            weight = mul(weight, _product_of_others(x, indices, updates, p))
        nothing = zeros(shape_of(x), aval_of(x).dtype)
        numbers = p["dimension_numbers"]
        parts.append(scatter_add(nothing, indices, mul(weight, du), numbers, **_options(p)))
    return (out,), (None if not parts else parts[0] if len(parts) == 1 else add(*parts),)


def _count(x: Value) -> Dim:
    size: Dim = 1
    for n in shape_of(x):
        size = size * n
    return size


def _product_of_others(x: Value, indices: Value, updates: Value, p: dict[str, Any]) -> Value:
    """For each update, the product of the other updates of the same element.

    No division, so zeros are exact.
    """
    shape, count = shape_of(updates), _count(updates)
    elements = reshape(iota(dt.int32, _count(x)), shape_of(x))
    targets = reshape(read_back(elements, indices, shape, -1, p), (count,))
    targets, order = sort((targets, iota(dt.int32, count)))
    values = take_along_axis(reshape(updates, (count,)), order, 0)
    before, after = (_exclusive_products(targets, values, reverse) for reverse in (False, True))
    return reshape(take_along_axis(mul(before, after), argsort(order), 0), shape)


def _exclusive_products(targets: Value, values: Value, reverse: bool) -> Value:
    """The product of the values on one side of each, as far as the sorted targets agree."""
    dtype = aval_of(values).dtype
    nobody, one = np.asarray(-2, dt.int32), np.ones((), dtype)

    def combine(left: tuple[Value, ...], right: tuple[Value, ...]) -> tuple[Value, ...]:
        same = eq(left[0], right[0])
        return right[0], select(same, mul(left[1], right[1]), right[1])

    _, products = prefix_scan((targets, values), (nobody, one), combine, 0, reverse)
    shift = [(-1, 1, 0)] if reverse else [(1, -1, 0)]
    neighbours, products = pad(targets, nobody, shift), pad(products, one, shift)
    return select(eq(neighbours, targets), products, constant(1, products))


def _mul_transpose(cts: _Tangents, inputs: Sequence[Any], **p: Any) -> _Tangents:
    """Linear in the operand: every element is multiplied by its updates."""
    if cts[0] is None:
        return None, None, None
    _, indices, updates = inputs
    return *scatter_mul_p.bind(cts[0], indices, updates, **p), None, None


def _extremum_jvp(prim: Callable[[], Primitive]) -> Callable[..., Jvp]:
    """The element and the updates that attain the extremum share the derivative evenly."""

    def jvp(primals: Sequence[Value], tangents: _Tangents, **p: Any) -> Jvp:
        x, indices, updates = primals
        (out,) = prim().bind(*primals, **p)
        if tangents[0] is None and tangents[2] is None:
            return (out,), (None,)
        dtype = aval_of(x).dtype
        kept = eq(x, out)
        taken = eq(updates, read_back(out, indices, shape_of(updates), 0, p))
        dx, du = (
            zeros(shape_of(v), dtype) if t is None else select(mask, t, zeros(shape_of(v), dtype))
            for v, t, mask in ((x, tangents[0], kept), (updates, tangents[2], taken))
        )
        numbers = p["dimension_numbers"]
        total = scatter_add(dx, indices, du, numbers, **_options(p))
        shares = scatter_add(cast(kept, dtype), indices, cast(taken, dtype), numbers, **_options(p))
        return (out,), (div(total, shares),)

    return jvp


def _is_number(dtype: dt.DType) -> bool:
    return dt.is_integer(dtype) or dt.is_inexact(dtype)


scatter_mul_p = scatter_record(
    "scatter_mul", at_each(np.multiply), _is_number, _mul_jvp, _mul_transpose, mul_p
)
scatter_min_p = scatter_record(
    "scatter_min",
    at_each(np.minimum),
    is_ordered,
    _extremum_jvp(lambda: scatter_min_p),
    combine=min_p,
)
scatter_max_p = scatter_record(
    "scatter_max",
    at_each(np.maximum),
    is_ordered,
    _extremum_jvp(lambda: scatter_max_p),
    combine=max_p,
)
