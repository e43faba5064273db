"""Derivatives of jaxprs as jaxprs."""

import gc
import weakref

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.grad import nested
from lumjax.grad.forward import jvp
from lumjax.grad.mask import Mask
from lumjax.grad.nested import jvp_jaxpr, split_jaxpr, transpose_call
from lumjax.grad.reverse import Cotangent, grad
from lumjax.ops import add, cast, cumprod, gt, mul, ne, neg, reduce_sum, select, sin, sqrt
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.check import check
from lumjax.trace.core import Effect, Linear, Primitive, Tracer, aval_of, eval_jaxpr
from lumjax.trace.stage import stage

F32 = ShapedArray((3,), dt.float32)
X = np.array([0.5, 1.0, 2.0], np.float32)
ONES = np.ones(3, np.float32)
TABLE = np.array([1.0, 2.0, 3.0], np.float32)


def staged(f, *avals):
    found = stage(f, avals)
    assert found.consts == ()
    check(found.jaxpr)
    return found.jaxpr


def data(values):
    return [np.asarray(getattr(v, "data", v)) for v in values]


# ---- jvp


def test_jvp_of_some_inputs():
    jaxpr = staged(lambda x, y: [mul(sin(x), y), sin(y), gt(x, y)], F32, F32)
    derived = jvp_jaxpr(jaxpr, (True, False))
    check(derived.jaxpr)
    assert derived.nonzero == (True, False, False)
    assert derived.jaxpr.consts == 0
    *outs, tangent = data(eval_jaxpr(derived.jaxpr, [*derived.consts, X, ONES, ONES]))
    np.testing.assert_allclose(outs[0], np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(tangent, np.cos(X), rtol=1e-6)


def test_jvp_forced():
    jaxpr = staged(lambda x, y: [mul(x, x), y, gt(x, y)], F32, F32)
    derived = jvp_jaxpr(jaxpr, (True, False), force=(True, True, True))
    assert derived.nonzero == (True, True, False)
    outs = data(eval_jaxpr(derived.jaxpr, [*derived.consts, X, X, ONES]))
    np.testing.assert_allclose(outs[3], 2 * X)
    np.testing.assert_array_equal(outs[4], np.zeros(3))


def test_jvp_hoists_arrays_that_rules_create():
    prim = Primitive(
        "scale",
        aval=lambda x: (x,),
        eval=lambda x: (x * TABLE,),
        form=None,
        jvp=lambda ps, ts: (prim.bind(*ps), (mul(ts[0], TABLE),)),
    )
    jaxpr = staged(prim.bind, F32)
    derived = jvp_jaxpr(jaxpr, (True,))
    assert len(derived.consts) == 1
    outs = data(eval_jaxpr(derived.jaxpr, [*derived.consts, X, ONES]))
    np.testing.assert_array_equal(outs[1], TABLE)


# ---- split


def test_split():
    jaxpr = staged(lambda x, t, y: [sin(x), mul(t, mul(x, y)), mul(t, y), y], F32, F32, F32)
    cut = split_jaxpr(jaxpr, (False, True, False))
    check(cut.known)
    check(cut.linear)
    assert cut.outputs == (False, True, True, False)
    known = data(eval_jaxpr(cut.known, [*cut.consts, X, TABLE]))
    residuals = known[2:]
    assert len(residuals) == cut.residuals
    np.testing.assert_array_equal(known[1], TABLE)
    linear = data(eval_jaxpr(cut.linear, [*residuals, ONES]))
    np.testing.assert_allclose(linear[0], X * TABLE)
    np.testing.assert_allclose(linear[1], TABLE)
    # The residual y is the input itself.
    assert cut.known.inputs[len(cut.consts) + 1] in cut.known.outputs[2:]


def test_split_forced():
    jaxpr = staged(lambda x, t: [mul(x, x), t], F32, F32)
    cut = split_jaxpr(jaxpr, (False, True), force=(True, True))
    assert cut.outputs == (True, True)
    residuals = eval_jaxpr(cut.known, [*cut.consts, X])
    linear = data(eval_jaxpr(cut.linear, [*residuals, ONES]))
    np.testing.assert_allclose(linear[0], X * X)


def test_split_keeps_effects_in_the_known_part():
    noisy = Primitive(
        "noisy", aval=lambda x: (x,), eval=lambda x: (x,), form=None, effect=Effect.ORDERED
    )
    jaxpr = staged(lambda x, t: [mul(t, noisy.bind(x)[0])], F32, F32)
    cut = split_jaxpr(jaxpr, (False, True))
    assert cut.known.effect is Effect.ORDERED
    assert cut.linear.effect is Effect.NONE


# ---- transpose


class Program:
    """Runs backward programs and remembers them."""

    def __init__(self):
        self.runs = []

    def __call__(self, jaxpr, args):
        check(jaxpr)
        assert jaxpr.consts == 0
        assert [aval_of(a).shape for a in args] == [v.aval.shape for v in jaxpr.inputs]
        self.runs.append(jaxpr)
        return eval_jaxpr(jaxpr, args)


def test_transpose():
    jaxpr = staged(lambda x, t, u: [mul(x, t), add(t, u)], F32, F32, F32)
    run = Program()
    cts = transpose_call(run, jaxpr, [X, Linear(F32), Linear(F32)], [Cotangent(ONES), None])
    assert cts[0] is None
    assert cts[2] is None
    np.testing.assert_array_equal(cts[1].value.data, X)
    assert cts[1].mask is None
    cts = transpose_call(
        run, jaxpr, [X, Linear(F32), Linear(F32)], [Cotangent(ONES), Cotangent(ONES)]
    )
    np.testing.assert_array_equal(cts[1].value.data, X + 1)
    np.testing.assert_array_equal(cts[2].value.data, ONES)


def masked(keep):
    asked = []

    def make():
        asked.append(1)
        return Array(np.array(keep))

    return Cotangent(np.where(keep, 1, 0).astype(np.float32), Mask(make)), asked


def test_masks_go_in_only_where_they_are_used():
    harmless = staged(lambda t: [neg(t)], F32)
    ct, asked = masked([True, False, True])
    (out,) = transpose_call(Program(), harmless, [Linear(F32)], [ct])
    assert asked == []
    assert out.mask.get().data.tolist() == [True, False, True]
    assert asked == [1]
    harmful = staged(lambda x, t: [mul(x, t)], F32, F32)
    ct, asked = masked([True, False, True])
    residual = np.array([1.0, np.inf, 2.0], np.float32)
    _, out = transpose_call(Program(), harmful, [residual, Linear(F32)], [ct])
    assert asked == [1]
    assert out.value.data.tolist() == [1.0, 0.0, 2.0]


def test_masks_come_out_when_asked_for_and_only_once():
    jaxpr = staged(lambda p, t, u: [select(p, t, u)], F32.with_dtype(dt.bool_), F32, F32)
    run = Program()
    pred = np.array([True, False, True])
    cts = transpose_call(run, jaxpr, [pred, Linear(F32), Linear(F32)], [Cotangent(ONES)])
    assert len(run.runs) == 1
    assert cts[1].mask.get().data.tolist() == [True, False, True]
    assert cts[2].mask.get().data.tolist() == [False, True, False]
    assert len(run.runs) == 2
    values = {e.prim.name for e in run.runs[1].eqns}
    assert values == {"not"}  # no cotangent is computed for a mask


def test_a_mask_that_is_unknown_is_done_without():
    jaxpr = staged(lambda x, t: [mul(x, t)], F32, F32)
    ct = Cotangent(ONES, Mask(lambda: None))
    run = Program()
    _, out = transpose_call(run, jaxpr, [X, Linear(F32)], [ct])
    np.testing.assert_array_equal(out.value.data, X)
    assert len(run.runs) == 1
    assert out.mask is None
    harmless = staged(lambda t: [neg(t)], F32)
    (out,) = transpose_call(run, harmless, [Linear(F32)], [ct])
    assert out.mask.get() is None


def test_masks_through_an_operation_that_loses_them():
    jaxpr = staged(lambda t, p: [cumprod(select(p, t, t), 0)], F32, F32.with_dtype(dt.bool_))
    derived = jvp_jaxpr(jaxpr, (True, False))
    cut = split_jaxpr(derived.jaxpr, (False,) * len(derived.consts) + (False, False, True))
    assert cut.outputs == (False, True)


def test_effects_survive_pruning():
    noisy = Primitive(
        "noisy",
        aval=lambda x: (x,),
        eval=lambda x: (x,),
        form=None,
        effect=Effect.ORDERED,
    )
    jaxpr = staged(lambda x, t: [noisy.bind(x)[0], t], F32, F32)
    run = Program()
    transpose_call(run, jaxpr, [X, Linear(F32)], [None, Cotangent(ONES)])
    assert [e.prim for e in run.runs[0].eqns] == [noisy]


def test_programs_are_remembered_while_the_jaxpr_lives():
    jaxpr = staged(lambda x, t: [mul(x, t)], F32, F32)
    run = Program()
    for _ in range(2):
        transpose_call(run, jaxpr, [X, Linear(F32)], [Cotangent(ONES)])
    assert run.runs[0] is run.runs[1]
    with config.scope(grad_compat="jax"):
        transpose_call(run, jaxpr, [X, Linear(F32)], [Cotangent(ONES)])
    assert run.runs[2] is not run.runs[0]
    reference = weakref.ref(jaxpr)
    del jaxpr, run
    gc.collect()
    assert reference() is None


def test_the_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(nested, "_LIMIT", 2)
    jaxpr = staged(lambda *ts: list(ts), *(F32,) * 3)
    run = Program()
    for k in range(3):
        cts = [Cotangent(ONES) if j == k else None for j in range(3)]
        transpose_call(run, jaxpr, [Linear(F32)] * 3, cts)
    assert len(nested._memo[jaxpr]) == 1


def test_programs_that_closed_over_a_tracer_are_not_remembered():
    kept = []

    def outer(c):
        prim = Primitive(
            "times_c",
            aval=lambda t: (t,),
            eval=lambda t: (t,),
            form=None,
            transpose=lambda cts, inputs: (mul(cts[0], c),),
        )
        jaxpr = stage(prim.bind, [ShapedArray((), dt.float32)]).jaxpr
        kept.append(jaxpr)
        (ct,) = transpose_call(
            eval_jaxpr,
            jaxpr,
            [Linear(jaxpr.inputs[0].aval)],
            [Cotangent(np.float32(2.0))],
        )
        return ct.value

    assert float(grad(outer)(3.0).data) == 2.0
    assert not nested._memo.get(kept[0])
    assert float(jvp(outer, (3.0,), (1.0,))[1].data) == 2.0
    assert not isinstance(outer(np.float32(3.0)), Tracer)


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16])
def test_low_precision(dtype):
    aval = ShapedArray((3,), dtype)
    jaxpr = staged(lambda x, t: [reduce_sum(mul(x, t), (0,))], aval, aval)
    ct = Cotangent(np.ones((), dtype))
    _, out = transpose_call(Program(), jaxpr, [X.astype(dtype), Linear(aval)], [ct])
    assert out.value.dtype == dtype
    assert ne(cast(out.value, dt.float32), X).data.sum() == 0
    assert sqrt(out.value).dtype == dtype
