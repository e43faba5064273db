"""Python's operators on arrays: NumPy's meanings, with JAX's promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ShapeError
from lumjax.ops.arithmetic import abs, div, integer_pow, rem, round, sign
from lumjax.ops.compare import and_, eq, ge, gt, le, lt, ne, not_, or_, xor
from lumjax.ops.contract import dot_general
from lumjax.ops.elementwise import (
    add,
    asvalue,
    broadcast_shapes,
    broadcast_values,
    cast,
    mul,
    neg,
    promote_values,
    select,
    sub,
)
from lumjax.ops.integer import shift_left, shift_right_arithmetic, shift_right_logical
from lumjax.ops.layout import broadcast_in_dim, reshape, transpose
from lumjax.ops.parts import imag, real
from lumjax.ops.transcendental import pow
from lumjax.trace.array import Array
from lumjax.trace.core import Tracer, Value, aval_of
from lumjax.trace.dim import Expr

Method = Callable[..., Any]


def _dtype(x: Value) -> dt.DType:
    return aval_of(x).dtype


def _is_bool(x: Value) -> bool:
    return (x.data.dtype if type(x) is Array else _dtype(x)) == dt.bool_


def _is_complex(x: Value) -> bool:
    if type(x) is Array:
        return x.data.dtype.kind == "c"
    return isinstance(x, complex) or (
        not isinstance(x, (int, float)) and dt.is_complex(_dtype(asvalue(x)))
    )


def plus(x: Value, y: Value) -> Value:
    """The sum; bools combine by or."""
    if _is_bool(x):
        x, y = promote_values(x, y, operation="add")
        return or_(x, y) if _dtype(x) == dt.bool_ else add(x, y)
    return add(x, y)


def times(x: Value, y: Value) -> Value:
    """The product; bools combine by and."""
    if _is_bool(x):
        x, y = promote_values(x, y, operation="mul")
        return and_(x, y) if _dtype(x) == dt.bool_ else mul(x, y)
    return mul(x, y)


def promote_inexact(*values: Value, operation: str = "type promotion") -> list[Value]:
    """The values in one floating or complex dtype; integers and bools become float32 (float64 under
    x64 for
    64-bit integers).
    """
    values = tuple(promote_values(*values, operation=operation))
    aval = aval_of(values[0])
    if dt.is_inexact(aval.dtype):
        return list(values)
    wide = aval.dtype in (dt.int64, dt.uint64)
    weak = all(aval_of(v).weak for v in values)
    return [cast(v, dt.float64 if wide else dt.float32, weak) for v in values]


def true_divide(x: Value, y: Value) -> Value:
    """The quotient as floats."""
    if type(x) is Array and x.data.dtype.kind == "f":
        return div(x, y)
    return div(*promote_inexact(x, y, operation="div"))


def _numbers(x: Value, y: Value, operation: str) -> tuple[Value, Value]:
    """Both operands promoted and broadcast, bools as int32."""
    x, y = promote_values(x, y, operation=operation)
    if _dtype(x) == dt.bool_:
        x, y = cast(x, dt.int32), cast(y, dt.int32)
    x, y = broadcast_values(x, y, operation=operation)
    return x, y


def floor_divide(x: Value, y: Value) -> Value:
    """The quotient rounded down. Integers divided by zero give -1."""
    x, y = _numbers(x, y, "floor_divide")
    dtype = _dtype(x)
    if dt.is_unsigned(dtype):
        return div(x, y)
    rest = rem(x, y)
    if dt.is_integer(dtype):
        below = and_(and_(ne(lt(x, 0), lt(y, 0)), ne(rest, 0)), ne(y, 0))
        quotient = div(x, y)
        return select(below, sub(quotient, 1), quotient)
    off = and_(ne(rest, 0), ne(sign(y), sign(rest)))
    quotient = div(select(eq(y, 0), x, sub(x, rest)), y)  # by zero the quotient's infinity
    return round(select(off, sub(quotient, 1), quotient))


def remainder(x: Value, y: Value) -> Value:
    """The remainder with the sign of y. Integers modulo zero give 0."""
    x, y = _numbers(x, y, "remainder")
    if dt.is_integer(_dtype(x)):
        y = select(eq(y, 0), 1, y)
    rest = rem(x, y)
    if dt.is_unsigned(_dtype(x)):
        return rest
    off = and_(ne(lt(rest, 0), lt(y, 0)), ne(rest, 0))
    return select(off, add(rest, y), rest)


def divmod(x: Value, y: Value) -> tuple[Value, Value]:
    """(x // y, x % y)."""
    return floor_divide(x, y), remainder(x, y)


def power(x: Value, y: Value) -> Value:
    """Powers. A Python integer exponent means repeated multiplication."""
    if isinstance(y, (int, np.integer)) and not isinstance(y, (bool, np.bool_)):
        x = asvalue(x, "power")
        x = cast(x, dt.int32) if _dtype(x) == dt.bool_ else x
        return integer_pow(x, int(y))
    x, y = _numbers(x, y, "power")
    return pow(x, y)


def left_shift(x: Value, y: Value) -> Value:
    """A shift to the left."""
    return shift_left(*_numbers(x, y, "left_shift"))


def right_shift(x: Value, y: Value) -> Value:
    """A shift to the right: filling with the sign for signed integers, with zeros for unsigned
    ones.
    """
    x, y = _numbers(x, y, "right_shift")
    shift = shift_right_logical if dt.is_unsigned(_dtype(x)) else shift_right_arithmetic
    return shift(x, y)


def _ordering(operation: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """A comparison that orders complex numbers by real, then imaginary part, as NumPy does."""

    def compare(x: Value, y: Value) -> Value:
        if not _is_complex(x) and not _is_complex(y):
            return operation(x, y)
        x, y = promote_values(x, y, operation=operation.__name__)
        same = eq(real(x), real(y))
        return select(same, operation(imag(x), imag(y)), operation(real(x), real(y)))

    compare.__name__ = operation.__name__
    return compare


def absolute(x: Value) -> Value:
    """abs(x); bools and unsigned integers as they are."""
    return x if _dtype(x) == dt.bool_ else abs(x)


def matmul(x: Value, y: Value, precision: Any = None, preferred_element_type: Any = None) -> Value:
    """The matrix product: over the last axis of x and the last but one of y, batched over the axes
    before.
    """
    x, y = promote_values(x, y, operation="matmul")
    left, right = aval_of(x).shape, aval_of(y).shape
    if not left or not right:
        raise ShapeError(
            operation="matmul",
            required="operands with at least one axis",
            got=f"{aval_of(x)} and {aval_of(y)}",
            fix="use * to multiply by a scalar",
        )
    x = reshape(x, (1, *left)) if len(left) == 1 else x
    y = reshape(y, (*right, 1)) if len(right) == 1 else y
    a, b = aval_of(x).shape, aval_of(y).shape
    batch = broadcast_shapes(a[:-2], b[:-2], operation="matmul")
    if len(a) == 2 or len(b) == 2:  # one operand has no batch axes: a single contraction
        numbers = (((len(a) - 1,), (len(b) - 2,)), ((), ()))
        out = dot_general(x, y, numbers, precision, preferred_element_type)
        out = _matrix_last(out, len(a), len(b))
    else:
        rank, axes = len(batch), tuple(range(len(batch)))
        x, y = (_spread(v, batch) for v in (x, y))
        numbers = (((rank + 1,), (rank,)), (axes, axes))
        out = dot_general(x, y, numbers, precision, preferred_element_type)
    kept = (*(() if len(left) == 1 else a[-2:-1]), *(() if len(right) == 1 else b[-1:]))
    return reshape(out, (*batch, *kept)) if len(kept) < 2 else out


def _spread(x: Value, batch: tuple[Any, ...]) -> Value:
    shape = aval_of(x).shape
    rank = len(batch) + 2
    return broadcast_in_dim(x, (*batch, *shape[-2:]), range(rank - len(shape), rank))


def _matrix_last(out: Value, left: int, right: int) -> Value:
    """The product of an unbatched matrix and a batch has the matrix's rows first: move them behind
    the batch.
    """
    if right <= 2 or left != 2:
        return out
    batch = right - 2
    return transpose(out, (*range(1, batch + 1), 0, batch + 1))


# ---- methods

_OPERANDS = (Array, Tracer, bool, int, float, complex, np.ndarray, np.generic, Expr)
_NEVER = (
    list,
    tuple,
    dict,
    set,
    frozenset,
    str,
    bytes,
    type(None),
)  # types that lack our operators too


def _accepts(other: Any) -> bool:
    return isinstance(other, _OPERANDS) or hasattr(other, "__jax_array__")


def _infix(operation: Callable[[Value, Value], Any], reflected: bool = False) -> Method:
    def method(self: Value, other: Any) -> Any:
        if type(other) is not Array and not _accepts(other):
            if not isinstance(other, _NEVER):
                return NotImplemented  # another library's type may know what to do
            asvalue(other, operation.__name__)
        return operation(other, self) if reflected else operation(self, other)

    return method


def _equality(operation: Callable[[Value, Value], Any]) -> Method:
    def method(self: Value, other: Any) -> Any:
        if isinstance(other, (list, tuple)):
            asvalue(other, operation.__name__)
        return operation(self, other) if _accepts(other) else NotImplemented

    return method


def _power(self: Value, other: Any, modulo: None = None) -> Any:
    return _infix(power)(self, other) if modulo is None else NotImplemented


_BINARY: dict[str, Callable[[Value, Value], Any]] = {
    "add": plus,
    "sub": sub,
    "mul": times,
    "truediv": true_divide,
    "floordiv": floor_divide,
    "mod": remainder,
    "divmod": divmod,
    "pow": power,
    "matmul": matmul,
    "and": and_,
    "or": or_,
    "xor": xor,
    "lshift": left_shift,
    "rshift": right_shift,
}
OPERATORS: dict[str, Method] = {
    **{f"__{n}__": _infix(f) for n, f in _BINARY.items()},
    **{f"__r{n}__": _infix(f, reflected=True) for n, f in _BINARY.items()},
    "__pow__": _power,
    "__lt__": _infix(_ordering(lt)),
    "__le__": _infix(_ordering(le)),
    "__gt__": _infix(_ordering(gt)),
    "__ge__": _infix(_ordering(ge)),
    "__eq__": _equality(eq),
    "__ne__": _equality(ne),
    "__neg__": neg,
    "__pos__": lambda x: x,
    "__abs__": absolute,
    "__invert__": not_,
}
