"""call: what a nested jit becomes."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import lumjax.ops as ops
from lumjax.config import config
from lumjax.control.call import call, call_p
from lumjax.control.custom import custom_jvp
from lumjax.control.staging import batch_of, jvp_of, remembered, split_of, stage_tree
from lumjax.errors import ArgumentTypeError, CheckError, LeakedTracerError
from lumjax.trace import core
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import aval_of, sub_jaxprs
from lumjax.trace.stage import stage
from tests.control.worlds import close, grad, jit, jvp, total, vmap

X = np.array([0.3, -0.7, 1.2], np.float32)
VECTOR = ShapedArray((3,), np.dtype(np.float32))


def staged(f, *avals):
    found = stage(lambda *xs: (f(*xs),), avals)
    return found.jaxpr


def names(jaxpr):
    return [(e.prim.name, e.params.get("name")) for e in jaxpr.eqns]


def all_jaxprs(jaxpr):
    yield jaxpr
    for eqn in jaxpr.eqns:
        for sub in sub_jaxprs(eqn.params):
            yield from all_jaxprs(sub)


def test_a_call_runs_through_the_installed_evaluator(monkeypatch):
    seen = []

    def evaluate(jaxpr, args):
        seen.append(jaxpr)
        return core.eval_jaxpr(jaxpr, args)

    monkeypatch.setattr(core._hooks, "evaluate", evaluate)
    f = jit(lambda x: total(ops.sin(x) * x))
    f(X)
    assert len(seen) == 1
    seen.clear()
    grad(f)(X)
    known, backward = seen
    assert "sincos" in {e.prim.name for e in known.eqns}
    assert "sincos" not in {e.prim.name for e in backward.eqns}


def test_gradient_of_a_call_is_a_call_of_the_known_part_and_one_of_the_backward_part():
    jaxpr = staged(grad(jit(lambda x: total(ops.sin(x)))), VECTOR)
    assert names(jaxpr) == [("call", "known(jvp(f))"), ("call", "transpose(linear(jvp(f)))")]


def test_a_call_without_known_work_is_not_called_for_it():
    @custom_jvp
    def f(x):
        return ops.sin(x)

    f.defjvp(lambda p, t: (ops.sin(p[0]), jit(lambda a: a * 2.0)(t[0])))
    jaxpr = staged(grad(lambda x: total(f(x))), VECTOR)
    assert [n for n, _ in names(jaxpr)].count("call") == 1
    close(grad(lambda x: total(f(x)))(X), np.full(3, 2.0, np.float32), 1e-6)


def test_closed_over_arrays_become_operands():
    table = ops.asvalue(X)

    def f(x):
        return jit(lambda a: jit(lambda b: b * table)(a) + table)(x)

    jaxpr = staged(grad(lambda x: total(f(x))), VECTOR)
    assert [j.consts for j in list(all_jaxprs(jaxpr))[1:]] == [0] * (
        len(list(all_jaxprs(jaxpr))) - 1
    )
    close(grad(lambda x: total(f(x)))(X), X, 1e-6)


@pytest.mark.parametrize(
    "close_over",
    [
        lambda g: grad(g)(np.float32(2.0)),
        lambda g: vmap(g)(np.arange(3, dtype=np.float32)),
        lambda g: jit(g)(np.float32(2.0)),
        lambda g: jvp(g, (np.float32(2.0),), (np.float32(1.0),)),
        lambda g: jit(vmap(grad(g)))(np.arange(3, dtype=np.float32)),
    ],
    ids=["grad", "vmap", "jit", "jvp", "jit vmap grad"],
)
def test_closure_over_a_tracer_of_an_outer_transformation(close_over):
    def with_call(y):
        return jit(lambda x: x * y + y)(y * y)

    close(close_over(with_call), close_over(lambda y: y * y * y + y), 1e-6)


def test_a_program_with_tracer_constants_is_not_kept():
    counts = []

    def outer(y):
        def inner(x):
            counts.append(1)
            return x * y

        return jit(inner)(y) + jit(inner)(y)

    jit(outer)(X)
    assert len(counts) == 2


def test_a_function_is_staged_once_per_signature():
    counts = []

    def f(x):
        counts.append(1)
        return x * 2

    tree = _tree()
    for _ in range(3):
        stage_tree(f, tree, [VECTOR])
    assert len(counts) == 1
    stage_tree(f, tree, [VECTOR.with_shape((4,))])
    assert len(counts) == 2
    with config.scope(enable_x64=True):
        stage_tree(f, tree, [VECTOR])
    assert len(counts) == 3


def _tree():
    from lumjax import tree

    return tree.structure((0,))


def test_a_function_is_staged_again_when_a_name_it_reads_is_rebound():
    factor = 2.0

    def f(x):
        return x * factor

    close(jit(f)(X), X * 2, 1e-6)
    factor = 3.0
    close(jit(f)(X), X * 3, 1e-6)

    def late(x):
        return x * (later if "later" in seen else 1.0)

    seen = ()
    close(jit(late)(X), X, 1e-6)
    later, seen = 2.0, ("later",)
    close(jit(late)(X), X * 2, 1e-6)


def test_bound_methods_and_callable_objects_are_staged_each_time():
    class Scaled:
        factor = 2.0

        def __call__(self, x):
            return x * self.factor

    f = Scaled()
    close(jit(f)(X), X * 2, 1e-6)
    f.factor = 3.0
    close(jit(f)(X), X * 3, 1e-6)
    close(jit(f.__call__)(X), X * 3, 1e-6)


def test_derived_jaxprs_are_remembered_and_forgotten_with_their_jaxpr():
    jaxpr = staged(lambda x: ops.sin(x) * 2.0, VECTOR)
    assert jvp_of(jaxpr, (True,)) is jvp_of(jaxpr, (True,))
    assert split_of(jvp_of(jaxpr, (True,)).jaxpr, (False, True)) is split_of(
        jvp_of(jaxpr, (True,)).jaxpr, (False, True)
    )
    assert batch_of(jaxpr, MappedAxis(2), (True,)) is batch_of(jaxpr, MappedAxis(2), (True,))
    assert batch_of(jaxpr, MappedAxis(3), (True,)) is not batch_of(jaxpr, MappedAxis(2), (True,))
    dead = weakref.ref(jaxpr)
    from lumjax.grad import nested

    nested._memo.clear()
    del jaxpr
    gc.collect()
    assert dead() is None


def test_the_memory_of_one_owner_is_bounded():
    jaxpr = staged(ops.sin, VECTOR)
    first = remembered(jaxpr, 0, object, lambda _: True)
    assert remembered(jaxpr, 0, object, lambda _: True) is first
    for k in range(300):
        remembered(jaxpr, k, object, lambda _: True)
    assert remembered(jaxpr, 0, object, lambda _: True) is not first
    assert remembered(jaxpr, "no", object, lambda _: False) is not remembered(
        jaxpr, "no", object, lambda _: True
    )


def test_threads_share_what_is_remembered():
    f = jit(lambda x: total(ops.sin(x) * ops.cos(x)))
    results = []

    def work():
        results.append(jit(vmap(grad(f)))(np.stack([X, X])).data)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 4
    for r in results:
        np.testing.assert_array_equal(r, results[0])


def test_weak_types_pass_through():
    weak = jit(lambda x: x * 2)(1.5)
    assert weak.weak
    assert not jit(lambda x: total(x * X))(1.5).weak
    assert vmap(jit(lambda x: (x, 1.0)))(X)[1].weak


def test_several_results_some_not_differentiated():
    def f(x):
        y, n, z = jit(lambda a: (ops.sin(a), ops.cast(a, np.int32), 3.0))(x)
        return total(y * z) + ops.cast(total(n), np.float32)

    close(grad(f)(X), 3 * np.cos(X), 1e-6)
    close(jvp(f, (X,), (X,))[1], np.float32((3 * np.cos(X) * X).sum()), 1e-6)


def test_masks_cross_a_call():
    f = lambda x: ops.select(ops.gt(x, 0), jit(ops.sqrt)(x), 0.0)
    close(vmap(grad(f))(np.array([0.0, 4.0], np.float32)), np.array([0.0, 0.25], np.float32), 1e-6)


def test_rules_with_array_constants_are_hoisted():
    table = np.array([1.0, 2.0, 3.0], np.float32)

    @custom_jvp
    def f(x):
        return ops.sin(x)

    f.defjvp(lambda p, t: (ops.sin(p[0]), t[0] * table))
    g = jit(lambda x: total(f(x) * x))
    expected = table * X + np.sin(X)
    close(grad(g)(X), expected, 1e-6)
    close(jit(grad(jit(g)))(X), expected, 1e-6)
    close(vmap(grad(g))(np.stack([X, X])), np.stack([expected, expected]), 1e-6)
    assert jvp_of(staged(f, VECTOR), (True,)).consts[0] is not None


def test_bad_arguments():
    with pytest.raises(ArgumentTypeError, match="array"):
        jit(lambda x: x)("text")
    with pytest.raises(ArgumentTypeError, match="array"):
        jit(lambda x: "text")(X)


def test_a_leaked_tracer_is_named():
    leaked = []
    jit(lambda x: leaked.append(x) or x)(X)
    with pytest.raises(LeakedTracerError):
        ops.sin(leaked[0])
    assert len(core.active_traces()) == 1


def test_an_error_inside_leaves_no_trace_behind():
    def bad(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        grad(jit(bad))(X)
    assert len(core.active_traces()) == 1


def test_the_record():
    jaxpr = staged(ops.sin, VECTOR)
    outs = call(jaxpr, (X,), "f")
    close(outs[0], np.sin(X), 1e-6)
    close(call_p.expand(ops.asvalue(X), jaxpr=jaxpr, name="f")[0], np.sin(X), 1e-6)
    assert call_p.aval(aval_of(X), jaxpr=jaxpr, name="f") == (VECTOR,)
    assert type(call_p.form(VECTOR, jaxpr=jaxpr, name="f")).__name__ == "Expand"


def test_operands_are_checked():
    jaxpr = staged(ops.sin, VECTOR)
    with pytest.raises(CheckError, match=r"f32\[3\].*f32\[2\]"):
        call_p.aval(VECTOR.with_shape((2,)), jaxpr=jaxpr, name="f")
    with pytest.raises(CheckError, match="got \\(\\)"):
        call_p.aval(jaxpr=jaxpr, name="f")
