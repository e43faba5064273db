"""Programs that the search chose are the traced ones, on special values too."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax.numpy as jnp
from lumjax import judge, nn
from lumjax.config import config
from lumjax.egraph.rules import Kind, Rule
from lumjax.egraph.rules.registry import load_rules
from lumjax.testing import check_plans, check_program, derivatives
from lumjax.testing.programs import RandomChooser, build
from lumjax.testing.sweep import main

COUNT, SEED = 24, 3
X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def no_cache():
    with config.scope(cache=False):
        yield


def test_seeded_programs():
    """What the search makes of random programs and of their derivatives."""
    judged = []
    for index in range(COUNT):
        program = build(RandomChooser(SEED * 1_000_003 + index))
        forward = not program.reversible()
        f, args = derivatives(program.fn, program.args, forward=forward, values=True)
        judged.append(check_plans(f, args, seed=index))
    assert sum(j.regions for j in judged) > COUNT
    assert sum(j.exact for j in judged) > COUNT // 4
    assert sum(j.near for j in judged) > COUNT


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(40))
def test_ten_thousand_programs(chunk):
    assert main(["--plans", "--count", "250", "--first", str(250 * chunk), "--seed", "1"]) == 0


@pytest.mark.parametrize(
    "f",
    [
        lambda x: nn.softmax(x),
        lambda x: jnp.log(jnp.sum(jnp.exp(x - jnp.max(x)))) + jnp.max(x),
        lambda x: jnp.sum(jnp.exp(x @ x.T) @ x, axis=1),
        lambda x: (x - jnp.mean(x, 1, keepdims=True)) / jnp.std(x, 1, keepdims=True),
    ],
    ids=["rows", "statistic", "contractions", "moments"],
)
def test_streams(f):
    for seed in range(8):  # every kind of special value
        check_plans(f, (np.tile(X, (5, 5)),), seed=seed)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * jnp.tanh(jnp.full((), 0.3, x.dtype)) * 1.7,
        lambda x: jnp.cos(jnp.exp(jnp.tanh(x)).astype("float32").astype(x.dtype).astype("float32")),
        lambda x: jnp.prod(jnp.tanh(jnp.pad(x, ((0, 2), (0, 0)), constant_values=0.5)), 0),
    ],
    ids=["folded", "cast twice", "product"],
)
def test_half_floats_round_where_they_like(f, dtype):
    """What is folded is rounded; in a kernel it need not be."""
    for seed in range(4):
        check_plans(f, (jnp.asarray(X, dtype),), seed=seed)


def with_rule(monkeypatch, kind, left, right, guard=""):
    rules = (*load_rules(False), Rule("planted", "algebra", kind, left, right, None, guard))
    monkeypatch.setattr(judge, "load_rules", lambda fast_math: rules)


def test_a_wrong_rule_is_found(monkeypatch):
    with_rule(monkeypatch, Kind.REASSOCIATING, "(exp d x)", "x")
    with pytest.raises(AssertionError, match="region"):
        check_plans(lambda x: jnp.sum(jnp.exp(x), axis=1), (X,))


def test_exact_rules_are_held_to_every_bit(monkeypatch):
    """Near is not enough for them: sums in another order."""
    left, right = "(mul d (mul d x y) z)", "(mul d x (mul d y z))"
    f = lambda x: x * x[0] * 0.3 + 1.0
    with_rule(monkeypatch, Kind.REASSOCIATING, left, right)
    check_plans(f, (X,))
    with_rule(monkeypatch, Kind.EXACT, left, right)
    with pytest.raises(AssertionError, match="by exact rules"):
        check_plans(f, (X,))


def test_a_rule_that_loses_an_infinity_is_found(monkeypatch):
    """Equal where everything is finite."""
    with_rule(monkeypatch, Kind.REASSOCIATING, "(sub d x x)", "z", "(= z (zero_of d))")

    def every_special_value():
        for seed in range(8):
            check_plans(lambda x: jnp.exp(jnp.subtract(x, x)) + x[0], (X,), seed=seed)

    with pytest.raises(AssertionError, match="region"):
        every_special_value()


def test_programs_say_what_fails(monkeypatch):
    with_rule(monkeypatch, Kind.REASSOCIATING, "(exp d x)", "x")
    only = build(RandomChooser(0), 3, ["exp"])
    assert only.nodes
    with pytest.raises(AssertionError, match="region"):
        check_program(only, plans=True)
