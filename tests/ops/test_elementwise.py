"""Promotion, checks, conventions at kinks, and how often a function is evaluated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax import ops
from lumjax.config import config
from lumjax.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from lumjax.grad.forward import jvp
from lumjax.ops import elementwise
from lumjax.ops.record import FLOATS, INEXACT
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Primitive, aval_of
from lumjax.trace.dim import symbol
from lumjax.trace.form import Expand, Map, Opaque
from lumjax.trace.stage import stage


def f32(*values: float) -> Array:
    return Array(np.array(values, np.float32))


def slope(f: Any, *xs: float, at: int = 0) -> float:
    """The derivative of f in argument `at`, in float64."""
    with config.scope(enable_x64=True):
        args = [np.float64(x) for x in xs]

        def g(x: Any) -> Any:
            return f(*args[:at], x, *args[at + 1 :])

        return float(np.asarray(jvp(g, (args[at],), (np.float64(1),))[1]))


# ---- promotion and broadcasting


def test_promotion_casts_and_keeps_weakness():
    x, y = ops.promote_values(Array(np.ones(2, np.int8)), 2)
    assert (aval_of(x).dtype, aval_of(y).dtype, aval_of(y).weak) == (dt.int8, dt.int8, True)
    x, y = ops.promote_values(Array(np.ones(2, np.int8)), 2.5)
    assert [(aval_of(v).dtype, aval_of(v).weak) for v in (x, y)] == [(dt.float32, True)] * 2
    x, y = ops.promote_values(f32(1), np.float64(2))
    assert [aval_of(v).weak for v in (x, y)] == [False, False]
    x, y = ops.promote_values(True, 2.0)
    assert [aval_of(v).weak for v in (x, y)] == [True, True]
    x, y = ops.promote_values(f32(1), Array(np.ones(1, np.float32), weak=True))
    assert [aval_of(v).weak for v in (x, y)] == [False, True]


def test_promoting_to_inexact():
    (x,) = ops.promote_inexact(Array(np.ones(2, np.int8)))
    assert x.dtype == dt.float32
    x, y = ops.promote_inexact(1, 2)
    assert [(v.dtype, v.weak) for v in (x, y)] == [(dt.float32, True)] * 2
    (z,) = ops.promote_inexact(np.ones(1, np.complex64))
    assert z.dtype == dt.complex64
    with config.scope(enable_x64=True):
        assert ops.promote_inexact(1)[0].dtype == dt.float64


def test_a_list_is_not_an_array():
    with pytest.raises(
        ArgumentTypeError, match=r"add: requires arrays or numbers; got a list.*asarray"
    ):
        ops.add([1], f32(1))
    with pytest.raises(ArgumentTypeError, match="sin"):
        ops.sin([1.0])
    with pytest.raises(ArgumentTypeError, match="got a str"):
        ops.select(np.array([True]), "a", 1)


def test_numpy_arrays_are_copied():
    data = np.ones(3, np.float32)
    value = ops.asvalue(data)
    data[0] = 5
    assert value.data.tolist() == [1, 1, 1]
    assert ops.asvalue(np.ones(2)).dtype == dt.float32


def test_symbolic_sizes_broadcast_against_one():
    n = symbol("n", 1, 100)
    assert ops.broadcast_shapes((n, 1), (1, 3)) == (n, 3)
    assert ops.broadcast_shapes((), (2,), (1, 1)) == (1, 2)
    with pytest.raises(ShapeError, match="n"):
        ops.broadcast_shapes((n,), (3,))
    x = ShapedArray((n, 4), dt.float32)
    out = stage(lambda v: [ops.add(v, 1.0)], [x]).jaxpr.out_avals
    assert out == (x,)


def test_constants_take_everything_from_their_model():
    like = Array(np.ones((2, 1), np.uint8))
    assert ops.constant(-1, like).data.tolist() == [[255], [255]]
    weak = ops.constant(2.5, Array(np.float16(1) + np.zeros((), np.float16), weak=True))
    assert (weak.dtype, weak.weak, weak.shape) == (dt.float16, True, ())


def test_the_short_way_through_promotion_gives_the_same_types():
    for x in (f32(1, 2), Array(np.ones((), np.int32)), Array(np.ones(2, np.int8), weak=True)):
        for y in (2, 2.5):
            a, b = ops.add(x, y), ops.add(*ops.broadcast_values(*ops.promote_values(x, y)))
            assert (a.dtype, a.weak, a.shape) == (b.dtype, b.weak, b.shape)
            c = ops.sub(y, x)
            assert (c.dtype, c.weak) == (b.dtype, b.weak)


# ---- checks


def test_errors_name_operation_requirement_and_remedy():
    with pytest.raises(
        DTypeError, match=r"sin: requires operands of a floating or complex dtype; got i32\[2\]"
    ):
        ops.sin(Array(np.ones(2, np.int32)))
    with pytest.raises(DTypeError, match="div: requires"):
        ops.div(Array(np.ones(1, bool)), Array(np.ones(1, bool)))
    with pytest.raises(DTypeError, match="select: requires a bool condition"):
        ops.select(f32(1), f32(1), f32(2))
    with pytest.raises(DTypeError, match="cast"):
        ops.cast(Array(np.zeros((), dt.key)), dt.float32)
    with pytest.raises(DTypeError, match="cast"):
        ops.cast(f32(1), dt.key)
    with pytest.raises(ArgumentValueError, match="integer_pow"):
        ops.integer_pow(Array(np.ones(1, np.int32)), -2)
    with pytest.raises(ShapeError, match="bitcast"):
        ops.bitcast(Array(np.ones(3, np.uint16)), dt.uint32)
    with pytest.raises(ShapeError, match="bitcast"):
        ops.bitcast(Array(np.ones((), np.uint16)), dt.uint32)


def test_records_are_strict():
    a, b = ShapedArray((2,), dt.float32), ShapedArray((3,), dt.float32)
    with pytest.raises(ShapeError, match="one shape"):
        ops.add_p.aval(a, b)
    with pytest.raises(DTypeError, match="one dtype"):
        ops.add_p.aval(a, a.with_dtype(dt.int32))
    with pytest.raises(ShapeError, match="select"):
        ops.select_p.aval(ShapedArray((), dt.bool_), a, a)


def test_a_cast_to_the_same_dtype_is_nothing():
    x = f32(1)
    assert ops.cast(x, np.float64) is x  # canonicalized: x64 is off
    assert ops.cast(x, dt.float32, weak=True).weak
    assert ops.cast(2, dt.int32, weak=True).data == 2


def test_select_is_weak_when_both_branches_are():
    which = Array(np.array([True, False]))
    assert ops.select(which, 1.0, 2.0).weak
    assert not ops.select(which, 1.0, f32(2, 2)).weak
    assert ops.select(True, f32(1), 2).data.tolist() == [1]


# ---- forms


def test_forms():
    a, c = ShapedArray((2,), dt.float32), ShapedArray((2,), dt.complex64)
    assert isinstance(ops.sin_p.form(a), Map)
    assert isinstance(ops.sin_p.form(c), Opaque)
    assert isinstance(ops.square_p.form(c), Expand)
    assert isinstance(ops.lgamma_p.form(a), Map)
    assert isinstance(ops.bessel_i0e_p.form(a), Opaque)
    assert isinstance(ops.cast_p.form(a, dtype=dt.int8, weak=False), Map)
    assert isinstance(ops.cast_p.form(c, dtype=dt.float32, weak=False), Opaque)
    assert ops.cast_p.form(a, dtype=dt.int8, weak=False) == ops.cast_p.form(
        a, dtype=dt.int8, weak=True
    )
    assert isinstance(ops.bitcast_p.form(a, dtype=dt.uint16), Opaque)
    key = ShapedArray((2,), dt.key)
    assert isinstance(ops.select_p.form(ShapedArray((2,), dt.bool_), key, key), Opaque)


CORE = {
    "exp2", "log2", "sin", "recip", "sqrt", "add", "mul", "rem", "lt", "cast", "select", "and",
    "or", "xor", "shift_left", "shift_right_logical", "shift_right_arithmetic", "idiv", "floor",
    "broadcast_in_dim", "reduce_sum", "reduce_max",
}  # fmt: skip
# Reinterpretation of bits, complex parts and equality, and what runs in NumPy or SciPy only.
PRIMARY = CORE | {"bitcast", "complex", "real", "imag", "conj", "ipow", "nextafter"}


def leaves(prim: Primitive, avals: Any, params: Any) -> set[str]:
    """The primitives in which the definition of `prim` ends."""
    if prim.expand is None:
        return {prim.name}
    jaxpr = stage(lambda *xs: prim.rule("expand")(*xs, **params), avals).jaxpr
    return set().union(*(leaves(e.prim, [v.aval for v in e.inputs], e.params) for e in jaxpr.eqns))


def elementwise_records() -> list[str]:
    modules = (
        "elementwise",
        "arithmetic",
        "compare",
        "integer",
        "transcendental",
        "special",
        "parts",
    )
    found = {id(v) for m in modules for v in vars(_module(m)).values() if isinstance(v, Primitive)}
    return [n for n, p in ops.PRIMITIVES.items() if id(p) in found]


def _module(name: str) -> Any:
    import importlib

    return importlib.import_module(f"lumjax.ops.{name}")


@pytest.mark.parametrize("name", elementwise_records())
def test_definitions_end_in_the_core_vocabulary(name: str):
    prim = ops.PRIMITIVES[name]
    for sample in prim.samples:
        if not dt.is_complex(sample.avals[0].dtype):
            assert leaves(prim, sample.avals, sample.params) <= PRIMARY


# ---- derivatives at the edge

JAX_KINKS = {
    "abs at 0": (lambda L, x: L.abs(x), (0.0,)),
    "max of equals": (lambda L, x, y: L.max(x, y), (2.0, 2.0)),
    "min of equals": (lambda L, x, y: L.min(x, y), (2.0, 2.0)),
    "max with nan": (lambda L, x, y: L.max(x, y), (2.0, math.nan)),
    "clamp at its lower bound": (lambda L, x: L.clamp(1.0, x, 2.0), (1.0,)),
    "clamp at its upper bound": (lambda L, x: L.clamp(1.0, x, 2.0), (2.0,)),
    "clamp inside": (lambda L, x: L.clamp(1.0, x, 2.0), (1.5,)),
    "sqrt at 0": (lambda L, x: L.sqrt(x), (0.0,)),
    "log at 0": (lambda L, x: L.log(x), (0.0,)),
    "cbrt at 0": (lambda L, x: L.cbrt(x), (0.0,)),
    "x**1 at 0": (lambda L, x: L.integer_pow(x, 1), (0.0,)),
    "x**0 at 0": (lambda L, x: L.integer_pow(x, 0), (0.0,)),
    "x**2 at 0": (lambda L, x: L.integer_pow(x, 2), (0.0,)),
    "x**-1 at 0": (lambda L, x: L.integer_pow(x, -1), (0.0,)),
    "0**y": (lambda L, x, y: L.pow(x, y), (0.0, 2.0)),
    "0**1.": (lambda L, x, y: L.pow(x, y), (0.0, 1.0)),
    "0**.5": (lambda L, x, y: L.pow(x, y), (0.0, 0.5)),
    "1**0": (lambda L, x, y: L.pow(x, y), (1.0, 0.0)),
    "sign": (lambda L, x: L.sign(x), (0.0,)),
    "floor": (lambda L, x: L.floor(x), (1.0,)),
    "rem": (lambda L, x, y: L.rem(x, y), (7.5, -2.0)),
    "tanh far out": (lambda L, x: L.tanh(x), (30.0,)),
    "logistic far out": (lambda L, x: L.logistic(x), (-30.0,)),
    "erf_inv": (lambda L, x: L.erf_inv(x), (0.3,)),
    "atan2": (lambda L, x, y: L.atan2(x, y), (0.0, -1.0)),
}  # fmt: skip


@pytest.mark.parametrize("case", JAX_KINKS)
def test_first_derivatives_follow_jax(case: str):
    jax = pytest.importorskip("jax")
    f, xs = JAX_KINKS[case]
    for at in range(len(xs)):
        ours = slope(lambda *v: f(ops, *v), *xs, at=at)
        theirs = jax.grad(lambda *v: f(jax.lax, *v), argnums=at)(*xs)
        np.testing.assert_allclose(ours, float(theirs), rtol=1e-5, atol=1e-7)


def test_where_jax_gives_nan_a_number_is_given():
    assert slope(ops.pow, 0.0, 0.0) == 0  # x**0 is constant
    assert slope(ops.clamp, 5.0, 0.0, 1.0, at=2) == 1  # crossed bounds: the upper one decides
    assert slope(ops.nextafter, 1.0, 2.0) == 1


def test_is_nan():
    assert ops.is_nan(f32(1, math.nan)).data.tolist() == [False, True]


def test_second_derivatives():
    for f, x, want in (
        (ops.sin, 0.7, -math.sin(0.7)),
        (ops.cos, 0.7, -math.cos(0.7)),
        (ops.exp, 0.5, math.exp(0.5)),
        (ops.tanh, 0.3, -2 * math.tanh(0.3) * (1 - math.tanh(0.3) ** 2)),
        (lambda v: ops.integer_pow(v, 3), 2.0, 12.0),
        (ops.lgamma, 2.5, 0.49035775610023486),
        (ops.lgamma, -1.5, 9.3792466449891237),
    ):
        assert slope(lambda v, f=f: jvp(f, (v,), (ops.constant(1, v),))[1], x) == pytest.approx(
            want
        )
    third = slope(lambda v: jvp(ops.digamma, (v,), (ops.constant(1, v),))[1], 2.5)
    assert third == pytest.approx(-0.23620405164172739)


def test_complex_derivatives():
    z = np.array([1 + 2j, -0.5j, 0], np.complex64)
    t = np.array([1j, 1, 1], np.complex64)
    _, dabs = jvp(ops.abs, (z,), (t,))
    np.testing.assert_allclose(dabs.data, [2 / math.sqrt(5), 0, 0], atol=1e-6)
    _, dsign = jvp(ops.sign, (z[:2],), (t[:2],))
    eps = 1e-3
    wide = z[:2].astype(np.complex128)
    ends = [wide + s * eps * t[:2] for s in (1, -1)]
    near = ends[0] / abs(ends[0]) - ends[1] / abs(ends[1])
    np.testing.assert_allclose(dsign.data, near / (2 * eps), atol=1e-4)
    assert ops.real(f32(2)).data.tolist() == [2]
    assert ops.imag(f32(2)).data.tolist() == [0]
    assert ops.conj(f32(2)).data.tolist() == [2]
    infinite = ops.complex(f32(1), f32(math.inf)).data
    assert infinite[0].real == 1


# ---- evaluation counts and warnings


@pytest.mark.parametrize("f", [ops.sin, ops.cos])
def test_third_order_evaluates_sine_and_cosine_once(f: Any):
    def derivative(g: Any) -> Any:
        return lambda v: jvp(g, (v,), (ops.constant(1, v),))[1]

    jaxpr = stage(
        lambda v: [derivative(derivative(derivative(f)))(v)], [ShapedArray((), dt.float32)]
    ).jaxpr
    names = [e.prim.name for e in jaxpr.eqns]
    assert names.count("sincos") == 1
    assert not {"sin", "cos"} & set(names)
    out = slope(derivative(derivative(f)), 0.4)
    assert out == pytest.approx(-math.cos(0.4) if f is ops.sin else math.sin(0.4))


@pytest.mark.parametrize("f", [ops.exp, ops.tanh, ops.sqrt, ops.logistic, ops.recip])
def test_derivatives_reuse_the_result(f: Any):
    def derivative(g: Any) -> Any:
        return lambda v: jvp(g, (v,), (ops.constant(1, v),))[1]

    jaxpr = stage(lambda v: [derivative(derivative(f))(v)], [ShapedArray((), dt.float32)]).jaxpr
    assert [e.prim.name for e in jaxpr.eqns].count(f.__name__) == 1


def test_adding_a_primitive_touches_one_place():
    softsign_p, softsign = elementwise.unary(
        "softsign", lambda x: x / (1 + np.abs(x)), FLOATS, "x / (1 + |x|).",
        tangent=lambda t, x, out: ops.div(t, ops.square(ops.add(1.0, ops.abs(x)))),
        expand=lambda x: ops.div(x, ops.add(1.0, ops.abs(x))),
    )  # fmt: skip
    assert softsign(f32(1, -3)).data.tolist() == [0.5, -0.75]
    assert softsign.__doc__ == "x / (1 + |x|)."
    assert slope(softsign, 1.0) == pytest.approx(0.25)
    outs, dims = softsign_p.rule("batch")(MappedAxis(2), (f32(1, 2),), (0,))
    assert (outs[0].shape, dims) == ((2,), (0,))


def test_evaluation_is_silent_and_threads_do_not_share_state():
    import threading

    results: list[Any] = []

    def work() -> None:
        with np.errstate(all="raise"):
            results.append(ops.div(f32(1, 0), f32(0, 0)).data.tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 4
    assert all(r[0] == math.inf and math.isnan(r[1]) for r in results)
    assert INEXACT.dtypes > FLOATS.dtypes
