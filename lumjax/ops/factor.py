"""lu and qr, by LAPACK."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import UnsupportedError
from lumjax.ops.checks import Jvp, NDArray, Shape, apply
from lumjax.ops.elementwise import add, cast, select, sub
from lumjax.ops.layout import broadcast_in_dim, shape_of, zeros
from lumjax.ops.matrix import (
    Outputs,
    adjoint,
    diagonal_mask,
    each,
    factorisation,
    lapack,
    matmul,
    tril,
    triu,
)
from lumjax.ops.parts import real
from lumjax.ops.sorting import take_along_axis
from lumjax.ops.triangular import triangular_solve
from lumjax.ops.view import concatenate, pad, slice
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Sample, Value, aval_of

# ---- lu


def lu(x: Value) -> tuple[Value, Value, Value]:
    """The factors of x[permutation] = L U in one matrix, the pivots, and the permutation.

    Shapes: (..., m, n) -> (..., m, n), int32 (..., min(m, n)), int32 (..., m). L has a unit
    diagonal, which is not stored.

    >>> import numpy as np
    >>> lu(np.array([[1.0, 2.0], [4.0, 4.0]], np.float32))[2]
    Array([1, 0], dtype=int32)
    """
    packed, pivots, permutation = apply(lu_p, x)
    return packed, pivots, permutation


def _lu_outputs(m: Any, n: Any, dtype: dt.DType) -> Outputs:
    return [((m, n), dtype), ((min(m, n),), dt.int32), ((m,), dt.int32)]


def _lu_eval(x: NDArray) -> list[NDArray]:
    if not x.size:
        m = x.shape[-2]
        order = np.broadcast_to(np.arange(m, dtype=np.int32), x.shape[:-1])
        return [x, np.zeros((*x.shape[:-2], min(x.shape[-2:])), np.int32), order]
    (factor,) = lapack().get_lapack_funcs(("getrf",), (x,))
    found = [(out, pivots) for out, pivots, _ in each(factor, x)]
    orders = [_permutation(pivots, x.shape[-2]) for _, pivots in found]
    return [np.stack([o for o, _ in found]), np.stack([p for _, p in found]), np.stack(orders)]


def _permutation(pivots: NDArray, size: int) -> NDArray:
    order = np.arange(size, dtype=np.int32)
    for k, p in enumerate(pivots):
        order[k], order[p] = order[p], order[k]
    return order


def _lu_jvp(x: Value, t: Value) -> Jvp:
    """L' = L tril(M, -1), U' = triu(M) U with M = L^-1 P x' U^-1, L and U made square."""
    packed, pivots, order = lu_p.bind(x)
    shape: Any = shape_of(x)
    *lead, m, n = shape
    small: Any = min(m, n)
    dtype = aval_of(x).dtype
    left = tril(_columns(packed, 0, small), -1)
    left = _padded(left, 0, m - small)
    left = add(left, _identity((*lead, m, m), dtype))
    right = _padded(triu(_rows(packed, small)), n - small, 0)
    ones = _identity((*lead, n, n), dtype)
    right = add(right, sub(ones, _padded(_rows(_columns(ones, 0, n), small), n - small, 0)))
    index = broadcast_in_dim(order, (*lead, m, n), tuple(range(len(lead) + 1)))
    moved = take_along_axis(t, index, len(lead))
    inner = triangular_solve(left, moved, left_side=True, lower=True, unit_diagonal=True)
    inner = triangular_solve(right, inner)
    change = add(matmul(left, tril(inner, -1)), matmul(triu(inner), right))
    return (packed, pivots, order), (change, None, None)


def _columns(x: Value, begin: Any, end: Any) -> Value:
    shape = shape_of(x)
    start = [0] * len(shape)
    start[-1] = begin
    return slice(x, start, (*shape[:-1], end))


def _rows(x: Value, end: Any) -> Value:
    shape = shape_of(x)
    return slice(x, [0] * len(shape), (*shape[:-2], end, shape[-1]))


def _padded(x: Value, rows: int, columns: int) -> Value:
    zero = np.zeros((), aval_of(x).dtype)
    rank = len(shape_of(x))
    return pad(x, zero, (*[(0, 0, 0)] * (rank - 2), (0, rows, 0), (0, columns, 0)))


def _identity(shape: Shape, dtype: dt.DType) -> Value:
    return cast(diagonal_mask(shape), dtype)


def _f32(*shape: int) -> ShapedArray:
    return ShapedArray(shape, dt.float32)


_C33 = ShapedArray((3, 3), dt.complex64)

lu_p = factorisation(
    "lu",
    _lu_outputs,
    _lu_eval,
    _lu_jvp,
    (
        Sample((_f32(3, 3),), {}),
        Sample((_f32(2, 3, 2),), {}),
        Sample((_f32(2, 4),), {}),
        Sample((_C33,), {}),
        Sample((_f32(0, 2),), {}),
        Sample((_f32(2, 0),), {}),
    ),
)


