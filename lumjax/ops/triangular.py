"""cholesky and triangular_solve, by LAPACK and BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ShapeError
from lumjax.ops.arithmetic import div
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    all_weak,
    apply,
    check_same_dtypes,
    silent,
)
from lumjax.ops.elementwise import add, neg, promote_values, select
from lumjax.ops.layout import expand_dims, full, shape_of, squeeze
from lumjax.ops.matrix import (
    Tangents,
    adjoint,
    check_matrix,
    conjugate,
    diagonal_mask,
    each,
    factorisation,
    hermitian,
    lapack,
    matmul,
    transposed,
    tril,
    triu,
)
from lumjax.ops.view import each_batch_first
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, Primitive, Sample, Value, aval_of
from lumjax.trace.dim import same_shape
from lumjax.trace.form import Form, Opaque

# ---- cholesky


def cholesky(x: Value, *, symmetrize_input: bool = True) -> Value:
    """The lower triangular L with L L^H = x; NaN where x is not positive definite.

    Shapes: (..., n, n). Without `symmetrize_input` only the lower triangle is read.

    >>> import numpy as np
    >>> cholesky(np.array([[4.0, 0.0], [0.0, 9.0]], np.float32))
    Array([[2., 0.],
           [0., 3.]], dtype=float32)
    """
    if not symmetrize_input:
        x = add(tril(x), adjoint(tril(x, -1)))
    return apply(cholesky_p, x)[0]


def _cholesky_eval(x: NDArray) -> list[NDArray]:
    """NumPy raises for the whole batch where one matrix has no factor: then one by one."""
    x = (x + np.conj(np.swapaxes(x, -1, -2))) / 2
    try:
        return [np.linalg.cholesky(x)]
    except np.linalg.LinAlgError:
        return [np.stack([_factor_or_nan(m) for m in x.reshape(-1, *x.shape[-2:])])]


def _factor_or_nan(x: NDArray) -> NDArray:
    try:
        return np.linalg.cholesky(x)
    except np.linalg.LinAlgError:
        return np.tril(np.full_like(x, np.nan))


def _cholesky_jvp(x: Value, t: Value) -> Jvp:
    """L' = L phi(L^-1 x' L^-H), phi: the lower triangle with the diagonal halved."""
    (low,) = cholesky_p.bind(x)
    inner = triangular_solve(low, hermitian(t), lower=True, transpose_a=True, conjugate_a=True)
    inner = tril(triangular_solve(low, inner, left_side=True, lower=True))
    shape, dtype = shape_of(x), aval_of(x).dtype
    halves = select(diagonal_mask(shape), full(shape, 2, dtype), full(shape, 1, dtype))
    return (low,), (matmul(low, div(inner, halves)),)


def _f32(*shape: int) -> ShapedArray:
    return ShapedArray(shape, dt.float32)


cholesky_p = factorisation(
    "cholesky",
    lambda m, n, dtype: [((n, n), dtype)],
    _cholesky_eval,
    _cholesky_jvp,
    (
        Sample((_f32(3, 3),), {}),
        Sample((_f32(2, 4, 4),), {}),
        Sample((_f32(0, 0),), {}),
        Sample((ShapedArray((3, 3), dt.complex64),), {}),
    ),
    square=True,
)


# ---- triangular_solve


def triangular_solve(
    a: Value,
    b: Value,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Value:
    """The x with op(a) x = b (`left_side`) or x op(a) = b, for triangular `a`.

    Shapes: a (..., n, n); b (..., n, k), or (..., k, n) on the right; leading axes are equal. A
    vector b is (..., n). Only the named triangle of `a` is read; op transposes and conjugates.

    >>> import numpy as np
    >>> a = np.array([[2.0, 0.0], [1.0, 1.0]], np.float32)
    >>> triangular_solve(a, np.array([[2.0], [3.0]], np.float32), left_side=True, lower=True)
    Array([[1.],
           [2.]], dtype=float32)
    """
    a, b = promote_values(a, b, operation="triangular_solve")
    vector = len(shape_of(b)) == len(shape_of(a)) - 1
    if vector:
        b = expand_dims(b, (len(shape_of(b)) - (not left_side),))
    (out,) = apply(
        triangular_solve_p,
        a,
        b,
        left_side=bool(left_side),
        lower=bool(lower),
        transpose_a=bool(transpose_a),
        conjugate_a=bool(conjugate_a) and dt.is_complex(aval_of(a).dtype),
        unit_diagonal=bool(unit_diagonal),
    )
    return squeeze(out, (len(shape_of(b)) - 1 - (not left_side),)) if vector else out


def _solve_aval(a: ShapedArray, b: ShapedArray, **p: Any) -> tuple[ShapedArray, ...]:
    name = "triangular_solve"
    check_matrix(name, a, square=True)
    check_matrix(name, b)
    check_same_dtypes(name, (a, b))
    inner = b.shape[-2] if p["left_side"] else b.shape[-1]
    if not same_shape((*a.shape[:-2], a.shape[-1]), (*b.shape[:-2], inner)):
        raise ShapeError(
            operation=name,
            required="a (..., n, n) and b (..., n, k), or (..., k, n) on the right side",
            got=f"a {a}, b {b}, left_side={p['left_side']}",
            fix="check left_side, and broadcast the leading axes",
        )
    return (ShapedArray(b.shape, b.dtype, all_weak(a, b)),)


@silent
def _solve_eval(a: NDArray, b: NDArray, **p: Any) -> tuple[NDArray]:
    if not b.size:
        return (np.zeros(b.shape, b.dtype),)
    if p["conjugate_a"] and not p["transpose_a"]:
        a = np.conj(a)
    (solve,) = lapack().get_blas_funcs(("trsm",), (a, b))
    op = (2 if p["conjugate_a"] else 1) if p["transpose_a"] else 0

    def one(x: NDArray, y: NDArray) -> NDArray:
        return solve(
            1.0, x, y, side=int(not p["left_side"]), lower=int(p["lower"]), trans_a=op,
            diag=int(p["unit_diagonal"]),
        )  # fmt: skip

    return (np.stack(each(one, a, b)).reshape(b.shape).astype(b.dtype, copy=False),)


def _solve_jvp(primals: Sequence[Value], ts: Tangents, **p: Any) -> Jvp:
    """op(a) x = b: op(a) x' = b' - op(a') x."""
    a, b = primals
    (x,) = triangular_solve_p.bind(a, b, **p)
    right = ts[1]
    if ts[0] is not None:
        moved = _triangle(ts[0], p["lower"], p["unit_diagonal"])
        if p["transpose_a"]:
            moved = transposed(moved)
        moved = conjugate(moved) if p["conjugate_a"] else moved
        change = neg(matmul(moved, x) if p["left_side"] else matmul(x, moved))
        right = change if right is None else add(right, change)
    if right is None:
        return (x,), (None,)
    return (x,), triangular_solve_p.bind(a, right, **p)


def _triangle(x: Value, lower: bool, strict: bool) -> Value:
    return tril(x, -int(strict)) if lower else triu(x, int(strict))


def _solve_transpose(cts: Tangents, inputs: Sequence[Any], **p: Any) -> Tangents:
    (ct,), (a, b) = cts, inputs
    if ct is None or not isinstance(b, Linear):
        return None, None
    return None, triangular_solve_p.bind(a, ct, **{**p, "transpose_a": not p["transpose_a"]})[0]


def _solve_batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, **p: Any) -> Batched:
    return triangular_solve_p.bind(*each_batch_first(args, dims, axis.size), **p), (0,)


