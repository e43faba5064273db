"""Executables: expansion, segments, placement, eval between kernels, rejected kernels, explain."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, native
from lumjax.config import config
from lumjax.executable import Interpreted, executable_of
from lumjax.expansion import expand
from lumjax.kernel.verify import Verdict
from lumjax.placement import ALIGNMENT, Interval, assign, peak
from lumjax.stages import Nested
from lumjax.trace.stage import stage


def executable(f, *args):
    jitted = lumjax.jit(f)
    out = jitted(*args)
    return jitted.program(*args).executable(), out


def test_calls_are_inlined():
    inner = lumjax.jit(lambda x: jnp.sin(x) * 2)
    jaxpr, consts = expand(lumjax.jit(lambda x: inner(inner(x))).program(jnp.ones(3)).jaxpr)
    assert not consts
    assert [e.prim.name for e in jaxpr.eqns].count("sin") == 2
    assert "call" not in {e.prim.name for e in jaxpr.eqns}


def test_sources_survive_inlining():
    inner = lumjax.jit(lambda x: jnp.sin(x) * 2)
    jaxpr, _ = expand(lumjax.jit(lambda x: inner(x) + 1).program(jnp.ones(3)).jaxpr)
    assert {e.source.file for e in jaxpr.eqns} == {__file__}


def test_a_chain_is_one_kernel():
    made, _ = executable(lambda x: jnp.tanh(jnp.exp(-x) * 2 + x) / 3, jnp.ones((8, 8)))
    assert made.cost_analysis()["kernels"] == 1
    assert made.cost_analysis()["evaluated equations"] == 0


def test_eval_between_kernels():
    x = jnp.diag(jnp.array([8.0, 2.0, 18.0]))
    made, out = executable(lambda x: jnp.linalg.cholesky(jnp.linalg.cholesky(x * 2)) + 1, x)
    np.testing.assert_allclose(jnp.diag(out), [3, 1 + 2**0.5, 1 + 6**0.5], rtol=1e-6)
    assert {s.eqn.prim.name for s in made.evaluated()} == {"cholesky"}
    assert all(s.why for s in made.evaluated())


@pytest.mark.parametrize("draw", [
    lambda k: lumjax.random.split(k),
    lambda k: lumjax.random.fold_in(k, 3),
    lambda k: lumjax.random.bits(k, (5,)),
    lambda k: lumjax.random.uniform(k, (5,), minval=-2.0),
    lambda k: lumjax.random.normal(k, (3, 4)),
    lambda k: lumjax.random.bernoulli(k, 0.3, (5,)),
    lambda k: lumjax.random.randint(k, (5,), 0, 10),
    lambda k: lumjax.random.exponential(k, (5,)),
    lambda k: lumjax.random.categorical(k, jnp.arange(4.0)),
    lambda k: lumjax.random.truncated_normal(k, -1.0, 1.0, (5,)),
])  # fmt: skip
def test_random_numbers_are_drawn_by_kernels(draw):
    key = lumjax.random.PRNGKey(7)
    made, out = executable(draw, key)
    assert [s.why for s in made.evaluated()] == []
    np.testing.assert_allclose(out, np.asarray(draw(key)), rtol=3e-6)


@pytest.mark.parametrize("move", [
    lambda x: jnp.pad(jnp.concatenate([x, x * 2]), 2, mode="reflect"),
    lambda x: jnp.pad(jnp.concatenate([x, x * 2], 1), 3, mode="symmetric"),
    lambda x: jnp.pad(jnp.stack([x, -x]), 2, mode="wrap"),
    lambda x: jnp.pad(jnp.pad(x, 1), ((7, 1), (2, 9)), mode="reflect"),
    lambda x: jnp.pad(jnp.roll(x, 1, 0), 2, mode="edge"),
    lambda x: jnp.concatenate([x, x[:1], x])[jnp.array([6, -1, 0, 3])],
    lambda x: jnp.take(jnp.concatenate([x.ravel(), x.ravel()]), jnp.arange(30) * 7 % 24),
])  # fmt: skip
def test_what_is_gathered_from_pieces_is_gathered_by_kernels(move):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    made, out = executable(move, x)
    assert [s.why for s in made.evaluated()] == []
    with config.scope(interpret=True):
        np.testing.assert_array_equal(out, np.asarray(lumjax.jit(move)(x)))


def recurrence(xs):
    """A state of 4 by 6 that 64 rows change."""

    def step(c, x):
        c = jnp.tanh(c * 0.5 + x)
        return c, c[0]

    return lax.scan(step, jnp.zeros((4, 6)), xs)


@pytest.mark.parametrize(("loop", "shapes", "stored"), [
    (lambda x: recurrence(x.reshape(64, 4, 6)), [(64, 24)], 0),
    (lambda x: recurrence(x.reshape(64, 4, 6)), [(64 * 24,)], 0),
    (lambda x: recurrence(x.reshape(32, 2, 24).reshape(64, 4, 6)), [(32, 48)], 0),
    (lambda x: recurrence(x[:, None].reshape(64, 4, 6)), [(256, 6)], 0),
    (lambda x, w: recurrence((x @ w).reshape(64, 4, 6)), [(256, 5), (5, 6)], 1),
    (lambda x: (recurrence(x.reshape(64, 4, 6)), x.reshape(64, 4, 6) * 2), [(64, 24)], 0),
    (lambda x: (recurrence(x.reshape(64, 4, 6)), x.reshape(64, 24)), [(64 * 24,)], 0),
    (lambda x: lax.cond(x[0, 0] > 0, lambda y: recurrence(y)[0], lambda y: y[1] * 2,
                        x.reshape(64, 4, 6)), [(64, 24)], 0),
])  # fmt: skip
def test_what_a_loop_reads_in_another_shape_is_not_copied(loop, shapes, stored):
    args = [
        np.random.default_rng(k).normal(size=s).astype(np.float32) for k, s in enumerate(shapes)
    ]
    made, out = executable(loop, *args)
    assert [s.why for s in made.evaluated()] == []
    read = {v for s in made.stages if isinstance(s, Nested) for v in s.eqn.inputs}
    large = [v for s in made.native() for v in s.outputs if v in read and v.aval.size >= 64 * 24]
    assert len(large) == stored
    with config.scope(interpret=True):
        want = lumjax.jit(loop)(*args)
    lumjax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), out, want)


def test_outputs_own_their_memory():
    f = lumjax.jit(lambda x: x * 2)
    first = f(jnp.ones(100_000))
    kept = np.array(first)
    for _ in range(5):
        f(jnp.zeros(100_000))
    np.testing.assert_array_equal(first, kept)


def test_interpreted():
    f = lumjax.jit(lambda x: jnp.sin(x) + 1)
    with config.scope(interpret=True):
        x = jnp.ones(3)
        made = f.program(x).executable()
        assert isinstance(made, Interpreted)
        np.testing.assert_allclose(f(x), np.sin(np.ones(3)) + 1, rtol=1e-6)
    assert not isinstance(f.program(x).executable(), Interpreted)


def test_one_executable_per_jaxpr():
    jaxpr = stage(lambda x: [x + 1], [jnp.ones(2).aval]).jaxpr
    assert executable_of(jaxpr) is executable_of(jaxpr)


def test_checkpoint_lowers_the_planned_peak():
    def block(x):
        for _ in range(4):
            x = jnp.tanh(jnp.sin(x) @ jnp.ones((64, 64)))
        return x

    def loss(x, wrap):
        for _ in range(4):
            x = wrap(block)(x)
        return jnp.sum(x)

    x = jnp.ones((512, 64)) / 64
    plain, a = executable(lumjax.grad(lambda x: loss(x, lambda f: f)), x)
    saved, b = executable(lumjax.grad(lambda x: loss(x, lumjax.checkpoint)), x)
    np.testing.assert_allclose(a, b, rtol=1e-5)
    assert saved.arena_bytes < plain.arena_bytes


def test_kernels_of_one_wave_do_not_wait_for_each_other():
    def f(leaves, x):
        once = [jnp.tanh(leaf) * 2 for leaf in leaves]
        chain = x
        for _ in range(3):
            chain = jnp.tanh(chain @ x)
        return [leaf @ leaf.T for leaf in once], chain

    leaves = [jnp.arange(6.0 * k).reshape(k, 6) / 50 for k in range(1, 30)]
    x = jnp.arange(144.0).reshape(12, 12) / 144
    compiled = lumjax.jit(f).lower(leaves, x).compile()
    layout = compiled.executable._layout
    waves = [w for w in layout.waves() if w != [None]]
    for wave in waves:
        outputs, inputs = set(), set()
        for number, k in wave:
            stage = layout.stages[number]
            kernel = stage.kernels[k].compiled.kernel
            outputs |= {layout.buffer(number, stage, b.name) for b in kernel.outputs}
            inputs |= {layout.buffer(number, stage, b.name) for b in kernel.inputs}
        assert not outputs & inputs
    count = sum(map(len, waves))
    assert count >= len(leaves) + 3
    assert compiled.executable.launches < count
    with config.scope(interpret=True):
        want = lumjax.jit(f)(leaves, x)
    for a, b in zip(lumjax.tree.leaves(compiled(leaves, x)), lumjax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_a_rejected_kernel_is_replaced(monkeypatch, tmp_path):
    real = native.check_kernel
    calls = []

    def suspicious(kernel, group, run, *args, **kwargs):
        calls.append(kernel.name)
        verdict = real(kernel, group, run, *args, **kwargs)
        return Verdict(False, "invented") if len(calls) == 1 else verdict

    monkeypatch.setattr(native, "check_kernel", suspicious)
    with config.scope(cache_dir=str(tmp_path)):
        x = jnp.arange(24.0).reshape(4, 6)
        f = lambda x: jnp.sum(jnp.cos(x) * 0.123, axis=1)
        made, out = executable(f, x)
        np.testing.assert_allclose(out, f(x), rtol=1e-5)
        kernels = [k for s in made.native() for k in s.kernels]
        assert any("invented" in k.rejected for k in kernels)
        assert "REJECTED" in str(lumjax.explain(lambda x: f(x) + 0, x))


def test_what_no_kernel_can_do_is_evaluated(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "check_kernel", lambda *a, **k: Verdict(False, "never"))
    with config.scope(cache_dir=str(tmp_path)):
        x = jnp.arange(6.0)
        made, out = executable(lambda x: jnp.cos(x) * 0.321, x)
        np.testing.assert_allclose(out, np.cos(np.arange(6.0)) * 0.321, rtol=1e-6)
        assert not list(made.native())
        assert "never" in next(iter(made.evaluated())).why


def test_compiled_object():
    compiled = lumjax.jit(lambda x: x + 1).lower(jnp.ones(3)).compile()
    np.testing.assert_array_equal(compiled(jnp.zeros(3)), [1, 1, 1])
    assert "define" in compiled.as_text()
    assert compiled.cost_analysis()["kernels"] == 1
    assert "add" in lumjax.jit(lambda x: x + 1).lower(jnp.ones(3)).as_text()


def test_effects_run_in_order(capfd):
    @lumjax.jit
    def f(x):
        lumjax.debug.print("first {}", x[0], ordered=True)
        y = jnp.sin(x) * 2
        lumjax.debug.print("second {}", y[0] * 0, ordered=True)
        return y

    f(jnp.ones(2))
    printed = capfd.readouterr().out
    assert printed.index("first 1.0") < printed.index("second 0.0")


# ---- explain


def test_explain_says_what_happened():
    def f(x, w):
        y = jnp.tanh(x @ w)
        return jnp.linalg.eigvalsh(y)

    text = str(lumjax.explain(f, jnp.ones((4, 3)), jnp.ones((3, 4))))
    for part in (
        "explain f on cpu", "dot_general", "regions:", "kernel ", "jobs", "by eval: 1",
        "eval: eigh", "y = jnp.tanh(x @ w)", "predicted", "memory between kernels", "rules fired",
    ):  # fmt: skip
        assert part in text or (part == "rules fired" and "plan from the cache" in text), part


def test_explain_takes_shapes():
    shape = lumjax.ShapeDtypeStruct((2, 2), np.float32)
    assert "kernels: 1" in str(lumjax.explain(lumjax.jit(lambda x: x + 1), shape))


# ---- placement


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 9), st.integers(0, 9)), max_size=14))
def test_placed_buffers_do_not_overlap(rows):
    intervals = [Interval(size, min(a, b), max(a, b)) for size, a, b in rows]
    offsets, total = assign(intervals)
    for k, (i, at) in enumerate(zip(intervals, offsets, strict=True)):
        assert at % ALIGNMENT == 0
        assert at + i.size <= total
        for j, other in zip(intervals[:k], offsets, strict=False):
            alive = i.first <= j.last and j.first <= i.last
            if alive and i.size and j.size:
                assert at + i.size <= other or other + j.size <= at
    assert total >= peak(intervals)


def packs(intervals: list[Interval], total: int) -> bool:
    """Whether some placement needs no more than `total`: every offset is tried."""

    def place(k: int, taken: list[tuple[Interval, int]]) -> bool:
        if k == len(intervals):
            return True
        mine = intervals[k]
        for at in range(0, total - mine.size + 1, ALIGNMENT):
            apart = all(
                mine.first > i.last or i.first > mine.last
                or at + mine.size <= b or b + i.size <= at
                for i, b in taken
            )  # fmt: skip
            if apart and place(k + 1, [*taken, (mine, at)]):
                return True
        return False

    return place(0, [])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(0, 4)), max_size=6))
def test_few_buffers_are_placed_best(rows):
    intervals = [Interval(n * ALIGNMENT, min(a, b), max(a, b)) for n, a, b in rows]
    _, total = assign(intervals)
    assert total == 0 or not packs(intervals, total - ALIGNMENT)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_loops_run_compiled_bodies(n):
    f = lumjax.jit(lambda x: lax.fori_loop(0, n, lambda i, v: jnp.sin(v) + i, x))
    want = np.float32(0.5)
    for i in range(n):
        want = np.sin(want) + np.float32(i)
    np.testing.assert_allclose(f(jnp.float32(0.5)), want, rtol=1e-5)
