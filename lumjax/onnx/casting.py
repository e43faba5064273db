"""Operators that change the dtype: Cast, CastLike, BitCast. Dtypes that lumjax has no arrays of
(strings, floats and integers below 8 bits) are NumPy arrays, outside jit only.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from lumjax import dtype as dt
from lumjax import lax
from lumjax.onnx.graph import Node
from lumjax.onnx.tensors import bits_of, dtype_of
from lumjax.onnx.values import Op, host, is_foreign, is_known, loose

# Largest finite values of the floats that saturate, where NumPy's conversion does not.
_FLOATS8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_WORDS = {"+inf": "inf", "inf": "inf", "-inf": "-inf", "nan": "nan"}


def _cast(node: Node, x: Any) -> Any:
    return convert(node, x, dtype_of(node.integer("to"), f"onnx {node}"))


def _cast_like(node: Node, x: Any, like: Any) -> Any:
    return convert(node, x, np.dtype(like.dtype))


def convert(node: Node, x: Any, to: np.dtype[Any]) -> Any:
    """The elements of `x` in another dtype."""
    if is_foreign(to) or is_foreign(x.dtype):
        return _converted(node, host(node, x), to)
    if is_known(x):
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(to)
    return loose(x).astype(dt.canonicalize(to))


def _converted(node: Node, x: np.ndarray, to: np.dtype[Any]) -> np.ndarray:
    with np.errstate(all="ignore"):
        if x.dtype.hasobject:
            return _from_text(x, to)
        if to.hasobject:
            return _to_text(x)
        if to.name == "float8_e8m0fnu":
            return _to_scale(node, x, to)
        if to.name.startswith(("float8", "float4")):
            return _to_small(node, x, to)
        if bits_of(to) < 8:
            return _to_nibble(x, to)
        if bits_of(x.dtype) < 8 and not x.dtype.name.startswith("float"):
            return x.astype(np.int8).astype(to)
        wide = x.astype(np.float32)
        return wide != 0 if to.kind == "b" else wide.astype(to)


def _from_text(x: np.ndarray, to: np.dtype[Any]) -> np.ndarray:
    if to.hasobject:
        return x
    numbers = [float(_WORDS.get(str(s).lower(), str(s))) for s in x.reshape(-1)]
    return np.array(numbers, np.float64).reshape(x.shape).astype(to)


def _to_text(x: np.ndarray) -> np.ndarray:
    if x.dtype.name == "bfloat16" or x.dtype == np.float16:
        x = x.astype(np.float32)
    found = np.empty(x.shape, object)
    for place, value in np.ndenumerate(x):
        word = str(value)
        found[place] = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(word, word)
    return found


def _to_small(node: Node, x: np.ndarray, to: np.dtype[Any]) -> np.ndarray:
    values = x.astype(np.float32)
    if node.integer("saturate", 1) or to.name not in _FLOATS8:
        edge = float(ml_dtypes.finfo(to).max)
        values = np.clip(values, -edge, edge)  # NaN stays
    return values.astype(to)


def _to_scale(node: Node, x: np.ndarray, to: np.dtype[Any]) -> np.ndarray:
    """Powers of two from 2**-127 to 2**127: only the exponent is kept."""
    values = np.abs(x.astype(np.float64))
    mode = node.choice("round_mode", "up", ("up", "down", "nearest"))
    exponent = np.floor(np.log2(np.where(values > 0, values, 1.0)))
    lower = 2.0**exponent
    ratio = values / lower
    up = {"up": ratio > 1, "down": np.zeros(x.shape, bool), "nearest": ratio >= 1.5}[mode]
    exponent = exponent + up
    if node.integer("saturate", 1):
        exponent = np.where(values == np.inf, 127, np.clip(exponent, -127, 127))
    code = np.where(
        np.isnan(values) | (exponent > 127), 255, np.where(values == 0, 0, exponent + 127)
    )
    return np.clip(code, 0, 255).astype(np.uint8).view(to)


def _to_nibble(x: np.ndarray, to: np.dtype[Any]) -> np.ndarray:
    bits = bits_of(to)
    whole = x.astype(np.int8) if bits_of(x.dtype) < 8 else x
    if whole.dtype.kind not in "iub":
        whole = np.trunc(whole.astype(np.float32)).astype(np.int64)
    low = whole.astype(np.int64) & ((1 << bits) - 1)
    if to.name.startswith("int"):
        low = np.where(low >= 1 << (bits - 1), low - (1 << bits), low)
    return low.astype(np.int8).astype(to)


def _bit_cast(node: Node, x: Any) -> Any:
    to = dtype_of(node.integer("to"), f"onnx {node}")
    if bits_of(to) != bits_of(np.dtype(x.dtype)):
        raise node.wrong("two dtypes of equally many bits", f"{x.dtype} and {to}")
    if is_known(x) or is_foreign(to) or is_foreign(x.dtype):
        return host(node, x).view(to)
    if np.dtype(x.dtype).kind == "b":
        return loose(x).astype(to)
    if to.kind == "b":
        return loose(x) != 0
    return lax.bitcast_convert_type(loose(x), to)


OPS = {
    "Cast": Op(_cast, raw=True),
    "CastLike": Op(_cast_like, raw=True),
    "BitCast": Op(_bit_cast, raw=True),
}
