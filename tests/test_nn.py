"""Activations and softmaxes against JAX, values and gradients; the table of safe gradients."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn
from lumjax.config import config
from tests.numpy.oracle import check, lines

pytestmark = pytest.mark.sampled(3)

jax = pytest.importorskip("jax")

ACTIVATIONS = [
    "relu",
    "relu6",
    "sigmoid",
    "softplus",
    "log_sigmoid",
    "soft_sign",
    "silu",
    "swish",
    "mish",
    "tanh",
    "hard_tanh",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "leaky_relu",
    "elu",
    "celu",
    "selu",
    "gelu",
    "squareplus",
]
REFUSING = ["relu", "relu6", "sigmoid", "silu", "swish", "hard_sigmoid", "hard_silu", "hard_swish"]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values(name):
    for operand in ("f34 * 3", "e4", "i34", "bf4", "-2.5", "f0"):
        if operand == "i34" and name in REFUSING:
            continue  # JAX refuses integers here
        check(f"nn.{name}({operand})", 2e-2 if operand == "bf4" else 4e-6)


POINTS = np.array([-700.0, -30.0, -3.5, -3.0, -1.2, -0.1, 0.0, 0.3, 2.0, 3.0, 6.5, 60.0], "f4")


@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if n not in ("hard_silu", "hard_swish")])
def test_gradients(name):
    ours = lumjax.vmap(lumjax.grad(getattr(nn, name)))(jnp.asarray(POINTS))
    theirs = jax.vmap(jax.grad(getattr(jax.nn, name)))(POINTS)
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "expression",
    lines("""
    nn.relu(i34)
    nn.gelu(f34, approximate=False)
    nn.leaky_relu(f34, 0.2)
    nn.elu(f34, 0.5)
    nn.celu(f34, 2.0)
    nn.glu(f34)
    nn.glu(f43, axis=0)
    nn.softmax(f34)
    nn.softmax(f34, axis=0)
    nn.softmax(f34, axis=(0, 1))
    nn.softmax(i34)
    nn.softmax(bf4)
    nn.softmax(f34, where=b34)
    nn.softmax(jnp.array([1e4, 0.0, -1e4]))
    nn.softmax(jnp.array([-jnp.inf, 0.0]))
    nn.softmax(jnp.array([-jnp.inf, -jnp.inf]))
    nn.log_softmax(f34)
    nn.log_softmax(f34, axis=0)
    nn.log_softmax(jnp.array([1e4, 0.0, -1e4]))
    nn.log_softmax(f34, where=b34)
    nn.logsumexp(f34)
    nn.logsumexp(f34, axis=0)
    nn.logsumexp(f34, axis=(0, 1), keepdims=True)
    nn.logsumexp(f34, b=p34, axis=1)
    nn.logsumexp(f34, b=g34, axis=1, return_sign=True)
    nn.logsumexp(jnp.array([-jnp.inf, -jnp.inf]))
    nn.logsumexp(jnp.array([jnp.inf, 1.0]))
    nn.logsumexp(jnp.array([1000.0, 1000.0]))
    nn.logsumexp(i34)
    nn.logsumexp(f34, where=b34)
    nn.standardize(f34)
    nn.standardize(f34, axis=0, epsilon=1e-3)
    nn.standardize(f34, axis=(0, 1))
    nn.standardize(f34, where=b34 | (f34 > -9))
    nn.one_hot(t6, 3)
    nn.one_hot(t6, 2)
    nn.one_hot(jnp.array([-1, 5]), 3)
    nn.one_hot(t6, 3, dtype=jnp.int32)
    nn.one_hot(t6.reshape(2, 3), 4, axis=0)
    nn.one_hot(1, 3)
    nn.one_hot(jnp.array([1.0, 2.0]), 3) if False else nn.one_hot(u8, 3)
