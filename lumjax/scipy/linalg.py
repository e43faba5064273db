"""Linear algebra under scipy's names.

>>> from lumjax.scipy.linalg import solve_triangular
>>> solve_triangular(jnp.array([[2.0, 1.0], [0.0, 4.0]]), jnp.array([3.0, 4.0])).tolist()
[1.0, 1.0]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError, UnsupportedError
from lumjax.lax import linalg as lax_linalg
from lumjax.numpy.linalg import inexact
from lumjax.scipy.exponential import expm as expm
from lumjax.scipy.exponential import expm_frechet as expm_frechet
from lumjax.trace.core import aval_of
from lumjax.typing import ArrayLike

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "det",
    "eigh",
    "expm",
    "expm_frechet",
    "inv",
    "lu",
    "lu_factor",
    "lu_solve",
    "qr",
    "solve",
    "solve_sylvester",
    "solve_triangular",
    "sqrtm",
    "svd",
    "toeplitz",
]


def cholesky(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """The Cholesky factor: upper triangular U with U^H U = a, or L with L L^H = a if `lower`.

    Shapes: (..., n, n) -> (..., n, n).
    """
    del overwrite_a, check_finite
    (x,) = inexact(a)
    low = ops.cholesky(x if lower else jnp.conj(jnp.matrix_transpose(x)), symmetrize_input=False)
    return low if lower else jnp.conj(jnp.matrix_transpose(low))


def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, bool]:
    """The Cholesky factor and `lower`, for cho_solve."""
    return cholesky(a, lower, overwrite_a, check_finite), lower


def cho_solve(
    c_and_lower: tuple[ArrayLike, bool],
    b: ArrayLike,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:
    """The x with a x = b, given cho_factor(a).

    >>> float(cho_solve(cho_factor(jnp.array([[4.0]])), jnp.array([8.0]))[0])
    2.0
    """
    del overwrite_b, check_finite
    factor, lower = c_and_lower
    c, y = inexact(factor, b)
    flags: Any = {"lower": lower}
    y = solve_triangular(c, y, trans=0 if lower else 2, **flags)
    return solve_triangular(c, y, trans=2 if lower else 0, **flags)


def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Any:
    """The x with op(a) x = b; op(a) is a (trans 0 or "N"), a^T (1 or "T") or a^H (2 or "C").

    Shapes: a (..., n, n), b (..., n) or (..., n, k).
    """
    del overwrite_b, debug, check_finite
    codes = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}
    if trans not in codes:
        raise ArgumentValueError(
            operation="scipy.linalg.solve_triangular",
            required="trans 0, 1, 2, 'N', 'T' or 'C'",
            got=repr(trans),
            fix="choose one of these",
        )
    matrix, y = inexact(a, b)
    code = codes[trans]
    vector = aval_of(y).ndim == 1 or aval_of(y).ndim == aval_of(matrix).ndim - 1
    rhs = y[..., None] if vector else y
    lead = ops.broadcast_shapes(aval_of(matrix).shape[:-2], aval_of(rhs).shape[:-2])
    matrix = jnp.broadcast_to(matrix, (*lead, *aval_of(matrix).shape[-2:]))
    rhs = jnp.broadcast_to(rhs, (*lead, *aval_of(rhs).shape[-2:]))
    out = ops.triangular_solve(
        matrix, rhs, left_side=True, lower=lower, transpose_a=code > 0, conjugate_a=code == 2,
        unit_diagonal=unit_diagonal,
    )  # fmt: skip
    return out[..., 0] if vector else out


def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Any:
    """The x with a x = b; `assume_a` "pos" uses the Cholesky factor of a positive definite a.

    >>> solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 8.0])).tolist()
    [1.0, 2.0]
    """
    del overwrite_a, overwrite_b, debug, check_finite
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ArgumentValueError(
            operation="scipy.linalg.solve",
            required="assume_a 'gen', 'sym', 'her' or 'pos'",
            got=repr(assume_a),
            fix="leave it out",
        )
    if assume_a != "pos":
        return jnp.linalg.solve(a, b)
    return cho_solve(cho_factor(a, lower), b)


def solve_sylvester(
    A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8
) -> Any:
    """The X with A X + X B = C, by Schur forms; NaN where A and -B share an eigenvalue.

    Shapes: (m, m), (n, n), (m, n) -> (m, n).

    >>> solve_sylvester(2 * jnp.eye(1), jnp.eye(1), jnp.array([[6.0]])).tolist()
    [[2.0]]
    """
    del tol
    if method not in ("schur", "eigen"):
        raise ArgumentValueError(
            operation="scipy.linalg.solve_sylvester", required="method 'schur' or 'eigen'",
            got=repr(method), fix="leave it out",
        )  # fmt: skip
    return ops.sylvester(*inexact(A, B, C))


def sqrtm(A: ArrayLike, blocksize: int = 1) -> Any:
    """The principal square root of a square matrix, complex whatever the matrix is.

    Shapes: (..., n, n) -> (..., n, n).

    >>> sqrtm(jnp.array([[4.0]])).tolist()
    [[(2+0j)]]
    """
    if blocksize > 1:
        raise UnsupportedError(
            operation="scipy.linalg.sqrtm", required="blocksize=1", got=str(blocksize),
            fix="leave it out",
        )  # fmt: skip
    return ops.sqrtm(*inexact(A))


def lu_factor(
    a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, Any]:
    """The packed LU factors and the pivots: (..., m, n) -> (..., m, n), int32 (..., min(m, n))."""
    del overwrite_a, check_finite
    packed, pivots, _ = ops.lu(inexact(a)[0])
    return packed, pivots


def lu_solve(
    lu_and_piv: tuple[Any, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:
    """The x with a x = b, given lu_factor(a)."""
    del overwrite_b, check_finite
    packed, pivots = lu_and_piv
    order = lax_linalg.lu_pivots_to_permutation(pivots, int(aval_of(packed).shape[-2]))
    return lax_linalg.lu_solve(packed, order, b, trans)


def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, ...]:
    """P, L, U with a = P L U, or P L, U with `permute_l`.

    >>> p, low, up = lu(jnp.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> (p @ low @ up).tolist()
    [[1.0, 2.0], [4.0, 4.0]]
    """
    del overwrite_a, check_finite
    packed, _, order = ops.lu(inexact(a)[0])
    dtype = aval_of(packed).dtype
    m, n = (int(s) for s in aval_of(packed).shape[-2:])
    k = min(m, n)
    low = jnp.tril(packed, -1)[..., :k] + jnp.eye(m, k, dtype=dtype)
    up = jnp.triu(packed)[..., :k, :]
    columns = jnp.arange(m)
    swap = jnp.astype(order[..., None, :] == columns[:, None], dtype)
    return (jnp.matmul(swap, low), up) if permute_l else (swap, low, up)


def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
    """Q and R, and with `pivoting` the permutation; `mode` "full", "economic" or "r"."""
    del overwrite_a, lwork, check_finite
    if mode not in ("full", "r", "economic"):
        raise ArgumentValueError(
            operation="scipy.linalg.qr",
            required="mode 'full', 'economic' or 'r'",
            got=repr(mode),
            fix="choose one of these",
        )
    q, *rest = ops.qr(inexact(a)[0], pivoting=pivoting, full_matrices=mode != "economic")
    return tuple(rest) if mode == "r" else (q, *rest)


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """U, s, Vh, or s alone without `compute_uv`."""
    del overwrite_a, check_finite, lapack_driver
    found = jnp.linalg.svd(a, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found


def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Ascending eigenvalues and eigenvectors of Hermitian matrices, or the values alone."""
    del overwrite_a, overwrite_b, turbo, check_finite
    if b is not None or eigvals is not None or type != 1:
        raise ArgumentValueError(
            operation="scipy.linalg.eigh",
            required="the standard problem: b and eigvals None, type 1",
            got=f"b={b!r}, eigvals={eigvals!r}, type={type!r}",
            fix="multiply with the inverse Cholesky factor of b first",
        )
    v, w = ops.eigh(inexact(a)[0], lower=lower, symmetrize_input=False)
    return w if eigvals_only else (w, v)


def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The inverse of square matrices."""
    del overwrite_a, check_finite
    return jnp.linalg.inv(a)


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The determinant of square matrices."""
    del overwrite_a, check_finite
    return jnp.linalg.det(a)


def block_diag(*arrs: ArrayLike) -> Any:
    """The matrix with the given matrices along its diagonal and 0 elsewhere.

    >>> block_diag(jnp.ones((1, 2)), jnp.array([[3.0]])).tolist()
    [[1.0, 1.0, 0.0], [0.0, 0.0, 3.0]]
    """
    blocks = [jnp.atleast_2d(a) for a in (arrs or (jnp.zeros((1, 0)),))]
    if any(aval_of(b).ndim > 2 for b in blocks):
        raise ShapeError(
            operation="scipy.linalg.block_diag",
            required="arrays with at most two axes",
            got=", ".join(str(aval_of(b)) for b in blocks),
            fix="use vmap for several matrices",
        )
    blocks = ops.promote_values(*blocks)
    zero = np.zeros((), aval_of(blocks[0]).dtype)
    width: Any = sum(int(aval_of(b).shape[1]) for b in blocks)
    rows: list[Any] = []
    start = 0
    for block in blocks:
        n = int(aval_of(block).shape[1])
        rows.append(ops.pad(block, zero, ((0, 0, 0), (start, width - start - n, 0))))
        start += n
    return jnp.concatenate(rows, axis=0)


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Any:
    """The matrix with constant diagonals, first column `c` and first row `r` (by default conj(c)).

    >>> toeplitz(jnp.array([1, 2, 3])).tolist()
    [[1, 2, 3], [2, 1, 2], [3, 2, 1]]
    """
    column = jnp.atleast_1d(jnp.asarray(c))
    row = jnp.conj(column) if r is None else jnp.atleast_1d(jnp.asarray(r))
    m, n = int(aval_of(column).shape[-1]), int(aval_of(row).shape[-1])
    if m == 0 or n == 0:
        return jnp.zeros((m, n), jnp.promote_types(aval_of(column).dtype, aval_of(row).dtype))
    values = jnp.concatenate([jnp.flip(column, -1), row[..., 1:]], axis=-1)
    place = np.arange(n)[None, :] - np.arange(m)[:, None] + m - 1
    return jnp.take(values, place, axis=-1)
