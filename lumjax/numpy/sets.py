"""Sets: the distinct elements of arrays. `size` fixes the length of a result, as jit needs it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lumjax import ops
from lumjax.numpy.creation import asarray
from lumjax.numpy.editing import compress, static_index
from lumjax.numpy.logic import logical_not
from lumjax.numpy.manipulation import concatenate, ravel
from lumjax.numpy.sorting import isin, sort, unique
from lumjax.trace.core import aval_of

ArrayLike = Any


class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Any
    inverse_indices: Any


def unique_all(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueAll:
    """The distinct values, where each first occurs, which one each element is, how often each."""
    return UniqueAll(*unique(x, True, True, True, size=size, fill_value=fill_value))


def unique_counts(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueCounts:
    """The distinct values and how often each occurs.

    >>> unique_counts(asarray([2, 1, 2])).counts.tolist()
    [1, 2]
    """
    return UniqueCounts(*unique(x, return_counts=True, size=size, fill_value=fill_value))


def unique_inverse(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueInverse:
    """The distinct values and which one each element is."""
    return UniqueInverse(*unique(x, return_inverse=True, size=size, fill_value=fill_value))


def unique_values(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Any:
    """The distinct values, sorted."""
    return unique(x, size=size, fill_value=fill_value)


def _joined(a: ArrayLike, b: ArrayLike) -> list[Any]:
    return ops.promote_values(ravel(asarray(a)), ravel(asarray(b)))


def union1d(
    ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Any:
    """The sorted distinct elements of both arrays.

    >>> union1d(asarray([1, 2]), asarray([2, 3])).tolist()
    [1, 2, 3]
    """
    return unique(concatenate(_joined(ar1, ar2)), size=size, fill_value=fill_value)


def _known(values: Any, keep: Any, size: int | None, fill_value: Any) -> Any:
    """The sorted distinct kept values."""
    if size is None:
        return values[np.flatnonzero(static_index("a set operation", keep))]
    fill = 0 if fill_value is None else fill_value
    return compress(keep, values, size=size, fill_value=fill)


def setdiff1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """The sorted distinct elements of the first array that are not in the second."""
    one = ravel(asarray(ar1))
    if size is None:
        values = one if assume_unique else unique(one)
        return _known(values, logical_not(isin(values, asarray(ar2))), None, None)
    ordered = sort(one)
    fresh = concatenate([ops.full((1,), True, np.bool_), ordered[1:] != ordered[:-1]])
    if not aval_of(one).size:
        fresh = ops.full((0,), True, np.bool_)
    return _known(ordered, fresh & logical_not(isin(ordered, asarray(ar2))), size, fill_value)


def setxor1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """The sorted distinct elements of exactly one of the arrays."""
    del assume_unique
    one, two = _joined(ar1, ar2)
    both = sort(concatenate([one, two]))
    fresh = concatenate([ops.full((1,), True, np.bool_), both[1:] != both[:-1]])
    fresh = fresh if aval_of(both).size else ops.full((0,), True, np.bool_)
    keep = fresh & (isin(both, one) != isin(both, two))
    return _known(both, keep, size, fill_value)


def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """The sorted distinct elements of both arrays; with `return_indices` where each first is.

    >>> intersect1d(asarray([1, 2, 3]), asarray([2, 3, 4])).tolist()
    [2, 3]
    """
    del assume_unique
    one, two = _joined(ar1, ar2)
    ordered = sort(one)
    fresh = concatenate([ops.full((1,), True, np.bool_), ordered[1:] != ordered[:-1]])
    fresh = fresh if aval_of(one).size else ops.full((0,), True, np.bool_)
    found = _known(ordered, fresh & isin(ordered, two), size, fill_value)
    if not return_indices:
        return found
    return found, _first(found, one), _first(found, two)


def _first(values: Any, within: Any) -> Any:
    return ops.argmax(ops.cast(values[:, None] == within[None, :], np.int32), 1, np.int32)
