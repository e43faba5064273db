"""Sliding windows: reduce_window, conv_transpose, and convolutions by patches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops, tree
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.ops import ConvDimensionNumbers
from lumjax.ops.conv import dilated
from lumjax.ops.reduce import highest, lowest
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import aval_of
from lumjax.trace.stage import stage

_DIRECT = 8  # windows up to this size are folded tap by tap, larger ones by doubling


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Every window of `operand` reduced by `computation`, which is associative and commutative.

    Args:
        operand: an array, or a pytree of arrays of one shape.
        init_value: what padding holds; a neutral element of the computation.
        computation: a function of two values, such as lax.add or lax.max.
        window_dimensions: the window's size along every axis.
        window_strides: how far apart windows lie.
        padding: "SAME", "SAME_LOWER", "VALID" or (low, high) pairs.
        base_dilation: the spacing of the operand's elements, filled with init_value.
        window_dilation: the spacing of a window's elements.
        out_sharding: ignored: there is one device.

    Raises:
        ShapeError: a window without one entry for each axis.

    The gradient of a maximum goes to the first of equal elements, as in JAX. Any computation has a
    gradient here.

    >>> import numpy as np
    >>> x = np.array([1.0, 3.0, 2.0, 4.0], np.float32)
    >>> reduce_window(x, -np.inf, ops.max, (2,), (2,), "VALID").tolist()
    [3.0, 4.0]
    """
    del out_sharding
    flat, treedef = tree.flatten(operand)
    values = [ops.asvalue(x) for x in flat]
    shape: Any = tuple(aval_of(values[0]).shape)
    inits = [
        ops.cast(ops.asvalue(i), aval_of(v).dtype)
        for i, v in zip(tree.leaves(init_value), values, strict=True)
    ]
    ones = (1,) * len(shape)
    window, strides = tuple(window_dimensions), tuple(window_strides)
    base = ones if base_dilation is None else tuple(base_dilation)
    taps = ones if window_dilation is None else tuple(window_dilation)
    _check_window(shape, window, strides, base, taps)
    spread: Any = [dilated(n, d) for n, d in zip(shape, base, strict=True)]
    sizes: Any = [dilated(w, d) for w, d in zip(window, taps, strict=True)]
    if isinstance(padding, str):
        padding = ops.padtype_to_pads(spread, sizes, strides, padding)
    kind = _known(computation, values)
    combine = _combiner(computation, kind, treedef)
    fills = inits if kind is None else [ops.asvalue(_identity(kind, aval_of(values[0]).dtype))]
    config = [(low, high, d - 1) for (low, high), d in zip(padding, base, strict=True)]
    if any(c != (0, 0, 0) for c in config):
        values = [ops.pad(v, i, config) for v, i in zip(values, fills, strict=True)]
    for axis in reversed(range(len(shape))):
        values = _reduce_axis(
            values, fills, combine, axis, (window[axis], strides[axis], taps[axis], kind)
        )
    known = kind is not None and isinstance(init_value, (int, float, np.ndarray, np.generic))
    if not known or not np.array_equal(init_value, fills[0].data):
        out = tuple(aval_of(values[0]).shape)
        values = combine([ops.broadcast_in_dim(i, out, ()) for i in inits], values)
    return treedef.unflatten(values)


def _check_window(shape: Any, *entries: tuple[int, ...]) -> None:
    if any(len(e) != len(shape) or any(v < 1 for v in e) for e in entries):
        raise ShapeError(
            operation="lax.reduce_window",
            required="a positive window size, stride and dilation for each axis of the operand",
            got=f"an operand of shape {shape}, and {entries}",
            fix="use 1 along axes that are not reduced",
        )


def _known(computation: Callable[..., Any], values: Sequence[Any]) -> str | None:
    """The name of the one primitive that the computation is, if it is add, mul, max or min."""
    if len(values) != 1:
        return None
    scalar = ShapedArray((), aval_of(values[0]).dtype)
    jaxpr = stage(lambda a, b: [computation(a, b)], [scalar, scalar]).jaxpr
    if len(jaxpr.eqns) != 1 or jaxpr.consts:
        return None
    (eqn,) = jaxpr.eqns
    plain = eqn.inputs == jaxpr.inputs and eqn.outputs == jaxpr.outputs
    return eqn.prim.name if plain and eqn.prim.name in ("add", "mul", "max", "min") else None


