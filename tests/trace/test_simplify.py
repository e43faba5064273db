"""DCE, CSE and folding: fewer equations, the same bits, the same effects."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.trace import simplify as sm
from lumjax.trace.aval import ShapedArray
from lumjax.trace.check import check
from lumjax.trace.core import Eqn, Jaxpr, Literal, Var, eval_jaxpr
from lumjax.trace.dim import symbol
from lumjax.trace.simplify import cse, dce, fold, freeze, simplify, used_inputs
from lumjax.trace.stage import stage
from tests.trace.prims import (
    add,
    barrier_p,
    call,
    call_p,
    f32,
    failing_p,
    i32,
    iota_p,
    mul,
    print_p,
    printed,
    scale_p,
    sin,
    split_p,
    switch_p,
    total_p,
    weak_p,
)


def names(jaxpr):
    return [e.prim.name for e in jaxpr.eqns]


def staged(f, *avals):
    return check(stage(f, avals).jaxpr)


# ---- dead code


def test_dce_drops_what_nothing_needs():
    jaxpr = staged(lambda x: [sin(x), mul(sin(mul(x, x)), x)][:1], f32(3))
    assert names(dce(jaxpr)) == ["sin"]
    assert dce(jaxpr).inputs == jaxpr.inputs
    whole = staged(lambda x: [sin(x)], f32())
    assert dce(whole) is whole


def test_dce_keeps_effects_and_what_they_read():
    jaxpr = staged(lambda x: print_p.bind(sin(mul(x, x))) or [x], f32())
    assert names(dce(jaxpr)) == ["mul", "sin", "print"]
    inner = stage(lambda x: print_p.bind(x) or [x], [f32()])
    outer = staged(lambda x: [call(inner, sin(x))[0], x][1:], f32())
    assert names(dce(outer)) == ["sin", "call"]
    pure = stage(lambda x: [sin(x)], [f32()])
    assert names(dce(staged(lambda x: [call(pure, x)[0], x][1:], f32()))) == []


def test_dce_of_outputs():
    jaxpr = staged(lambda x, y: [sin(x), mul(y, y), x], f32(), f32())
    kept = dce(jaxpr, used=[False, True, True])
    assert names(kept) == ["mul"]
    assert kept.outputs == jaxpr.outputs[1:]
    assert used_inputs(dce(jaxpr, used=[True, False, False])) == [True, False]
    assert used_inputs(dce(jaxpr, used=[False, False, True])) == [True, False]


def test_one_used_output_keeps_the_equation():
    jaxpr = staged(lambda x: [split_p.bind(x)[1]], f32(3))
    assert dce(jaxpr) is jaxpr


# ---- common subexpressions


def test_cse_merges_equal_equations():
    def f(x):
        return [mul(sin(x), sin(x)), sin(sin(x))]

    jaxpr = cse(staged(f, f32(3)))
    assert names(jaxpr) == ["sin", "mul", "sin"]
    check(jaxpr)
    twice = cse(staged(lambda x: [sin(x), sin(x)], f32()))
    assert twice.outputs[0] is twice.outputs[1]


def test_cse_keeps_effects_apart():
    jaxpr = staged(lambda x: print_p.bind(x) or print_p.bind(x) or [sin(x), sin(x)], f32())
    assert names(cse(jaxpr)) == ["print", "print", "sin"]


def test_cse_keeps_barriers_of_different_ids_apart():
    def f(x):
        a, b, c = (barrier_p.bind(x, id=k)[0] for k in (1, 2, 1))
        return [add(a, b), c]

    jaxpr = cse(staged(f, f32()))
    assert names(jaxpr) == ["barrier", "barrier", "add"]


@pytest.mark.parametrize(
    ("a", "b"),
    [(0.0, -0.0), (1.0, np.float64(1.0)), (np.float32(1), np.float16(1)), (1, 1.0), (1, True)],
)
def test_literals_that_python_calls_equal(a, b):
    def f(x):
        return [weak_p.bind(c, weak=False)[0] for c in (a, b, a)]

    jaxpr = cse(staged(f, f32()))
    assert names(jaxpr) == ["weak", "weak"]


def test_nan_literals_merge_and_parameters_keep_their_sign():
    nan = float("nan")
    assert len(cse(staged(lambda x: [mul(x, nan), mul(x, nan)], f32())).eqns) == 1

    def f(x):
        return [scale_p.bind(x, factor=k)[0] for k in (0.0, -0.0, 0, False, nan, nan, 0.0)]

    assert len(cse(staged(f, f32())).eqns) == 5


def test_cse_compares_avals():
    a = Var(f32())
    twins = [Eqn(weak_p, (a,), (Var(f32(weak=w)),), {"weak": False}, None) for w in (False, True)]
    jaxpr = Jaxpr((a,), tuple(twins), tuple(e.outputs[0] for e in twins))
    assert len(cse(jaxpr).eqns) == 2


def test_cse_of_jaxprs_and_unhashable_parameters():
    inner = stage(lambda x: [sin(x)], [f32()])
    other = stage(lambda x: [sin(x)], [f32()])

    def f(x):
        return [call(inner, x)[0], call(inner, x)[0], call(other, x)[0]]

    jaxpr = stage(lambda x: [call_p.bind(x, jaxpr=inner.jaxpr)[0] for _ in "ab"], [f32()]).jaxpr
    assert len(cse(jaxpr).eqns) == 1
    assert len(cse(staged(f, f32())).eqns) == 3
    odd = staged(lambda x: [scale_p.bind(x, factor=set())[0] for _ in "ab"], f32())
    assert len(cse(odd).eqns) == 2


def test_freeze():
    n = symbol("n", 1)
    assert freeze({"a": (1, 2), "b": n}) == freeze({"b": n, "a": (1, 2)})
    assert freeze((1, 2)) != freeze([1, 2])
    assert freeze(np.float32(0.0)) != freeze(np.float32(-0.0))
    assert freeze(np.zeros(3)) == freeze(np.zeros(3))
    assert freeze(np.zeros(3)) != freeze(np.zeros((3, 1)))
    assert freeze(0j) != freeze(complex(0, -0.0))
    assert freeze({1}) != freeze({1})
    assert freeze(dt.float32) == freeze(np.dtype("float32"))


# ---- folding


def test_folds_scalars():
    jaxpr = simplify(staged(lambda x: [mul(x, add(mul(2.0, 3.0), 1.0))], f32()))
    assert names(jaxpr) == ["mul"]
    literal = jaxpr.eqns[0].inputs[1]
    assert isinstance(literal, Literal)
    assert literal.value == 7
    assert literal.aval == f32(weak=True)
    check(jaxpr)


def test_folds_outputs():
    jaxpr = simplify(staged(lambda: [sin(0.5), 1]))
    assert names(jaxpr) == []
    assert jaxpr.outputs[0].value == np.sin(np.float32(0.5))


def test_folds_through_small_arrays():
    jaxpr = simplify(staged(lambda x: [mul(x, total_p.bind(*iota_p.bind(n=5))[0])], f32()))
    assert names(jaxpr) == ["mul"]
    assert jaxpr.eqns[0].inputs[1].value == 10
    kept = staged(lambda: iota_p.bind(n=5))
    assert simplify(kept) is kept
    total, _ = split = simplify(staged(lambda: split_p.bind(*iota_p.bind(n=4)))).outputs
    assert total.value == 6
    assert isinstance(split[1], Var)


def test_does_not_fold_large_symbolic_or_opaque_values():
    big = staged(lambda: [total_p.bind(*iota_p.bind(n=2000))[0]])
    assert simplify(big) is big
    n = symbol("n", 1)
    symbolic = staged(lambda: [total_p.bind(*iota_p.bind(n=n))[0]])
    assert simplify(symbolic) is symbolic
    key = ShapedArray((), dt.key)
    a = Literal(np.zeros((), dt.float32), f32())
    keyed = Jaxpr((), (Eqn(weak_p, (a,), (Var(key),), {"weak": False}, None),), ())
    assert fold(keyed) is keyed


def test_does_not_fold_effects_barriers_calls_or_failures():
    printed.clear()
    jaxpr = staged(lambda: print_p.bind(1.0) or [sin(barrier_p.bind(1.0, id=3)[0])])
    assert names(simplify(jaxpr)) == ["print", "barrier", "sin"]
    assert printed == []
    inner = stage(lambda x: [sin(x)], [f32(weak=True)])
    assert names(simplify(staged(lambda: call(inner, 1.0)))) == ["call"]
    assert names(fold(staged(lambda: failing_p.bind(1.0)))) == ["failing"]


# ---- the whole


def test_simplifies_nested_jaxprs_once():
    def body(x):
        sin(x)
        return [mul(mul(x, x), mul(x, x))]

    inner = stage(body, [f32()])
    jaxpr = staged(lambda x: [call(inner, x)[0], call(inner, call(inner, x)[0])[0]], f32())
    done = simplify(jaxpr)
    assert names(done.eqns[0].params["jaxpr"]) == ["mul", "mul"]
    assert simplify(jaxpr) is done
    assert simplify(done) is done
    same = call_p.bind
    shared = staged(lambda x: same(*same(x, jaxpr=inner.jaxpr), jaxpr=inner.jaxpr), f32())
    a, b = (e.params["jaxpr"] for e in simplify(shared).eqns)
    assert a is b


def test_simplifies_branches():
    one = stage(lambda x: [sin(x), sin(x)][:1], [f32()]).jaxpr
    two = stage(lambda x: [x], [f32()]).jaxpr
    f = lambda i, x: switch_p.bind(i, x, branches=(one, two))
    done = simplify(staged(f, i32(), f32()))
    small, kept = done.eqns[0].params["branches"]
    assert names(small) == ["sin"]
    assert kept is two
    tidy = staged(lambda i, x: switch_p.bind(i, x, branches=(small, two)), i32(), f32())
    assert simplify(tidy) is tidy


def test_random_programs_keep_their_values():
    rng = np.random.default_rng(0)
    for _ in range(40):
        picks = rng.integers(0, 5, 12)
        sources = rng.integers(0, 1 << 30, (12, 2))

        def f(x, y, picks=picks, sources=sources):
            values = [x, y, np.float32(0.5), np.float32(-0.0)]
            for pick, (p, q) in zip(picks, sources, strict=True):
                a, b = values[p % len(values)], values[q % len(values)]
                values.append(
                    [sin(a), add(a, b), mul(a, b), sin(b), barrier_p.bind(a, id=1)[0]][pick]
                )
            return values[-4:]

        jaxpr = staged(f, f32(), f32())
        done = check(simplify(jaxpr))
        assert len(done.eqns) <= len(jaxpr.eqns)
        args = [np.float32(0.7), np.float32(-1.3)]
        for a, b in zip(eval_jaxpr(jaxpr, args), eval_jaxpr(done, args), strict=True):
            a, b = (v.data if hasattr(v, "data") else np.asarray(v) for v in (a, b))
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_limit_is_in_elements():
    assert sm._FOLD_LIMIT == 1024
    exact = simplify(staged(lambda: [total_p.bind(*iota_p.bind(n=1024))[0]]))
    assert names(exact) == []