def _solve_form(a: ShapedArray, b: ShapedArray, **p: Any) -> Form:
    return Opaque("triangular_solve runs in BLAS")


def _case(a: ShapedArray, b: ShapedArray, **changes: bool) -> Sample:
    names = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    return Sample((a, b), {n: changes.get(n, False) for n in names})


_C33, _C32 = (ShapedArray(s, dt.complex64) for s in ((3, 3), (3, 2)))

triangular_solve_p = Primitive(
    "triangular_solve",
    aval=_solve_aval,
    eval=_solve_eval,
    form=_solve_form,
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    batch=_solve_batch,
    samples=(
        _case(_f32(3, 3), _f32(3, 2), left_side=True, lower=True),
        _case(_f32(3, 3), _f32(2, 3), unit_diagonal=True),
        _case(_f32(2, 3, 3), _f32(2, 3, 1), left_side=True, transpose_a=True),
        _case(_f32(2, 3, 3), _f32(2, 4, 3), lower=True, transpose_a=True),
        _case(_C33, _C32, left_side=True, lower=True, transpose_a=True, conjugate_a=True),
        _case(_C33, _C32, left_side=True, conjugate_a=True),
        _case(_f32(0, 0), _f32(0, 2), left_side=True),
        _case(_f32(2, 2), _f32(0, 2)),
    ),
)
