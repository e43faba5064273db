"""jnp.pad and its modes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import ops
from lumjax.errors import ArgumentValueError
from lumjax.numpy.creation import asarray
from lumjax.numpy.indexing import getitem
from lumjax.trace.core import aval_of


def pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Any:
    """`array` with elements added at both ends of each axis.

    `pad_width` is one number, a pair (before, after), or a pair per axis. Modes: "constant" (with
    `constant_values`, 0 by default), "edge", "reflect", "symmetric", "wrap", "empty".

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
        case _:
            raise ArgumentValueError(
                operation="jnp.pad",
                required="mode constant, edge, reflect, symmetric, wrap or empty",
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
