"""Collectives over the named axis of a vmap: psum, pmax, pmean, all_gather, ppermute, ...

A vmap that was given the axis name replaces them in its batch rules; nothing else can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax import tree
from lumjax.errors import ArgumentValueError, UnboundAxisError
from lumjax.ops.arithmetic import div
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    canonical_axis,
    check_dtype,
    static_int,
    text,
)
from lumjax.ops.compare import eq
from lumjax.ops.dynamic import dynamic_slice_in_dim
from lumjax.ops.elementwise import add, cast, mul, select
from lumjax.ops.index import gather, scatter
from lumjax.ops.reduce import is_ordered, reduce_max, reduce_min
from lumjax.ops.view import (
    broadcast_in_dim,
    dim_value,
    iota,
    moveaxis,
    reduce_sum,
    reshape,
    shape_of,
    zeros,
)
from lumjax.ops.windows import GatherDimensionNumbers, ScatterDimensionNumbers
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Value, active_traces, aval_of
from lumjax.trace.dim import Dim
from lumjax.trace.form import Form, Opaque

_Tangents: TypeAlias = Sequence[Value | None]


def axis_size(axis_name: Any) -> Dim:
    """The size of a named axis; of several, the product."""
    size: Dim = 1
    for name in _names(axis_name):
        size = size * _bound_size("axis_size", name)
    return size


def _names(axis_name: Any) -> tuple[Any, ...]:
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def _bound_size(operation: str, name: Any) -> Dim:
    for trace in reversed(active_traces()):
        if trace.axis_name is not None and trace.axis_name == name:
            return trace.axis_size
    raise _unbound(operation, name)


def _unbound(operation: str, name: Any) -> UnboundAxisError:
    bound = [repr(t.axis_name) for t in active_traces() if t.axis_name is not None]
    return UnboundAxisError(
        operation=operation,
        required="an axis name bound by an enclosing vmap(..., axis_name=)",
        got=f"{name!r}; the names in scope are {text(bound) if bound else 'none'}",
        fix="call it inside vmap with that axis_name",
    )


def one_group(operation: str, groups: Any) -> None:
    """Raise unless all lanes form one group."""
    if groups is not None:
        raise ArgumentValueError(
            operation=operation,
            required="axis_index_groups None: lanes form one group",
            got=repr(groups),
            fix="nest two vmaps instead",
        )


def _over_leaves(operation: str, prim: Callable[[], Primitive], x: Any, axis_name: Any) -> Any:
    names = _names(axis_name)
    for name in names:
        _bound_size(operation, name)

    def bind(leaf: Value) -> Value:
        for name in names:
            prim().aval(aval_of(leaf), axis_name=name)
            (leaf,) = prim().bind(leaf, axis_name=name)
        return leaf

    return tree.map(bind, x)


def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The sum over a named axis of every leaf of `x`.

    A Python number is multiplied by the size of the axis at once, so `psum(1, name)` is a number.
    """
    one_group("psum", axis_index_groups)
    size = axis_size(axis_name)

    def leaf_sum(leaf: Value) -> Value:
        number = isinstance(leaf, (int, float, complex)) and not isinstance(leaf, np.generic)
        if number and isinstance(size, int):
            return leaf * size
        if dt.is_bool(aval_of(leaf).dtype):
            leaf = cast(leaf, np.int32)
        return _over_leaves("psum", lambda: psum_p, leaf, axis_name)

    return tree.map(leaf_sum, x)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The maximum over a named axis of every leaf of `x`."""
    one_group("pmax", axis_index_groups)
    return _over_leaves("pmax", lambda: pmax_p, x, axis_name)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The minimum over a named axis of every leaf of `x`."""
    one_group("pmin", axis_index_groups)
    return _over_leaves("pmin", lambda: pmin_p, x, axis_name)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The mean over a named axis of every leaf of `x`."""
    one_group("pmean", axis_index_groups)
    size = axis_size(axis_name)

    def leaf_mean(total: Value) -> Value:
        aval = aval_of(total)
        dtype = aval.dtype if dt.is_inexact(aval.dtype) else dt.canonicalize(dt.float64)
        count = cast(dim_value(size), dtype, weak=True)
        return div(cast(total, dtype, weak=aval.weak), count)

    return tree.map(leaf_mean, psum(tree.map(_as_array, x), axis_name))


def _as_array(x: Value) -> Value:
    aval = aval_of(x)
    plain = isinstance(x, (int, float, complex)) and not isinstance(x, np.generic)
    return cast(x, aval.dtype, weak=True) if plain else x


def axis_index(axis_name: Any) -> Value:
    """The lane's position (int32) along a named axis; of several names, in row-major order."""
    index: Value | None = None
    for name in _names(axis_name):
        size = _bound_size("axis_index", name)
        (here,) = axis_index_p.bind(axis_name=name)
        index = here if index is None else add(mul(index, dim_value(size)), here)
    return np.zeros((), dt.int32) if index is None else index


