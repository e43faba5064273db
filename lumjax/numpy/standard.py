"""Names of the Array API standard and of NumPy 2 that reduce to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.numpy.creation import asarray
from lumjax.numpy.linear import matmul
from lumjax.numpy.manipulation import concatenate, split
from lumjax.numpy.reductions import cumprod, cumsum, summable
from lumjax.numpy.scalars import ScalarType
from lumjax.trace.core import aval_of

ArrayLike = Any


def _with_initial(
    f: Any, start: int, name: str, x: ArrayLike, axis: int | None, dtype: Any, initial: bool
) -> Any:
    value = summable(x, dtype)
    rank = aval_of(value).ndim
    if axis is None and rank > 1:
        raise ArgumentValueError(
            operation=f"jnp.{name}", required="an axis for an array with several",
            got="None", fix="name the axis",
        )  # fmt: skip
    place = ops.canonical_axis(f"jnp.{name}", 0 if axis is None else axis, rank)
    out = f(value, place, dtype)
    if not initial:
        return out
    shape: Any = list(aval_of(out).shape)
    shape[place] = 1
    return concatenate([ops.full(shape, start, aval_of(out).dtype), out], axis=place)


def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Running sums along an axis, after a 0 with `include_initial`; narrow integers widen.

    >>> cumulative_sum(asarray([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    return _with_initial(cumsum, 0, "cumulative_sum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Running products along an axis, after a 1 with `include_initial`. Narrow integers widen, as
    in prod.
    """
    return _with_initial(cumprod, 1, "cumulative_prod", x, axis, dtype, include_initial)


def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Matrices (..., m, n) times vectors (..., n).

    >>> matvec(asarray([[1, 2], [3, 4]]), asarray([1, 1])).tolist()
    [3, 7]
    """
    return matmul(x1, asarray(x2)[..., None])[..., 0]


def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Conjugated vectors (..., m) times matrices (..., m, n)."""
    left = asarray(x1)
    left = ops.conj(left) if dt.is_complex(aval_of(left).dtype) else left
    return matmul(left[..., None, :], x2)[..., 0, :]


def dsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Any]:
    """An array split along its third axis."""
    if aval_of(asarray(ary)).ndim < 3:
        raise ShapeError(
            operation="jnp.dsplit", required="at least three axes",
            got=str(aval_of(asarray(ary))), fix="use split with an axis",
        )  # fmt: skip
    return split(ary, indices_or_sections, axis=2)


def einsum_path(
    subscripts: Any, /, *operands: Any, optimize: Any = "auto"
) -> tuple[list[tuple[int, ...]], str]:
    """The order in which NumPy would contract the operands, and a text about it."""
    arrays = [_stand_in(x) for x in (subscripts, *operands)]
    found = np.einsum_path(*arrays, optimize="greedy" if optimize == "auto" else optimize)
    return found[0][1:], found[1]


def _stand_in(x: Any) -> Any:
    """An array of the operand's shape that takes no memory."""
    if isinstance(x, (str, list, tuple)):
        return x
    shape: Any = aval_of(x).shape
    return np.broadcast_to(np.zeros((), np.float32), shape)


_KINDS = {
    "bool": dt.is_bool,
    "signed integer": dt.is_signed,
    "unsigned integer": dt.is_unsigned,
    "integral": dt.is_integer,
    "real floating": dt.is_floating,
    "complex floating": dt.is_complex,
    "numeric": lambda d: dt.is_integer(d) or dt.is_inexact(d),
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: "bool", "signed integer", "unsigned integer", "integral",
    "real floating", "complex floating", "numeric", a dtype, or a tuple of those.

    >>> isdtype(np.float32, "real floating"), isdtype(np.int8, ("bool", np.int8))
    (True, True)
    """
    own = np.dtype(dtype.dtype if isinstance(dtype, ScalarType) else dtype)
    options: Sequence[Any] = kind if isinstance(kind, tuple) else (kind,)
    for option in options:
        if isinstance(option, str) and option in _KINDS:
            if _KINDS[option](own):
                return True
            continue
        try:
            wanted = np.dtype(option.dtype if isinstance(option, ScalarType) else option)
        except TypeError:
            raise ArgumentValueError(
                operation="jnp.isdtype", required=f"a dtype, or one of {', '.join(_KINDS)}",
                got=repr(option), fix="choose one of these",
            ) from None  # fmt: skip
        if own == wanted:
            return True
    return False
