"""The table of edge gradients, row by row: first and second order, and what JAX gives."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import jit, lax, nn
from lumjax.config import config
from lumjax.control.checkpoint import checkpoint
from lumjax.grad.forward import jvp
from lumjax.grad.jacobian import hessian, jacfwd, jacrev
from lumjax.grad.reverse import grad
from lumjax.trace.batch import vmap

_PLACE = Path(__file__).with_name("kinks.py")
_SPEC = importlib.util.spec_from_file_location("kinks", _PLACE)
kinks = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(kinks)
at, TABLE = kinks.at, kinks.table(lumjax)
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", ["forward", "reverse, compiled", "forward, compiled"])
@pytest.mark.parametrize(
    "row",
    [row for row in TABLE if row[5] is not None],
    ids=[r[0] for r in TABLE if r[5] is not None],
)
def test_grad_compat_restores_jax_in_every_mode(row, mode):
    _, f, x, _, _, jax_first = row
    forward = mode.startswith("forward")
    derivative = (jacfwd if forward else grad)(f)
    with config.scope(grad_compat="jax", search_evaluations=0):
        found = (jit(derivative) if mode.endswith("compiled") else derivative)(x)
    same(found, jax_forward(row) if forward else jax_first)


def jax_forward(row):
    """JAX in forward mode: there `where` chooses among tangents, which drops NaN."""
    return row[3] if row[0].startswith("where") else row[5]


COMPILED = {
    "reverse": grad,
    "forward": jacfwd,
    "mapped": lambda f: lambda x: vmap(grad(f))(x[None])[0],
    "of a compiled function": lambda f: grad(jit(f)),
}


@pytest.mark.sampled(3)
@ROWS
@pytest.mark.parametrize("mode", COMPILED)
def test_first_order_compiled(row, mode):
    _, f, x, first, _, _ = row
    with config.scope(search_evaluations=0):
        derivative = COMPILED[mode](f)
        same((derivative if mode.startswith("of") else jit(derivative))(x), first)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("modes", ["forward over reverse", "reverse over reverse", "over forward"])
@pytest.mark.parametrize(
    "row",
    [row for row in TABLE if row[4] is not None],
    ids=[r[0] for r in TABLE if r[4] is not None],
)
def test_second_order_compiled(row, modes):
    _, f, x, _, second, _ = row
    derivative = {
        "forward over reverse": hessian(f),
        "reverse over reverse": jacrev(jacrev(f)),
        "over forward": jacrev(jacfwd(f)),
    }[modes]
    with config.scope(search_evaluations=0):
        same(jit(derivative)(x), second)


def test_the_jax_column_is_what_jax_does():
    pytest.importorskip("jax")
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    done = subprocess.run(
        [sys.executable, _PLACE],
        check=True,
        capture_output=True,
        env={**os.environ, **flags},
    )
    found = json.loads(done.stdout)
    assert sorted(found) == sorted(row[0] for row in TABLE if row[5] is not None)
    for row in TABLE:
        if row[5] is not None:
            reverse, forward = found[row[0]]
            same(reverse, row[5])
            same(forward, jax_forward(row))


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
