"""jax.lax.linalg: factorisations of arrays of matrices, (..., m, n).

>>> import numpy as np
>>> cholesky(np.array([[4.0, 0.0], [0.0, 9.0]], np.float32)).tolist()
[[2.0, 0.0], [0.0, 3.0]]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError, UnsupportedError
from lumjax.ops import cholesky as cholesky
from lumjax.ops import eig as eig
from lumjax.ops import lu as lu
from lumjax.ops import qr as qr
from lumjax.ops import svd as svd
from lumjax.ops import triangular_solve as triangular_solve
from lumjax.trace.core import aval_of


def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
) -> tuple[Any, Any]:
    """The eigenvectors (columns) and ascending eigenvalues of Hermitian matrices.

    Shapes: (..., n, n) -> (..., n, n), (..., n). Without `symmetrize_input` only the named triangle
    is read. `subset_by_index` (begin, end) keeps some of them.

    >>> eigh(np.array([[2.0, 0.0], [0.0, 1.0]], np.float32))[1].tolist()
    [1.0, 2.0]
    """
    v, w = ops.eigh(
        x,
        lower=lower,
        symmetrize_input=symmetrize_input,
        sort_eigenvalues=sort_eigenvalues,
    )
    if subset_by_index is not None:
        begin, end = subset_by_index
        shape = aval_of(w).shape
        zeros = (0,) * (len(shape) - 1)
        w = ops.slice(w, (*zeros, begin), (*shape[:-1], end))
        v = ops.slice(v, (*zeros, 0, begin), (*shape[:-1], shape[-1], end))
    return v, w


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """The permutation that a sequence of row exchanges makes.

    Shapes: int32 (..., k) -> int32 (..., permutation_size).

    >>> lu_pivots_to_permutation(np.array([1, 1], np.int32), 2).tolist()
    [1, 0]
    """
    value = ops.asvalue(pivots)
    shape = tuple(aval_of(value).shape)
    if shape[-1] > permutation_size:
        raise ShapeError(
            operation="lax.linalg.lu_pivots_to_permutation",
            required="a permutation at least as long as the pivots",
            got=f"{shape[-1]} pivots for a permutation of {permutation_size}",
            fix="pass the number of rows",
        )
    order = ops.broadcasted_iota(np.int32, (*shape[:-1], permutation_size), len(shape) - 1)
    for k in range(shape[-1]):
        last = len(shape) - 1
        pivot = ops.slice(value, (*[0] * last, k), (*shape[:-1], k + 1))
        place = ops.broadcasted_iota(np.int32, aval_of(order).shape, last)
        here = ops.slice(order, (*[0] * last, k), (*shape[:-1], k + 1))
        there = ops.take_along_axis(order, pivot, last)
        wide = [
            ops.broadcast_in_dim(x, aval_of(order).shape, tuple(range(last + 1)))
            for x in (pivot, here, there)
        ]
        order = ops.select(ops.eq(place, wide[0]), wide[1], order)
        order = ops.select(ops.eq(place, np.int32(k)), wide[2], order)
    return order


def lu_solve(lu: Any, permutation: Any, b: Any, trans: int = 0) -> Any:
    """The x with A x = b (trans 0), A^T x = b (1) or A^H x = b (2), from the factors of A.

    Shapes: lu (..., n, n), permutation (..., n), b (..., n, k) or, for one matrix, (n,).
    """
    if trans not in (0, 1, 2):
        raise ArgumentValueError(
            operation="lax.linalg.lu_solve", required="trans 0, 1 or 2", got=repr(trans),
            fix="choose 0 for A, 1 for its transpose, 2 for its adjoint",
        )  # fmt: skip
    lu, b = ops.promote_values(lu, b, operation="lax.linalg.lu_solve")
    if aval_of(b).ndim == aval_of(lu).ndim - 1:
        return ops.squeeze(lu_solve(lu, permutation, ops.expand_dims(b, (-1,)), trans), (-1,))
    shape = aval_of(b).shape
    rank = len(shape)

    def permuted(x: Any, order: Any) -> Any:
        index = ops.broadcast_in_dim(order, shape, tuple(range(rank - 1)))
        return ops.take_along_axis(x, index, rank - 2)

    if not trans:
        b = permuted(b, permutation)
        b = ops.triangular_solve(lu, b, left_side=True, lower=True, unit_diagonal=True)
        return ops.triangular_solve(lu, b, left_side=True)
    flags: Any = {"left_side": True, "transpose_a": True, "conjugate_a": trans == 2}
    b = ops.triangular_solve(lu, b, **flags)
    b = ops.triangular_solve(lu, b, lower=True, unit_diagonal=True, **flags)
    return permuted(b, ops.argsort(permutation, rank - 2))


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    """The x with A x = b, where A[i, i] = d[i], A[i, i-1] = dl[i] and A[i, i+1] = du[i].

    Shapes: dl, d, du (..., m), b (..., m, n); dl[0] and du[m-1] are not read. A singular A gives
    NaN; `perturb_singular`, which asks for a finite result then, raises UnsupportedError.

    >>> one = np.ones(2, np.float32)
    >>> tridiagonal_solve(one, 2 * one, one, np.array([[3.0], [3.0]], np.float32)).tolist()
    [[1.0], [1.0]]
    """
    if perturb_singular:
        raise UnsupportedError(
            operation="lax.linalg.tridiagonal_solve", required="perturb_singular=False", got="True",
            fix="add a small number to the diagonal",
        )  # fmt: skip
    return ops.tridiagonal_solve(dl, d, du, b)
