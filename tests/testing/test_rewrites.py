"""Rules tried alone: every rule of a program is found and used, a wrong one is named."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax.numpy as jnp
from lumjax import native, nn
from lumjax.config import config
from lumjax.egraph.rules import Kind, Rule
from lumjax.egraph.rules.registry import load_rules
from lumjax.errors import ArgumentValueError
from lumjax.kernel.verify import Verdict
from lumjax.testing import check_jit, check_rewrites

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)


def rule(name, left, right, guard=""):
    return Rule(name, "algebra", Kind.REASSOCIATING, left, right, None, guard)


WRONG = rule("wrong", "(mul d x y)", "(add d x y)")
RIGHT = rule("right", "(mul d x y)", "(mul d y x)")


def test_every_rule_of_a_program_is_tried():
    tried = check_rewrites(lambda x: jnp.sum((x - 0.0) * 2.0, axis=1), (X,))
    assert len(tried) > 1
    assert all(n > 0 for n in tried.values())
    assert set(tried) <= {r.name for r in load_rules(False)}


@pytest.mark.parametrize(
    "f",
    [
        lambda x: nn.softmax(x),
        lambda x: jnp.exp(x) @ x.T,
        lambda x: jnp.log(jnp.sum(jnp.exp(x - jnp.max(x)))) + jnp.max(x),
        lambda x: (jnp.where(x > 0, x, -x), jnp.argmax(x, axis=1), x.astype(int) * 1),
    ],
    ids=["rows", "contraction", "statistic", "outputs"],
)
def test_rules_hold_on_programs(f):
    check_jit(f, (X,), rewrites="each")
    check_jit(f, (X,), rewrites="all")


def test_rules_that_need_facts_have_them():
    """A sum may follow a running maximum: what follows what is concluded by rules of its own."""
    f = lambda x: jnp.sum(jnp.exp(x - jnp.max(x, axis=1, keepdims=True)), axis=1)
    scaled = {r.name for r in load_rules(False) if r.right.startswith("(scaled")}
    assert scaled & set(check_rewrites(f, (X,)))


def test_a_wrong_rule_is_named():
    with pytest.raises(AssertionError, match=r"rule 'wrong' alone.*differs at.*eager.*float64"):
        check_jit(lambda x: jnp.sum(x * (x + 1)), (X,), rewrites=(RIGHT, WRONG))


def test_a_right_rule_is_not_blamed():
    f = lambda x: jnp.sum(x * (x + 1))
    check_jit(f, (X,), rewrites=(RIGHT,))
    assert check_rewrites(f, (X,), (RIGHT,)) == {"right": 1}


def test_a_wrong_rule_is_found_where_it_would_not_pay():
    """It makes the program dearer, so that no search would take it."""
    dear = rule("dear", "(add d x y)", "(mul d (exp d x) (exp d y))")
    with pytest.raises(AssertionError, match="rule 'dear'"):
        check_rewrites(lambda x: x + x[0], (X,), (dear,))


def test_every_result_of_a_rule_is_used():
    """One of two results on the same value hides the other: both are tried."""
    two = rule("two", "(add* d x y)", "(neg d (sub d (neg d x) y))")
    assert check_rewrites(lambda x: x + x[0], (X,), (two,)) == {"two": 2}


def test_a_rule_that_changes_only_integers_is_judged_exactly():
    off = rule("off", "(mul d x y)", "(add d x y)", "(integer d)")
    with pytest.raises(AssertionError, match=r"rule 'off'.*got"):
        check_rewrites(lambda n: n * 3, (np.arange(6, dtype=np.int32),), (off,))


def test_a_rule_that_loses_an_infinity_is_named():
    """Equal where everything is finite."""
    x = np.array([1.0, np.inf, 2.0], np.float32)
    lost = rule("lost", "(sub d x y)", "z", "(= z (zero_of d)) (= x y)")
    check_rewrites(lambda x: x - x, (np.ones(3, np.float32),), (lost,))
    with pytest.raises(AssertionError, match="rule 'lost'"):
        check_rewrites(lambda x: jnp.subtract(x, x), (jnp.asarray(x),), (lost,))


def test_rejected_kernels_are_counted(monkeypatch, tmp_path):
    real = native.check_kernel
    calls = []

    def suspicious(kernel, group, run, *args, **kwargs):
        calls.append(kernel.name)
        verdict = real(kernel, group, run, *args, **kwargs)
        return Verdict(False, "invented") if len(calls) % 2 else verdict

    monkeypatch.setattr(native, "check_kernel", suspicious)
    with (
        config.scope(cache_dir=str(tmp_path)),
        pytest.raises(AssertionError, match=r"1 kernels rejected by verification.*invented"),
    ):
        check_rewrites(lambda x: jnp.cos(x - 0.0) * 0.371, (X,))


def test_other_words_are_refused():
    with pytest.raises(ArgumentValueError, match="'each', 'all'"):
        check_jit(lambda x: x, (X,), rewrites="some")
