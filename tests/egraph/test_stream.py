"""Sums that follow a running statistic: what is found, and that it is right and safe."""

import re
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import dtype as dt
from lumjax.egraph.axes import axis_symbol
from lumjax.egraph.cost import machine
from lumjax.egraph.encode import encode
from lumjax.egraph.extract import Extraction
from lumjax.egraph.rules import stream
from lumjax.egraph.rules.registry import RULES, load, load_rules
from lumjax.egraph.rules.witness import I, J, K, lit, op, reduction, total
from lumjax.egraph.rules.witness import load as leaf
from lumjax.egraph.scalar import OPS, Operations
from lumjax.egraph.terms import Graph, Operation, Reducing, warm_graph
from lumjax.kernel.evaluate import evaluate_term
from lumjax.kernel.rewrite import rebuild, rewrite
from lumjax.kernel.term import Buffer, Load, Reduction, Running, children, subterms
from lumjax.target import Backend, Target
from lumjax.trace.form import ReduceOp
from tests.egraph import models
from tests.egraph import programs as pr

pytestmark = pytest.mark.sampled(3)

TARGET = Target(Backend.CPU, "generic", "", 32, 16, 2)
MAX, SUM = ReduceOp.MAX, ReduceOp.SUM
x, y, row, cube = leaf("x", I, J), leaf("y", I, J), leaf("r", I), leaf("v", J, K)


class Plain:
    """The operations of no region."""

    by_name = OPS
    names = {o: n for n, o in OPS.items()}


class Found:
    """What the rules make of a region."""

    def __init__(self, encoded, operations, fast_math=False):
        self.encoded, self.operations = encoded, operations
        self.terms = tuple(r.term for r in encoded.roots)
        with warm_graph(load_rules(fast_math)).session(operations) as session:
            session.insert(self.terms)
            self.done = session.saturate(8, 20_000, time.thread_time() + 60)
            self.classes = session.read()
        axes = {a.name: a for r in encoded.roots for a in r.axes}
        bound = {a.name: a for t in self.terms for s in subterms(t) for a in _bound(s)}
        self.axes = {**axes, **bound}
        self.programs = self.extraction().programs(24)

    def extraction(self, roots=None):
        classes = self.classes if roots is None else replace(self.classes, roots=tuple(roots))
        return Extraction(classes, self.axes, self.operations, machine(TARGET))


def _bound(term):
    return term.axes if isinstance(term, Reduction) else ()


@lru_cache(maxsize=4)
def found(name):
    function, avals = models.ALL[name]
    region = models.region_of(function, avals)
    operations = Operations(region)
    return Found(encode(region, operations), operations)


def scaled(terms):
    """The sums of a program that follow a statistic."""
    every = dict.fromkeys(s for t in terms for s in subterms(t))
    return [s for s in every if isinstance(s, Reduction) and s.scale is not None]


def waiting(terms):
    """The reductions that need another one over their axes to be complete."""
    every = dict.fromkeys(s for t in terms for s in subterms(t))
    return [
        s
        for s in every
        if isinstance(s, Reduction) and s.scale is None and _reduced(s.body) & s.axes
    ]


def _reduced(term):
    axes, stack = set(), [term]
    while stack:
        t = stack.pop()
        axes |= set(_bound(t))
        if not isinstance(t, Running):
            stack += children(t)
    return axes


def follows_a_maximum(sum_):
    maxima = [s for s in subterms(sum_.scale.statistic) if isinstance(s, Reduction) and s.op is MAX]
    return any(m.axes == sum_.axes for m in maxima)


# ---- what is found


@pytest.mark.parametrize("name", models.ONCE)
def test_no_reduction_waits(name):
    """Some program needs every row once: all of its sums follow the maximum of the row."""
    this = found(name)
    assert this.done.saturated
    assert waiting(this.terms)
    best = min(this.programs, key=lambda p: len(waiting(p)))
    assert not waiting(best)
    assert scaled(best)
    assert all(map(follows_a_maximum, scaled(best)))
    fired = {n for n, k in this.done.fired.items() if k}
    assert {"statistic-max", "affine-subtracted", "scales-exp", "sum-follows"} <= fired


