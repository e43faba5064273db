"""gather and scatter in their general form, defined for indices out of range and for duplicates.

Scatters apply their updates one after the other, in the row-major order of the updates: the last
write wins, and sums are reproducible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ShapeError
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    Shape,
    all_weak,
    apply,
    check_dtype,
    check_same_dtypes,
    silent,
    static_dims,
    static_ints,
    text,
)
from lumjax.ops.compare import eq
from lumjax.ops.elementwise import add_p, neg, select
from lumjax.ops.scatter_form import scalar_operation, separate_updates
from lumjax.ops.view import (
    batch_first,
    full,
    instantiate,
    iota,
    reshape,
    shape_of,
    zeros,
)
from lumjax.ops.windows import (
    GatherDimensionNumbers,
    Positions,
    ScatterDimensionNumbers,
    batch_places,
    canonical_mode,
    check_windows,
    gather_as_scatter,
    gathered_shape,
    locate,
    scatter_as_gather,
    window_axes,
)
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, Primitive, Sample, Value, aval_of
from lumjax.trace.dim import Dim, same, same_shape, symbol
from lumjax.trace.form import Form, Gather, GatherMode, Opaque, Update
from lumjax.trace.view import IndexMap, coordinates

_Tangents: TypeAlias = Sequence[Value | None]


# ---- gather


def gather(
    operand: Value,
    start_indices: Value,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Any,
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> Value:
    """Windows of `operand` at the index vectors in `start_indices`; arguments as jax.lax.gather's.

    Out of range, "clip" moves the window inside, "fill" gives `fill_value` (by default nan, the
    least signed or greatest unsigned integer, True), and "promise_in_bounds", the default, promises
    that it does not happen (it clips).
    """
    dtype = aval_of(operand).dtype
    parsed = canonical_mode("gather", mode, GatherMode.PROMISE)
    fill = None
    if parsed is GatherMode.FILL:
        fill = _default_fill(dtype) if fill_value is None else np.asarray(fill_value).item()
    return apply(
        gather_p,
        operand,
        start_indices,
        dimension_numbers=_static_numbers("gather", dimension_numbers, GatherDimensionNumbers),
        slice_sizes=static_dims("gather", "a slice size", slice_sizes),
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        mode=parsed,
        fill_value=fill,
    )[0]


def _static_numbers(operation: str, numbers: Any, kind: Any) -> Any:
    """Dimension numbers of `kind` from that kind or another with its field names."""
    fields = [getattr(numbers, name) for name in kind._fields]
    return kind(*(static_ints(operation, "an axis", f) for f in fields))


def _default_fill(dtype: dt.DType) -> Any:
    if dt.is_inexact(dtype):
        return np.nan
    if dt.is_signed(dtype):
        return int(dt.iinfo(dtype).min)
    if dt.is_unsigned(dtype):
        return int(dt.iinfo(dtype).max)
    return True if dt.is_bool(dtype) else 0xFFFFFFFF  # the second: both words of a key


def _gather_aval(x: ShapedArray, indices: ShapedArray, **p: Any) -> tuple[ShapedArray, ...]:
    numbers, sizes = p["dimension_numbers"], p["slice_sizes"]
    check_windows("gather", x, indices, numbers, sizes)
    shape = gathered_shape(indices.shape, numbers, sizes)
    return (ShapedArray(shape, x.dtype, all_weak(x, indices)),)


def _gather_eval(x: NDArray, indices: NDArray, **p: Any) -> tuple[NDArray]:
    numbers, sizes = p["dimension_numbers"], p["slice_sizes"]
    clip = p["mode"] is not GatherMode.FILL
    shape = gathered_shape(indices.shape, numbers, sizes)
    if 0 in shape:
        return (np.empty(shape, x.dtype),)
    found = locate(x.shape, indices, numbers, sizes, clip)
    rows = x.reshape(-1, found.row)
    out = np.take(rows, found.index, axis=0)
    if found.valid is not None:
        out[~found.valid] = _fill_array(p["fill_value"], x.dtype)
    return (out.reshape(shape),)


def _fill_array(fill: Any, dtype: dt.DType) -> NDArray:
    if dt.is_key(dtype):
        return np.full((1, 2), fill, np.uint32).view(dtype).reshape(())
    return np.asarray(fill).astype(dtype)


def _gather_form(x: ShapedArray, indices: ShapedArray, **p: Any) -> Form:
    numbers, sizes, mode, fill = (
        p[k] for k in ("dimension_numbers", "slice_sizes", "mode", "fill_value")
    )
    if isinstance(fill, complex) or (fill is not None and not dt.is_numeric(x.dtype)):
        return Opaque("gather with a fill value that is not a real number")
    operand, maps, names, bounds = _reading(x, indices, numbers, sizes)
    return Gather(operand, maps, names, bounds, mode, fill)


def _reading(
    x: ShapedArray, indices: ShapedArray, numbers: GatherDimensionNumbers, sizes: Shape
) -> tuple[IndexMap, tuple[IndexMap, ...], tuple[str, ...], tuple[tuple[Dim, Dim], ...]]:
    """Which element of `x` each of a gather's is: the map, those of the indices that it mentions,
    their names and ranges.
    """
    shape = gathered_shape(indices.shape, numbers, sizes)
    place = coordinates(shape)
    rows = [place[k] for k in batch_places(numbers, len(shape))]
    coords: list[Dim] = [0] * x.ndim
    for axis, k in zip(window_axes(numbers, x.ndim), numbers.offset_dims, strict=True):
        coords[axis] = place[k]
    for axis, b in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        coords[axis] = rows[b]
    names: list[str] = []
    bounds: list[tuple[Dim, Dim]] = []
    for j, axis in enumerate(numbers.start_index_map):
        names.append(f"g{j}")
        bounds.append((0, x.shape[axis] - sizes[axis]))
        coords[axis] = coords[axis] + symbol(names[j], 0, bounds[j][1])
    maps = [IndexMap(shape, (*rows, j)) for j in range(len(names))]
    return IndexMap(shape, tuple(coords)), tuple(maps), tuple(names), tuple(bounds)


def _gather_jvp(primals: Sequence[Value], tangents: _Tangents, **p: Any) -> Jvp:
    x, indices = primals
    (out,) = gather_p.bind(x, indices, **p)
    if tangents[0] is None:
        return (out,), (None,)
    zero = None if p["fill_value"] is None else 0
    return (out,), gather_p.bind(tangents[0], indices, **{**p, "fill_value": zero})


def _gather_transpose(cts: _Tangents, inputs: Sequence[Any], **p: Any) -> _Tangents:
    if cts[0] is None:
        return None, None
    x, indices = inputs
    found = scatter_add(
        zeros(x.aval.shape, x.aval.dtype),
        indices,
        cts[0],
        gather_as_scatter(p["dimension_numbers"]),
        indices_are_sorted=p["indices_are_sorted"],
        unique_indices=p["unique_indices"],
        mode=GatherMode.FILL if p["mode"] is GatherMode.FILL else GatherMode.CLIP,
    )
    return found, None


def _gather_batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, **p: Any) -> Batched:
    numbers: GatherDimensionNumbers = p["dimension_numbers"]
    sizes, n = p["slice_sizes"], axis.size
    offset, collapsed, targets, operand_batch, index_batch = map(_moved, numbers)
    if dims[1] is None:
        args = (batch_first(args[0], dims[0], n), args[1])
        p["dimension_numbers"] = GatherDimensionNumbers(
            (0, *offset), collapsed, targets, operand_batch, numbers.start_indices_batching_dims
        )
        p["slice_sizes"] = (n, *sizes)
    elif dims[0] is None:
        args = (args[0], batch_first(args[1], dims[1], n))
        p["dimension_numbers"] = numbers._replace(
            offset_dims=offset, start_indices_batching_dims=index_batch
        )
    else:
        args = tuple([batch_first(a, d, n) for a, d in zip(args, dims, strict=True)])
        p["dimension_numbers"] = GatherDimensionNumbers(
            offset, collapsed, targets, (0, *operand_batch), (0, *index_batch)
        )
        p["slice_sizes"] = (1, *sizes)
        if same(n, 0):
            shape = gathered_shape(shape_of(args[1]), p["dimension_numbers"], p["slice_sizes"])
            return (zeros(shape, aval_of(args[0]).dtype),), (0,)
    return gather_p.bind(*args, **p), (0,)


def _moved(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple([a + 1 for a in axes])


def _gather_sample(
    operand: tuple[int, ...],
    indices: tuple[int, ...],
    numbers: GatherDimensionNumbers,
    sizes: tuple[int, ...],
    mode: GatherMode,
    fill: Any = None,
    dtype: dt.DType = dt.float32,
) -> Sample:
    params = {
        "dimension_numbers": numbers,
        "slice_sizes": sizes,
        "indices_are_sorted": False,
        "unique_indices": False,
        "mode": mode,
        "fill_value": fill,
    }
    return Sample((ShapedArray(operand, dtype), ShapedArray(indices, dt.int32)), params, -2.0, 5.0)


_ROWS = GatherDimensionNumbers((1,), (0,), (0,))

gather_p = Primitive(
    "gather",
    aval=_gather_aval,
    eval=_gather_eval,
    form=_gather_form,
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    batch=_gather_batch,
    samples=(
        _gather_sample((4, 3), (5, 1), _ROWS, (1, 3), GatherMode.CLIP),
        _gather_sample((4, 3), (5, 1), _ROWS, (1, 3), GatherMode.FILL, np.nan),
        _gather_sample(
            (4,), (2, 3, 1), GatherDimensionNumbers((), (0,), (0,)), (1,), GatherMode.PROMISE
        ),
        _gather_sample(
            (4, 5), (3, 2), GatherDimensionNumbers((0, 1), (), (1, 0)), (2, 3), GatherMode.FILL, 7.5
        ),
        _gather_sample(
            (3, 4),
            (3, 2, 1),
            GatherDimensionNumbers((), (1,), (1,), (0,), (0,)),
            (1, 1),
            GatherMode.CLIP,
        ),
        _gather_sample((2, 3), (0, 1), _ROWS, (1, 3), GatherMode.CLIP),
        _gather_sample((4, 3), (2, 1), _ROWS, (1, 3), GatherMode.FILL, -1, dt.int8),
    ),
)


# ---- scatter


def scatter(
    operand: Value, scatter_indices: Value, updates: Value, dimension_numbers: Any, **options: Any
) -> Value:
    """`operand` with windows overwritten; of several writes to one element the last wins.

    Options are those of jax.lax.scatter: indices_are_sorted, unique_indices, mode ("clip", "drop",
    the default, or "promise_in_bounds", which drops).
    """
    return bind_scatter(scatter_p, operand, scatter_indices, updates, dimension_numbers, **options)


def scatter_add(
    operand: Value, scatter_indices: Value, updates: Value, dimension_numbers: Any, **options: Any
) -> Value:
    """`operand` with `updates` added to windows, duplicates in order; options as for scatter."""
    return bind_scatter(
        scatter_add_p, operand, scatter_indices, updates, dimension_numbers, **options
    )


def scatter_sub(
    operand: Value, scatter_indices: Value, updates: Value, dimension_numbers: Any, **options: Any
) -> Value:
    """`operand` with `updates` subtracted from windows; options as for scatter."""
    return scatter_add(operand, scatter_indices, neg(updates), dimension_numbers, **options)


def bind_scatter(
    prim: Primitive,
    operand: Value,
    indices: Value,
    updates: Value,
    dimension_numbers: Any,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Value:
    """Check and bind one of the scatters."""
    return apply(
        prim,
        operand,
        indices,
        updates,
        dimension_numbers=_static_numbers(prim.name, dimension_numbers, ScatterDimensionNumbers),
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        mode=canonical_mode(prim.name, mode, GatherMode.FILL),
    )[0]


def read_back(
    operand: Value, indices: Value, updates_shape: Shape, fill: Any, p: dict[str, Any]
) -> Value:
    """What `operand` holds where a scatter with params `p` writes; `fill` where it drops."""
    numbers, sizes = scatter_as_gather(p["dimension_numbers"], shape_of(operand), updates_shape)
    clip = p["mode"] is GatherMode.CLIP
    return gather(
        operand,
        indices,
        numbers,
        sizes,
        unique_indices=p["unique_indices"],
        indices_are_sorted=p["indices_are_sorted"],
        mode=GatherMode.CLIP if clip else GatherMode.FILL,
        fill_value=None if clip else fill,
    )


def scatter_record(
    name: str,
    write: Callable[[NDArray, NDArray, NDArray], None],
    accepts: Callable[[dt.DType], bool],
    jvp: Callable[..., Jvp],
    transpose: Callable[..., _Tangents] | None = None,
    combine: Primitive | None = None,
) -> Primitive:
    """The record of a scatter; `write(rows, positions, updates)` changes `rows`, in order.

    `combine` is the elementwise operation of an element and an update; None overwrites.
    """

    def aval(
        x: ShapedArray, indices: ShapedArray, updates: ShapedArray, **p: Any
    ) -> tuple[ShapedArray, ...]:
        check_same_dtypes(name, (x, updates))
        check_dtype(name, x, accepts(x.dtype), "operand and updates of a suitable dtype")
        numbers, sizes = scatter_as_gather(p["dimension_numbers"], x.shape, updates.shape)
        check_windows(name, x, indices, numbers, sizes)
        expected = gathered_shape(indices.shape, numbers, sizes)
        if not same_shape(expected, updates.shape):
            raise ShapeError(
                operation=name,
                required=f"updates of shape {text(expected)}",
                got=str(updates),
                fix="broadcast the updates to the shape of what is written",
            )
        return (ShapedArray(x.shape, x.dtype, all_weak(x, indices, updates)),)

    @silent
    def evaluate(x: NDArray, indices: NDArray, updates: NDArray, **p: Any) -> tuple[NDArray]:
        if updates.size == 0:
            return (x,)
        numbers, sizes = scatter_as_gather(p["dimension_numbers"], x.shape, updates.shape)
        found = locate(x.shape, indices, numbers, sizes, p["mode"] is GatherMode.CLIP)
        return (_written(x, updates, found, write),)

    def batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, **p: Any) -> Batched:
        return _scatter_batch(record, axis, args, dims, p)

    def form(*avals: ShapedArray, **p: Any) -> Form:
        return _scatter_form(name, combine, avals, p)

    record = Primitive(
        name,
        aval=aval,
        eval=evaluate,
        form=form,
        jvp=jvp,
        transpose=transpose,
        batch=batch,
        sums=combine is None or combine is add_p,
        samples=_scatter_samples(),
    )
    return record


def _scatter_form(
    name: str, combine: Primitive | None, avals: Sequence[ShapedArray], p: dict[str, Any]
) -> Form:
    """A choice per element where each is written at most once, else updates in order."""
    x, indices, updates = avals
    found = separate_updates(x, indices, updates, combine, p)
    if found is not None:
        return found
    op = scalar_operation(combine, x.dtype)
    if (combine is None) != (op is None):
        return Opaque(f"{name} of {dt.short_name(x.dtype)} values is computed by eval")
    numbers, sizes = scatter_as_gather(p["dimension_numbers"], x.shape, updates.shape)
    reading = _reading(x, indices, numbers, sizes)
    clip, dtype = p["mode"] is GatherMode.CLIP, x.dtype
    return Update(*reading, clip, op, dtype if op is None else dt.accumulation_dtype(dtype))


def _written(x: NDArray, updates: NDArray, found: Positions, write: Callable[..., None]) -> NDArray:
    wide = dt.accumulation_dtype(x.dtype) if dt.is_numeric(x.dtype) else x.dtype
    rows = np.array(x, wide, order="C").reshape(-1, found.row)
    positions = found.index.reshape(-1)
    values = updates.astype(wide, copy=False).reshape(-1, found.row)
    if found.valid is not None:
        kept = found.valid.reshape(-1)
        positions, values = positions[kept], values[kept]
    write(rows, positions, values)
    return rows.reshape(x.shape).astype(x.dtype, copy=False)


def _scatter_samples() -> tuple[Sample, ...]:
    def sample(
        operand: tuple[int, ...],
        indices: tuple[int, ...],
        updates: tuple[int, ...],
        numbers: ScatterDimensionNumbers,
        mode: GatherMode,
    ) -> Sample:
        params = {
            "dimension_numbers": numbers,
            "indices_are_sorted": False,
            "unique_indices": False,
            "mode": mode,
        }
        f32 = dt.float32
        avals = ShapedArray(operand, f32), ShapedArray(indices, dt.int32), ShapedArray(updates, f32)
        return Sample(avals, params, -2.0, 5.0)

    numbers = ScatterDimensionNumbers
    drop, clip = GatherMode.FILL, GatherMode.CLIP
    return (
        sample((4, 3), (5, 1), (5, 3), numbers((1,), (0,), (0,)), drop),
        sample((4,), (2, 3, 1), (2, 3), numbers((), (0,), (0,)), clip),
        sample((4, 5), (3, 2), (2, 3, 3), numbers((0, 1), (), (1, 0)), drop),
        sample((3, 4), (3, 2, 1), (3, 2), numbers((), (1,), (1,), (0,), (0,)), clip),
        sample((4, 3), (0, 1), (0, 3), numbers((1,), (0,), (0,)), drop),
        sample((4, 3), (1, 1), (1, 3), numbers((1,), (0,), (0,)), GatherMode.PROMISE),
    )


def _scatter_batch(
    prim: Primitive, axis: MappedAxis, args: Sequence[Value], dims: Dims, p: dict[str, Any]
) -> Batched:
    numbers: ScatterDimensionNumbers = p["dimension_numbers"]
    x, updates = (batch_first(args[k], dims[k], axis.size) for k in (0, 2))
    window = _moved(numbers.update_window_dims)
    inserted, targets, operand_batch = map(_moved, numbers[1:4])
    if dims[1] is None:
        indices = args[1]
        moved = ScatterDimensionNumbers((0, *window), inserted, targets, operand_batch, numbers[4])
    else:
        indices = batch_first(args[1], dims[1], axis.size)
        index_batch = (0, *_moved(numbers[4]))
        moved = ScatterDimensionNumbers(window, inserted, targets, (0, *operand_batch), index_batch)
        if same(axis.size, 0):
            return (x,), (0,)
    return prim.bind(x, indices, updates, **{**p, "dimension_numbers": moved}), (0,)


def _joint_jvp(prim: Callable[[], Primitive]) -> Callable[..., Jvp]:
    """The jvp rule of a scatter that is linear in operand and updates together."""

    def jvp(primals: Sequence[Value], tangents: _Tangents, **p: Any) -> Jvp:
        x, indices, updates = primals
        out = prim().bind(*primals, **p)
        if tangents[0] is None and tangents[2] is None:
            return out, (None,)
        moved = instantiate(tangents[0], x), indices, instantiate(tangents[2], updates)
        return out, prim().bind(*moved, **p)

    return jvp


def _scatter_transpose(cts: _Tangents, inputs: Sequence[Any], **p: Any) -> _Tangents:
    """Overwritten elements lose their cotangent; an update gets it if its write was the last."""
    if (ct := cts[0]) is None:
        return None, None, None
    x, indices, updates = inputs
    operand_ct = update_ct = None
    shape = updates.aval.shape if isinstance(updates, Linear) else shape_of(updates)
    dtype = aval_of(ct).dtype
    if isinstance(x, Linear):
        (operand_ct,) = scatter_p.bind(ct, indices, zeros(shape, dtype), **p)
    if isinstance(updates, Linear):
        update_ct = read_back(ct, indices, shape, 0, p)
        if not p["unique_indices"]:
            last = _last_writes(indices, shape_of(ct), shape, p)
            update_ct = select(last, update_ct, zeros(shape, dtype))
    return operand_ct, None, update_ct


def _last_writes(
    indices: Value, operand_shape: Shape, updates_shape: Shape, p: dict[str, Any]
) -> Value:
    """Which updates are not overwritten by a later one."""
    count: Dim = 1
    for n in updates_shape:
        count = count * n
    numbers = reshape(iota(dt.int32, count), updates_shape)
    (winners,) = scatter_p.bind(full(operand_shape, np.int32(-1)), indices, numbers, **p)
    return eq(read_back(winners, indices, updates_shape, -1, p), numbers)


def _scatter_add_transpose(cts: _Tangents, inputs: Sequence[Any], **p: Any) -> _Tangents:
    if (ct := cts[0]) is None:
        return None, None, None
    x, indices, updates = inputs
    update_ct = None
    if isinstance(updates, Linear):
        update_ct = read_back(ct, indices, updates.aval.shape, 0, p)
    return ct if isinstance(x, Linear) else None, None, update_ct


def _set(rows: NDArray, positions: NDArray, values: NDArray) -> None:
    rows[positions] = values


def at_each(ufunc: np.ufunc) -> Callable[[NDArray, NDArray, NDArray], None]:
    """Apply `ufunc` element by element, in order; a row of one element takes NumPy's fast path."""

    def write(rows: NDArray, positions: NDArray, values: NDArray) -> None:
        count = rows.shape[1]
        if count != 1:
            positions = (positions[:, None] * count + np.arange(count)).reshape(-1)
        ufunc.at(rows.reshape(-1), positions, values.reshape(-1))

    return write


def _is_number(dtype: dt.DType) -> bool:
    return dt.is_integer(dtype) or dt.is_inexact(dtype)


scatter_p = scatter_record(
    "scatter", _set, lambda d: d != dt.float0, _joint_jvp(lambda: scatter_p), _scatter_transpose
)
scatter_add_p = scatter_record(
    "scatter_add",
    at_each(np.add),
    _is_number,
    _joint_jvp(lambda: scatter_add_p),
    _scatter_add_transpose,
    add_p,
)
