"""Debug modes: what they find, where they must stay silent, and that nothing is left of them."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, random
from lumjax.config import config
from lumjax.errors import (
    IndexRangeError,
    KeyReuseError,
    NonFiniteError,
    OverflowedError,
    Source,
)
from lumjax.trace.core import EvalTrace

jit = lumjax.jit
X = jnp.array([1.0, 0.0, -2.0])
PLAIN = EvalTrace.process


@pytest.fixture(autouse=True)
def _unsearched():
    with config.scope(search_evaluations=0):
        yield


def root_squared(x):
    return jnp.sum(jnp.sqrt(x) ** 2)


def mapped(f):
    return jit(lumjax.vmap(f))


def line_of(error):
    with open(error.source.file, encoding="utf-8") as file:
        return file.read().splitlines()[error.source.line - 1]


# ---- NaN: (program, argument, primitive, whether in a backward pass)
LONG = jnp.arange(99, -1.5, -1)
NANS = {
    "outside of jit": (jnp.log, X, "log", False),
    "jit": (jit(jnp.log), X, "log", False),
    "jit in jit": (jit(lambda x: jit(jnp.log)(x) + 1), X, "log", False),
    "vmap": (mapped(jnp.log), X, "log", False),
    "grad": (lumjax.grad(root_squared), X[:2], "mul", True),
    "jit of grad": (jit(lumjax.grad(root_squared)), X[:2], "mul", True),
    "grad of jit": (lumjax.grad(jit(root_squared)), X[:2], "mul", True),
    "checkpoint": (jit(lumjax.grad(lumjax.checkpoint(root_squared))), X[:2], "mul", True),
    "scan": (jit(lambda x: lax.scan(lambda c, r: (c + jnp.log(r), c), 0.0, x)), LONG, "log", False),
    "grad of scan": (
        jit(lumjax.grad(lambda x: lax.scan(lambda c, r: (c + jnp.sqrt(r) ** 2, None), 0.0, x)[0])),
        LONG[:-1], "mul", True,
    ),
    "while": (
        jit(lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, jnp.sqrt(c[1] - 1)),
            (0, x))),
        1.0, "sqrt", False,
    ),
    "cond": (jit(lambda x: lax.cond(x > 0, jnp.sin, jnp.log, x)), -1.0, "log", False),
    "custom_jvp": (jit(lambda x: lumjax.nn.relu(jnp.log(x))), X, "log", False),
    "donated": (jit(lambda x: jnp.log(x), donate_argnums=0), X, "log", False),
    "effects": (jit(lambda x: (lumjax.debug.callback(len, x), jnp.log(x))[1]), X, "log", False),
    "callback": (
        jit(lambda x: jnp.log(lumjax.experimental.io_callback(lambda v: v, x, x))), X, "log", False,
    ),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NANS)
def test_a_nan_is_named(name):
    f, x, primitive, backward = NANS[name]
    with config.scope(debug_nans=True), pytest.raises(NonFiniteError) as caught:
        f(jnp.array(x))
    assert f"'{primitive}' in the {'backward' if backward else 'forward'} pass" in str(caught.value)
    assert isinstance(caught.value, FloatingPointError)
    assert isinstance(caught.value.source, Source)


MASKED = {
    "where": jit(lambda x: jnp.where(x > 0, jnp.log(x), 0.0)),
    "gradient of where": jit(lumjax.grad(lambda x: jnp.sum(jnp.where(x > 0, jnp.sqrt(x), 0.0)))),
    "masked softmax": jit(
        lumjax.grad(lambda x: lumjax.nn.softmax(jnp.where(x > 0, x, -jnp.inf))[0])
    ),
    "norm at zero": jit(lumjax.grad(lambda x: jnp.linalg.norm(x * 0))),
}


@pytest.mark.parametrize("name", MASKED)
def test_what_is_masked_is_not_blamed(name):
    with config.scope(debug_nans=True):
        assert np.isfinite(np.asarray(MASKED[name](X))).all()


def test_the_origin_is_told_through_moves_and_sums():
    def f(x):
        bad = jnp.log(x)
        return jnp.cumsum(bad[::-1].reshape(3, 1) @ jnp.ones((1, 2)), axis=0).T.sum()

    with config.scope(debug_nans=True), pytest.raises(NonFiniteError) as caught:
        jit(f)(X)
    assert "bad = jnp.log(x)" in line_of(caught.value)


def test_infinities():
    with config.scope(debug_infs=True):
        with pytest.raises(NonFiniteError, match=r"'exp'.*inf at index"):
            jit(lambda x: 2 * jnp.exp(100 * x))(X)
        jit(jnp.log)(jnp.array([-1.0]))  # a NaN is no infinity


# ---- indices

INDEXED = {
    "getitem": lambda x, k: x[k],
    "negative": lambda x, k: x[-k],
    "two": lambda x, k: jnp.stack([x, x])[1, k],
    "set": lambda x, k: x.at[k].set(1.0),
    "add": lambda x, k: x.at[k].add(1.0),
    "take": jnp.take,
    "take_along_axis": lambda x, k: jnp.take_along_axis(x, k[None], 0),
    "vmap": lambda x, k: lumjax.vmap(lambda i: x[i])(k[None]),
    "grad": lambda x, k: lumjax.grad(lambda x: x[k])(x),
    "scan": lambda x, k: lax.scan(lambda c, _: (c + x[k], None), 0.0, length=3)[0],
    "dynamic_slice": lambda x, k: lax.dynamic_slice(x, (k,), (1,)),
    "dynamic_update_slice": lambda x, k: lax.dynamic_update_slice(x, x[:1], (k,)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", INDEXED)
def test_a_traced_index_is_looked_at(name):
    f = jit(INDEXED[name])
    plain = np.asarray(f(X, jnp.array(2)))
    with config.scope(debug_index=True):
        np.testing.assert_array_equal(f(X, jnp.array(2)), plain)
        with pytest.raises(IndexRangeError, match=r"debug_index") as caught:
            f(X, jnp.array(7))
    assert "INDEXED" not in line_of(caught.value)
    assert line_of(caught.value).strip() != ""
    f(X, jnp.array(7))  # without the mode


def test_a_named_mode_is_obeyed():
    with config.scope(debug_index=True):
        assert float(jit(lambda x, k: x.at[k].get(mode="clip"))(X, 7)) == -2.0
        assert np.isnan(float(jit(lambda x, k: x.at[k].get(mode="fill"))(X, 7)))
        np.testing.assert_array_equal(jit(lambda x, k: x.at[k].set(1, mode="drop"))(X, 7), X)


# ---- overflow

INTS = jnp.array([2**30, 5])
WRAPPING = {
    "add": lambda x: x + x,
    "subtract": lambda x: -x - x - x,
    "multiply": lambda x: x * 4,
    "sum": lambda x: jnp.sum(x * 1 + 2**29 + 2**28),
    "cumsum": lambda x: jnp.cumsum(x * 1 + 2**29 + 2**28),
    "power": lambda x: x**3,
    "matmul": lambda x: x @ x,
    "narrowing": lambda x: x.astype(np.int16),
    "float to int": lambda x: (x * 1e6).astype(np.int32),
    "divide": lambda x: x // (x - 5),
    "loop": lambda x: lax.fori_loop(0, 40, lambda _, c: c * 2, x[1]),
    "long loop": lambda x: lax.fori_loop(0, 100, lambda _, c: c * 2, x[1]),
    "branch": lambda x: lax.cond(x[0] > 0, lambda c: c + c, lambda c: c, x),
    "call": lambda x: jit(lambda c: c + c)(x),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WRAPPING)
def test_an_overflow_is_named(name):
    for f in (WRAPPING[name], jit(WRAPPING[name])):
        with config.scope(debug_overflow=True), pytest.raises(OverflowedError):
            f(INTS)
        f(INTS)


def test_what_fits_is_not_blamed():
    x = jnp.array([2**30 - 1, -(2**30), 7, -3])
    with config.scope(debug_overflow=True):
        for f in (
            lambda x: (x + x, x - 1, -x, abs(x), x // 3, x % 5, abs(x).astype(np.uint32) * 9),
            lambda x: (jnp.mean(x), jnp.sum(x), x.astype(np.float32).astype(np.int32), x << 1),
            lambda x: random.randint(random.key(0), (3,), 0, 2**31 - 1) + x[3],
        ):
            f(x)
            jit(f)(x)


# ---- keys

REUSING = {
    "two draws": lambda k: random.normal(k) + random.uniform(k),
    "split and draw": lambda k: (random.split(k), random.normal(k)),
    "indexed twice": lambda k: (lambda ks: random.normal(ks[0]) + random.normal(ks[0]))(
        random.split(k)
    ),
    "scan": lambda k: lax.scan(lambda c, _: (c + random.normal(k), None), 0.0, length=3)[0],
    "mapped, then alone": lambda k: (lambda ks: (lumjax.vmap(random.normal)(ks),
                                                 random.normal(ks[1])))(random.split(k)),
    "old keys": lambda k: (lambda w: random.normal(w) + random.normal(w))(random.key_data(k)),
}  # fmt: skip
FINE = {
    "split": lambda k: sum(random.normal(i) for i in random.split(k)),
    "fold_in": lambda k: [random.normal(random.fold_in(k, i)) for i in range(3)],
    "clone": lambda k: random.normal(k) + random.normal(random.clone(k)),
    "vmap": lambda k: lumjax.vmap(random.normal)(random.split(k)),
    "checkpoint": lambda k: lumjax.grad(lumjax.checkpoint(lambda x: jnp.sin(x * random.normal(k))))(
        1.0
    ),
    "poisson": lambda k: random.poisson(k, 3.0, (5,)),
    "binomial": lambda k: random.binomial(k, 10, 0.4, (5,)),
    "gamma": lambda k: random.gamma(k, 0.5, (5,)),
    "permutation": lambda k: random.permutation(k, 5),
    "scan": lambda k: lax.scan(lambda c, i: (c + random.normal(i), None), 0.0, random.split(k))[0],
}


SLOW = ("poisson", "binomial", "gamma")  # to compile


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REUSING)
def test_a_key_used_twice(name):
    for f in (REUSING[name], jit(REUSING[name])):
        with config.scope(debug_key_reuse=True), pytest.raises(KeyReuseError, match="used at"):
            f(random.key(17))
        f(random.key(17))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FINE)
def test_keys_used_once(name):
    plain = np.asarray(FINE[name](random.key(3)))
    with config.scope(debug_key_reuse=True):
        np.testing.assert_allclose(np.asarray(FINE[name](random.key(3))), plain, rtol=1e-5)
        if name not in SLOW:
            jit(FINE[name])(random.key(3))


# ---- off is off


def test_nothing_is_left_of_a_mode():
    program = jit(lambda x: jnp.log(x[0] + x))
    program(X)
    before = program.lower(X).as_text()
    for mode in ("debug_nans", "debug_infs", "debug_index", "debug_overflow", "debug_key_reuse"):
        with config.scope(**{mode: True}):
            program(jnp.ones(3))
    assert program.lower(X).as_text() == before
    assert EvalTrace.process is PLAIN
    assert len(program.explain()) == 6  # a program for each mode


def test_modes_belong_to_their_thread_and_nest():
    with config.scope(debug_nans=True):
        assert EvalTrace.process is not PLAIN
        with config.scope(debug_nans=False):
            assert np.isnan(float(jnp.log(-1.0)))
        with pytest.raises(NonFiniteError):
            jnp.log(-1.0)
    assert EvalTrace.process is PLAIN
    assert np.isnan(float(jnp.log(-1.0)))


@pytest.mark.parametrize("mode", ["debug_nans", "debug_index", "debug_overflow"])
def test_a_mode_can_be_set_for_the_process(mode):
    try:
        config.update(f"jax_{mode}", True)
        with pytest.raises((NonFiniteError, IndexRangeError, OverflowedError)):
            jit(lambda x, k: (jnp.log(x) + k, x[k], k + (2**31 - 1)))(jnp.array([-1.0]), 3)
    finally:
        config.update(mode, False)
    assert EvalTrace.process is PLAIN
