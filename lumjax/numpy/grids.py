"""Index grids and index arithmetic: mgrid, ix_, triangles' indices, unravel_index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.numpy.creation import arange, asarray, linspace, meshgrid, ones
from lumjax.numpy.elementwise import clip
from lumjax.numpy.indexing import flatnonzero, nonzero, where
from lumjax.numpy.manipulation import concatenate, ravel
from lumjax.trace.core import aval_of

ArrayLike = Any


def _steps(key: slice) -> Any:
    """The values that a slice stands for; an imaginary step counts points, both ends included."""
    start, stop, step = key.start or 0, key.stop, 1 if key.step is None else key.step
    if isinstance(step, complex):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, step)


class Grid:
    """Coordinates of a grid by slicing: `mgrid[0:3, 0:2]`; `ogrid` leaves axes of size 1."""

    def __init__(self, name: str, sparse: bool) -> None:
        self.name = name
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _steps(key)
        axes = ops.promote_values(*[_steps(k) for k in key])
        grid = meshgrid(*axes, indexing="ij", sparse=self.sparse)
        if self.sparse:
            return grid
        if not grid:
            return asarray(np.zeros((0,), np.int32))
        return concatenate([g[None] for g in grid], axis=0)

    def __repr__(self) -> str:
        return self.name


mgrid = Grid("mgrid", False)
ogrid = Grid("ogrid", True)


class Joiner:
    """Arrays and slices joined along an axis: `r_[1:4, 0, 5]` (rows), `c_[x, y]` (columns)."""

    def __init__(self, name: str, axis: int, ndmin: int, trans1d: int) -> None:
        self.name = name
        self.axis, self.ndmin, self.trans1d = axis, ndmin, trans1d

    def __getitem__(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        axis, ndmin, trans1d = self.axis, self.ndmin, self.trans1d
        if items and isinstance(items[0], str):
            numbers = [int(v) for v in items[0].split(",")]
            axis, ndmin, trans1d = (*numbers, *(axis, ndmin, trans1d)[len(numbers) :])
            items = items[1:]
        parts = [_steps(k) if isinstance(k, slice) else asarray(k) for k in items]
        return concatenate([_raised(p, ndmin, trans1d) for p in parts], axis=axis)

    def __repr__(self) -> str:
        return self.name


def _raised(x: Any, ndmin: int, trans1d: int) -> Any:
    """`x` with at least ndmin axes, its own beginning at `trans1d` (from the end if negative)."""
    rank = aval_of(x).ndim
    if rank == 0:
        x, rank = x[None], 1
    extra = ndmin - rank
    if extra <= 0:
        return x
    begin = extra if trans1d == -1 else trans1d % (extra + 1)
    shape: Any = aval_of(x).shape
    return ops.reshape(x, (*[1] * begin, *shape, *[1] * (extra - begin)))


r_ = Joiner("r_", 0, 1, -1)
c_ = Joiner("c_", -1, 2, 0)
s_ = np.s_
index_exp = np.index_exp


def ix_(*args: ArrayLike) -> tuple[Any, ...]:
    """Vectors as an open grid of indices.

    >>> [g.shape for g in ix_([0, 1], [2, 3, 4])]
    [(2, 1), (1, 3)]
    """
    out: list[Any] = []
    for k, a in enumerate(args):
        x = asarray(a)
        if aval_of(x).ndim != 1:
            raise ShapeError(
                operation="jnp.ix_", required="vectors", got=str(aval_of(x)), fix="flatten them"
            )
        if dt.is_bool(aval_of(x).dtype):
            x = flatnonzero(x)
        elif not aval_of(x).size:
            x = ops.cast(x, np.int64)
        out.append(x.reshape([-1 if j == k else 1 for j in range(len(args))]))
    return tuple(out)


# ---- triangles and diagonals


def _triangle(mask: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    rows, columns = np.nonzero(mask)
    kind = dt.canonicalize(np.int64)
    return asarray(rows.astype(kind)), asarray(columns.astype(kind))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Rows and columns of the lower triangle of an (n, m) matrix.

    >>> [i.tolist() for i in tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle(np.tri(n, n if m is None else m, k, bool))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Rows and columns of the upper triangle of an (n, m) matrix."""
    return _triangle(~np.tri(n, n if m is None else m, k - 1, bool))


def _matrix_shape(operation: str, arr: ArrayLike) -> tuple[int, int]:
    shape: Any = aval_of(asarray(arr)).shape
    if len(shape) != 2:
        raise ShapeError(
            operation=f"jnp.{operation}", required="a matrix", got=str(shape), fix="pass a matrix"
        )
    return shape


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Any, Any]:
    """Rows and columns of the lower triangle of a matrix like `arr`."""
    n, m = _matrix_shape("tril_indices_from", arr)
    return tril_indices(n, k, m)


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Any, Any]:
    """Rows and columns of the upper triangle of a matrix like `arr`."""
    n, m = _matrix_shape("triu_indices_from", arr)
    return triu_indices(n, k, m)


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """The indices of the diagonal of an array with `ndim` axes of size n."""
    return (arange(n),) * ndim


def diag_indices_from(arr: ArrayLike) -> tuple[Any, ...]:
    """The indices of the diagonal of an array like `arr`, whose sizes are equal."""
    shape: Any = aval_of(asarray(arr)).shape
    if len(shape) < 2 or len(set(shape)) != 1:
        raise ShapeError(
            operation="jnp.diag_indices_from", required="at least two axes of equal size",
            got=str(shape), fix="pass a square matrix",
        )  # fmt: skip
    return diag_indices(shape[0], len(shape))