USES = {
    "all-logsumexp": "sum-nested",
    "spread": "sum-shifted",
    "one-hot-logs": "sum-shifted",
    "dropped": "sum-where-factor",
    "half": "sum-cast-factor",
    "by-logarithm": "shared-shift",
    "by-logarithms": "exp-log",
    "sinking": "statistic-floor",
    "library": "statistic-finite",
    "squared": "scales-product",
    "naive-grad": "sum-swap",
    "causal-grad": "scales-ties",
}


@pytest.mark.parametrize("name", USES)
def test_rules_that_a_program_needs(name):
    assert found(name).done.fired[USES[name]]


@pytest.mark.parametrize("name", models.BOTH)
def test_some_sums_follow_with_gradients(name):
    this = found(name)
    assert this.done.saturated
    best = max(this.programs, key=lambda p: len(scaled(p)))
    assert scaled(best)
    assert all(map(follows_a_maximum, scaled(best)))
    assert {"statistic-max", "sum-follows"} <= {n for n, k in this.done.fired.items() if k}


@pytest.mark.parametrize("name", ["naive-grad", "library-grad", "causal-grad", "layout-grad"])
def test_row_sums_of_products_are_taken_from_the_output(name):
    """Sum_j P * (Sum_e dO * V) becomes Sum_e dO * O: nothing waits but the last contraction.

    (Where the maximum is differentiated, the places that have it are counted as it rises.)
    """
    this = found(name)
    assert this.done.fired["sum-swap"]
    best = min(this.programs, key=lambda p: len(waiting(p)))
    assert len(waiting(best)) == 1
    assert len(waiting(this.terms)) >= 4
    assert len(scaled(best)) >= 2


@pytest.mark.parametrize("name", models.OTHERS)
def test_nothing_follows_where_there_is_no_maximum(name):
    this = found(name)
    assert this.done.saturated
    assert not any(scaled(p) for p in this.programs)


@pytest.mark.parametrize("name", models.ALL)
def test_e_graphs_stay_small(name):
    this = found(name)
    size = len(dict.fromkeys(s for t in this.terms for s in subterms(t)))
    assert this.done.nodes < 4 * size + 30
    assert set(this.done.seconds) >= {"facts", "algebra", "stream"}
    assert all(s >= 0 for s in this.done.seconds.values())


# ---- that it is right


def inputs_of(name, scale, seed=0):
    """Inputs by buffer; the first row of a mask has no place at all."""
    rng = np.random.default_rng(seed)
    values = []
    for k, a in enumerate(models.ALL[name][1]):
        if a.dtype == np.bool_:
            v = rng.random(a.shape) < 0.7
            v[0] = False
        elif a.dtype.kind == "i":
            v = rng.integers(0, models.V, a.shape).astype(a.dtype)
        else:
            v = rng.standard_normal(a.shape) * (scale if k == 0 else 1.0)
        values.append(v.astype(a.dtype))
    return values


def values_of(this, terms, values, wide):
    buffers = {b.name: v for b, v in zip(this.encoded.inputs, values, strict=True)}
    roots = [replace(r, term=t) for r, t in zip(this.encoded.roots, terms, strict=True)]
    names = [r.buffer.name for r in this.encoded.outputs]
    with np.errstate(all="ignore"):
        return pr.evaluate_roots(roots, buffers, names, wide)


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("name", models.ALL)
def test_programs_have_the_traced_values(name, scale):
    this = found(name)
    values = inputs_of(name, scale)
    exact = values_of(this, this.terms, values, True)
    traced = values_of(this, this.terms, values, False)
    for program in this.programs[:4]:
        wide = values_of(this, program, values, True)
        narrow = values_of(this, program, values, False)
        for e, w, t, n in zip(exact, wide, traced, narrow, strict=True):
            finite = np.isfinite(e)
            np.testing.assert_array_equal(np.isfinite(w), finite)
            np.testing.assert_array_equal(np.isfinite(n), np.isfinite(t))
            size = np.max(np.abs(e), initial=scale, where=finite)
            # literals are rounded to float32: exp(x) may be exp2(x * log2 e)
            np.testing.assert_allclose(w[finite], e[finite], rtol=1e-6, atol=1e-6 * size)
            off = np.abs(np.where(finite, n.astype(np.float64) - e, 0))
            known = np.abs(np.where(finite, t.astype(np.float64) - e, 0))
            eps = float(dt.finfo(t.dtype).eps)
            assert off.max(initial=0) <= 8 * known.max(initial=0) + 64 * eps * size


