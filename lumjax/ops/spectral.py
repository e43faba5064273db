"""eigh, eig and svd, by LAPACK."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import UnsupportedError
from lumjax.ops.arithmetic import abs, recip
from lumjax.ops.checks import Jvp, NDArray, apply
from lumjax.ops.compare import eq
from lumjax.ops.elementwise import add, cast, mul, select, sub
from lumjax.ops.factor import lu_p
from lumjax.ops.layout import broadcast_in_dim, expand_dims, full, shape_of, squeeze, zeros
from lumjax.ops.matrix import (
    Outputs,
    adjoint,
    conjugate,
    diagonal_mask,
    diagonal_part,
    each,
    factorisation,
    hermitian,
    lapack,
    matmul,
    spread,
    tril,
    triu,
)
from lumjax.ops.parts import imag, real
from lumjax.ops.record import real_part
from lumjax.ops.reduce import argmax, reduce_sum
from lumjax.ops.sorting import take_along_axis
from lumjax.ops.triangular import triangular_solve
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Sample, Value, aval_of

# ---- eigh


def eigh(
    x: Value, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True
) -> tuple[Value, Value]:
    """The eigenvectors (columns) and ascending eigenvalues of Hermitian matrices.

    Shapes: (..., n, n) -> (..., n, n), (..., n). Without `symmetrize_input` only the named triangle
    is read.

    >>> import numpy as np
    >>> eigh(np.array([[2.0, 0.0], [0.0, 1.0]], np.float32))[1]
    Array([1., 2.], dtype=float32)
    """
    del sort_eigenvalues  # they always are
    if not symmetrize_input:
        x = add(tril(x), adjoint(tril(x, -1))) if lower else add(triu(x), adjoint(triu(x, 1)))
    vectors, values = apply(eigh_p, x)
    return vectors, values


def _eigh_eval(x: NDArray) -> list[NDArray]:
    x = (x + np.conj(np.swapaxes(x, -1, -2))) / 2
    try:
        values, vectors = np.linalg.eigh(x)
    except np.linalg.LinAlgError:  # no convergence: NaN or infinities in the input
        values, vectors = np.full(x.shape[:-1], np.nan), np.full(x.shape, np.nan)
    return [vectors, values]


def _eigh_jvp(x: Value, t: Value) -> Jvp:
    v, w = eigh_p.bind(x)
    inner = matmul(matmul(adjoint(v), hermitian(t)), v)
    turned = mul(cast(_gaps(w), aval_of(v).dtype), inner)
    slope = diagonal_part(inner)
    return (v, w), (matmul(v, turned), real(slope) if _is_complex(x) else slope)


def _is_complex(x: Value) -> bool:
    return dt.is_complex(aval_of(x).dtype)


def _gaps(w: Value) -> Value:
    """1 / (w_j - w_i) off the diagonal: infinite at equal eigenvalues, whose vectors have no
    derivative.
    """
    shape = (*shape_of(w), shape_of(w)[-1])
    size = shape[-1]
    apart = sub(spread(w, size, -2), spread(w, size, -1))
    return _inverse(apart, diagonal_mask(shape))


def _inverse(x: Value, masked: Value) -> Value:
    """1 / x, 0 where masked."""
    shape, dtype = shape_of(x), aval_of(x).dtype
    safe = select(masked, full(shape, 1, dtype), x)
    return select(masked, zeros(shape, dtype), recip(safe))


def _f32(*shape: int) -> ShapedArray:
    return ShapedArray(shape, dt.float32)


eigh_p = factorisation(
    "eigh",
    lambda m, n, dtype: [((n, n), dtype), ((n,), real_part(dtype))],
    _eigh_eval,
    _eigh_jvp,
    (
        Sample((_f32(3, 3),), {}),
        Sample((_f32(2, 4, 4),), {}),
        Sample((_f32(1, 1),), {}),
        Sample((_f32(0, 0),), {}),
    ),
    square=True,
)


# ---- eig


def eig(
    x: Value, *, compute_left_eigenvectors: bool = True, compute_right_eigenvectors: bool = True
) -> tuple[Value, ...]:
    """The complex eigenvalues of square matrices, and left and right eigenvectors (columns).

    Shapes: (..., n, n) -> (..., n), and (..., n, n) for each kind of vectors asked for.
    """
    return apply(
        eig_p,
        x,
        compute_left_eigenvectors=bool(compute_left_eigenvectors),
        compute_right_eigenvectors=bool(compute_right_eigenvectors),
    )


_WIDE = {dt.float32: dt.complex64, dt.float64: dt.complex128}


def _eig_outputs(
    m: Any, n: Any, dtype: dt.DType, *, compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool,
) -> Outputs:  # fmt: skip
    wide = _WIDE.get(dtype, dtype)
    count = int(compute_left_eigenvectors) + int(compute_right_eigenvectors)
    return [((n,), wide), *[((n, n), wide)] * count]


def _eig_eval(
    x: NDArray, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool
) -> list[NDArray]:
    left, right = compute_left_eigenvectors, compute_right_eigenvectors
    if not x.size:
        wide = _WIDE.get(x.dtype, x.dtype)
        return [x[..., 0, :].astype(wide) if x.shape[-1] else np.zeros(x.shape[:-1], wide)] + [
            x.astype(wide)
        ] * (left + right)

    def one(a: NDArray) -> tuple[NDArray, ...]:
        if not np.isfinite(a).all():
            return (np.full(len(a), np.nan), *[np.full(a.shape, np.nan)] * (left + right))
        out = lapack().eig(a, left=left, right=right)
        return out if isinstance(out, tuple) else (out,)

    found = each(one, x)
    return [np.stack([f[k] for f in found]) for k in range(1 + left + right)]


def _eig_jvp(
    x: Value, t: Value, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool
) -> Jvp:
    """Of the values diag(V^-1 x' V); of the vectors V (F o V^-1 x' V), F = 1 / (w_j - w_i)."""
    left, right = compute_left_eigenvectors, compute_right_eigenvectors
    w, *vectors = eig_p.bind(x, compute_left_eigenvectors=left, compute_right_eigenvectors=True)
    t = cast(t, aval_of(w).dtype)
    inner = _solved(vectors[-1], matmul(t, vectors[-1]))
    tangents = [diagonal_part(inner)]
    if left:  # x^H has them as its vectors, and the conjugate eigenvalues
        other = _solved(vectors[0], matmul(adjoint(t), vectors[0]))
        tangents.append(_eigenvector_tangents(conjugate(w), vectors[0], other))
    if right:
        tangents.append(_eigenvector_tangents(w, vectors[-1], inner))
    return (w, *vectors[: left + right]), tuple(tangents)


def _eigenvector_tangents(w: Value, v: Value, inner: Value) -> Value:
    """As LAPACK scales them: of norm 1, the largest component real."""
    t = matmul(v, mul(_gaps(w), inner))
    shape, dtype = shape_of(v), aval_of(v).dtype
    rank, size = len(shape), shape[-1]
    along = real(reduce_sum(mul(conjugate(v), t), (rank - 2,)))
    largest = expand_dims(argmax(abs(v), rank - 2), (rank - 2,))
    pivot, change = (take_along_axis(a, largest, rank - 2) for a in (v, t))
    turn = mul(cast(imag(change), dtype), mul(recip(cast(real(pivot), dtype)), 1j))
    off = add(spread(cast(along, dtype), size, -2), spread(squeeze(turn, (rank - 2,)), size, -2))
    return sub(t, mul(v, off))


def _solved(a: Value, b: Value) -> Value:
    """a^-1 b."""
    packed, _, order = lu_p.bind(a)
    shape = shape_of(b)
    index = broadcast_in_dim(order, shape, tuple(range(len(shape) - 1)))
    b = take_along_axis(b, index, len(shape) - 2)
    b = triangular_solve(packed, b, left_side=True, lower=True, unit_diagonal=True)
    return triangular_solve(packed, b, left_side=True)


def _eig_sample(aval: ShapedArray, left: bool = False, right: bool = False) -> Sample:
    params = {"compute_left_eigenvectors": left, "compute_right_eigenvectors": right}
    return Sample((aval,), params)


eig_p = factorisation(
    "eig",
    _eig_outputs,
    _eig_eval,
    _eig_jvp,
    (
        _eig_sample(_f32(3, 3)),
        _eig_sample(_f32(2, 2, 2)),
        _eig_sample(ShapedArray((3, 3), dt.complex64)),
        _eig_sample(_f32(2, 3, 3), left=True, right=True),
        _eig_sample(ShapedArray((3, 3), dt.complex64), right=True),
        _eig_sample(_f32(0, 0)),
    ),
    square=True,
)


# ---- svd


def svd(x: Value, *, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """U, s, V^H with x = U diag(s) V^H, s descending; s alone without `compute_uv`.

    Shapes: (..., m, n) -> (..., m, m or k), (..., k), (..., n or k, n) with k = min(m, n).

    >>> import numpy as np
    >>> svd(np.array([[3.0, 0.0], [0.0, 4.0]], np.float32), compute_uv=False)
    Array([4., 3.], dtype=float32)
    """
    outs = apply(svd_p, x, full_matrices=bool(full_matrices), compute_uv=bool(compute_uv))
    if not compute_uv:
        return outs[0]
    s, u, vh = outs
    return u, s, vh


def _svd_outputs(
    m: Any, n: Any, dtype: dt.DType, *, full_matrices: bool, compute_uv: bool
) -> Outputs:
    k = min(m, n)
    values: Outputs = [((k,), real_part(dtype))]
    if not compute_uv:
        return values
    return [
        *values,
        ((m, m if full_matrices else k), dtype),
        ((n if full_matrices else k, n), dtype),
    ]


def _svd_eval(x: NDArray, *, full_matrices: bool, compute_uv: bool) -> list[NDArray]:
    try:
        found: Any = np.linalg.svd(x, full_matrices=full_matrices, compute_uv=compute_uv)
    except np.linalg.LinAlgError:
        m, n = x.shape[-2:]
        wanted: Any = _svd_outputs(
            m, n, x.dtype, full_matrices=full_matrices, compute_uv=compute_uv
        )
        return [np.full((*x.shape[:-2], *shape), np.nan, dtype) for shape, dtype in wanted]
    if not compute_uv:
        return [found]
    u, s, vh = found
    return [s, u, vh]


def _svd_jvp(x: Value, t: Value, *, full_matrices: bool, compute_uv: bool) -> Jvp:
    *_, m, n = shape_of(x)
    if compute_uv and full_matrices and m != n:
        raise UnsupportedError(
            operation="the derivative of svd",
            required="full_matrices=False: the other vectors are not determined",
            got=str(aval_of(x)),
            fix="use jnp.linalg.svd(x, full_matrices=False)",
        )
    s, u, vh = svd_p.bind(x, full_matrices=False, compute_uv=True)
    v, inner = adjoint(vh), matmul(matmul(adjoint(u), t), adjoint(vh))
    slope = diagonal_part(inner)
    slope = real(slope) if _is_complex(x) else slope
    if not compute_uv:
        return (s,), (slope,)
    return (s, u, vh), (slope, *_svd_turns(s, u, v, t, inner))


def _svd_turns(s: Value, u: Value, v: Value, t: Value, inner: Value) -> tuple[Value, Value]:
    """The tangents of U and V^H (Townsend, "Differentiating the singular value decomposition")."""
    dtype, size = aval_of(u).dtype, shape_of(s)[-1]
    rows, columns = spread(s, size, -1), spread(s, size, -2)
    shape = shape_of(rows)
    gaps = mul(add(columns, rows), sub(columns, rows))
    gaps = cast(_inverse(gaps, diagonal_mask(shape)), dtype)
    right = mul(cast(columns, dtype), inner)
    left = mul(cast(rows, dtype), inner)
    skew = mul(sub(inner, adjoint(inner)), 0.5)
    none = eq(s, zeros(shape_of(s), aval_of(s).dtype))
    inverse = _inverse(s, none)
    diagonal = select(diagonal_mask(shape), cast(spread(inverse, size, -1), dtype),
                      zeros(shape, dtype))  # fmt: skip
    du = matmul(u, add(mul(gaps, add(right, adjoint(right))), mul(skew, diagonal)))
    dv = matmul(v, mul(gaps, add(left, adjoint(left))))
    m, n = shape_of(t)[-2:]
    if m > n:
        moved = matmul(t, v)
        off = sub(moved, matmul(u, matmul(adjoint(u), moved)))
        du = add(du, mul(off, cast(spread(recip(s), m, -2), dtype)))
    if n > m:
        moved = matmul(adjoint(t), u)
        off = sub(moved, matmul(v, matmul(adjoint(v), moved)))
        dv = add(dv, mul(off, cast(spread(recip(s), n, -2), dtype)))
    return du, adjoint(dv)


def _svd_sample(aval: ShapedArray, full_matrices: bool = False, compute_uv: bool = True) -> Sample:
    return Sample((aval,), {"full_matrices": full_matrices, "compute_uv": compute_uv})


svd_p = factorisation(
    "svd",
    _svd_outputs,
    _svd_eval,
    _svd_jvp,
    (
        _svd_sample(_f32(3, 3), full_matrices=True),
        _svd_sample(_f32(2, 4, 2)),
        _svd_sample(_f32(2, 3)),
        _svd_sample(_f32(3, 4), compute_uv=False),
        _svd_sample(ShapedArray((3, 2), dt.complex64), compute_uv=False),
        _svd_sample(_f32(0, 2)),
        _svd_sample(_f32(2, 0)),
    ),
)
