"""while_loop, and fori_loop with traced bounds."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax.ops as ops
from lumjax.control.custom import custom_jvp
from lumjax.control.debug import callback
from lumjax.control.iteration import while_p
from lumjax.control.scan import fori_loop, scan, while_loop
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DTypeError,
    GradientError,
    ShapeError,
    TreeError,
    UnsupportedError,
)
from lumjax.grad.linear import linearize
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import active_traces
from lumjax.trace.stage import stage
from tests.control.worlds import close, grad, jit, jvp, numbers, total, vmap

X = np.array([0.3, -0.7, 1.2], np.float32)
F32 = np.float32


def test_values():
    assert int(while_loop(lambda c: c < 10, lambda c: c * 2, 1)) == 16
    assert int(while_loop(lambda c: c < 0, lambda c: c * 2, 1)) == 1
    out = while_loop(
        lambda c: c["n"] < 3,
        lambda c: {"n": c["n"] + 1, "x": (c["x"][0] * 2,)},
        {"n": 0, "x": (X,)},
    )
    close(out, {"n": np.int32(3), "x": (X * 8,)}, 1e-6)


def test_weak_carries_take_the_dtype_of_the_body():
    assert while_loop(lambda c: c < 3, lambda c: c + 1.0, 1).dtype == np.float32
    assert while_loop(lambda c: c < 3, lambda c: c + F32(1), 1).dtype == np.float32
    assert while_loop(lambda c: c < 3, lambda c: c + 1, 1).weak


def test_lanes_stop_at_different_times():
    steps = lambda x: while_loop(lambda c: c[1] < x, lambda c: (c[0] + 1, c[1] * 2.0), (0, 1.0))
    count, value = vmap(steps)(np.array([0.5, 3.0, 20.0], np.float32))
    assert numbers(count).tolist() == [0, 2, 5]
    assert numbers(value).tolist() == [1.0, 4.0, 32.0]
    nested = vmap(vmap(steps))(np.array([[0.5, 3.0], [20.0, 1.0]], np.float32))
    assert numbers(nested[0]).tolist() == [[0, 2], [5, 0]]


def test_a_mapped_carry_with_an_unmapped_condition():
    f = lambda x: while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + x), (0, 0.0))
    count, value = vmap(f)(X)
    assert numbers(count).tolist() == [3, 3, 3]
    close(value, 3 * X, 1e-6)
    jaxpr = stage(lambda x: (vmap(f)(x)[1],), (ShapedArray((3,), np.dtype(F32)),)).jaxpr
    (loop,) = [e for e in jaxpr.eqns if e.prim is while_p]
    assert [v.aval.shape for v in loop.outputs] == [(), (3,)]


def test_a_carry_that_becomes_mapped_later_maps_the_condition():
    f = lambda x: while_loop(
        lambda c: c[0] < 10.0, lambda c: (c[1], c[1] + x * x + 1.0), (0.0, 1.0)
    )
    expected = [f(x) for x in X]
    found = vmap(f)(X)
    close(
        found,
        (np.stack([e[0].data for e in expected]), np.stack([e[1].data for e in expected])),
        1e-6,
    )


def test_forward_mode():
    f = lambda x: while_loop(lambda c: c < 3, lambda c: c * 2 + x, x)
    assert [float(v) for v in jvp(f, (0.5,), (1.0,))] == [3.5, 7.0]
    later = lambda x: while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[2], c[2] * x), (0, 1.0, 1.0)
    )[1]
    close(jvp(later, (2.0,), (1.0,)), (F32(4.0), F32(4.0)))
    out, push = linearize(f, 0.5)
    assert (float(out), float(push(1.0)), float(push(2.0))) == (3.5, 7.0, 14.0)
    out, push = linearize(jit(f), 0.5)
    assert (float(out), float(push(1.0))) == (3.5, 7.0)
    inner = lambda x: jvp(f, (x,), (x * x,))[1]
    assert float(jvp(inner, (0.5,), (1.0,))[1]) == 7.0


@pytest.mark.parametrize(
    "f",
    [
        lambda x: while_loop(lambda c: c < 3, lambda c: c * 2.0, x),
        jit(lambda y: while_loop(lambda c: c < 3, lambda c: c * 2.0, y)),
        lambda x: scan(
            lambda c, _: (while_loop(lambda c: c < 3, lambda c: c * x, c), None), x, None, length=2
        )[0],
        jit(lambda y: fori_loop(0, ops.cast(y, np.int32), lambda i, c: c * y, y)),
    ],
    ids=["while", "in jit", "in scan", "traced bound"],
)
def test_reverse_mode_names_the_remedy(f):
    with pytest.raises(GradientError, match="static bounds"):
        grad(f)(2.0)
    assert len(active_traces()) == 1


def test_reverse_mode_past_a_loop_that_carries_no_tangent():
    def f(x):
        n = while_loop(lambda n: n < 5, lambda n: n + 1, 0)
        return x * n

    assert float(grad(f)(2.0)) == 5.0
    assert float(grad(jit(f))(2.0)) == 5.0
    counted = lambda x: x * while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1]), (0, x))[0]
    assert float(grad(counted)(2.0)) == 5.0


@pytest.mark.parametrize(
    "outer",
    [
        lambda g: vmap(g)(X),
        lambda g: jit(g)(0.7),
        lambda g: jvp(g, (0.7,), (1.0,)),
        lambda g: jit(vmap(lambda x: jvp(jit(g), (x,), (x,))[1]))(X),
    ],
    ids=["vmap", "jit", "jvp", "jit vmap jvp jit"],
)
def test_closure_over_tracers_of_an_outer_transformation(outer):
    def with_loop(y):
        return while_loop(lambda c: c[0] < 3 + 0 * y, lambda c: (c[0] + 1, c[1] * y + 1.0), (0, y))[
            1
        ]

    def plain(y):
        c = y
        for _ in range(3):
            c = c * y + 1.0
        return c

    close(outer(with_loop), outer(plain), 1e-5)


def test_traced_bounds():
    f = lambda n: fori_loop(0, n, lambda i, c: c + i, 0)
    assert int(jit(f)(5)) == 10
    assert numbers(vmap(f)(np.array([0, 2, 5]))).tolist() == [0, 1, 10]
    assert int(jit(lambda n: fori_loop(n, 4, lambda i, c: c + i, 0))(2)) == 5
    with pytest.raises(ArgumentValueError, match="unroll"):
        jit(lambda n: fori_loop(0, n, lambda i, c: c + i, 0, unroll=2))(5)


def test_effects():
    seen = []

    def body(c):
        callback(lambda v: seen.append(int(v)), c)
        return c + 1

    jvp(lambda x: x * while_loop(lambda c: c < 3, body, 0), (1.0,), (1.0,))
    assert seen == [0, 1, 2]

    def shout(c):
        callback(lambda v: None, c, ordered=True)
        return c + 1

    with pytest.raises(UnsupportedError, match="ordered"):
        vmap(lambda x: while_loop(lambda c: c < x, shout, 0))(np.array([1, 2]))


def test_rules_with_array_constants():
    table = np.array([1.0, 2.0, 3.0], np.float32)
    f = custom_jvp(ops.sin)
    f.defjvp(lambda p, t: (ops.sin(p[0]), t[0] * table))
    loop = lambda x: while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1])), (0, x))[1]
    for wrap in (lambda f: f, jit):
        close(jvp(wrap(loop), (X,), (X,))[1], table**2 * X, 1e-6)
        close(
            vmap(lambda x, wrap=wrap: jvp(wrap(loop), (x,), (x,))[1])(X[None]),
            (table**2 * X)[None],
            1e-6,
        )
        _out, push = linearize(wrap(loop), X)
        close(push(X), table**2 * X, 1e-6)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: while_loop(3, lambda c: c, 1), ArgumentTypeError, "cond_fun"),
        (lambda: while_loop(lambda c: True, 3, 1), ArgumentTypeError, "body_fun"),
        (
            lambda: while_loop(lambda c: c, lambda c: c, 1),
            DTypeError,
            "bool scalar; got <lambda> returning i32",
        ),
        (lambda: while_loop(lambda c: c > 0, lambda c: c, X), DTypeError, r"bool\[3\]"),
        (lambda: while_loop(lambda c: (True,), lambda c: c, 1), DTypeError, "bool"),
        (lambda: while_loop(lambda c: None, lambda c: c, 1), DTypeError, "None"),
        (
            lambda: while_loop(lambda c: c < 3, lambda c: c + 1.0, np.int32(1)),
            DTypeError,
            "carry of .*i32.*f32",
        ),
        (
            lambda: while_loop(lambda c: True, lambda c: X, F32(1)),
            ShapeError,
            r"f32\[\], out as f32\[3\]",
        ),
        (lambda: while_loop(lambda c: c < 3, lambda c: (c,), 1), TreeError, "structure"),
    ],
)
def test_bad_arguments(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    assert caught.value.source.file == __file__
    assert len(active_traces()) == 1


def test_the_record():
    aval = ShapedArray((), np.dtype(F32))
    jaxpr = stage(lambda x: (while_loop(lambda c: c < x, lambda c: c + x, 0.0),), (aval,)).jaxpr
    (loop,) = jaxpr.eqns
    assert (loop.params["cond_consts"], loop.params["body_consts"]) == (1, 1)
    form = while_p.form(*(a.aval for a in loop.inputs), **loop.params)
    assert (form.length, form.carry, form.consts, form.test_consts) == (None, 1, 1, 1)
    assert form.body is loop.params["body"]
    assert total(ops.asvalue(X)).dtype == np.float32
