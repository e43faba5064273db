import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumjax.egraph.scalar import OPS
from lumjax.kernel.digest import stable_text
from lumjax.kernel.region import Alone, Region, cut, volume
from lumjax.kernel.term import Apply, Lit
from lumjax.ops import elementwise as ew
from lumjax.ops import layout as la
from lumjax.ops import transcendental as tr
from lumjax.ops.elementwise import elementwise
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Effect, Eqn, Jaxpr, Primitive, Var
from lumjax.trace.dim import estimate, symbol
from lumjax.trace.form import Barrier, Opaque
from tests.egraph import programs as pr

x = pr.aval(64, 64)


def opaque(v):
    return Primitive("opaque", lambda a: (a,), lambda v: (v + 1,), lambda a: Opaque("a test")).bind(
        v
    )[0]


def barrier(v, number=0):
    form = lambda *a, n: Barrier(n)
    return Primitive("barrier", lambda a, n: (a,), lambda v, n: (v,), form).bind(v, n=number)[0]


def effect(v, order=Effect.ORDERED):
    prim = Primitive(
        "say", lambda a: (a,), lambda v: (v,), lambda a: Opaque("an effect"), effect=order
    )
    return prim.bind(v)[0]


def staged(f, *avals):
    return pr.Program("", f, avals).jaxpr()


def regions(steps):
    return [s for s in steps if isinstance(s, Region)]


def check_order(jaxpr, steps):
    """Every value is made once and before it is used, and every output is made."""
    known = set(jaxpr.inputs)
    for s in steps:
        ins = s.inputs if isinstance(s, Region) else [a for a in s.eqn.inputs if isinstance(a, Var)]
        outs = s.outputs if isinstance(s, Region) else s.eqn.outputs
        assert known.issuperset(ins)
        assert not known & set(outs)
        known |= set(outs)
    assert known.issuperset(a for a in jaxpr.outputs if isinstance(a, Var))


@pytest.mark.parametrize("program", pr.PROGRAMS, ids=lambda p: p.name)
def test_order(program):
    jaxpr = program.jaxpr()
    check_order(jaxpr, cut(jaxpr))
    check_order(jaxpr, cut(jaxpr, limit=3))


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_limit_keeps_the_meaning(limit):
    program = pr.BY_NAME["mlp-grad"]
    jaxpr, args = program.jaxpr(), program.inputs()
    sizes = []

    def run(region, values):
        sizes.append(len(region.eqns))
        inner = Jaxpr(region.inputs, region.eqns, region.outputs)
        return pr.answer(inner, values)

    got = pr.run_steps(jaxpr, args, run, limit)
    pr.assert_close(got, pr.answer(jaxpr, args))
    whole = [len(r.eqns) for r in regions(cut(jaxpr))]
    assert max(sizes) <= max(whole)
    assert len(sizes) > len(whole)
    small = regions(cut(jaxpr, limit=limit))
    assert all(len([e for e in r.eqns if set(e.outputs) & set(r.outputs)]) <= limit for r in small)


def test_opaque_and_effects_run_alone_in_order():
    def f(a):
        b = effect(tr.exp(a))
        c = effect(tr.sin(a) if hasattr(tr, "sin") else tr.log(a))
        return ew.add(opaque(b), c)

    jaxpr = staged(f, x)
    steps = cut(jaxpr)
    alone = [s.eqn.prim.name for s in steps if isinstance(s, Alone)]
    assert alone.count("say") == 2
    said = [s.eqn for s in steps if isinstance(s, Alone) and s.eqn.prim.name == "say"]
    program = [e for e in jaxpr.eqns if e.prim.name == "say"]
    assert [e.inputs for e in said] == [e.inputs for e in program]
    check_order(jaxpr, steps)


def test_dependency_order_not_program_order():
    """Work that does not wait for an opaque equation joins the region before it."""

    def f(a):
        b = tr.exp(a)
        c = opaque(b)
        d = ew.mul(b, b)
        return c, d

    steps = cut(staged(f, x))
    first = steps[0]
    assert isinstance(first, Region)
    assert {e.prim.name for e in first.eqns} == {"exp", "mul"}


def test_nothing_crosses_a_barrier():
    def f(a):
        b = tr.exp(a)
        return ew.add(tr.exp(barrier(a)), barrier(b, 1))

    jaxpr = staged(f, x)
    steps = cut(jaxpr)
    assert len([s for s in steps if isinstance(s, Alone)]) == 2
    assert all([e.prim.name for e in r.eqns].count("exp") <= 1 for r in regions(steps))
    check_order(jaxpr, steps)


def test_views_and_constants_are_cloned_not_stored():
    def f(a, row):
        wide = la.broadcast_in_dim(row, (64, 64), (1,))
        return ew.add(opaque(ew.mul(a, wide)), wide)

    steps = cut(staged(f, x, pr.aval(64)))
    for r in regions(steps):
        assert all(v.aval.shape == (64, 64) for v in r.outputs)
        assert [e.prim.name for e in r.eqns if e.prim.name == "broadcast_in_dim"]


def test_layers_repeat():
    def f(a, *ws):
        for w in ws:
            a = pr.gelu_chain(pr.matmul(a, w))
        return a

    steps = regions(cut(staged(f, x, *[x] * 6)))
    keys = [s.key for s in steps]
    assert len(keys) >= 6
    assert len(set(keys)) <= 2


