"""JAX's lax: the primitive operations by name, with strict arguments, and control flow.

>>> from lumjax import lax
>>> lax.fori_loop(0, 3, lambda i, total: total + i, 0)
Array(3, dtype=int32, weak_type=True)
"""

from __future__ import annotations

# ruff: noqa: F401, F811
# pyright: reportUnusedImport=false
import builtins
import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from lumjax import dtype as dt
from lumjax import ops, tree
from lumjax.control.cond import cond as cond
from lumjax.control.cond import switch as switch
from lumjax.control.scan import fori_loop as fori_loop
from lumjax.control.scan import map as map
from lumjax.control.scan import scan as scan
from lumjax.control.scan import while_loop as while_loop
from lumjax.control.solve import custom_linear_solve as custom_linear_solve
from lumjax.control.solve import custom_root as custom_root
from lumjax.errors import ShapeError
from lumjax.grad.forward import stop_gradient as stop_gradient
from lumjax.grad.forward import stop_gradient_p as stop_gradient_p
from lumjax.lax import linalg as linalg
from lumjax.lax.extra import (
    GatherScatterMode,
    PrecisionLike,
    all_to_all,
    approx_max_k,
    approx_min_k,
    broadcast_to_rank,
    dtype,
    empty,
    igamma,
    igamma_grad_a,
    igammac,
    index_take,
    mulhi,
    optimization_barrier,
    pbroadcast,
    platform_dependent,
    polygamma,
    pshuffle,
    psum_scatter,
    pswapaxes,
    ragged_dot,
    random_gamma_grad,
    reduce_precision,
    rng_uniform,
    split,
    stack,
    tile,
    unstack,
    with_sharding_constraint,
    zeta,
)
from lumjax.lax.windows import (
    conv_general_dilated_local,
    conv_general_dilated_patches,
    conv_general_permutations,
    conv_general_shape_tuple,
    conv_shape_tuple,
    conv_transpose,
    conv_transpose_shape_tuple,
    reduce_window,
    reduce_window_shape_tuple,
)
from lumjax.ops import (
    ConvDimensionNumbers,
    DotAlgorithmPreset,
    DotDimensionNumbers,
    FftType,
    GatherDimensionNumbers,
    Precision,
    ScatterDimensionNumbers,
    abs,
    acos,
    acosh,
    add,
    all_gather,
    argmax,
    argmin,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    axis_index,
    axis_size,
    bessel_i0e,
    bessel_i1e,
    betainc,
    broadcast_in_dim,
    broadcast_shapes,
    broadcasted_iota,
    cbrt,
    ceil,
    clz,
    complex,
    concatenate,
    conj,
    conv_dimension_numbers,
    conv_general_dilated,
    cos,
    cosh,
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    digamma,
    div,
    dot,
    dot_general,
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    eq,
    erf,
    erf_inv,
    erfc,
    exp,
    exp2,
    expand_dims,
    expm1,
    fft,
    floor,
    full,
    gather,
    ge,
    gt,
    imag,
    integer_pow,
    iota,
    is_finite,
    le,
    lgamma,
    log,
    log1p,
    logistic,
    lt,
    max,
    min,
    mul,
    ne,
    neg,
    nextafter,
    pad,
    pmax,
    pmean,
    pmin,
    population_count,
    pow,
    ppermute,
    psum,
    real,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_xor,
    rem,
    reshape,
    rev,
    rsqrt,
    scatter,
    scatter_add,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_sub,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sign,
    sin,
    sinh,
    slice,
    sqrt,
    square,
    squeeze,
    sub,
    tan,
    tanh,
    top_k,
    transpose,
)
from lumjax.trace.core import aval_of

bitwise_and, bitwise_or, bitwise_xor, bitwise_not = ops.and_, ops.or_, ops.xor, ops.not_
reciprocal = ops.recip
padtype_to_pads = ops.padtype_to_pads
ConvGeneralDilatedDimensionNumbers = Any


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """`on_true` where the bool array `pred` holds, else `on_false`; the branches have one shape and
    dtype.

    >>> import numpy as np
    >>> select(np.array([True, False]), np.array([1, 2]), np.array([3, 4]))
    Array([1, 4], dtype=int32)
    """
    return ops.select(pred, on_true, on_false)


