"""Functions of functions and comparisons of whole arrays: vectorize, allclose, interp, polyval."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentValueError, ShapeError
from lumjax.numpy.creation import asarray, broadcast_to
from lumjax.numpy.indexing import getitem
from lumjax.numpy.logic import isnan
from lumjax.numpy.manipulation import flip, moveaxis
from lumjax.numpy.reductions import all as _all
from lumjax.numpy.sorting import searchsorted
from lumjax.trace.batch import vmap
from lumjax.trace.core import aval_of

ArrayLike = Any

_ARGUMENT = r"\(\w*(?:,\w+)*\)"
_SIGNATURE = re.compile(rf"^{_ARGUMENT}(?:,{_ARGUMENT})*->{_ARGUMENT}(?:,{_ARGUMENT})*$")


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Collection[int | str] = frozenset(),
    signature: str | None = None,
) -> Callable[..., Any]:
    """`pyfunc` mapped over all leading axes of its arguments, which broadcast.

    `signature`, such as "(n),(n)->()", names the axes that one call sees; by default it sees
    scalars.

    >>> f = vectorize(lambda v: v.sum(), signature="(n)->()")
    >>> f(asarray([[1, 2], [3, 4]]))
    Array([3, 7], dtype=int32)
    """
    cores = _input_cores(signature) if signature is not None else None

    @functools.wraps(pyfunc)
    def run(*args: Any, **kwargs: Any) -> Any:
        places = [k for k in range(len(args)) if k not in excluded]
        values = {k: asarray(args[k]) for k in places}
        ranks = [0] * len(places) if cores is None else [len(c) for c in cores]
        if len(ranks) != len(places):
            raise ArgumentValueError(
                operation="jnp.vectorize",
                required=f"{len(ranks)} array arguments for signature {signature}",
                got=str(len(places)),
                fix="pass one array per group of the signature",
            )
        if cores is not None:
            _check_cores(cores, [tuple(aval_of(values[k]).shape) for k in places])
        leads = [
            tuple(aval_of(values[k]).shape)[: aval_of(values[k]).ndim - r]
            for k, r in zip(places, ranks, strict=True)
        ]
        common = ops.broadcast_shapes(*leads, operation="jnp.vectorize") if leads else ()

        def call(*arrays: Any) -> Any:
            full = list(args)
            for k, x in zip(places, arrays, strict=True):
                full[k] = x
            return pyfunc(*full, **kwargs)

        mapped = call
        for depth in range(len(common)):
            # The innermost mapped axis is the last of the leading shape.
            axes = [0 if len(lead) > depth else None for lead in leads]
            mapped = vmap(mapped, in_axes=tuple(axes))
        shaped = [
            broadcast_to(
                values[k],
                (*common[len(common) - len(lead) :], *aval_of(values[k]).shape[len(lead) :]),
            )
            for k, lead in zip(places, leads, strict=True)
        ]
        return mapped(*shaped)

    return run


def _input_cores(signature: str) -> list[list[str]]:
    text = signature.replace(" ", "")
    if not _SIGNATURE.match(text):
        raise ArgumentValueError(
            operation="jnp.vectorize",
            required="a signature such as '(n,m),(m)->(n)'",
            got=repr(signature),
            fix="correct the signature",
        )
    groups = re.findall(_ARGUMENT, text.split("->")[0])
    return [[c for c in g[1:-1].split(",") if c] for g in groups]


def _check_cores(cores: list[list[str]], shapes: list[tuple[Any, ...]]) -> None:
    sizes: dict[str, Any] = {}
    for names, shape in zip(cores, shapes, strict=True):
        tail = shape[len(shape) - len(names) :]
        clash = len(shape) < len(names) or any(
            sizes.setdefault(n, size) != size for n, size in zip(names, tail, strict=True)
        )
        if clash:
            raise ShapeError(
                operation="jnp.vectorize",
                required=f"an array whose last axes are ({', '.join(names)}) as before",
                got=f"shape {shape} with sizes so far {sizes}",
                fix="check the arguments against the signature",
            )


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any
) -> Any:
    """`func1d` of every 1-d slice along an axis; its result's axes take the axis's place."""
    value = asarray(arr)
    rank = aval_of(value).ndim
    axis = ops.canonical_axis("jnp.apply_along_axis", axis, rank)
    mapped: Callable[..., Any] = lambda v: func1d(v, *args, **kwargs)  # noqa: E731
    for _ in range(rank - axis - 1):
        mapped = vmap(mapped, in_axes=1, out_axes=-1)
    for _ in range(axis):
        mapped = vmap(mapped)
    return mapped(value)


def isclose(
    a: ArrayLike, b: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether |a - b| <= atol + rtol * |b|, elementwise; equal infinities are close."""
    x, y = ops.promote_values(asarray(a), asarray(b))
    if not dt.is_inexact(aval_of(x).dtype):
        x, y = ops.cast(x, np.float64), ops.cast(y, np.float64)
    x, y = ops.broadcast_values(x, y)
    bound = ops.add(ops.mul(ops.abs(y), rtol), atol)
    finite = ops.and_(ops.lt(ops.abs(x), np.inf), ops.lt(ops.abs(y), np.inf))
    close = ops.and_(finite, ops.le(ops.abs(ops.sub(x, y)), bound))
    close = ops.or_(close, ops.eq(x, y))
    return ops.or_(close, ops.and_(isnan(x), isnan(y))) if equal_nan else close


