"""Jaxprs as JSON: programs come back as they were, and what is none is not read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.compile import compiler
from lumjax.errors import LumjaxError
from lumjax.exporting import program
from lumjax.ops import PRIMITIVES
from lumjax.trace.core import eval_jaxpr
from lumjax.trace.simplify import simplify
from lumjax.trace.stage import stage
from tests.strategies import programs


def core(f, *args):
    jaxpr, consts = compiler().expand(simplify(lumjax.jit(f).trace(*args).jaxpr.jaxpr))
    assert consts == ()
    return simplify(jaxpr)


def again(jaxpr):
    return program.decoded(json.loads(json.dumps(program.encoded(jaxpr))))


def same(f, *args):
    jaxpr = core(f, *args)
    found = again(jaxpr)
    assert str(found) == str(jaxpr)
    leaves = lumjax.tree.leaves(args)
    for a, b in zip(eval_jaxpr(found, leaves), eval_jaxpr(jaxpr, leaves), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@settings(max_examples=60, deadline=None)
@given(case=programs(flow=True))
def test_random_programs_come_back(case):
    leaves = lumjax.tree.leaves(case.args)
    jaxpr = simplify(lumjax.jit(case.fn).trace(*case.args).jaxpr.jaxpr)
    expanded, consts = compiler().expand(jaxpr)
    found = again(expanded)
    assert str(found) == str(expanded)
    assert len(found.inputs) >= len(leaves)
    del consts


@pytest.mark.parametrize("name", list(PRIMITIVES))
def test_every_primitive_comes_back(name):
    prim = PRIMITIVES[name]
    for sample in prim.samples:
        jaxpr = stage(lambda *xs, s=sample: prim.bind(*xs, **s.params), sample.avals).jaxpr
        assert str(again(jaxpr)) == str(jaxpr)


def test_loops_and_choices():
    def f(x, n):
        c, ys = lax.scan(lambda c, a: (c * a, c), x, jnp.arange(3.0), reverse=True, unroll=2)
        y = lax.switch(n, [jnp.sin, jnp.cos, lambda x: x], c)
        return lax.while_loop(lambda y: y < 9, lambda y: 2 * y, abs(y) + 1) + ys.sum()

    same(f, 1.5, 1)


def test_numbers_that_json_has_no_word_for():
    def f(x):
        full = jnp.where(x > np.inf, np.nan, x)
        return jnp.pad(full, 1, constant_values=-np.inf), jnp.take(x, 7, mode="fill")

    same(f, np.array([1.0, np.nan, -np.inf], np.float32))


def damaged():
    jaxpr = core(lambda x: jnp.sum(jnp.sin(x[1:]) * 2), np.ones(4, np.float32))
    entry = json.loads(json.dumps(program.encoded(jaxpr)))
    yield "an unknown primitive", entry, lambda p: p[0]["eqns"][0].__setitem__(0, "exec")
    yield "another type", entry, lambda p: p[0]["eqns"][-1][3].__setitem__(0, ["i32", [], False])
    yield "a variable to come", entry, lambda p: p[0]["eqns"][0][2].__setitem__(0, 99)
    yield "one from behind", entry, lambda p: p[0]["eqns"][0][2].__setitem__(0, -1)
    yield "a negative size", entry, lambda p: p[0]["inputs"].__setitem__(0, ["f32", [-4], False])
    yield "parameters of another", entry, lambda p: p[0]["eqns"][0].__setitem__(1, {"axes": 1})
    yield "a program that carries itself", entry, (
        lambda p: p[0]["eqns"][0].__setitem__(1, {"jaxpr": {"program": 0}})
    )  # fmt: skip
    yield "nothing", entry, lambda p: p.clear()


@pytest.mark.parametrize("what", [what for what, _, _ in damaged()])
def test_what_is_no_program(what):
    ((_, entry, change),) = [d for d in damaged() if d[0] == what]
    change(entry)
    with pytest.raises((LumjaxError, KeyError, IndexError, TypeError, ValueError)):
        program.decoded(entry)


def test_what_has_no_meaning_elsewhere():
    def calls(x):
        return lumjax.pure_callback(lambda x: x, lumjax.ShapeDtypeStruct((), np.float32), x)

    with pytest.raises(TypeError, match="callback"):
        program.encoded(core(calls, 1.0))
