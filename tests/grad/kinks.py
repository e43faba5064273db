"""The table of edge gradients, in terms of a library: `table(lumjax)`, or `table(jax)`.

`python tests/grad/kinks.py` prints JAX's first derivatives in reverse and forward mode as JSON, in
a process of its own.
"""

from __future__ import annotations

import json
import sys

import numpy as np

NAN, INF = np.nan, np.inf


def at(*values):
    return np.array(values, np.float32)


ZERO, ZEROS = np.float32(0.0), at(0, 0, 0)
CONSTANT = at(2, 2, 2)
VOID = at(-INF, -INF)


def table(library):
    """Rows of name, scalar function of one array, point, first and second derivative, and JAX's
    first derivative; None for what is not defined or not looked at.
    """
    jnp, lax, nn, segment_prod = library.numpy, library.lax, library.nn, library.ops.segment_prod
    return [
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
        (
            "segment_prod with a zero",
            lambda x: segment_prod(x, np.array([0, 0, 1]), 2).sum(),
            at(0, 2, 3), [2, 0, 1], [[0, 1, 0], [1, 0, 0], [0, 0, 0]], None,
        ),
        (
            "eigenvalues of the identity",
            lambda x: jnp.sum(jnp.linalg.eigh(x)[0] * at(1, 2, 3)),
            np.eye(3, dtype=np.float32), np.diag(at(1, 2, 3)), None, np.diag(at(1, 2, 3)),
        ),
        (
            "eigenvectors of the identity",
            lambda x: jnp.sum(jnp.linalg.eigh(x)[1] ** 2 * at(1, 2, 3)),
            np.eye(3, dtype=np.float32), np.full((3, 3), NAN), None, np.full((3, 3), NAN),
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    import jax

    found = {
        name: [np.asarray(d(f)(x)).astype(float).tolist() for d in (jax.grad, jax.jacfwd)]
        for name, f, x, _, _, theirs in table(jax)
        if theirs is not None
    }
    json.dump(found, sys.stdout)
