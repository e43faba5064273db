"""Masks that decide tiles: conditions by interval analysis, what is proved idle or checked."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lumjax.kernel.roles import Roles, fold_roles
from lumjax.kernel.skip import boundable, condition, decide, spans
from lumjax.kernel.term import Apply
from lumjax.trace import dim as dims
from lumjax.trace.form import ScalarOp
from tests.kernel import streams
from tests.kernel.build import axis, index, lit, load, op, sym
from tests.kernel.test_fold import Compiled, evaluate_group

BOOL = np.dtype(bool)
I, J, D, E = axis("i", 70), axis("j", 90), axis("d", 8), axis("e", 8)  # noqa: E741


def roles_of(roots):
    roles = fold_roles(roots)
    assert isinstance(roles, Roles)
    return roles


def decided(mask, **options):
    return decide(roles_of(streams.weighted(I, J, D, E, mask=mask, **options)))


def tiles(decision, many, long, height, width):
    """How many tiles there are, are idle, and are clear."""
    total = idle = clear = 0
    for first in range(0, many, height):
        for begin in range(0, long, width):
            ranges = {
                "i": (first, min(first + height, many) - 1),
                "j": (begin, min(begin + width, long) - 1),
            }
            total += 1
            idle += bool(decision.idle(ranges))
            clear += bool(decision.clear(ranges))
    return total, idle, clear


def test_causal_rows_cost_little_more_than_half():
    decision = decided(streams.causal(I, J))
    total, idle, clear = tiles(decision, 8192, 8192, 66, 128)
    assert total - idle <= 0.6 * total
    assert clear >= 0.45 * total


def test_a_window_leaves_a_band():
    decision = decided(streams.window(I, J, 50))
    total, idle, clear = tiles(decision, 1024, 1024, 16, 16)
    assert total - idle <= 6 * 1024 / 16
    assert 0 < clear < total - idle


@pytest.mark.parametrize("seed", range(20))
def test_conditions_hold_where_they_say(seed):
    rng = np.random.default_rng(seed)
    a, b, c = (int(k) for k in rng.integers(-3, 4, 3))
    expr = sym(I) * a + sym(J) * b + c
    choices = [
        dims.less_equal(0, expr),
        dims.equal(expr, 1),
        dims.logical_not(dims.equal(expr, 1)),
        dims.logical_and(dims.less(expr, 9), dims.less(-9, expr)),
        dims.logical_or(dims.less(9, expr), dims.less(expr, -9)),
    ]
    for truth in choices:
        first, begin = (int(k) for k in rng.integers(0, 40, 2))
        ranges = {"i": (first, first + 5), "j": (begin, begin + 7)}
        always, never = spans(truth, ranges)
        values = [
            dims.evaluate(truth, {"i": i, "j": j})
            for i in range(first, first + 6)
            for j in range(begin, begin + 8)
        ]
        assert not always or all(values)
        assert not never or not any(values)


def test_truths_over_indices():
    i, j = index(sym(I)), index(sym(J))
    shifted = op("add", i, lit(3, np.int32))
    mask = op("lt", j, shifted, dtype=BOOL)
    assert condition(mask) is dims.less(sym(J), sym(I) + 3)
    flipped = Apply(ScalarOp("not", 1, np.invert), (mask,), BOOL)
    assert condition(flipped) is dims.logical_not(dims.less(sym(J), sym(I) + 3))
    picked = op("select", mask, lit(True, bool), lit(False, bool), dtype=BOOL)
    assert condition(picked) is dims.less(sym(J), sym(I) + 3)
    data = op("lt", load("x", J), lit(0.0), dtype=BOOL)
    assert condition(data) is None


def test_what_must_be_checked():
    decision = decided(streams.causal(I, J))
    assert [t.buffer.name for t in decision.finite] == ["v"]
    assert not decision.low
    low = decided(streams.causal(I, J), fill=-1e30)
    assert len(low.low) == 1
    added = decided(streams.causal(I, J), fill=None)
    assert {t.buffer.name for t in added.finite} == {"q", "k", "v"}
    assert boundable(added.low[0][1], frozenset({J}))


def test_gradients_check_what_zeros_are_multiplied_with():
    roots = streams.backward_columns(I, J, D, E, mask=streams.causal(I, J))
    decision = decide(roles_of(roots))
    names = {t.buffer.name for t in decision.finite}
    assert names == {"lse", "do", "v", "delta", "q"}


def test_no_decision():
    assert decided(None) is None
    pad = op("lt", load("pad", J), lit(0.5), dtype=BOOL)
    assert decided(pad) is None
    keep = streams.causal(I, J)
    s = op("select", keep, streams.scores(I, J, D), lit(3.0))
    assert decide(roles_of([streams.root("y", (I,), streams.logsumexp(s, J))])) is not None
    total = streams.reduce(streams.SUM, J, op("select", keep, streams.scores(I, J, D), lit(3.0)))
    assert decide(roles_of([streams.root("y", (I,), total)])) is None


def test_low_weights_alone_are_checked_too():
    """Where no operand is at stake, each row's statistic still is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lumjax.kernel.fold_shape.WIDTH", 16)
        s = streams.masked(streams.scores(I, J, D), streams.causal(I, J), -40.0)
        program = Compiled([streams.root("y", (I,), streams.logsumexp(s, J))])
    sizes = program.at(None)
    data = program.data(sizes)
    data["q"][...] = np.abs(data["q"]) * 1e3
    data["k"][...] = -np.abs(data["k"])
    program.compare(sizes, data)


@pytest.mark.parametrize("fill", [-math.inf, -1e30, -40.0])
def test_rows_that_see_nothing(fill):
    """Whole blocks of rows are masked; a guarded statistic of nothing is 0, not what is masked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lumjax.kernel.fold_shape.WIDTH", 16)
        patch.setattr("lumjax.kernel.fold_shape.HEIGHT", 12)
        short = axis("j", 40)
        mask = streams.window(I, short, 9)
        program = Compiled(streams.weighted(I, short, D, E, mask=mask, fill=fill, guard=True))
    sizes = program.at(None)
    program.compare(sizes, program.data(sizes))


@pytest.fixture(scope="module")
def compiled():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lumjax.kernel.fold_shape.WIDTH", 16)
        patch.setattr("lumjax.kernel.fold_shape.HEIGHT", 12)
        mask = streams.causal(I, J)
        return {
            fill: Compiled(streams.weighted(I, J, D, E, mask=mask, fill=fill))
            for fill in (-math.inf, -1e30, -40.0, None)
        }


@pytest.mark.parametrize("fill", [-math.inf, -1e30, -40.0, None])
@pytest.mark.parametrize("special", [None, math.nan, math.inf])
def test_values_that_are_masked_away(compiled, fill, special):
    """A value under a zero weight counts if it is not finite, as in the traced program."""
    program = compiled[fill]
    sizes = program.at(None)
    for name in ("v", "k", "q"):
        data = program.data(sizes)
        if special is not None:
            data[name].reshape(-1)[-1] = special
        program.compare(sizes, data, 5e-5)


@pytest.mark.parametrize("fill", [-1e30, -40.0, None])
def test_scores_near_the_masked_value(compiled, fill):
    """Where masked weights are not zero, nothing is skipped."""
    program = compiled[fill]
    sizes = program.at(None)
    for scale in (1e3, 1e4):
        data = program.data(sizes)
        data["q"][...] = np.abs(data["q"]) * np.float32(scale)
        data["k"][...] = -np.abs(data["k"])
        roots = evaluate_group(program.prepared.group, data, sizes)
        assert np.isfinite(roots["o"]).all()
        program.compare(sizes, data, 0.02)
