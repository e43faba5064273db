"""How hard the compiler tries: jit's search, timeout, background and memory."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.background import Worker, worker
from lumjax.config import config
from lumjax.cpu import arena
from lumjax.errors import ArgumentTypeError, ArgumentValueError, CompileError
from lumjax.stages import Native
from lumjax.timeline import Lifetime, Memory, Place, Timeline

_numbers = itertools.count(1)


def fresh():
    """A program that this process has not compiled yet."""
    number = next(_numbers) / 64
    return lambda x: jnp.sum((x * 1.0) @ x.T - x[:, :1] * number)


def program(x):
    return x + 1


@pytest.fixture
def folder(tmp_path):
    with config.scope(cache_dir=str(tmp_path)):
        yield tmp_path


def reports(f, *args):
    return [s.found.report for s in f.program(*args).executable().native()]


def plans(folder):
    return sorted(p.name for p in (folder / "plans").rglob("*.json"))


X = np.arange(12, dtype=np.float32).reshape(3, 4) / 8


# ---- keywords


def test_no_evaluations_mean_no_search(folder):
    program = fresh()
    f = lumjax.jit(program, search=0)
    g = lumjax.jit(program)
    np.testing.assert_allclose(f(X), g(X), rtol=1e-6)
    (plain,), (searched,) = reports(f, X), reports(g, X)
    assert plain.sizes == ()
    assert plain.rules == ()
    assert searched.sizes
    assert len(plans(folder)) == 2  # a budget has plans of its own


def test_settings_give_the_defaults(folder):
    program = fresh()
    f = lumjax.jit(program)
    with config.scope(search_evaluations=0):
        f(X)
        assert reports(f, X)[0].sizes == ()
    f(X)
    assert reports(f, X)[0].sizes
    assert f._cache_size() == 2


def test_keywords_win_over_settings(folder):
    program = fresh()
    f = lumjax.jit(program, search=2000)
    with config.scope(search_evaluations=0):
        f(X)
        assert reports(f, X)[0].sizes


def test_the_clock_marks_plans_and_keeps_them_apart(folder):
    program = fresh()
    f = lumjax.jit(program, timeout=0)
    f(X)
    (stage,) = f.program(X).executable().native()
    assert stage.found.plan.truncated
    assert "stopped by the clock" in str(lumjax.explain(f, X))
    (name,) = plans(folder)
    lumjax.jit(program, timeout=0.0)(X)
    assert plans(folder) == [name]
    lumjax.jit(program)(X)
    assert len(plans(folder)) == 2


def test_settings_reach_the_bodies_of_loops(folder):
    number = next(_numbers)

    def loop(x):
        return lax.while_loop(lambda c: jnp.sum(c) < 50, lambda c: c * 1.0 @ c + number, x)

    f = lumjax.jit(loop, search=0)
    assert np.all(np.isfinite(f(np.eye(3, dtype=np.float32))))
    searched = lumjax.jit(loop)
    assert len(plans(folder)) > 0
    before = plans(folder)
    searched(np.eye(3, dtype=np.float32))
    assert not set(plans(folder)) <= set(before)


@pytest.mark.parametrize("name", ["search", "timeout", "memory"])
def test_budgets_are_not_negative(name):
    with pytest.raises(ArgumentValueError, match=rf"jit: requires {name} to be"):
        lumjax.jit(program, **{name: -1})
    with pytest.raises(ArgumentTypeError, match=rf"jit: requires {name} to be"):
        lumjax.jit(program, **{name: "many"})


def test_flags_are_bools():
    with pytest.raises(ArgumentTypeError, match="background to be"):
        lumjax.jit(program, background=1)
    with pytest.raises(ArgumentTypeError, match="profile to be"):
        lumjax.jit(program, profile="yes")


def test_as_a_decorator_with_keywords():
    @lumjax.jit(search=0, timeout=1)
    def f(x):
        return x + 1

    assert float(f(1.0)) == 2
    assert f.settings == {"search_evaluations": 0, "search_seconds": 1}


# ---- the background


def test_background_runs_the_traced_program_and_searches_for_the_next_process(folder):
    number = next(_numbers) / 64
    program = lambda x: jnp.sum((x * 1.0) @ x.T - x[:, :1] * number)
    f = lumjax.jit(program, background=True)
    first = np.asarray(f(X))
    (report,) = reports(f, X)
    assert report.searching
    assert report.sizes == ()
    assert worker.wait(60)
    assert worker.failures == []
    assert np.asarray(f(X)).tobytes() == first.tobytes()
    assert reports(f, X) == [report]  # this process keeps its plan
    assert len(plans(folder)) == 2
    script = f"""
import numpy as np, lumjax, lumjax.numpy as jnp
X = np.arange(12, dtype=np.float32).reshape(3, 4) / 8
f = lumjax.jit(lambda x: jnp.sum((x * 1.0) @ x.T - x[:, :1] * {number}), background=True)
f(X)
(stage,) = f.program(X).executable().native()
print(stage.found.report.cached, stage.found.report.searching)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"LUMJAX_CACHE_DIR": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        cwd=str(Path(__file__).parent.parent),
    )
    assert done.stdout.split() == ["True", "False"]