def select_n(which: Any, *cases: Any) -> Any:
    """`cases[which]`, elementwise; `which` is bool (False picks the first of two) or integer."""
    index = ops.asvalue(which)
    if dt.is_bool(aval_of(index).dtype):
        if len(cases) == 1:
            return ops.asvalue(cases[0])
        return ops.select(index, cases[1], cases[0])
    out = cases[-1]
    for k in reversed(range(len(cases) - 1)):
        out = ops.select(ops.eq(index, k), cases[k], out)
    return ops.asvalue(out)


class RoundingMethod(Enum):
    """What `round` does with a number halfway between two integers."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """The nearest integer; halves go away from zero unless told otherwise.

    >>> import numpy as np
    >>> round(np.array([0.5, 1.5], np.float32))
    Array([1., 2.], dtype=float32)
    """
    if rounding_method is RoundingMethod.TO_NEAREST_EVEN:
        return ops.round(x)
    # Not floor(|x| + 0.5): the sum rounds up to 1 for the float just below a half.
    size = ops.abs(x)
    whole = ops.floor(size)
    up = ops.ge(ops.sub(size, whole), 0.5)
    out = ops.add(whole, ops.cast(up, aval_of(whole).dtype, weak=aval_of(whole).weak))
    return ops.select(ops.lt(x, 0), ops.neg(out), ops.select(ops.eq(out, 0), ops.mul(x, 0), out))


def clamp(min: Any, x: Any, max: Any) -> Any:
    """`x` limited to [min, max]; the gradient is 0 outside and at the bounds.

    >>> clamp(0.0, 2.0, 1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return ops.clamp(min, x, max)


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """`operand` in another dtype; floats become integers by truncation, saturating, NaN -> 0."""
    return ops.cast(operand, new_dtype)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """The bits of `operand` read as another dtype of the same width."""
    return ops.bitcast(operand, new_dtype)


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """One or several arrays sorted along an axis by the first `num_keys` of them."""
    return ops.sort(operand, dimension, is_stable, num_keys)


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> Any:
    """Keys sorted along an axis, and the values carried along."""
    return ops.sort([keys, values], dimension, is_stable, 1)


def broadcast(operand: Any, sizes: Sequence[int], *, out_sharding: Any = None) -> Any:
    """`operand` with new leading axes of the given sizes."""
    del out_sharding
    shape = tuple(aval_of(ops.asvalue(operand)).shape)
    rank = len(sizes)
    return ops.broadcast_in_dim(operand, (*sizes, *shape), range(rank, rank + len(shape)))


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """The axes from start to stop as one."""
    shape = tuple(aval_of(ops.asvalue(operand)).shape)
    low, high, _ = builtins.slice(start_dimension, stop_dimension).indices(len(shape))
    return ops.reshape(operand, (*shape[:low], math.prod(shape[low:high]), *shape[high:]))


def slice_in_dim(
    operand: Any, start_index: Any, limit_index: Any, stride: int = 1, axis: int = 0
) -> Any:
    """A slice of one axis; negative limits count from its end. ArgumentValueError unless
    0 <= start <= limit <= size.
    """
    shape = tuple(aval_of(ops.asvalue(operand)).shape)
    axis = ops.canonical_axis("lax.slice_in_dim", axis, len(shape))
    low, high, by = [0] * len(shape), list(shape), [1] * len(shape)
    start: Any = 0 if start_index is None else start_index
    stop: Any = shape[axis] if limit_index is None else limit_index
    low[axis] = start + shape[axis] if start < 0 else start
    high[axis] = stop + shape[axis] if stop < 0 else stop
    by[axis] = stride
    return ops.slice(operand, low, high, by)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """One position of one axis."""
    length = aval_of(ops.asvalue(operand)).shape[axis]
    at = index + length if index < 0 else index
    out = slice_in_dim(operand, at, at + 1, 1, axis)
    return out if keepdims else ops.squeeze(out, (axis,))


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """`fill_value` in `x`'s shape and dtype."""
    aval = aval_of(x)
    return ops.full(aval.shape if shape is None else shape, fill_value, dtype or aval.dtype)


def zeros_like_array(x: Any) -> Any:
    """Zeros in `x`'s shape and dtype."""
    return full_like(x, 0)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    """Matrix products over equal leading axes."""
    rank = aval_of(lhs).ndim
    lead = tuple(range(rank - 2))
    return ops.dot_general(lhs, rhs, (((rank - 1,), (rank - 2,)), (lead, lead)), precision)


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Any,
    padding: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """A convolution in NCHW/OIHW layout."""
    return ops.conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """A convolution in NCHW/OIHW layout with dilations."""
    return ops.conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    *,
    out_sharding: Any = None,
) -> Any:
    """Reduce along axes by any associative computation, by halving."""
    del out_sharding
    flat, treedef = tree.flatten(operands)
    inits = tree.leaves(init_values)
    axes = ops.canonical_axes("lax.reduce", dimensions, aval_of(flat[0]).ndim)

    def combine(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        return tree.leaves(computation(treedef.unflatten(a), treedef.unflatten(b)))

    shape = aval_of(flat[0]).shape
    kept = [k for k in range(len(shape)) if k not in axes]
    count = math.prod(shape[k] for k in axes)
    lead = tuple(shape[k] for k in kept)
    rows = [ops.reshape(ops.transpose(x, [*axes, *kept]), (count, *lead)) for x in flat]
    total = [ops.broadcast_in_dim(i, lead, ()) for i in inits]
    while count > 1:
        half = count // 2
        low = [slice_in_dim(r, 0, half) for r in rows]
        high = [slice_in_dim(r, half, 2 * half) for r in rows]
        merged = combine(low, high)
        if count % 2:
            last = [slice_in_dim(r, count - 1, count) for r in rows]
            merged = [ops.concatenate([m, x], 0) for m, x in zip(merged, last, strict=True)]
        rows, count = merged, half + count % 2
    if count:
        total = combine(total, [ops.squeeze(r, (0,)) for r in rows])
    return treedef.unflatten(total)


def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """All prefix combinations along an axis by the associative `fn`, in a logarithmic number of
    steps.

    >>> import numpy as np
    >>> associative_scan(lambda a, b: a + b, np.array([1, 2, 3]))
    Array([1, 3, 6], dtype=int32)
    """
    flat, treedef = tree.flatten(elems)
    flat = [ops.asvalue(x) for x in flat]
    lengths = {aval_of(x).shape[axis] for x in flat}
    if len(lengths) != 1:
        raise ShapeError(
            operation="lax.associative_scan",
            required=f"one length along axis {axis} of all arrays",
            got=", ".join(sorted(str(aval_of(x)) for x in flat)),
            fix="check the axis",
        )
    (length,) = lengths
    place = ops.canonical_axis("lax.associative_scan", axis, aval_of(flat[0]).ndim)

    def combine(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        return tree.leaves(fn(treedef.unflatten(a), treedef.unflatten(b)))

    if reverse:
        flat = [ops.rev(x, (place,)) for x in flat]
    step = 1
    while step < length:
        earlier = [slice_in_dim(x, 0, length - step, 1, place) for x in flat]
        later = [slice_in_dim(x, step, length, 1, place) for x in flat]
        merged = combine(earlier, later)
        head = [slice_in_dim(x, 0, step, 1, place) for x in flat]
        flat = [ops.concatenate([h, m], place) for h, m in zip(head, merged, strict=True)]
        step *= 2
    if reverse:
        flat = [ops.rev(x, (place,)) for x in flat]
    return treedef.unflatten(flat)
