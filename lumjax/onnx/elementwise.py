"""Operators that work element by element, with NumPy's broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from lumjax import lax, nn
from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.values import Op, axis_of, bounded, common, is_float

One = Callable[[Any], Any]
Two = Callable[[Any, Any], Any]


def _one(f: One) -> Op:
    return Op(lambda node, x: f(x))


def _fits(node: Node, *xs: Any) -> None:
    """The broadcast shape is within limits; shapes that do not fit are refused by NumPy's rule."""
    bounded(node, np.broadcast_shapes(*(x.shape for x in xs)), xs[0].dtype)


def _placed(node: Node, x: Any, y: Any) -> Any:
    """Before opset 7 the axes of `y` lie where an attribute says, at the end if it does not."""
    if node.opset < 7 and node.has("axis") and node.integer("broadcast", 0):
        axis = axis_of(node, node.integer("axis"), len(x.shape))
        return y.reshape((*y.shape, *((1,) * (len(x.shape) - axis - len(y.shape)))))
    return y


def _two(f: Two) -> Op:
    def compute(node: Node, x: Any, y: Any) -> Any:
        y = _placed(node, x, y)
        _fits(node, x, y)
        if x.dtype != y.dtype:
            raise node.wrong("two arrays of one dtype", f"{x.dtype} and {y.dtype}")
        return f(x, y)

    return Op(compute)


def _many(f: Two) -> Op:
    def compute(node: Node, *xs: Any) -> Any:
        _fits(node, *xs)
        return reduce(f, xs)

    return Op(compute)


def _divide(x: Any, y: Any) -> Any:
    return x / y if is_float(x) else lax.div(*jnp.broadcast_arrays(x, y))


def _power(node: Node, x: Any, y: Any) -> Any:
    """The result has the dtype of the base."""
    y = _placed(node, x, y)
    _fits(node, x, y)
    if is_float(y) and not is_float(x):
        return jnp.power(x.astype(y.dtype), y).astype(x.dtype)
    if is_float(x) and not is_float(y):
        y = y.astype(x.dtype)
    return jnp.power(x, y.astype(x.dtype))


def _modulo(node: Node, x: Any, y: Any) -> Any:
    _fits(node, x, y)
    if node.integer("fmod", 0):
        return jnp.fmod(x, y)
    if not is_float(x):
        return jnp.where(y == 0, 0, jnp.mod(x, jnp.where(y == 0, 1, y))).astype(x.dtype)
    return _floor_modulo(x, y)


def _floor_modulo(x: Any, y: Any) -> Any:
    """What is left of x - floor(x / y) * y, with the sign of y, zeros included."""
    rest = jnp.fmod(x, y)
    other = (rest != 0) & ((rest < 0) != (y < 0))
    moved = jnp.where(jnp.isinf(y), y, rest + y)
    return jnp.where(rest == 0, jnp.copysign(rest, y), jnp.where(other, moved, rest))


def _shift(node: Node, x: Any, y: Any) -> Any:
    """A distance outside the width leaves nothing but the sign."""
    _fits(node, x, y)
    bits = 8 * np.dtype(x.dtype).itemsize
    signed = np.issubdtype(np.dtype(x.dtype), np.signedinteger)
    left = node.choice("direction", "", ("LEFT", "RIGHT")) == "LEFT"
    inside = (y >= 0) & (y < bits)
    distance = jnp.where(inside, y, 0).astype(x.dtype)
    rest = -(x < 0).astype(x.dtype) if signed and not left else jnp.zeros_like(x)
    moved = jnp.left_shift(x, distance) if left else jnp.right_shift(x, distance)
    return jnp.where(inside, moved, rest)


def _clip(node: Node, x: Any, low: Any = None, high: Any = None) -> Any:
    if node.opset < 11:
        low = jnp.asarray(node.number("min"), x.dtype) if node.has("min") else None
        high = jnp.asarray(node.number("max"), x.dtype) if node.has("max") else None
    x = x if low is None else jnp.maximum(x, low)
    return x if high is None else jnp.minimum(x, high)


def _where(node: Node, condition: Any, x: Any, y: Any) -> Any:
    bounded(node, np.broadcast_shapes(condition.shape, x.shape, y.shape), x.dtype)
    xp, (condition, x, y) = common(condition, x, y)
    return xp.where(condition, x, y)


def _equal(node: Node, x: Any, y: Any) -> Any:
    y = _placed(node, x, y)
    _fits(node, x, y)
    xp, (x, y) = common(x, y)
    return xp.asarray(x == y, bool)


def _is_infinite(node: Node, x: Any) -> Any:
    found = jnp.zeros(x.shape, bool)
    if node.integer("detect_positive", 1):
        found = found | (x == math.inf)
    if node.integer("detect_negative", 1):
        found = found | (x == -math.inf)
    return found


# ---- activations


def _elu(node: Node, x: Any) -> Any:
    return jnp.where(x < 0, node.number("alpha", 1.0) * jnp.expm1(jnp.minimum(x, 0)), x)


