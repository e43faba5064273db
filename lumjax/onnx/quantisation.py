"""Operators between real numbers and integers with a scale and a zero point."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax.onnx.casting import convert
from lumjax.onnx.contraction import convolution, product, shifted
from lumjax.onnx.graph import Node
from lumjax.onnx.tensors import bits_of, dtype_of
from lumjax.onnx.values import Op, axis_of, common, host, is_foreign


def _along(node: Node, scale: Any, x: Any, xp: Any) -> Any:
    """A scale or zero point in a shape that broadcasts: one, one for each entry of an axis, or one
    for each block along it.
    """
    if math.prod(scale.shape) == 1 and len(scale.shape) < 2:
        return scale.reshape(())
    axis = axis_of(node, node.integer("axis", 1), len(x.shape))
    if len(scale.shape) == 1:
        if scale.shape[0] != x.shape[axis]:
            raise node.wrong(f"{x.shape[axis]} scales", str(scale.shape[0]))
        return scale.reshape((-1,) + (1,) * (len(x.shape) - axis - 1))
    block = node.integer("block_size", 0)
    if len(scale.shape) != len(x.shape) or block < 0:
        raise node.wrong("a scale for each block", f"shape {tuple(scale.shape)}")
    block = block or -(-x.shape[axis] // scale.shape[axis])
    if -(-x.shape[axis] // block) != scale.shape[axis]:
        raise node.wrong(f"blocks of {block}", f"{x.shape[axis]} in {scale.shape[axis]}")
    spread = xp.repeat(scale, block, axis=axis)
    return spread[(slice(None),) * axis + (slice(0, x.shape[axis]),)]


def limits_of(to: np.dtype[Any]) -> tuple[float, float]:
    """The least and the largest value of an integer dtype, of few bits too."""
    bits = bits_of(to)
    signed = not to.name.startswith("u")
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def _quantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    to = np.dtype(np.uint8) if zero is None else np.dtype(zero.dtype)
    if node.integer("output_dtype", 0):
        to = dtype_of(node.integer("output_dtype"), str(node))
    if is_foreign(to):
        x, scale = host(node, x), host(node, scale)
        zero = None if zero is None else host(node, zero).astype(np.float32)
    xp, (x, scale) = common(x, scale)
    wide = np.float32
    y = x.astype(wide) / _along(node, scale, x, xp).astype(wide)
    if to.name.startswith("float"):
        if zero is not None:
            y = y + _along(node, zero, x, xp).astype(wide)
        return convert(node, y, to)
    return rounded(node, y, zero, to, xp)


def rounded(node: Node, y: Any, zero: Any, to: np.dtype[Any], xp: Any) -> Any:
    """The nearest integers plus the zero point, held to what the dtype has."""
    y = xp.round(y)
    if zero is not None:
        zero = common(y, zero)[1][1]
        y = y + _along(node, zero, y, xp).astype(y.dtype)
    low, high = limits_of(to)
    return convert(node, xp.clip(y, low, high), to)


def _dequantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    to = np.dtype(scale.dtype)
    if node.integer("output_dtype", 0):
        to = dtype_of(node.integer("output_dtype"), str(node))
    if is_foreign(x.dtype):
        x = host(node, x)
        x = x.astype(np.int8 if "int" in x.dtype.name else np.float32)
        zero = None if zero is None else host(node, zero).astype(x.dtype)
    given = (x, scale) if zero is None else (x, scale, zero)
    xp, (x, scale, *zeros) = common(*given)
    whole = np.int32 if np.dtype(x.dtype).kind in "iu" else np.float32
    y = x.astype(whole)
    if zeros:
        y = y - _along(node, zeros[0], x, xp).astype(whole)
    factor = _along(node, scale, x, xp)
    return (y.astype(factor.dtype) * factor).astype(to)


def _requantized(node: Node, y: Any, factor: Any, zero: Any) -> Any:
    to = np.dtype(zero.dtype)
    return rounded(node, y.astype(jnp.float32) * factor, zero, to, jnp)


def _quantized_matmul(
    node: Node, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any,
    y_scale: Any, y_zero: Any,
) -> Any:  # fmt: skip
    def side(scale: Any) -> Any:
        return scale.astype(jnp.float32)

    a = a.astype(jnp.int32) - _rows(a_zero).astype(jnp.int32)
    b = b.astype(jnp.int32) - b_zero.astype(jnp.int32)
    factor = side(_rows(a_scale)) * side(b_scale) / side(y_scale)
    return _requantized(node, product(node, a, b), factor, y_zero)


def _rows(scale: Any) -> Any:
    return scale[..., None] if len(scale.shape) == 1 and scale.shape[0] > 1 else scale


def _quantized_conv(
    node: Node, x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any,
    y_scale: Any, y_zero: Any, bias: Any = None,
) -> Any:  # fmt: skip
    y = convolution(node, shifted(x, x_zero, 1), shifted(w, w_zero, 0))
    channels = (-1,) + (1,) * (len(y.shape) - 2)
    y = y if bias is None else y + bias.reshape(channels)
    scale = w_scale.reshape(channels) if math.prod(w_scale.shape) > 1 else w_scale.reshape(())
    return _requantized(node, y, x_scale.reshape(()) * scale / y_scale.reshape(()), y_zero)


def _dynamic(node: Node, x: Any) -> Any:
    low = jnp.minimum(jnp.min(x), 0)
    high = jnp.maximum(jnp.max(x), 0)
    scale = ((high - low) / 255).astype(x.dtype)
    zero = jnp.clip(jnp.round(-low / scale), 0, 255).astype(jnp.uint8)
    y = rounded(node, x / scale, zero, np.dtype(np.uint8), jnp)
    return y, scale, zero


OPS = {
    "QuantizeLinear": Op(_quantize, raw=True),
    "DequantizeLinear": Op(_dequantize, raw=True),
    "DynamicQuantizeLinear": Op(_dynamic),
    "QLinearMatMul": Op(_quantized_matmul),
    "QLinearConv": Op(_quantized_conv),
}
