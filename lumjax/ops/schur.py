"""sylvester and sqrtm, by LAPACK's Schur form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ShapeError
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
from lumjax.ops.elementwise import cast, neg, promote_values, sub
from lumjax.ops.matrix import (
    Outputs,
    Tangents,
    check_matrix,
    each,
    factorisation,
    lapack,
    matmul,
    transposed,
)
from lumjax.ops.view import each_batch_first
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, Primitive, Sample, Value, aval_of
from lumjax.trace.dim import same_shape
from lumjax.trace.form import Form, Opaque

# ---- sylvester


def sylvester(a: Value, b: Value, c: Value) -> Value:
    """The x with a x + x b = c; NaN where a and -b share an eigenvalue.

    Shapes: a (..., m, m), b (..., n, n), c (..., m, n) -> (..., m, n); leading axes are equal.

    >>> import numpy as np
    >>> one = np.ones((1, 1), np.float32)
    >>> sylvester(one, one, 4 * one)
    Array([[2.]], dtype=float32)
    """
    a, b, c = promote_values(a, b, c, operation="sylvester")
    return apply(sylvester_p, a, b, c)[0]


def _aval(a: ShapedArray, b: ShapedArray, c: ShapedArray) -> tuple[ShapedArray, ...]:
    check_matrix("sylvester", a, square=True)
    check_matrix("sylvester", b, square=True)
    check_matrix("sylvester", c)
    check_same_dtypes("sylvester", (a, b, c))
    lead, wanted = c.shape[:-2], (a.shape[-1], b.shape[-1])
    if not all(map(same_shape, (a.shape[:-2], b.shape[:-2], c.shape[-2:]), (lead, lead, wanted))):
        raise ShapeError(
            operation="sylvester",
            required="a (..., m, m), b (..., n, n) and c (..., m, n)",
            got=f"a {a}, b {b}, c {c}",
            fix="broadcast the leading axes",
        )
    return (ShapedArray(c.shape, c.dtype, all_weak(a, b, c)),)


def _solved(a: NDArray, b: NDArray, c: NDArray) -> NDArray:
    try:
        return lapack().solve_sylvester(a, b, c)
    except (np.linalg.LinAlgError, ValueError):  # no solution, or none found: NaN, infinities
        return np.full(c.shape, np.nan, c.dtype)


@silent
def _eval(a: NDArray, b: NDArray, c: NDArray) -> tuple[NDArray]:
    if not c.size:
        return (np.zeros(c.shape, c.dtype),)
    found = np.stack(each(_solved, a, b, c))
    return (found.reshape(c.shape).astype(c.dtype, copy=False),)


def _jvp(primals: Sequence[Value], ts: Tangents) -> Jvp:
    """The tangent solves a x' + x' b = c' - a' x - x b'."""
    a, b, _ = primals
    (x,) = sylvester_p.bind(*primals)
    right = ts[2]
    changes = [] if ts[0] is None else [matmul(ts[0], x)]
    changes += [] if ts[1] is None else [matmul(x, ts[1])]
    for change in changes:
        right = neg(change) if right is None else sub(right, change)
    return (x,), (None,) if right is None else sylvester_p.bind(a, b, right)


def _transpose(cts: Tangents, inputs: Sequence[Any]) -> Tangents:
    (ct,), (a, b, c) = cts, inputs
    if ct is None or not isinstance(c, Linear):
        return None, None, None
    return None, None, sylvester_p.bind(transposed(a), transposed(b), ct)[0]


def _batch(axis: MappedAxis, args: Sequence[Value], dims: Dims) -> Batched:
    return sylvester_p.bind(*each_batch_first(args, dims, axis.size)), (0,)


def _form(a: ShapedArray, b: ShapedArray, c: ShapedArray) -> Form:
    return Opaque("sylvester runs in LAPACK")


def _f32(*shape: int) -> ShapedArray:
    return ShapedArray(shape, dt.float32)


sylvester_p = Primitive(
    "sylvester",
    aval=_aval,
    eval=_eval,
    form=_form,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    samples=(
        Sample((_f32(3, 3), _f32(2, 2), _f32(3, 2)), {}),
        Sample((_f32(2, 2, 2), _f32(2, 1, 1), _f32(2, 2, 1)), {}),
        Sample(tuple([ShapedArray((2, 2), dt.complex64)] * 3), {}),
        Sample((_f32(0, 0), _f32(2, 2), _f32(0, 2)), {}),
    ),
)


# ---- sqrtm


def sqrtm(x: Value) -> Value:
    """The principal square root of square matrices, as complex ones.

    Shapes: (..., n, n) -> (..., n, n).
    """
    return apply(sqrtm_p, x)[0]


_WIDE = {dt.float32: dt.complex64, dt.float64: dt.complex128}


def _sqrtm_outputs(m: Any, n: Any, dtype: dt.DType) -> Outputs:
    return [((m, n), _WIDE.get(dtype, dtype))]


def _sqrtm_eval(x: NDArray) -> list[NDArray]:
    def one(a: NDArray) -> NDArray:
        return lapack().sqrtm(a) if np.isfinite(a).all() else np.full(a.shape, np.nan)

    wide = _WIDE.get(x.dtype, x.dtype)
    return [np.stack([np.asarray(r, wide) for r in each(one, x)]) if x.size else x.astype(wide)]


def _sqrtm_jvp(x: Value, t: Value) -> Jvp:
    """The root s has s s' + s' s = x'."""
    (root,) = sqrtm_p.bind(x)
    return (root,), (sylvester(root, root, cast(t, aval_of(root).dtype)),)


sqrtm_p = factorisation(
    "sqrtm",
    _sqrtm_outputs,
    _sqrtm_eval,
    _sqrtm_jvp,
    (
        Sample((_f32(3, 3),), {}),
        Sample((_f32(2, 2, 2),), {}),
        Sample((ShapedArray((2, 2), dt.complex64),), {}),
        Sample((_f32(0, 0),), {}),
    ),
    square=True,
)
