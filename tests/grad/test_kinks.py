"""The table of edge gradients, row by row: first and second order, and what JAX gives."""

import numpy as np
import pytest

import lumjax.numpy as jnp
from lumjax import lax, nn
from lumjax.config import config
from lumjax.control.checkpoint import checkpoint
from lumjax.grad.forward import jvp
from lumjax.grad.jacobian import hessian, jacfwd, jacrev
from lumjax.grad.reverse import grad
from lumjax.trace.batch import vmap

NAN, INF = np.nan, np.inf


def at(*values):
    return np.array(values, np.float32)


ZERO, ZEROS = np.float32(0.0), at(0, 0, 0)
CONSTANT = at(2, 2, 2)
VOID = at(-INF, -INF)

# name, scalar function of one array, point, first and second derivative, JAX's first derivative
TABLE = [
    ("abs", jnp.abs, ZERO, 1.0, 0.0, 1.0),
    ("maximum(x, 0)", lambda x: jnp.maximum(x, 0.0), ZERO, 0.5, 0.0, 0.5),
    ("minimum(x, 0)", lambda x: jnp.minimum(x, 0.0), ZERO, 0.5, 0.0, 0.5),
    ("max of ties", jnp.max, at(2, 2, 1), [0.5, 0.5, 0], np.zeros((3, 3)), [0.5, 0.5, 0]),
    ("min of ties", jnp.min, at(2, 2, 3), [0.5, 0.5, 0], np.zeros((3, 3)), [0.5, 0.5, 0]),
    ("clip at the lower bound", lambda x: jnp.clip(x, 0.0, 1.0), ZERO, 0.5, 0.0, 0.5),
    ("clip at the upper bound", lambda x: jnp.clip(x, 0.0, 1.0), np.float32(1), 0.5, 0.0, 0.5),
    ("lax.clamp at a bound", lambda x: lax.clamp(0.0, x, 1.0), ZERO, 0.0, 0.0, 0.0),
    ("relu", nn.relu, ZERO, 0.0, 0.0, 0.0),
    ("norm at 0", jnp.linalg.norm, ZEROS, [0, 0, 0], np.full((3, 3), NAN), [NAN] * 3),
    ("norm squared at 0", lambda x: jnp.linalg.norm(x) ** 2, ZEROS, [0, 0, 0], None, [NAN] * 3),
    ("std of a constant", jnp.std, CONSTANT, [0, 0, 0], np.full((3, 3), NAN), [NAN] * 3),
    ("var of a constant", jnp.var, CONSTANT, [0, 0, 0], 2 / 3 * np.eye(3) - 2 / 9, [0, 0, 0]),
    ("where(x<1, x, sqrt x)", lambda x: jnp.where(x < 1, x, jnp.sqrt(x)), ZERO, 1.0, 0.0, NAN),
    ("where(x>0, log x, 0)", lambda x: jnp.where(x > 0, jnp.log(x), 0.0), ZERO, 0.0, 0.0, NAN),
    (
        "where(x>0, sin x/x, 1)", lambda x: jnp.where(x > 0, jnp.sin(x) / x, 1.0),
        ZERO, 0.0, 0.0, NAN,
    ),
    (
        "where(x>-5, sin x, 0)^2 / 2",
        lambda x: 0.5 * jnp.where(x > -5, jnp.sin(x), 0.0) ** 2,
        ZERO, 0.0, 1.0, 0.0,
    ),
    ("logsumexp of all -inf", nn.logsumexp, VOID, [0, 0], None, [NAN] * 2),
    ("softmax of all -inf", lambda x: nn.softmax(x)[0], VOID, [0, 0], None, [NAN] * 2),
    ("x / max(x, 0)", lambda x: x / jnp.maximum(x, 0.0), ZERO, NAN, NAN, NAN),
    ("arctan2(0, 0)", lambda x: jnp.arctan2(x, x), ZERO, NAN, NAN, NAN),
    (
        "prod with a zero", jnp.prod,
        at(0, 2, 3), [6, 0, 0], [[0, 3, 2], [3, 0, 0], [2, 0, 0]], [6, 0, 0],
    ),
    (
        "prod with two zeros", jnp.prod,
        at(0, 0, 3), [0, 0, 0], [[0, 3, 0], [3, 0, 0], [0, 0, 0]], [0, 0, 0],
    ),
    (
        "cumprod with a zero",
        lambda x: jnp.sum(jnp.cumprod(x)),
        at(2, 0, 3), [1, 8, 0], [[0, 4, 0], [4, 0, 2], [0, 2, 0]], [1, 8, 0],
    ),
    (
        "at[duplicates].multiply",
        lambda x: jnp.ones(2).at[np.array([0, 0, 1])].multiply(x).sum(),
        at(0, 2, 3), [2, 0, 1], [[0, 1, 0], [1, 0, 0], [0, 0, 0]], None,
    ),
    ("log(sigmoid(-200))", lambda x: jnp.log(nn.sigmoid(x)), np.float32(-200), NAN, None, NAN),
    ("log_sigmoid(-200)", nn.log_sigmoid, np.float32(-200), 1.0, 0.0, 1.0),
    ("sqrt at 0", jnp.sqrt, ZERO, INF, -INF, INF),
]  # fmt: skip
ROWS = pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])


