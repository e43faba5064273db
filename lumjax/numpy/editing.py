"""Taking arrays apart and putting them together: insert, delete, block, sets, partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentTypeError, ArgumentValueError, ConcretizationError, ShapeError
from lumjax.numpy.creation import arange, asarray, broadcast_to
from lumjax.numpy.indexing import nonzero, where
from lumjax.numpy.manipulation import (
    broadcast_arrays,
    concatenate,
    moveaxis,
    ravel,
    reshape,
)
from lumjax.numpy.reductions import all as _all
from lumjax.numpy.sorting import argsort, sort
from lumjax.trace.array import Array
from lumjax.trace.core import Tracer, aval_of

ArrayLike = Any


# ---- selecting


def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
    out: None = None,
) -> Any:
    """The slices along an axis where `condition` holds; `size` is needed under jit.

    >>> compress(asarray([False, True, True]), asarray([1, 2, 3])).tolist()
    [2, 3]
    """
    del out
    mask, value = asarray(condition), asarray(a)
    if axis is None:
        value, axis = ravel(value), 0
    value = moveaxis(value, axis, 0)
    count = int(aval_of(mask).shape[0])
    rest = value[:count]
    (places,) = nonzero(mask, size=size, fill_value=count)
    picked = rest.at[places].get(mode="fill", fill_value=fill_value)
    return moveaxis(picked, 0, axis)


def extract(
    condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0
) -> Any:
    """The elements where `condition` holds, as a vector."""
    return compress(
        ravel(asarray(condition)), ravel(asarray(arr)), size=size, fill_value=fill_value
    )


def choose(a: ArrayLike, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """At each place the element of the array that `a` names there.

    `mode` "clip" or "wrap" says what a number out of range does; "raise" needs a concrete `a`.

    >>> choose(asarray([0, 1]), [asarray([1, 2]), asarray([3, 4])], mode="clip").tolist()
    [1, 4]
    """
    del out
    count = len(choices)
    which, *arrays = broadcast_arrays(a, *choices)
    if mode == "raise":
        if isinstance(which, Tracer):
            raise ConcretizationError(
                operation="jnp.choose", required="mode 'clip' or 'wrap' for traced choices",
                got=str(aval_of(which)), fix="name the mode",
            )  # fmt: skip
        if bool(((which < 0) | (which >= count)).any()):
            raise ArgumentValueError(
                operation="jnp.choose", required=f"choices in [0, {count})", got=str(which),
                fix="use mode='clip' or 'wrap'",
            )  # fmt: skip
    elif mode == "wrap":
        which = which % count
    elif mode == "clip":
        which = ops.clamp(0, which, count - 1)
    else:
        raise ArgumentValueError(
            operation="jnp.choose", required="mode 'raise', 'clip' or 'wrap'", got=repr(mode),
            fix="choose one of these",
        )  # fmt: skip
    values = ops.promote_values(*arrays)
    found = values[-1]
    for k in range(count - 2, -1, -1):
        found = where(which == k, values[k], found)
    return found


def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """At each place the function (or number) of the first condition that holds there; a function
    more than conditions is for the rest, which is 0 otherwise.

    >>> x = asarray([-1.0, 2.0])
    >>> piecewise(x, [x < 0, x >= 0], [lambda v: -v, 3.0]).tolist()
    [1.0, 3.0]
    """
    value = asarray(x)
    masks = [asarray(c) for c in condlist]
    if len(funclist) not in (len(masks), len(masks) + 1):
        raise ArgumentValueError(
            operation="jnp.piecewise",
            required=f"{len(masks)} or {len(masks) + 1} functions",
            got=str(len(funclist)),
            fix="give one function for each condition, and one for the rest",
        )
    functions = list(funclist)
    default = functions.pop() if len(functions) > len(masks) else 0

    def part(f: Any) -> Any:
        found = f(value, *args, **kw) if callable(f) else f
        return broadcast_to(ops.cast(asarray(found), aval_of(value).dtype), aval_of(value).shape)

    out = part(default)
    for mask, f in reversed(list(zip(masks, functions, strict=True))):
        out = where(mask, part(f), out)
    return out


# ---- changing


def put(
    a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = True
) -> Any:
    """`a` with flat positions replaced; `inplace` must be False, arrays do not change.

    >>> put(asarray([1, 2, 3]), 0, 9, inplace=False).tolist()
    [9, 2, 3]
    """
    _not_inplace("put", inplace)
    value, places, new = asarray(a), ravel(asarray(ind)), ravel(asarray(v))
    count, have = int(aval_of(places).size), int(aval_of(new).size)
    if not count or not have:
        return value
    if have < count:
        new = concatenate([new] * -(-count // have))
    if mode == "clip":
        places = ops.clamp(0, places, int(aval_of(value).size) - 1)
    elif mode == "wrap":
        places = places % int(aval_of(value).size)
    out = ravel(value).at[places].set(ops.cast(new[:count], aval_of(value).dtype), mode="drop")
    return reshape(out, aval_of(value).shape)


def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Any:
    """`arr` with its masked elements replaced by `vals` in turn; `inplace` must be False.

    >>> holds = asarray([True, False, True])
    >>> place(asarray([1, 2, 3]), holds, asarray([7]), inplace=False).tolist()
    [7, 2, 7]
    """
    _not_inplace("place", inplace)
    value, holds, new = asarray(arr), ravel(asarray(mask)), ravel(asarray(vals))
    number = ops.cumsum(ops.cast(ops.cast(holds, np.bool_), np.int32)) - 1
    picked = new[number % max(1, int(aval_of(new).size))]
    flat = ravel(value)
    out = where(ops.cast(holds, np.bool_), ops.cast(picked, aval_of(value).dtype), flat)
    return reshape(out, aval_of(value).shape)


def _not_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise ArgumentValueError(
            operation=f"jnp.{name}", required="inplace=False: arrays do not change",
            got="inplace=True", fix="pass inplace=False and use the returned array",
        )  # fmt: skip


def put_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
    inplace: bool = True,
    *,
    mode: str | None = None,
) -> Any:
    """`arr` with the elements that take_along_axis would read replaced; `inplace` must be False."""
    _not_inplace("put_along_axis", inplace)
    value, places = asarray(arr), asarray(indices)
    shape = aval_of(value).shape
    if axis is None:
        value, axis = ravel(value), 0
    place_axis = ops.canonical_axis("jnp.put_along_axis", axis, aval_of(value).ndim)
    grid: list[Any] = []
    for k in range(aval_of(places).ndim):
        if k == place_axis:
            grid.append(places)
        else:
            full: Any = aval_of(value).shape[k]
            grid.append(
                arange(full).reshape([-1 if j == k else 1 for j in range(aval_of(places).ndim)])
            )
    return reshape(value.at[tuple(grid)].set(values, mode=mode), shape)


def delete(
    arr: ArrayLike, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False
) -> Any:
    """`arr` without the positions `obj` (an int, a slice, indices or a mask) along an axis.

    >>> delete(asarray([1, 2, 3]), 1).tolist()
    [1, 3]
    """
    del assume_unique_indices
    value = asarray(arr)
    if axis is None:
        value, axis = ravel(value), 0
    axis = ops.canonical_axis("jnp.delete", axis, aval_of(value).ndim)
    n = int(aval_of(value).shape[axis])
    keep = np.ones(n, bool)
    keep[static_index("jnp.delete", obj)] = False
    at: list[Any] = [slice(None)] * aval_of(value).ndim
    at[axis] = np.flatnonzero(keep)
    return value[tuple(at)]


def static_index(operation: str, obj: Any) -> Any:
    """An index as NumPy takes it."""
    if isinstance(obj, Tracer):
        raise ConcretizationError(
            operation=operation, required="positions that are known", got=str(obj.aval),
            fix="pass Python integers or NumPy arrays",
        )  # fmt: skip
    if isinstance(obj, slice):
        return obj
    found = np.asarray(obj.data if isinstance(obj, Array) else obj)
    return found if found.size else found.astype(np.int64)


def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> Any:
    """`arr` with `values` put before the positions `obj` along an axis.

    >>> insert(asarray([1, 2, 3]), 1, 9).tolist()
    [1, 9, 2, 3]
    """
    value, new = asarray(arr), asarray(values)
    if axis is None:
        value, axis = ravel(value), 0
    axis = ops.canonical_axis("jnp.insert", axis, aval_of(value).ndim)
    value, new = moveaxis(value, axis, 0), asarray(new)
    n = int(aval_of(value).shape[0])
    rest = tuple(aval_of(value).shape[1:])
    spots = static_index("jnp.insert", obj)
    spots = np.arange(*spots.indices(n)) if isinstance(spots, slice) else spots
    if spots.dtype == bool:
        spots = np.flatnonzero(spots)
    lone, spots = spots.ndim == 0, np.atleast_1d(spots)
    if aval_of(new).ndim > 1 or (aval_of(new).ndim == 1 and not rest):
        place_axis = axis if aval_of(new).ndim == len(rest) + 1 else 0
        new = moveaxis(new, place_axis, 0) if aval_of(new).ndim == len(rest) + 1 else new[None]
    count = int(aval_of(new).shape[0]) if aval_of(new).ndim == len(rest) + 1 else spots.size
    count = max(count, spots.size)
    if lone or spots.size == 1:
        spots = np.repeat(spots, count)
    spots = np.where(spots < 0, spots + n, spots)
    new = broadcast_to(ops.cast(new, aval_of(value).dtype), (count, *rest))
    order = np.argsort(spots, kind="stable")
    where_new = np.empty(count, np.int64)
    where_new[order] = spots[order] + np.arange(count)
    source = np.full(n + count, -1)
    source[where_new] = n + np.arange(count)
    source[source < 0] = np.arange(n)
    return moveaxis(concatenate([value, new], axis=0)[source], 0, axis)


def resize(a: ArrayLike, new_shape: Any) -> Any:
    """The elements in order, repeated or cut, in a new shape.

    >>> resize(asarray([1, 2, 3]), (2, 2)).tolist()
    [[1, 2], [3, 1]]
    """
    shape = (new_shape,) if isinstance(new_shape, (int, np.integer)) else tuple(new_shape)
    value = ravel(asarray(a))
    total, have = int(np.prod(shape)), int(aval_of(value).size)
    if not have or not total:
        return ops.full(shape, 0, aval_of(value).dtype)
    return reshape(value[np.arange(total) % have], shape)


def trim_zeros(filt: ArrayLike, trim: str = "fb") -> Any:
    """A vector without zeros at its front ("f") and back ("b").

    >>> trim_zeros(asarray([0, 1, 2, 0])).tolist()
    [1, 2]
    """
    value = asarray(filt)
    found = np.flatnonzero(static_index("jnp.trim_zeros", value))
    if not found.size:
        return value[:0]
    front = found[0] if "f" in trim.lower() else 0
    back = found[-1] + 1 if "b" in trim.lower() else int(aval_of(value).size)
    return value[int(front) : int(back)]


def block(arrays: Any) -> Any:
    """Nested lists of arrays joined: the innermost along the last axis, outer ones along earlier.

    >>> block([[asarray([[1]]), asarray([[2]])], [asarray([[3, 4]])]]).tolist()
    [[1, 2], [3, 4]]
    """
    depth = 0
    level = arrays
    while isinstance(level, list) and level:
        depth, level = depth + 1, level[0]
    leaves = _leaves(arrays)
    rank = max(depth, *(aval_of(x).ndim for x in leaves)) if leaves else depth

    def join(item: Any, at: int) -> Any:
        if isinstance(item, list):
            return concatenate([join(i, at + 1) for i in item], axis=at - depth)
        value = asarray(item)
        shape: Any = aval_of(value).shape
        return reshape(value, (*[1] * (rank - len(shape)), *shape))

    return join(arrays, 0)


def _leaves(item: Any) -> list[Any]:
    if isinstance(item, list):
        return [leaf for i in item for leaf in _leaves(i)]
    return [asarray(item)]


# ---- order


def partition(a: ArrayLike, kth: int, axis: int = -1) -> Any:
    """The k-th smallest element at position `kth`, smaller ones before, greater ones after it."""
    value = asarray(a)
    place = ops.canonical_axis("jnp.partition", axis, aval_of(value).ndim)
    ops.canonical_axis("jnp.partition", kth, int(aval_of(value).shape[place]))
    return sort(value, axis=place)


def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Any:
    """The positions that `partition` takes elements from."""
    value = asarray(a)
    place = ops.canonical_axis("jnp.argpartition", axis, aval_of(value).ndim)
    ops.canonical_axis("jnp.argpartition", kth, int(aval_of(value).shape[place]))
    return argsort(value, axis=place)


def lexsort(keys: Any, axis: int = -1) -> Any:
    """The positions that sort by the last key, then by the one before, and so on.

    >>> lexsort((asarray([2, 1, 0]), asarray([0, 0, 1]))).tolist()
    [1, 0, 2]
    """
    values = [asarray(k) for k in keys]
    if not values:
        raise ArgumentTypeError(
            operation="jnp.lexsort", required="at least one key", got="none", fix="pass an array"
        )
    if not aval_of(values[0]).ndim:
        return asarray(0)
    place = ops.canonical_axis("jnp.lexsort", axis, aval_of(values[0]).ndim)
    wide = dt.canonicalize(np.int64)
    steps = ops.broadcasted_iota(wide, aval_of(values[0]).shape, place)
    return ops.sort([*reversed(values), steps], place, True, len(values))[-1]


def sort_complex(a: ArrayLike) -> Any:
    """A sorted complex array, by real part, then by imaginary part."""
    value = sort(asarray(a), axis=0)
    wide = dt.promote((aval_of(value).dtype, False), (dt.complex64, False))[0]
    return ops.cast(value, wide)


def ediff1d(
    ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None
) -> Any:
    """Differences of successive elements of the flattened array, between two given ends.

    >>> ediff1d(asarray([1, 4, 9])).tolist()
    [3, 5]
    """
    value = ravel(asarray(ary))
    parts = [value[1:] - value[:-1]]
    if to_begin is not None:
        parts.insert(0, ops.cast(ravel(asarray(to_begin)), aval_of(value).dtype))
    if to_end is not None:
        parts.append(ops.cast(ravel(asarray(to_end)), aval_of(value).dtype))
    return concatenate(parts)


def unwrap(
    p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: ArrayLike = 2 * np.pi
) -> Any:
    """Angles with jumps of more than half a period taken back.

    >>> [round(v, 3) for v in unwrap(asarray([0.0, 3.0, -3.0])).tolist()]
    [0.0, 3.0, 3.283]
    """
    value = asarray(p)
    if not aval_of(value).size:
        return value
    place = ops.canonical_axis("jnp.unwrap", axis, aval_of(value).ndim)
    kind = aval_of(value).dtype
    length = asarray(period)
    whole = dt.is_integer(aval_of(length).dtype) and dt.is_integer(kind)
    if not dt.is_inexact(kind) and not whole:
        value = ops.cast(value, np.float64)
    line = moveaxis(value, place, 0)
    jump = line[1:] - line[:-1]
    half = length // 2 if whole else length / 2
    back = (jump + half) % length - half
    back = where((back == -half) & (jump > 0), half, back)
    limit = half if discont is None else asarray(discont)
    fix = where(ops.abs(jump) < limit, 0, back - jump)
    rest = line[1:] + ops.cast(ops.cumsum(fix, 0), aval_of(line).dtype)
    return moveaxis(concatenate([line[:1], rest], axis=0), 0, place)


# ---- functions over axes


def apply_over_axes(func: Callable[..., Any], a: ArrayLike, axes: Any) -> Any:
    """`func(a, axis)` for one axis after the other; axes that it removes are kept with size 1."""
    value = asarray(a)
    for axis in (axes,) if isinstance(axes, int) else axes:
        found = func(value, axis=axis)
        if aval_of(found).ndim == aval_of(value).ndim - 1:
            found = ops.expand_dims(found, (axis,))
        value = found
    return value


def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Any:
    """Whether two arrays are equal after broadcasting.

    >>> bool(array_equiv(asarray([1, 1]), 1))
    True
    """
    try:
        one, two = broadcast_arrays(asarray(a1), asarray(a2))
    except ShapeError:
        return asarray(False)
    return _all(one == two)


def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any
) -> Any:
    """`function` of the index arrays of a shape.

    >>> fromfunction(lambda i, j: i + j, (2, 2), dtype=int).tolist()
    [[0, 1], [1, 2]]
    """
    kind = dt.canonicalize(dtype)
    grid = [ops.broadcasted_iota(kind, tuple(shape), k) for k in range(len(shape))]
    return function(*grid, **kwargs)
