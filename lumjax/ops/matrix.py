"""What factorisations share: matrices in the last two axes, and the record of one factorisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ShapeError
from lumjax.ops.checks import Batched, Dims, Jvp, NDArray, Shape, all_weak, check_dtype, silent
from lumjax.ops.compare import eq, ge
from lumjax.ops.contract import dot_general
from lumjax.ops.elementwise import add, mul, select
from lumjax.ops.layout import broadcast_in_dim, reduce_sum, shape_of, transpose, zeros
from lumjax.ops.parts import conj
from lumjax.ops.view import batch_first, broadcasted_iota
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Sample, Value, aval_of
from lumjax.trace.dim import same
from lumjax.trace.form import Form, Opaque

Tangents: TypeAlias = Sequence[Value | None]
Outputs: TypeAlias = Sequence[tuple[Shape, dt.DType]]

SINGLE_OR_DOUBLE = (dt.float32, dt.float64, dt.complex64, dt.complex128)


@cache
def lapack() -> ModuleType:
    """scipy.linalg, loaded on first use."""
    import scipy.linalg  # noqa: PLC0415

    return scipy.linalg


# ---- matrices in the last two axes


def matmul(x: Value, y: Value) -> Value:
    """The product of matrices with equal leading axes."""
    rank = len(shape_of(x))
    lead = tuple(range(rank - 2))
    return dot_general(x, y, (((rank - 1,), (rank - 2,)), (lead, lead)))


def transposed(x: Value) -> Value:
    """The last two axes exchanged."""
    rank = len(shape_of(x))
    return transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def adjoint(x: Value) -> Value:
    """The conjugate transpose."""
    return transposed(conjugate(x))


def conjugate(x: Value) -> Value:
    """The conjugate; real arrays as they are."""
    return conj(x) if dt.is_complex(aval_of(x).dtype) else x


def hermitian(x: Value) -> Value:
    """(x + x^H) / 2."""
    return mul(add(x, adjoint(x)), 0.5)


def lower_mask(shape: Shape, offset: int = 0) -> Value:
    """Where row + offset >= column."""
    rank = len(shape)
    rows = broadcasted_iota(dt.int32, shape, rank - 2)
    columns = broadcasted_iota(dt.int32, shape, rank - 1)
    return ge(add(rows, np.int32(offset)), columns)


def diagonal_mask(shape: Shape) -> Value:
    """Where row = column."""
    rank = len(shape)
    rows = broadcasted_iota(dt.int32, shape, rank - 2)
    return eq(rows, broadcasted_iota(dt.int32, shape, rank - 1))


def tril(x: Value, offset: int = 0) -> Value:
    """The part on and below the diagonal `offset`."""
    shape = shape_of(x)
    return select(lower_mask(shape, offset), x, zeros(shape, aval_of(x).dtype))


def triu(x: Value, offset: int = 0) -> Value:
    """The part on and above the diagonal `offset`."""
    shape = shape_of(x)
    return select(lower_mask(shape, offset - 1), zeros(shape, aval_of(x).dtype), x)


def diagonal_part(x: Value) -> Value:
    """The diagonals of square matrices."""
    shape = shape_of(x)
    kept = select(diagonal_mask(shape), x, zeros(shape, aval_of(x).dtype))
    return reduce_sum(kept, (len(shape) - 1,))


def spread(x: Value, size: Any, axis: int) -> Value:
    """Vectors (..., n) as matrices: repeated along a new axis -1 or -2."""
    shape = shape_of(x)
    rank = len(shape)
    if axis == -1:
        return broadcast_in_dim(x, (*shape, size), tuple(range(rank)))
    return broadcast_in_dim(x, (*shape[:-1], size, shape[-1]), (*range(rank - 1), rank))


# ---- records


def check_matrix(operation: str, x: ShapedArray, square: bool = False) -> None:
    """Raise unless `x` holds matrices of a dtype that LAPACK has."""
    check_dtype(operation, x, x.dtype in SINGLE_OR_DOUBLE, "matrices of single or double precision")
    if x.ndim < 2 or (square and not same(x.shape[-1], x.shape[-2])):
        raise ShapeError(
            operation=operation,
            required=f"an array of {'square ' if square else ''}matrices, (..., m, n)",
            got=str(x),
            fix="give it at least two axes; the last two are the matrix",
        )


def each(function: Callable[..., Any], *operands: NDArray) -> list[tuple[Any, ...]]:
    """`function` of each matrix of operands with equal leading axes."""
    lead = operands[0].shape[:-2]
    flat = [x.reshape(-1, *x.shape[-2:]) for x in operands]
    count = int(np.prod(lead, dtype=np.int64))
    return [function(*[x[k] for x in flat]) for k in range(count)]


def factorisation(
    name: str,
    outputs: Callable[..., Outputs],
    evaluate: Callable[..., Sequence[NDArray]],
    derivative: Callable[..., Jvp],
    samples: tuple[Sample, ...],
    square: bool = False,
) -> Primitive:
    """The record of a function of matrices that LAPACK computes; leading axes are mapped.

    outputs(m, n, dtype, **params) gives the trailing shape and dtype of each result,
    derivative(x, t, **params) the results and their tangents.
    """

    def aval(x: ShapedArray, **params: Any) -> tuple[ShapedArray, ...]:
        check_matrix(name, x, square)
        *lead, m, n = x.shape
        return tuple(
            [
                ShapedArray((*lead, *shape), dtype, all_weak(x))
                for shape, dtype in outputs(m, n, x.dtype, **params)
            ]
        )

    @silent
    def run(x: NDArray, **params: Any) -> tuple[NDArray, ...]:
        *lead, m, n = x.shape
        wanted = outputs(m, n, x.dtype, **params)
        outs = evaluate(x, **params)
        return tuple(
            [
                np.asarray(o, dtype).reshape((*lead, *shape))
                for o, (shape, dtype) in zip(outs, wanted, strict=True)
            ]
        )

    def jvp(primals: Sequence[Value], ts: Tangents, **params: Any) -> Jvp:
        if ts[0] is None:
            outs = primitive.bind(*primals, **params)
            return outs, (None,) * len(outs)
        return derivative(primals[0], ts[0], **params)

    def batch(axis: MappedAxis, args: Sequence[Value], dims: Dims, **params: Any) -> Batched:
        outs = primitive.bind(batch_first(args[0], dims[0], axis.size), **params)
        return outs, (0,) * len(outs)

    def form(x: ShapedArray, **params: Any) -> Form:
        return Opaque(f"{name} runs in LAPACK")

    primitive = Primitive(
        name, aval=aval, eval=run, form=form, jvp=jvp, batch=batch, samples=samples
    )
    return primitive
