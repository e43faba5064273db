"""vjp, linearize, linear_transpose: results, trees, dtypes, errors."""

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax import tree
from lumjax.errors import ArgumentTypeError, GradientError, LeakedTracerError, TreeError
from lumjax.grad.forward import jvp, stop_gradient
from lumjax.grad.linear import linear_transpose, linearize, vjp
from lumjax.grad.reverse import grad
from lumjax.ops.elementwise import add, mul, sin
from lumjax.ops.layout import reduce_sum
from lumjax.trace.batch import vmap
from lumjax.trace.core import active_traces, aval_of
from lumjax.trace.stage import stage
from tests.grad.words import ops as n


@pytest.fixture(autouse=True)
def clean_stack():
    yield
    assert len(active_traces()) == 1


def number(x):
    return float(x.data)


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


FLOAT0 = np.zeros((), dt.float0)


def test_vjp():
    y, pull = vjp(mul, 3.0, 4.0)
    assert number(y) == 12.0
    assert [number(ct) for ct in pull(2.0)] == [8.0, 6.0]
    assert [number(ct) for ct in pull(1.0)] == [4.0, 3.0]


def test_vjp_of_trees_with_aux():
    f = lambda d, k: ({"s": mul(d["x"], d["y"]), "k": k}, (d["x"], "aux"))
    y, pull, aux = vjp(f, {"x": 3.0, "y": 4.0}, 7, has_aux=True)
    assert number(y["s"]) == 12.0
    assert (number(aux[0]), aux[1]) == (3.0, "aux")
    cts, inert = pull({"s": 1.0, "k": FLOAT0})
    assert (number(cts["x"]), number(cts["y"])) == (4.0, 3.0)
    assert inert.dtype == dt.float0


def test_adjoint_identity():
    w = rand(4, 3)
    f = lambda x: n.tanh(n.dot(w, mul(sin(x), x)))
    x, u, v = rand(3), rand(4, seed=1), rand(3, seed=2)
    _, push = jvp(f, (x,), (v,))
    (pulled,) = vjp(f, x)[1](u)
    assert np.dot(u, push.data) == pytest.approx(np.dot(pulled.data, v), rel=1e-5)


def test_pullback_and_derivative_are_pytrees_of_residuals():
    _, pull = vjp(lambda x: mul(sin(x), x), rand(3))
    leaves, treedef = tree.flatten(pull)
    assert leaves
    again = tree.unflatten(treedef, leaves)
    ones = np.ones(3, np.float32)
    np.testing.assert_array_equal(again(ones)[0].data, pull(ones)[0].data)


def test_linearize():
    y, push = linearize(lambda x, y: mul(sin(x), y), 2.0, 3.0)
    assert number(y) == pytest.approx(3 * np.sin(2.0), rel=1e-6)
    expected = 3 * np.cos(2.0) + 0.5 * np.sin(2.0)
    assert number(push(1.0, 0.5)) == pytest.approx(expected, rel=1e-6)
    assert number(push(0.0, 0.0)) == 0.0


def test_linearize_with_aux_constants_and_integers():
    f = lambda x, k: ((mul(x, x), k, 1.0), x)
    (y, k, c), push, aux = linearize(f, 3.0, 2, has_aux=True)
    assert (number(y), number(k), number(c), number(aux)) == (9.0, 2.0, 1.0, 3.0)
    t, tk, tc = push(1.0, FLOAT0)
    assert (number(t), number(tc)) == (6.0, 0.0)
    assert tk.dtype == dt.float0


def test_linearize_runs_the_function_once():
    calls = []

    def f(x):
        calls.append(1)
        return mul(x, x)

    _, push = linearize(f, 3.0)
    push(1.0)
    push(2.0)
    assert len(calls) == 1


def test_linearized_under_other_transformations():
    x = rand(3)
    f = lambda x: reduce_sum(mul(sin(x), x), None)
    _, push = linearize(f, x)
    basis = vmap(push)(np.eye(3, dtype=np.float32))
    np.testing.assert_allclose(basis.data, grad(f)(x).data, rtol=1e-6)
    second = grad(lambda x: linearize(f, x)[1](np.ones(3, np.float32)))(x)
    np.testing.assert_allclose(second.data, 2 * np.cos(x) - x * np.sin(x), rtol=1e-5, atol=1e-6)