def mask_indices(
    n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None
) -> tuple[Any, ...]:
    """Where mask_func(ones((n, n)), k) is not 0.

    >>> from lumjax.numpy import triu
    >>> [i.tolist() for i in mask_indices(2, triu)]
    [[0, 0, 1], [0, 1, 1]]
    """
    return nonzero(mask_func(ones((n, n)), k), size=size)


def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = True) -> Any:
    """`a` with its diagonal replaced by `val`; `inplace` must be False, arrays do not change.

    >>> fill_diagonal(asarray([[1, 2], [3, 4]]), 0, inplace=False).tolist()
    [[0, 2], [3, 0]]
    """
    if inplace or wrap:
        raise ArgumentValueError(
            operation="jnp.fill_diagonal", required="inplace=False and wrap=False",
            got=f"inplace={inplace}, wrap={wrap}", fix="use the returned array",
        )  # fmt: skip
    x, y = asarray(a), asarray(val)
    shape: Any = aval_of(x).shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) != 1):
        raise ShapeError(
            operation="jnp.fill_diagonal", required="a matrix, or axes of equal size",
            got=str(shape), fix="pass a square array",
        )  # fmt: skip
    n = min(shape)
    if aval_of(y).ndim:
        flat = ravel(y)
        count = int(aval_of(flat).size)
        y = concatenate([flat] * -(-n // count))[:n]
    return x.at[(arange(n),) * len(shape)].set(y)


# ---- flat positions


def unravel_index(indices: ArrayLike, shape: int | Sequence[int]) -> tuple[Any, ...]:
    """Positions in a flattened array as one index array per axis, clipped into range.

    >>> [int(i) for i in unravel_index(5, (2, 3))]
    [1, 2]
    """
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    x = asarray(indices)
    total = int(np.prod(sizes, dtype=np.int64))
    x = clip(x, -total, total - 1)
    x = where(x < 0, x + total, x)
    out: list[Any] = []
    for size in reversed(sizes):
        out.insert(0, x % max(size, 1))
        x = x // max(size, 1)
    return tuple(out)


def ravel_multi_index(
    multi_index: Sequence[ArrayLike],
    dims: Sequence[int],
    mode: str | Sequence[str] = "raise",
    order: str = "C",
) -> Any:
    """One index array per axis as positions in the flattened array.

    `mode` "clip" or "wrap" says what an index out of range does; "raise" needs concrete indices.

    >>> int(ravel_multi_index((1, 2), (2, 3)))
    5
    """
    modes = [mode] * len(dims) if isinstance(mode, str) else list(mode)
    if order not in ("C", "F") or not {"raise", "clip", "wrap"} >= set(modes):
        raise ArgumentValueError(
            operation="jnp.ravel_multi_index",
            required="mode 'raise', 'clip' or 'wrap', order 'C' or 'F'",
            got=f"mode={mode!r}, order={order!r}",
            fix="choose one of these",
        )
    parts = [asarray(i) for i in multi_index]
    out: Any = 0
    pairs = list(zip(parts, dims, modes, strict=True))
    for index, size, how in pairs if order == "C" else reversed(pairs):
        if how == "raise":
            if bool(((index < 0) | (index >= size)).any()):
                raise ArgumentValueError(
                    operation="jnp.ravel_multi_index", required=f"indices in [0, {size})",
                    got=str(index), fix="use mode='clip' or 'wrap'",
                )  # fmt: skip
        elif how == "clip":
            index = clip(index, 0, size - 1)
        else:
            index = index % size
        out = out * size + index
    return asarray(out)


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Any:
    """The Vandermonde matrix: powers of a vector as columns.

    >>> vander(asarray([1, 2, 3]), 3).tolist()
    [[1, 1, 1], [4, 2, 1], [9, 3, 1]]
    """
    value = asarray(x)
    if aval_of(value).ndim != 1:
        raise ShapeError(
            operation="jnp.vander", required="a vector", got=str(aval_of(value)), fix="flatten it"
        )
    count = int(aval_of(value).size) if N is None else N
    powers = np.arange(count)
    if not increasing:
        powers = powers[::-1]
    columns = [
        (value ** int(p) if p else ops.full(aval_of(value).shape, 1, aval_of(value).dtype))[:, None]
        for p in powers
    ]
    if not columns:
        return ops.full((int(aval_of(value).size), 0), 0, aval_of(value).dtype)
    return concatenate(columns, axis=1)


def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Numbers with a constant ratio between `start` and `stop`.

    >>> [round(v) for v in geomspace(1.0, 8.0, 4).tolist()]
    [1, 2, 4, 8]
    """
    first, last = (
        v if dt.is_inexact(aval_of(v).dtype) else ops.cast(v, np.float64)
        for v in ops.promote_values(asarray(start), asarray(stop))
    )
    kind = aval_of(first).dtype if dtype is None else dt.canonicalize(dtype)
    sign = ops.sign(first)
    logs = linspace(ops.log(first / sign), ops.log(last / sign), num, endpoint, axis=axis)
    out = ops.exp(logs) * (sign if not aval_of(sign).ndim else ops.expand_dims(sign, (axis,)))
    if num > 0:
        at: list[Any] = [slice(None)] * aval_of(out).ndim
        at[axis] = 0
        out = out.at[tuple(at)].set(first)
        if endpoint and num > 1:
            at[axis] = -1
            out = out.at[tuple(at)].set(last)
    return ops.cast(out, kind)