def all_gather(
    x: Any,
    axis_name: Any,
    *,
    axis_index_groups: Any = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> Any:
    """Every lane's leaf, stacked along a new axis `axis`, or concatenated along it if `tiled`."""
    del to
    one_group("all_gather", axis_index_groups)
    size = _bound_size("all_gather", axis_name)

    def bind(leaf: Value) -> Value:
        rank = len(shape_of(leaf)) + (not tiled)
        place = canonical_axis("all_gather", axis, rank)
        (out,) = all_gather_p.bind(
            leaf, axis_name=axis_name, axis_size=size, all_gather_dimension=place
        )
        if not tiled:
            return out
        shape = shape_of(leaf)
        return reshape(out, [n * size if k == place else n for k, n in enumerate(shape)])

    return tree.map(bind, x)


def ppermute(x: Any, axis_name: Any, perm: Any) -> Any:
    """Send every leaf from lane a to lane b for each pair (a, b) in `perm`.

    Lanes that receive nothing get zeros.
    """
    size = _bound_size("ppermute", axis_name)
    pairs = tuple(
        [
            (static_int("ppermute", "a lane", a), static_int("ppermute", "a lane", b))
            for a, b in perm
        ]
    )
    for lanes in zip(*pairs, strict=True):
        outside = isinstance(size, int) and any(not 0 <= k < size for k in lanes)
        if len(set(lanes)) != len(lanes) or outside:
            raise ArgumentValueError(
                operation="ppermute",
                required=f"distinct sources and distinct targets in [0, {size})",
                got=text(pairs),
                fix="send at most one value from and to each lane",
            )
    return tree.map(lambda leaf: ppermute_p.bind(leaf, axis_name=axis_name, perm=pairs)[0], x)


# ---- reductions over the axis


def _outside_vmap(name: str) -> Callable[..., Any]:
    def evaluate(*args: NDArray, axis_name: Any, **params: Any) -> tuple[NDArray, ...]:
        raise _unbound(name, axis_name)

    return evaluate


def _form(name: str) -> Callable[..., Form]:
    def form(*avals: ShapedArray, **params: Any) -> Form:
        return Opaque(f"{name} outside its vmap")

    return form


def _reduction(
    name: str,
    reduction: Callable[[Value, Any], Value],
    accepts: Callable[[dt.DType], bool],
    of_constant: Callable[[Value, Dim], Value],
    jvp: Callable[..., Jvp],
    transpose: Callable[..., _Tangents] | None = None,
) -> Primitive:
    def aval(x: ShapedArray, *, axis_name: Any) -> tuple[ShapedArray, ...]:
        check_dtype(name, x, accepts(x.dtype), "a numeric operand")
        return (x,)

    def batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, *, axis_name: Any) -> Batched:
        (x,), (dim,) = args, dims
        if axis.name != axis_name:
            return record.bind(x, axis_name=axis_name), (dim,)
        if dim is None:
            return (of_constant(x, axis.size),), (None,)
        return (reduction(x, (dim,)),), (None,)

    record = Primitive(
        name,
        aval=aval,
        eval=_outside_vmap(name),
        form=_form(name),
        jvp=jvp,
        transpose=transpose,
        batch=batch,
    )
    return record


def _psum_jvp(primals: Sequence[Value], tangents: _Tangents, *, axis_name: Any) -> Jvp:
    out = psum_p.bind(*primals, axis_name=axis_name)
    if tangents[0] is None:
        return out, (None,)
    return out, psum_p.bind(tangents[0], axis_name=axis_name)


def _psum_transpose(cts: _Tangents, inputs: Sequence[Any], *, axis_name: Any) -> _Tangents:
    """Every lane's sum depends on every lane: cotangents of all lanes add up."""
    return (None,) if cts[0] is None else psum_p.bind(cts[0], axis_name=axis_name)


def _extremum_jvp(prim: Callable[[], Primitive]) -> Callable[..., Jvp]:
    """Lanes that attain the extremum share the derivative evenly."""

    def jvp(primals: Sequence[Value], tangents: _Tangents, *, axis_name: Any) -> Jvp:
        (x,), (t,) = primals, tangents
        (out,) = prim().bind(x, axis_name=axis_name)
        if t is None:
            return (out,), (None,)
        attained = eq(x, out)
        dtype = aval_of(x).dtype
        (total,) = psum_p.bind(select(attained, t, zeros(shape_of(x), dtype)), axis_name=axis_name)
        (shares,) = psum_p.bind(cast(attained, dtype), axis_name=axis_name)
        return (out,), (div(total, shares),)

    return jvp


def _is_number(dtype: dt.DType) -> bool:
    return dt.is_integer(dtype) or dt.is_inexact(dtype)


def _times(x: Value, size: Dim) -> Value:
    return mul(x, cast(dim_value(size), aval_of(x).dtype, weak=True))


