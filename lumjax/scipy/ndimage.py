"""Interpolation on grids under scipy's name.

>>> from lumjax.scipy.ndimage import map_coordinates
>>> float(map_coordinates(jnp.array([0.0, 2.0]), [0.5], order=1))
1.0
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from lumjax import lax
from lumjax import numpy as jnp
from lumjax.errors import ArgumentValueError, UnsupportedError
from lumjax.trace.core import aval_of
from lumjax.typing import ArrayLike

__all__ = ["map_coordinates"]


def _mirrored(index: Any, size: Any) -> Any:
    """A triangular wave that turns at the first and the last element."""
    half = size - 1
    return jnp.abs((index + half) % (2 * half) - half)


# How an index outside of the array is brought inside.
_MODES: dict[str, Callable[[Any, Any], Any]] = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: jnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": lambda index, size: (_mirrored(2 * index + 1, 2 * size + 1) - 1) // 2,
}


def _rounded(x: Any) -> Any:
    """The nearest integer, halves away from zero."""
    if not jnp.issubdtype(aval_of(x).dtype, jnp.floating):
        return x
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


def _nodes(coordinate: Any, order: int) -> list[tuple[Any, Any]]:
    """The neighbours of a coordinate and their weights."""
    if order == 0:
        weight = jnp.ones((), aval_of(coordinate).dtype)
        return [(jnp.astype(_rounded(coordinate), jnp.int32), weight)]
    low = jnp.floor(coordinate)
    high_weight = coordinate - low
    index = jnp.astype(low, jnp.int32)
    return [(index, 1 - high_weight), (index + 1, high_weight)]


def map_coordinates(
    input: ArrayLike,
    coordinates: Sequence[ArrayLike],
    order: int,
    mode: str = "constant",
    cval: ArrayLike = 0.0,
) -> Any:
    """The values of `input` at places between its elements.

    Args:
        input: an array of n axes.
        coordinates: n arrays of one shape, in units of elements; the result has that shape.
        order: 0 takes the nearest element, 1 interpolates linearly.
        mode: what lies outside: "constant" (`cval`), "nearest", "wrap", "mirror" or "reflect".
        cval: see `mode`.

    Raises:
        ArgumentValueError: not as many coordinates as axes.
        UnsupportedError: another order or mode.

    >>> grid = jnp.arange(6.0).reshape(2, 3)
    >>> map_coordinates(grid, [jnp.array([0.5, 1.0]), jnp.array([0.0, 1.5])], order=1).tolist()
    [1.5, 4.5]
    """
    values = jnp.asarray(input)
    places = [jnp.asarray(c) for c in coordinates]
    shape = aval_of(values).shape
    name = "scipy.ndimage.map_coordinates"
    if len(places) != len(shape):
        raise ArgumentValueError(
            operation=name, required=f"{len(shape)} coordinates, one for each axis",
            got=str(len(places)), fix="pass one array for each axis of the input",
        )  # fmt: skip
    if mode not in _MODES or order not in (0, 1):
        raise UnsupportedError(
            operation=name, required=f"order 0 or 1, and a mode among {', '.join(_MODES)}",
            got=f"order={order!r}, mode={mode!r}", fix="choose one of these",
        )  # fmt: skip
    dtype = aval_of(values).dtype
    outside = jnp.asarray(cval, dtype)
    choices = [
        [(_MODES[mode](k, n), (k >= 0) & (k < n), weight) for k, weight in _nodes(place, order)]
        for place, n in zip(places, shape, strict=True)
    ]
    terms: list[Any] = []
    for corner in itertools.product(*choices):
        index = tuple(k for k, _, _ in corner)
        found = values.at[index].get(mode="clip") if mode == "constant" else values[index]
        if mode == "constant":
            inside = functools.reduce(operator.and_, (valid for _, valid, _ in corner))
            found = jnp.where(inside, found, outside)
        terms.append(functools.reduce(operator.mul, (w for _, _, w in corner)) * found)
    total = functools.reduce(operator.add, terms)
    if jnp.issubdtype(dtype, jnp.integer):
        total = _rounded(total)
    return jnp.astype(total, dtype)
