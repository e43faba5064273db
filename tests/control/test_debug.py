"""debug.print, debug.callback, pure_callback and io_callback."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import lumjax.ops as ops
from lumjax.control import debug
from lumjax.control.callback import (
    debug_callback_p,
    io_callback_p,
    ordered_debug_callback_p,
    pure_callback_p,
)
from lumjax.control.checkpoint import checkpoint
from lumjax.control.cond import cond
from lumjax.control.custom import custom_jvp
from lumjax.control.scan import scan, while_loop
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DTypeError,
    GradientError,
    ShapeError,
    TreeError,
    UnsupportedError,
)
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Effect
from lumjax.trace.simplify import simplify
from lumjax.trace.stage import stage
from tests.control.worlds import close, grad, jit, jvp, numbers, total, vmap

X = np.array([0.3, -0.7, 1.2], np.float32)
SCALAR = np.zeros((), np.float32)
AVAL = ShapedArray((), np.dtype(np.float32))


def counted():
    seen = []

    def f(x):
        debug.callback(lambda v: seen.append(round(float(v), 3)), x)
        return ops.sin(x)

    return f, seen


# ---- print and callback


def test_print_formats_values(capsys):
    debug.print("a {} {x:.2f} {y[k]}", 1, x=np.float32(0.5), y={"k": X})
    jit(lambda x: debug.print("{} and {}", x, "text"))(np.arange(2))
    debug.print("no arguments {{}}")
    assert capsys.readouterr().out == f"a 1 0.50 {X}\n[0 1] and text\nno arguments {{}}\n"


def test_print_checks_its_format():
    with pytest.raises(ArgumentTypeError, match="format string"):
        debug.print(3)
    with pytest.raises(ArgumentValueError, match="unused 1, 'x'"):
        debug.print("{}", 1, 2, x=3)
    with pytest.raises(IndexError):
        debug.print("{} {}", 1)
    debug.print("{x.shape}", x=X)
    with pytest.raises(ArgumentTypeError, match="function"):
        debug.callback(3)


@pytest.mark.parametrize(
    ("transform", "times"),
    [
        (lambda f: f(0.5), 1),
        (lambda f: jit(f)(0.5), 1),
        (lambda f: jvp(f, (0.5,), (1.0,)), 1),
        (lambda f: grad(f)(0.5), 1),
        (lambda f: grad(jit(f))(0.5), 1),
        (lambda f: jit(grad(f))(0.5), 1),
        (lambda f: grad(grad(f))(0.5), 1),
        (lambda f: grad(checkpoint(f))(0.5), 2),
        (lambda f: jit(grad(checkpoint(f)))(0.5), 2),
        (lambda f: checkpoint(f)(0.5), 1),
        (lambda f: scan(lambda c, _: (f(c), None), 0.5, None, length=3), 3),
        (lambda f: grad(lambda x: scan(lambda c, _: (f(x), None), 0.5, None, length=3)[0])(0.5), 3),
        (lambda f: while_loop(lambda n: n < 2, lambda n: (f(n * 1.0), n + 1)[1], 0), 2),
        (lambda f: cond(True, f, lambda x: x, 0.5), 1),
        (lambda f: cond(False, f, lambda x: x, 0.5), 0),
        (lambda f: vmap(f)(X), 3),
        (lambda f: vmap(grad(f))(X), 3),
        (lambda f: grad(lambda x: total(vmap(f)(x)))(X), 3),
        (lambda f: vmap(lambda x: f(0.5) * x)(X), 1),
        (lambda f: vmap(lambda x: cond(x > 0, f, lambda x: x, x))(X), 3),
        (lambda f: vmap(vmap(f))(np.stack([X, X])), 6),
    ],
)
def test_how_often_a_callback_is_called(transform, times):
    f, seen = counted()
    transform(f)
    assert len(seen) == times


def test_lanes_in_order():
    f, seen = counted()
    vmap(f)(X)
    assert seen == [0.3, -0.7, 1.2]
    seen.clear()
    vmap(lambda x: debug.callback(lambda a, b: seen.append((float(a), int(b))), x, 7))(X[:2])
    assert [b for _, b in seen] == [7, 7]


def test_a_mapped_callback_without_lanes():
    f, seen = counted()
    assert vmap(f)(np.zeros(0, np.float32)).shape == (0,)
    assert seen == []
    out = vmap(lambda x: debug.pure_callback(np.sin, SCALAR, x, vmap_method="sequential"))(
        np.zeros(0, np.float32)
    )
    assert out.shape == (0,)


def test_ordered_calls():
    seen = []
    note = lambda x: debug.callback(lambda v: seen.append(int(v)), x, ordered=True)

    def f(x):
        note(x)
        note(x + 1)
        return x * 2.0

    jit(grad(f))(1.0)
    assert seen == [1, 2]
    with pytest.raises(UnsupportedError, match=r"lax\.map"):
        vmap(f)(X)
    jaxpr = stage(lambda x: (f(x),), (AVAL,)).jaxpr
    assert jaxpr.effect is Effect.ORDERED
    assert stage(lambda x: (jit(f)(x),), (AVAL,)).jaxpr.effect is Effect.ORDERED


def test_effectful_equations_survive_simplification():
    def f(x):
        debug.callback(print, x)
        debug.callback(print, x)
        debug.pure_callback(np.sin, SCALAR, x)
        return x

    jaxpr = simplify(stage(lambda x: (f(x),), (AVAL,)).jaxpr)
    assert [e.prim for e in jaxpr.eqns] == [debug_callback_p, debug_callback_p]
    assert jaxpr.effect is Effect.UNORDERED


def test_a_callback_cannot_write_into_its_arguments():
    x = ops.asvalue(X)

    def overwrite(v):
        np.asarray(v)[0] = 100.0

    with pytest.raises(ValueError, match="read-only"):
        debug.callback(overwrite, x)
    close(x, X)


def test_watching_a_tangent_inside_a_rule():
    seen = []
    f = custom_jvp(lambda x: x * 2.0)

    @f.defjvp
    def rule(p, t):
        debug.callback(lambda v: seen.append(float(v)), t[0])
        return f(*p), t[0] * 2.0

    jvp(f, (1.0,), (3.0,))
    assert seen == [3.0]
    assert float(grad(f)(1.0)) == 2.0


# ---- callbacks that compute


def test_pure_callback():
    struct = SimpleNamespace(shape=(3,), dtype=np.float64)
    for wrap in (lambda f: f, jit):
        found = wrap(lambda x: debug.pure_callback(lambda a, k: np.sin(a) * k, struct, x, k=2))(X)
        close(found, 2 * np.sin(X), 1e-6)
        assert found.dtype == np.float32
    tree = debug.pure_callback(lambda a: {"u": a, "v": [a + 1]}, {"u": X, "v": [X]}, X)
    close(tree, {"u": X, "v": [X + 1]})
    assert debug.pure_callback(lambda a: None, (), X) == ()
    assert float(debug.pure_callback(ops.sin, SCALAR, 0.0)) == 0.0


def test_a_callback_is_not_called_before_the_program_runs():
    def refuse(k):
        raise AssertionError("called")

    f = jit(lambda x: cond(x > 0, lambda: x, lambda: debug.pure_callback(refuse, SCALAR, 3)))
    assert float(f(1.0)) == 1.0
    simplified = simplify(stage(lambda x: [f(x)], [AVAL]).jaxpr)
    assert "pure_callback" in str(simplified)


def test_callbacks_are_given_arrays():
    kinds = []
    for wrap in (lambda f: f, jit):
        wrap(lambda x: debug.callback(lambda *a: kinds.append([type(v) for v in a]), x, 2))(X)
        wrap(lambda x: debug.pure_callback(lambda v: (kinds.append([type(v)]), v)[1], x, x))(X)
    assert {k for row in kinds for k in row} == {Array}
    assert len(kinds) == 4


@pytest.mark.parametrize(
    "method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all"]
)
def test_pure_callback_under_vmap(method):
    shapes = []

    def host(a, b):
        shapes.append((a.shape, b.shape))
        return np.asarray(a + b, np.float32)

    f = lambda a, b: debug.pure_callback(host, SCALAR, a, b, vmap_method=method)
    close(vmap(f, (0, None))(X, np.float32(1.0)), X + 1, 1e-6)
    expected = {"expand_dims": ((3,), (1,)), "broadcast_all": ((3,), (3,))}.get(method, ((), ()))
    assert set(shapes) == {expected}
    close(vmap(vmap(f))(np.stack([X, X]), np.stack([X, X])), np.stack([2 * X, 2 * X]), 1e-6)


def test_pure_callback_needs_a_method_for_vmap():
    with pytest.raises(UnsupportedError, match="vmap_method"):
        vmap(lambda x: debug.pure_callback(np.sin, SCALAR, x))(X)
    with pytest.raises(ArgumentValueError, match="nope"):
        debug.pure_callback(np.sin, SCALAR, 1.0, vmap_method="nope")
    with pytest.raises(ArgumentTypeError, match="function"):
        debug.pure_callback(3, SCALAR, 1.0)
    with pytest.raises(ArgumentTypeError, match="ShapeDtypeStruct"):
        debug.pure_callback(np.sin, 3, 1.0)


def test_callbacks_are_not_differentiable():
    f = lambda x: debug.pure_callback(np.sin, SCALAR, x)
    with pytest.raises(GradientError, match="custom_jvp"):
        grad(f)(1.0)
    with pytest.raises(GradientError, match="stop_gradient"):
        jvp(lambda x: debug.io_callback(np.sin, SCALAR, x), (1.0,), (1.0,))
    assert float(grad(lambda x: x * f(2.0))(1.0)) == float(f(2.0))


@pytest.mark.parametrize(
    ("callback", "error", "text"),
    [
        (lambda x: X, ShapeError, r"\(3,\)"),
        (lambda x: np.int32(1), DTypeError, "int32"),
        (lambda x: (x, x), TreeError, "structure"),
        (lambda x: None, TreeError, "structure"),
    ],
)
def test_results_must_be_what_was_announced(callback, error, text):
    with pytest.raises(error, match=text):
        debug.pure_callback(callback, SCALAR, 1.0)


def test_io_callback():
    state = []

    def push(x):
        state.append(float(x))
        return np.int32(len(state))

    counter = np.zeros((), np.int32)
    f = lambda x: debug.io_callback(push, counter, x)
    assert int(f(1.0)) == 1
    assert int(jit(f)(2.0)) == 2
    assert numbers(vmap(f)(X[:2])).tolist() == [3, 4]
    assert numbers(
        scan(lambda c, x: (c, debug.io_callback(push, counter, x, ordered=True)), 0, X)[1]
    ).tolist() == [5, 6, 7]
    with pytest.raises(UnsupportedError, match="ordered"):
        vmap(lambda x: debug.io_callback(push, counter, x, ordered=True))(X)
    with pytest.raises(ArgumentTypeError, match="function"):
        debug.io_callback(None, counter)
    jaxpr = simplify(stage(lambda x: (f(x), x)[1:], (AVAL,)).jaxpr)
    assert [e.prim for e in jaxpr.eqns] == [io_callback_p]


def test_the_records():
    assert debug_callback_p.effect is io_callback_p.effect is Effect.UNORDERED
    assert ordered_debug_callback_p.effect is Effect.ORDERED
    assert pure_callback_p.effect is Effect.NONE
    assert "Python" in pure_callback_p.form().why
