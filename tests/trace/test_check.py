"""The checker accepts what staging makes and names what is wrong with anything else."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.errors import CheckError, Source
from lumjax.trace.aval import ShapedArray
from lumjax.trace.check import check, same_aval
from lumjax.trace.core import Eqn, Jaxpr, Literal, Var
from lumjax.trace.dim import symbol
from lumjax.trace.stage import stage
from tests.trace.prims import add, add_p, call_p, f32, i32, print_p, sin, sin_p, switch_p

HERE = Source("model.py", 7, "loss")


def eqn(prim, inputs, *avals, **params):
    return Eqn(prim, tuple(inputs), tuple(Var(a) for a in avals), params, HERE)


def test_accepts_staged_programs():
    y = np.ones(3, np.float32)
    jaxpr = stage(lambda x: [sin(add(x, y)), x, 2.0], [f32(3)]).jaxpr
    assert check(jaxpr) is jaxpr
    n = symbol("T", 1)
    check(stage(lambda x: [sin(x)], [f32(n, 4)]).jaxpr)
    check(Jaxpr((), (), ()))


def bad_programs():
    a, b = Var(f32(3)), Var(f32(3))
    good = eqn(sin_p, [a], f32(3))
    inner = Jaxpr((a,), (good,), good.outputs)
    unknown = Jaxpr((a,), (eqn(sin_p, [b], f32(3)),), ())
    hoisting = Jaxpr((a,), (good,), good.outputs, consts=1)
    one = Literal(np.ones((), np.float32), f32())
    return {
        "before use": Jaxpr((a,), (), (b,)),
        "unknown one of f32": unknown,
        "defined once": Jaxpr((a, a), (), ()),
        "one defined again": Jaxpr((a,), (good, good), ()),
        r"outputs \(f32\[3\]\); got \(f32\[4\]\)": Jaxpr((a,), (eqn(sin_p, [a], f32(4)),), ()),
        r"outputs \(f32\[3\]\); got \(i32\[3\]\)": Jaxpr((a,), (eqn(sin_p, [a], i32(3)),), ()),
        r"got \(~f32\[3\]\)": Jaxpr((a,), (eqn(sin_p, [a], f32(3, weak=True)),), ()),
        r"outputs \(f32\[3\]\); got \(\)": Jaxpr((a,), (eqn(sin_p, [a]),), ()),
        "operands that its rule accepts": Jaxpr((a,), (eqn(add_p, [a, one], f32(3)),), ()),
        "missing 1 required": Jaxpr((a,), (eqn(call_p, [a], f32(3)),), ()),
        "hoisted constants": Jaxpr((a,), (), (), consts=2),
        "scalar literal": Jaxpr((), (), (Literal(np.ones((), np.int32), f32()),)),
        "literal of aval f32": Jaxpr((), (), (Literal(np.ones(3, np.float32), f32(3)),)),
        "variables defined before": Jaxpr((a,), (eqn(call_p, [a], jaxpr=unknown),), ()),
        "closed-over values as operands": Jaxpr(
            (a,), (eqn(call_p, [a], f32(3), jaxpr=hoisting),), ()
        ),
        "a jaxpr with constants": Jaxpr(
            (a,), (eqn(switch_p, [a], f32(3), branches=(inner, hoisting)),), ()
        ),
    }


@pytest.mark.parametrize("message", bad_programs())
def test_refuses(message):
    with pytest.raises(CheckError, match=message):
        check(bad_programs()[message])


def test_the_error_shows_the_equation_and_the_users_line():
    a = Var(f32(3))
    bad = Jaxpr((a,), (eqn(sin_p, [a], f32(3)), eqn(sin_p, [a], f32(4))), ())
    with pytest.raises(CheckError) as found:
        check(bad)
    assert found.value.operation == "check of 'sin'"
    assert "c:f32[4] = sin a" in str(found.value)
    assert "{ lambda ; a:f32[3]. let" in str(found.value)
    assert found.value.source == HERE


def test_effects_have_no_outputs():
    a = Var(f32())
    check(Jaxpr((a,), (eqn(print_p, [a]),), ()))


def test_same_aval():
    n, m = symbol("n", 1), symbol("m", 1)
    assert same_aval(f32(n), f32(n))
    assert not same_aval(f32(n), f32(m))
    assert not same_aval(f32(3), f32(3, weak=True))
    assert not same_aval(f32(3), ShapedArray((3,), dt.float16))
