"""What reaches the search as one region, for programs as users write them."""

import sys

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import nn
from lumjax.cpu.math import supported
from lumjax.egraph.encode import encode
from lumjax.kernel.region import Alone, Region, cut, volume
from lumjax.trace.core import Jaxpr, Var
from lumjax.trace.form import Contract, Move
from tests.egraph import programs as pr
from tests.kernel import models as md
from tests.kernel.models import aval, i32

T, D = 256, 64
HEADS = aval(2, 4, T, D)


def cut_of(f, *args):
    return cut(md.jaxpr_of(f, *args), native=supported)


def regions(steps):
    return [s for s in steps if isinstance(s, Region)]


def crossing(steps):
    """Elements of the largest value that one step makes for another, or for the program."""
    made = [v for s in steps for v in (s.outputs if isinstance(s, Region) else s.eqn.outputs)]
    return max(volume(v.aval.shape) for v in made)


def stored(region):
    """Elements of the largest value that encoding stores within the region."""
    return max((volume(r.buffer.shape) for r in encode(region).stored), default=0)


def nothing_large(steps, limit):
    assert not [s for s in steps if isinstance(s, Alone)]
    assert crossing(steps) < limit
    assert all(stored(r) < limit for r in regions(steps))


SCORES = {
    "plain": lambda s, i, j: s,
    "causal": lambda s, i, j: jnp.where(i >= j, s, -jnp.inf),
    "finite": lambda s, i, j: jnp.where(i >= j, s, -1e30),
    "additive": lambda s, i, j: s + jnp.where(i >= j, 0.0, -1e9),
    "window": lambda s, i, j: jnp.where((i >= j) & (i - j < 32), s, -jnp.inf),
    "slope": lambda s, i, j: s - 0.1 * jnp.abs(i - j),
    "cap": lambda s, i, j: 30.0 * jnp.tanh(s / 30.0),
}


def with_scores(score):
    def f(q, k, v):
        s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8
        i, j = jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])[None, :]
        return jnp.einsum("bhqk,bhkd->bhqd", nn.softmax(score(s, i, j), -1), v)

    return f


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_rescaled_rows_are_one_region(score):
    steps = cut_of(with_scores(score), HEADS, HEADS, HEADS)
    assert len(steps) == 1
    nothing_large(steps, 8 * T * T)


@pytest.mark.parametrize("t", [128, 512, 4096])
def test_rows_of_every_length_are_one_region(t):
    q = aval(1, 2, t, D)
    assert len(cut_of(md.attention, q, q, q)) == 1


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_their_cotangents_store_no_rows(score):
    f = with_scores(score)
    steps = cut_of(lambda q, k, v, ct: lumjax.vjp(f, q, k, v)[1](ct), HEADS, HEADS, HEADS, HEADS)
    assert len(steps) == 1
    nothing_large(steps, 8 * T * T)


def test_a_cotangent_that_waits_for_the_result_recomputes_the_rows():
    """The loss lies between forward and backward: they are two regions, and nothing goes back."""

    def loss(q, k, v):
        return (md.attention(q, k, v) ** 2).sum()

    steps = cut_of(lumjax.value_and_grad(loss, argnums=(0, 1, 2)), HEADS, HEADS, HEADS)
    nothing_large(steps, 8 * T * T)
    forward, backward = (r for r in regions(steps) if any(isinstance(f, Contract) for f in r.forms))
    contractions = [sum(isinstance(f, Contract) for f in r.forms) for r in (forward, backward)]
    assert contractions == [2, 5]  # the scores are computed in both


def test_wanted_weights_are_stored():
    def f(q, k, v):
        p = nn.softmax(q @ jnp.swapaxes(k, -1, -2), -1)
        return p @ v, p

    steps = cut_of(f, HEADS, HEADS, HEADS)
    assert crossing(steps) == 8 * T * T
    assert not any(r.inside for r in regions(steps))


