"""Polynomials as vectors of coefficients, the highest power first."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.numpy import decompositions
from lumjax.numpy.creation import asarray, eye, ones, zeros
from lumjax.numpy.editing import static_index
from lumjax.numpy.functional import convolve
from lumjax.numpy.grids import vander
from lumjax.numpy.manipulation import concatenate
from lumjax.numpy.reductions import sum as _sum
from lumjax.trace.core import aval_of

ArrayLike = Any


def _vector(operation: str, p: ArrayLike) -> Any:
    value = asarray(p)
    if aval_of(value).ndim > 1:
        raise ShapeError(
            operation=f"jnp.{operation}", required="a vector of coefficients",
            got=str(aval_of(value)), fix="pass one polynomial",
        )  # fmt: skip
    return value if aval_of(value).ndim else value[None]


def _size(x: Any) -> int:
    return int(aval_of(x).size)


def _padded(x: Any, size: int) -> Any:
    return concatenate([zeros(size - _size(x), aval_of(x).dtype), x])


def polyadd(a1: ArrayLike, a2: ArrayLike) -> Any:
    """The sum.

    >>> polyadd(asarray([1, 2]), asarray([1, 0, 0])).tolist()
    [1, 1, 2]
    """
    one, two = ops.promote_values(_vector("polyadd", a1), _vector("polyadd", a2))
    size = max(_size(one), _size(two))
    return _padded(one, size) + _padded(two, size)


def polysub(a1: ArrayLike, a2: ArrayLike) -> Any:
    """The difference."""
    one, two = ops.promote_values(_vector("polysub", a1), _vector("polysub", a2))
    size = max(_size(one), _size(two))
    return _padded(one, size) - _padded(two, size)


def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Any:
    """The product.

    >>> polymul(asarray([1.0, 1.0]), asarray([1.0, -1.0])).tolist()
    [1.0, 0.0, -1.0]
    """
    one, two = (_vector("polymul", a) for a in (a1, a2))
    if trim_leading_zeros and (_size(one) > 1 or _size(two) > 1):
        one, two = _trimmed(one), _trimmed(two)
    one, two = decompositions.inexact(one, two)
    return convolve(one if _size(one) else asarray([0.0]), two if _size(two) else asarray([0.0]))


def _trimmed(x: Any) -> Any:
    found = np.flatnonzero(static_index("jnp.poly", x))
    return x[int(found[0]) :] if found.size else x[:0]


def polyder(p: ArrayLike, m: int = 1) -> Any:
    """The m-th derivative.

    >>> polyder(asarray([1.0, 0.0, 5.0])).tolist()
    [2.0, 0.0]
    """
    if m < 0:
        raise _order("polyder", m)
    (value,) = decompositions.inexact(_vector("polyder", p))
    for _ in range(m):
        powers = np.arange(_size(value) - 1, 0, -1)
        value = value[:-1] * asarray(powers, aval_of(value).dtype)
    return value


def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Any:
    """The m-th antiderivative, with integration constants k, 0 by default.

    >>> polyint(asarray([2.0, 0.0])).tolist()
    [1.0, 0.0, 0.0]
    """
    if m < 0:
        raise _order("polyint", m)
    value, constants = decompositions.inexact(
        _vector("polyint", p), _vector("polyint", 0 if k is None else k)
    )
    if _size(constants) == 1:
        constants = concatenate([constants] * max(m, 1))
    if _size(constants) < m:
        raise ShapeError(
            operation="jnp.polyint", required=f"{m} integration constants",
            got=str(_size(constants)), fix="give one for each integration",
        )  # fmt: skip
    for step in range(m):
        powers = np.arange(_size(value), 0, -1)
        scaled = value / asarray(powers, aval_of(value).dtype)
        value = concatenate([scaled, constants[step : step + 1]])
    return value


def _order(name: str, m: int) -> ArgumentValueError:
    return ArgumentValueError(
        operation=f"jnp.{name}", required="an order m >= 0", got=str(m), fix="use its inverse"
    )


def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """Quotient and remainder.

    >>> [x.tolist() for x in polydiv(asarray([1.0, 0.0, -1.0]), asarray([1.0, 1.0]))]
    [[1.0, -1.0], [0.0, 0.0, 0.0]]
    """
    rest, divisor = decompositions.inexact(_vector("polydiv", u), _vector("polydiv", v))
    m, n = _size(rest) - 1, _size(divisor) - 1
    found: list[Any] = []
    for k in range(m - n + 1):
        factor = rest[k] / divisor[0]
        found.append(factor[None])
        rest = rest.at[k : k + n + 1].add(-factor * divisor)
    quotient = concatenate(found) if found else zeros(1, aval_of(rest).dtype)
    return quotient, _trimmed(rest) if trim_leading_zeros else rest


def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Any:
    """The least-squares polynomial of degree `deg` through points (x, y), weighted by `w`.

    `full` also returns residuals, rank, singular values and rcond; `cov` the covariance.

    >>> x, y = asarray([0.0, 1.0, 2.0]), asarray([1.0, 3.0, 5.0])
    >>> [round(c, 4) for c in polyfit(x, y, 1).tolist()]
    [2.0, 1.0]
    """
    points, values = decompositions.inexact(x, y)
    if aval_of(points).ndim != 1 or aval_of(values).ndim not in (1, 2) or deg < 0:
        raise ShapeError(
            operation="jnp.polyfit", required="x (n,), y (n,) or (n, k), deg >= 0",
            got=f"{aval_of(points)}, {aval_of(values)}, {deg}", fix="check the operands",
        )  # fmt: skip
    n = _size(points)
    limit = n * float(dt.finfo(aval_of(points).dtype).eps) if rcond is None else rcond
    left, right = vander(points, deg + 1), values
    if w is not None:
        weight = asarray(w, aval_of(points).dtype)
        left = left * weight[:, None]
        right = right * (weight[:, None] if aval_of(right).ndim == 2 else weight)
    scale = ops.sqrt(_sum(left * left, axis=0))
    c, residuals, rank, singular = decompositions.lstsq(left / scale, right, limit)
    c = (ops.transpose(ops.transpose(c, (1, 0)) / scale, (1, 0)) if aval_of(c).ndim == 2
         else c / scale)  # fmt: skip
    if full:
        return c, residuals, rank, singular, asarray(limit)
    if not cov:
        return c
    base = decompositions.inv(ops.dot(ops.transpose(left, (1, 0)), left))
    if cov != "unscaled":
        base = base * (residuals / (n - deg - 1))
    return c, base


def poly(seq_of_zeros: ArrayLike) -> Any:
    """The polynomial with the given roots, or the characteristic polynomial of a matrix.

    >>> poly(asarray([1.0, -1.0])).tolist()
    [1.0, 0.0, -1.0]
    """
    (zeros_of,) = decompositions.inexact(asarray(seq_of_zeros))
    if aval_of(zeros_of).ndim == 2:
        zeros_of = decompositions.eigvals(zeros_of)
    if aval_of(zeros_of).ndim == 0:
        zeros_of = zeros_of[None]
    if not _size(zeros_of):
        return ones((), aval_of(zeros_of).dtype)
    out = ones(1, aval_of(zeros_of).dtype)
    for k in range(_size(zeros_of)):
        one = ones(1, aval_of(out).dtype)
        out = convolve(out, concatenate([one, -zeros_of[k : k + 1]]))
    return out


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Any:
    """The complex roots: eigenvalues of the companion matrix.

    >>> sorted(round(r.real, 4) for r in roots(asarray([1.0, 0.0, -4.0])).tolist())
    [-2.0, 2.0]
    """
    (value,) = decompositions.inexact(_vector("roots", p))
    wide = dt.promote((aval_of(value).dtype, False), (dt.complex64, False))[0]
    trailing = 0
    if strip_zeros:
        found = np.flatnonzero(static_index("jnp.roots", value))
        if not found.size:
            return zeros(0, wide)
        trailing = _size(value) - 1 - int(found[-1])
        value = value[int(found[0]) : int(found[-1]) + 1]
    n = _size(value) - 1
    if n < 1:
        return zeros(trailing, wide)
    companion = eye(n, k=-1, dtype=aval_of(value).dtype).at[0, :].set(-value[1:] / value[0])
    return concatenate([decompositions.eigvals(companion), zeros(trailing, wide)])