def under(term, buffer, axes):
    """The term with a buffer's value for what is running, and no scale."""
    shape = tuple(a.extent for a in axes)
    now = Load(Buffer(buffer, shape, term.dtype), tuple(axis_symbol(a) for a in axes))

    def leaf_(t, kids):
        if isinstance(t, Running):
            return now
        if isinstance(t, Reduction):
            return Reduction(t.op, t.axes, kids[0], t.dtype)
        return rebuild(t, kids, {})

    return rewrite(term, leaf_, {})


@pytest.mark.parametrize("name", [*models.ONCE, "library-grad", "labelled-grad"])
def test_partial_sums_follow_the_statistic(name):
    """b(s') = b(s) exp2(factor (s' - s)) at any two values of the statistic."""
    this = found(name)
    inputs = inputs_of(name, 1.0)
    buffers = {b.name: v for b, v in zip(this.encoded.inputs, inputs, strict=True)}
    pr.evaluate_roots(this.encoded.roots, buffers, ())
    rng = np.random.default_rng(0)
    sums = dict.fromkeys(s for p in this.programs for s in scaled(p))
    assert sums
    for s in sums:
        axes = [this.axes[n] for n in sorted(s._free)]
        rows = [this.axes[n] for n in sorted(s.scale.statistic._free)]
        shape = tuple(a.extent for a in rows)
        low = rng.uniform(-1, 0, shape)
        high = low + rng.uniform(0, 2, shape)
        at, then = under(s, "now", rows), under(s, "then", rows)
        given = {**buffers, "now": high, "then": low}
        change = op(
            "mul", s.scale.factor, op("sub", at_leaf(rows, "now", s), at_leaf(rows, "then", s))
        )
        names = [*axes]
        left = evaluate_term(at, names, given, wide=True)
        right = evaluate_term(then, names, given, wide=True)
        moved = evaluate_term(op("exp2", change), names, given, wide=True)
        np.testing.assert_allclose(left, right * moved, rtol=1e-5, atol=1e-9)
        factor = evaluate_term(s.scale.factor, names, given, wide=True)
        assert (factor <= 0).all()


def at_leaf(axes, buffer, sum_):
    shape = tuple(a.extent for a in axes)
    dtype = sum_.scale.factor.dtype
    return Load(Buffer(buffer, shape, dtype), tuple(axis_symbol(a) for a in axes))


# ---- that it is safe


@pytest.mark.parametrize(
    "name", ["naive", "library", "by-logarithm", "library-grad", "labelled-grad"]
)
def test_no_exponential_of_an_unshifted_score(name):
    """Every member of every class takes exponentials of numbers that are not positive only."""
    this = found(name)
    values = inputs_of(name, 1e3)
    buffers = {b.name: v for b, v in zip(this.encoded.inputs, values, strict=True)}
    seen = 0
    for nodes in this.classes.nodes:
        for node in nodes:
            if isinstance(node.shape, Operation) and node.shape.name in ("exp", "exp2"):
                (term,) = this.extraction(node.args).terms()
                axes = [this.axes[n] for n in sorted(term._free)]
                with np.errstate(all="ignore"):
                    value = evaluate_term(term, axes, buffers)
                assert value.max() <= 1e-3
                seen += 1
    assert seen >= 2


def test_scales_of_unknown_sign_stay():
    """exp((x - m) * t) grows with the maximum where t is negative."""
    top = reduction(MAX, (J,), x)
    body = op("exp", op("mul", op("sub", x, top), row))
    assert not follow(total((J,), body))
    positive = op("exp", op("mul", op("sub", x, top), op("exp", row)))
    assert follow(total((J,), positive))
    assert not follow(total((J,), op("exp", op("sub", top, x))))


def test_a_sum_over_rows_of_scaled_values_stays():
    """Sum_i exp(x_ij - m_i): the statistic varies along the summed axis."""
    top = reduction(MAX, (J,), x)
    e = op("exp", op("sub", x, top))
    assert not follow(total((I,), e))
    assert follow(total((J,), total((K,), op("mul", e, cube))))
    other = op("exp2", op("sub", op("add", x, leaf("q", I, J, K)), leaf("m", I, K)))
    assert not follow(total((J,), other))


