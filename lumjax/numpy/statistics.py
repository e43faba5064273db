"""Covariances, histograms, and the windows of signal processing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.numpy.complexes import real
from lumjax.numpy.creation import arange, asarray, linspace, ones
from lumjax.numpy.elementwise import clip, cos, sqrt
from lumjax.numpy.indexing import where
from lumjax.numpy.linear import diag, dot
from lumjax.numpy.logic import isnan
from lumjax.numpy.manipulation import concatenate, ravel
from lumjax.numpy.reductions import average, diff
from lumjax.numpy.reductions import max as _max
from lumjax.numpy.reductions import min as _min
from lumjax.numpy.reductions import sum as _sum
from lumjax.numpy.sorting import searchsorted
from lumjax.trace.core import aval_of

ArrayLike = Any


def _inexact(x: Any) -> Any:
    return x if dt.is_inexact(aval_of(x).dtype) else ops.cast(x, np.float64)


def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    *,
    dtype: Any = None,
) -> Any:
    """The covariance matrix of the rows of `m` (columns, unless `rowvar`), and of `y`'s.

    Divides by n - 1, by n with `bias`, by n - ddof; fweights repeat observations, aweights weigh
    them.

    >>> cov(asarray([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    values = [_inexact(asarray(v)) for v in ((m,) if y is None else (m, y))]
    if any(aval_of(v).ndim > 2 for v in values):
        raise ShapeError(
            operation="jnp.cov", required="arrays with at most two axes",
            got=", ".join(str(aval_of(v)) for v in values), fix="use vmap for several matrices",
        )  # fmt: skip
    rows = [_rows(v, rowvar) for v in ops.promote_values(*values)]
    x = rows[0] if len(rows) == 1 else concatenate(rows, axis=0)
    if dtype is not None:
        x = ops.cast(x, dtype)
    shape, kind = aval_of(x).shape, aval_of(x).dtype
    if shape[0] == 0:
        return ops.full((0, 0), 0, kind)
    less = (0 if bias else 1) if ddof is None else ddof
    weights: Any = None
    if fweights is not None:
        weights = ops.cast(asarray(fweights), kind)
    if aweights is not None:
        extra = ops.cast(asarray(aweights), kind)
        weights = extra if weights is None else weights * extra
    centre, total = average(x, axis=1, weights=weights, returned=True)
    total = total[0]
    if weights is None:
        factor: Any = total - less
    elif less == 0:
        factor = total
    elif aweights is None:
        factor = total - less
    else:
        factor = total - less * _sum(weights * ops.cast(asarray(aweights), kind)) / total
    off = x - centre[:, None]
    weighed = off if weights is None else off * weights
    other = ops.conj(weighed) if dt.is_complex(kind) else weighed
    return _matrix_or_scalar(dot(off, ops.transpose(other, (1, 0))) / factor)


def _matrix_or_scalar(x: Any) -> Any:
    return x[0, 0] if aval_of(x).shape == (1, 1) else x


def _rows(v: Any, rowvar: bool) -> Any:
    if aval_of(v).ndim < 2:
        return ops.reshape(v, (1, aval_of(v).size))
    if not rowvar and aval_of(v).shape[0] != 1:
        return ops.transpose(v, (1, 0))
    return v


def corrcoef(
    x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, *, dtype: Any = None
) -> Any:
    """The correlation matrix of the rows of `x`, and of `y`'s, within [-1, 1].

    >>> corrcoef(asarray([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    matrix = cov(x, y, rowvar, dtype=dtype)
    if not aval_of(matrix).ndim:
        return matrix / matrix
    deviation = sqrt(real(diag(matrix)))
    ratio = matrix / deviation[:, None] / deviation[None, :]
    return ratio if dt.is_complex(aval_of(ratio).dtype) else clip(ratio, -1.0, 1.0)


# ---- histograms


def histogram_bin_edges(
    a: ArrayLike, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None
) -> Any:
    """The edges of `bins` equal bins over the data's range, or over `range`; or `bins` itself.

    >>> histogram_bin_edges(asarray([0.0, 1.0]), 2).tolist()
    [0.0, 0.5, 1.0]
    """
    del weights
    if isinstance(bins, str):
        raise ArgumentValueError(
            operation="jnp.histogram", required="a number of bins, or their edges",
            got=repr(bins), fix="the rules that look at the data are not offered, as in JAX",
        )  # fmt: skip
    value = ravel(asarray(a))
    kind = dt.promote((aval_of(value).dtype, False), (dt.float32, False))[0]
    if np.ndim(bins) == 1 or aval_of(asarray(bins)).ndim == 1:
        return asarray(bins)
    count = int(bins)
    if range is None:
        if not aval_of(value).size:
            low, high = asarray(0.0, kind), asarray(1.0, kind)
        else:
            low, high = (ops.cast(f(value), kind) for f in (_min, _max))
    else:
        low, high = (ops.cast(asarray(v), kind) for v in range)
    flat = low == high
    low, high = where(flat, low - 0.5, low), where(flat, high + 0.5, high)
    return linspace(low, high, count + 1, dtype=kind)


def histogram(
    a: ArrayLike,
    bins: Any = 10,
    range: Any = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Any, Any]:
    """How many elements fall into each bin, as floats, and the bins' edges.

    `weights` counts elements several times; `density` scales to an integral of 1.

    >>> histogram(asarray([0.0, 1.0, 1.0]), 2)[0].tolist()
    [1.0, 2.0]
    """
    value = ravel(asarray(a))
    edges = histogram_bin_edges(value, bins, range, weights)
    kind = dt.promote((aval_of(value).dtype, False), (dt.float32, False))[0]
    if weights is None:
        counted = ones(aval_of(value).shape, kind)
    else:
        counted = ravel(asarray(weights))
    place = _bins(ops.cast(value, kind), edges)
    count = int(aval_of(edges).size) - 1
    total = ops.segment_sum(counted, place, count)
    if density:
        width = ops.cast(diff(edges), aval_of(total).dtype)
        total = total / width / _sum(total)
    return total, edges


def _bins(value: Any, edges: Any) -> Any:
    """The bin of each element, -1 outside; the last bin includes its right edge."""
    last = edges[-1]
    place = searchsorted(edges, value, side="right") - 1
    place = where(value == last, int(aval_of(edges).size) - 2, place)
    return where((value > last) | isnan(value), -1, place)


def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: Any = 10,
    range: Any = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Any, Any, Any]:
    """A histogram of pairs: counts (bins of x, bins of y), and the edges of both."""
    sample = ops.transpose(ops.concatenate([ravel(asarray(v))[None] for v in (x, y)], 0), (1, 0))
    if not isinstance(bins, (int, np.integer)) and len(bins) not in (1, 2):
        bins = [asarray(bins)] * 2
    counts, (first, second) = histogramdd(sample, bins, range, weights, density)
    return counts, first, second


def histogramdd(
    sample: ArrayLike,
    bins: Any = 10,
    range: Any = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Any, list[Any]]:
    """A histogram of points (n, d): counts over d axes, and the edges along each."""
    points = asarray(sample)
    if isinstance(sample, (tuple, list)):
        points = ops.transpose(points, (1, 0))
    n, dims = (int(k) for k in aval_of(points).shape)
    each: Sequence[Any] = [bins] * dims if isinstance(bins, (int, np.integer)) else bins
    ranges: Sequence[Any] = [None] * dims if range is None else range
    edges = [
        histogram_bin_edges(points[:, k], b, r)
        for k, (b, r) in enumerate(zip(each, ranges, strict=True))
    ]
    sizes = [int(aval_of(e).size) - 1 for e in edges]
    place: Any = ops.full((n,), 0, np.int32)
    for k, (edge, size) in enumerate(zip(edges, sizes, strict=True)):
        own = _bins(points[:, k], edge)
        bad = (own < 0) | (place < 0)
        place = where(bad, -1, place * size + own)
    kind = dt.promote((aval_of(points).dtype, False), (dt.float32, False))[0]
    counted = ones((n,), kind) if weights is None else asarray(weights)
    total = ops.reshape(ops.segment_sum(counted, place, int(np.prod(sizes))), sizes)
    if weights is None and not density:
        total = ops.cast(total, np.int64)
    if density:
        total = total / _sum(total)
        for k, edge in enumerate(edges):
            total = total / diff(edge).reshape([-1 if j == k else 1 for j, _ in enumerate(sizes)])
    return total, edges


# ---- windows


def _places(M: int) -> Any:
    return arange(M, dtype=dt.canonicalize(np.float64))


def hanning(M: int) -> Any:
    """The Hann window with M points.

    >>> hanning(3).tolist()
    [0.0, 1.0, 0.0]
    """
    if M <= 1:
        return ones(M)
    return 0.5 * (1 - cos(2 * np.pi * _places(M) / (M - 1)))


def hamming(M: int) -> Any:
    """The Hamming window with M points."""
    if M <= 1:
        return ones(M)
    return 0.54 - 0.46 * cos(2 * np.pi * _places(M) / (M - 1))


def blackman(M: int) -> Any:
    """The Blackman window with M points."""
    if M <= 1:
        return ones(M)
    n = _places(M)
    return 0.42 - 0.5 * cos(2 * np.pi * n / (M - 1)) + 0.08 * cos(4 * np.pi * n / (M - 1))


def bartlett(M: int) -> Any:
    """The triangular window with M points, 0 at both ends."""
    if M <= 1:
        return ones(M)
    return 1 - ops.abs(2 * _places(M) + 1 - M) / (M - 1)


def kaiser(M: int, beta: ArrayLike) -> Any:
    """The Kaiser window with M points."""
    if M <= 1:
        return ones(M)
    half = 0.5 * (M - 1)
    ratio = (_places(M) - half) / half
    return i0(beta * sqrt(1 - ratio * ratio)) / i0(beta)


def i0(x: ArrayLike) -> Any:
    """The modified Bessel function of order 0."""
    value = _inexact(asarray(x))
    return ops.exp(ops.abs(value)) * ops.bessel_i0e(value)
