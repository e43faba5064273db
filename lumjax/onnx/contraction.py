"""Operators that multiply and sum: matrix products, einsum, convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import lax
from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.values import Op, bounded, is_float
from lumjax.record import record


def _matmul(node: Node, x: Any, y: Any) -> Any:
    return product(node, x, y)


def product(node: Node, x: Any, y: Any) -> Any:
    """A matrix product with NumPy's broadcasting, once its size fits the limit."""
    if not x.shape or not y.shape:
        raise node.wrong("two arrays with axes", f"shapes {tuple(x.shape)} and {tuple(y.shape)}")
    batch = np.broadcast_shapes(tuple(x.shape[:-2]), tuple(y.shape[:-2]))
    bounded(node, (*batch, *x.shape[-2:-1], *y.shape[-1:]), x.dtype)
    return jnp.matmul(x, y)


def _gemm(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise node.wrong("two matrices", f"shapes {tuple(a.shape)} and {tuple(b.shape)}")
    a = a.T if node.integer("transA", 0) else a
    b = b.T if node.integer("transB", 0) else b
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    found = product(node, a, b)
    found = found if alpha == 1 else scaled(found, alpha)
    if c is None or beta == 0:
        return found
    return found + (c if beta == 1 else scaled(c, beta))


def scaled(x: Any, by: float) -> Any:
    """`x * by` in the dtype of `x`."""
    return x * by if is_float(x) else (x * by).astype(x.dtype)


def _integer_matmul(node: Node, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    a, b = a.astype(jnp.int32), b.astype(jnp.int32)
    if a_zero is not None:
        zero = a_zero.astype(jnp.int32)
        a = a - (zero[..., None] if len(zero.shape) == 1 and zero.shape[0] > 1 else zero)
    if b_zero is not None:
        b = b - b_zero.astype(jnp.int32)
    return product(node, a, b)


def _einsum(node: Node, *xs: Any) -> Any:
    equation = node.text("equation").replace(" ", "")
    terms = equation.split("->")[0].split(",")
    if len(terms) != len(xs):
        raise node.wrong(f"{len(terms)} arrays for {equation}", str(len(xs)))
    sizes = {
        c: d for t, x in zip(terms, xs, strict=True) if "." not in t
        for c, d in zip(t, x.shape, strict=False)
    }  # fmt: skip
    result = equation.split("->")[1] if "->" in equation else ""
    bounded(node, [sizes.get(c, 1) for c in result], xs[0].dtype)
    return jnp.einsum(equation, *xs)


def _det(node: Node, x: Any) -> Any:
    return jnp.linalg.det(x)


# ---- convolutions


@record
class Windows:
    """Windows over the axes after batch and channels: all with one entry for each axis."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    @property
    def spans(self) -> tuple[int, ...]:
        """How far a window reaches."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.sizes, self.dilations, strict=True))


def windows(node: Node, shape: Sequence[int], sizes: Sequence[int]) -> Windows:
    """The attributes that convolutions and pools share, for an input of this spatial shape."""
    rank = len(shape)
    strides = node.integers("strides", (1,) * rank)
    dilations = node.integers("dilations", (1,) * rank)
    given = node.integers("pads", (0,) * (2 * rank))
    if not len(sizes) == len(strides) == len(dilations) == rank or len(given) != 2 * rank:
        raise node.wrong(f"windows with {rank} axes", f"{tuple(sizes)}, {strides}, {given}")
    if min((1, *sizes, *strides, *dilations)) < 1 or min((0, *given)) < 0:
        raise node.wrong("windows that are not empty", f"{sizes}, {strides}, {dilations}, {given}")
    if max((1, *strides, *dilations, *given, *sizes)) > 1 << 30:
        raise node.wrong("windows below 2**30", f"{sizes}, {strides}, {dilations}, {given}")
    pads = tuple(zip(given[:rank], given[rank:], strict=True))
    found = Windows(tuple(sizes), strides, dilations, pads)
    mode = node.choice("auto_pad", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if mode == "VALID":
        pads = ((0, 0),) * rank
    elif mode != "NOTSET":
        totals = [
            max((-(-d // s) - 1) * s + span - d, 0)
            for d, s, span in zip(shape, strides, found.spans, strict=True)
        ]
        pads = tuple(halves(t, mode == "SAME_UPPER") for t in totals)
    return Windows(tuple(sizes), strides, dilations, pads)


def halves(total: int, upper: bool) -> tuple[int, int]:
    """Padding before and after, the odd one after when `upper`."""
    return (total // 2, total - total // 2) if upper else (total - total // 2, total // 2)


def counts(node: Node, shape: Sequence[int], w: Windows, ceil: bool = False) -> tuple[int, ...]:
    """How many windows there are along each axis."""
    found: list[int] = []
    for d, s, span, (low, high) in zip(shape, w.strides, w.spans, w.pads, strict=True):
        room = d + low + high - span
        if room < 0:
            raise node.wrong("an input at least as large as the window", f"{d} below {span}")
        count = (-(-room // s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= d + low:
            count -= 1  # it would lie in the padding after the input
        found.append(count)
    return tuple(found)


def _dimensions(rank: int) -> lax.ConvDimensionNumbers:
    order = tuple(range(rank + 2))
    return lax.ConvDimensionNumbers(order, order, order)


def _kernel(node: Node, x: Any, w: Any) -> tuple[int, ...]:
    if len(x.shape) < 3 or len(w.shape) != len(x.shape):
        raise node.wrong("an input and a kernel with as many axes, three at least",
                         f"shapes {tuple(x.shape)} and {tuple(w.shape)}")  # fmt: skip
    sizes = tuple(w.shape[2:])
    if node.has("kernel_shape") and node.integers("kernel_shape") != sizes:
        raise node.wrong(f"kernel_shape {sizes}", str(node.integers("kernel_shape")))
    return sizes


def convolution(node: Node, x: Any, w: Any) -> Any:
    """The convolution that the node's attributes describe, without bias."""
    sizes, spatial = _kernel(node, x, w), x.shape[2:]
    group = node.integer("group", 1)
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise node.wrong("channels that fit the groups", f"{x.shape}, {w.shape}, {group} groups")
    window = windows(node, spatial, sizes)
    bounded(node, (x.shape[0], w.shape[0], *counts(node, spatial, window)), x.dtype)
    bounded(node, [d + a + b for d, (a, b) in zip(spatial, window.pads, strict=True)], x.dtype)
    return lax.conv_general_dilated(
        x, w, window.strides, window.pads, rhs_dilation=window.dilations,
        dimension_numbers=_dimensions(len(sizes)), feature_group_count=group,
    )  # fmt: skip


def with_bias(y: Any, bias: Any) -> Any:
    """The bias added to each channel."""
    return y if bias is None else y + bias.reshape((-1,) + (1,) * (len(y.shape) - 2))


def _conv(node: Node, x: Any, w: Any, bias: Any = None) -> Any:
    return with_bias(convolution(node, x, w), bias)


def shifted(x: Any, zero: Any, axis: int) -> Any:
    """8-bit integers as int32, less their zero point (one, or one for each entry of `axis`)."""
    x = x.astype(jnp.int32)
    if zero is None:
        return x
    zero = zero.astype(jnp.int32)
    if math.prod(zero.shape) > 1:
        zero = zero.reshape((-1,) + (1,) * (len(x.shape) - axis - 1))
    else:
        zero = zero.reshape(())
    return x - zero


def _integer_conv(node: Node, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    return convolution(node, shifted(x, x_zero, 1), shifted(w, w_zero, 0))


def _conv_transpose(node: Node, x: Any, w: Any, bias: Any = None) -> Any:
    sizes, spatial, rank = _kernel(node, x, w), x.shape[2:], len(x.shape) - 2
    group, c, m = node.integer("group", 1), x.shape[1], w.shape[1]
    if group < 1 or w.shape[0] != c or c % group:
        raise node.wrong("channels that fit the groups", f"{x.shape}, {w.shape}, {group} groups")
    window = windows(node, (1,) * rank, sizes)
    extra = node.integers("output_padding", (0,) * rank)
    full = [
        s * (d - 1) + e + span
        for s, d, e, span in zip(window.strides, spatial, extra, window.spans, strict=True)
    ]
    pads = _transposed_pads(node, window, spatial, full)
    out = [f - a - b for f, (a, b) in zip(full, pads, strict=True)]
    bounded(node, (x.shape[0], m * group, *out), x.dtype)
    bounded(node, (x.shape[0], c, *full), x.dtype)
    w = w.reshape(group, c // group, m, *sizes)
    w = jnp.swapaxes(w, 1, 2).reshape(group * m, c // group, *sizes)
    padding = [
        (span - 1 - a, span - 1 - b + e)
        for span, (a, b), e in zip(window.spans, pads, extra, strict=True)
    ]
    y = lax.conv_general_dilated(
        x, jnp.flip(w, range(2, rank + 2)), (1,) * rank, padding, lhs_dilation=window.strides,
        rhs_dilation=window.dilations, dimension_numbers=_dimensions(rank),
        feature_group_count=group,
    )  # fmt: skip
    return with_bias(y, bias)


def _transposed_pads(
    node: Node, window: Windows, spatial: Sequence[int], full: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """What is cut from the full result at both ends."""
    mode = node.text("auto_pad", "NOTSET")
    if node.has("output_shape"):
        target: Sequence[int] = node.integers("output_shape")[-len(spatial) :]
    elif mode.startswith("SAME"):
        target = [d * s for d, s in zip(spatial, window.strides, strict=True)]
    else:
        return window.pads
    if len(target) != len(full):
        raise node.wrong(f"an output_shape with {len(full)} axes", str(target))
    return tuple(halves(f - t, mode == "SAME_UPPER") for f, t in zip(full, target, strict=True))


OPS = {
    "MatMul": Op(_matmul),
    "Gemm": Op(_gemm),
    "MatMulInteger": Op(_integer_matmul),
    "Einsum": Op(_einsum),
    "Det": Op(_det),
    "Conv": Op(_conv),
    "ConvInteger": Op(_integer_conv),
    "ConvTranspose": Op(_conv_transpose),
}