"""),
)
def test_expressions(expression):
    check(expression, 2e-2 if "bf4" in expression else 6e-6)


def attention_operands(heads=4, shared=4):
    rng = np.random.default_rng(3)
    q = rng.normal(size=(2, 5, heads, 8)).astype("f4")
    k, v = rng.normal(size=(2, 2, 6, shared, 8)).astype("f4")
    return q, k, v


@pytest.mark.parametrize("shared", [4, 2, 1])
def test_attention(shared):
    q, k, v = attention_operands(shared=shared)
    mask = np.random.default_rng(0).uniform(size=(2, 1, 5, 6)) < 0.7
    bias = np.random.default_rng(1).normal(size=(1, 4, 5, 6)).astype("f4")
    for kwargs in ({}, {"mask": mask}, {"bias": bias}, {"scale": 0.3}, {"is_causal": True}):
        ours = nn.dot_product_attention(q, k, v, **kwargs)
        theirs = jax.nn.dot_product_attention(q, k, v, **kwargs)
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_sees_windows_and_lengths(dtype):
    """Which keys a query sees, and that queries beyond a sequence's end give zero."""
    operands = [x.astype(dtype) for x in attention_operands(shared=2)]
    rows, columns = np.array([3, 5], np.int32), np.array([6, 2], np.int32)
    for kwargs in (
        {"local_window_size": 1},
        {"local_window_size": (0, 2)},
        {"local_window_size": (1, 1), "is_causal": True},
        {"query_seq_lengths": rows},
        {"key_value_seq_lengths": columns},
        {"query_seq_lengths": rows, "key_value_seq_lengths": columns, "local_window_size": (2, 1)},
    ):
        ours = nn.dot_product_attention(*map(jnp.asarray, operands), **kwargs)
        theirs = jax.nn.dot_product_attention(*map(jax.numpy.asarray, operands), **kwargs)
        assert ours.dtype == theirs.dtype
        near = {"rtol": 2e-5, "atol": 2e-6} if dtype == "float32" else {"rtol": 0.02, "atol": 0.02}
        np.testing.assert_allclose(np.asarray(ours, "f4"), np.asarray(theirs, "f4"), **near)


# ---- safe gradients: users.md 2.1, first and second order


def first(f, x):
    return np.asarray(lumjax.grad(lambda v: jnp.sum(f(v)))(jnp.asarray(x, jnp.float32)))


def second(f, x):
    return np.asarray(lumjax.hessian(lambda v: jnp.sum(f(v)))(jnp.asarray(x, jnp.float32)))


