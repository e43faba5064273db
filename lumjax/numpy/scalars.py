"""jnp.float32 and its relatives: dtypes by name that make arrays when called."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from lumjax.numpy.creation import array


class ScalarType(type):
    """The type of `jnp.float32` etc.: equal to NumPy's scalar type, accepted wherever a dtype is.

    >>> float32(1), np.dtype(float32), float32 == np.float32
    (Array(1., dtype=float32), dtype('float32'), True)
    """

    dtype: np.dtype[Any]

    def __call__(cls, x: Any = 0) -> Any:
        """`x` as an array of this dtype; it may be traced."""
        return array(x, cls.dtype)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        return id(cls) == id(other) or cls.dtype == other

    def __ne__(cls, other: object) -> bool:
        return not cls == other

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'lumjax.numpy.{cls.__name__}'>"


def _scalar_type(scalar: type[Any], name: str) -> Any:
    members = {
        "dtype": np.dtype(scalar),
        "__module__": "lumjax.numpy",
        "__doc__": f"The dtype {name}.",
    }
    return ScalarType(name, (), members)


bool_ = _scalar_type(np.bool_, "bool_")
int8 = _scalar_type(np.int8, "int8")
int16 = _scalar_type(np.int16, "int16")
int32 = _scalar_type(np.int32, "int32")
int64 = _scalar_type(np.int64, "int64")
uint8 = _scalar_type(np.uint8, "uint8")
uint16 = _scalar_type(np.uint16, "uint16")
uint32 = _scalar_type(np.uint32, "uint32")
uint64 = _scalar_type(np.uint64, "uint64")
float16 = _scalar_type(np.float16, "float16")
bfloat16 = _scalar_type(ml_dtypes.bfloat16, "bfloat16")
float32 = _scalar_type(np.float32, "float32")
float64 = _scalar_type(np.float64, "float64")
complex64 = _scalar_type(np.complex64, "complex64")
complex128 = _scalar_type(np.complex128, "complex128")

# Formats that arrays here do not have: their names and dtypes are for comparing and describing.
int4 = _scalar_type(ml_dtypes.int4, "int4")
uint4 = _scalar_type(ml_dtypes.uint4, "uint4")
float8_e3m4 = _scalar_type(ml_dtypes.float8_e3m4, "float8_e3m4")
float8_e4m3 = _scalar_type(ml_dtypes.float8_e4m3, "float8_e4m3")
float8_e4m3b11fnuz = _scalar_type(ml_dtypes.float8_e4m3b11fnuz, "float8_e4m3b11fnuz")
float8_e4m3fn = _scalar_type(ml_dtypes.float8_e4m3fn, "float8_e4m3fn")
float8_e4m3fnuz = _scalar_type(ml_dtypes.float8_e4m3fnuz, "float8_e4m3fnuz")
float8_e5m2 = _scalar_type(ml_dtypes.float8_e5m2, "float8_e5m2")
float8_e5m2fnuz = _scalar_type(ml_dtypes.float8_e5m2fnuz, "float8_e5m2fnuz")
