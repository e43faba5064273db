"""Factorisations and what is computed with them: solve, inv, det, pinv, eigenvalues.

LAPACK runs them between kernels. Every function takes arrays of matrices (..., m, n) of single or
double precision and raises ShapeError or DTypeError for anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.control.custom import custom_jvp
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.lax import linalg as lax_linalg
from lumjax.numpy import linear
from lumjax.numpy.creation import asarray, broadcast_to, eye
from lumjax.numpy.manipulation import matrix_transpose, moveaxis
from lumjax.numpy.reductions import max as _max
from lumjax.numpy.reductions import prod as _prod
from lumjax.numpy.reductions import sum as _sum
from lumjax.trace.core import aval_of

ArrayLike = Any


class QRResult(NamedTuple):
    """The factors of a QR decomposition."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """The factors of a singular value decomposition."""

    U: Any
    S: Any
    Vh: Any


class EighResult(NamedTuple):
    """Eigenvalues and eigenvectors of a Hermitian matrix."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Eigenvalues and right eigenvectors."""

    eigenvalues: Any
    eigenvectors: Any


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its size."""

    sign: Any
    logabsdet: Any


def inexact(*xs: ArrayLike) -> list[Any]:
    """The arguments as arrays of one inexact dtype."""
    values = ops.promote_values(*[asarray(x) for x in xs])
    if dt.is_inexact(aval_of(values[0]).dtype):
        return list(values)
    return [ops.cast(v, np.float64) for v in values]


def _shape(x: Any) -> Any:
    return aval_of(x).shape


def _square(operation: str, x: Any) -> Any:
    shape = _shape(x)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            operation=f"jnp.linalg.{operation}",
            required="square matrices, (..., n, n)",
            got=str(aval_of(x)),
            fix="check the operand; pinv and lstsq take other matrices",
        )
    return x


def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """The Cholesky factor L with L L^H = a, or its adjoint if `upper`; NaN where there is none.

    Shapes: (..., n, n) -> (..., n, n).

    >>> cholesky(asarray([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    (x,) = inexact(a)
    low = ops.cholesky(x, symmetrize_input=symmetrize_input)
    if not upper:
        return low
    high = matrix_transpose(low)
    return ops.conj(high) if dt.is_complex(aval_of(high).dtype) else high


def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """The QR decomposition (Q, R); R alone for mode "r".

    Shapes: (..., m, n) -> (..., m, k), (..., k, n) with k = min(m, n), or m for mode "complete".

    >>> q, r = qr(asarray([[1.0, 2.0], [0.0, 1.0], [0.0, 0.0]]))
    >>> q.shape, r.shape
    ((3, 2), (2, 2))
    """
    if mode not in ("reduced", "complete", "r", "full"):
        raise ArgumentValueError(
            operation="jnp.linalg.qr", required="mode 'reduced', 'complete' or 'r'",
            got=repr(mode), fix="choose one of these",
        )  # fmt: skip
    (x,) = inexact(a)
    q, r = ops.qr(x, full_matrices=mode in ("complete", "full"))
    return r if mode == "r" else QRResult(q, r)


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """The singular value decomposition (U, S, Vh), or S alone without `compute_uv`; S descends.

    Shapes: (..., m, n) -> (..., m, m or k), (..., k), (..., n or k, n) with k = min(m, n).
    `subset_by_index` (begin, end) keeps some singular values.

    >>> svd(asarray([[0.0, 2.0], [1.0, 0.0]])).S.tolist()
    [2.0, 1.0]
    """
    (x,) = inexact(a)
    if hermitian:
        return _hermitian_svd(x, compute_uv)
    if not compute_uv:
        s = ops.svd(x, full_matrices=False, compute_uv=False)
        return s if subset_by_index is None else s[..., slice(*subset_by_index)]
    u, s, vh = ops.svd(x, full_matrices=full_matrices, compute_uv=True)
    if subset_by_index is not None:
        kept = slice(*subset_by_index)
        u, s, vh = u[..., kept], s[..., kept], vh[..., kept, :]
    return SVDResult(u, s, vh)


def _hermitian_svd(x: Any, compute_uv: bool) -> Any:
    vectors, values = ops.eigh(x)
    size = ops.abs(values)
    last = aval_of(size).ndim - 1
    order = ops.rev(ops.argsort(size, last), (last,))
    s = ops.take_along_axis(size, order, last)
    if not compute_uv:
        return s
    sign = ops.take_along_axis(ops.sign(values), order, last)
    wide = ops.broadcast_in_dim(order, _shape(vectors), (*range(last), last + 1))
    u = ops.take_along_axis(vectors, wide, last + 1)
    vh = matrix_transpose(ops.mul(u, ops.cast(sign, aval_of(u).dtype)[..., None, :]))
    return SVDResult(u, s, ops.conj(vh) if dt.is_complex(aval_of(vh).dtype) else vh)


def svdvals(x: ArrayLike, /) -> Any:
    """The singular values in descending order: (..., m, n) -> (..., min(m, n))."""
    return svd(x, compute_uv=False)


def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Ascending eigenvalues and eigenvectors (columns) of Hermitian matrices.

    Shapes: (..., n, n) -> (..., n), (..., n, n). Without `symmetrize_input` the triangle `UPLO`
    ("L" or "U") is read.

    >>> eigh(asarray([[2.0, 1.0], [1.0, 2.0]])).eigenvalues.tolist()
    [1.0, 3.0]
    """
    if UPLO not in (None, "L", "U"):
        raise ArgumentValueError(
            operation="jnp.linalg.eigh", required="UPLO 'L' or 'U'", got=repr(UPLO),
            fix="leave it out for the lower triangle",
        )  # fmt: skip
    (x,) = inexact(a)
    v, w = ops.eigh(x, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(w, v)


def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Any:
    """The ascending eigenvalues of Hermitian matrices: (..., n, n) -> (..., n)."""
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def eig(a: ArrayLike) -> EigResult:
    """Complex eigenvalues and right eigenvectors (columns): (..., n, n) -> (..., n), (..., n, n).

    Not differentiable: eigenvectors are determined up to a phase. `eigvals` and `eigh` are.
    """
    (x,) = inexact(a)
    w, v = ops.eig(x, compute_left_eigenvectors=False)
    return EigResult(w, v)


def eigvals(a: ArrayLike) -> Any:
    """The complex eigenvalues: (..., n, n) -> (..., n).

    >>> eigvals(asarray([[0.0, 1.0], [1.0, 0.0]])).real.tolist()
    [1.0, -1.0]
    """
    (x,) = inexact(a)
    return ops.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


# ---- linear systems


@custom_jvp
def _solve(a: Any, b: Any) -> Any:
    packed, _, order = ops.lu(a)
    return lax_linalg.lu_solve(packed, order, b)


@_solve.defjvp
def _solve_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """A x = b: A x' = b' - A' x."""
    (a, b), (da, db) = primals, tangents
    packed, _, order = ops.lu(a)
    x = lax_linalg.lu_solve(packed, order, b)
    return x, lax_linalg.lu_solve(packed, order, db - linear.matmul(da, x))


def solve(a: ArrayLike, b: ArrayLike) -> Any:
    """The x with a x = b, for a (..., n, n) and b (n,) or (..., n, k); leading axes broadcast.

    >>> solve(asarray([[2.0, 0.0], [0.0, 4.0]]), asarray([2.0, 8.0])).tolist()
    [1.0, 2.0]
    """
    x, y = inexact(a, b)
    _square("solve", x)
    vector = aval_of(y).ndim == 1
    if vector:
        y = y[:, None]
    n, shape = _shape(x)[-1], _shape(y)
    if len(shape) < 2 or shape[-2] != n:
        raise ShapeError(
            operation="jnp.linalg.solve",
            required=f"b with {n} rows, ({n},) or (..., {n}, k)",
            got=f"a {aval_of(x)}, b {aval_of(asarray(b))}",
            fix="check the operands",
        )
    lead = ops.broadcast_shapes(_shape(x)[:-2], shape[:-2], operation="jnp.linalg.solve")
    x, y = broadcast_to(x, (*lead, n, n)), broadcast_to(y, (*lead, *shape[-2:]))
    out = _solve(x, y)
    return out[..., 0] if vector else out


def inv(a: ArrayLike) -> Any:
    """The inverse of square matrices: (..., n, n) -> (..., n, n); infinities where there is none.

    >>> inv(asarray([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    (x,) = inexact(a)
    shape = _shape(_square("inv", x))
    return _solve(x, broadcast_to(eye(shape[-1], dtype=aval_of(x).dtype), shape))


def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: Any = None, *, numpy_resid: bool = False
) -> tuple[Any, Any, Any, Any]:
    """The least-squares solution of a x = b: (x, residuals, rank, singular values).

    Shapes: a (m, n), b (m,) or (m, k). Singular values below rcond times the largest count as 0.

    >>> lstsq(asarray([[2.0], [0.0]]), asarray([1.0, 3.0]))[0].tolist()
    [0.5]
    """
    x, y = inexact(a, b)
    if aval_of(x).ndim != 2 or aval_of(y).ndim not in (1, 2):
        raise ShapeError(
            operation="jnp.linalg.lstsq", required="a (m, n) and b (m,) or (m, k)",
            got=f"{aval_of(x)} and {aval_of(y)}", fix="use vmap for several systems",
        )  # fmt: skip
    vector = aval_of(y).ndim == 1
    rhs = y[:, None] if vector else y
    m, n = _shape(x)
    dtype = aval_of(x).dtype
    eps = float(dt.finfo(dtype).eps)
    if m == 0 or n == 0:
        s = ops.full((0,), 0, dtype)
        out, rank = ops.full((n, *_shape(y)[1:]), 0, dtype), asarray(0)
        return out, _residuals(x, rhs, out if not vector else out[:, None], rank), rank, s
    u, s, vt = ops.svd(x, full_matrices=False)
    cut = eps * max(n, m) if rcond is None else rcond
    kept = ops.ge(s, ops.mul(asarray(cut, aval_of(s).dtype), s[0]))
    rank = _sum(kept)
    inverse = ops.select(kept, ops.recip(ops.select(kept, s, ops.full(_shape(s), 1, aval_of(
        s).dtype))), ops.full(_shape(s), 0, aval_of(s).dtype))  # fmt: skip
    inner = linear.matmul(_adjoint(u), rhs) * inverse[:, None]
    out = linear.matmul(_adjoint(vt), inner)
    if numpy_resid:
        resid = _residuals(x, rhs, out, rank)
    else:
        size = ops.abs(rhs - linear.matmul(x, out))
        resid = _sum(size * size, axis=0)
    return out[:, 0] if vector else out, resid, rank, s


def _residuals(a: Any, b: Any, x: Any, rank: Any) -> Any:
    m, n = _shape(a)
    if m <= n or int(rank) < n:
        return ops.full((0,), 0, aval_of(b).dtype)
    size = ops.abs(b - linear.matmul(a, x))
    return _sum(size * size, axis=0)


def _adjoint(x: Any) -> Any:
    flipped = matrix_transpose(x)
    return ops.conj(flipped) if dt.is_complex(aval_of(flipped).dtype) else flipped


def pinv(a: ArrayLike, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """The pseudo-inverse: (..., m, n) -> (..., n, m).

    Singular values up to rtol times the largest count as 0; by default 10 max(m, n) eps.

    >>> pinv(asarray([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    (x,) = inexact(a)
    shape, dtype = _shape(x), aval_of(x).dtype
    limit = rtol if rcond is None else rcond
    if limit is None:
        limit = 10.0 * max(shape[-2:]) * float(dt.finfo(dtype).eps)
    if 0 in shape[-2:]:
        return ops.full((*shape[:-2], shape[-1], shape[-2]), 0, dtype)
    u, s, vh = svd(x, full_matrices=False, hermitian=hermitian)
    cut = asarray(limit, aval_of(s).dtype)[..., None] * s[..., :1]
    kept = ops.gt(s, broadcast_to(cut, _shape(s)))
    inverse = ops.select(kept, ops.recip(ops.select(kept, s, ops.full(_shape(s), 1, aval_of(
        s).dtype))), ops.full(_shape(s), 0, aval_of(s).dtype))  # fmt: skip
    wide = ops.cast(inverse, aval_of(u).dtype)
    return linear.matmul(_adjoint(vh), wide[..., :, None] * _adjoint(u))


# ---- determinants


def _triangular_det(packed: Any, pivots: Any) -> tuple[Any, Any]:
    """The diagonal of U, and the sign of the permutation in U's dtype."""
    diagonal = linear.diagonal(packed, axis1=-2, axis2=-1)
    count = _shape(pivots)[-1]
    steps = broadcast_to(ops.iota(np.int32, count), _shape(pivots))
    odd = _sum(ops.cast(ops.ne(pivots, steps), np.int32), axis=-1) % 2
    return diagonal, ops.cast(1 - 2 * odd, aval_of(packed).dtype)


@custom_jvp
def _det(a: Any) -> Any:
    packed, pivots, _ = ops.lu(a)
    diagonal, sign = _triangular_det(packed, pivots)
    return _prod(diagonal, axis=-1) * sign


@_det.defjvp
def _det_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Det' = tr(adj(A) A'), with an adjugate that singular matrices have too."""
    (a,), (t,) = primals, tangents
    u, s, vh = ops.svd(a, full_matrices=False)
    n = _shape(a)[-1]
    others = s[..., None, :]
    mask = broadcast_to(eye(n, dtype=bool), (*_shape(s), n))
    others = broadcast_to(others, _shape(mask))
    minors = _prod(ops.select(mask, ops.full(_shape(mask), 1, aval_of(s).dtype), others), -1)
    phase = _det(u) * _det(vh)
    minors = ops.cast(minors, aval_of(a).dtype) * phase[..., None]
    adjugate = linear.matmul(_adjoint(vh) * minors[..., None, :], _adjoint(u))
    return _det(a), _sum(adjugate * matrix_transpose(t), axis=(-2, -1))


def det(a: ArrayLike) -> Any:
    """The determinant: (..., n, n) -> (...). It has derivatives at singular matrices too.

    >>> float(det(asarray([[1.0, 2.0], [3.0, 4.0]])))
    -2.0
    """
    (x,) = inexact(a)
    n = _shape(_square("det", x))[-1]
    if n == 2:
        return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]
    if n == 3:
        return (
            x[..., 0, 0] * x[..., 1, 1] * x[..., 2, 2]
            + x[..., 0, 1] * x[..., 1, 2] * x[..., 2, 0]
            + x[..., 0, 2] * x[..., 1, 0] * x[..., 2, 1]
            - x[..., 0, 2] * x[..., 1, 1] * x[..., 2, 0]
            - x[..., 0, 0] * x[..., 1, 2] * x[..., 2, 1]
            - x[..., 0, 1] * x[..., 1, 0] * x[..., 2, 2]
        )
    return _det(x)


@custom_jvp
def _slogdet(a: Any) -> tuple[Any, Any]:
    packed, pivots, _ = ops.lu(a)
    diagonal, sign = _triangular_det(packed, pivots)
    size = ops.abs(diagonal)
    zero = ops.full(_shape(size), 0, aval_of(size).dtype)
    phase = ops.sign(diagonal)
    none = _sum(ops.cast(ops.eq(size, zero), np.int32), axis=-1) > 0
    sign = _prod(phase, axis=-1) * sign
    log = _sum(ops.log(size), axis=-1)
    low = ops.full(_shape(log), -np.inf, aval_of(log).dtype)
    return sign, ops.select(none, low, log)


@_slogdet.defjvp
def _slogdet_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The logarithm's derivative is tr(A^-1 A'); a complex sign turns with its imaginary part."""
    (a,), (t,) = primals, tangents
    sign, log = _slogdet(a)
    slope = linear.trace(_solve(a, t), axis1=-2, axis2=-1)
    if not dt.is_complex(aval_of(a).dtype):
        return (sign, log), (ops.full(_shape(sign), 0, aval_of(sign).dtype), slope)
    part = ops.real(slope)
    turn = ops.mul(slope - ops.cast(part, aval_of(slope).dtype), sign)
    return (sign, log), (turn, part)


def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its absolute value: (..., n, n) -> (...).

    `method` "lu" or "qr" is accepted; LU is used.

    >>> slogdet(asarray([[0.0, 1.0], [1.0, 0.0]])).sign.tolist()
    -1.0
    """
    if method not in (None, "lu", "qr"):
        raise ArgumentValueError(
            operation="jnp.linalg.slogdet", required="method 'lu' or 'qr'", got=repr(method),
            fix="leave it out",
        )  # fmt: skip
    (x,) = inexact(a)
    return SlogdetResult(*_slogdet(_square("slogdet", x)))


# ---- ranks, condition numbers, tensors


def matrix_rank(M: ArrayLike, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Any:
    """How many singular values exceed a tolerance: (..., m, n) -> int32 (...)."""
    (x,) = inexact(M)
    if aval_of(x).ndim < 2:
        return ops.cast(_max(ops.ne(x, 0)), np.int32)
    s = svd(x, full_matrices=False, compute_uv=False, hermitian=hermitian)
    limit = rtol if tol is None else tol
    if limit is None:
        eps = float(dt.finfo(aval_of(x).dtype).eps)
        limit = _max(s, axis=-1, initial=0) * max(_shape(x)[-2:]) * eps
    return _sum(s > asarray(limit)[..., None], axis=-1)


def tensorinv(a: ArrayLike, ind: int = 2) -> Any:
    """The inverse of tensordot(a, ., ind)."""
    (x,) = inexact(a)
    shape = _shape(x)
    if ind <= 0:
        raise ArgumentValueError(
            operation="jnp.linalg.tensorinv", required="ind > 0", got=repr(ind),
            fix="count the axes of the result",
        )  # fmt: skip
    rows, columns = shape[:ind], shape[ind:]
    size = int(np.prod(columns))
    return inv(ops.reshape(x, (-1 if not size else int(np.prod(rows)), size))).reshape(
        (*columns, *rows)
    )


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Any = None) -> Any:
    """The x with tensordot(a, x, x.ndim) = b; `axes` of a are moved to its end first."""
    x, y = inexact(a, b)
    if axes is not None:
        x = moveaxis(x, axes, tuple(range(aval_of(x).ndim - len(axes), aval_of(x).ndim)))
    out = _shape(x)[aval_of(y).ndim :]
    size = aval_of(y).size
    if int(np.prod(out)) != size:
        raise ShapeError(
            operation="jnp.linalg.tensorsolve",
            required="a with as many unknowns as equations",
            got=f"{aval_of(x)} and {aval_of(y)}",
            fix="check the axes",
        )
    return solve(ops.reshape(x, (size, size)), ops.reshape(y, (size,))).reshape(out)