def same(found, expected):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5, atol=1e-6)


@ROWS
def test_first_order(row):
    _, f, x, first, _, _ = row
    same(grad(f)(x), first)
    same(jacfwd(f)(x), first)
    same(jacrev(f)(x), first)
    same(vmap(grad(f))(np.stack([x, x])), np.stack([first, first]))


@ROWS
def test_forward_mode_along_the_diagonal(row):
    _, f, x, first, _, _ = row
    same(jvp(f, (x,), (np.ones_like(x),))[1], np.sum(first))


@pytest.mark.parametrize(
    "row",
    [row for row in TABLE if row[4] is not None],
    ids=[r[0] for r in TABLE if r[4] is not None],
)
def test_second_order(row):
    _, f, x, _, second, _ = row
    same(hessian(f)(x), second)
    same(jacrev(jacrev(f))(x), second)
    same(jacrev(jacfwd(f))(x), second)


@pytest.mark.parametrize(
    "row",
    [row for row in TABLE if row[5] is not None],
    ids=[r[0] for r in TABLE if r[5] is not None],
)
def test_grad_compat_restores_jax(row):
    _, f, x, _, _, jax_first = row
    with config.scope(grad_compat="jax"):
        same(grad(f)(x), jax_first)


def test_the_jax_column_is_what_jax_does():
    jax = pytest.importorskip("jax")
    names = {
        "abs": jax.numpy.abs,
        "maximum(x, 0)": lambda x: jax.numpy.maximum(x, 0.0),
        "max of ties": jax.numpy.max,
        "clip at the lower bound": lambda x: jax.numpy.clip(x, 0.0, 1.0),
        "lax.clamp at a bound": lambda x: jax.lax.clamp(0.0, x, 1.0),
        "relu": jax.nn.relu,
        "norm at 0": jax.numpy.linalg.norm,
        "std of a constant": jax.numpy.std,
        "logsumexp of all -inf": jax.nn.logsumexp,
        "softmax of all -inf": lambda x: jax.nn.softmax(x)[0],
        "prod with a zero": jax.numpy.prod,
    }
    rows = {row[0]: row for row in TABLE}
    for name, f in names.items():
        same(jax.grad(f)(rows[name][2]), rows[name][5])


def test_norm_of_rows_some_of_which_are_zero():
    x = np.array([[0, 0], [3, 4]], np.float32)
    g = grad(lambda x: jnp.sum(jnp.linalg.norm(x, axis=1)))(x)
    same(g, [[0, 0], [0.6, 0.8]])


def test_a_fully_masked_row_of_attention():
    scores = np.array([[0.5, 1.0], [2.0, 3.0]], np.float32)
    allowed = np.array([[True, True], [False, False]])

    def f(s):
        p = nn.softmax(jnp.where(allowed, s, -jnp.inf), axis=-1)
        return jnp.sum(jnp.where(allowed, p, 0.0) * np.array([1.0, 2.0], np.float32))

    g = np.asarray(grad(f)(scores))
    assert np.isfinite(g).all()
    same(g[1], [0, 0])


def guarded_sqrt(x):
    return jnp.where(x > 0, jnp.sqrt(x), 0.0)


POINTS = at(0, 4)
THROUGH_CONTROL_FLOW = {
    "batched cond": vmap(grad(lambda x: lax.cond(x > 0, jnp.sqrt, lambda x: 0.0 * x, x))),
    "scan over points": grad(
        lambda xs: lax.scan(lambda c, x: (c + guarded_sqrt(x), None), 0.0, xs)[0]
    ),
    "stacked by scan": grad(
        lambda xs: jnp.sum(lax.scan(lambda c, x: (c, guarded_sqrt(x)), 0.0, xs)[1])
    ),
    "selected after scan": grad(
        lambda xs: jnp.sum(
            jnp.where(xs > 0, lax.scan(lambda c, x: (c, jnp.sqrt(x)), 0.0, xs)[1], 0.0)
        )
    ),
    "checkpoint": grad(lambda xs: jnp.sum(checkpoint(guarded_sqrt)(xs))),
    "selected after checkpoint": grad(
        lambda xs: jnp.sum(jnp.where(xs > 0, checkpoint(jnp.sqrt)(xs), 0.0))
    ),
    "fori_loop": grad(
        lambda xs: lax.fori_loop(0, 2, lambda i, c: c + guarded_sqrt(xs[i]), np.float32(0))
    ),
}


@pytest.mark.parametrize("name", THROUGH_CONTROL_FLOW)
def test_masks_through_control_flow(name):
    same(THROUGH_CONTROL_FLOW[name](POINTS), [0.0, 0.25])
