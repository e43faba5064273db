"""If, Loop, Scan and sequences: eager, under jit, and their gradients."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import lumjax
import lumjax.numpy as jnp
import lumjax.onnx
from lumjax.errors import ConcretizationError
from tests.onnx.mutations import model

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def loaded(text, **options):
    return lumjax.onnx.load(onnx.parser.parse_model(f"{HEAD} {text}"), **options)


def floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("b", [True, False])
def test_if_eager_and_decided_when_the_program_runs(b):
    fn, params = lumjax.onnx.load(model("branch"))
    x = floats(0.5, 2.0)
    want = np.exp(x) if b else -x
    f = lumjax.jit(fn)
    assert np.allclose(fn(params, x, np.array(b)), want)
    assert np.allclose(f(params, x, np.array(b)), want)
    text = str(lumjax.make_jaxpr(fn)(params, x, np.array(b)))
    assert "cond" in text
    slope = lumjax.jit(lumjax.grad(lambda x: jnp.sum(f(params, x, np.array(b)))))(x)
    assert np.allclose(slope, np.exp(x) if b else -1)


def test_if_that_is_known_leaves_one_branch():
    fn, params = lumjax.onnx.load(model("branch"))
    text = str(lumjax.make_jaxpr(lambda x: fn(params, x, np.array(True)))(floats(1.0)))
    assert "exp" in text
    assert "cond" not in text
    assert "neg" not in text


@pytest.mark.parametrize("count", [0, 1, 3, 20])
def test_loop_with_a_known_count(count):
    fn, params = lumjax.onnx.load(model("loop"))
    x = floats(1.0, -2.0)
    f = lumjax.jit(lambda x: fn(params, x, np.array(count)))
    for y, rows in (fn(params, x, np.array(count)), f(x)):
        assert np.allclose(y, x * 2.0**count)
        assert np.shape(rows)[0] == count
        assert not count or np.allclose(rows, [x * 2.0**k for k in range(count)])


def test_a_long_loop_is_one_scan():
    fn, params = lumjax.onnx.load(model("loop"))
    text = str(lumjax.make_jaxpr(lambda x: fn(params, x, np.array(1000)))(floats(1.0)))
    assert text.count("scan") == 1
    assert text.count("mul") < 4


def test_the_gradient_of_a_loop():
    fn, params = lumjax.onnx.load(model("loop"))
    slope = lumjax.grad(lambda x: jnp.sum(fn(params, x, np.array(10))[0]))
    assert np.allclose(slope(floats(1.0, 2.0)), 1024)


WHILE = """net (float x) => (float y, int64 n) <bool go = {1}, int64 zero = {0}, int64 one = {1}>
  { y, n = Loop <body: graph = body (int64 i, bool c, float v, int64 k)
    => (bool g, float u, int64 l)
    { two = Constant <value: tensor = float {2}> () u = Mul (v, two) l = Add (k, one)
      top = Constant <value: tensor = float {100}> () g = Less (u, top) }> (, go, x, zero) }"""


@pytest.mark.parametrize("x", [1.0, 60.0])
def test_loop_with_a_condition(x):
    fn, params = loaded(WHILE)
    want, count = x, 0
    while count == 0 or want < 100:
        want, count = want * 2, count + 1
    for f in (fn, lumjax.jit(fn)):
        y, n = f(params, np.float32(x))
        assert (float(y), int(n)) == (want, count)


def test_loop_whose_value_grows():
    fn, params = loaded(
        """net (float[n] x, int64 count) => (float[m] y) <bool go = {1}>
        { y = Loop <body: graph = body (int64 i, bool c, float[k] v) => (bool g, float[l] u)
          { g = Identity (c) u = Concat <axis: int = 0> (v, x) }> (count, go, x) }"""
    )
    x = floats(1.0, 2.0)
    f = lumjax.jit(lambda x: fn(params, x, np.array(9)))
    assert np.array_equal(fn(params, x, np.array(9)), np.tile(x, 10))
    assert np.array_equal(f(x), np.tile(x, 10))


def test_a_count_that_only_the_program_knows():
    fn, params = loaded(
        """net (float x, int64 count) => (float y) <bool go = {1}>
        { y = Loop <body: graph = body (int64 i, bool c, float v) => (bool g, float u)
          { g = Identity (c) u = Add (v, v) }> (count, go, x) }"""
    )
    f = lumjax.jit(fn)
    assert [float(f(params, np.float32(1), np.array(k))) for k in (0, 1, 7)] == [1, 2, 128]


def test_stacked_results_of_a_count_that_only_the_program_knows():
    fn, params = lumjax.onnx.load(model("loop"))
    with pytest.raises(ConcretizationError, match=r"Loop .*trip count"):
        lumjax.jit(fn)(params, floats(1.0), np.array(3))


def test_a_loop_without_an_end_is_stopped():
    fn, params = loaded(
        """net (float x) => (float y) <bool go = {1}>
        { y = Loop <body: graph = body (int64 i, bool c, float v) => (bool g, float u)
          { g = Identity (c) u = Neg (v) }> (, go, x) }""",
        max_trips=50,
    )
    with pytest.raises(lumjax.onnx.OnnxError, match="at most 50 iterations"):
        fn(params, np.float32(1))


def test_loops_inside_loops_are_counted_together():
    fn, params = loaded(
        """net (float x) => (float y) <int64 many = {40}, bool go = {1}>
        { y = Loop <body: graph = body (int64 i, bool c, float v) => (bool g, float u)
          { g = Identity (c)
            u = Loop <body: graph = inner (int64 j, bool d, float w) => (bool h, float z)
              { h = Identity (d) z = Neg (w) }> (many, go, v) }> (many, go, x) }""",
        max_trips=1000,
    )
    with pytest.raises(lumjax.onnx.OnnxError, match="at most 1000 iterations"):
        fn(params, np.float32(1))


SCAN = """net (float[2] s, float[n, 2] x) => (float[2] t, float[m, 2] y)
  { t, y = Scan <num_scan_inputs: int = 1, scan_input_directions: ints = [DIRECTION],
      body: graph = body (float[2] a, float[2] b) => (float[2] c, float[2] d)
      { c = Add (a, b) d = Identity (c) }> (s, x) }"""


@pytest.mark.parametrize("backward", [0, 1])
def test_scan(backward):
    fn, params = loaded(SCAN.replace("DIRECTION", str(backward)))
    s, x = floats(1.0, 2.0), np.arange(6, dtype=np.float32).reshape(3, 2)
    sums = s + np.cumsum(x[::-1] if backward else x, 0)
    for f in (fn, lumjax.jit(fn)):
        t, y = f(params, s, x)
        assert np.allclose(t, sums[-1])
        assert np.allclose(y, sums)
    slope = lumjax.grad(lambda x: jnp.sum(fn(params, s, x)[1]))(x)
    want = np.array([3, 2, 1])[:: -1 if backward else 1, None] * np.ones((3, 2))
    assert np.allclose(slope, want)


def test_names_of_outer_graphs_are_seen_inside():
    fn, params = loaded(
        """net (float[n] x, bool b) => (float[n] y) <float[1] w = {3}>
        { h = Mul (x, w)
          y = If <then_branch: graph = a () => (float[n] p)
                  { p = If <then_branch: graph = i () => (float[n] s) { s = Add (h, w) },
                            else_branch: graph = j () => (float[n] t) { t = Identity (x) }> (b) },
                  else_branch: graph = e () => (float[n] q) { q = Neg (h) }> (b) }"""
    )
    assert np.allclose(fn(params, floats(1.0), np.array(True)), 6)
    assert np.allclose(fn(params, floats(1.0), np.array(False)), -3)


def test_sequences_and_optionals():
    fn, params = loaded(
        """net (float[n] x, float[n] y) => (float[n] a, int64 k, bool h, float[m] c)
        <int64 one = {1}>
        { s = SequenceConstruct (x, y) t = SequenceInsert (s, x, one) a = SequenceAt (t, one)
          k = SequenceLength (t) o = Optional (t) h = OptionalHasElement (o)
          c = ConcatFromSequence <axis: int = 0> (t) }"""
    )
    x, y = floats(1.0, 2.0), floats(3.0, 4.0)
    for f in (fn, lumjax.jit(fn)):
        a, k, h, c = f(params, x, y)
        assert np.array_equal(a, x)
        assert int(k) == 3
        assert bool(h)
        assert np.array_equal(c, [1, 2, 1, 2, 3, 4])


def test_the_case_that_the_suite_cannot_compare():
    """An optional sequence through a loop, with a scalar in front (test_loop16_seq_none)."""
    fn, params = loaded(
        """net (int64 count, bool go, optional(seq(float)) start) => (seq(float[m]) y)
        { y = Loop <body: graph = body (int64 i, bool c, optional(seq(float)) o)
          => (bool g, seq(float) r) { g = Identity (c) h = OptionalHasElement (o) n = Not (h)
            s = If <then_branch: graph = t () => (seq(float) a)
                     { z = Constant <value: tensor = float {0}> () a = SequenceConstruct (z) },
                    else_branch: graph = e () => (seq(float) b) { b = OptionalGetElement (o) }> (n)
            x = Constant <value: tensor = float[5] {1, 2, 3, 4, 5}> ()
            zero = Constant <value: tensor = int64[1] {0}> ()
            one = Constant <value: tensor = int64[1] {1}> () e2 = Add (i, one)
            p = Slice (x, zero, e2) r = SequenceInsert (s, p) }> (count, go, start) }"""
    )
    for start in (None, [np.float32(0)]):
        found = fn(params, np.array(3), np.array(True), start)
        assert [np.asarray(f).tolist() for f in found] == [0.0, [1.0], [1.0, 2.0], [1.0, 2.0, 3.0]]
