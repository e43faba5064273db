"""jnp.pad and its modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError
from lumjax.numpy.creation import asarray
from lumjax.numpy.elementwise import round as rounded
from lumjax.numpy.indexing import getitem
from lumjax.numpy.reductions import max as greatest
from lumjax.numpy.reductions import mean
from lumjax.numpy.reductions import min as least
from lumjax.numpy.sorting import median
from lumjax.trace.core import aval_of

_STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": greatest, "mean": mean, "median": median, "minimum": least,
}  # fmt: skip


def pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Any:
    """`array` with elements added at both ends of each axis.

    `pad_width` is one number, a pair (before, after), or a pair per axis. Modes: "constant" (with
    `constant_values`, 0 by default), "edge", "reflect", "symmetric", "wrap", "empty",
    "linear_ramp" (down to `end_values`), "maximum", "mean", "median", "minimum" (of the
    `stat_length` elements next to the end, all by default).

    >>> pad(asarray([1, 2]), 1)
    Array([0, 1, 2, 0], dtype=int32)
    """
    value = asarray(array)
    rank = aval_of(value).ndim
    widths = np.broadcast_to(np.asarray(pad_width), (rank, 2)).tolist() if rank else []
    if any(n < 0 for pair in widths for n in pair):
        raise ArgumentValueError(
            operation="jnp.pad",
            required="widths >= 0",
            got=str(pad_width),
            fix="slice the array to make it smaller",
        )
    match mode:
        case "constant" | "empty":
            return _constant(value, widths, kwargs.get("constant_values", 0))
        case "edge" | "reflect" | "symmetric" | "wrap":
            for axis, (before, after) in enumerate(widths):
                value = _repeated(value, axis, before, after, mode)
            return value
        case "linear_ramp":
            return _ramped(value, widths, kwargs.get("end_values", 0))
        case "maximum" | "mean" | "median" | "minimum":
            return _summarised(value, widths, kwargs.get("stat_length"), _STATISTICS[mode])
        case _:
            raise ArgumentValueError(
                operation="jnp.pad",
                required="a mode that numpy.pad names, other than a function",
                got=repr(mode),
                fix="choose one of these",
            )


def _constant(value: Any, widths: list[list[int]], fill: Any) -> Any:
    rank = aval_of(value).ndim
    fills = asarray(fill)
    if aval_of(fills).ndim == 0:
        config = [(b, a, 0) for b, a in widths]
        return ops.pad(value, ops.cast(fills, aval_of(value).dtype), config)
    each = np.broadcast_to(np.asarray(fill), (rank, 2))
    for axis, (before, after) in enumerate(widths):
        for side, count in ((0, before), (1, after)):
            config = [(0, 0, 0)] * rank
            config[axis] = (count, 0, 0) if side == 0 else (0, count, 0)
            value = ops.pad(value, ops.cast(each[axis, side], aval_of(value).dtype), config)
    return value


def _part(value: Any, axis: int, start: Any, stop: Any) -> Any:
    return getitem(value, (*[slice(None)] * axis, slice(start, stop)))


def _joined(pieces: list[Any], axis: int, like: Any) -> Any:
    """The pieces in the dtype of `like`; integers are rounded to the nearest."""
    dtype = aval_of(like).dtype
    whole = dt.is_integer(dtype)
    exact = [rounded(p) if whole and dt.is_inexact(aval_of(p).dtype) else p for p in pieces]
    return ops.concatenate([ops.cast(p, dtype) for p in exact], axis)


def _ramped(value: Any, widths: list[list[int]], ends: Any) -> Any:
    each = np.broadcast_to(np.asarray(ends), (aval_of(value).ndim, 2))
    for axis, (before, after) in enumerate(widths):
        length: Any = aval_of(value).shape[axis]
        shape = [1] * aval_of(value).ndim
        pieces = [value]
        for side, count, edge in ((0, before, 0), (1, after, length - 1)):
            share = np.arange(count) / max(count, 1)  # 0 at the far end
            share = np.reshape(
                share if side == 0 else share[::-1], [*shape[:axis], -1, *shape[axis + 1 :]]
            )
            near, far = _part(value, axis, edge, edge + 1), each[axis, side].item()
            ramp = ops.add(ops.mul(near, asarray(share)), asarray(far * (1 - share)))
            pieces.insert(len(pieces) * side, ramp)
        value = _joined(pieces, axis, value)
    return value


def _summarised(value: Any, widths: list[list[int]], lengths: Any, f: Callable[..., Any]) -> Any:
    for axis, (before, after) in enumerate(widths):
        length: Any = aval_of(value).shape[axis]
        if lengths is None:
            counts = [length, length]
        else:
            given = np.broadcast_to(np.asarray(lengths), (aval_of(value).ndim, 2))
            counts = [min(n, length) for n in given[axis].tolist()]
        first = f(_part(value, axis, 0, counts[0]), axis, keepdims=True)
        last = f(_part(value, axis, length - counts[1], length), axis, keepdims=True)
        at = np.zeros(before, np.int32), np.zeros(after, np.int32)
        ends = [
            getitem(e, (*[slice(None)] * axis, asarray(i)))
            for e, i in zip((first, last), at, strict=True)
        ]
        value = _joined([ends[0], value, ends[1]], axis, value)
    return value


def _repeated(value: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """Pad one axis from its own elements: the source position of each element is known."""
    length = aval_of(value).shape[axis]
    if not before and not after:
        return value
    if not length:
        raise ArgumentValueError(
            operation="jnp.pad",
            required="an axis that is not empty",
            got=f"axis {axis} of {aval_of(value)}",
            fix="pad with constants",
        )
    places = np.pad(np.arange(length, dtype=np.int32), (before, after), mode=mode)  # type: ignore[call-overload]
    return getitem(value, (*[slice(None)] * axis, asarray(places)))