def _celu(node: Node, x: Any) -> Any:
    alpha = node.number("alpha", 1.0)
    return jnp.maximum(x, 0) + jnp.minimum(alpha * jnp.expm1(jnp.minimum(x, 0) / alpha), 0)


def _selu(node: Node, x: Any) -> Any:
    alpha = node.number("alpha", 1.67326319217681884765625)
    gamma = node.number("gamma", 1.05070102214813232421875)
    return gamma * jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))


def _leaky(node: Node, x: Any) -> Any:
    return jnp.where(x < 0, node.number("alpha", 0.01) * x, x)


def _thresholded(node: Node, x: Any) -> Any:
    return jnp.where(x > node.number("alpha", 1.0), x, jnp.zeros_like(x))


def _hard_sigmoid(node: Node, x: Any) -> Any:
    return jnp.clip(node.number("alpha", 0.2) * x + node.number("beta", 0.5), 0, 1)


def _hard_swish(x: Any) -> Any:
    return x * jnp.clip(x / 6 + 0.5, 0, 1)


def _gelu(node: Node, x: Any) -> Any:
    return nn.gelu(x, approximate=node.choice("approximate", "none", ("none", "tanh")) == "tanh")


def _shrink(node: Node, x: Any) -> Any:
    bias, edge = node.number("bias", 0.0), node.number("lambd", 0.5)
    zero = jnp.zeros_like(x)
    moved = jnp.where(x < -edge, x + bias, jnp.where(x > edge, x - bias, zero))
    return moved.astype(x.dtype)


def _swish(node: Node, x: Any) -> Any:
    return x * nn.sigmoid(node.number("alpha", 1.0) * x)


def _slope(node: Node, x: Any, slope: Any) -> Any:
    if node.opset < 7 and len(slope.shape) == 1:  # one for each channel
        slope = slope.reshape((-1,) + (1,) * (len(x.shape) - 2))
    _fits(node, x, slope)
    return jnp.where(x < 0, slope * x, x)


def _mean(node: Node, *xs: Any) -> Any:
    _fits(node, *xs)
    return reduce(jnp.add, xs) / len(xs)


OPS = {
    **{name: _one(f) for name, f in {
        "Abs": jnp.abs, "Neg": jnp.negative, "Floor": jnp.floor, "Ceil": jnp.ceil,
        "Round": jnp.round, "Sign": jnp.sign, "Sqrt": jnp.sqrt, "Exp": jnp.exp, "Log": jnp.log,
        "Sin": jnp.sin, "Cos": jnp.cos, "Tan": jnp.tan, "Asin": jnp.arcsin, "Acos": jnp.arccos,
        "Atan": jnp.arctan, "Sinh": jnp.sinh, "Cosh": jnp.cosh, "Tanh": jnp.tanh,
        "Asinh": jnp.arcsinh, "Acosh": jnp.arccosh, "Atanh": jnp.arctanh, "Erf": lax.erf,
        "Reciprocal": jnp.reciprocal, "Not": jnp.logical_not, "BitwiseNot": jnp.invert,
        "IsNaN": jnp.isnan, "Sigmoid": nn.sigmoid, "Relu": lambda x: jnp.maximum(x, 0),
        "Softplus": nn.softplus, "Softsign": nn.soft_sign, "Mish": nn.mish,
        "HardSwish": _hard_swish,
    }.items()},
    **{name: _two(f) for name, f in {
        "Add": jnp.add, "Sub": jnp.subtract, "Mul": jnp.multiply, "Div": _divide,
        "And": jnp.logical_and, "Or": jnp.logical_or, "Xor": jnp.logical_xor,
        "Greater": jnp.greater, "Less": jnp.less, "GreaterOrEqual": jnp.greater_equal,
        "LessOrEqual": jnp.less_equal, "BitwiseAnd": jnp.bitwise_and,
        "BitwiseOr": jnp.bitwise_or, "BitwiseXor": jnp.bitwise_xor,
    }.items()},
    **{name: _many(f) for name, f in {
        "Max": jnp.maximum, "Min": jnp.minimum, "Sum": jnp.add,
    }.items()},
    "Mean": Op(_mean),
    "Equal": Op(_equal, raw=True),
    "Pow": Op(_power),
    "Mod": Op(_modulo),
    "BitShift": Op(_shift),
    "Clip": Op(_clip),
    "Where": Op(_where, raw=True),
    "IsInf": Op(_is_infinite),
    "Elu": Op(_elu),
    "Celu": Op(_celu),
    "Selu": Op(_selu),
    "LeakyRelu": Op(_leaky),
    "ThresholdedRelu": Op(_thresholded),
    "HardSigmoid": Op(_hard_sigmoid),
    "Gelu": Op(_gelu),
    "Shrink": Op(_shrink),
    "Swish": Op(_swish),
    "PRelu": Op(_slope),
}  # fmt: skip
