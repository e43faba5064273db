"""jax.ops: sums and extrema of segments, by scattering."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ArgumentValueError, ConcretizationError
from lumjax.ops.checks import static_int
from lumjax.ops.elementwise import asvalue
from lumjax.ops.index import scatter_add
from lumjax.ops.layout import expand_dims, full, reduce_sum, shape_of
from lumjax.ops.reduce import highest, lowest, reduce_max, reduce_min, reduce_prod
from lumjax.ops.scatter_monoid import scatter_max, scatter_min, scatter_mul
from lumjax.ops.view import concatenate
from lumjax.ops.windows import ScatterDimensionNumbers
from lumjax.trace.array import Array
from lumjax.trace.core import Value, aval_of


def segment_sum(
    data: Value,
    segment_ids: Value,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    out_sharding: Any = None,
) -> Value:
    """Sums of the rows of `data` with equal segment ids.

    Shapes: data (n, ...), integer segment_ids (n,) -> (num_segments, ...). An id outside
    [0, num_segments) is dropped. num_segments is needed under jit; by default it is the greatest id
    plus one. `bucket_size` sums in two steps, which is more accurate for long segments.

    >>> segment_sum(np.array([1.0, 2.0, 4.0], np.float32), np.array([0, 1, 0])).tolist()
    [5.0, 2.0]
    """
    del out_sharding
    flags = indices_are_sorted, unique_indices, bucket_size, mode
    return _reduced(
        "segment_sum", data, segment_ids, num_segments, flags, scatter_add, reduce_sum,
        lambda dtype: np.zeros((), dtype),
    )  # fmt: skip


def segment_prod(
    data: Value,
    segment_ids: Value,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    out_sharding: Any = None,
) -> Value:
    """Products of the rows of `data` with equal segment ids; 1 for a segment without rows.

    >>> segment_prod(np.array([1.0, 2.0, 4.0], np.float32), np.array([0, 1, 1])).tolist()
    [1.0, 8.0]
    """
    del out_sharding
    flags = indices_are_sorted, unique_indices, bucket_size, mode
    return _reduced(
        "segment_prod", data, segment_ids, num_segments, flags, scatter_mul, reduce_prod,
        lambda dtype: np.ones((), dtype),
    )  # fmt: skip


def segment_max(
    data: Value,
    segment_ids: Value,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    out_sharding: Any = None,
) -> Value:
    """Maxima of the rows of `data` with equal segment ids; the least value for an empty segment.

    >>> segment_max(np.array([1, 5, 3]), np.array([0, 0, 1])).tolist()
    [5, 3]
    """
    del out_sharding
    flags = indices_are_sorted, unique_indices, bucket_size, mode
    return _reduced(
        "segment_max", data, segment_ids, num_segments, flags, scatter_max, reduce_max, lowest
    )


def segment_min(
    data: Value,
    segment_ids: Value,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    *,
    out_sharding: Any = None,
) -> Value:
    """Minima of the rows of `data` with equal segment ids; the greatest value for an empty segment.

    >>> segment_min(np.array([1, 5, 3]), np.array([0, 0, 1])).tolist()
    [1, 3]
    """
    del out_sharding
    flags = indices_are_sorted, unique_indices, bucket_size, mode
    return _reduced(
        "segment_min", data, segment_ids, num_segments, flags, scatter_min, reduce_min, highest
    )


def _reduced(
    name: str,
    data: Value,
    ids: Value,
    count: int | None,
    flags: tuple[bool, bool, int | None, Any],
    scatter: Callable[..., Value],
    reduce: Callable[..., Value],
    identity: Callable[[dt.DType], Any],
) -> Value:
    x, rows = asvalue(data), asvalue(ids)
    is_sorted, unique, bucket, mode = flags
    if count is None:
        count = _count(name, rows)
    size = static_int(f"ops.{name}", "num_segments", count)
    if size < 0:
        raise ArgumentValueError(
            operation=f"ops.{name}", required="num_segments >= 0", got=str(size),
            fix="pass the number of segments",
        )  # fmt: skip
    start = identity(aval_of(x).dtype)
    depth = len(shape_of(rows))
    rest = shape_of(x)[depth:]
    places = expand_dims(rows, (depth,))
    shape: tuple[Any, ...] = (size, *rest)
    lead = 1
    if not size:
        return full(shape, start, aval_of(x).dtype)
    if bucket is not None:
        total: Any = math.prod(shape_of(rows))
        groups = -(-total // bucket)
        shape, lead = (groups, *shape), 2
        number = np.asarray(np.arange(total) // bucket, aval_of(rows).dtype)
        places = concatenate([expand_dims(asvalue(number), (1,)), places], 1)
    numbers = ScatterDimensionNumbers(
        tuple(range(depth, depth + len(rest))), tuple(range(lead)), tuple(range(lead))
    )
    out = scatter(
        full(shape, start, aval_of(x).dtype), places, x, numbers,
        indices_are_sorted=is_sorted, unique_indices=unique, mode="fill" if mode is None else mode,
    )  # fmt: skip
    return out if bucket is None else reduce(out, (0,))


def _count(name: str, rows: Value) -> int:
    if not isinstance(rows, Array):
        raise ConcretizationError(
            operation=f"ops.{name}",
            required="num_segments when the segment ids are traced",
            got=str(aval_of(rows)),
            fix="pass num_segments=, a Python integer",
        )
    return int(np.max(rows.data, initial=-1)) + 1
