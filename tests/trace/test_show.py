"""The printed form: JAX's, deterministic, with weak types and source lines."""

from __future__ import annotations

from enum import Enum
from functools import partial

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Eqn, Jaxpr, Literal, Var
from lumjax.trace.dim import symbol
from lumjax.trace.show import aval, equation, show
from lumjax.trace.stage import stage
from tests.trace.prims import (
    add,
    call,
    f32,
    i32,
    mul,
    print_p,
    scale_p,
    sin,
    sin_p,
    split_p,
    switch_p,
)


def test_one_equation_stays_on_one_line():
    jaxpr = stage(lambda a: [sin(a)], [f32(3)]).jaxpr
    assert str(jaxpr) == "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }"
    assert str(stage(lambda a: [], [f32(3)]).jaxpr) == "{ lambda ; a:f32[3]. let in () }"


def test_constants_literals_and_weak_types():
    table = np.ones(3, np.float32)

    def f(x, n):
        return [sin(mul(x, table)), add(n, 1), 0.1, True, np.float16(2.5)]

    assert str(stage(f, [f32(3), i32(weak=True)]).jaxpr).splitlines() == [
        "{ lambda a:f32[3] ; b:f32[3] c:~i32[]. let",
        "    d:f32[3] = mul b a",
        "    e:f32[3] = sin d",
        "    f:~i32[] = add c 1:~i32[]",
        "  in (e, f, 0.1:~f32[], True:bool[], 2.5:f16[]) }",
    ]


def test_nested_jaxprs_share_names():
    inner = stage(lambda x: [sin(mul(x, x))], [f32()])
    jaxpr = stage(lambda x: call(inner, x), [f32()]).jaxpr
    assert str(jaxpr).splitlines() == [
        "{ lambda ; a:f32[]. let",
        "    b:f32[] = call[",
        "      jaxpr={ lambda ; c:f32[]. let",
        "          d:f32[] = mul c c",
        "          e:f32[] = sin d",
        "        in (e,) }",
        "    ] a",
        "  in (b,) }",
    ]


def test_branches():
    one = stage(lambda x: [sin(x)], [f32()]).jaxpr
    two = stage(lambda x: [x], [f32()]).jaxpr
    jaxpr = stage(lambda i, x: switch_p.bind(i, x, branches=(one, two)), [i32(), f32()]).jaxpr
    assert str(jaxpr).splitlines() == [
        "{ lambda ; a:i32[] b:f32[]. let",
        "    c:f32[] = switch[",
        "      branches=(",
        "        { lambda ; d:f32[]. let e:f32[] = sin d in (e,) }",
        "        { lambda ; f:f32[]. let in (f,) }",
        "      )",
        "    ] a b",
        "  in (c,) }",
    ]


def test_several_outputs_and_none():
    def f(x):
        total, same = split_p.bind(x)
        print_p.bind(total)
        return [same]

    assert "    b:f32[] c:f32[3] = split a\n    print b\n" in str(stage(f, [f32(3)]).jaxpr)


def test_source_lines():
    jaxpr = stage(lambda a: [sin(a)], [f32(3)]).jaxpr
    line = show(jaxpr, source=True).splitlines()[1]
    assert line.startswith("    b:f32[3] = sin a  # prims.py:")
    assert line.endswith(" in sin")
    inner = stage(lambda x: [sin(x)], [f32()])
    nested = show(stage(lambda x: call(inner, x), [f32()]).jaxpr, source=True)
    assert "call[  # prims.py:" in nested
    a = Var(f32())
    nowhere = Jaxpr((a,), (Eqn(sin_p, (a,), (Var(f32()),), {}, None),), ())
    assert "#" not in show(nowhere, source=True)


class Colour(Enum):
    RED = 1


def named():
    """A function parameter."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (dt.float32, "f32"),
        (Colour.RED, "RED"),
        (np.zeros((2, 3)), "array(2, 3)"),
        (named, "named"),
        (partial(named), "functools.partial(<function named>)"),
        ((1, (2, None)), "(1, (2, None))"),
        ((3,), "(3,)"),
        ((), "()"),
        ("a\nb", "a b"),
        (symbol("T", 1) + 1, "T + 1"),
    ],
)
def test_parameters(value, text):
    a, b = Var(f32()), Var(f32())
    eqn = Eqn(scale_p, (a,), (b,), {"p": value, "axis": 1}, None)
    assert equation(Jaxpr((a,), (eqn,), (b,)), eqn) == f"b:f32[] = scale[axis=1 p={text}] a"


def test_long_parameters_are_broken():
    a, b = Var(f32()), Var(f32())
    eqn = Eqn(scale_p, (a,), (b,), {"p": "x" * 60, "q": "y" * 60}, None)
    lines = equation(Jaxpr((a,), (eqn,), (b,)), eqn).splitlines()
    assert lines == ["b:f32[] = scale[", "  p=" + "x" * 60, "  q=" + "y" * 60, "] a"]


def test_names_go_on_after_z():
    def f(x):
        for _ in range(30):
            x = sin(x)
        return [x]

    text = str(stage(f, [f32()]).jaxpr)
    assert "    z:f32[] = sin y\n    aa:f32[] = sin z\n    ab:f32[] = sin aa\n" in text
    assert text == str(stage(f, [f32()]).jaxpr)


def test_avals():
    assert aval(ShapedArray((symbol("T", 1), 2), dt.bfloat16, weak=True)) == "~bf16[T,2]"
    literal = Literal(np.asarray(2.5, dt.bfloat16), ShapedArray((), dt.bfloat16))
    assert str(Jaxpr((), (), (literal,))) == "{ lambda ; . let in (2.5:bf16[],) }"