@pytest.mark.parametrize("t", [8, 32, 64])
def test_short_rows_are_stored_where_jobs_would_share_operands(t):
    """Else one job holds all of them."""

    def rows(q, k, v):
        return nn.softmax(jnp.einsum("hqd,kd->hqk", q, k), -1) @ v

    q, k = aval(2, 4, t, D), aval(t, D)
    assert len(cut_of(md.attention, q, q, q)) == 1
    assert len(cut_of(rows, aval(4, t, D), k, k)) == 2


@pytest.mark.parametrize("n", [256, 1024])
def test_many_classes_leave_no_logits(n):
    classes = 50_000

    def f(h, w, labels):
        return md.cross_entropy(h @ w, labels)

    args = aval(n, 256), aval(256, classes), aval(n, dtype=i32)
    for g in (f, lumjax.value_and_grad(f, argnums=(0, 1))):
        steps = cut_of(g, *args)
        assert len(steps) == 1
        assert crossing(steps) <= 256 * classes
        assert stored(steps[0]) < n * classes


def test_layers_below_the_classes_join_nothing():
    def f(x, w, u, labels):
        return md.cross_entropy(nn.gelu(x @ w) @ u, labels)

    args = aval(512, 128), aval(128, 128), aval(128, 8192), aval(512, dtype=i32)
    steps = cut_of(lumjax.value_and_grad(f, argnums=(0, 1, 2)), *args)
    assert not [s for s in steps if isinstance(s, Alone)]
    made = [v for r in regions(steps) for v in r.outputs]
    assert all(volume(v.aval.shape) < 512 * 8192 for v in made)


def test_pairs_in_both_directions():
    n = 2048

    def f(a, b):
        s = a @ b.T / 0.07
        labels = jnp.arange(n)
        return md.cross_entropy(s, labels) + md.cross_entropy(s.T, labels)

    for g in (f, lumjax.value_and_grad(f, argnums=(0, 1))):
        nothing_large(cut_of(g, aval(n, 64), aval(n, 64)), n * n)


def test_an_epilogue_belongs_to_its_contraction_and_layers_stay_apart():
    def f(x, w, b, u, c):
        return nn.gelu(x @ w + b) @ u + c

    args = aval(512, 256), aval(256, 1024), aval(1024), aval(1024, 256), aval(256)
    first, second = regions(cut_of(f, *args))
    assert [v.aval.shape for v in first.outputs] == [(512, 1024)]
    assert [v.aval.shape for v in second.outputs] == [(512, 256)]


def test_rows_that_a_contraction_shortens_are_stored():
    """Statistics alone do not keep a value inside: these rows are no longer than their operands."""

    def f(x, w, u):
        return nn.softmax(x @ w, -1) @ u

    steps = cut_of(f, aval(4096, 256), aval(256, 256), aval(256, 256))
    assert len(steps) == 2
    assert not any(r.inside for r in regions(steps))


def self_attention_args(b=2, c=256):
    p = {"qkv": aval(c, 3 * c), "qkv_b": aval(3 * c), "proj": aval(c, c), "proj_b": aval(c)}
    return aval(b, T, c), p


def test_heads_need_no_movement():
    steps = cut_of(lambda x, p: md.self_attention(x, p, 4), *self_attention_args())
    assert len(steps) == 3
    for region in regions(steps):
        assert any(isinstance(f, Contract) for f in region.forms)
        assert not encode(region).stored


def test_the_merged_heads_are_stored_as_the_projection_reads_them():
    steps = cut_of(lambda x, p: md.self_attention(x, p, 4), *self_attention_args())
    assert [v.aval.shape for v in steps[1].outputs] == [(2, T, 256)]
    assert not any(isinstance(f, Move) and f.maps[0].valid == 1 for f in steps[2].forms[:1])


@pytest.mark.parametrize("leaves", [3, 30])
def test_equal_updates_repeat(leaves):
    tree = {f"p{k}": aval(16, 24) for k in range(leaves)}
    steps = cut_of(md.adam, tree, tree, tree, tree, aval())
    assert len(regions(steps)) == leaves
    assert len({r.key for r in regions(steps)}) == 1


