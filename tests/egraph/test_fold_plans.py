"""What is stored and how many kernels there are, planned for sizes that would take long to run."""

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from benchmarks import programs
from lumjax import lax, nn
from lumjax.config import config
from lumjax.egraph.materialise import peak
from lumjax.egraph.plan import Budget
from tests.egraph.planning import largest, offered, regions


@pytest.fixture(autouse=True)
def no_cache():
    with config.scope(cache=False):
        yield


def planned(region, budget=Budget()):
    """The chosen grouping, before kernels are made."""
    extraction, chooser = offered(region, budget)
    return chooser.best(chooser.traced(), extraction)[0]


def stored(plan):
    """The elements of every temporary."""
    roots = [r for members in plan.groups for r in members]
    return [int(np.prod(r.buffer.shape)) for r in roots if not r.buffer.name.startswith("o")]


LONG = 2048


@pytest.mark.parametrize(
    ("name", "size", "groups", "most"),
    [
        ("attention", LONG, 1, 0),
        ("causal", LONG, 1, 0),
        ("window", LONG, 1, 0),
        ("alibi", LONG, 1, 0),
        ("soft_cap", LONG, 1, 0),
        ("grouped", LONG, 1, 0),
        ("attention_backward", LONG, 4, 2 * LONG * 32),
        ("causal_backward", LONG, 4, 2 * LONG * 32),
        ("linear_loss", 512, 4, 512),
        ("contrastive", 8192, 8, 8192 * 64),
        ("layer_norm_backward", 4096, 2, 4096),
        ("gelu_linear", 1024, 1, 0),
        ("chained", 1024, 2, 1024),
    ],
)
def test_plans_of_large_programs(name, size, groups, most):
    f, args = getattr(programs, name)(size)
    plans = [planned(region) for region in regions(f, *args)]
    assert sum(len(p.groups) for p in plans) <= groups
    assert max((n for p in plans for n in stored(p)), default=0) <= most


UNIT = {  # rows of length 1, as programs write them
    "product": lambda x: x * lax.rsqrt(jnp.sum(x * x, -1, keepdims=True)),
    "product, never of nothing": lambda x: (
        x * lax.rsqrt(jnp.maximum(jnp.sum(jnp.square(x), -1, keepdims=True), 1e-12))
    ),
    "quotient": lambda x: x / jnp.sqrt(jnp.sum(x * x, -1, keepdims=True)),
    "norm": lambda x: x / jnp.linalg.norm(x, axis=-1, keepdims=True),
}
PAIRED = {  # how far each row is from its twin among all
    "both ways": lambda s: jnp.diagonal(nn.log_softmax(s, 1)) + jnp.diagonal(nn.log_softmax(s, 0)),
    "by labels": lambda s: nn.log_softmax(s, 1)[jnp.arange(len(s)), jnp.arange(len(s))],
    "exponentials": lambda s: jnp.diagonal(s) - jnp.log(jnp.sum(jnp.exp(s), 1)),
    "quotients": lambda s: jnp.log(jnp.diagonal(e := jnp.exp(s)) / jnp.sum(e, 1)),
}


@pytest.mark.parametrize("paired", PAIRED)
@pytest.mark.parametrize("unit", UNIT)
def test_pairs_of_unit_rows_are_not_stored(unit, paired):
    size = 512

    def loss(a, b):
        return -jnp.mean(PAIRED[paired](UNIT[unit](a) @ UNIT[unit](b).T / 0.07))

    rows = np.zeros((size, 64), np.float32)
    for f in (loss, lumjax.value_and_grad(loss, (0, 1))):
        plans = [planned(region) for region in regions(f, rows, rows)]
        kept = [r.buffer.shape for p in plans for g in p.groups for r in g]
        assert kept
        assert max(int(np.prod(s)) for s in kept) <= size * 64


def test_two_gradients_share_their_tiles():
    f, args = programs.attention_backward(LONG)
    groups = planned(largest(f, *args)).groups
    outputs = [[r for r in g if r.buffer.name.startswith("o")] for g in groups]
    assert sorted(map(len, outputs))[-2:] == [1, 2]


def test_a_chain_of_layers_stores_what_is_dear_to_compute_again():
    """Wide products are worth their memory: loops over tiles are for what is large and cheap."""

    def f(x, a, b):
        y = programs.jnp.maximum(x @ a, 0)
        return y @ b

    normal = programs._normal
    args = normal(0, 128, 784), normal(1, 784, 512), normal(2, 512, 256)
    plans = [planned(region) for region in regions(f, *args)]
    kept = [r.buffer.shape for p in plans for g in p.groups for r in g]
    assert (128, 512) in kept


def wide_heads():
    """A program that is faster if it stores what loops over tiles compute several times."""
    f, args = programs._backward(
        programs._attention(lambda s, i, j: s), programs._heads(192, 8, 128)
    )
    return largest(f, *args)


@pytest.fixture
def no_rows_held(monkeypatch):
    """As if no job could hold whole rows."""
    monkeypatch.setattr("lumjax.kernel.inside._HELD", 0)
    monkeypatch.setattr("lumjax.egraph.materialise.may_stay", lambda roots: False)


def test_rows_that_one_job_holds_store_nothing():
    free = planned(wide_heads())
    assert [len(free.groups), peak(free.layout, free.groups)] == [1, 0]


@pytest.mark.usefixtures("no_rows_held")
def test_a_budget_of_memory_decides_what_is_computed_again():
    free = planned(wide_heads())
    most = peak(free.layout, free.groups)
    bound = most * 3 // 4
    tight = planned(wide_heads(), Budget(memory=bound))
    assert most > bound >= peak(tight.layout, tight.groups)
    assert tight.cost >= free.cost


@pytest.mark.usefixtures("no_rows_held")
def test_a_budget_that_no_plan_meets_gives_the_least():
    tight = planned(wide_heads(), Budget(memory=1 << 18))
    least = planned(wide_heads(), Budget(memory=1))
    assert peak(least.layout, least.groups) <= peak(tight.layout, tight.groups)
