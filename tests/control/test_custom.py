"""custom_jvp and custom_vjp."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax.ops as ops
from lumjax import dtype as dt
from lumjax.control.closure import closure_convert, custom_gradient
from lumjax.control.custom import SymbolicZero, custom_jvp, custom_vjp
from lumjax.control.custom_rules import custom_jvp_p, custom_linear_p, custom_vjp_p
from lumjax.control.scan import scan
from lumjax.control.staging import batch_of, jvp_of, split_of
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    GradientError,
    MissingRuleError,
    TreeError,
)
from lumjax.grad.linear import linearize, vjp
from lumjax.grad.reverse import Cotangent, backward
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Linear, aval_of
from lumjax.trace.stage import stage
from tests.control.worlds import close, grad, jit, jvp, total, vmap

X = np.array([0.3, -0.7, 1.2], np.float32)
F32 = np.float32
TWO = F32(2.0)
WRAPPERS = [lambda f: f, jit, lambda f: jit(jit(f))]


def doubled():
    """sin with twice its derivative, so that a test can tell whose rule ran."""

    @custom_jvp
    def f(x):
        return ops.sin(x)

    @f.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), ops.cos(x) * t * 2.0

    return f


def clipped():
    """The product, whose backward rule doubles the first cotangent."""

    @custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (x * y, (x, y)), lambda res, ct: (ct * res[1] * 2.0, ct * res[0]))
    return f


# ---- both


@pytest.mark.parametrize("kind", [custom_jvp, custom_vjp])
def test_both_need_a_function_and_a_rule(kind):
    with pytest.raises(ArgumentTypeError, match="function"):
        kind(3)
    with pytest.raises(MissingRuleError, match=r"defjvp|defvjp"):
        kind(lambda x: x)(1.0)


@pytest.mark.parametrize("kind", [custom_jvp, custom_vjp])
def test_both_keep_the_functions_name_and_text(kind):
    def named(x):
        """Words."""
        return x

    f = kind(named)
    assert f.__name__ == "named"
    assert f.__doc__ == "Words."


@pytest.mark.parametrize("kind", [custom_jvp, custom_vjp])
def test_unknown_nondiff_name(kind):
    with pytest.raises(ArgumentValueError, match="nope"):
        kind(lambda x: x, nondiff_argnames="nope")


def test_keywords_and_defaults_go_by_position():
    @custom_jvp
    def f(x, y=2.0):
        return x * y

    f.defjvp(lambda p, t: (f(*p), t[0] * p[1] + t[1] * p[0]))
    assert float(grad(f)(3.0)) == 2.0
    assert float(grad(lambda x: f(x, y=4.0))(3.0)) == 4.0
    assert float(f(y=3.0, x=2.0)) == 6.0


def test_keyword_only_parameters_are_refused():
    @custom_jvp
    def f(x, *, y):
        return x * y

    f.defjvp(lambda p, t: (p[0], t[0]))
    with pytest.raises(ArgumentTypeError, match="keyword-only y"):
        f(1.0, y=2.0)


def test_a_callable_without_signature_takes_no_keywords():
    class Opaque:
        __signature__ = "none"

        def __call__(self, x):
            return ops.sin(x)

    f = custom_jvp(Opaque())
    f.defjvp(lambda p, t: (ops.sin(p[0]), t[0] * 5.0))
    assert f.signature is None
    assert float(grad(f)(0.5)) == 5.0
    with pytest.raises(ArgumentTypeError, match="keywords x"):
        f(x=1.0)


def test_a_method():
    class Layer:
        scale = 3.0

        def apply(self, x):
            return x * self.scale

        apply = custom_jvp(apply, nondiff_argnums=0)

        @apply.defjvp
        def rule(self, primals, tangents):
            return self.apply(*primals), tangents[0] * 7.0

    assert isinstance(Layer.apply, custom_jvp)
    assert float(Layer().apply(2.0)) == 6.0
    assert float(grad(Layer().apply)(2.0)) == 7.0


def test_python_control_flow_sees_values_under_eager_differentiation():
    @custom_jvp
    def f(x):
        return x * 3.0 if x > 1 else x

    @f.defjvp
    def rule(p, t):
        return f(*p), t[0] * (30.0 if p[0] > 1 else 10.0)

    assert float(grad(f)(2.0)) == 30.0
    assert float(grad(f)(0.5)) == 10.0
    assert [float(v) for v in jvp(lambda x: f(TWO) * x, (TWO,), (TWO,))] == [12.0, 12.0]

    g = custom_vjp(lambda x: x * 3.0 if x > 1 else x)
    g.defvjp(lambda x: (g(x), float(x)), lambda r, ct: (ct * r,))
    assert float(grad(g)(2.0)) == 2.0


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_the_rule_replaces_the_derivative(wrap):
    f = wrap(doubled())
    close(f(X), np.sin(X), 1e-6)
    close(grad(lambda x: total(f(x)))(X), 2 * np.cos(X), 1e-6)
    close(jvp(f, (X,), (X,))[1], 2 * np.cos(X) * X, 1e-6)
    close(vmap(grad(f))(X), 2 * np.cos(X), 1e-6)
    close(vmap(grad(grad(f)))(X), -2 * np.sin(X), 1e-6)
    g = wrap(clipped())
    close(grad(g)(TWO, np.float32(3.0)), np.float32(6.0))
    close(vmap(grad(g))(X, X), 2 * X, 1e-6)


def test_weak_arguments_stay_weak_under_every_transformation():
    f = doubled()
    assert f(1.0).weak
    assert jvp(lambda x: (f(1.0), x), (TWO,), (TWO,))[0][0].weak
    assert jit(lambda: f(1.0))().weak


def test_collectives_inside():
    f = custom_jvp(lambda x: x * ops.psum(1, "i"))
    f.defjvp(lambda p, t: (f(*p), t[0] * ops.psum(1, "i")))
    for lanes in (2, 3):
        found = vmap(lambda x: f(2.0) * x, axis_name="i")(X[:lanes])
        close(found, 2.0 * lanes * X[:lanes], 1e-6)
        close(vmap(grad(f), axis_name="i")(X[:lanes]), np.full(lanes, lanes, np.float32))
    g = custom_vjp(lambda x: ops.psum(x, "i"))
    g.defvjp(lambda x: (g(x), None), lambda _, ct: (ct,))
    close(vmap(g, axis_name="i")(X), np.full(3, X.sum()), 1e-6)
    close(vmap(lambda x: g(1.0) * x, axis_name="i")(X), 3 * X, 1e-6)


# ---- custom_jvp


def test_nondifferentiable_arguments_come_first_in_the_rule():
    @custom_jvp
    def unused(x):
        return x

    def apply(fun, x, n):
        return fun(x) * n

    for options in ({"nondiff_argnums": (0, 2)}, {"nondiff_argnames": ("fun", "n")}):
        g = custom_jvp(apply, **options)

        @g.defjvp
        def rule(fun, n, primals, tangents, g=g):
            (x,), (t,) = primals, tangents
            return g(fun, x, n), t * 100.0 * n

        for wrap in (lambda f: f, jit):
            close(grad(wrap(lambda x, g=g: g(ops.sin, x, 3)))(0.5), np.float32(300.0))
    assert unused.nondiff_argnums == ()
    only = custom_jvp(lambda f, x: f(x), nondiff_argnums=0)
    only.defjvp(lambda f, p, t: (f(*p), t[0]))
    assert float(grad(lambda x: only(ops.sin, x))(0.5)) == 1.0


def test_defjvps_sums_the_contributions_of_the_arguments():
    @custom_jvp
    def f(x, n, y):
        return x * y * n

    f.defjvps(lambda t, out, x, n, y: t * y * n, None, lambda t, out, x, n, y: t * x * n)
    assert [float(v) for v in grad(f, argnums=(0, 2))(2.0, 3, 5.0)] == [15.0, 6.0]
    g = custom_jvp(lambda x: {"a": x, "b": x * 2.0})
    g.defjvps(None)
    close(grad(lambda x: g(x)["a"] + x)(2.0), np.float32(1.0))
    with pytest.raises(ArgumentValueError, match="nondiff_argnums"):
        custom_jvp(lambda f, x: x, nondiff_argnums=0).defjvps(None)


def test_integer_arguments_have_float0_tangents():
    seen = []

    @custom_jvp
    def f(x, n):
        return x * n, n + 1

    @f.defjvp
    def rule(p, t):
        seen.append(aval_of(t[1]).dtype)
        (x, n), (s, r) = p, t
        return f(x, n), (s * n, r)

    for wrap in (lambda f: f, jit):
        assert float(grad(wrap(lambda x: f(x, 3)[0]))(2.0)) == 3.0
        close(
            vmap(grad(wrap(lambda x, n: f(x, n)[0])))(X, np.array([1, 2, 3])),
            np.array([1.0, 2, 3], np.float32),
        )
    assert set(seen) == {dt.float0}


def test_pytrees_in_and_out():
    @custom_jvp
    def f(p):
        return {"out": p["a"] * p["b"][0]}

    @f.defjvp
    def rule(primals, tangents):
        (p,), (t,) = primals, tangents
        return f(p), {"out": t["a"] * p["b"][0] + p["a"] * t["b"][0]}

    for wrap in (lambda f: f, jit, vmap):
        value = {"a": X, "b": (X * 2,)}
        found = grad(lambda p, wrap=wrap: total(wrap(f)(p)["out"]))(value)
        close(found, {"a": X * 2, "b": (X,)}, 1e-6)


@pytest.mark.parametrize(
    ("rule", "error", "text"),
    [
        (lambda p, t: p[0], ArgumentTypeError, "pair"),
        (lambda p, t: (p[0], (t[0],)), TreeError, "output tangent"),
        (lambda p, t: ((p[0],), (t[0],)), TreeError, "structure"),
        (lambda p, t: (p[0], np.ones(3, np.float32)), GradientError, r"f32\[3\]"),
        (lambda p, t: (p[0], np.int32(1)), GradientError, "i32"),
    ],
)
def test_bad_jvp_rules(rule, error, text):
    f = custom_jvp(lambda x: x * 2)
    f.defjvp(rule)
    with pytest.raises(error, match=text):
        grad(jit(f))(1.0)
    if "output" not in text and text != "structure":
        with pytest.raises(error, match=text):
            grad(f)(1.0)


def test_a_rule_that_is_no_function():
    with pytest.raises(ArgumentTypeError):
        custom_jvp(lambda x: x).defjvp(3)
    with pytest.raises(ArgumentTypeError):
        custom_vjp(lambda x: x).defvjp(lambda x: x, None)


def test_a_custom_function_applied_to_tangents_inside_another_rule():
    inner = custom_jvp(lambda t, c: t * c)
    inner.defjvp(lambda p, t: (inner(*p), t[0] * p[1] + p[0] * t[1]))
    f = custom_jvp(ops.sin)

    @f.defjvp
    def rule(p, t):
        return f(*p), inner(t[0], 5.0)

    assert float(grad(f)(0.5)) == 5.0
    assert float(grad(jit(f))(0.5)) == 5.0
    assert float(jvp(f, (0.5,), (1.0,))[1]) == 5.0


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
@pytest.mark.parametrize("wrap", WRAPPERS[:2])
def test_differentiating_a_closed_over_value_raises(kind, wrap):
    def outer(y):
        if kind == "jvp":
            f = custom_jvp(lambda x: x * y)
            f.defjvp(lambda p, t: (p[0] * 2.0, t[0]))
        else:
            f = custom_vjp(lambda x: x * y)
            f.defvjp(lambda x: (x * 2.0, None), lambda r, ct: (ct,))
        return f(y)

    def only_closed(y):
        f = custom_jvp(lambda x: x * y)
        f.defjvp(lambda p, t: (p[0], t[0]))
        return f(2.0) * y

    with pytest.raises(GradientError, match="argument"):
        grad(wrap(only_closed))(3.0)
    if wrap is jit:
        with pytest.raises(GradientError, match="argument"):
            grad(wrap(outer))(3.0)


def test_a_rule_that_reads_a_closed_over_tracer_raises():
    def outer(y):
        f = custom_jvp(lambda x: x)
        f.defjvp(lambda p, t: (p[0] * y, t[0] * y))
        return f(y)

    with pytest.raises(GradientError, match="closed-over"):
        grad(outer)(3.0)


def test_closing_over_a_value_of_an_outer_jit():
    def outer(y):
        f = custom_jvp(lambda x: x * y)
        f.defjvp(lambda p, t: (p[0] * y, t[0] * y * 2.0))
        return grad(f)(3.0) + f(1.0)

    assert float(jit(outer)(4.0)) == 12.0


# ---- custom_vjp


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_forward_mode_of_custom_vjp_raises(wrap):
    f = wrap(clipped())
    with pytest.raises(GradientError, match="custom_jvp"):
        jvp(f, (TWO, TWO), (TWO, TWO))
    with pytest.raises(GradientError, match="custom_jvp"):
        jit(lambda x: jvp(f, (x, x), (x, x))[1])(TWO)
    with pytest.raises(GradientError, match="custom_jvp"):
        linearize(f, TWO, TWO)[1](TWO, TWO)
    with pytest.raises(GradientError, match="custom_jvp"):
        grad(lambda x: jvp(f, (x, x), (x, x))[1])(TWO)
    with pytest.raises(GradientError, match="custom_jvp"):
        jvp(jit(lambda x: jvp(f, (x, x), (x, x))[1]), (TWO,), (TWO,))


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_vmap_sums_the_cotangents_of_unmapped_arguments(wrap):
    f = clipped()
    loss = lambda x, y: total(wrap(vmap(f, (0, None)))(x, y))
    close(grad(loss, argnums=(0, 1))(X, TWO), (np.full(3, 4.0, np.float32), X.sum()), 1e-6)
    close(grad(lambda y: total(vmap(lambda x: f(y, x))(X)))(TWO), np.float32(2 * X.sum()), 1e-6)
    both = lambda y: total(vmap(vmap(f, (None, 0)), (0, None))(X, y))
    close(grad(both)(X), np.full(3, X.sum(), np.float32), 1e-6)


def test_vmap_of_a_pullback():
    f = clipped()
    for wrap in (lambda f: f, jit):
        _, pull = vjp(wrap(f), TWO, np.float32(3.0))
        found = vmap(pull)(X)
        close(found, (X * 6, X * 2), 1e-6)


def test_vmap_of_a_scan_of_custom_functions():
    f = clipped()

    def loss(x, y):
        return scan(lambda c, _: (f(c, y), None), x, None, length=2)[0]

    def plain(x, y):  # twice the cotangent in each step for the carry, once for y
        return 4 * y * y, 2 * x * y + x * y

    close(vmap(grad(loss, argnums=(0, 1)))(X, X), plain(X, X), 1e-6)
    close(
        grad(lambda x, y: total(vmap(loss, (0, None))(x, y)), argnums=(0, 1))(X, TWO),
        (np.full(3, 16.0, np.float32), np.float32((6 * X).sum())),
        1e-5,
    )
    close(
        grad(lambda x, y: total(vmap(loss, (None, 0))(x, y)), argnums=(0, 1))(TWO, X),
        (np.float32((4 * X * X).sum()), 6 * X),
        1e-5,
    )


def test_vmap_of_a_linear_map_with_a_custom_transpose():
    f = clipped()

    def second(x, y):
        return grad(lambda a: grad(f)(a, y) * f(a, y))(x)

    expected = 2 * X * (2 * X)  # the first factor is constant in a
    close(vmap(second)(X, X), expected, 1e-6)
    close(jit(vmap(jit(second)))(X, X), expected, 1e-6)


def test_nothing_for_none_and_float0():
    f = custom_vjp(lambda x, n, p: (x * n, n))
    f.defvjp(
        lambda x, n, p: ((x * n, n), (n, p)),
        lambda res, cts: (cts[0] * res[0] * 10.0, np.zeros((), dt.float0), None),
    )
    for wrap in (lambda f: f, jit):
        found = grad(wrap(lambda x, p: f(x, 3, p)[0] + p["a"]), argnums=(0, 1))(2.0, {"a": 1.0})
        close(found, (np.float32(30.0), {"a": np.float32(1.0)}))
    lanes = vmap(grad(lambda x, n: f(x, n, 1.0)[0]))(X, np.array([1, 2, 3]))
    close(lanes, np.array([10.0, 20.0, 30.0], np.float32))
    shared = grad(lambda x: total(vmap(lambda n: f(x, n, 1.0)[0])(np.array([1, 2, 3]))))(TWO)
    close(shared, np.float32(60.0))


def test_a_float0_cotangent_of_an_unmapped_integer():
    f = custom_vjp(lambda x, n: x * n)
    f.defvjp(lambda x, n: (x * n, n), lambda n, ct: (ct * n, np.zeros((), dt.float0)))
    found = grad(lambda x: total(vmap(f, (0, None))(x, 3)))(X)
    close(found, np.full(3, 3.0, np.float32))


def test_nondifferentiable_arguments_of_custom_vjp():
    g = custom_vjp(lambda f, x, n: f(x) * n, nondiff_argnums=(0, 2))
    g.defvjp(lambda f, x, n: (f(x) * n, x), lambda f, n, res, ct: (ct * n * 10.0,))
    for wrap in (lambda f: f, jit):
        assert float(grad(wrap(lambda x: g(ops.sin, x, 3)))(0.5)) == 30.0


@pytest.mark.parametrize(
    ("fwd", "bwd", "error", "text"),
    [
        (lambda x: x, lambda r, ct: (ct,), ArgumentTypeError, "pair"),
        (lambda x: ((x,), None), lambda r, ct: (ct,), TreeError, "structure"),
        (lambda x: (x, None), lambda r, ct: (ct, ct), TreeError, "1 cotangents"),
        (lambda x: (x, None), lambda r, ct: ct, TreeError, "1 cotangents"),
        (lambda x: (x, None), lambda r, ct: (np.ones(3, np.float32),), GradientError, r"f32\[3\]"),
        (lambda x: (x, None), lambda r, ct: ((ct, ct),), TreeError, "cotangents of"),
    ],
)
def test_bad_vjp_rules(fwd, bwd, error, text):
    f = custom_vjp(lambda x: x * 2)
    f.defvjp(fwd, bwd)
    with pytest.raises(error, match=text):
        grad(jit(f))(1.0)


def test_a_zero_cotangent_prefix_for_a_whole_argument():
    f = custom_vjp(lambda p, x: p["a"] * x)
    f.defvjp(lambda p, x: (p["a"] * x, x), lambda x, ct: ({"a": None, "b": ct * 0}, ct * 3.0))
    found = grad(f, argnums=(0, 1))({"a": 2.0, "b": 1.0}, 5.0)
    close(found, ({"a": np.float32(0), "b": np.float32(0)}, np.float32(3.0)))


def test_residuals_that_are_outer_values():
    def outer(y):
        f = custom_vjp(lambda x: x * 2.0)
        f.defvjp(lambda x: (x * 2.0, (x, {"w": x * x})), lambda r, ct: (ct * r[1]["w"],))
        return vmap(grad(f))(y)

    close(jit(outer)(X), X * X, 1e-6)


def test_a_batched_linear_part_is_transposed_lane_by_lane():
    f = clipped()
    with pytest.raises(GradientError, match="custom_jvp"):
        vmap(lambda x: jvp(jit(f), (x, x), (x, x))[1])(X)
    scalar = ShapedArray((), np.dtype(np.float32))
    jaxpr = stage(lambda x, y: (jit(f)(x, y),), (scalar, scalar)).jaxpr
    cut = split_of(jvp_of(jaxpr, (True, True)).jaxpr, (False, False, True, True))
    for mapped in ((True, True), (True, False), (False, True)):
        lanes = batch_of(cut.linear, MappedAxis(3), (True, True, *mapped))
        assert lanes.mapped == (True,)
        x = [ops.asvalue(X), ops.asvalue(2 * X)]
        sources = [x[s] if s is not None else None for s in cut.sources]
        inputs = [*sources, *(Linear(a) for a in lanes.jaxpr.in_avals[2:])]
        found = [c.value for c in backward(lanes.jaxpr, inputs, [Cotangent(ops.asvalue(X))])[2:]]
        expected = [2 * 2 * X * X, X * X]
        close(found, [e if m else e.sum() for e, m in zip(expected, mapped, strict=True)], 1e-6)


# ---- symbolic zeros


def test_a_jvp_rule_with_symbolic_zeros():
    seen = []
    f = custom_jvp(lambda x, y: (x * y, y))

    def rule(p, t):
        seen.append([isinstance(s, SymbolicZero) for s in t])
        tangent = t[0] * p[1] * 10.0 if isinstance(t[1], SymbolicZero) else t[1] * p[0]
        return f(*p), (tangent, SymbolicZero(aval_of(p[1])))

    f.defjvp(rule, symbolic_zeros=True)
    for wrap in (lambda f: f, jit):
        assert float(grad(wrap(lambda x: f(x, 3.0)[0]))(2.0)) == 30.0
        close(vmap(grad(wrap(lambda y: sum(f(2.0, y)))))(X), np.full(3, 2.0, np.float32))
    assert seen[0] == [False, True]
    assert seen[-1] == [True, False]
    zero = SymbolicZero(ShapedArray((2,), np.dtype(np.float32)))
    assert (zero.shape, zero.ndim, zero.size, zero.dtype) == ((2,), 1, 2, np.float32)
    assert repr(zero) == "SymbolicZero(f32[2])"
    close(zero.instantiate(), np.zeros(2, np.float32))


def test_vjp_rules_with_symbolic_zeros():
    seen = []
    f = custom_vjp(lambda x, y: (x * y, x + y))

    def fwd(x, y):
        seen.append((x.perturbed, y.perturbed))
        return (x.value * y.value, x.value + y.value), (x.value, y.value)

    def bwd(res, cts):
        seen.append(tuple(isinstance(ct, SymbolicZero) for ct in cts))
        return cts[0] * res[1] * 10.0, SymbolicZero(aval_of(res[1]))

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    for wrap in (lambda f: f, jit, vmap):
        seen.clear()
        found = grad(lambda x, y, w=wrap: total(w(f)(x, y)[0]), argnums=(0, 1))(X, 2 * X)
        close(found, (20 * X, 0 * X), 1e-6)
        assert seen == [(True, True), (False, True)]
        seen.clear()
        close(grad(lambda x, w=wrap: total(w(f)(x, 2 * X)[0]))(X), 20 * X, 1e-6)
        assert seen[0] == (True, False)


# ---- functions that return their rule, and closures


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_custom_gradient_of_one_argument(wrap):
    """A cotangent, or a tuple of it; an argument may be a tuple itself."""
    of = lambda rule: wrap(custom_gradient(lambda x: (x * x, rule)))
    for rule in (lambda ct: ct * 7.0, lambda ct: (ct * 7.0,), lambda ct: [ct * 7.0]):
        assert float(grad(of(rule))(3.0)) == 7.0
    f = wrap(custom_gradient(lambda xs: (xs[0] * xs[0], lambda ct: (ct * 7.0,))))
    assert float(grad(f)((3.0,))[0]) == 7.0
    with pytest.raises(TypeError):
        grad(of(lambda ct: (ct, ct)))(3.0)


def test_custom_gradient():
    f = custom_gradient(lambda x: (x * x, lambda ct: ct * x * 10.0))
    g = custom_gradient(lambda x, y: ({"a": x * y}, lambda ct: (ct["a"] * y, ct["a"] * x * 2.0)))
    table = ops.asvalue(X)
    h = custom_gradient(lambda x: (x * 2.0, lambda ct: ct * table))
    for wrap in (lambda f: f, jit, lambda f: jit(jit(f))):
        assert float(wrap(f)(3.0)) == 9.0
        close(vmap(grad(wrap(f)))(X), 10 * X, 1e-6)
        close(jit(vmap(grad(wrap(f))))(X), 10 * X, 1e-6)
        close(grad(wrap(lambda x, y: g(x, y)["a"]), argnums=(0, 1))(2.0, 3.0), (F32(3), F32(4)))
        close(grad(lambda x, w=wrap: total(w(h)(x)))(X), X, 1e-6)
    close(grad(lambda y: total(vmap(lambda x: g(x, y)["a"])(X)))(TWO), F32(2 * X.sum()), 1e-6)
    close(scan(lambda c, _: (grad(f)(c), None), F32(1.0), None, length=2)[0], F32(100.0))
    with pytest.raises(ArgumentTypeError, match="output, rule"):
        custom_gradient(lambda x: x)(1.0)
    with pytest.raises(ArgumentTypeError, match="function"):
        custom_gradient(3)


def test_closure_convert():
    def outer(y):
        f = lambda x, n: {"out": x * y * n * ops.asvalue(np.array([1, 2, 3]))}
        converted, values = closure_convert(f, X, 2)
        assert len(values) == 1
        rule = custom_vjp(converted, nondiff_argnums=1)
        rule.defvjp(
            lambda x, n, v: (converted(x, n, v), (x, v)),
            lambda n, res, ct: (ct["out"] * res[1] * n, total(ct["out"] * res[0]) * n),
        )
        return total(rule(X, 2, *values)["out"])

    close(grad(outer)(TWO), F32(2 * X.sum()), 1e-6)
    converted, values = closure_convert(lambda x: x * 2.0, 1.0)
    assert values == []
    with pytest.raises(ArgumentTypeError, match="structure"):
        converted(1.0, 2.0)
    with pytest.raises(ArgumentTypeError, match="function"):
        closure_convert(3)


def test_the_records():
    jaxpr = stage(lambda x: (doubled()(x),), (ShapedArray((3,), np.dtype(np.float32)),)).jaxpr
    (eqn,) = jaxpr.eqns
    close(custom_jvp_p.expand(ops.asvalue(X), **eqn.params)[0], np.sin(X), 1e-6)
    assert type(custom_jvp_p.form(**eqn.params)).__name__ == "Expand"
    assert type(custom_vjp_p.form()).__name__ == "Expand"
    assert "transposed" in custom_linear_p.form().why


def test_residuals_that_are_numbers_of_pythons_stay_so():
    seen = []

    @custom_vjp
    def f(x, flag):
        return x * 2

    def bwd(residual, ct):
        seen.append(residual)
        return ct * residual["factor"] if residual["up"] is True else ct, None

    f.defvjp(lambda x, flag: (x * 2, {"up": True, "factor": 3.0, "x": x, "n": np.float64(2)}), bwd)
    assert float(grad(f)(1.0, 1)) == float(jit(grad(f))(1.0, 1)) == 3.0
    np.testing.assert_array_equal(vmap(grad(f), (0, None))(np.ones(2, np.float32), 1), [3, 3])
    assert len(seen) == 3
    assert all(type(r["up"]) is bool and type(r["factor"]) is float for r in seen)
    assert not any(isinstance(r["n"], np.generic) for r in seen)
