"""Leaks, retracing and donation: what is told, and where there is nothing to tell."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.config import config
from lumjax.errors import DonationError, DonationWarning, LeakedTracerError, SideEffectWarning

jit = lumjax.jit
X = jnp.ones(3)
KEPT = []
TABLE = {}


class Model:
    pass


MODEL = Model()


def in_a_list(x):
    KEPT.append(x * 2)
    return x


def in_a_dict(x):
    TABLE["state"] = x * 2
    return x


def in_an_attribute(x):
    MODEL.state = x * 2
    return x


HELD = {
    "a list of 1, in the global KEPT of module": in_a_list,
    "a dict under 'state', in the global TABLE of module": in_a_dict,
    "the attribute state of an object of type Model, in the global MODEL of": in_an_attribute,
}
TRANSFORMS = {"jit": jit, "grad": lumjax.grad, "vmap": lambda f: lumjax.vmap(f, axis_size=2)}


@pytest.fixture(autouse=True)
def _forget():
    with config.scope(search_evaluations=0):
        yield
    KEPT.clear()
    TABLE.clear()
    MODEL.state = None


@pytest.mark.parametrize("holder", HELD)
@pytest.mark.parametrize("transform", ["jit", "grad"])
def test_the_leak_check_says_who_holds_a_tracer(transform, holder):
    f = HELD[holder]
    with pytest.raises(LeakedTracerError) as caught, lumjax.checking_leaks():
        TRANSFORMS[transform](f)(1.0)
    assert f"held by {holder}" in str(caught.value)
    assert f"{transform} of {f.__name__}" in str(caught.value)


def test_a_leak_through_a_variable():
    kept = None

    def f(x):
        nonlocal kept
        kept = x * 2
        return x

    held = r"the variable kept of .*f"
    with pytest.raises(LeakedTracerError, match=held), lumjax.checking_leaks():
        lumjax.vmap(f)(X)
    assert kept is not None


def test_programs_without_leaks():
    def f(x):
        total, rows = lax.scan(lambda c, r: (c * r, c), x, jnp.ones(3))
        return lax.cond(total > 0, jnp.sin, jnp.cos, total) + jnp.sum(rows)

    with lumjax.checking_leaks():
        jit(lumjax.grad(f))(1.0)
        lumjax.vmap(lumjax.value_and_grad(f))(X)
        lumjax.grad(lambda x: (f(x), x * 2), has_aux=True)(1.0)
        lumjax.hessian(f)(1.0)
        lumjax.grad(lumjax.checkpoint(jit(f)))(1.0)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_tracer_used_later_names_its_transformation(transform):
    def f(x):
        KEPT.append(jnp.sum(x) * 2)
        return jnp.sum(x)

    TRANSFORMS[transform](f)(jnp.ones((2, 3)) if transform == "vmap" else X)
    with pytest.raises(LeakedTracerError, match=f"{transform} of f") as caught:
        KEPT[0] + 1
    if transform == "jit":
        assert "from argument x" in str(caught.value)


def test_side_effects_are_warned_of_when_asked_for():
    calls = 0

    def counted(x):
        nonlocal calls
        calls += 1
        return x

    jit(counted)(1.0)  # counting traces is what many tests do
    with config.scope(debug_side_effects=True):
        with pytest.warns(SideEffectWarning, match="outer variable calls"):
            jit(counted)(1.0)
        jit(lambda x: [x := x + 1, x][1])(1.0)
    assert calls == 2


# ---- retracing


def test_explain_names_the_field_that_differs():
    f = jit(lambda tree, n: tree["a"] * n, static_argnums=1)
    f({"a": X}, 1)
    f({"a": X}, 1)
    f({"a": jnp.ones(4)}, 1)
    f({"a": X.astype(jnp.int32)}, 1)
    f({"a": X}, 2)
    f({"a": X, "b": X}, 1)
    with config.scope(debug_index=True):
        f({"a": X}, 1)
    lumjax.vmap(lambda x: f({"a": x}, 1), axis_name="i")(X[None])
    told = [m.why for m in f.explain()]
    assert told == [
        (),
        ("argument tree['a']: f32[4], before f32[3] (another shape)",),
        ("argument tree['a']: i32[3], before f32[3] (another dtype)",),
        ("static argument 1: 2, before 1",),
        ("the structure of the arguments: tree['b'] is new",),
        ("the setting debug_index: True, before False",),
        ("the named axes in scope: (('i', 1),), before ()",),
    ]
    assert [m.source.function for m in f.explain()] == [
        *["test_explain_names_the_field_that_differs"] * 6, "<lambda>",
    ]  # fmt: skip
    assert [m.nearest is None for m in f.explain()] == [True] + [False] * 6
    f.clear_cache()
    assert len(f.explain()) == 0


def test_weak_types_and_functions_that_cannot_be_kept():
    f = jit(lambda x: x + 1)
    f(1.0)
    f(jnp.float32(1.0))
    assert f.explain()[1].why == ("argument x: f32[], before ~f32[] (another weak type)",)

    def outer(y):
        g = jit(lambda x: x * y)
        g(1.0), g(1.0)
        KEPT.append(str(g.explain()))
        return y

    jit(outer)(2.0)
    assert "could not be kept" in KEPT[0]


def test_compilations_are_logged(caplog):
    with caplog.at_level(logging.WARNING, "lumjax.compile"):
        jit(lambda x: x * 3)(X)
        assert not caplog.records
        with lumjax.log_compiles():
            jit(lambda x: x * 3)(X)
        assert ["tracing" in r.message for r in caplog.records] == [True, False]
        assert ["compilation" in r.message for r in caplog.records] == [False, True]
        with lumjax.explain_cache_misses():
            jit(lambda x: x * 3)(X)
        assert "<lambda>" in caplog.records[-1].message
        assert "x: f32[3]" in caplog.records[-1].message


# ---- donation


def test_a_donated_array_is_gone():
    x = jnp.ones(3)
    y = jit(lambda x: x + 1, donate_argnums=0)(x)
    np.testing.assert_array_equal(y, [2, 2, 2])
    assert x.is_deleted()
    assert (x.shape, x.dtype, x.ndim, x.size) == ((3,), np.float32, 1, 3)
    assert "was given it as x" in repr(x)
    for use in (lambda: x + 1, lambda: np.asarray(x), lambda: x[0], lambda: jit(jnp.sin)(x)):
        with pytest.raises(DonationError, match=r"was given it as x at .*test_traces"):
            use()


def test_what_is_not_donated_stays():
    x, tree = jnp.ones(3), {"a": jnp.ones(3), "b": jnp.zeros(2)}
    f = jit(lambda x, tree: tree["b"] * 2, donate_argnames="tree")
    with pytest.warns(DonationWarning, match=r"not usable: f32\[3\] \(tree\['a'\]\)"):
        f(x, tree)
    assert not x.is_deleted()
    assert not tree["a"].is_deleted()  # no result could have its memory
    assert tree["b"].is_deleted()


def test_an_argument_that_is_returned_lives_on():
    x = jnp.ones(3)
    y = jit(lambda x: x, donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(y, [1, 1, 1])


def test_donating_twice():
    x = jnp.ones(3)
    with pytest.raises(DonationError, match="passed once"):
        jit(lambda x, y: (x + 1, y + 1), donate_argnums=(0, 1))(x, x)
    with pytest.raises(DonationError, match="passed once"):
        jit(lambda x, y: x + y, donate_argnums=0)(x, x)
    assert not x.is_deleted()


def test_donation_under_another_transformation_does_nothing():
    f = jit(lambda x: jnp.sum(x * x), donate_argnums=0)
    x = jnp.ones(3)
    np.testing.assert_array_equal(lumjax.grad(f)(x), [2, 2, 2])
    assert not x.is_deleted()


def test_delete():
    x = jnp.ones(3)
    x.delete()
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="has been deleted"):
        x + 1
