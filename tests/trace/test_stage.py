"""Staging: what becomes an equation, a literal, a hoisted constant, an error."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.errors import LeakedTracerError, ShapeError
from lumjax.trace.array import Array
from lumjax.trace.batch import BatchTracer, MappedAxis, batch
from lumjax.trace.check import check
from lumjax.trace.core import Literal, aval_of, eval_jaxpr
from lumjax.trace.dim import symbol
from lumjax.trace.stage import StageTracer, stage
from tests.trace.prims import add, call, f32, i32, iota_p, mul, sin, split_p


def test_records_equations_in_order_with_the_users_lines():
    staged = stage(lambda x: [mul(sin(x), x)], [f32(3)])
    sine, product = staged.jaxpr.eqns
    assert [sine.prim.name, product.prim.name] == ["sin", "mul"]
    assert product.inputs == (*sine.outputs, *staged.jaxpr.inputs)
    assert sine.source.function == "sin"
    assert sine.source.file.endswith("prims.py")
    assert staged.consts == ()
    assert staged.cacheable
    check(staged.jaxpr)


def test_scalars_become_literals():
    def f(x):
        array = Array(np.float32(2.0), weak=True)
        return [add(x, 1.0), add(x, np.float32(1.0)), add(x, array), 7, x]

    jaxpr = stage(f, [f32()]).jaxpr
    literals = [e.inputs[1] for e in jaxpr.eqns]
    assert all(isinstance(a, Literal) for a in literals)
    assert [a.aval.weak for a in literals] == [True, False, True]
    assert literals[2].value == 2
    assert jaxpr.outputs[3].aval == i32(weak=True)
    assert jaxpr.outputs[4] is jaxpr.inputs[0]


def test_float64_scalars_are_narrowed():
    jaxpr = stage(lambda x: [add(x, np.float64(0.1))], [f32()]).jaxpr
    assert jaxpr.eqns[0].inputs[1].value.dtype == dt.float32


def test_arrays_are_hoisted_once_per_object():
    a, b = np.ones(3, np.float32), np.ones(3, np.float32)

    def f(x):
        return [add(add(x, a), add(a, b)), b]

    staged = stage(f, [f32(3)])
    assert staged.jaxpr.consts == 2
    assert staged.consts[0] is a
    assert staged.consts[1] is b
    assert staged.cacheable
    assert staged.jaxpr.in_avals == (f32(3), f32(3), f32(3))
    assert staged.jaxpr.outputs[1] is staged.jaxpr.inputs[1]
    out, same = eval_jaxpr(staged.jaxpr, [*staged.consts, 2 * a])
    np.testing.assert_array_equal(out.data, [5, 5, 5])
    assert same is b


def test_keys_are_hoisted_not_written_in_place():
    key = np.zeros((), dt.key)
    staged = stage(lambda: [key], [])
    assert staged.jaxpr.consts == 1
    assert staged.consts[0] is key


def test_temporaries_do_not_share_an_identity():
    def f(x):
        for k in range(20):
            x = add(x, np.full(3, k, np.float32))
        return [x]

    staged = stage(f, [f32(3)])
    assert staged.jaxpr.consts == 20
    (out,) = eval_jaxpr(staged.jaxpr, [*staged.consts, np.zeros(3, np.float32)])
    np.testing.assert_array_equal(out.data, [190] * 3)


# ---- closed-over tracers: the shapes of SEMANTICS 1 that trace/ can make


def test_closure_over_an_outer_stage_tracer():
    inner_staged = []

    def outer(x):
        y = sin(x)
        inner = stage(lambda z: [mul(z, y)], [f32()])
        inner_staged.append(inner)
        return call(inner, x)

    jaxpr = check(stage(outer, [f32()]).jaxpr)
    (inner,) = inner_staged
    assert inner.jaxpr.consts == 1
    assert isinstance(inner.consts[0], StageTracer)
    assert not inner.cacheable
    sine, called = jaxpr.eqns
    assert called.inputs == (*sine.outputs, *jaxpr.inputs)
    (out,) = eval_jaxpr(jaxpr, [np.float32(0.7)])
    np.testing.assert_allclose(out.data, 0.7 * np.sin(0.7), rtol=1e-6)


def test_closure_over_two_levels():
    def outer(x):
        def middle(y):
            return call(stage(lambda z: [add(mul(z, y), x)], [f32()]), y)

        return call(stage(middle, [f32()]), sin(x))

    jaxpr = check(stage(outer, [f32()]).jaxpr)
    (out,) = eval_jaxpr(jaxpr, [np.float32(0.7)])
    np.testing.assert_allclose(out.data, np.sin(0.7) ** 2 + 0.7, rtol=1e-6)


def test_closure_over_a_batch_tracer():
    seen = []

    def f(x):
        inner = stage(lambda z: [mul(z, x)], [f32()])
        seen.append(inner)
        return eval_jaxpr(inner.jaxpr, [*inner.consts, 2.0])

    x = np.arange(3, dtype=np.float32)
    ((out, dim),) = batch(f, MappedAxis(3), [x], [0])
    assert dim == 0
    np.testing.assert_array_equal(out.data, 2 * x)
    assert isinstance(seen[0].consts[0], BatchTracer)
    assert not seen[0].cacheable


def test_batching_inside_staging():
    def f(x):
        ((out, dim),) = batch(lambda a: [mul(a, sin(a))], MappedAxis(3), [x], [0])
        assert dim == 0
        return [out]

    jaxpr = check(stage(f, [f32(3)]).jaxpr)
    assert [e.prim.name for e in jaxpr.eqns] == ["sin", "mul"]


# ---- shapes and errors


def test_symbolic_shapes_are_staged():
    n = symbol("n", 1)
    jaxpr = stage(lambda x: [sin(x), *iota_p.bind(n=n + 1)], [f32(n, 2)]).jaxpr
    assert [str(a) for a in jaxpr.out_avals] == ["f32[n,2]", "f32[n + 1]"]


def test_bad_operands_name_the_users_line():
    with pytest.raises(ShapeError) as found:
        stage(lambda x: [add(x, np.ones(4, np.float32))], [f32(3)])
    assert found.value.source.function in ("_same_aval", "add")


def test_several_outputs():
    jaxpr = stage(split_p.bind, [f32(4)]).jaxpr
    assert jaxpr.out_avals == (f32(), f32(4))


def test_returning_a_leaked_tracer():
    kept = []
    stage(lambda x: kept.append(x) or [x], [f32(3)])
    with pytest.raises(LeakedTracerError, match="the result"):
        stage(lambda x: [kept[0]], [f32(3)])


def test_using_a_leaked_tracer_in_another_program():
    kept = []
    stage(lambda x: kept.append(x) or [x], [f32(3)])
    staged = stage(lambda x: [add(x, kept[0])], [f32(3)])
    assert not staged.cacheable
    with pytest.raises(LeakedTracerError, match="'add'"):
        eval_jaxpr(staged.jaxpr, [*staged.consts, np.ones(3, np.float32)])


def test_an_outer_tracer_may_be_returned_by_an_inner_program():
    def outer(x):
        inner = stage(lambda z: [x], [f32()])
        assert inner.jaxpr.outputs == inner.jaxpr.inputs[:1]
        return [*inner.consts]

    jaxpr = stage(outer, [f32()]).jaxpr
    assert jaxpr.outputs == jaxpr.inputs


def test_a_tracer_has_its_aval():
    def f(x):
        assert aval_of(x) == f32(2, weak=True)
        return [x]

    stage(f, [f32(2, weak=True)])


@pytest.mark.parametrize("dtype", dt.NUMERIC, ids=str)
def test_scalars_of_every_dtype_are_literals(dtype):
    """Of bfloat16 too, whose kind is NumPy's for structures."""
    staged = stage(lambda: [np.ones((), dtype)], [])
    assert staged.consts == ()
    (out,) = staged.jaxpr.outputs
    assert isinstance(out, Literal)
    assert out.aval.dtype == dt.canonicalize(dtype)
