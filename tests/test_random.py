"""Random numbers are JAX's: bit by bit where the algorithm is exact, within 8 ulp elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import random
from lumjax.config import config
from lumjax.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError

jax = pytest.importorskip("jax")

SEEDS = [0, 7, -1, 2**31 - 1, 2**32 + 5]
SHAPES = [(), (1,), (7,), (3, 5), (0,), (2, 0, 3)]


def same(ours, theirs):
    a, b = np.asarray(ours), np.asarray(theirs)
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b, strict=True)


def near(ours, theirs, ulp=8):
    """Within `ulp` units in the last place of the larger of |x| and 1.

    JAX's logarithm is itself off by a unit, which near a zero crossing (the median of the logistic
    distribution) is many units of the small result.
    """
    a, b = np.asarray(ours), np.asarray(theirs)
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    unit = np.spacing(np.maximum(np.abs(b), 1).astype(b.dtype))
    assert np.all(np.abs(a.astype("f8") - b.astype("f8")) <= ulp * unit.astype("f8"))


@pytest.mark.parametrize("seed", SEEDS)
def test_keys(seed):
    if seed >= 2**31:
        seed = np.uint32(seed % 2**32)
    same(random.PRNGKey(seed), jax.random.PRNGKey(seed))
    same(random.key_data(random.key(seed)), jax.random.key_data(jax.random.key(seed)))


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_split_and_fold_in(seed):
    key, theirs = random.PRNGKey(seed), jax.random.PRNGKey(seed)
    same(random.split(key), jax.random.split(theirs))
    same(random.split(key, 5), jax.random.split(theirs, 5))
    same(random.split(key, (2, 3)), jax.random.split(theirs, (2, 3)))
    for data in (0, 1, 12345, np.uint32(2**31 + 1)):
        same(random.fold_in(key, data), jax.random.fold_in(theirs, data))
    typed = random.split(random.key(seed), 4)
    assert typed.shape == (4,)
    same(random.key_data(typed), jax.random.key_data(jax.random.split(jax.random.key(seed), 4)))
    same(
        random.key_data(random.fold_in(typed[2], 9)),
        jax.random.key_data(jax.random.fold_in(jax.random.split(jax.random.key(seed), 4)[2], 9)),
    )


KEY, THEIRS = random.PRNGKey(42), jax.random.PRNGKey(42)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_bits(shape, dtype):
    same(random.bits(KEY, shape, dtype), jax.random.bits(THEIRS, shape, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "bounds", [(0.0, 1.0), (-3.0, 2.5), (1e-3, 7.0), (-1.0, 1.0), (0.0, 1e-20)]
)
def test_uniform(dtype, bounds):
    for shape in SHAPES:
        same(
            random.uniform(KEY, shape, dtype, *bounds),
            jax.random.uniform(THEIRS, shape, dtype, *bounds),
        )
    same(
        random.uniform(KEY, (2000,), dtype, *bounds),
        jax.random.uniform(THEIRS, (2000,), dtype, *bounds),
    )


def test_uniform_between_arrays():
    low, high = np.array([0.0, -1.0], "f4"), np.array([[1.0], [3.0]], "f4")
    same(
        random.uniform(KEY, (2, 2), minval=low, maxval=high),
        jax.random.uniform(THEIRS, (2, 2), minval=low, maxval=high),
    )


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("int32", 0, 10),
        ("int32", -5, 77),
        ("int32", -(2**31), 2**31 - 1),
        ("int32", 5, 5),
        ("int8", -128, 127),
        ("uint8", 0, 256),
        ("uint8", 3, 77),
        ("int16", -3, 300),
        ("uint32", 0, 2**31 - 1),
    ],
)
def test_randint(dtype, low, high):
    for shape in ((), (50,), (3, 4)):
        same(
            random.randint(KEY, shape, low, high, dtype),
            jax.random.randint(THEIRS, shape, low, high, dtype),
        )


def test_bernoulli():
    same(random.bernoulli(KEY, 0.3, (100,)), jax.random.bernoulli(THEIRS, 0.3, (100,)))
    p = np.linspace(0, 1, 50, dtype="f4")
    same(random.bernoulli(KEY, p), jax.random.bernoulli(THEIRS, p))


def test_permutation():
    x = np.arange(24.0, dtype="f4").reshape(6, 4)
    same(random.permutation(KEY, 50), jax.random.permutation(THEIRS, 50))
    same(random.permutation(KEY, x), jax.random.permutation(THEIRS, x))
    same(random.permutation(KEY, x, axis=1), jax.random.permutation(THEIRS, x, axis=1))
    same(
        random.permutation(KEY, x, axis=1, independent=True),
        jax.random.permutation(THEIRS, x, axis=1, independent=True),
    )


@pytest.mark.parametrize("name", ["normal", "exponential", "laplace", "logistic", "cauchy"])
@pytest.mark.parametrize("seed", [0, 3])
def test_continuous(name, seed):
    for shape in ((), (3, 4), (2000,)):
        ours = getattr(random, name)(random.PRNGKey(seed), shape)
        near(ours, getattr(jax.random, name)(jax.random.PRNGKey(seed), shape))


def test_gumbel():
    for shape in ((), (3, 4), (2000,)):
        same(random.gumbel(KEY, shape), jax.random.gumbel(THEIRS, shape))
    near(random.gumbel(KEY, (99,), "float16"), jax.random.gumbel(THEIRS, (99,), "float16"))


@pytest.mark.parametrize("bounds", [(-2.0, 2.0), (-1.0, 3.0), (0.5, np.inf)])
def test_truncated_normal(bounds):
    near(
        random.truncated_normal(KEY, *bounds, (1000,)),
        jax.random.truncated_normal(THEIRS, *bounds, (1000,)),
    )


def test_rademacher():
    same(random.rademacher(KEY, (20,)), jax.random.rademacher(THEIRS, (20,)))


def test_categorical():
    logits = np.random.default_rng(0).normal(size=(4, 6)).astype("f4")
    same(random.categorical(KEY, logits), jax.random.categorical(THEIRS, logits))
    same(random.categorical(KEY, logits, axis=0), jax.random.categorical(THEIRS, logits, axis=0))
    same(
        random.categorical(KEY, logits, shape=(5, 4)),
        jax.random.categorical(THEIRS, logits, shape=(5, 4)),
    )
    same(
        random.categorical(KEY, logits, shape=(3, 4), replace=False),
        jax.random.categorical(THEIRS, logits, shape=(3, 4), replace=False),
    )


def test_choice():
    p = np.arange(1, 21, dtype="f4") / 210
    values = np.arange(40, dtype="f4").reshape(20, 2)
    for args, kwargs in [
        ((20, (5,)), {}),
        ((20, (5,), False), {}),
        ((20, (5,)), {"p": p}),
        ((20, (5,), False), {"p": p}),
        ((values, (3,)), {}),
        ((values, (2, 2), False), {}),
        ((values, (1,)), {"axis": 1}),
        ((7,), {}),
    ]:
        same(random.choice(KEY, *args, **kwargs), jax.random.choice(THEIRS, *args, **kwargs))


def test_x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        with config.scope(enable_x64=True):
            key, theirs = random.PRNGKey(2**40 + 3), jax.random.PRNGKey(2**40 + 3)
            same(key, theirs)
            same(random.bits(key, (9,), "uint64"), jax.random.bits(theirs, (9,), "uint64"))
            same(random.uniform(key, (99,)), jax.random.uniform(theirs, (99,)))
            same(
                random.uniform(key, (99,), "float64", -3, 2.5),
                jax.random.uniform(theirs, (99,), "float64", -3, 2.5),
            )
            same(
                random.randint(key, (99,), -9, 2**40), jax.random.randint(theirs, (99,), -9, 2**40)
            )
            near(random.normal(key, (99,)), jax.random.normal(theirs, (99,)), ulp=64)
    finally:
        jax.config.update("jax_enable_x64", before)


# ---- under transformations


def test_jit_draws_the_same():
    def draw(key):
        a, b, c = random.split(key, 3)
        return (
            random.uniform(a, (6,), minval=-3, maxval=2.5),
            random.randint(b, (4,), 0, 9),
            random.bits(c, (5,)),
        )

    for ours, theirs in zip(lumjax.jit(draw)(KEY), draw(KEY), strict=True):
        same(ours, theirs)
    near(lumjax.jit(lambda k: random.normal(k, (50,)))(KEY), random.normal(KEY, (50,)))


def test_vmap_over_keys():
    keys = random.split(KEY, 5)
    same(
        lumjax.vmap(lambda k: random.uniform(k, (3,)))(keys),
        np.stack([np.asarray(random.uniform(k, (3,))) for k in keys]),
    )
    typed = random.split(random.key(1), 4)
    same(
        lumjax.vmap(lambda k: random.randint(k, (2,), 0, 100))(typed),
        np.stack([np.asarray(random.randint(typed[i], (2,), 0, 100)) for i in range(4)]),
    )
    same(
        lumjax.vmap(lambda k: random.permutation(k, 6))(keys),
        np.stack([np.asarray(random.permutation(k, 6)) for k in keys]),
    )


def test_typed_and_raw_keys_draw_the_same():
    same(random.normal(random.key(3), (4,)), random.normal(random.PRNGKey(3), (4,)))


def test_typed_keys_pass_through_scan_and_grad():
    def step(key, _):
        key, sub = random.split(key)
        return key, random.uniform(sub)

    _, draws = lumjax.lax.scan(step, random.key(0), None, length=3)
    assert len(set(draws.tolist())) == 3
    g = lumjax.grad(lambda x: jnp.sum(x * random.normal(random.key(0), (3,))))(jnp.ones(3))
    same(g, random.normal(random.key(0), (3,)))


def test_traced_seeds():
    same(lumjax.jit(random.PRNGKey)(7), random.PRNGKey(7))
    same(lumjax.jit(random.PRNGKey)(-7), jax.jit(jax.random.PRNGKey)(-7))
    same(lumjax.jit(random.fold_in)(KEY, 3), random.fold_in(KEY, 3))


def test_moments():
    x = np.asarray(random.normal(KEY, (20000,)))
    assert abs(x.mean()) < 0.03
    assert abs(x.std() - 1) < 0.02
    inside = np.linalg.norm(np.asarray(random.ball(KEY, 3, shape=(200,))), axis=-1)
    assert inside.max() <= 1


# ---- bad input


def test_errors():
    for bad in (0, 1.5, "key", None):
        with pytest.raises(ArgumentTypeError):
            random.normal(bad, (2,))
    with pytest.raises(ShapeError):
        random.normal(random.split(KEY), (2,))
    with pytest.raises(ShapeError):
        random.normal(np.zeros(3, np.uint32), (2,))
    with pytest.raises(ShapeError):
        random.uniform(KEY, (-1,))
    with pytest.raises(DTypeError):
        random.uniform(KEY, (2,), jnp.int32)
    with pytest.raises(DTypeError):
        random.bits(KEY, (2,), jnp.int32)
    with pytest.raises(DTypeError):
        random.randint(KEY, (2,), 0, 2, jnp.float32)
    with pytest.raises(DTypeError):
        random.randint(KEY, (2,), 0.5, 2)
    with pytest.raises(ArgumentTypeError):
        random.PRNGKey(1.5)
    with pytest.raises(ArgumentTypeError):
        random.fold_in(KEY, 0.5)
    with pytest.raises(ArgumentValueError):
        random.key(0, impl="rbg")
    with pytest.raises(ArgumentValueError):
        random.choice(KEY, 3, (5,), replace=False)
    with pytest.raises(ShapeError):
        random.choice(KEY, 3, (2,), p=np.ones(4, "f4"))
    with pytest.raises(ShapeError):
        random.categorical(KEY, jnp.zeros((4, 3)), shape=(5,))
    with pytest.raises(ArgumentTypeError):
        random.permutation(KEY, 2.5)
