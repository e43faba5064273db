"""Dtypes: every one is a NumPy dtype. Names, kinds, JAX's promotion lattice with weak types."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from lumjax.config import config
from lumjax.errors import ArgumentTypeError, DTypeError

DType: TypeAlias = np.dtype[Any]

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64))
uint8, uint16, uint32, uint64 = (np.dtype(t) for t in (np.uint8, np.uint16, np.uint32, np.uint64))
float16, float32, float64 = (np.dtype(t) for t in (np.float16, np.float32, np.float64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)
complex64, complex128 = np.dtype(np.complex64), np.dtype(np.complex128)
float0 = np.dtype([("float0", "V")])  # the tangent dtype of integers, as in JAX
key = np.dtype([("fry", "<u4", (2,))])  # one threefry key per element; NumPy moves it like a number

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INTEGER = SIGNED + UNSIGNED
FLOATING = (float16, bfloat16, float32, float64)
COMPLEX = (complex64, complex128)
INEXACT = FLOATING + COMPLEX
NUMERIC = (bool_, *INTEGER, *INEXACT)

_SHORT = {
    bool_: "bool", bfloat16: "bf16", float0: "float0", key: "key<fry>",
    **{d: f"i{8 * d.itemsize}" for d in SIGNED},
    **{d: f"u{8 * d.itemsize}" for d in UNSIGNED},
    **{d: f"f{8 * d.itemsize}" for d in (float16, float32, float64)},
    **{d: f"c{8 * d.itemsize}" for d in COMPLEX},
}  # fmt: skip
_ONE = {dtype: dtype for dtype in _SHORT}  # the object itself: code compares dtypes by `is`
_FROM_SHORT = {name: dtype for dtype, name in _SHORT.items()}
_NARROW = {
    int64: int32, uint64: uint32, float64: float32, complex128: complex64,
}  # fmt: skip


def short_name(dtype: DType) -> str:
    """The jaxpr name of a dtype: f32, bf16, i8, u32, bool, c64, key<fry>, float0."""
    found = _SHORT.get(dtype)
    return str(dtype) if found is None else found


def from_short_name(name: str) -> DType:
    """The inverse of `short_name`; KeyError for an unknown name."""
    return _FROM_SHORT[name]


def is_bool(dtype: DType) -> bool:
    """Whether the dtype is bool."""
    return dtype == bool_


def is_signed(dtype: DType) -> bool:
    """Whether the dtype is a signed integer."""
    return dtype in SIGNED


def is_unsigned(dtype: DType) -> bool:
    """Whether the dtype is an unsigned integer."""
    return dtype in UNSIGNED


def is_integer(dtype: DType) -> bool:
    """Whether the dtype is an integer (bool is not)."""
    return dtype in INTEGER


def is_floating(dtype: DType) -> bool:
    """Whether the dtype is a real float, bfloat16 included."""
    return dtype in FLOATING


def is_complex(dtype: DType) -> bool:
    """Whether the dtype is complex."""
    return dtype in COMPLEX


def is_inexact(dtype: DType) -> bool:
    """Whether the dtype is floating or complex: the differentiable ones."""
    return dtype in INEXACT


def is_numeric(dtype: DType) -> bool:
    """Whether arithmetic is defined on the dtype (bool included; keys and float0 are not)."""
    return dtype in NUMERIC


def is_key(dtype: DType) -> bool:
    """Whether the dtype is that of typed PRNG keys."""
    return dtype == key


def as_dtype(dtype: Any) -> DType:
    """Whatever names a dtype (class, string, dtype, array) as a dtype lumjax knows, not yet
    narrowed.
    """
    if isinstance(dtype, str) and dtype == "bfloat16":
        return bfloat16
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found is not None and found.kind != "V":
        found = found.newbyteorder("=")
    if found is None or found not in _SHORT:
        raise DTypeError(
            operation="dtype",
            required=f"one of {', '.join(map(str, NUMERIC))}",
            got=repr(dtype),
            fix="convert the data to a supported dtype first",
        )
    return _ONE[found]


def canonicalize(dtype: Any) -> DType:
    """The dtype lumjax computes in: 64-bit types are narrowed to 32 bits unless x64 is enabled."""
    found = dtype if type(dtype) is np.dtype and dtype in _SHORT else as_dtype(dtype)  # pyright: ignore[reportUnnecessaryComparison]
    return found if config.enable_x64 else _NARROW.get(found, found)


def scalar_dtype(x: Any) -> DType:
    """The (weak) dtype of a Python scalar."""
    match x:
        case bool():
            return bool_
        case int():
            return canonicalize(int64)
        case float():
            return canonicalize(float64)
        case complex():
            return canonicalize(complex128)
        case _:
            raise ArgumentTypeError(
                operation="array argument",
                required="an array or a number",
                got=f"{x!r} of type {type(x).__name__}",
                fix="convert it with jnp.asarray, or mark it static if it isn't data",
            )


def tangent_dtype(dtype: DType) -> DType:
    """The dtype of tangents of a value of this dtype."""
    return dtype if dtype in INEXACT else float0


def accumulation_dtype(dtype: DType) -> DType:
    """The dtype sums of this dtype accumulate in: float32 for 16-bit floats."""
    return float32 if dtype in (float16, bfloat16) else dtype


# JAX's lattice: an edge goes from a type to its least upper neighbours; "i*", "f*", "c*" are weak
# Python types.
_EDGES: dict[DType | str, tuple[DType | str, ...]] = {
    bool_: ("i*",), "i*": (uint8, int8),
    uint8: (int16, uint16), int8: (int16,), uint16: (int32, uint32), int16: (int32,),
    uint32: (int64, uint64), int32: (int64,), uint64: ("f*",), int64: ("f*",),
    "f*": ("c*", bfloat16, float16), bfloat16: (float32,), float16: (float32,),
    float32: (float64, complex64),
    float64: (complex128,), "c*": (complex64,), complex64: (complex128,), complex128: (),
}  # fmt: skip


def _ancestors(node: DType | str) -> frozenset[DType | str]:
    return frozenset({node}).union(*(_ancestors(n) for n in _EDGES[node]))


_UPPER: dict[DType | str, frozenset[DType | str]] = {n: _ancestors(n) for n in _EDGES}


def _node(dtype: DType, weak: bool) -> DType | str:
    if not weak or dtype == bool_:
        return dtype
    return "i*" if dtype in INTEGER else "f*" if dtype in FLOATING else "c*"


@lru_cache(maxsize=4096)
def _join(nodes: frozenset[DType | str]) -> DType | str:
    common = frozenset[Any].intersection(*(_UPPER[n] for n in nodes))
    return next(n for n in common if common <= _UPPER[n])


def promote(*pairs: tuple[DType, bool]) -> tuple[DType, bool]:
    """The dtype and weakness of the result of combining operands given as (dtype, weak).

    Source: JAX's type promotion lattice (jax.dtypes). Raises DTypeError for keys and float0.

    >>> promote((int32, False), (float32, True))
    (dtype('float32'), True)
    """
    first = pairs[0]
    if all(p == first for p in pairs):
        return first
    for dtype, _ in pairs:
        if dtype not in NUMERIC:
            raise DTypeError(
                operation="type promotion",
                required="numeric operands",
                got=" and ".join(short_name(d) for d, _ in pairs),
                fix="keys and float0 values do not combine with numbers; extract the data first",
            )
    joined = _join(frozenset(_node(d, w) for d, w in pairs))
    if not isinstance(joined, str):
        return canonicalize(joined), False
    # Among weak types the widest operand of that kind gives the width.
    kind = {"i*": INTEGER, "f*": FLOATING, "c*": COMPLEX}[joined]
    widths = [d for d, w in pairs if w and d in kind]
    default = canonicalize({"i*": int64, "f*": float64, "c*": complex128}[joined])
    return max(widths, key=lambda d: d.itemsize, default=default), True


# Formats that arrays do not have; they are described, compared and named all the same.
_ELSEWHERE: dict[DType, type[np.generic]] = {
    np.dtype(ml_dtypes.int4): np.signedinteger,
    np.dtype(ml_dtypes.uint4): np.unsignedinteger,
    **{
        np.dtype(d): np.floating
        for d in (
            ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3b11fnuz,
            ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2,
            ml_dtypes.float8_e5m2fnuz,
        )
    },
}  # fmt: skip


def _described(dtype: Any) -> DType | None:
    """The dtype, if it is of a format that arrays do not have."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        return None
    return found if found in _ELSEWHERE else None


