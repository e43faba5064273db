"""tridiagonal_solve, by LAPACK's elimination with partial pivoting."""

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
    check_dtype,
    check_same_dtypes,
    silent,
)
from lumjax.ops.elementwise import add, mul, neg, promote_values
from lumjax.ops.layout import expand_dims, shape_of, zeros
from lumjax.ops.matrix import SINGLE_OR_DOUBLE, Tangents, lapack
from lumjax.ops.view import concatenate, each_batch_first
from lumjax.ops.view import slice as cut
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, Primitive, Sample, Value, aval_of
from lumjax.trace.dim import same_shape
from lumjax.trace.form import Form, Opaque


def tridiagonal_solve(dl: Value, d: Value, du: Value, b: Value) -> Value:
    """The x with A x = b, where A[i, i] = d[i], A[i, i-1] = dl[i] and A[i, i+1] = du[i].

    Shapes: dl, d, du (..., m), b (..., m, n); dl[0] and du[m-1] are not read. A singular A gives
    NaN.

    >>> import numpy as np
    >>> one = np.ones(2, np.float32)
    >>> tridiagonal_solve(one, 2 * one, one, np.array([[3.0], [3.0]], np.float32)).tolist()
    [[1.0], [1.0]]
    """
    operands = promote_values(dl, d, du, b, operation="tridiagonal_solve")
    return apply(tridiagonal_solve_p, *operands)[0]


def _aval(*avals: ShapedArray) -> tuple[ShapedArray, ...]:
    name = "tridiagonal_solve"
    dl, d, du, b = avals
    for x in avals:
        check_dtype(name, x, x.dtype in SINGLE_OR_DOUBLE, "operands of single or double precision")
    check_same_dtypes(name, avals)
    diagonals = all(same_shape(x.shape, d.shape) for x in (dl, du))
    if not (d.ndim and diagonals and b.ndim == d.ndim + 1 and same_shape(b.shape[:-1], d.shape)):
        raise ShapeError(
            operation=name,
            required="three diagonals (..., m) and b (..., m, n)",
            got=", ".join(map(str, avals)),
            fix="broadcast the leading axes, and give a vector b an axis of size 1",
        )
    return (ShapedArray(b.shape, b.dtype, all_weak(*avals)),)


@silent
def _eval(dl: NDArray, d: NDArray, du: NDArray, b: NDArray) -> tuple[NDArray]:
    out = np.empty(b.shape, b.dtype)
    if not out.size:
        return (out,)
    (solve,) = lapack().get_lapack_funcs(("gtsv",), (d, b))
    for place in np.ndindex(d.shape[:-1]):
        rest = dl[place][1:], d[place], du[place][:-1], b[place]
        if d.shape[-1] == 1:  # LAPACK's interface refuses empty diagonals
            out[place] = b[place] / d[place] if d[place] else np.nan
            continue
        *_, x, info = solve(*rest)
        out[place] = x if info == 0 else np.nan
    return (out,)


def _moved(x: Value, axis: int, by: int) -> Value:
    """`x` moved by one place along an axis, 0 where nothing comes."""
    shape = shape_of(x)
    if not shape[axis]:
        return x
    zero = zeros((*shape[:axis], 1, *shape[axis + 1 :]), aval_of(x).dtype)
    starts, limits = [0] * len(shape), [*shape]
    if by > 0:
        limits[axis] -= 1
        return concatenate([zero, cut(x, starts, limits)], axis)
    starts[axis] = 1
    return concatenate([cut(x, starts, limits), zero], axis)


def _product(diagonals: Sequence[Value | None], x: Value) -> Value:
    """The matrix of three diagonals, some of them zero, times x."""
    row = len(shape_of(x)) - 2
    total = zeros(shape_of(x), aval_of(x).dtype)
    for diagonal, by in zip(diagonals, (1, 0, -1), strict=True):
        if diagonal is not None:
            moved = _moved(x, row, by) if by else x
            total = add(total, mul(expand_dims(diagonal, (row + 1,)), moved))
    return total


def _jvp(primals: Sequence[Value], ts: Tangents) -> Jvp:
    """A x = b: A x' = b' - A' x."""
    (x,) = tridiagonal_solve_p.bind(*primals)
    right = ts[3]
    if any(t is not None for t in ts[:3]):
        change = neg(_product(ts[:3], x))
        right = change if right is None else add(right, change)
    if right is None:
        return (x,), (None,)
    return (x,), tridiagonal_solve_p.bind(*primals[:3], right)


def _transpose(cts: Tangents, inputs: Sequence[Any]) -> Tangents:
    (ct,), (dl, d, du, b) = cts, inputs
    if ct is None or not isinstance(b, Linear):
        return None, None, None, None
    last = len(shape_of(d)) - 1
    low, up = _moved(du, last, 1), _moved(dl, last, -1)
    return None, None, None, tridiagonal_solve_p.bind(low, d, up, ct)[0]


def _batch(axis: MappedAxis, args: Sequence[Value], dims: Dims) -> Batched:
    return tridiagonal_solve_p.bind(*each_batch_first(args, dims, axis.size)), (0,)


def _form(*avals: ShapedArray) -> Form:
    return Opaque("tridiagonal_solve runs in LAPACK")


def _case(m: int, n: int, *lead: int, dtype: dt.DType = dt.float32) -> Sample:
    diagonal = ShapedArray((*lead, m), dtype)
    return Sample((diagonal, diagonal, diagonal, ShapedArray((*lead, m, n), dtype)), {})


tridiagonal_solve_p = Primitive(
    "tridiagonal_solve",
    aval=_aval,
    eval=_eval,
    form=_form,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    samples=(
        _case(4, 2),
        _case(3, 1, 2),
        _case(1, 2),
        _case(2, 0),
        _case(0, 2),
        _case(3, 2, dtype=dt.complex64),
    ),
)
