"""x[...] and its relatives: NumPy's indexing rules on slices, gathers and reshapes.

Negative and out-of-range indices: an index that is known raises IndexRangeError outside its axis; a
traced one is clamped when reading, as in JAX (`take` and `.at[].get` offer other modes by name).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConcretizationError,
    IndexRangeError,
    LumjaxError,
    NonConcreteBooleanIndexError,
    ShapeError,
)
from lumjax.numpy.creation import asarray, broadcast_to
from lumjax.numpy.lengths import open_bounds
from lumjax.ops.passing import checked_index
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.array import Array
from lumjax.trace.core import Tracer, aval_of, evaluates_plainly, traced
from lumjax.trace.dim import Expr

ArrayLike = Any


_SIZED = "use a mask and where, or give the size argument where there is one"
_MASKED = (
    "use jnp.where(mask, x, other) or x.at[mask].set(value), which keep the shape, or "
    "jnp.nonzero(mask, size=n)"
)


def concrete_array(
    operation: str, x: Any, fix: str = _SIZED, error: type[LumjaxError] = ConcretizationError
) -> np.ndarray[Any, Any]:
    """`x` as a NumPy array; raises this error, with this remedy, for a traced value."""
    if isinstance(x, Tracer):
        known = x.concrete()
        if known is None:
            raise error(
                operation=operation,
                required="values that are known while tracing: they decide a shape",
                got=traced(x),
                fix=fix,
            )
        return np.asarray(known)
    return x.data if isinstance(x, Array) else np.asarray(x)


@record
class _Parsed:
    """An index, one entry per axis of the array: a slice or an integer array; `new` are inserted
    axes.
    """

    entries: tuple[Any, ...]
    new: tuple[int, ...]  # positions, among entries and new axes together, of inserted axes
    gap: int | None  # the position before which an Ellipsis stood for no axis at all


def _entry(item: Any) -> Any:
    """One item of an index: a slice, None, Ellipsis, a Python int, or an array."""
    if isinstance(item, Expr):
        return item
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        return int(item)
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (float, complex, str)):
        raise ArgumentTypeError(
            operation="indexing",
            required="integers, slices, None, Ellipsis or integer and bool arrays",
            got=f"{item!r} of type {type(item).__name__}",
            fix="convert the index to an integer",
        )
    value = asarray(np.asarray(item) if isinstance(item, (list, tuple)) else item)
    aval = aval_of(value)
    if isinstance(item, (list, tuple)) and aval.size == 0:
        value = ops.cast(value, np.int32)
    elif not (dt.is_integer(aval.dtype) or dt.is_bool(aval.dtype)):
        raise ArgumentTypeError(
            operation="indexing",
            required="integers, slices, None, Ellipsis or integer and bool arrays",
            got=f"an array of {aval}",
            fix="cast the index to int32",
        )
    return value


def _is_mask(entry: Any) -> bool:
    return isinstance(entry, (Array, Tracer)) and dt.is_bool(aval_of(entry).dtype)


def _items(shape: Sequence[Any], index: Any) -> tuple[list[Any], int | None]:
    """The index as a list whose entries, new axes apart, use up every axis of the array; and before
    which item an Ellipsis vanished.
    """
    items = [_entry(i) for i in (index if isinstance(index, tuple) else (index,))]
    used = sum(
        aval_of(i).ndim if _is_mask(i) else 1 for i in items if i is not None and i is not Ellipsis
    )
    spots = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(spots) > 1 or used > len(shape):
        raise IndexRangeError(
            operation="indexing",
            required=f"at most {len(shape)} indices and one Ellipsis",
            got=f"{used} indices and {len(spots)} Ellipses for shape {tuple(shape)}",
            fix="drop the surplus indices",
        )
    place = spots[0] if spots else len(items)
    items[place : place + 1] = [slice(None)] * (len(shape) - used)
    return items, place if spots and used == len(shape) else None


def _parse(shape: Sequence[Any], index: Any, checked: bool = True) -> _Parsed:
    """The index by axis, bool arrays as integer arrays. Where a mode says what out-of-range indices
    do (`checked` False), integers become arrays.
    """
    entries: list[Any] = []
    new: list[int] = []
    items, vanished = _items(shape, index)
    gap = None
    for k, item in enumerate(items):
        axis = len(entries)
        if k == vanished:
            gap = axis + len(new)
        if item is None:
            new.append(axis + len(new))
        elif _is_mask(item):
            entries += _mask_indices(item, tuple(shape[axis : axis + aval_of(item).ndim]), axis)
        elif checked:
            entries.append(_check(item, shape[axis], axis))
        else:
            entries.append(Array(np.asarray(item, np.int32)) if isinstance(item, int) else item)
    return _Parsed(tuple(entries), tuple(new), gap)


def _mask_indices(mask: Any, lengths: tuple[Any, ...], axis: int) -> list[Array]:
    """The positions at which a bool array holds, one integer array per axis that it covers."""
    if tuple(aval_of(mask).shape) != lengths:
        raise IndexRangeError(
            operation="indexing with a bool array",
            required=f"the shape {lengths} of the axes from {axis} on",
            got=str(aval_of(mask)),
            fix="make the mask as long as the axis",
        )
    operation = "indexing with a bool array"
    known = concrete_array(operation, mask, _MASKED, NonConcreteBooleanIndexError)
    return [Array(i.astype(np.int32)) for i in np.nonzero(known)]


def _check(entry: Any, length: Any, axis: int) -> Any:
    if isinstance(entry, (slice, Tracer, Expr)) or not isinstance(length, int):
        unknown = isinstance(entry, Tracer) and entry.concrete() is None
        return checked_index(entry, length, f"indexing axis {axis}") if unknown else entry
    low, high = (entry, entry) if isinstance(entry, int) else _range(entry)
    if low is not None and not (-length <= low and high < length):
        raise IndexRangeError(
            operation="indexing",
            required=f"an index between {-length} and {length - 1} on axis {axis}",
            got=str(low if low < -length else high),
            fix="correct the index, or name what should happen: x.at[i].get(mode='clip' or 'fill')",
        )
    return entry


def _range(entry: Array) -> tuple[Any, Any]:
    return (int(entry.data.min()), int(entry.data.max())) if entry.data.size else (None, None)


_SHORT = 1 << 10  # elements of a row that is copied


def known_row(x: Any, index: int) -> slice | None:
    """Where a short row of an array lies, where no more than NumPy is needed: the short way for
    what programs do eagerly and often.
    """
    if type(x) is not Array or not evaluates_plainly():
        return None
    shape = x.data.shape
    if not shape or not -shape[0] <= index < shape[0] or x.data.size > _SHORT * shape[0]:
        return None
    start = index + shape[0] if index < 0 else index
    return slice(start, start + 1)


def getitem(
    x: Any,
    index: Any,
    mode: str | None = None,
    fill_value: Any = None,
    checked: bool | None = None,
) -> Any:
    """x[index] by NumPy's rules. Known indices out of range raise where no mode is named, or where
    they are to be `checked` in any case.
    """
    if type(index) is int and mode is None and (place := known_row(x, index)) is not None:
        return Array(x.data[place].reshape(x.data.shape[1:]).copy(), x.weak)
    value = asarray(x)
    items = index if isinstance(index, tuple) else (index,)
    if any(map(_is_flag, items)):
        items = tuple(bool(i) if _is_flag(i) else i for i in items)
        value, index = _without_flags(value, items)
    parsed = _parse(aval_of(value).shape, index, mode is None if checked is None else checked)
    if all(isinstance(e, (int, slice, Expr)) for e in parsed.entries):
        out = _basic(value, parsed.entries)
        kept = [k for k, e in enumerate(_interleave(parsed)) if not isinstance(e, (int, Expr))]
        places = [n for n, k in enumerate(kept) if k in parsed.new]
        return ops.expand_dims(out, places) if places else out
    return _advanced(value, parsed, mode, fill_value)


def _is_flag(item: Any) -> bool:
    return isinstance(item, (bool, np.bool_)) or (
        isinstance(item, (Array, Tracer, np.ndarray))
        and not aval_of(item).shape
        and dt.is_bool(aval_of(item).dtype)
    )


def _without_flags(value: Any, items: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """True and False as indices: a new axis that keeps its one element, or loses it."""
    rank = aval_of(value).ndim
    out: list[Any] = []
    before = 0  # axes of the array used by the items so far
    for item in items:
        if isinstance(item, (bool, np.bool_)):
            value = ops.expand_dims(value, (before,))
            rank, before = rank + 1, before + 1
            out.append(Array(np.zeros(int(item), np.int32)))
            continue
        out.append(item)
        if item is Ellipsis:
            rest = items[len(out) :]
            flags = sum(isinstance(i, (bool, np.bool_)) for i in rest)
            plain = sum(np.ndim(i) if _is_mask_like(i) else 1 for i in rest if i is not None)
            before = rank - (plain - flags)
        elif item is not None:
            before += np.ndim(item) if _is_mask_like(item) else 1
    return value, tuple(out)


def _is_mask_like(item: Any) -> bool:
    return getattr(item, "dtype", None) == np.bool_


def _interleave(parsed: _Parsed) -> list[Any]:
    out: list[Any] = list(parsed.entries)
    for k in parsed.new:
        out.insert(k, None)
    return out


def _bounds(entry: slice, length: Any) -> tuple[Any, Any, int]:
    parts = [entry.start, entry.stop, entry.step]
    for part in parts:
        if isinstance(part, Tracer):
            raise ConcretizationError(
                operation="slicing",
                required="slice bounds that are known while tracing",
                got=traced(part),
                fix="use lax.dynamic_slice, whose start may be traced",
            )
    if any(isinstance(p, Expr) for p in (*parts, length)):
        return open_bounds(parts, length)
    known = slice(*[None if p is None else operator.index(p) for p in parts])
    return known.indices(length)


def _basic(value: Any, entries: Sequence[Any]) -> Any:
    """Integers and slices: one slice, the reversal of negative steps, and a reshape."""
    lengths = tuple(aval_of(value).shape)
    low, high, by, turned, dropped = [], [], [], [], []
    for k, (entry, length) in enumerate(zip(entries, lengths, strict=True)):
        if isinstance(entry, (int, Expr)):
            start = entry + length if entry < 0 else entry
            bounds = (start, start + 1, 1)
            dropped.append(k)
        elif entry == slice(None):
            bounds = (0, length, 1)
        else:
            start, stop, step = _bounds(entry, length)
            if step < 0:
                count = dims.maximum(0, dims.ceiling_divide(start - stop, -step))
                bounds = (0, 0, 1)
                if not dims.same(count, 0):
                    bounds = (start + step * (count - 1), start + 1, -step)
                turned.append(k)
            else:
                bounds = (start, dims.maximum(start, stop), step)
        for column, bound in zip((low, high, by), bounds, strict=True):
            column.append(bound)
    if any(isinstance(e, (int, Expr)) or e != slice(None) for e in entries):
        value = ops.slice(value, low, high, by)
    if turned:
        value = ops.rev(value, turned)
    return ops.squeeze(value, dropped) if dropped else value


def window(shape: Sequence[Any], index: Any) -> tuple[list[Any], list[Any], list[int]] | None:
    """The starts and sizes of the box that known integers and slices of step 1 select, and its axes
    that the result keeps; None for any other index.
    """
    items = index if isinstance(index, tuple) else (index,)
    plain = all(
        i is Ellipsis
        or isinstance(i, Expr)
        or (isinstance(i, (int, np.integer)) and not isinstance(i, bool))
        or (isinstance(i, slice) and (i.step is None or i.step == 1))
        for i in items
    )
    if not plain:
        return None
    starts, sizes, kept = [], [], []
    for k, (entry, length) in enumerate(zip(_parse(shape, index).entries, shape, strict=True)):
        if isinstance(entry, (int, Expr)):
            start = entry + length if entry < 0 else entry
            stop = start + 1
        else:
            start, stop, _ = _bounds(entry, length)
            kept.append(k)
        starts.append(start)
        sizes.append(dims.maximum(0, stop - start))
    return starts, sizes, kept


def _advanced(value: Any, parsed: _Parsed, mode: str | None, fill_value: Any) -> Any:
    """Integer arrays: slices first, then one gather, then the inserted axes."""
    entries = list(parsed.entries)
    value = _basic(value, [e if isinstance(e, slice) else slice(None) for e in entries])
    lengths = tuple(aval_of(value).shape)
    axes = [k for k, e in enumerate(entries) if not isinstance(e, slice)]
    arrays = [wrap_negative(asarray(entries[k]), lengths[k]) for k in axes]
    wide = max((aval_of(a).dtype for a in arrays), key=lambda d: d.itemsize)  # int32 or int64
    arrays = [ops.cast(a, wide) for a in arrays]
    arrays = ops.broadcast_values(*arrays, operation="indexing")
    width = len(aval_of(arrays[0]).shape)
    spaced = _interleave(parsed)
    spots = [n for n, e in enumerate(spaced) if not (e is None or isinstance(e, slice))]
    together = spots == list(range(spots[0], spots[0] + len(spots)))
    if parsed.gap is not None and spots[0] < parsed.gap <= spots[-1]:
        together = False  # NumPy counts even an Ellipsis of no axes as standing between
    # In the result without inserted axes, the index dims stand where the first array stood, or
    # first.
    before = sum(1 for k in range(len(entries)) if k < axes[0]) if together else 0
    others = len(lengths) - len(axes)
    offset = [*range(before), *range(before + width, others + width)]
    numbers = ops.GatherDimensionNumbers(
        offset_dims=tuple(offset), collapsed_slice_dims=tuple(axes), start_index_map=tuple(axes)
    )
    indices = ops.concatenate([ops.expand_dims(a, (width,)) for a in arrays], width)
    sizes = tuple(1 if k in axes else n for k, n in enumerate(lengths))
    if any(isinstance(n, int) and n == 0 for k, n in enumerate(lengths) if k in axes):
        plain = [n for k, n in enumerate(lengths) if k not in axes]
        shape = [*plain[:before], *aval_of(arrays[0]).shape, *plain[before:]]
        out = ops.full(shape, 0, aval_of(value).dtype)
    else:
        out = ops.gather(value, indices, numbers, sizes, mode=mode or "clip", fill_value=fill_value)
    if not parsed.new:
        return out
    first = spots[0]
    layout: list[Any] = [] if together else ["index"]
    for n, e in enumerate(spaced):
        if e is None or isinstance(e, slice):
            layout.append(e)
        elif together and n == first:
            layout.append("index")
    places, position = [], 0
    for item in layout:
        if item is None:
            places.append(position)
        position += width if item == "index" else 1
    return ops.expand_dims(out, places)


def wrap_negative(index: Any, length: Any) -> Any:
    """Indices from the end made to count from the start, as int32 (int64 where it must be)."""
    dtype = aval_of(index).dtype
    if dt.is_unsigned(dtype) or dt.is_bool(dtype):
        return ops.cast(index, np.int32)
    wide = dtype if dtype.itemsize >= 4 else np.int32
    index = ops.cast(index, wide)
    if isinstance(index, Array):
        data = index.data
        return Array(np.where(data < 0, data + length, data).astype(data.dtype))
    return ops.select(ops.lt(index, 0), ops.add(index, length), index)


# ---- functions


def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Any:
    """Elements along an axis (of the flattened array by default).

    `mode` is "fill" (out-of-range indices give NaN, or the dtype's extreme), "clip" or "wrap". By
    default known indices out of range raise IndexRangeError, traced ones give NaN as with "fill".

    >>> take(asarray([10, 20, 30]), asarray([2, 0]))
    Array([30, 10], dtype=int32)
    """
    del out, unique_indices, indices_are_sorted
    value = asarray(a)
    if axis is None:
        value, axis = ops.reshape(value, (aval_of(value).size,)), 0
    axis = ops.canonical_axis("jnp.take", axis, aval_of(value).ndim)
    index = asarray(indices)
    length, checked = aval_of(value).shape[axis], mode is None
    if mode == "wrap":
        index, mode = ops.rem(ops.add(ops.rem(index, length), length), length), "clip"
    elif mode == "clip":  # here negative indices do not count from the end
        index = ops.max(index, 0)
    place = (*[slice(None)] * axis, index)
    return getitem(value, place, mode or "fill", fill_value, checked)


def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | None = None,
    fill_value: Any = None,
) -> Any:
    """arr[..., indices[..., k, ...], ...] along one axis; the other axes broadcast.

    >>> take_along_axis(asarray([[1, 2], [3, 4]]), asarray([[1], [0]]), axis=1)
    Array([[2],
           [3]], dtype=int32)
    """
    value, index = asarray(arr), asarray(indices)
    if axis is None:
        value, axis = ops.reshape(value, (aval_of(value).size,)), 0
    if not dt.is_integer(aval_of(index).dtype):
        raise ArgumentTypeError(
            operation="jnp.take_along_axis",
            required="integer indices",
            got=str(aval_of(index)),
            fix="cast the indices to int32",
        )
    rank = aval_of(value).ndim
    if rank != aval_of(index).ndim:
        raise ShapeError(
            operation="jnp.take_along_axis",
            required="indices with as many axes as the array",
            got=f"{aval_of(index)} for {aval_of(value)}",
            fix="add axes of length 1 with expand_dims",
        )
    axis = ops.canonical_axis("jnp.take_along_axis", axis, rank)
    lengths, wanted = aval_of(value).shape, aval_of(index).shape
    common = ops.broadcast_shapes(
        tuple(1 if k == axis else n for k, n in enumerate(lengths)),
        tuple(1 if k == axis else n for k, n in enumerate(wanted)),
        operation="jnp.take_along_axis",
    )
    index = broadcast_to(
        index, tuple(wanted[axis] if k == axis else n for k, n in enumerate(common))
    )
    value = broadcast_to(
        value, tuple(lengths[axis] if k == axis else n for k, n in enumerate(common))
    )
    if any(isinstance(n, int) and n == 0 for n in aval_of(value).shape):
        return ops.full(aval_of(index).shape, 0, aval_of(value).dtype)
    index = wrap_negative(index if mode else _check(index, lengths[axis], axis), lengths[axis])
    others = tuple(k for k in range(rank) if k != axis)
    numbers = ops.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    return ops.gather(
        value,
        ops.expand_dims(index, (rank,)),
        numbers,
        (1,) * rank,
        mode=mode or "fill",
        fill_value=fill_value,
    )


def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: Any = None,
    fill_value: Any = None,
) -> Any:
    """`x` where the condition holds, else `y`; the three broadcast. With a condition alone,
    `nonzero`.

    The branch that is not chosen has no gradient, and does not spoil the other's with NaN.

    >>> where(asarray([True, False]), asarray([1.0, 2.0]), 0.0)
    Array([1., 0.], dtype=float32)
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ArgumentValueError(
            operation="jnp.where",
            required="both x and y, or neither",
            got="one of them",
            fix="pass where(condition, x, y)",
        )
    test = asarray(condition)
    if not dt.is_bool(aval_of(test).dtype):
        test = ops.ne(test, 0)
    return ops.select(test, _plain(x), _plain(y))


def _plain(x: Any) -> Any:
    return x if isinstance(x, (bool, int, float, complex)) else asarray(x)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """The choice of the first condition that holds, else `default`."""
    if len(condlist) != len(choicelist):
        raise ArgumentValueError(
            operation="jnp.select",
            required="as many choices as conditions",
            got=f"{len(choicelist)} choices and {len(condlist)} conditions",
            fix="pair them up",
        )
    out = default
    for condition, choice in zip(condlist[::-1], choicelist[::-1], strict=True):
        out = where(condition, choice, out)
    return asarray(out)


def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> tuple[Any, ...]:
    """The indices of elements that are not zero, one array per axis.

    Under jit give `size`: the result is cut or padded (with `fill_value`, 0 by default) to it.

    >>> nonzero(asarray([0, 3, 0, 4]))
    (Array([1, 3], dtype=int32),)
    """
    value, wide = asarray(a), dt.canonicalize(np.int64)
    if size is None:
        found = np.nonzero(concrete_array("jnp.nonzero without size", value))
        return tuple(Array(f.astype(wide)) for f in found)
    shape = tuple(aval_of(value).shape)
    flat = ops.reshape(ops.ne(value, 0), (aval_of(value).size,))
    order = ops.cumsum(ops.cast(flat, wide), 0)
    slots = ops.iota(wide, size)
    grid = (size, aval_of(flat).shape[0])
    passed = ops.le(
        ops.broadcast_in_dim(order, grid, (1,)), ops.broadcast_in_dim(slots, grid, (0,))
    )
    position = ops.reduce_sum(ops.cast(passed, wide), (1,))
    count = ops.reduce_sum(ops.cast(flat, wide), (0,))
    valid = ops.lt(slots, count)
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value or 0,) * len(shape)
    out: list[Any] = []
    stride = aval_of(flat).shape[0]
    for length, fill in zip(shape, fills, strict=True):
        stride //= max(length, 1)
        coordinate = ops.rem(ops.div(position, max(stride, 1)), max(length, 1))
        out.append(ops.select(valid, coordinate, ops.full((size,), fill, wide)))
    return tuple(out)


def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The indices, in the flattened array, of elements that are not zero."""
    value = asarray(a)
    flat = ops.reshape(value, (aval_of(value).size,))
    return nonzero(flat, size=size, fill_value=fill_value)[0]


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The indices of elements that are not zero, one row each."""
    columns = nonzero(a, size=size, fill_value=fill_value)
    return ops.concatenate([ops.expand_dims(c, (1,)) for c in columns], 1)