# ---- qr


def qr(x: Value, *, pivoting: bool = False, full_matrices: bool = True) -> tuple[Value, ...]:
    """Q with orthonormal columns and upper triangular R with QR = x, or = x[:, p] if `pivoting`.

    Shapes: (..., m, n) -> (..., m, k), (..., k, n), and with `pivoting` int32 (..., n); k is m if
    `full_matrices`, else min(m, n).

    >>> import numpy as np
    >>> q, r = qr(np.ones((3, 2), np.float32), full_matrices=False)
    >>> q.shape, r.shape
    ((3, 2), (2, 2))
    """
    return apply(qr_p, x, pivoting=bool(pivoting), full_matrices=bool(full_matrices))


def _qr_outputs(m: Any, n: Any, dtype: dt.DType, *, pivoting: bool, full_matrices: bool) -> Outputs:
    k = m if full_matrices else min(m, n)
    order: Outputs = [((n,), dt.int32)] if pivoting else []
    return [((m, k), dtype), ((k, n), dtype), *order]


def _qr_eval(x: NDArray, *, pivoting: bool, full_matrices: bool) -> list[NDArray]:
    if not pivoting:
        return list(np.linalg.qr(x, "complete" if full_matrices else "reduced"))
    m, n = x.shape[-2:]
    if not x.size:
        outputs: Any = _qr_outputs(m, n, x.dtype, pivoting=True, full_matrices=full_matrices)
        (left, _), (right, _), _ = outputs
        lead = x.shape[:-2]
        return [
            np.broadcast_to(np.eye(*left, dtype=x.dtype), (*lead, *left)),
            np.zeros((*lead, *right), x.dtype),
            np.broadcast_to(np.arange(n, dtype=np.int32), (*lead, n)),
        ]
    mode = "full" if full_matrices else "economic"
    found = each(lambda a: lapack().qr(a, mode=mode, pivoting=True), x)
    return [np.stack([f[k] for f in found]) for k in range(3)]


def _qr_jvp(x: Value, t: Value, *, pivoting: bool, full_matrices: bool) -> Jvp:
    shape: Any = shape_of(x)
    *lead, m, n = shape
    if full_matrices and m > n:
        raise UnsupportedError(
            operation="the derivative of qr",
            required="full_matrices=False for tall matrices: the other columns are not determined",
            got=str(aval_of(x)),
            fix="use jnp.linalg.qr(x, mode='reduced')",
        )
    q, r, *order = qr_p.bind(x, pivoting=pivoting, full_matrices=full_matrices)
    if pivoting:
        index = broadcast_in_dim(order[0], (*lead, m, n), (*range(len(lead)), len(lead) + 1))
        t = take_along_axis(t, index, len(lead) + 1)
    nothing = (None,) * len(order)
    if m >= n:
        return (q, r, *order), (*_thin_tangents(q, r, t), *nothing)
    dq, first = _thin_tangents(q, _columns(r, 0, m), _columns(t, 0, m))
    rest = sub(_columns(t, m, n), matmul(dq, _columns(r, m, n)))
    return (q, r, *order), (
        dq,
        concatenate([first, matmul(adjoint(q), rest)], len(lead) + 1),
        *nothing,
    )


def _thin_tangents(q: Value, r: Value, t: Value) -> tuple[Value, Value]:
    """Townsend, "Differentiating the QR decomposition" (2018)."""
    scaled = triangular_solve(r, t)
    inner = matmul(adjoint(q), scaled)
    low = tril(inner, -1)
    turn = sub(low, adjoint(low))
    dtype = aval_of(inner).dtype
    if dt.is_complex(dtype):  # the diagonal of R stays real
        imaginary = sub(inner, cast(real(inner), dtype))
        shape = shape_of(inner)
        turn = add(turn, select(diagonal_mask(shape), imaginary, zeros(shape, dtype)))
    dq = add(matmul(q, sub(turn, inner)), scaled)
    return dq, matmul(sub(inner, turn), r)


def _qr_sample(aval: ShapedArray, pivoting: bool = False, full_matrices: bool = False) -> Sample:
    return Sample((aval,), {"pivoting": pivoting, "full_matrices": full_matrices})


qr_p = factorisation(
    "qr",
    _qr_outputs,
    _qr_eval,
    _qr_jvp,
    (
        _qr_sample(_f32(4, 3)),
        _qr_sample(_f32(2, 3, 3), full_matrices=True),
        _qr_sample(_f32(2, 4)),
        _qr_sample(_f32(2, 2, 4), pivoting=True),
        _qr_sample(_f32(4, 2), pivoting=True),
        _qr_sample(_C33),
        _qr_sample(_f32(0, 2)),
        _qr_sample(_f32(0, 2), pivoting=True),
        _qr_sample(_f32(2, 0)),
    ),
)