INF, NAN = np.inf, np.nan
FIRST = [
    ("abs at 0", jnp.abs, 0.0, 1.0),
    ("maximum(x, 0) at 0", lambda x: jnp.maximum(x, 0), 0.0, 0.5),
    ("relu at 0", nn.relu, 0.0, 0.0),
    ("max ties", jnp.max, [2.0, 2.0, 1.0], [0.5, 0.5, 0.0]),
    ("clip at a bound", lambda x: jnp.clip(x, 0, 1), 1.0, 0.5),
    ("clamp at a bound", lambda x: lax.clamp(0.0, x, 1.0), 1.0, 0.0),
    ("norm at 0", jnp.linalg.norm, [0.0, 0.0], [0.0, 0.0]),
    ("norm squared at 0", lambda x: jnp.linalg.norm(x) ** 2, [0.0, 0.0], [0.0, 0.0]),
    ("std of a constant", jnp.std, [3.0, 3.0], [0.0, 0.0]),
    ("where with sqrt", lambda x: jnp.where(x < 1, x, jnp.sqrt(x)), 0.0, 1.0),
    ("where with log", lambda x: jnp.where(x > 0, jnp.log(x), 0.0), 0.0, 0.0),
    ("logsumexp of -inf", nn.logsumexp, [-INF, -INF], [0.0, 0.0]),
    ("softmax of -inf", nn.softmax, [-INF, -INF], [0.0, 0.0]),
    ("log_softmax of -inf", nn.log_softmax, [-INF, -INF], [0.0, 0.0]),
    ("prod with a zero", jnp.prod, [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
    ("prod with two zeros", jnp.prod, [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    ("cumprod with a zero", jnp.cumprod, [2.0, 0.0, 3.0], [1.0, 8.0, 0.0]),
    ("scatter mul", lambda x: jnp.ones(2).at[np.array([0, 0])].mul(x), [2.0, 3.0], [3.0, 2.0]),
    ("softplus at 0", nn.softplus, 0.0, 0.5),
    ("logaddexp of -inf", lambda x: jnp.logaddexp(x, -INF), -INF, 0.0),
    ("logaddexp with inf", lambda x: jnp.logaddexp(x, 1.0), INF, 1.0),
    ("log_sigmoid far left", nn.log_sigmoid, -200.0, 1.0),
    ("arctan2(0, 0)", lambda x: jnp.arctan2(x, x), 0.0, NAN),
]  # fmt: skip
SECOND = [
    ("abs at 0", jnp.abs, 0.0, 0.0),
    ("norm at 0", jnp.linalg.norm, [0.0, 0.0], [[NAN, NAN], [NAN, NAN]]),
    ("std of a constant", jnp.std, [3.0, 3.0], [[NAN, NAN], [NAN, NAN]]),
    ("where of sin squared", lambda x: jnp.where(x > -5, jnp.sin(x), 0.0) ** 2, 0.0, 2.0),
    ("where with sqrt", lambda x: jnp.where(x < 1, x**2, jnp.sqrt(x)), 0.0, 2.0),
    ("where with log", lambda x: jnp.where(x > 0, jnp.log(x), x**3), 0.0, 0.0),
    ("logsumexp of -inf", nn.logsumexp, [-INF, -INF], [[0.0, 0.0], [0.0, 0.0]]),
    ("prod with a zero", jnp.prod, [0.0, 2.0, 3.0], [[0, 3, 2], [3, 0, 0], [2, 0, 0]]),
    ("prod with two zeros", jnp.prod, [0.0, 0.0, 3.0], [[0, 3, 0], [3, 0, 0], [0, 0, 0]]),
    ("relu at 0", nn.relu, 0.0, 0.0),
    ("softplus at 0", nn.softplus, 0.0, 0.25),
]  # fmt: skip


@pytest.mark.parametrize(("f", "x", "want"), [r[1:] for r in FIRST], ids=[r[0] for r in FIRST])
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_first_order(f, x, want, jit):
    np.testing.assert_allclose(first(lumjax.jit(f) if jit else f, x), want, rtol=1e-5)


@pytest.mark.parametrize(("f", "x", "want"), [r[1:] for r in FIRST], ids=[r[0] for r in FIRST])
def test_forward_mode_agrees(f, x, want):
    x = jnp.asarray(x, jnp.float32)
    got = lumjax.jacfwd(lambda v: jnp.sum(f(v)))(x)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5)


@pytest.mark.parametrize(("f", "x", "want"), [r[1:] for r in SECOND], ids=[r[0] for r in SECOND])
def test_second_order(f, x, want):
    np.testing.assert_allclose(second(f, x), want, rtol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "norm at 0",
        "std of a constant",
        "softmax of -inf",
        "log_softmax of -inf",
        "logsumexp of -inf",
    ],
)
def test_jax_compatibility_restores_nan(name):
    f, x = next(r[1:3] for r in FIRST if r[0] == name)
    with config.scope(grad_compat="jax"):
        assert np.isnan(first(f, x)).all()


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 0), -1), ((0, 4), -1), ((2, 0, 0), (1, 2))])
def test_softmaxes_of_nothing(name, shape, axis):
    jax = pytest.importorskip("jax")
    got = getattr(nn, name)(jnp.zeros(shape), axis)
    want = getattr(jax.nn, name)(jax.numpy.zeros(shape), axis)
    assert got.shape == want.shape
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    jitted = lumjax.jit(lambda x: getattr(nn, name)(x, axis))(jnp.zeros(shape))
    np.testing.assert_array_equal(np.asarray(jitted), np.asarray(want))