def finfo(dtype: Any) -> Any:
    """Limits of a floating dtype, as numpy.finfo; bfloat16 included.

    >>> float(finfo(float32).eps)
    1.1920928955078125e-07
    """
    return ml_dtypes.finfo(_described(dtype) or as_dtype(dtype))


def iinfo(dtype: Any) -> Any:
    """Limits of an integer dtype, as numpy.iinfo.

    >>> iinfo(int8).max
    127
    """
    known = _described(dtype)
    return ml_dtypes.iinfo(known) if known else np.iinfo(as_dtype(dtype))


class extended(np.generic):  # noqa: N801
    """What `issubdtype` is asked for dtypes that NumPy does not have: those of keys."""


class prng_key(extended):  # noqa: N801
    """Abstract dtype of typed PRNG keys, for `issubdtype`."""


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype is of an abstract or concrete kind, as numpy.issubdtype; bfloat16 counts as
    floating.

    >>> issubdtype(bfloat16, np.floating)
    True
    """
    if isinstance(arg2, type) and issubclass(arg2, extended):
        return not isinstance(arg1, type) and np.dtype(arg1) == key
    if (known := _described(arg1)) is not None:
        abstract = isinstance(arg2, type) and issubclass(arg2, np.generic)
        return issubclass(_ELSEWHERE[known], arg2) if abstract else np.dtype(arg2) == known
    if not isinstance(arg1, type) or not issubclass(arg1, np.generic) or arg1 is ml_dtypes.bfloat16:
        dtype = as_dtype(arg1)
        if dtype == bfloat16:
            if isinstance(arg2, type) and issubclass(arg2, np.generic):
                return arg2 in (np.generic, np.number, np.inexact, np.floating, ml_dtypes.bfloat16)
            return as_dtype(arg2) == bfloat16
        if dtype in (key, float0):
            return not isinstance(arg2, type) and as_dtype(arg2) == dtype
        arg1 = dtype
    return bool(np.issubdtype(arg1, arg2))
