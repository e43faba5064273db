"""Loops and choices within the native call: against the same programs run step by step."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.control import scanning
from lumjax.testing import check_program
from lumjax.testing.programs import RandomChooser, build

rng = np.random.default_rng(3)
X = jnp.asarray(rng.normal(size=(40, 8)).astype(np.float32))
W = jnp.asarray((rng.normal(size=(8, 8)) * 0.3).astype(np.float32))


def both(f, *args):
    """The compiled results, all of it native, checked against those of eager steps."""
    jitted = lumjax.jit(f)
    made = jitted.program(*args).executable()
    assert [(s.eqn.prim.name, s.why) for s in made.evaluated()] == []
    got, again = jitted(*args), jitted(*args)
    with lumjax.disable_jit():
        want = f(*args)
    got, again, want = map(lumjax.tree.leaves, (got, again, want))
    assert len(got) == len(want)
    for a, b, c in zip(got, again, want, strict=True):
        assert (a.dtype, a.shape, a.weak_type) == (c.dtype, c.shape, c.weak_type)
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(c), rtol=1e-5, atol=1e-6)
    return made


def cell(c, x):
    c = jnp.tanh(c @ W + x)
    return c, c[0]


@pytest.mark.parametrize("length", [1, 2, 3, 40])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan(length, reverse):
    def f(x):
        return lax.scan(cell, jnp.ones(8), x[:length], reverse=reverse)

    if length == 40:
        both(f, X)
    else:  # short ones are written out unless the body is long
        both(lambda x: lax.scan(lambda c, y: chain(cell(c, y)), jnp.ones(8), x[:length]), X)


def chain(pair):
    c, y = pair
    for k in range(40):
        c = jnp.sin(c + k)
    return c, y


def test_no_steps():
    def f(x):
        return lax.while_loop(lambda c: c[0] > 9, lambda c: (c[0] + 1, jnp.sin(c[1])), (3, x))

    both(f, X)
    both(lambda x, n: lax.fori_loop(0, n, lambda i, c: c * 2 + i, x), X, jnp.int32(0))


def test_carries_that_swap_stay_and_repeat():
    def step(c, x):
        a, b, kept, _ = c
        return (b, a + x.sum(), kept, a), (a, x, kept, 1.5, b, b)

    start = (X[0, 0], X[0, 1], X[1], X[2, 0])
    both(lambda x: lax.scan(step, start, x), X)


def test_results_that_are_operands_or_constants_or_equal():
    def f(x):
        y = x * 2
        return lax.cond(x[0, 0] > 0, lambda v: (v, v, 3.0, x), lambda v: (y, y, 4.0, v), y)

    both(f, X)
    both(f, -X)


@pytest.mark.parametrize("index", [-5, 0, 1, 2, 7])
def test_a_switch(index):
    branches = [jnp.sin, lambda v: v * 2, lambda v: v @ W]
    both(lambda x, i: lax.switch(i, branches, x), X, jnp.int32(index))


def test_loops_in_loops_and_choices_in_loops():
    def step(c, x):
        c = lax.fori_loop(0, 50, lambda i, v: jnp.sin(v + i * x[0]), c)
        c = lax.cond(c.sum() > 0, lambda v: v * 0.5, lambda v: v + 1, c)
        c = lax.while_loop(lambda v: v.max() > 1, lambda v: v * 0.7, c)
        return c, c[1]

    both(lambda x: lax.scan(step, jnp.ones(8), x), X)


def test_gradients():
    def loss(w, x):
        def step(c, row):
            c = jnp.tanh(c @ w + row)
            return c, c.sum()

        return lax.scan(step, jnp.ones(8), x)[1].sum()

    both(lumjax.grad(loss), W, X)
    both(lumjax.vmap(lumjax.grad(loss), (None, 0)), W, jnp.stack([X, X * 2]))


def test_lanes_that_stop_at_different_times():
    def f(x):
        return lax.while_loop(lambda v: v[0] < 50, lambda v: (v[0] * 1.3 + 1, v[1] + 1), (x, 0))

    both(lumjax.vmap(f), jnp.asarray([1.0, 40.0, 60.0]))


def test_random_numbers_in_a_loop():
    def step(key, _):
        key, new = lumjax.random.split(key)
        return key, lumjax.random.normal(new, (3,))

    both(lambda k: lax.scan(step, k, None, length=20), lumjax.random.PRNGKey(0))


def test_what_runs_through_eval_keeps_its_loop_in_python():
    step = lambda c, r: (jnp.linalg.eigvalsh(jnp.diag(c)) + r, c[0])
    made = lumjax.jit(lambda x: lax.scan(step, x[0], x))
    (alone,) = made.program(X).executable().evaluated()
    assert alone.eqn.prim.name == "scan"
    assert "eigh" in alone.why
    out, _ = made(X)
    want = np.asarray(X[0])
    for row in np.asarray(X):
        want = np.sort(want) + row
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


def test_steps_share_memory():
    """What a loop needs does not grow with its steps, and is planned with everything else."""

    def arena(n):
        made = both(lambda x: lax.fori_loop(0, n, lambda i, c: jnp.sin(c) @ W + i, x), X)
        line = made.timeline()
        assert line.peak() <= line.allocated()
        assert made.peak_bytes <= made.arena_bytes
        return made.arena_bytes

    assert arena(100) == arena(200) > 0


def test_threads_may_run_one_loop_at_once():
    f = lumjax.jit(lambda x: lax.fori_loop(0, 200, lambda i, c: jnp.sin(c) @ W + i * 1e-3, x))
    want = np.asarray(f(X))
    results = []

    def run():
        results.extend([np.asarray(f(X)) for _ in range(5)])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 20
    for out in results:
        np.testing.assert_array_equal(out, want)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.integers(0, 10**6))
def test_random_programs_of_loops_and_choices(seed):
    """Values and derivatives of programs whose short loops are not written out."""
    words = ["scan", "cond", "mul", "tanh", "select", "less", "sum", "transpose"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_SHORT", 0)
        check_program(build(RandomChooser(seed), 6, words))


class Stop(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs a timer's signal")
def test_a_signal_ends_a_loop_that_does_not_end():
    def handler(*_):
        raise Stop

    def endless(x):
        return lax.while_loop(lambda c: c[0] >= 0, lambda c: (c[0] * 0, c[1]), (x, 1))

    f = lumjax.jit(endless)
    f.lower(jnp.float32(1)).compile()
    before = signal.signal(signal.SIGALRM, handler)
    started = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Stop):
            f(jnp.float32(1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started < 60, "it was the signal, not patience"
    np.testing.assert_allclose(lumjax.jit(lambda x: x + 1)(X), np.asarray(X) + 1)


def test_reports_tell_what_runs_inside():
    def f(x):
        return lax.scan(cell, jnp.ones(8), x)

    report = lumjax.explain(f, X)
    (loop,) = report.insight.loops
    assert loop.says == "40 steps"
    assert report.insight.alone == []
    inside = [r for r in report.insight.regions if r.number in loop.parts[0][1]]
    assert inside
    assert all(r.times == 40 for r in inside)
    for text in (str(report), report.html()):
        assert "scan within the native call: 40 steps" in text