def allclose(
    a: ArrayLike, b: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether all elements are close.

    >>> bool(allclose(asarray([1.0]), 1.0 + 1e-7))
    True
    """
    return _all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Any:
    """Whether two arrays have one shape and equal elements."""
    x, y = asarray(a1), asarray(a2)
    if tuple(aval_of(x).shape) != tuple(aval_of(y).shape):
        return asarray(False)
    same = ops.eq(x, y)
    if equal_nan:
        same = ops.or_(same, ops.and_(isnan(x), isnan(y)))
    return _all(same)


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: Any = None,
    right: Any = None,
    period: Any = None,
) -> Any:
    """Piecewise linear interpolation of the points (xp, fp), xp ascending; constant outside.

    >>> interp(0.5, asarray([0.0, 1.0]), asarray([10.0, 20.0]))
    Array(15., dtype=float32)
    """
    if period is not None:
        raise ArgumentValueError(
            operation="jnp.interp",
            required="period None",
            got=repr(period),
            fix="wrap x and extend xp yourself",
        )
    if dt.is_complex(aval_of(asarray(fp)).dtype):
        parts = [
            interp(x, xp, part(asarray(fp)), *(v if v is None else part(v) for v in (left, right)))
            for part in (ops.real, ops.imag)
        ]
        return ops.complex(*parts)
    at, knots, values = (
        ops.cast(v, np.float64) if not dt.is_inexact(aval_of(v).dtype) else v
        for v in map(asarray, (x, xp, fp))
    )
    at, knots, values = ops.promote_values(at, knots, values)
    last = aval_of(knots).shape[0] - 1
    upper = ops.min(ops.max(searchsorted(knots, at, "right"), 1), max(last, 1))
    lower = ops.sub(upper, 1)
    upper = ops.min(upper, last)
    x0, x1 = getitem(knots, lower, "clip"), getitem(knots, upper, "clip")
    y0, y1 = getitem(values, lower, "clip"), getitem(values, upper, "clip")
    gap = ops.sub(x1, x0)
    flat = ops.eq(gap, 0)
    ratio = ops.div(ops.sub(at, x0), ops.select(flat, 1.0, gap))
    out = ops.select(flat, y0, ops.add(y0, ops.mul(ratio, ops.sub(y1, y0))))
    low, high = getitem(knots, 0), getitem(knots, -1)
    out = ops.select(ops.lt(at, low), getitem(values, 0) if left is None else left, out)
    return ops.select(ops.gt(at, high), getitem(values, -1) if right is None else right, out)


def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Any:
    """The polynomial with coefficients `p`, highest power first, at `x`: an array of x's shape, in
    the dtype that both promote to. `unroll` changes nothing: the whole of Horner's rule is one
    program. ShapeError unless `p` is a vector.

    >>> polyval(asarray([2.0, 0.0, 1.0]), 3.0)
    Array(19., dtype=float32)
    """
    del unroll
    coefficients, at = asarray(p), asarray(x)
    out = ops.full(
        aval_of(at).shape,
        0,
        dt.promote(*((a.dtype, a.weak) for a in (aval_of(coefficients), aval_of(at))))[0],
    )
    for k in range(aval_of(coefficients).shape[0]):
        out = ops.add(ops.mul(out, at), getitem(coefficients, k))
    return out


def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """The discrete convolution of two vectors; `mode` is "full", "same" or "valid".

    >>> convolve(asarray([1.0, 2.0]), asarray([1.0, 1.0]))
    Array([1., 3., 2.], dtype=float32)
    """
    out = _sliding("jnp.convolve", a, v, mode, precision, turn=True)
    return out if preferred_element_type is None else ops.cast(out, preferred_element_type)


def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """The cross-correlation of two vectors."""
    out = _sliding("jnp.correlate", a, v, mode, precision, turn=False)
    return out if preferred_element_type is None else ops.cast(out, preferred_element_type)


def _sliding(operation: str, a: Any, v: Any, mode: str, precision: Any, turn: bool) -> Any:
    x, y = ops.promote_values(asarray(a), asarray(v))
    if not dt.is_inexact(aval_of(x).dtype):
        x, y = ops.cast(x, np.float64), ops.cast(y, np.float64)
    if aval_of(x).ndim != 1 or aval_of(y).ndim != 1 or not aval_of(x).size or not aval_of(y).size:
        raise ShapeError(
            operation=operation,
            required="two vectors that are not empty",
            got=f"{aval_of(x)} and {aval_of(y)}",
            fix="use lax.conv_general_dilated for more axes",
        )
    swap = aval_of(x).size < aval_of(y).size
    x, y = (y, x) if swap else (x, y)
    if turn:
        y = flip(y, 0)
    n = aval_of(y).shape[0]
    pads = {"full": (n - 1, n - 1), "same": (n // 2, n - n // 2 - 1), "valid": (0, 0)}
    if mode not in pads:
        raise ArgumentValueError(
            operation=operation,
            required="mode 'full', 'same' or 'valid'",
            got=repr(mode),
            fix="choose one of the three",
        )
    out = ops.conv_general_dilated(
        ops.reshape(x, (1, 1, aval_of(x).size)),
        ops.reshape(y, (1, 1, n)),
        (1,),
        [pads[mode]],
        precision=precision,
    )
    out = ops.reshape(out, (aval_of(out).size,))
    return flip(out, 0) if swap and not turn else out


def gradient(f: ArrayLike, *varargs: Any, axis: Any = None) -> Any:
    """Central differences inside, one-sided at the ends, along axes; `varargs` are spacings."""
    value = asarray(f)
    if not dt.is_inexact(aval_of(value).dtype):
        value = ops.cast(value, np.float64)
    rank = aval_of(value).ndim
    axes = range(rank) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = ops.canonical_axes("jnp.gradient", axes, rank)
    steps = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    out: list[Any] = []
    for place, step in zip(axes, steps, strict=True):
        moved = moveaxis(value, place, 0)
        inner = ops.div(
            ops.sub(getitem(moved, slice(2, None)), getitem(moved, slice(None, -2))), 2.0
        )
        first = ops.sub(getitem(moved, slice(1, 2)), getitem(moved, slice(0, 1)))
        last = ops.sub(getitem(moved, slice(-1, None)), getitem(moved, slice(-2, -1)))
        whole = ops.div(ops.concatenate([first, inner, last], 0), step)
        out.append(moveaxis(whole, 0, place))
    return out[0] if len(out) == 1 else out


def trapezoid(y: ArrayLike, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral along an axis by the trapezoidal rule."""
    value = moveaxis(y, axis, -1)
    if not dt.is_inexact(aval_of(value).dtype):
        value = ops.cast(value, np.float64)
    pairs = ops.add(getitem(value, (..., slice(1, None))), getitem(value, (..., slice(None, -1))))
    if x is not None:
        points = moveaxis(x, axis, -1) if aval_of(asarray(x)).ndim > 1 else asarray(x)
        dx = ops.sub(
            getitem(points, (..., slice(1, None))), getitem(points, (..., slice(None, -1)))
        )
    return ops.mul(ops.reduce_sum(ops.mul(pairs, dx), (aval_of(pairs).ndim - 1,)), 0.5)