def test_a_process_ends_cleanly_while_it_searches(tmp_path):
    script = """
import numpy as np, lumjax, lumjax.numpy as jnp
for k in range(3):
    f = lumjax.jit(lambda x: jnp.sum(jnp.exp(x) @ x.T - k, axis=0), background=True)
    print(f(np.ones((3, 4), np.float32)).shape)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"LUMJAX_CACHE_DIR": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        cwd=str(Path(__file__).parent.parent),
    )
    assert done.stdout.split("\n")[:3] == ["(3,)"] * 3
    assert done.stderr == ""


def test_nothing_is_searched_that_cannot_be_kept(folder):
    program = fresh()
    with config.scope(cache=False):
        f = lumjax.jit(program, background=True)
        f(X)
        assert not reports(f, X)[0].searching


def test_worker_does_tasks_in_order_and_survives_errors():
    own, done = Worker(), []
    own.submit(lambda: done.append(1))
    own.submit(lambda: done.append(1 / 0))
    own.submit(lambda: done.append(3))
    assert own.wait(10)
    assert done == [1, 3]
    assert [type(e) for e in own.failures] == [ZeroDivisionError]
    own.submit(lambda: time.sleep(0.2) or done.append(4))
    own.submit(lambda: done.append(5))
    time.sleep(0.05)
    own.close()
    assert done == [1, 3, 4]  # what was begun is finished, nothing else begun


# ---- memory


def test_timeline_counts_what_is_alive():
    line = Timeline(
        ("a", "b", "c"),
        (
            Lifetime("in", 100, 0, 2, Place.ARGUMENT),
            Lifetime("t", 8, 0, 1, Place.TEMPORARY, "f.py:1"),
            Lifetime("u", 4, 1, 1, Place.TEMPORARY, "f.py:2"),
            Lifetime("v", 2, 1, 2, Place.VALUE, "f.py:1"),
            Lifetime("out", 1, 2, 2, Place.RESULT),
        ),
        arena=64,
    )
    assert line.sizes() == [8, 14, 3]
    assert line.peak() == 14
    assert line.allocated() == 64 + 3
    assert line.totals() == Memory(100, 1, 66, 14)
    assert [x.name for x in line.live(1)] == ["in", "t", "u", "v"]
    assert line.by_line(1) == [("f.py:1", 10), ("f.py:2", 4)]


def test_timeline_of_a_program():
    def f(x):
        y = jnp.linalg.cholesky(x * 2)
        return jnp.sum(jnp.linalg.cholesky(y) * y)

    made = lumjax.jit(f).program(jnp.ones((1000, 1, 1))).executable()
    line = made.timeline()
    assert len(line.steps) == sum(
        len(s.kernels) if isinstance(s, Native) else 1 for s in made.stages
    )
    arguments = [x for x in line.lifetimes if x.place is Place.ARGUMENT]
    assert [x.size for x in arguments] == [4000]
    results = [x for x in line.lifetimes if x.place is Place.RESULT]
    assert [(x.size, x.last) for x in results] == [(4, len(line.steps) - 1)]
    assert 4000 <= line.peak() <= 4 * 4000 + 4
    lines = {x.line.split(":")[0] for x in line.lifetimes if x.place is Place.VALUE}
    assert lines == {"test_budget.py"}


def test_values_between_calls_are_let_go():
    """Ten factorisations in a row hold two arrays at a time, not ten."""

    def f(x):
        for _ in range(10):
            x = jnp.linalg.cholesky(x * 2)
        return jnp.sum(x)

    made = lumjax.jit(f).program(jnp.ones((100_000, 1, 1))).executable()
    assert made.timeline().allocated() <= 3 * 400_000


def test_a_budget_of_memory_is_kept_or_refused(folder):
    def f(x):
        return jnp.sort(x * 2) + 1

    x = jnp.ones(1000)
    np.testing.assert_array_equal(lumjax.jit(f, memory=1 << 20)(x), np.full(1000, 3))
    with pytest.raises(CompileError, match=r"at most 1,000 bytes.*memory="):
        lumjax.jit(f, memory=1000)(x)


def deep(ws, x):
    for w in ws:
        x = jnp.tanh(x @ w)
    return jnp.sum(x * x)


def deep_inputs(layers=10, rows=1024):
    rng = np.random.default_rng(0)
    ws = [(rng.standard_normal((32, 32)) / 8).astype(np.float32) for _ in range(layers)]
    return ws, rng.standard_normal((rows, 32)).astype(np.float32)


def test_values_are_computed_again_rather_than_kept(folder, monkeypatch):
    """The backward pass of a deep network, in three quarters of the memory."""
    ws, x = deep_inputs()
    gradient = lumjax.grad(deep)
    plain = lumjax.jit(gradient)
    want = plain(ws, x)
    full = plain.program(ws, x).executable().timeline().allocated()
    limit = int(full * 0.75)
    taken = []
    real_block, real_maker = arena.checkout, arena.maker

    def maker(shape, dtype):
        make = real_maker(shape, dtype)
        return lambda: taken.append(int(np.prod(shape)) * dtype.itemsize) or make()

    monkeypatch.setattr(arena, "checkout", lambda n: taken.append(n) or real_block(n))
    monkeypatch.setattr(arena, "maker", maker)
    tight = lumjax.jit(gradient, memory=limit)
    made = tight.program(ws, x).executable()
    assert made.timeline().allocated() <= limit
    assert len(made.jaxpr.eqns) > len(plain.program(ws, x).executable().jaxpr.eqns)
    assert "computed again rather than kept" in str(lumjax.explain(tight, ws, x))
    assert "computed again" not in str(lumjax.explain(plain, ws, x))
    taken.clear()
    for got, expected in zip(tight(ws, x), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    scratch = 1 << 20  # of the threads that run kernels: not the program's
    assert len(taken) > len(want)  # the results among them
    assert sum(t for t in taken if t < full) <= limit + scratch


def test_what_a_loop_through_eval_makes_is_not_computed_again(folder):
    def f(x):
        early = jnp.sort(x * 2)
        for _ in range(4):
            x = jnp.tanh(x @ x.T) @ x
        return jnp.sum(x * early)

    x = jnp.ones((64, 64)) / 64
    with pytest.raises(CompileError, match="bytes at the least"):
        lumjax.jit(f, memory=20_000)(x)
