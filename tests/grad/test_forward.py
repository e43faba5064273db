"""jvp and stop_gradient: rules, argument checks, state."""

import dataclasses

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.errors import (
    ArgumentTypeError,
    GradientError,
    LeakedTracerError,
    MissingRuleError,
    TreeError,
)
from lumjax.grad.forward import JVPTrace, JVPTracer, jvp, stop_gradient, stop_gradient_p, zeros
from lumjax.grad.reverse import grad
from lumjax.ops import elementwise
from lumjax.ops.elementwise import mul, sin, sin_p, sincos_p
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import vmap
from lumjax.trace.core import EvalTrace, Primitive, active_traces, aval_of, current
from lumjax.trace.dim import symbol
from lumjax.trace.stage import stage
from tests.grad.words import ops as n

ONE = np.float32(1.0)
FLOAT0 = np.zeros((), dt.float0)


@pytest.fixture(autouse=True)
def clean_stack():
    yield
    assert len(active_traces()) == 1
    assert isinstance(current(), EvalTrace)


def number(x):
    return float(x.data)


def test_value_and_tangent():
    y, t = jvp(lambda x, y: mul(sin(x), y), (2.0, 3.0), (1.0, 0.5))
    assert number(y) == pytest.approx(3 * np.sin(2.0), rel=1e-6)
    assert number(t) == pytest.approx(3 * np.cos(2.0) + 0.5 * np.sin(2.0), rel=1e-6)


def test_lists_and_trees():
    f = lambda d: {"z": mul(d["x"], d["y"]), "x": d["x"]}
    y, t = jvp(f, [{"x": 2.0, "y": 3.0}], [{"x": 1.0, "y": 0.0}])
    assert (number(y["z"]), number(t["z"]), number(t["x"])) == (6.0, 3.0, 1.0)


def test_constant_and_integer_outputs():
    (c, k), (tc, tk) = jvp(lambda x: (1.5, n.greater(x, 0.0)), (2.0,), (1.0,))
    assert (number(c), number(tc)) == (1.5, 0.0)
    assert tc.weak
    assert bool(k.data) is True
    assert tk.dtype == dt.float0
    assert tk.shape == ()


def test_integer_inputs_take_float0():
    y, t = jvp(lambda k, x: mul(x, x), (3, 2.0), (FLOAT0, 1.0))
    assert (number(y), number(t)) == (4.0, 4.0)


def test_aux_is_a_primal():
    y, t, aux = jvp(lambda x: (mul(x, x), {"x": x, "s": "text"}), (3.0,), (1.0,), has_aux=True)
    assert (number(y), number(t), number(aux["x"]), aux["s"]) == (9.0, 6.0, 3.0, "text")


def test_weak_types_follow_the_primals():
    y, t = jvp(lambda x: mul(x, x), (2.0,), (1.0,))
    assert y.weak
    assert t.weak
    y, t = jvp(lambda x: mul(x, x), (np.float32(2.0),), (1.0,))
    assert not y.weak
    assert not t.weak


def test_primals_are_evaluated_once_at_every_order():
    counts = {"sin": 0, "sincos": 0}

    def counting(prim):
        def evaluate(*args):
            counts[prim.name] += 1
            return prim.eval(*args)

        return evaluate

    counted = {p: counting(p) for p in (sin_p, sincos_p)}

    class Counter(EvalTrace):
        def process(self, prim, args, params):
            if prim in counted:
                prim = dataclasses.replace(prim, eval=counted[prim])
            return super().process(prim, args, params)

    def run(order):
        f = sin
        for _ in range(order):
            f = (lambda g: lambda x: jvp(g, (x,), (ONE,))[1])(f)
        counts.update(sin=0, sincos=0)
        active_traces().append(Counter())
        try:
            result = number(f(ONE))
        finally:
            active_traces().pop()
        return result, dict(counts)

    derivatives = [np.sin(1), np.cos(1), -np.sin(1), -np.cos(1)]
    for order in range(4):
        result, seen = run(order)
        assert result == pytest.approx(derivatives[order], rel=1e-6)
        # With a derivative, sine and cosine come from one evaluation of the pair.
        assert seen == ({"sin": 1, "sincos": 0} if order == 0 else {"sin": 0, "sincos": 1})


def test_concrete_values_through_nesting_but_not_through_vmap_or_staging():
    seen = []

    def f(x):
        seen.append(x.concrete())
        return mul(x, x)

    jvp(lambda x: jvp(f, (x,), (ONE,))[1], (ONE,), (ONE,))
    assert seen.pop() == 1.0
    grad(grad(f))(2.0)
    assert seen.pop() == 2.0
    vmap(lambda x: jvp(f, (x,), (ONE,))[1])(np.ones(3, np.float32))
    assert seen.pop() is None
    stage(lambda x: [jvp(f, (x,), (ONE,))[1]], [aval_of(ONE)])
    assert seen.pop() is None
    assert JVPTracer(JVPTrace(), 2.0, 1.0).concrete() == np.float32(2.0)


