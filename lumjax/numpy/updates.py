"""x.at[index].set(y) and its relatives: a new array with some elements changed.

Out-of-range indices: a known index raises; a traced one is dropped, as in JAX. Duplicates are
applied in index order: the last `set` wins, `add` adds every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentTypeError, ShapeError
from lumjax.numpy.creation import asarray, broadcast_to
from lumjax.numpy.indexing import getitem, known_row, window
from lumjax.trace.array import Array
from lumjax.trace.core import EvalTrace, Tracer, aval_of, using
from lumjax.trace.dim import Expr, same

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda _, new: new, "add": ops.add, "mul": ops.mul, "min": ops.min, "max": ops.max,
}  # fmt: skip

_LARGEST = float(np.finfo(np.float32).max)
_OF_INTEGERS = (dt.float32, dt.int32)


def _number(value: Any, dtype: dt.DType) -> Any:
    """What NumPy assigns as `cast` converts it: a number of the dtype, or one to be rounded."""
    if type(value) is float:
        return value if dtype == np.float32 and -_LARGEST <= value <= _LARGEST else None
    if type(value) is int:
        return value if dtype in _OF_INTEGERS and -(2**31) <= value < 2**31 else None
    if type(value) is Array and not value.data.shape and value.data.dtype == dtype:
        return value.data
    return None


class At:
    """What `x.at` gives; index it, then say what to do.

    >>> asarray([1, 2, 3]).at[1].add(10)
    Array([ 1, 12,  3], dtype=int32)
    """

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> AtIndex:
        return AtIndex(self.array, index)


class AtIndex:
    """An array and an index into it."""

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any) -> None:
        self.array = array
        self.index = index

    def get(self, *, mode: str | None = None, fill_value: Any = None, **_: Any) -> Any:
        """x[index]; `mode` "fill", "clip" or "promise_in_bounds" says what is read outside."""
        return getitem(self.array, self.index, mode, fill_value)

    def set(self, values: Any, *, mode: str | None = None, **_: Any) -> Any:
        """`x` with x[index] = values."""
        return self._update("set", values, mode)

    def add(self, values: Any, *, mode: str | None = None, **_: Any) -> Any:
        """`x` with x[index] += values."""
        return self._update("add", values, mode)

    def subtract(self, values: Any, *, mode: str | None = None, **_: Any) -> Any:
        """`x` with x[index] -= values."""
        return self._update("add", ops.neg(asarray(values)), mode)

    def multiply(self, values: Any, *, mode: str | None = None, **_: Any) -> Any:
        """`x` with x[index] *= values."""
        return self._update("mul", values, mode)

    mul = multiply

    def divide(self, values: Any, *, mode: str | None = None, **_: Any) -> Any:
        """`x` with x[index] /= values."""
        ones = ops.full(aval_of(self.array).shape, 1, aval_of(self.array).dtype)
        return ops.div(self.array, AtIndex(ones, self.index)._update("mul", values, mode))

    def power(self, values: Any, *, mode: str | None = None, **_: Any) -> Any:
        """`x` with x[index] **= values."""
        ones = ops.full(aval_of(self.array).shape, 1, aval_of(self.array).dtype)
        return ops.pow(self.array, AtIndex(ones, self.index)._update("mul", values, mode))

    def min(self, values: Any, *, mode: str | None = None, **_: Any) -> Any:
        """`x` with x[index] = minimum(x[index], values)."""
        return self._update("min", values, mode)

    def max(self, values: Any, *, mode: str | None = None, **_: Any) -> Any:
        """`x` with x[index] = maximum(x[index], values)."""
        return self._update("max", values, mode)

    def apply(self, func: Callable[[Any], Any], *, mode: str | None = None, **_: Any) -> Any:
        """`x` with x[index] = func(x[index]); duplicates apply once."""
        return self._update("set", func(getitem(self.array, self.index, mode)), mode)

    def _update(self, kind: str, values: Any, mode: str | None) -> Any:
        x = self.array
        if type(self.index) is int and kind == "set" and mode is None and type(x) is Array:
            number = _number(values, x.data.dtype)
            place = None if number is None else known_row(x, self.index)
            if place is not None:
                changed = x.data.copy()
                changed[place] = number
                return Array(changed)
        x = asarray(x)
        aval = aval_of(x)
        y = asarray(values)
        if dt.is_complex(aval_of(y).dtype) and not dt.is_complex(aval.dtype):
            raise ArgumentTypeError(
                operation=f"x.at[...].{kind}",
                required=f"values that convert to {dt.short_name(aval.dtype)}",
                got=str(aval_of(y)),
                fix="take the real part first",
            )
        y = ops.cast(y, aval.dtype) if dt.is_numeric(aval.dtype) else y
        if type(self.index) is int and mode is None:
            place = known_row(x, self.index)
            if place is not None and type(y) is Array and y.shape in ((), x.shape[1:]):
                return self._row(kind, x, y, place)
        mask: Any = self.index
        is_mask = getattr(mask, "dtype", None) == np.bool_
        if is_mask and tuple(mask.shape) == tuple(aval.shape) and aval_of(y).size == 1:
            return self._masked(kind, x, asarray(mask), y)
        box = window(aval.shape, self.index) if mode is None else None
        return self._scatter(kind, x, y, mode) if box is None else self._boxed(kind, x, y, *box)

    def _row(self, kind: str, x: Array, y: Array, place: slice) -> Any:
        """One short row of an array that nobody watches."""
        row = Array(x.data[place].reshape(x.shape[1:]))
        changed = x.data.copy()
        changed[place] = _COMBINE[kind](row, y).data
        return Array(changed)

    def _masked(self, kind: str, x: Any, mask: Any, y: Any) -> Any:
        """A bool mask of the whole array and one value: a select, which works under jit."""
        whole = broadcast_to(ops.reshape(y, ()), aval_of(x).shape)
        return ops.select(mask, _COMBINE[kind](x, whole), x)

    def _boxed(self, kind: str, x: Any, y: Any, starts: Any, sizes: Any, kept: Any) -> Any:
        """Known integers and slices of step 1: one contiguous window, changed and put back."""
        values = ops.reshape(_fit(kind, y, tuple(sizes[k] for k in kept)), sizes)
        if kind != "set":
            stops = [n + m for n, m in zip(starts, sizes, strict=True)]
            values = _COMBINE[kind](ops.slice(x, starts, stops), values)
        places = [ops.dim_value(n) if isinstance(n, Expr) else n for n in starts]
        return ops.dynamic_update_slice(x, values, places)

    def _scatter(self, kind: str, x: Any, y: Any, mode: str | None) -> Any:
        """Every other index: number the elements, index the numbers, scatter into one axis."""
        aval = aval_of(x)
        size: Any = aval.size
        count: Any
        whole = _leading(self.index, aval.ndim)
        if whole is not None:
            rows = tuple(aval.shape[:whole])
            count, width = math.prod(rows), tuple(aval.shape[whole:])
        else:
            rows, count, width = tuple(aval.shape), size, ()
        index = self.index if whole is None else _without_tail(self.index, whole)
        nowhere: Any = count  # what is scattered there is dropped
        if isinstance(count, Expr):
            numbers: Any = ops.reshape(ops.iota(np.int32, count), rows)
            nowhere = np.iinfo(np.int32).max
        else:
            numbers = Array(np.arange(count, dtype=np.int32).reshape(rows))
        if isinstance(count, Expr) or any(isinstance(i, Tracer) for i in _flat(index)):
            places = getitem(numbers, index, _reading(mode), nowhere, checked=mode is None)
        else:
            with using(EvalTrace()):  # known now, also while a program is traced
                how = None if mode is None else _reading(mode)
                places = getitem(numbers, index, how, nowhere)
        shape = (*aval_of(places).shape, *width)
        values = _fit(kind, y, shape)
        flat = ops.reshape(x, (count, *width))
        places = ops.reshape(places, (aval_of(places).size, 1))
        values = ops.reshape(values, (aval_of(places).shape[0], *width))
        dims = ops.ScatterDimensionNumbers(
            update_window_dims=tuple(range(1, 1 + len(width))),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
        )
        if same(aval_of(values).size, 0) or same(size, 0):
            return x
        scatter = {
            "set": ops.scatter, "add": ops.scatter_add, "mul": ops.scatter_mul,
            "min": ops.scatter_min, "max": ops.scatter_max,
        }[kind]  # fmt: skip
        return ops.reshape(scatter(flat, places, values, dims, mode="fill"), aval.shape)


def _reading(mode: str | None) -> str:
    return "clip" if mode == "clip" else "fill"


def _flat(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _leading(index: Any, ndim: int) -> int | None:
    """How many leading axes the index uses when the rest are taken whole; None where that is
    unclear.
    """
    items = _flat(index)
    if any(i is None or i is Ellipsis for i in items):
        return None
    if any(getattr(i, "dtype", None) == np.bool_ or isinstance(i, (list, bool)) for i in items):
        return None
    used = len(items)
    while used and isinstance(items[used - 1], slice) and items[used - 1] == slice(None):
        used -= 1
    return used if 0 < used < ndim else None


def _without_tail(index: Any, used: int) -> Any:
    return _flat(index)[:used]


def _fit(kind: str, y: Any, shape: tuple[Any, ...]) -> Any:
    have = tuple(aval_of(y).shape)
    while len(have) > len(shape) and have[0] == 1:  # NumPy drops leading ones of the values
        have = have[1:]
    y = ops.reshape(y, have)
    try:
        fits = ops.broadcast_shapes(have, shape) == shape
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(
            operation=f"x.at[...].{kind}",
            required=f"values that broadcast to the indexed shape {shape}",
            got=str(have),
            fix="reshape the values",
        )
    return broadcast_to(y, shape)
