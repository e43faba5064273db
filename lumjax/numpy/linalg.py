"""jnp.linalg: norms and products; `decompositions` has the rest."""

from __future__ import annotations

# ruff: noqa: F401, I001
# pyright: reportUnusedImport=false
# fmt: off
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.numpy import linear
from lumjax.numpy.creation import asarray
from lumjax.numpy.decompositions import inexact as inexact
from lumjax.numpy.decompositions import (
    cholesky, det, eig, eigh, EighResult, EigResult, eigvals, eigvalsh, inv, lstsq, matrix_rank,
    pinv, qr, QRResult, slogdet, SlogdetResult, solve, svd, SVDResult, svdvals, tensorinv,
    tensorsolve,
)
from lumjax.numpy.logic import isnan
from lumjax.numpy.manipulation import matrix_transpose as matrix_transpose
from lumjax.numpy.reductions import max as _max
from lumjax.numpy.reductions import min as _min
from lumjax.numpy.reductions import sum as _sum
from lumjax.numpy.safe import safe_sqrt
from lumjax.trace.core import aval_of
# fmt: on

ArrayLike = Any

matmul, outer, cross = linear.matmul, linear.outer, linear.cross
tensordot, vecdot = linear.tensordot, linear.vecdot


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Any:
    """The diagonals of matrices: (..., m, n) -> (..., k)."""
    return linear.diagonal(x, offset, -2, -1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The traces of matrices: (..., m, n) -> (...)."""
    return linear.trace(x, offset, -2, -1, dtype)


def norm(x: ArrayLike, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """A vector or matrix norm; the Euclidean one by default. Its gradient at 0 is 0.

    >>> norm(asarray([3.0, 4.0]))
    Array(5., dtype=float32)
    """
    value = asarray(x)
    if not dt.is_inexact(aval_of(value).dtype):
        value = ops.cast(value, np.float64)
    rank = aval_of(value).ndim
    if axis is None:
        if ord is None:
            return _euclidean(value, tuple(range(rank)), keepdims)
        axes = tuple(range(rank))
    else:
        axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
        axes = ops.canonical_axes("jnp.linalg.norm", axes, rank)
    match len(axes):
        case 1:
            return _vector(value, 2 if ord is None else ord, axes, keepdims)
        case 2:
            return _matrix(value, "fro" if ord is None else ord, axes, keepdims)
        case _:
            raise ShapeError(
                operation="jnp.linalg.norm",
                required="one axis (a vector norm) or two (a matrix norm)",
                got=f"axes {axes}",
                fix="name the axis",
            )


def _euclidean(x: Any, axes: Any, keepdims: bool) -> Any:
    if dt.is_complex(aval_of(x).dtype):
        squares = ops.real(ops.mul(x, ops.conj(x)))
    else:
        squares = ops.mul(x, x)
    return safe_sqrt(_sum(squares, axes, keepdims=keepdims))


def _vector(x: Any, ord: Any, axes: Any, keepdims: bool) -> Any:
    size = ops.abs(x)
    if ord == np.inf:
        return _max(size, axes, keepdims=keepdims)
    if ord == -np.inf:
        return _min(size, axes, keepdims=keepdims)
    if ord == 0:
        return _sum(ops.cast(ops.ne(x, 0), aval_of(size).dtype), axes, keepdims=keepdims)
    if ord == 1:
        return _sum(size, axes, keepdims=keepdims)
    if ord == 2:
        return _euclidean(x, axes, keepdims)
    if isinstance(ord, str):
        raise _unknown(ord)
    return ops.pow(_sum(ops.pow(size, float(ord)), axes, keepdims=keepdims), 1.0 / float(ord))


def _matrix(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if ord == "fro":
        return _euclidean(x, axes, keepdims)
    if ord in (2, -2, "nuc"):
        rank = aval_of(x).ndim
        rest = [k for k in range(rank) if k not in axes]
        values = svdvals(ops.transpose(x, (*rest, *axes)))
        pick = {2: _max, -2: _min, "nuc": _sum}[ord]
        out = pick(values, -1)
        return ops.expand_dims(out, sorted(axes)) if keepdims else out
    sums = {1: (0, _max), -1: (0, _min), np.inf: (1, _max), -np.inf: (1, _min)}
    if ord not in sums:
        raise _unknown(ord)
    over, pick = sums[ord]
    inner = _sum(ops.abs(x), axes[over], keepdims=True)
    out = pick(inner, axes[1 - over], keepdims=True)
    return out if keepdims else ops.squeeze(out, axes)


def _unknown(ord: Any) -> ArgumentValueError:
    return ArgumentValueError(
        operation="jnp.linalg.norm",
        required="ord None, inf, -inf, a number (vectors), 'fro', 'nuc', 1, -1, 2, -2 (matrices)",
        got=repr(ord),
        fix="choose one of these",
    )


def vector_norm(x: ArrayLike, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The vector norm over an axis, or over all elements."""
    value = asarray(x)
    if axis is None:
        flat = ops.reshape(value, (aval_of(value).size,))
        out = norm(flat, ord, 0)
        return ops.reshape(out, (1,) * aval_of(value).ndim) if keepdims else out
    if isinstance(axis, (int, np.integer)):
        return norm(value, ord, axis, keepdims)
    axes = ops.canonical_axes("jnp.linalg.vector_norm", axis, aval_of(value).ndim)
    return _vector(value, ord, axes, keepdims)


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The matrix norm over the last two axes."""
    return norm(x, ord, (-2, -1), keepdims)


def multi_dot(arrays: Any, *, precision: Any = None) -> Any:
    """The product of several matrices (the first and the last may be vectors), in a good order.

    >>> multi_dot([asarray([1.0, 2.0]), asarray([[1.0, 0.0], [0.0, 3.0]]), asarray([1.0, 1.0])])
    Array(7., dtype=float32)
    """
    values = [asarray(a) for a in arrays]
    ranks = [aval_of(v).ndim for v in values]
    inner = ranks[1:-1]
    if len(values) < 2 or any(r != 2 for r in inner) or not {ranks[0], ranks[-1]} <= {1, 2}:
        raise ShapeError(
            operation="jnp.linalg.multi_dot",
            required="at least two matrices; the first and the last may be vectors",
            got=", ".join(str(aval_of(v)) for v in values),
            fix="check the operands",
        )
    names: list[list[int]] = [[k, k + 1] for k in range(len(values))]
    names[0] = names[0][2 - ranks[0] :]
    names[-1] = names[-1][: ranks[-1]]
    output = [*([0] if ranks[0] == 2 else []), *([len(values)] if ranks[-1] == 2 else [])]
    pairs = [p for v, n in zip(values, names, strict=True) for p in (v, n)]
    return linear.einsum(*pairs, output, precision=precision)


def matrix_power(a: ArrayLike, n: int) -> Any:
    """A square matrix multiplied by itself n times; by its inverse for negative n.

    >>> matrix_power(asarray([[1, 1], [0, 1]]), 3).tolist()
    [[1, 3], [0, 1]]
    """
    value = asarray(a)
    shape = aval_of(value).shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            operation="jnp.linalg.matrix_power",
            required="square matrices, (..., n, n)",
            got=str(aval_of(value)),
            fix="check the operand",
        )
    if n < 0:
        return matrix_power(inv(value), -n)
    rows, columns = (ops.broadcasted_iota(np.int32, shape[-2:], k) for k in (0, 1))
    out = ops.cast(ops.eq(rows, columns), aval_of(value).dtype)
    out = ops.broadcast_in_dim(out, shape, (len(shape) - 2, len(shape) - 1))
    while n:
        if n & 1:
            out = linear.matmul(out, value)
        value, n = linear.matmul(value, value), n >> 1
    return out


def cond(x: ArrayLike, p: Any = None) -> Any:
    """The condition number: norm(x, p) * norm(inv(x), p); for p None or 2 of singular values.

    Shapes: (..., m, n) -> (...); square matrices for other p.

    >>> float(cond(asarray([[1.0, 0.0], [0.0, 4.0]])))
    4.0
    """
    value = asarray(x)
    if aval_of(value).ndim < 2:
        raise ShapeError(
            operation="jnp.linalg.cond",
            required="matrices, (..., m, n)",
            got=str(aval_of(value)),
            fix="check the operand",
        )
    if p in (None, 2, -2):
        s = svdvals(value)
        first, last = s[..., 0], s[..., -1]
        return last / first if p == -2 else first / last
    ratio = norm(value, p, (-2, -1)) * norm(inv(value), p, (-2, -1))
    undefined = _max(isnan(value), (-2, -1))
    return ops.select(ops.and_(isnan(ratio), ops.not_(undefined)), ops.full(
        aval_of(ratio).shape, np.inf, aval_of(ratio).dtype), ratio)  # fmt: skip
