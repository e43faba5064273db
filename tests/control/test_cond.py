"""cond and switch."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import lumjax
import lumjax.ops as ops
from lumjax import dtype as dt
from lumjax.config import config
from lumjax.control.branch import branch, cond_p
from lumjax.control.cond import cond, switch
from lumjax.control.custom import custom_jvp
from lumjax.control.debug import callback
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DTypeError,
    ShapeError,
    TreeError,
    UnsupportedError,
)
from lumjax.grad.linear import linear_transpose
from lumjax.grad.reverse import linearize_flat
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import active_traces
from lumjax.trace.form import Choose
from lumjax.trace.stage import stage
from tests.control.worlds import close, grad, jit, jvp, total, vmap

X = np.array([0.3, -0.7, 1.2], np.float32)
F32 = np.float32


def scalar(dtype=np.float32, shape=()):
    return ShapedArray(shape, np.dtype(dtype))


def test_values_and_predicates():
    assert float(cond(True, lambda: 1.0, lambda: 2.0)) == 1.0
    assert float(cond(np.bool_(False), lambda: 1.0, lambda: 2.0)) == 2.0
    assert float(cond(3, lambda x: x, lambda x: -x, 4.0)) == 4.0
    assert float(cond(0.0, lambda x: x, lambda x: -x, 4.0)) == -4.0
    assert float(cond(True, lambda x: x * 2, lambda x: x, operand=3.0)) == 6.0
    assert cond(True, lambda x: x, lambda x: x, operand=None) is None


def test_switch_clamps_its_index():
    branches = [lambda x: x, lambda x: 2 * x, lambda x: 3 * x]
    assert [int(switch(k, branches, 5)) for k in (-7, 0, 1, 2, 9)] == [5, 5, 10, 15, 15]
    assert int(switch(np.uint8(2), branches, operand=5)) == 15
    assert int(switch(4, [lambda x: x], 5)) == 5
    close(
        vmap(lambda k: switch(k, branches, 5))(np.array([-1, 1, 7])),
        np.array([5, 10, 15], np.int32),
    )


def test_only_the_chosen_branch_runs():
    seen = []

    def watching(name):
        def f(x):
            callback(lambda _: seen.append(name), x)
            return x

        return f

    cond(True, watching("yes"), watching("no"), 1.0)
    jit(lambda p: cond(p, watching("yes"), watching("no"), 1.0))(False)
    grad(lambda x: cond(x > 0, watching("yes"), watching("no"), x))(1.0)
    assert seen == ["yes", "no", "yes"]
    seen.clear()
    vmap(lambda x: cond(x > 0, watching("yes"), watching("no"), x))(X[:2])
    assert seen == ["no", "no", "yes", "yes"]
    seen.clear()
    vmap(lambda x: cond(True, watching("yes"), watching("no"), x))(X[:2])
    assert seen == ["yes", "yes"]


def test_ordered_effects_under_a_mapped_predicate_raise():
    def shout(x):
        callback(lambda _: None, x, ordered=True)
        return x

    with pytest.raises(UnsupportedError, match="ordered"):
        vmap(lambda x: cond(x > 0, shout, lambda x: x, 1.0))(X)


def test_pytrees():
    Pair = namedtuple("Pair", "a b")
    out = cond(
        True, lambda p: Pair(p["u"], None), lambda p: Pair(p["v"][0], None), {"u": X, "v": [X * 2]}
    )
    assert type(out) is Pair
    assert out.b is None
    close(out.a, X)


def test_weak_results():
    assert cond(True, lambda: 1.0, lambda: 2.0).weak
    assert not cond(True, lambda: 1.0, lambda: F32(2.0)).weak
    assert not jit(lambda p: cond(p, lambda: 1.0, lambda: F32(2.0)))(True).weak


def test_keys_and_integers_pass_through():
    key = ops.random_wrap(np.array([1, 2], np.uint32))
    other = ops.random_wrap(np.array([3, 4], np.uint32))
    for p, expected in ((True, [1, 2]), (False, [3, 4])):
        found = jit(lambda p: cond(p, lambda a, b: a, lambda a, b: b, key, other))(p)
        assert ops.random_unwrap(found).data.tolist() == expected
    lanes = vmap(lambda p: cond(p, lambda: key, lambda: other))(np.array([True, False]))
    assert ops.random_unwrap(lanes).data.tolist() == [[1, 2], [3, 4]]

    def f(x, n):
        y, m = cond(x > 0, lambda x, n: (x * n, n), lambda x, n: (x, n + 1), x, n)
        return y * m

    assert float(grad(f)(2.0, 3)) == 9.0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: cond(True, 3, lambda: 1), ArgumentTypeError, "true_fun"),
        (lambda: cond(True, lambda: 1, None), ArgumentTypeError, "false_fun"),
        (lambda: cond(X > 0, lambda: 1, lambda: 2), ShapeError, r"scalar; got bool\[3\]"),
        (lambda: cond("a", lambda: 1, lambda: 2), ArgumentTypeError, "number"),
        (lambda: cond(1j, lambda: 1, lambda: 2), DTypeError, "c64"),
        (lambda: cond(True, lambda: (1,), lambda: [1]), TreeError, "<lambda> returning"),
        (
            lambda: cond(True, lambda: {"a": (1.0, 2)}, lambda: {"a": (1.0, X)}),
            ShapeError,
            r"\['a'\]\[1\]: .*i32",
        ),
        (
            lambda: cond(True, lambda: 1.0, lambda: 2),
            ShapeError,
            "the result: .*f32.*i32|the result: .*i32.*f32",
        ),
        (lambda: cond(True, lambda x: x, lambda x: x, 1, operand=2), ArgumentTypeError, "both"),
        (lambda: cond(True, lambda x: x, lambda x: x, "text"), ArgumentTypeError, "str"),
        (lambda: switch(0, [lambda x: x], 1, operand=2), ArgumentTypeError, "both"),
        (lambda: switch(0, []), ArgumentValueError, "at least one"),
        (lambda: switch(1.0, [lambda: 1, lambda: 2]), DTypeError, "integer"),
        (lambda: switch(X, [lambda: 1, lambda: 2]), ShapeError, "scalar"),
        (lambda: switch(0, [lambda: 1, 2]), ArgumentTypeError, "function"),
    ],
)
def test_bad_arguments(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    assert caught.value.source.file == __file__
    assert len(active_traces()) == 1


@pytest.mark.parametrize(
    "outer",
    [
        lambda g: grad(g)(2.0),
        lambda g: vmap(g)(X),
        lambda g: jit(g)(2.0),
        lambda g: jit(vmap(grad(g)))(X),
        lambda g: vmap(grad(jit(g)))(X),
    ],
    ids=["grad", "vmap", "jit", "jit vmap grad", "vmap grad jit"],
)
def test_closure_over_tracers_of_an_outer_transformation(outer):
    def with_cond(y):
        z = y * 2.0
        return cond(True, lambda x: x * y + z, lambda x: x * z, y) + cond(
            y > 1, lambda: z, lambda: y
        )

    close(outer(with_cond), outer(lambda y: y * y + y * 2 + ops.select(y > 1, y * 2.0, y)), 1e-5)


def test_the_untaken_branch_does_not_poison_the_gradient():
    def safe(x):
        return cond(x > 0, ops.log, lambda y: y * 0.0, x)

    for f in (safe, jit(safe), lambda x: cond(x > 0, lambda y: y, lambda y: 0.0, ops.sqrt(x))):
        assert float(grad(f)(0.0)) == 0.0
        assert np.isfinite(vmap(grad(f))(np.array([0.0, 1.0], np.float32)).data).all()


def test_jax_gradients_on_request():
    f = lambda x: cond(x > 0, lambda y: y, lambda y: 0.0, ops.sqrt(x))
    with config.scope(grad_compat="jax"):
        assert np.isnan(grad(f)(0.0).data)
    assert float(grad(f)(0.0)) == 0.0


def test_a_mask_enters_a_branch():
    f = lambda x: ops.select(x > 0, cond(True, ops.sqrt, lambda x: x, x), 0.0)
    assert float(grad(f)(0.0)) == 0.0
    assert float(grad(lambda x: f(x) * f(x))(4.0)) == 1.0


def test_residuals_of_the_branches_share_slots():
    def f(x, y):
        return cond(True, lambda a: ops.sin(ops.sin(a)), lambda a: ops.exp(a) * ops.cos(a), x), y

    avals = [ops.asvalue(X), ops.asvalue(F32(1))]
    _, _, residuals, _ = linearize_flat(f, avals)
    assert sum(r.shape == (3,) for r in residuals) == 3  # not two and three


def test_forwarded_operands_are_no_residuals():
    w = ops.asvalue(X)

    def f(x):
        return (total(cond(True, lambda a, b: a * b, lambda a, b: a / b, x, w)),)

    _, _, residuals, _ = linearize_flat(f, [ops.asvalue(X)])
    assert any(r is w for r in residuals)


def test_linear_transpose():
    def f(t):
        return cond(True, lambda a: a * 3.0, lambda a: a, t)

    close(linear_transpose(f, X)(X)[0], X * 3, 1e-6)
    close(linear_transpose(jit(f), X)(X)[0], X * 3, 1e-6)


def test_rules_with_array_constants_in_branches():
    table = np.array([1.0, 2.0, 3.0], np.float32)
    other = np.array([5.0, 6.0, 7.0], np.float32)

    def scaled(values):
        f = custom_jvp(ops.sin)
        f.defjvp(lambda p, t: (ops.sin(p[0]), t[0] * values))
        return f

    first, second = scaled(table), scaled(other)
    g = lambda p, x: total(cond(p, first, lambda x: second(x) + first(x), x))
    for wrap in (lambda f: f, jit):
        close(grad(wrap(g), argnums=1)(True, X), table, 1e-6)
        close(grad(wrap(g), argnums=1)(False, X), table + other, 1e-6)
        close(vmap(grad(wrap(g), argnums=1))(np.array([True, False]), np.stack([X, X])),
              np.stack([table, table + other]), 1e-6)  # fmt: skip
        close(
            jvp(lambda x, wrap=wrap: wrap(g)(True, x), (X,), (X,))[1], F32((table * X).sum()), 1e-6
        )
    captured = ops.asvalue(table)
    h = lambda x: total(cond(True, lambda a: a * captured, lambda a: a + other * captured, x))
    close(grad(jit(h))(X), table, 1e-6)


def test_the_record():
    jaxprs = tuple(stage(lambda x, f=f: (f(x),), (scalar(),)).jaxpr for f in (ops.sin, ops.cos))
    assert float(branch(np.int32(1), jaxprs, (F32(0.0),))[0]) == 1.0
    assert cond_p.aval(scalar(np.int32), scalar(), branches=jaxprs) == (scalar(),)
    assert cond_p.form(scalar(np.int32), scalar(), branches=jaxprs) == Choose(jaxprs)
    assert dt.is_integer(
        stage(lambda p: (cond(p, lambda: 1, lambda: 2),), (scalar(bool),)).jaxpr.out_avals[0].dtype
    )


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16, dt.float32], ids=str)
def test_branches_with_residuals_of_their_own(dtype):
    """Where the other branch ran, a residual's slot holds zeros, of any dtype."""

    def f(x):
        both = lambda y: (ops.mul(ops.sin(y), ops.reduce_sum(y, (0,))), ops.reduce_max(y, (0,)))
        one = cond(True, lambda y: both(y)[0], lambda y: y, x)
        return switch(1, [lambda y: y, lambda y: ops.exp(both(y)[1]) * y, ops.cos], one)

    x = np.asarray([0.5, 1.0], dtype)
    out, pull = lumjax.vjp(f, x)
    assert out.dtype == dtype
    plain = lambda y: (lambda z: ops.exp(ops.reduce_max(z, (0,))) * z)(
        ops.mul(ops.sin(y), ops.reduce_sum(y, (0,)))
    )
    want, other = lumjax.vjp(plain, x)
    near = 1e-5 if dtype == dt.float32 else 0.05
    for got, ref in [(out, want), (pull(want)[0], other(want)[0])]:
        np.testing.assert_allclose(np.asarray(got, float), np.asarray(ref, float), rtol=near)