def test_perturbations_do_not_mix():
    f = lambda x: mul(x, jvp(lambda y: mul(x, y), (ONE,), (ONE,))[1])
    assert number(jvp(f, (np.float32(3.0),), (ONE,))[1]) == 6.0


def test_closure_over_an_outer_tracer():
    f = lambda x: jvp(lambda y: mul(mul(x, x), y), (x,), (ONE,))[1]
    assert number(jvp(f, (np.float32(3.0),), (ONE,))[1]) == 6.0


def test_zeros_of_symbolic_shape():
    size = symbol("n", 1)
    assert zeros(ShapedArray((), dt.float32, True)).weak
    staged = stage(lambda x: [zeros(aval_of(x))], [ShapedArray((size,), dt.float32)])
    assert staged.jaxpr.out_avals[0].shape == (size,)


def test_stop_gradient():
    assert number(grad(lambda x: mul(x, stop_gradient(x)))(3.0)) == 3.0
    assert number(grad(grad(lambda x: mul(mul(x, x), stop_gradient(x))))(3.0)) == 6.0
    y, t = jvp(lambda x: stop_gradient({"x": x, "k": 3}), (2.0,), (1.0,))
    assert number(y["x"]) == 2.0
    assert number(t["x"]) == 0.0


def test_stop_gradient_leaves_other_leaves_alone():
    tree = {"k": 3, "s": "text", "b": np.array([True])}
    assert stop_gradient(tree) == tree


def test_stop_gradient_is_kept_when_staged_and_mapped():
    staged = stage(lambda x: [stop_gradient(x)], [ShapedArray((2,), dt.float32)])
    assert [e.prim for e in staged.jaxpr.eqns] == [stop_gradient_p]
    out = vmap(grad(lambda x: mul(x, stop_gradient(x))))(np.arange(3, dtype=np.float32))
    assert out.data.tolist() == [0.0, 1.0, 2.0]


def test_stop_gradient_of_a_tangent_is_the_identity():
    def f(x):
        return jvp(lambda y: mul(y, y), (x,), (stop_gradient(x),))[1]

    assert number(f(3.0)) == 18.0


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: jvp(3, (1.0,), (1.0,)), ArgumentTypeError, "jvp: requires a function"),
        (lambda: jvp(sin, 1.0, 1.0), ArgumentTypeError, "tuples or lists"),
        (lambda: jvp(sin, (1.0,), (1.0, 2.0)), TreeError, "tangents of the structure"),
        (lambda: jvp(sin, (1.0,), (1,)), GradientError, r"tangent f32\[\].*got a tangent i32\[\]"),
        (lambda: jvp(sin, (1.0,), (np.ones(3, np.float32),)), GradientError, r"f32\[3\]"),
        (lambda: jvp(sin, (1.0,), ("a",)), ArgumentTypeError, "'a' of type str"),
        (lambda: jvp(lambda x: x, (3,), (1.0,)), GradientError, "float0"),
        (lambda: jvp(sin, ("a",), ("b",)), ArgumentTypeError, "jvp"),
        (lambda: jvp(lambda x: "a", (1.0,), (1.0,)), ArgumentTypeError, "output of a"),
        (lambda: jvp(lambda x: x, (1.0,), (1.0,), has_aux=True), GradientError, "pair"),
        (lambda: jvp(lambda x: (x, x, x), (1.0,), (1.0,), True), GradientError, "a tuple of 3"),
    ],
)
def test_bad_input(call, kind, text):
    with pytest.raises(kind, match=text) as error:
        call()
    assert "test_forward.py" in str(error.value)


def test_leaked_tracers():
    kept = []
    jvp(lambda x: kept.append(x) or x, (1.0,), (1.0,))
    with pytest.raises(LeakedTracerError):
        sin(kept[0])
    with pytest.raises(LeakedTracerError):
        jvp(lambda x: kept[0], (1.0,), (1.0,))


def test_missing_rule_names_the_primitive():
    odd = Primitive("odd", aval=lambda x: (x,), eval=lambda x: (x,), form=sin_p.form)
    with pytest.raises(MissingRuleError, match="jvp of primitive 'odd'"):
        jvp(lambda x: odd.bind(x)[0], (Array(ONE),), (ONE,))


def test_state_after_an_exception():
    def f(x):
        raise KeyError("user")

    with pytest.raises(KeyError):
        jvp(lambda x: jvp(f, (x,), (ONE,)), (1.0,), (1.0,))


def test_numpy_arguments_are_copied():
    x = np.ones(2, np.float32)
    y, _ = jvp(lambda x: x, (x,), (x,))
    x[0] = 5
    assert y.data.tolist() == [1.0, 1.0]
    assert elementwise.add(y, y).data.tolist() == [2.0, 2.0]
