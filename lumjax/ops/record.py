"""What every elementwise record is made of: accepted dtypes, and the aval, batch and form rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import DTypeError, ShapeError
from lumjax.ops.checks import quiet as quiet
from lumjax.ops.layout import broadcast_in_dim, transpose
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Value, aval_of
from lumjax.trace.dim import Dim, same_shape
from lumjax.trace.form import Expand, Form, Map, Opaque, ScalarOp

NDArray: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[Dim, ...]
JvpResult: TypeAlias = tuple[Sequence[Value], Sequence[Value | None]]

# ---- what operands an operation takes


@record
class Accepts:
    """The dtypes that an operation takes, and how its errors say so."""

    required: str
    dtypes: frozenset[dt.DType]

    def check(self, operation: str, aval: ShapedArray) -> None:
        """Raise unless the operand's dtype is one of them."""
        if aval.dtype not in self.dtypes:
            raise DTypeError(
                operation=operation,
                required=f"operands of {self.required} dtype",
                got=str(aval),
                fix="convert the operand with astype first",
            )


_BOOL = frozenset({dt.bool_})
FLOATS = Accepts("a real floating", frozenset(dt.FLOATING))
INEXACT = Accepts("a floating or complex", frozenset(dt.INEXACT))
COMPLEX = Accepts("a complex", frozenset(dt.COMPLEX))
INTEGERS = Accepts("an integer", frozenset(dt.INTEGER))
REALS = Accepts("an integer or floating", frozenset(dt.INTEGER + dt.FLOATING))
NUMBERS = Accepts("an integer, floating or complex", frozenset(dt.INTEGER + dt.INEXACT))
BITS = Accepts("a bool or integer", frozenset(dt.INTEGER) | _BOOL)
ORDERED = Accepts("a bool, integer or floating", frozenset(dt.INTEGER + dt.FLOATING) | _BOOL)
NUMERIC = Accepts("a bool, integer, floating or complex", frozenset(dt.NUMERIC))
ANY = Accepts("a numeric or key", frozenset(dt.NUMERIC) | {dt.key})


# ---- evaluation


_WIDER = {
    dt.float16: dt.float64,
    dt.bfloat16: dt.float64,
    dt.float32: dt.float64,
    dt.complex64: dt.complex128,
}


def widened(function: Callable[..., Any]) -> Callable[..., NDArray]:
    """`function` computed in float64 (complex128) and rounded once: accurate to the last bit in
    float32.
    """

    def run(x: NDArray, *rest: NDArray) -> NDArray:
        dtype = x.dtype
        wide = _WIDER.get(dtype)
        if wide is None:
            return function(x, *rest)
        if not rest:
            return function(x.astype(wide)).astype(dtype)
        return function(x.astype(wide), *[y.astype(wide) for y in rest]).astype(dtype)

    return run


# ---- rules


def same_dtype(dtype: dt.DType) -> dt.DType:
    """The result's dtype where it is the operands'."""
    return dtype


def to_bool(dtype: dt.DType) -> dt.DType:
    """The result's dtype of a predicate."""
    return dt.bool_


def real_part(dtype: dt.DType) -> dt.DType:
    """The dtype of the real part of a value."""
    return {dt.complex64: dt.float32, dt.complex128: dt.float64}.get(dtype, dtype)


def check_shapes(name: str, avals: Sequence[ShapedArray]) -> None:
    """Raise unless the operands have one shape."""
    if not all(same_shape(a.shape, avals[0].shape) for a in avals[1:]):
        raise ShapeError(
            operation=name,
            required="operands of one shape",
            got=" and ".join(map(str, avals)),
            fix="broadcast the operands first",
        )


def aval_rule(
    name: str, accepts: Accepts, result: Callable[[dt.DType], dt.DType]
) -> Callable[..., tuple[ShapedArray, ...]]:
    """The aval rule of an operation on operands of one shape and dtype."""

    def aval(*avals: ShapedArray, **_: Any) -> tuple[ShapedArray, ...]:
        first = avals[0]
        accepts.check(name, first)
        check_shapes(name, avals)
        if any(a.dtype != first.dtype for a in avals[1:]):
            raise DTypeError(
                operation=name,
                required="operands of one dtype",
                got=" and ".join(map(str, avals)),
                fix="convert them to a common dtype first",
            )
        return (ShapedArray(first.shape, result(first.dtype), all(a.weak for a in avals)),)

    return aval


def batch_rule(primitive: Callable[[], Primitive]) -> Callable[..., Any]:
    """The batch rule of an operation that works element by element: line the mapped axes up."""

    def batch(
        axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        at = next((d for d in dims if d is not None), 0)
        outs = primitive().bind(
            *[map_at(a, d, at, axis.size) for a, d in zip(args, dims, strict=True)], **params
        )
        return outs, (at,) * len(outs)

    return batch


def map_at(x: Value, dim: int | None, at: int, size: Dim) -> Value:
    """`x` with its mapped axis (a new one if `dim` is None) at position `at`."""
    if dim == at:
        return x
    shape = aval_of(x).shape
    if dim is None:
        axes = [k for k in range(len(shape) + 1) if k != at]
        return broadcast_in_dim(x, (*shape[:at], size, *shape[at:]), axes)
    order = [k for k in range(len(shape)) if k != dim]
    return transpose(x, (*order[:at], dim, *order[at:]))


def form_rule(op: ScalarOp, form: Form | None) -> Callable[..., Form]:
    """The form of an operation: `op` on real numbers; complex numbers and keys run in NumPy."""
    compiled = Map(op) if form is None else form
    opaque = Opaque(f"{op.name} of complex numbers or keys runs in NumPy")

    def rule(*avals: ShapedArray, **_: Any) -> Form:
        plain = all(a.dtype in ORDERED.dtypes for a in avals)
        return compiled if plain or isinstance(form, Expand) else opaque

    return rule


def sample_avals(accepts: Accepts) -> list[dt.DType]:
    """One dtype of each kind that an operation takes."""
    return [
        d for d in (dt.float32, dt.int32, dt.uint8, dt.bool_, dt.complex64) if d in accepts.dtypes
    ]