def test_keys_do_not_depend_on_the_order_of_equations():
    def f(x, y):
        return jnp.sin(x) * y, jnp.cos(y)

    def g(x, y):
        b = jnp.cos(y)
        return jnp.sin(x) * y, b

    x = aval(64, 64)
    (one,), (two,) = cut_of(f, x, x), cut_of(g, x, x)
    assert one.key == two.key


def test_bodies_of_loops_are_cut_when_they_run():
    def f(x, w):
        return lumjax.lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, length=500)

    (step,) = [s for s in cut_of(f, aval(64, 64), aval(64, 64)) if isinstance(s, Alone)]
    (body,) = [v for v in step.eqn.params.values() if isinstance(v, Jaxpr)]
    assert any(isinstance(s, Region) for s in cut(body, native=supported))


# ---- a whole training step


@pytest.fixture(scope="module")
def step12():
    f, args = md.gpt_step(12)
    jaxpr = md.jaxpr_of(f, *args)
    return jaxpr, cut(jaxpr, native=supported)


def test_a_training_step_has_few_different_regions(step12):
    jaxpr, steps = step12
    assert len(jaxpr.eqns) > 3000
    assert len({r.key for r in regions(steps)}) <= 30
    assert len(regions(steps)) <= 300
    assert max(len(r.eqns) for r in regions(steps)) <= 128
    alone = [s.eqn.prim.name for s in steps if isinstance(s, Alone)]
    assert alone == ["scatter_add"]  # the gradient of the embedding table


def test_a_training_step_stores_no_rows(step12):
    _, steps = step12
    shapes = {v.aval.shape for r in regions(steps) for v in r.outputs}
    assert not [s for s in shapes if s[-2:] == (256, 256) and len(s) == 4]  # weights of heads
    assert not [s for s in shapes if s[-1:] == (8192,) and s != (256, 8192)]  # logits
    for region in {r.key: r for r in regions(steps)}.values():
        large = [r.buffer.shape for r in encode(region).stored if volume(r.buffer.shape) > 2**20]
        assert not large


def test_a_training_step_is_in_order(step12):
    jaxpr, steps = step12
    known = set(jaxpr.inputs)
    for s in steps:
        ins = s.inputs if isinstance(s, Region) else [a for a in s.eqn.inputs if isinstance(a, Var)]
        assert known.issuperset(ins)
        known.update(s.outputs if isinstance(s, Region) else s.eqn.outputs)
    assert known.issuperset(a for a in jaxpr.outputs if isinstance(a, Var))


def calls(f):
    """How many Python functions `f` calls."""
    count = 0

    def tracer(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(tracer)
    try:
        f()
    finally:
        sys.setprofile(None)
    return count


def test_cutting_is_linear_in_the_layers():
    jaxprs = [md.jaxpr_of(*md.gpt_step(n)[:1], *md.gpt_step(n)[1]) for n in (3, 6)]
    few, many = (calls(lambda j=j: cut(j, native=supported)) for j in jaxprs)
    assert many < 2.2 * few


def test_a_small_training_step_means_what_eval_says():
    f, args = md.gpt_step(1, b=2, t=40, c=16, heads=2, vocab=200)
    jaxpr = md.jaxpr_of(f, *args)
    rng = np.random.default_rng(0)
    values = [
        rng.integers(0, 200, v.aval.shape).astype(v.aval.dtype)
        if v.aval.dtype == i32
        else np.asarray(0.3 * rng.standard_normal(v.aval.shape), v.aval.dtype)
        for v in jaxpr.inputs
    ]
    values[-3] = np.float32(3)  # the count of steps
    seen = []

    def run(region, inputs):
        seen.append(bool(region.inside))
        return pr.evaluate_encoded(encode(region), inputs)

    got = pr.run_steps(jaxpr, values, run)
    pr.assert_close(got, pr.answer(jaxpr, values), rtol=1e-4)
    assert any(seen)
