"""grad and value_and_grad: arguments, dtypes, trees, control flow on values, errors, state."""

import collections
import dataclasses

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax import tree
from lumjax.config import config
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    GradientError,
    LeakedTracerError,
    MissingRuleError,
)
from lumjax.grad.forward import jvp
from lumjax.grad.linear import vjp
from lumjax.grad.reverse import grad, value_and_grad
from lumjax.ops.elementwise import add, cast, mul, sin, sin_p
from lumjax.ops.parts import imag, real
from lumjax.trace.array import Array
from lumjax.trace.batch import vmap
from lumjax.trace.core import EvalTrace, Primitive, active_traces, aval_of, current
from lumjax.trace.stage import stage
from tests.grad.words import ops as n


@pytest.fixture(autouse=True)
def clean_stack():
    yield
    assert len(active_traces()) == 1
    assert isinstance(current(), EvalTrace)


def number(x):
    return float(x.data)


def cube(x):
    return mul(mul(x, x), x)


def test_orders():
    f, expected = cube, [12.0, 12.0, 6.0, 0.0]
    for value in expected:
        f = grad(f)
        assert number(f(2.0)) == value


def test_argnums():
    f = lambda x, y, z: add(mul(x, y), z)
    args = (2.0, 3.0, 4.0)
    assert number(grad(f)(*args)) == 3.0
    assert number(grad(f, 1)(*args)) == 2.0
    assert number(grad(f, -1)(*args)) == 1.0
    assert [number(g) for g in grad(f, (1, 0))(*args)] == [2.0, 3.0]
    assert [number(g) for g in grad(f, [0])(*args)] == [3.0]
    assert grad(f, ())(*args) == ()


def test_other_arguments_are_passed_unchanged():
    seen = []

    def f(x, mode, *, power):
        seen.append((mode, power))
        return mul(x, power)

    assert number(grad(f)(2.0, "fast", power=3)) == 3.0
    assert seen == [("fast", 3)]


def test_value_and_grad_with_aux():
    f = lambda x: (mul(x, x), {"x": x, "note": "text", "half": mul(x, 0.5)})
    (y, aux), g = value_and_grad(f, has_aux=True)(3.0)
    assert (number(y), number(g), number(aux["x"]), number(aux["half"])) == (9.0, 6.0, 3.0, 1.5)
    assert aux["note"] == "text"
    g, aux = grad(f, has_aux=True)(3.0)
    assert number(g) == 6.0
    _, aux = grad(lambda x: grad(lambda y: (mul(x, y), y), has_aux=True)(x), has_aux=True)(2.0)
    assert number(aux) == 2.0


@dataclasses.dataclass
class Plain:
    x: object


tree.register_dataclass(Plain)
Pair = collections.namedtuple("Pair", "a b")


def test_trees():
    params = {"w": np.ones((2, 3), np.float32), "rest": [Pair(1.0, None), Plain(2.0)]}

    def loss(p):
        pair, plain = p["rest"]
        return add(n.sum(mul(p["w"], p["w"])), mul(pair.a, plain.x))

    g = grad(loss)(params)
    assert g["w"].data.tolist() == [[2.0] * 3] * 2
    assert (number(g["rest"][0].a), number(g["rest"][1].x)) == (2.0, 1.0)
    assert g["rest"][0].b is None


def test_weak_types_and_dtypes():
    g = grad(lambda x: mul(x, 2.0))(3.0)
    assert g.weak
    assert g.dtype == np.float32
    assert not grad(lambda x: mul(x, 2.0))(np.float32(3.0)).weak
    assert not grad(lambda x: x)(np.float32(3.0)).weak
    assert grad(lambda x: mul(cast(x, dt.float32), np.float32(2.0)))(3.0).weak
    for dtype in (dt.float16, dt.bfloat16):
        g = grad(lambda x: n.sum(mul(cast(x, dt.float32), x)))(np.ones(2, dtype))
        assert g.dtype == dtype
        assert g.data.astype(np.float32).tolist() == [2.0, 2.0]
    with config.scope(enable_x64=True):
        assert grad(cube)(np.float64(2.0)).dtype == np.float64


def test_unused_arguments_and_constant_functions():
    gx, gy = grad(lambda x, y: sin(x), (0, 1))(0.0, np.ones(2, np.float32))
    assert number(gx) == 1.0
    assert gy.data.tolist() == [0.0, 0.0]
    assert number(grad(lambda x: 3.0)(1.0)) == 0.0
    assert number(grad(lambda x: x)(1.0)) == 1.0


def test_integers():
    g = grad(lambda x, k: mul(x, x), (0, 1), allow_int=True)(2.0, np.arange(3))
    assert number(g[0]) == 4.0
    assert g[1].dtype == dt.float0
    assert g[1].shape == (3,)


def test_python_control_flow_sees_values():
    def f(x):
        for _ in range(int(x.concrete())):
            x = mul(x, 2.0) if x.concrete() < 10 else add(x, 1.0)
        return x

    assert number(grad(f)(3.0)) == 4.0
    assert number(grad(grad(lambda x: mul(f(x), f(x))))(3.0)) == 32.0


def test_cotangents_accumulate():
    def f(x):
        y = sin(x)
        return add(add(mul(y, y), y), mul(y, x))

    assert number(grad(f)(0.0)) == 1.0
    assert number(grad(f)(np.float32(1.0))) == pytest.approx(
        2 * np.sin(1) * np.cos(1) + np.cos(1) + np.cos(1) + np.sin(1), rel=1e-6
    )