def test_optimizer_leaves_repeat():
    def f(*leaves):
        return [y for k in range(3) for y in pr.adam(*leaves[4 * k : 4 * k + 4])]

    steps = regions(cut(staged(f, *[x] * 12)))
    assert len(steps) == 3
    assert len({s.key for s in steps}) == 1


_seen = set()


@pytest.mark.parametrize(
    "change",
    [
        lambda a: ew.mul(a, np.float32(2.0)),
        lambda a: ew.mul(a, np.float32(3.0)),
        lambda a: ew.mul(a, np.float32(0.0)),
        lambda a: ew.mul(a, np.float32(-0.0)),
        lambda a: ew.add(a, np.float32(2.0)),
        lambda a: la.reduce_sum(a, (0,)),
        lambda a: la.reduce_sum(a, (1,)),
        lambda a: la.transpose(a, (1, 0)),
        lambda a: (ew.mul(a, np.float32(2.0)), ew.mul(a, a)),
    ],
)
def test_key_tells_programs_apart(change):
    (r,) = regions(cut(staged(change, x)))
    (again,) = regions(cut(staged(change, x)))
    assert r.key == again.key
    assert r.key not in _seen
    _seen.add(r.key)
    (other,) = regions(cut(staged(change, pr.aval(64, 64, dtype=np.float16))))
    assert other.key != r.key


def test_key_is_stable_across_processes():
    code = (
        "from tests.egraph import programs as pr\n"
        "from lumjax.kernel.region import cut, Region\n"
        "print([s.key for s in cut(pr.BY_NAME['mlp-grad'].jaxpr()) if isinstance(s, Region)])"
    )
    root = Path(__file__).parents[2]
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert "'" in texts.pop()


def test_stable_text_refuses_what_has_no_text():
    with pytest.raises(TypeError, match="no stable text"):
        stable_text(object())


def test_parameters_without_a_text_run_alone():
    odd = replace(ew.neg_p, form=lambda a, what: ew.neg_p.form(a), aval=lambda a, what: (a,))
    steps = cut(staged(lambda a: odd.bind(a, what=object())[0], x))
    assert isinstance(steps[0], Alone)
    assert "stable text" in steps[0].form.why


def test_stable_text_tells_values_apart():
    values = [
        0.0,
        -0.0,
        0,
        "0",
        True,
        None,
        (0,),
        {"a": 0},
        np.float32(0),
        np.dtype("f4"),
        {1, 2},
        1j,
    ]
    texts = [stable_text(v) for v in values]
    assert len(set(texts)) == len(values)


def test_estimates():
    n = symbol("n", 1, None)
    assert estimate(7) == 7
    assert estimate(n) == 256
    assert estimate(symbol("m", 10, 20)) == 15
    assert volume((2, n)) == 512


def test_complex_and_multiple_outputs_run_alone():
    steps = cut(staged(lambda a: ew.mul(a, a), ShapedArray((3,), np.dtype("complex64"))))
    assert isinstance(steps[0], Alone)
    two = Primitive("two", lambda a: (a, a), lambda v: (v, v), lambda a: elementwise_form())
    eqns = staged(two.bind, x)
    assert isinstance(cut(eqns)[0], Alone)


def elementwise_form():
    return ew.mul_p.form(x, x)


def test_cycles_are_impossible_but_checked():
    """An equation list out of order is a caller's error that is reported, not an endless loop."""
    jaxpr = staged(lambda a: tr.exp(opaque(a)), x)
    assert isinstance(jaxpr.eqns[0], Eqn)
    assert cut(replace(jaxpr, outputs=jaxpr.outputs))
    assert callable(elementwise)


def test_operations_without_native_code_run_alone():
    jaxpr = staged(lambda a: ew.add(tr.exp(a), tr.log(a)), x)
    asked = []

    def native(op, dtypes, dtype):
        asked.append((op.name, dtypes, dtype))
        return op.name != "log"

    steps = cut(jaxpr, native=native)
    (alone,) = [s for s in steps if isinstance(s, Alone)]
    assert alone.eqn.prim.name == "log"
    assert "no native code for log" in alone.form.why
    assert {name for name, _, _ in asked} == {"exp", "log", "add"}
    check_order(jaxpr, steps)


def test_an_effect_keeps_a_compilable_operation_alone():
    talking = replace(ew.mul_p, effect=Effect.UNORDERED)
    steps = cut(staged(lambda a: talking.bind(a, a)[0], x))
    assert isinstance(steps[0], Alone)
    assert "effect" in steps[0].form.why


def test_masks_and_other_cheap_values_are_recomputed_not_stored():
    """The backward half reads what the forward half stores anyway, and computes the rest again."""

    def f(a, w):
        z = pr.matmul(a, w)
        h = pr.relu(z)
        y = opaque(pr.matmul(h, w))
        return ew.mul(y, ew.mul(h, np.float32(3))), z

    steps = cut(staged(f, x, x))
    stored = [v for r in regions(steps) for v in r.outputs]
    assert len(stored) == 4  # z, h (an operand), the product, and the result
    last = regions(steps)[-1]
    assert {e.prim.name for e in last.eqns} >= {"mul"}


def test_terms_are_interned():
    a, b = (Apply(OPS["neg"], (Lit(np.dtype("f4"), b"\0" * 4),), np.dtype("f4")) for _ in "ab")
    assert a is b
    assert hash(a) == hash(b)
    assert Lit(np.dtype("f4"), b"\0\0\0\x80") is not Lit(np.dtype("f4"), b"\0" * 4)