psum_p = _reduction("psum", reduce_sum, _is_number, _times, _psum_jvp, _psum_transpose)
pmax_p = _reduction("pmax", reduce_max, is_ordered, lambda x, _: x, _extremum_jvp(lambda: pmax_p))
pmin_p = _reduction("pmin", reduce_min, is_ordered, lambda x, _: x, _extremum_jvp(lambda: pmin_p))


# ---- all_gather, ppermute, axis_index


def _gather_aval(
    x: ShapedArray, *, axis_name: Any, axis_size: Dim, all_gather_dimension: int
) -> tuple[ShapedArray, ...]:
    at = all_gather_dimension
    return (x.with_shape((*x.shape[:at], axis_size, *x.shape[at:])),)


def _gather_jvp(primals: Sequence[Value], tangents: _Tangents, **p: Any) -> Jvp:
    out = all_gather_p.bind(*primals, **p)
    return out, (None,) if tangents[0] is None else all_gather_p.bind(tangents[0], **p)


def _gather_transpose(cts: _Tangents, inputs: Sequence[Any], **p: Any) -> _Tangents:
    """The sum over lanes of their cotangents; each lane takes its own slice of it."""
    if cts[0] is None:
        return (None,)
    (total,) = psum_p.bind(cts[0], axis_name=p["axis_name"])
    (here,) = axis_index_p.bind(axis_name=p["axis_name"])
    own = dynamic_slice_in_dim(total, here, 1, p["all_gather_dimension"])
    return (reshape(own, inputs[0].aval.shape),)


def _gather_batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, **p: Any) -> Batched:
    (x,), (dim,) = args, dims
    at = p["all_gather_dimension"]
    if axis.name == p["axis_name"]:
        if dim is not None:
            return (moveaxis(x, dim, at),), (None,)
        shape = shape_of(x)
        kept = [k + (k >= at) for k in range(len(shape))]
        return (broadcast_in_dim(x, (*shape[:at], axis.size, *shape[at:]), kept),), (None,)
    assert dim is not None, "an operand that is not mapped does not reach another axis's rule"
    moved = moveaxis(x, dim, 0)
    return all_gather_p.bind(moved, **{**p, "all_gather_dimension": at + 1}), (0,)


all_gather_p = Primitive(
    "all_gather",
    aval=_gather_aval,
    eval=_outside_vmap("all_gather"),
    form=_form("all_gather"),
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    batch=_gather_batch,
)


def _permute_jvp(primals: Sequence[Value], tangents: _Tangents, **p: Any) -> Jvp:
    out = ppermute_p.bind(*primals, **p)
    return out, (None,) if tangents[0] is None else ppermute_p.bind(tangents[0], **p)


def _permute_transpose(
    cts: _Tangents, inputs: Sequence[Any], *, axis_name: Any, perm: tuple[tuple[int, int], ...]
) -> _Tangents:
    back = tuple([(b, a) for a, b in perm])
    return (None,) if cts[0] is None else ppermute_p.bind(cts[0], axis_name=axis_name, perm=back)


def _permute_batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Dims,
    *,
    axis_name: Any,
    perm: tuple[tuple[int, int], ...],
) -> Batched:
    (x,), (dim,) = args, dims
    if axis.name != axis_name:
        return ppermute_p.bind(x, axis_name=axis_name, perm=perm), (dim,)
    shape = shape_of(x)
    if dim is None:
        x = broadcast_in_dim(x, (axis.size, *shape), range(1, len(shape) + 1))
    else:
        x = moveaxis(x, dim, 0)
    shape = shape_of(x)
    rows = tuple(range(1, len(shape)))
    sources, targets = (
        np.asarray([pair[k] for pair in perm], dt.int32).reshape(-1, 1) for k in range(2)
    )
    sent = gather(x, sources, GatherDimensionNumbers(rows, (0,), (0,)), (1, *shape[1:]))
    empty = zeros(shape, aval_of(x).dtype)
    numbers = ScatterDimensionNumbers(rows, (0,), (0,))
    return (scatter(empty, targets, sent, numbers, unique_indices=True),), (0,)


ppermute_p = Primitive(
    "ppermute",
    aval=lambda x, *, axis_name, perm: (x,),
    eval=_outside_vmap("ppermute"),
    form=_form("ppermute"),
    jvp=_permute_jvp,
    transpose=_permute_transpose,
    batch=_permute_batch,
)


def _index_batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, *, axis_name: Any) -> Batched:
    return (iota(dt.int32, axis.size),), (0,)


def _index_jvp(primals: Sequence[Value], tangents: _Tangents, *, axis_name: Any) -> Jvp:
    return axis_index_p.bind(axis_name=axis_name), (None,)


axis_index_p = Primitive(
    "axis_index",
    aval=lambda *, axis_name: (ShapedArray((), dt.int32),),
    eval=_outside_vmap("axis_index"),
    form=_form("axis_index"),
    jvp=_index_jvp,
    batch=_index_batch,
)
