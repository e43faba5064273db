"""Measuring kernels: how two are compared, what is tried, what is kept."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import native, profile, stages
from lumjax.config import config
from lumjax.cpu.objects import host_target
from lumjax.egraph.plan import Budget
from lumjax.egraph.search import budget_of_config, search, stored
from lumjax.kernel.ir import Loop, Tile
from lumjax.kernel.region import Region
from lumjax.kernel.schedule import DEFAULT, IN_PLACE, PANELS, Schedule, variants
from lumjax.kernel.verify import Verdict
from lumjax.profile import Runner, profiled, race
from lumjax.target import Backend, Target


class Clock:
    """Seconds by what is run, and by how often it was run before; `foreign` is time that others
    had.
    """

    def __init__(self, *rows, foreign=lambda k: 0.0):
        self.rows, self.foreign = dict(rows), foreign
        self.count: dict = {}
        self.order: list = []

    def __call__(self, run, times):
        k = self.count.get(run, 0)
        self.count[run] = k + 1
        self.order.append(run)
        own = self.rows[run](k) * times
        return own * (1 + self.foreign(k)), own


def a(): ...
def b(): ...


def steady(seconds):
    return lambda k: seconds


# ---- two programs


def test_they_run_in_turn():
    clock = Clock((a, steady(1.0)), (b, steady(1.0)))
    race(a, b, clock=clock)
    assert clock.order[:6] == [a, b, a, b, a, b]
    assert clock.count[a] == clock.count[b]


@pytest.mark.parametrize(
    ("ratio", "won"), [(0.9, True), (0.969, True), (0.98, False), (1.1, False)]
)
def test_a_challenger_needs_three_per_cent(ratio, won):
    result = race(a, b, clock=Clock((a, steady(1e-3)), (b, steady(1e-3 * ratio))))
    assert result.won is won
    assert result.first == pytest.approx(1e-3)
    assert result.second == pytest.approx(1e-3 * ratio)


@pytest.mark.parametrize("lucky", [range(1, 11), range(11, 30)])
def test_it_must_win_in_both_halves(lucky):
    clock = Clock((a, steady(1e-3)), (b, lambda k: 5e-4 if k in lucky else 1e-3))
    assert not race(a, b, pairs=20, clock=clock).won


def test_outliers_do_not_count():
    clock = Clock((a, lambda k: 5e-3 if k % 3 else 1e-3), (b, lambda k: 9e-4 if k % 2 else 8e-3))
    assert race(a, b, clock=clock).won


def test_disturbed_runs_are_dropped():
    foreign = lambda k: 0.5 if k % 2 else 0.01
    slow = lambda k: 1e-5 if k % 2 else 1e-3  # it looks fast where it was disturbed
    result = race(a, b, pairs=20, clock=Clock((a, steady(1e-3)), (b, slow), foreign=foreign))
    assert result.kept == 10
    assert not result.won
    nothing = race(a, b, clock=Clock((a, steady(1e-3)), (b, steady(1e-4)), foreign=lambda k: 1.0))
    assert (nothing.kept, nothing.won) == (0, False)


def test_short_runs_are_repeated_and_long_ones_run_less_often():
    seen = []

    def clock(run, times):
        seen.append(times)
        return 1e-6 * times, 1e-6 * times

    race(a, b, clock=clock)
    assert seen[:2] == [1, 1]
    assert set(seen[2:]) == {300}
    clock = Clock((a, steady(10.0)), (b, steady(10.0)))
    race(a, b, clock=clock)
    assert clock.count[a] == 1 + 2 * profile.FEWEST


# ---- programs that can be run


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.scope(cache_dir=str(tmp_path)):
        yield tmp_path


def region_of(f, *args):
    made = lumjax.jit(f, search=0).program(*args).executable()
    (stage,) = made.native()
    return stage.region


def test_a_runner_computes_on_rotating_buffers(monkeypatch):
    monkeypatch.setattr(profile, "SETS", 3)
    region = region_of(lambda x, n: jnp.sum(x * 2, axis=1) + n, jnp.ones((8, 4)), jnp.arange(8))
    target = host_target()
    found = search(region, target)
    runner = Runner(native.all_checked(found.kernels, found.plan.groups, target), target)
    assert len(runner._tables) == 3
    for _ in range(3):
        runner()
    arrays = runner._kept
    each = len(arrays) // 3
    for k in range(3):
        own = {len(x.shape): x for x in arrays[k * each : (k + 1) * each] if x.dtype == np.float32}
        numbers = next(x for x in arrays[k * each : (k + 1) * each] if x.dtype == np.int32)
        np.testing.assert_allclose(own[1], np.sum(own[2] * 2, axis=1) + numbers, rtol=1e-5)


# ---- what is tried


@pytest.mark.parametrize("registers", [16, 32])
def test_register_tiles_fit(registers):
    target = Target(Backend.CPU, "x", "", 32, registers, 2)
    tiles = [c for changes in variants(("CONTRACT", "FOLD"), target) for c in changes]
    shapes = [c for c in tiles if "rows" in c]
    assert shapes
    for c in shapes:
        assert c["rows"] * c["vectors"] + c["vectors"] + 1 <= registers
    assert list(variants(("MAP", "ROW"), target)) == []


def test_a_schedule_in_words():
    assert str(DEFAULT) == ""
    assert str(Schedule(rows=4, vectors=3)) == "4 rows of a register tile, 3 vectors across"
    assert str(Schedule(right=PANELS)) == "right side in panels"
    assert str(Schedule(height=8, width=64, right=IN_PLACE)) == (
        "8 rows of a block, 64 columns of a stream tile, right side in place"
    )


def tile_of(stmts):
    for s in stmts:
        if isinstance(s, Tile):
            return s
        if isinstance(s, Loop) and (found := tile_of(s.body)):
            return found
    return None


def tile(runner):
    """The register tile of the last contraction that a runner runs."""
    phases = [p for k in runner.kernels for p in k.compiled.kernel.phases]
    return next(t for p in reversed(phases) if (t := tile_of(p.body)))


X = np.ones((96, 80), np.float32)


def test_every_variant_is_verified_and_the_fastest_kept():
    """By a clock on which only the register tile counts."""
    target = host_target()
    changes = next(iter(variants(("CONTRACT",), target)))
    wanted, lanes = changes[-1], target.lanes(4)

    def clock(run, times):
        shape = tile(run).rows, tile(run).cols
        own = 1e-3 * (1.0 if shape == (wanted["rows"], wanted["vectors"] * lanes) else 2.0) * times
        return own, own

    region = region_of(lambda x: jnp.tanh(x @ x.T) * 0.5, X)
    found = search(region, target)
    best, kernels = profiled(found, target, Budget(seconds=60.0), clock)
    assert not any(k.rejected for k in kernels)
    (schedule,) = best.plan.schedules
    assert (schedule.rows, schedule.vectors) == (wanted["rows"], wanted["vectors"])
    (measured,) = best.report.measured
    assert measured.chosen < measured.default
    assert measured.tried >= len(changes) - 1  # one of which is what was there
    assert measured.refused == 0
    assert "rows of a register tile" in measured.schedule


def test_the_default_stays_where_nothing_is_faster():
    target = host_target()
    found = search(region_of(lambda x: jnp.tanh(x @ x.T) * 0.75, X), target)
    best, _ = profiled(found, target, Budget(seconds=60.0), lambda run, n: (n * 1e-3, n * 1e-3))
    assert best.plan.schedules == (DEFAULT,)
    assert best.kernels == found.kernels


def test_what_verification_refuses_is_no_choice(monkeypatch):
    target = host_target()
    found = search(region_of(lambda x: jnp.tanh(x @ x.T) * 0.625, X), target)
    real = native.check_kernel
    default = found.kernels[0]

    def strict(kernel, group, run, *args, **kwargs):
        if kernel.programs and kernel is not default:
            return Verdict(False, "invented")
        return real(kernel, group, run, *args, **kwargs)

    monkeypatch.setattr(native, "check_kernel", strict)
    fast = lambda run, n: (n * 1e-3, n * 1e-3)
    best, kernels = profiled(found, target, Budget(seconds=60.0), fast)
    assert best.plan.schedules == (DEFAULT,)
    assert not any(k.rejected for k in kernels)
    (measured,) = best.report.measured
    assert measured.tried == 0
    assert measured.refused > 0


def test_no_time_means_no_trials():
    target = host_target()
    found = search(region_of(lambda x: jnp.tanh(x @ x.T) * 0.375, X), target)
    best, _ = profiled(found, target, Budget(seconds=0.0))
    assert best.plan.schedules == (DEFAULT,)
    assert best.report.measured == ()


# ---- through jit


def test_choices_are_kept_with_the_plan(monkeypatch):
    """A schedule that was measured is what the next process runs, without measuring again."""
    wanted = Schedule(height=24)
    calls = []

    def chosen(found, target, budget):
        calls.append(budget.profile)
        best, _ = profiled(found, target, Budget(seconds=0.0))
        plan = stages.replace(best.plan, schedules=(wanted,))
        kernels = profile.kernels_of(plan, profile.lower_for(target))[0]
        best = stages.replace(best, plan=plan, kernels=kernels)
        return best, native.all_checked(kernels, plan.groups, target)

    monkeypatch.setattr(stages, "profiled", chosen)
    f = lumjax.jit(lambda x: jnp.tanh(x @ x.T) * 0.875, profile=True)
    np.testing.assert_allclose(f(X), np.tanh(X @ X.T) * 0.875, rtol=1e-5)
    (stage,) = f.program(X).executable().native()
    assert isinstance(stage.region, Region)
    with config.scope(search_profile=True):
        again = stored(stage.region, host_target(), budget_of_config())
    assert again is not None
    assert again.plan.schedules == (wanted,)
    assert again.kernels == stage.found.kernels
    assert stored(stage.region, host_target(), budget_of_config()) is None
    assert calls == [True]


def test_profile_through_jit_gives_the_right_answer():
    f = lumjax.jit(lambda x: jnp.tanh(x @ x.T) * 1.125, profile=True, timeout=30)
    np.testing.assert_allclose(f(X), np.tanh(X @ X.T) * 1.125, rtol=1e-5)
    (stage,) = f.program(X).executable().native()
    assert stage.found.plan.schedules is not None
    text = str(lumjax.explain(f, X))
    assert "kernels measured" in text
    assert "measured o0" in text
    assert "measured at first" in lumjax.explain(f, X).html()
