"""What the operation files share: checks of arguments, checked binding, the jvp rule of moves."""

from __future__ import annotations

import contextvars
import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConcretizationError,
    DTypeError,
    ShapeError,
)
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Primitive, Tracer, Value, aval_of, traced
from lumjax.trace.dim import Dim, Expr

NDArray: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[Dim, ...]
Dims: TypeAlias = Sequence[int | None]
Batched: TypeAlias = tuple[Sequence[Value], Sequence[int | None]]
Jvp: TypeAlias = tuple[Sequence[Value], Sequence[Value | None]]


class Quiet(threading.local):
    """Runs a function with floating-point warnings off. Entering `np.errstate` would cost 2 us per
    operation.
    """

    def __init__(self) -> None:
        context = contextvars.Context()
        context.run(np.seterr, all="ignore")
        self.run = context.run


quiet = Quiet()


def silent(evaluate: Callable[..., tuple[NDArray, ...]]) -> Callable[..., tuple[NDArray, ...]]:
    """`evaluate` with floating-point warnings off."""

    @wraps(evaluate)
    def run(*args: NDArray, **params: Any) -> tuple[NDArray, ...]:
        return quiet.run(evaluate, *args, **params)

    return run


@lru_cache(maxsize=8192)
def _check(prim: Primitive, avals: tuple[ShapedArray, ...], params: tuple[Any, ...]) -> None:
    """Run the aval rule once for each combination; what raises is not remembered."""
    prim.aval(*avals, **dict(params))


def apply(prim: Primitive, *args: Value, **params: Any) -> tuple[Value, ...]:
    """Check the operands by the aval rule, then bind: evaluation by itself does not check."""
    _check(prim, tuple([aval_of(a) for a in args]), tuple(params.items()))
    return prim.bind(*args, **params)


def all_weak(*avals: ShapedArray) -> bool:
    """Whether a result of these operands is weak: every operand is."""
    return all(a.weak for a in avals)


def text(values: Iterable[Any]) -> str:
    """A tuple as errors print it."""
    return f"({', '.join(map(str, values))})"


def static_int(operation: str, what: str, value: Any) -> int:
    """`value` as a Python int; tracers and floats raise."""
    if isinstance(value, Tracer):
        raise ConcretizationError(
            operation=operation,
            required=f"a static integer as {what}",
            got=traced(value),
            fix="mark the argument static, or use the dynamic operation (dynamic_slice, gather)",
        )
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(
            operation=operation,
            required=f"an integer as {what}",
            got=f"{value!r} of type {type(value).__name__}",
            fix="pass a Python integer",
        ) from None


def static_dims(operation: str, what: str, values: Any) -> Shape:
    """Static integers or symbolic dims as a tuple; one integer counts as a sequence of one."""
    if isinstance(values, Expr) or not isinstance(values, Iterable):
        values = (values,)
    return tuple(
        [
            v if type(v) is int or isinstance(v, Expr) else static_int(operation, what, v)
            for v in values
        ]
    )


def static_ints(operation: str, what: str, values: Any) -> tuple[int, ...]:
    """A sequence of static integers as a tuple."""
    return tuple([static_int(operation, what, v) for v in values])


def check_sizes(operation: str, shape: Shape) -> None:
    """Raise unless every size is nonnegative."""
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ShapeError(
            operation=operation,
            required="sizes that are not negative",
            got=text(shape),
            fix="check the arithmetic that produced the sizes",
        )


def check_length(operation: str, what: str, values: Sequence[Any], length: int) -> None:
    """Raise unless `values` has one entry per axis."""
    if len(values) != length:
        raise ShapeError(
            operation=operation,
            required=f"{length} {what}, one for each axis",
            got=f"{len(values)}: {text(values)}",
            fix=f"give {what} for every axis",
        )


def canonical_axis(operation: str, axis: Any, ndim: int) -> int:
    """A nonnegative axis; raises outside [-ndim, ndim)."""
    found = static_int(operation, "axis", axis)
    if not -ndim <= found < ndim:
        raise ArgumentValueError(
            operation=operation,
            required=f"an axis in [{-ndim}, {ndim}) for an operand with {ndim} axes",
            got=str(found),
            fix="choose an axis that the operand has",
        )
    return found + ndim if found < 0 else found


def canonical_axes(operation: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Sorted, distinct, nonnegative axes; None means all."""
    if axes is None:
        return tuple(range(ndim))
    if type(axes) is tuple and len(axes) == 1 and type(axes[0]) is int and 0 <= axes[0] < ndim:
        return axes
    found = [
        canonical_axis(operation, a, ndim)
        for a in (axes if isinstance(axes, Iterable) else (axes,))
    ]
    check_distinct(operation, "axes", found)
    return tuple(sorted(found))


def check_distinct(operation: str, what: str, values: Sequence[int]) -> None:
    """Raise unless the values are distinct."""
    if len(set(values)) != len(values):
        raise ArgumentValueError(
            operation=operation,
            required=f"distinct {what}",
            got=text(values),
            fix="name each of them once",
        )


def check_dtype(operation: str, aval: ShapedArray, ok: bool, required: str) -> None:
    """Raise a DTypeError unless `ok`."""
    if not ok:
        raise DTypeError(
            operation=operation,
            required=required,
            got=str(aval),
            fix="convert the operand with astype first",
        )


def check_same_dtypes(operation: str, avals: Sequence[ShapedArray]) -> None:
    """Raise unless all operands have one dtype."""
    if any(a.dtype != avals[0].dtype for a in avals):
        raise DTypeError(
            operation=operation,
            required="operands of one dtype",
            got=text(avals),
            fix="convert them to a common dtype first",
        )


def check_indices(operation: str, aval: ShapedArray) -> None:
    """Raise unless the dtype is an integer."""
    check_dtype(operation, aval, dt.is_integer(aval.dtype), "integer indices")


def linear_jvp(f: Callable[..., Value]) -> Callable[..., Jvp]:
    """The jvp rule of an operation that is linear in its one operand; `f` is its wrapper."""

    def jvp(primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Jvp:
        (x,), (t,) = primals, tangents
        return (f(x, **params),), (None if t is None else f(t, **params),)

    return jvp