def test_linear_transpose():
    w = rand(4, 3)
    transposed = linear_transpose(lambda x, y: add(n.dot(w, x), y), rand(3), rand(4))
    ct = rand(4, seed=3)
    to_x, to_y = transposed(ct)
    np.testing.assert_allclose(to_x.data, w.T @ ct, rtol=1e-5)
    np.testing.assert_array_equal(to_y.data, ct)


class Described:
    shape, dtype, weak_type = (3,), np.dtype(np.float32), False


def test_linear_transpose_of_descriptions():
    (ct,) = linear_transpose(lambda x: mul(x, 2.0), Described())(np.ones(3, np.float32))
    assert ct.data.tolist() == [2.0, 2.0, 2.0]
    (ct,) = linear_transpose(lambda d: d["a"], {"a": 1.0, "b": 2.0})(3.0)
    assert (number(ct["a"]), number(ct["b"])) == (3.0, 0.0)


def test_linear_transpose_inside_grad():
    f = lambda x: mul(linear_transpose(lambda t: mul(t, x), 1.0)(x)[0], 1.0)
    assert number(grad(f)(3.0)) == 6.0


def test_transpose_twice_is_the_function():
    w = rand(4, 3)
    once = lambda ct: linear_transpose(lambda x: n.dot(w, x), rand(3))(ct)[0]
    (twice,) = linear_transpose(once, rand(4))(rand(3, seed=5))
    np.testing.assert_allclose(twice.data, w @ rand(3, seed=5), rtol=1e-5)


def test_staged_pullback():
    f = lambda x: [vjp(sin, x)[1](x)[0]]
    staged = stage(f, [aval_of(np.float32(1.0))])
    assert staged.jaxpr.out_avals[0].shape == ()


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: vjp(3), ArgumentTypeError, "vjp: requires a function"),
        (lambda: linearize(3), ArgumentTypeError, "linearize: requires a function"),
        (lambda: linear_transpose(3), ArgumentTypeError, "linear_transpose: requires a function"),
        (lambda: vjp(sin, "a"), ArgumentTypeError, "vjp"),
        (
            lambda: vjp(sin, 1.0)[1](np.ones(3, np.float32)),
            GradientError,
            r"pullback from vjp: requires a cotangent f32\[\].*got a cotangent f32\[3\]",
        ),
        (lambda: vjp(sin, 1.0)[1](1), GradientError, r"i32\[\]"),
        (lambda: vjp(sin, 1.0)[1]((1.0, 1.0)), TreeError, "a cotangent of the structure"),
        (lambda: vjp(lambda x: x, 3)[1](1), GradientError, "float0"),
        (lambda: linearize(sin, 1.0)[1](np.ones(2, np.float32)), GradientError, r"f32\[2\]"),
        (linearize(sin, 1.0)[1], TreeError, "a tangent of the structure"),
        (lambda: linear_transpose(sin, 1.0), GradientError, "linear in all its arguments.*'sin'"),
        (lambda: linear_transpose(lambda x: mul(x, x), 1.0), GradientError, "linear in all"),
        (
            lambda: linear_transpose(lambda x: x, 3),
            GradientError,
            r"complex arguments; got i32\[\]",
        ),
        (lambda: linear_transpose(lambda x: x, 3.0)(1), GradientError, "cotangent"),
        (lambda: linear_transpose(lambda x: "a", 3.0), ArgumentTypeError, "output"),
        (lambda: vjp(lambda x: x, 1.0, has_aux=True), GradientError, "pair"),
    ],
)
def test_bad_input(call, kind, text):
    with pytest.raises(kind, match=text) as error:
        call()
    assert "test_linear.py" in str(error.value)


def test_pullback_that_outlives_its_trace():
    kept = []
    grad(lambda x: kept.append(vjp(lambda y: mul(x, y), x)[1]) or x)(2.0)
    with pytest.raises(LeakedTracerError):
        kept[0](1.0)


def test_stopped_values_have_no_cotangent():
    (ct,) = vjp(stop_gradient, 2.0)[1](1.0)
    assert number(ct) == 0.0
