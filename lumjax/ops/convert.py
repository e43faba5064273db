"""Python's view of an array: truth, numbers, length, text, NumPy conversion. On traced values these
raise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.errors import ArgumentTypeError, ConcretizationError, ShapeError
from lumjax.trace.array import Array
from lumjax.trace.core import Tracer, traced
from lumjax.trace.dim import Dim

NDArray = np.ndarray[Any, Any]

_REMEDIES = {
    "bool": "use jnp.where, lax.cond or lax.while_loop, or mark the argument with static_argnames",
    "int": "keep it an array, or mark the argument it depends on with static_argnames",
    "float": "keep it an array, or call float() outside the transformed function",
    "complex": "keep it an array, or call complex() outside the transformed function",
    "index": "index with jnp.take or lax.dynamic_slice, or mark the argument with static_argnames",
    "numpy": "use jax.numpy functions instead of numpy ones, or jax.pure_callback",
}


def concrete(x: Array | Tracer, what: str, kind: str) -> NDArray:
    """The ndarray behind `x`; raises where a transformation doesn't know it."""
    if isinstance(x, Array):
        return x.data
    found = x.concrete()
    if found is None:
        raise ConcretizationError(
            operation=what,
            required="a value that is known while the program is traced",
            got=traced(x),
            fix=_REMEDIES[kind],
        )
    return np.asarray(found)


def _single(x: Array | Tracer, what: str, kind: str) -> Any:
    data = concrete(x, what, kind)
    if data.size != 1:
        raise ShapeError(
            operation=what,
            required="an array of one element",
            got=str(x.aval),
            fix="reduce it first, for instance with .any(), .all() or .sum()",
        )
    return data.reshape(())[()]


def _bool(self: Array | Tracer) -> bool:
    return bool(_single(self, "bool() of an array", "bool"))


def _int(self: Array | Tracer) -> int:
    return int(_real(_single(self, "int() of an array", "int"), self, "int() of an array"))


def _float(self: Array | Tracer) -> float:
    return float(_real(_single(self, "float() of an array", "float"), self, "float() of an array"))


def _complex(self: Array | Tracer) -> complex:
    return complex(_single(self, "complex() of an array", "complex"))


def _real(value: Any, x: Array | Tracer, what: str) -> Any:
    if dt.is_complex(x.aval.dtype):
        raise ArgumentTypeError(
            operation=what,
            required="a real number",
            got=str(x.aval),
            fix="take .real or abs() first",
        )
    return value


def _index(self: Array | Tracer) -> int:
    what = "an array as an index"
    if not dt.is_integer(self.aval.dtype) or self.aval.ndim:
        raise ArgumentTypeError(
            operation=what,
            required="an integer array without axes",
            got=str(self.aval),
            fix="convert it with int() or astype first",
        )
    return operator.index(concrete(self, what, "index")[()])


def _array(self: Array | Tracer, dtype: Any = None, copy: bool | None = None) -> NDArray:
    """The data as a read-only ndarray; a copy if a dtype or `copy` asks for one."""
    data = concrete(self, "conversion to a NumPy array", "numpy")
    if dtype is not None and np.dtype(dtype) != data.dtype:
        return data.astype(dtype)
    if copy:
        return data.copy()
    view = np.asarray(data).view()  # 0-d data may be a NumPy scalar
    view.flags.writeable = False
    return view


def _len(self: Array | Tracer) -> Dim:
    shape = self.aval.shape
    if not shape:
        raise ArgumentTypeError(
            operation="len() of an array",
            required="an array with at least one axis",
            got=str(self.aval),
            fix="use .size for the number of elements",
        )
    return shape[0]


def _repr(self: Array | Tracer) -> str:
    if isinstance(self, Tracer):
        return f"{type(self).__name__}<{self.aval}>"
    weak = ", weak_type=True" if self.weak else ""
    name = str(self.dtype) if dt.is_numeric(self.dtype) else dt.short_name(self.dtype)
    if dt.is_key(self.dtype):
        return f"Array({self.shape}, dtype={name}) overlaying:\n{self.data['fry']}"
    text = np.array2string(self.data, separator=", ", prefix="Array(", threshold=1000)
    size = f", shape={self.shape}" if self.size == 0 and self.shape != (0,) else ""
    return f"Array({text}{size}, dtype={name}{weak})"


def _str(self: Array | Tracer) -> str:
    return repr(self) if isinstance(self, Tracer) else str(self.data)


def _format(self: Array | Tracer, spec: str) -> str:
    if isinstance(self, Array) and not self.shape:
        return format(self.data[()], spec)
    return format(_str(self), spec)


CONVERSIONS: dict[str, Callable[..., Any]] = {
    "__bool__": _bool,
    "__int__": _int,
    "__float__": _float,
    "__complex__": _complex,
    "__index__": _index,
    "__array__": _array,
    "__len__": _len,
    "__repr__": _repr,
    "__str__": _str,
    "__format__": _format,
}