def follow(term, rules=None):
    """Whether the sum gets a member that follows a statistic."""
    with (Graph(rules) if rules else warm_graph(load())).session(Plain) as session:
        session.insert([term])
        session.saturate(8, 5000, time.thread_time() + 60)
        classes = session.read()
    shapes = [n.shape for n in classes.nodes[classes.roots[0]]]
    return any(isinstance(s, Reducing) and s.scaled for s in shapes)


# ---- every conclusion is needed

TOP = reduction(MAX, (J,), x)
E2, E1 = op("exp2", op("sub", x, TOP)), op("exp", op("sub", x, TOP))
FINITE = op("select", op("is_finite", TOP, dtype=dt.bool_), TOP, lit(0.0))
MASK = leaf("p", I, J, dtype=dt.bool_)
EXAMPLES = {
    "statistic-max": E2,
    "statistic-floor": op("exp2", op("sub", x, op("max", row, TOP))),
    "statistic-finite": op("exp2", op("sub", x, FINITE)),
    "affine-shift/add": op("exp2", op("add", op("neg", TOP), x)),
    "affine-shift/sub": op("exp2", op("sub", op("neg", TOP), x)),
    "affine-subtracted": E2,
    "affine-times/mul": op("exp2", op("mul", op("sub", x, TOP), lit(3.0))),
    "affine-times/div": op("exp2", op("div", op("sub", x, TOP), lit(3.0))),
    "affine-through/neg": op("exp2", op("neg", op("sub", TOP, x))),
    "affine-through/cast": op(
        "exp2", op("cast", op("sub", x, TOP), dtype=dt.float32), dtype=dt.float32
    ),
    "scales-exp2": E2,
    "scales-exp": E1,
    "scales-times/mul": op("mul", y, E2),
    "scales-times/div": op("div", E2, y),
    "scales-product": op("mul", E2, E1),
    "scales-sum/add": op("add", E2, op("mul", E2, y)),
    "scales-sum/sub": op("sub", E2, op("mul", E2, y)),
    "scales-through/neg": op("mul", op("neg", E2), y),
    "scales-through/cast": op("cast", op("mul", E2, y), dtype=dt.float32),
    "scales-inner": op("add", total((K,), op("mul", E2, cube)), E2),
    "scales-where": op("mul", op("select", MASK, E2, lit(0.0)), y),
    "scales-ties": op("cast", op("eq", TOP, x, dtype=dt.bool_), dtype=dt.float64),
}


def instance_names():
    return [i.name for r in stream.RULES if r.concludes for i in r.instances()]


def test_there_is_an_example_of_every_conclusion():
    assert set(instance_names()) == set(EXAMPLES)


@pytest.mark.parametrize("name", instance_names())
def test_conclusions_are_needed(name):
    """The example's sum follows its maximum, and without the rule it does not."""
    rules = [i for r in (*core(), *stream.RULES) for i in r.instances()]
    example = total((J,), EXAMPLES[name])
    assert follow(example, rules)
    assert not follow(example, [r for r in rules if r.name != name])


def core():
    """What the examples need besides."""
    return [r for r in RULES if r.name in ("commute", "mul-minus-one")]


def test_streaming_rules_are_called_by_what_they_do():
    """No rule, and nothing else in the compile half, knows the programs it serves."""
    words = re.compile(r"attention|softmax|cross.?entropy|\bnorm\b|layer.?norm")
    folder = Path(lumjax.__file__).parent
    for part in ("egraph", "kernel"):
        for path in sorted((folder / part).rglob("*.py")):
            text = path.read_text().lower()
            assert not words.search(text), path.name


# ---- what fast_math=False keeps

SPECIALS = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.0, 3e38, 1e-40], np.float32)
KEPT = {
    "log-exp": lambda v: jnp.log(jnp.exp(v)),
    "sqrt-square": lambda v: jnp.sqrt(v * v),
    "times-zero": lambda v: v * 0.0,
    "less-itself": lambda v: v - v,
    "over-itself": lambda v: v / v,
}


@pytest.mark.parametrize("name", KEPT)
def test_values_and_gradients_are_kept(name):
    f = KEPT[name]
    given = jnp.array(SPECIALS)
    want, got = np.asarray(f(given)), np.asarray(lumjax.jit(f)(given))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    slope = lumjax.grad(lambda v: jnp.sum(f(v)))
    want, got = np.asarray(slope(given)), np.asarray(lumjax.jit(slope)(given))
    np.testing.assert_allclose(got, want, rtol=1e-6)
