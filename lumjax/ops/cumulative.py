"""Cumulative operations along one axis: cumsum, cumprod, cummax, cummin, cumlogsumexp.

cumsum is linear. The derivatives of the others are scans of pairs (value, tangent) under an
associative combination, in log2(n) elementwise steps: no division, so they are right at zeros and
ties, in both modes, at any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.ops.arithmetic import div, max, max_p, min_p
from lumjax.ops.checks import (
    Batched,
    Dims,
    Jvp,
    NDArray,
    apply,
    canonical_axis,
    check_dtype,
    silent,
)
from lumjax.ops.compare import eq, gt, lt, or_
from lumjax.ops.elementwise import add, add_p, cast, mul, mul_p, select, sub
from lumjax.ops.reduce import highest, is_ordered, lowest
from lumjax.ops.transcendental import exp, log
from lumjax.ops.view import full, pad, shape_of, zeros
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, Sample, Value, aval_of
from lumjax.trace.form import Builder, Cumulate, Form, Map, Opaque, ScalarOp

_Tangents: TypeAlias = Sequence[Value | None]
_State: TypeAlias = tuple[Value, ...]


def cumsum(operand: Value, axis: int = 0, reverse: bool = False) -> Value:
    """Sums of elements up to and including each along `axis`; from the end if `reverse`."""
    return _bind(cumsum_p, operand, axis, reverse)


def cumprod(operand: Value, axis: int = 0, reverse: bool = False) -> Value:
    """Products of elements up to and including each along `axis`; from the end if `reverse`."""
    return _bind(cumprod_p, operand, axis, reverse)


def cummax(operand: Value, axis: int = 0, reverse: bool = False) -> Value:
    """Maxima of elements up to each along `axis`; nan stays; from the end if `reverse`."""
    return _bind(cummax_p, operand, axis, reverse)


def cummin(operand: Value, axis: int = 0, reverse: bool = False) -> Value:
    """Minima of elements up to each along `axis`; nan stays; from the end if `reverse`."""
    return _bind(cummin_p, operand, axis, reverse)


def cumlogsumexp(operand: Value, axis: int = 0, reverse: bool = False) -> Value:
    """log(cumsum(exp(x))) without overflow; from the end if `reverse`."""
    return _bind(cumlogsumexp_p, operand, axis, reverse)


def _bind(prim: Primitive, operand: Value, axis: int, reverse: bool) -> Value:
    axis = canonical_axis(prim.name, axis, len(shape_of(operand)))
    return apply(prim, operand, axis=axis, reverse=bool(reverse))[0]


# ---- derivatives


def prefix_scan(
    state: _State, identity: _State, combine: Callable[..., _State], axis: int, reverse: bool
) -> _State:
    """The inclusive scan of `state` by doubling steps; `identity` holds rank-0 values."""
    n = int(shape_of(state[0])[axis])
    rank = len(shape_of(state[0]))
    step = 1
    while step < n:
        low, high = (-step, step) if reverse else (step, -step)
        config = [(low, high, 0) if k == axis else (0, 0, 0) for k in range(rank)]
        earlier = tuple(pad(x, one, config) for x, one in zip(state, identity, strict=True))
        state = combine(earlier, state)
        step *= 2
    return state


def _product_tangent(x: Value, t: Value, out: Value, axis: int, reverse: bool) -> Value:
    dtype = aval_of(x).dtype
    wide = dt.accumulation_dtype(dtype)

    def combine(left: _State, right: _State) -> _State:
        return mul(left[0], right[0]), add(mul(left[1], right[0]), mul(left[0], right[1]))

    identity = (np.ones((), wide), np.zeros((), wide))
    return cast(
        prefix_scan((cast(x, wide), cast(t, wide)), identity, combine, axis, reverse)[1], dtype
    )


def _extremum_tangent(
    better: Callable[[Value, Value], Value], identity: Callable[[dt.DType], Any]
) -> Any:
    """Elements equal to the running extremum share its derivative evenly."""

    def tangent(x: Value, t: Value, out: Value, axis: int, reverse: bool) -> Value:
        dtype = aval_of(x).dtype
        wide = dt.accumulation_dtype(dtype)

        def combine(left: _State, right: _State) -> _State:
            (a, da, na), (b, db, nb) = left, right
            first, second = better(a, b), better(b, a)

            def choose(p: Value, q: Value, both: Value) -> Value:
                return select(first, p, select(second, q, both))

            return choose(a, b, b), choose(da, db, add(da, db)), choose(na, nb, add(na, nb))

        count = full(shape_of(x), np.ones((), wide))
        start = (identity(wide), np.zeros((), wide), np.zeros((), wide))
        state = (cast(x, wide), cast(t, wide), count)
        _, total, count = prefix_scan(state, start, combine, axis, reverse)
        return cast(div(total, count), dtype)

    return tangent


def _logsumexp_tangent(x: Value, t: Value, out: Value, axis: int, reverse: bool) -> Value:
    """Softmax-weighted running means. Where everything so far is -inf the derivative is 0."""
    dtype = aval_of(x).dtype
    wide = dt.accumulation_dtype(dtype)

    def combine(left: _State, right: _State) -> _State:
        (a, da), (b, db) = left, right
        scale = _finite(max(a, b))
        mass = add(exp(sub(a, scale)), exp(sub(b, scale)))
        empty, shape = eq(mass, zeros(shape_of(mass), wide)), shape_of(mass)
        safe = select(empty, full(shape, np.ones((), wide)), mass)
        total = select(empty, full(shape, lowest(wide)), add(log(safe), scale))
        base = _finite(total)
        return total, add(mul(da, exp(sub(a, base))), mul(db, exp(sub(b, base))))

    identity = (lowest(wide), np.zeros((), wide))
    return cast(
        prefix_scan((cast(x, wide), cast(t, wide)), identity, combine, axis, reverse)[1], dtype
    )


def _finite(x: Value) -> Value:
    """`x` with infinities replaced by 0: a safe amount to subtract before exp."""
    dtype, shape = aval_of(x).dtype, shape_of(x)
    infinite = or_(eq(x, full(shape, lowest(dtype))), eq(x, full(shape, highest(dtype))))
    return select(infinite, full(shape, np.zeros((), dtype)), x)


# ---- records


def _cumulative(
    name: str,
    f: Callable[..., Value],
    evaluate: Callable[[NDArray, int], NDArray],
    accepts: Callable[[dt.DType], bool],
    tangent: Callable[..., Value] | None,
    step: Callable[[dt.DType], tuple[ScalarOp | None, dt.DType, Any]],
) -> Primitive:
    """The record of one cumulative operation; `tangent` None means that it is linear. `step` gives
    the operation of one step, the dtype that it is carried in and what it is neutral on.
    """

    def aval(x: ShapedArray, *, axis: int, reverse: bool) -> tuple[ShapedArray, ...]:
        check_dtype(name, x, accepts(x.dtype), "a numeric operand of an ordered or summable dtype")
        canonical_axis(name, axis, x.ndim)
        return (x,)

    @silent
    def run(x: NDArray, *, axis: int, reverse: bool) -> tuple[NDArray]:
        wide = x.astype(dt.accumulation_dtype(x.dtype), copy=False)
        out = evaluate(np.flip(wide, axis) if reverse else wide, axis)
        return ((np.flip(out, axis) if reverse else out).astype(x.dtype, copy=False),)

    def jvp(primals: Sequence[Value], tangents: _Tangents, *, axis: int, reverse: bool) -> Jvp:
        (x,), (t,) = primals, tangents
        out = f(x, axis, reverse)
        if t is None:
            return (out,), (None,)
        if tangent is None:
            return (out,), (f(t, axis, reverse),)
        return (out,), (tangent(x, t, out, axis, reverse),)

    def transpose(cts: _Tangents, inputs: Sequence[Any], *, axis: int, reverse: bool) -> _Tangents:
        return (None if cts[0] is None else f(cts[0], axis, not reverse),)

    def batch(
        mapped: MappedAxis, args: Sequence[Value], dims: Dims, *, axis: int, reverse: bool
    ) -> Batched:
        dim = dims[0] or 0
        return (f(args[0], axis + (axis >= dim), reverse),), (dim,)

    def form(x: ShapedArray, *, axis: int, reverse: bool) -> Form:
        op, wide, start = step(x.dtype)
        return (
            Opaque(f"{name} in NumPy") if op is None else Cumulate(op, axis, reverse, wide, start)
        )

    return Primitive(
        name,
        aval=aval,
        eval=run,
        form=form,
        jvp=jvp,
        transpose=transpose if tangent is None else None,
        batch=batch,
        sums=tangent is None,
        samples=_SAMPLES,
    )


def _f32(*shape: int) -> ShapedArray:
    return ShapedArray(shape, dt.float32)


_SAMPLES = (
    Sample((_f32(5),), {"axis": 0, "reverse": False}),
    Sample((_f32(2, 4, 3),), {"axis": 1, "reverse": True}),
    Sample((_f32(0, 2),), {"axis": 0, "reverse": False}),
    Sample((_f32(2, 1),), {"axis": 1, "reverse": True}),
    Sample((ShapedArray((3, 4), dt.bfloat16),), {"axis": 1, "reverse": False}),
)


def _is_number(dtype: dt.DType) -> bool:
    return dt.is_integer(dtype) or dt.is_inexact(dtype)


def _logsumexp_accumulate(x: NDArray, axis: int) -> NDArray:
    return np.logaddexp.accumulate(x.astype(np.float64), axis=axis)


def _emit_logaddexp(b: Builder, x: Any, y: Any) -> Any:
    """As NumPy computes it: equal infinities have no difference."""
    apart = b.apply("neg", b.apply("abs", b.apply("sub", x, y)))
    total = b.apply("add", b.apply("max", x, y), b.apply("log1p", b.apply("exp", apart)))
    twice = b.apply("add", x, b.const(float(np.log(2.0)), x))
    return b.apply("select", b.apply("eq", x, y), twice, total)


_LOGADDEXP = ScalarOp("logaddexp", 2, np.logaddexp, _emit_logaddexp, 24.0)


def _by(combine: Primitive, start: Callable[[dt.DType], Any]) -> Any:
    """A step of an elementwise operation of two operands."""

    def step(dtype: dt.DType) -> tuple[ScalarOp | None, dt.DType, Any]:
        wide = dt.accumulation_dtype(dtype)
        scalar = ShapedArray((), wide)
        made = combine.form(scalar, scalar)
        return (made.op, wide, start(wide)) if isinstance(made, Map) else (None, wide, 0)

    return step


cumsum_p = _cumulative(
    "cumsum",
    cumsum,
    lambda x, axis: np.cumsum(x, axis, dtype=x.dtype),
    _is_number,
    None,
    _by(add_p, lambda dtype: -0.0 if dt.is_floating(dtype) else 0),
)
cumprod_p = _cumulative(
    "cumprod",
    cumprod,
    lambda x, axis: np.cumprod(x, axis, dtype=x.dtype),
    _is_number,
    _product_tangent,
    _by(mul_p, lambda _: 1),
)
cummax_p = _cumulative(
    "cummax",
    cummax,
    np.maximum.accumulate,
    is_ordered,
    _extremum_tangent(gt, lowest),
    _by(max_p, lambda dtype: lowest(dtype).item()),
)
cummin_p = _cumulative(
    "cummin",
    cummin,
    np.minimum.accumulate,
    is_ordered,
    _extremum_tangent(lt, highest),
    _by(min_p, lambda dtype: highest(dtype).item()),
)
cumlogsumexp_p = _cumulative(
    "cumlogsumexp",
    cumlogsumexp,
    _logsumexp_accumulate,
    dt.is_floating,
    _logsumexp_tangent,
    lambda _: (_LOGADDEXP, np.dtype(np.float64), -np.inf),
)
