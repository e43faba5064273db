"""bind, the trace stack, evaluation with weak types, effects, hooks, and the errors."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.errors import ArgumentTypeError, LeakedTracerError, MissingRuleError
from lumjax.trace import core
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import (
    Effect,
    Eqn,
    EvalTrace,
    Jaxpr,
    Literal,
    Trace,
    Tracer,
    Var,
    active_traces,
    aval_of,
    current,
    eval_jaxpr,
    evaluate,
    sub_jaxprs,
    using,
)
from lumjax.trace.dim import symbol
from lumjax.trace.stage import StageTrace, stage
from tests.trace.prims import (
    add,
    add_p,
    call,
    f32,
    i32,
    iota_p,
    mul,
    print_p,
    printed,
    sin,
    sin_p,
    switch_p,
    weak_p,
)

# ---- avals


def test_avals():
    n = symbol("n", 1)
    a = ShapedArray((n, 3), dt.float32, weak=True)
    assert (a.ndim, str(a)) == (2, "f32[n,3]")
    assert a.size is n * 3
    assert a.strip_weak() == ShapedArray((n, 3), dt.float32)
    strong = a.strip_weak()
    assert strong.strip_weak() is strong
    assert a.with_shape((2,)) == ShapedArray((2,), dt.float32, weak=True)
    assert a.with_dtype(dt.int8) == ShapedArray((n, 3), dt.int8)
    assert a.tangent() == a
    assert i32(2).tangent().dtype == dt.float0
    assert f32().size == 1


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (1, ShapedArray((), dt.int32, weak=True)),
        (1.5, ShapedArray((), dt.float32, weak=True)),
        (1j, ShapedArray((), dt.complex64, weak=True)),
        (True, ShapedArray((), dt.bool_)),
        (np.float64(1.5), ShapedArray((), dt.float32)),
        (np.int8(3), ShapedArray((), dt.int8)),
        (np.zeros((2, 3)), f32(2, 3)),
        (Array(np.zeros(2, np.float32), weak=True), f32(2, weak=True)),
    ],
)
def test_aval_of(value, want):
    assert aval_of(value) == want


@pytest.mark.parametrize("value", ["a", None, [1, 2], {}])
def test_aval_of_other_things(value):
    with pytest.raises(ArgumentTypeError):
        aval_of(value)


def test_array():
    a = Array(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert (a.shape, a.dtype, a.ndim, a.size) == ((2, 3), dt.float32, 2, 6)
    assert a.aval is a.aval
    with pytest.raises(TypeError):
        hash(a)


# ---- evaluation


def test_evaluates_at_once():
    out = sin(np.float32(0.5))
    assert isinstance(out, Array)
    assert out.data == np.sin(np.float32(0.5))
    assert iota_p.bind(n=3)[0].shape == (3,)


@pytest.mark.parametrize(
    ("args", "weak"),
    [
        ((1.0, 2.0), True),
        ((1.0, np.float32(2)), False),
        ((Array(np.zeros((), np.float32), weak=True), 2.0), True),
        ((Array(np.zeros((), np.float32)), 2.0), False),
    ],
)
def test_results_are_weak_when_all_operands_are(args, weak):
    assert add_p.bind(*args)[0].weak is weak
    jaxpr = stage(add_p.bind, [aval_of(a) for a in args]).jaxpr
    assert jaxpr.out_avals[0].weak is weak


def test_weakness_from_parameters_and_without_operands():
    assert weak_p.bind(np.float32(1), weak=True)[0].weak
    assert not weak_p.bind(1.0, weak=False)[0].weak
    assert not iota_p.bind(n=2)[0].weak


# ---- the stack


class Recording(Trace):
    def __init__(self):
        self.seen = []

    def process(self, prim, args, params):
        self.seen.append(prim.name)
        return args


def test_the_top_of_the_stack_receives_everything():
    assert isinstance(current(), EvalTrace)
    outer, inner = Recording(), Recording()
    with using(outer):
        sin(1.0)
        with using(inner) as got:
            assert got is inner
            assert current() is inner
            sin(1.0)
            mul(1.0, 1.0)
        sin(1.0)
        assert list(active_traces())[1:] == [outer]
    assert (outer.seen, inner.seen) == (["sin", "sin"], ["sin", "mul"])
    assert isinstance(current(), EvalTrace)
    with pytest.raises(NotImplementedError):
        Trace().process(sin_p, (), {})


def test_an_error_pops_the_stack():
    with pytest.raises(RuntimeError, match="user"), using(StageTrace()):
        raise RuntimeError("user")
    assert isinstance(current(), EvalTrace)

    def fails(x):
        raise RuntimeError("user")

    with pytest.raises(RuntimeError, match="user"):
        stage(fails, [f32()])
    assert len(active_traces()) == 1


def test_each_thread_has_its_own_stack():
    found = {}

    def other():
        found["trace"] = type(current())
        found["value"] = sin(0.5)

    with using(StageTrace()):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert found["trace"] is EvalTrace
    assert isinstance(found["value"], Array)


# ---- effects and jaxprs


def test_effects_are_those_of_the_strongest_equation():
    pure = stage(lambda x: [sin(x)], [f32()])
    loud = stage(lambda x: print_p.bind(x) or [x], [f32()])
    assert pure.jaxpr.effect is Effect.NONE
    assert loud.jaxpr.effect is Effect.ORDERED
    nested = stage(lambda x: call(loud, sin(x)), [f32()]).jaxpr
    assert [e.effect for e in nested.eqns] == [Effect.NONE, Effect.ORDERED]
    branches = (pure.jaxpr, loud.jaxpr)
    either = stage(lambda i, x: switch_p.bind(i, x, branches=branches), [i32(), f32()]).jaxpr
    assert either.effect is Effect.ORDERED
    assert list(sub_jaxprs(either.eqns[0].params)) == list(branches)
    assert Jaxpr((), (), ()).effect is Effect.NONE


def test_eval_jaxpr():
    jaxpr = stage(lambda x: [mul(add(x, 1.0), x), x, 3.0], [f32()]).jaxpr
    out, same, three = eval_jaxpr(jaxpr, [np.float32(2)])
    assert (out.data, same, three.data) == (6, 2, 3)
    assert three.weak
    with pytest.raises(ValueError, match="zip"):
        eval_jaxpr(jaxpr, [])
    printed.clear()
    eval_jaxpr(stage(lambda x: print_p.bind(x) or [x], [f32()]).jaxpr, [np.float32(4)])
    assert printed == [4.0]
    again = stage(lambda x: eval_jaxpr(jaxpr, [x]), [f32()]).jaxpr
    assert str(again) == str(jaxpr)


def test_literals_keep_their_weakness_when_evaluated():
    literal = Literal(np.ones((), np.float32), f32(weak=True))
    out = Var(f32(weak=True))
    jaxpr = Jaxpr((), (Eqn(sin_p, (literal,), (out,), {}, None),), (out,))
    assert eval_jaxpr(jaxpr, [])[0].weak


# ---- records and hooks


def test_a_missing_rule_says_where_to_add_it():
    with pytest.raises(MissingRuleError, match=r"transpose.*'sin'"):
        sin_p.rule("transpose")
    assert sin_p.rule("eval") is sin_p.eval
    assert repr(sin_p) == "sin"
    with pytest.raises(dataclasses.FrozenInstanceError):
        sin_p.name = "cos"  # type: ignore[misc]


@pytest.fixture
def restored_hooks():
    before = {k: getattr(core._hooks, k) for k in ("evaluate", "show")}
    yield
    for k, v in before.items():
        setattr(core._hooks, k, v)


def test_evaluator_and_printer_are_replaceable(restored_hooks):
    jaxpr = stage(lambda x: [sin(x)], [f32()]).jaxpr
    core.set_evaluator(eval_jaxpr)
    assert evaluate(jaxpr, [np.float32(0)])[0].data == 0
    core.set_evaluator(lambda j, xs: ["compiled", j, *xs])
    assert evaluate(jaxpr, [1]) == ["compiled", jaxpr, 1]
    core.set_printer(lambda j: f"{len(j.eqns)} equations")
    assert str(jaxpr) == "1 equations"


def test_methods_are_installed_on_arrays_and_tracers():
    core.set_methods({"_double_for_test": lambda self: add(self, self)})
    try:
        assert Array(np.float32(2.0))._double_for_test().data == 4
        assert stage(lambda x: [x._double_for_test()], [f32()]).jaxpr.eqns[0].prim is add_p
    finally:
        del Array._double_for_test, Tracer._double_for_test


# ---- leaks


def test_a_leaked_tracer_is_named_with_the_users_line():
    kept = []
    stage(lambda x: kept.append(x) or [x], [f32(3)])
    with pytest.raises(LeakedTracerError, match=r"'sin'.*a traced value of f32\[3\]") as found:
        sin_p.bind(kept[0])
    assert found.value.source.file == __file__
    assert kept[0].concrete() is None