def test_closures():
    def outer(x):
        return mul(x, grad(lambda y: mul(x, mul(y, y)))(x))  # x * 2 x^2

    assert number(grad(outer)(2.0)) == 24.0
    assert vmap(grad(outer))(np.ones(2, np.float32)).data.tolist() == [6.0, 6.0]
    xs = np.arange(3, dtype=np.float32)
    mixed = vmap(lambda x: grad(lambda y: mul(mul(x, y), y))(x))(xs)
    assert mixed.data.tolist() == [0.0, 2.0, 8.0]


def test_staged():
    staged = stage(lambda x: [grad(cube)(x)], [aval_of(np.float32(1.0))])
    assert staged.jaxpr.consts == 0
    inside = grad(lambda x: mul(x, stage(lambda y: [mul(x, y)], [aval_of(x)]).consts[0]))
    assert number(inside(3.0)) == 6.0


def test_backward_equations_come_from_the_forward_lines():
    def f(x):
        return mul(sin(x), x)

    staged = stage(lambda x: [grad(f)(x)], [aval_of(np.float32(1.0))])
    line = f.__code__.co_firstlineno + 1
    assert {e.source.line for e in staged.jaxpr.eqns} == {line}


def test_holomorphic():
    f = lambda z: mul(mul(z, z), np.complex64(1j))
    g = grad(f, holomorphic=True)(np.complex64(1 + 2j))
    assert complex(g.data) == pytest.approx(2j * (1 + 2j))


def test_real_loss_of_complex_input_follows_jax():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    z = np.complex64(1.5 - 0.5j)
    ours = grad(lambda z: real(mul(mul(z, z), z)))(z)
    theirs = jax.grad(lambda z: jnp.real(z * z * z))(z)
    np.testing.assert_allclose(ours.data, np.asarray(theirs), rtol=1e-5)
    ours = grad(lambda z: add(imag(mul(z, z)), mul(real(z), 3.0)))(z)
    theirs = jax.grad(lambda z: jnp.imag(z * z) + 3 * jnp.real(z))(z)
    np.testing.assert_allclose(ours.data, np.asarray(theirs), rtol=1e-5)


def test_names():
    def loss(x):
        """Small."""
        return x

    assert grad(loss).__name__ == "grad(loss)"
    assert "Small." in value_and_grad(loss).__doc__


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: grad(3), ArgumentTypeError, "grad: requires a function"),
        (lambda: grad(sin, 1.5), ArgumentTypeError, "argnums"),
        (lambda: grad(sin, (0, "x")), ArgumentTypeError, "argnums"),
        (lambda: grad(sin, 2)(1.0), ArgumentValueError, "argument number 2.*got 1 positional"),
        (lambda: grad(sin, -2)(1.0), ArgumentValueError, "number -2"),
        (
            lambda: grad(sin)(3),
            GradientError,
            r"floating or complex inputs; got i32\[\].*allow_int",
        ),
        (lambda: grad(sin)(np.ones(3, np.float32)), GradientError, r"scalar output.*f32\[3\]"),
        (lambda: grad(lambda x: (x, x))(1.0), GradientError, "scalar output.*structure"),
        (lambda: grad(lambda x: [x])(1.0), GradientError, "scalar output.*structure"),
        (lambda: grad(lambda x: None)(1.0), GradientError, "scalar output"),
        (lambda: grad(lambda x: 3)(1.0), GradientError, r"real floating dtype; got i32\[\]"),
        (lambda: grad(lambda x: mul(x, 1j))(1.0), GradientError, "holomorphic=True"),
        (lambda: grad(lambda x: "text")(1.0), ArgumentTypeError, "'text' of type str"),
        (lambda: grad(sin)("text"), ArgumentTypeError, "grad"),
        (lambda: grad(sin, holomorphic=True)(1.0), GradientError, "complex inputs"),
        (lambda: grad(real, holomorphic=True)(1j), GradientError, "complex output"),
        (lambda: grad(lambda x: x, has_aux=True)(1.0), GradientError, "pair"),
    ],
)
def test_bad_input(call, kind, text):
    with pytest.raises(kind, match=text) as error:
        call()
    assert "test_reverse.py" in str(error.value)


def test_the_error_of_a_missing_transpose_rule_points_at_the_line():
    odd = Primitive(
        "odd",
        aval=lambda x: (x,),
        eval=lambda x: (x,),
        form=sin_p.form,
        jvp=lambda ps, ts: (odd.bind(*ps), odd.bind(*ts)),
    )
    with pytest.raises(MissingRuleError, match="through 'odd'") as error:
        grad(lambda x: odd.bind(x)[0])(Array(np.float32(1.0)))
    assert error.value.source.function == "<lambda>"


def test_leaked_tracers():
    kept = []
    grad(lambda x: kept.append(x) or x)(1.0)
    with pytest.raises(LeakedTracerError):
        sin(kept[0])
    with pytest.raises(LeakedTracerError):
        grad(lambda x: kept[0])(1.0)


def test_state_after_an_exception():
    def f(x):
        raise KeyError("user")

    for transform in (grad, value_and_grad):
        with pytest.raises(KeyError):
            transform(transform(f))(1.0)
    with pytest.raises(KeyError):
        vmap(grad(f))(np.ones(2, np.float32))
    assert number(grad(cube)(1.0)) == 3.0


def test_symmetry_of_mixed_derivatives():
    f = lambda x, y: mul(sin(mul(x, y)), y)
    a = grad(lambda y: grad(f, 0)(1.3, y))(0.7)
    b = grad(lambda x: grad(f, 1)(x, 0.7))(1.3)
    c = jvp(lambda y: vjp(lambda x: f(x, y), 1.3)[1](1.0)[0], (0.7,), (1.0,))[1]
    assert number(a) == pytest.approx(number(b), rel=1e-5)
    assert number(a) == pytest.approx(number(c), rel=1e-5)