def _combiner(
    computation: Callable[..., Any], kind: str | None, treedef: Any
) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    def combine(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        return [
            ops.asvalue(x)
            for x in tree.leaves(computation(treedef.unflatten(a), treedef.unflatten(b)))
        ]

    def first(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        """The greater (or lesser) one, the first of equals: so goes the gradient."""
        (x,), (y,) = a, b
        better = ops.ge(x, y) if kind == "max" else ops.le(x, y)
        return [ops.select(ops.or_(better, ops.ne(x, x)), x, y)]

    return first if kind in ("max", "min") else combine


def _identity(kind: str, dtype: dt.DType) -> Any:
    """The neutral element of a known computation."""
    if kind in ("add", "mul"):
        return np.asarray(int(kind == "mul"), dtype)
    return lowest(dtype) if kind == "max" else highest(dtype)


def _reduce_axis(
    values: list[Any],
    inits: Sequence[Any],
    combine: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
    axis: int,
    window: tuple[int, int, int, str | None],
) -> list[Any]:
    size, stride, dilation, kind = window
    shape = tuple(aval_of(values[0]).shape)
    count: Any = max(0, (shape[axis] - dilated(size, dilation)) // stride + 1)
    if size == 1 and stride == 1:
        return values
    if not count:
        out = (*shape[:axis], 0, *shape[axis + 1 :])
        return [ops.broadcast_in_dim(i, out, ()) for i in inits]

    def taken(xs: Sequence[Any], start: int) -> list[Any]:
        return [_strided(x, axis, start, count, stride) for x in xs]

    if kind == "add" and size == shape[axis]:
        return [ops.expand_dims(ops.reduce_sum(values[0], (axis,)), (axis,))]
    if size <= _DIRECT:
        total = taken(values, 0)
        for k in range(1, size):
            total = combine(total, taken(values, k * dilation))
        return total
    doubled, width = values, 1  # doubled[i] combines `width` elements from i on
    parts: list[tuple[int, list[Any]]] = []
    for bit in range(size.bit_length()):
        if size >> bit & 1:
            parts.append((width, doubled))
        length = aval_of(doubled[0]).shape[axis] - width * dilation
        if bit + 1 < size.bit_length():
            left = [_strided(x, axis, 0, length, 1) for x in doubled]
            right = [_strided(x, axis, width * dilation, length, 1) for x in doubled]
            doubled, width = combine(left, right), 2 * width
    start, total = 0, None
    for width, part in reversed(parts):
        piece = taken(part, start * dilation)
        total = piece if total is None else combine(total, piece)
        start += width
    assert total is not None
    return total


def _strided(x: Any, axis: int, start: int, count: Any, stride: int) -> Any:
    shape = aval_of(x).shape
    low, high, by = [0] * len(shape), list(shape), [1] * len(shape)
    low[axis], high[axis], by[axis] = start, start + (count - 1) * stride + 1, stride
    return ops.slice(x, low, high, by)


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """The shape of `reduce_window`'s result.

    >>> reduce_window_shape_tuple((5,), (2,), (2,), ((0, 1),))
    (3,)
    """
    rank = len(operand_shape)
    base, taps = base_dilation or (1,) * rank, window_dilation or (1,) * rank
    spread: Any = [dilated(n, d) for n, d in zip(operand_shape, base, strict=True)]
    sizes: Any = [dilated(w, d) for w, d in zip(window_dimensions, taps, strict=True)]
    if isinstance(padding, str):
        padding = ops.padtype_to_pads(spread, sizes, window_strides, padding)
    return tuple(
        max(0, (n + low + high - w) // s + 1)
        for n, (low, high), w, s in zip(spread, padding, sizes, window_strides, strict=True)
    )


# ---- convolutions


def _transpose_padding(size: Any, stride: int, padding: Any) -> tuple[int, int]:
    """The padding of a transposed convolution that undoes "SAME", "VALID" or (low, high)."""
    if padding == "SAME":
        total = size + stride - 2
        low = size - 1 if stride > size - 1 else math.ceil(total / 2)
    elif padding == "VALID":
        total = size + stride - 2 + max(size - stride, 0)
        low = size - 1
    elif not isinstance(padding, str):
        low = size - 1 - padding[0]
        total = low + size - 1 - padding[1]
    else:
        raise ArgumentValueError(
            operation="lax.conv_transpose",
            required="padding 'SAME', 'VALID' or (low, high) pairs",
            got=repr(padding),
            fix="choose one of these",
        )
    return low, total - low


_LAYOUTS = {
    2: ("NC", "IO", "NC"), 3: ("NHC", "HIO", "NHC"), 4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}  # fmt: skip


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Any,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Any:
    """A convolution over an input whose elements are `strides` apart: it makes images larger.

    The layout is ("NHWC", "HWIO", "NHWC") unless dimension_numbers say otherwise.
    `transpose_kernel` flips the kernel and exchanges its channels, as the gradient of a convolution
    does; `use_consistent_padding` reads (low, high) pairs as the padding of that convolution.

    >>> import numpy as np
    >>> x, w = np.ones((1, 2, 1), np.float32), np.ones((2, 1, 1), np.float32)
    >>> conv_transpose(x, w, (2,), "VALID").shape
    (1, 4, 1)
    """
    rank = aval_of(lhs).ndim
    if dimension_numbers is None:
        if rank not in _LAYOUTS:
            raise ArgumentValueError(
                operation="lax.conv_transpose",
                required="dimension_numbers for more than three spatial axes",
                got=str(aval_of(lhs)),
                fix="name the layouts of lhs, rhs and output",
            )
        dimension_numbers = _LAYOUTS[rank]
    numbers = ops.conv_dimension_numbers(aval_of(lhs).shape, aval_of(rhs).shape, dimension_numbers)
    taps = (1,) * (rank - 2) if rhs_dilation is None else tuple(rhs_dilation)
    if use_consistent_padding or padding in ("SAME", "VALID"):
        kernel = [aval_of(rhs).shape[a] for a in numbers.rhs_spec[2:]]
        each: Any = [padding] * len(strides) if isinstance(padding, str) else padding
        padding = [
            _transpose_padding(dilated(k, d), s, p)
            for k, d, s, p in zip(kernel, taps, strides, each, strict=True)
        ]
    if transpose_kernel:
        rhs = ops.rev(rhs, numbers.rhs_spec[2:])
        order = list(range(rank))
        first, second = numbers.rhs_spec[:2]
        order[first], order[second] = second, first
        rhs = ops.transpose(rhs, order)
    return ops.conv_general_dilated(
        lhs, rhs, (1,) * (rank - 2), padding, strides, taps, numbers,
        precision=precision, preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """The windows that a convolution reads, unfolded along the feature axis of its output.

    The features of the result are (input feature, *filter position), in that order.

    >>> import numpy as np
    >>> x = np.arange(4.0, dtype=np.float32).reshape(1, 1, 4)
    >>> conv_general_dilated_patches(x, (2,), (1,), "VALID").tolist()
    [[[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]]
    """
    shape, aval = tuple(filter_shape), aval_of(lhs)
    numbers = ops.conv_dimension_numbers(aval.shape, (1, 1, *shape), dimension_numbers)
    size, features = math.prod(shape), int(aval.shape[numbers.lhs_spec[1]])
    # Each output feature picks one position: the kernel is an identity matrix.
    eye = np.broadcast_to(np.eye(size, dtype=aval.dtype), (features, size, size))
    kernel = eye.reshape(features * size, 1, *shape)
    kernel = np.moveaxis(kernel, (0, 1, *range(2, kernel.ndim)), numbers.rhs_spec)
    return ops.conv_general_dilated(
        lhs, kernel, window_strides, padding, lhs_dilation, rhs_dilation, numbers,
        feature_group_count=features, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_local(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
) -> Any:
    """A convolution with a kernel of its own at every output position.

    The spatial axes of `rhs` are those of the output; its input axis has input features times
    filter positions.
    """
    patches = conv_general_dilated_patches(
        lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation,
        dimension_numbers, precision,
    )  # fmt: skip
    numbers = ops.conv_dimension_numbers(
        aval_of(lhs).shape, (1, 1, *filter_shape), dimension_numbers
    )
    _, kernel, out = numbers
    pairs = sorted(zip(out[2:], kernel[2:], strict=True))
    batch = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    product = ops.dot_general(patches, rhs, (((out[1],), (kernel[1],)), batch), precision=precision)
    rank = aval_of(product).ndim
    # The batch axes lead; the rows (batch) and columns (features) go to their places.
    order: list[int] = [0] * rank
    rest = iter(range(rank - 2))
    order[out[0]], order[out[1]] = rank - 2, rank - 1
    for k in range(rank):
        if k not in out[:2]:
            order[k] = next(rest)
    return ops.transpose(product, order)


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: Any,
    batch_group_count: int = 1,
) -> tuple[int, ...]:
    """The shape of a convolution's result in layout NCHW, OIHW, NCHW.

    >>> conv_shape_tuple((1, 3, 8), (4, 3, 3), (1,), "VALID")
    (1, 4, 6)
    """
    if isinstance(pads, str):
        pads = ops.padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    spatial = (
        max(0, (n + low + high - k) // s + 1)
        for n, k, s, (low, high) in zip(lhs_shape[2:], rhs_shape[2:], strides, pads, strict=True)
    )
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *spatial)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    dimension_numbers: Any,
) -> tuple[int, ...]:
    """The shape of a convolution's result in the given layouts."""
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    shape = conv_shape_tuple(
        [lhs_shape[k] for k in lhs], [rhs_shape[k] for k in rhs], window_strides, padding
    )
    return tuple(shape[out.index(k)] for k in range(len(shape)))


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    dimension_numbers: Any,
) -> tuple[int, ...]:
    """The shape of a transposed convolution's result in the given layouts."""
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    image, kernel = [lhs_shape[k] for k in lhs], [rhs_shape[k] for k in rhs]
    if isinstance(padding, str):
        padding = [
            _transpose_padding(k, s, padding)
            for k, s in zip(kernel[2:], window_strides, strict=True)
        ]
    spatial = [
        (n - 1) * s + 1 + sum(pair) - k + 1 if n else 0
        for n, k, s, pair in zip(image[2:], kernel[2:], window_strides, padding, strict=True)
    ]
    shape = (image[0], kernel[0], *spatial)
    return tuple(shape[out.index(k)] for k in range(len(shape)))


def conv_general_permutations(
    dimension_numbers: Any,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Positions of (N, C, ...), (O, I, ...), (N, C, ...) in three layout strings.

    >>> conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    ranks = tuple(len(spec) for spec in dimension_numbers)
    found: ConvDimensionNumbers = ops.conv_dimension_numbers(
        (1,) * ranks[0], (1,) * ranks[1], dimension_numbers
    )
    return found.lhs_spec, found.rhs_spec, found.out_spec
