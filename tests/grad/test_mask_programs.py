"""Random programs with an infinite slope behind a predicate, against the same made safe by hand."""

import numpy as np
import pytest

import lumjax.numpy as jnp
from lumjax.config import config
from lumjax.decorator import jit
from lumjax.grad.forward import jvp
from lumjax.grad.reverse import grad

# Not finite, or not differentiable, at 0.
DANGEROUS = [
    jnp.sqrt,
    jnp.log,
    lambda x: 1 / x,
    lambda x: jnp.sqrt(x) * jnp.log(x),
    lambda x: x**0.5,
    lambda x: jnp.sin(x) / x,
    lambda x: jnp.power(x, -1.5),
    lambda x: jnp.log(jnp.sqrt(x)),
    lambda x: jnp.arctan2(x, x),
    lambda x: x / jnp.abs(x),
]
ELEMENTWISE = [
    lambda y: -y,
    lambda y: 2 * y,
    jnp.sin,
    lambda y: y * y,
    lambda y: jnp.exp(-y * y),
    lambda y: y / (1 + y * y),
    lambda y: jnp.maximum(y, 0.3),
]
MOVES = [  # of values, and of masks
    (lambda y: y.T, lambda m: m.T),
    (lambda y: y[::-1], lambda m: m[::-1]),
    (lambda y: jnp.roll(y, 1, 0), lambda m: np.roll(m, 1, 0)),
    (lambda y: jnp.take(y, np.array([2, 0, 1, 3]), axis=1), lambda m: m[:, [2, 0, 1, 3]]),
    (lambda y: jnp.concatenate([y[2:], y[:2]]), lambda m: np.concatenate([m[2:], m[:2]])),
    (lambda y: y.reshape(2, 8).T.reshape(4, 4), lambda m: m.reshape(2, 8).T.reshape(4, 4)),
]
OUTER = [lambda z, x: jnp.sin(z), lambda z, x: jnp.square(z), lambda z, x: z * x]
WEIGHTS = np.random.default_rng(3).standard_normal((4, 4))


def program(seed):
    """(unprotected function, the same with a safe argument, point, direction)."""
    rng = np.random.default_rng(seed)

    def pick(options):
        return options[rng.integers(len(options))]

    danger, outer = pick(DANGEROUS), pick(OUTER)
    chain = [(pick(ELEMENTWISE), *pick(MOVES)) for _ in range(2)]
    x = np.abs(rng.standard_normal((4, 4))) + 0.2
    rows = rng.random() < 0.5
    if rows:
        x[rng.integers(4)] = 0
    else:
        x[rng.random((4, 4)) < 0.4] = 0
    keep = x > 0
    moved = keep
    for _, _, move in chain:
        moved = move(moved)

    def f(x, safe):
        y = start = danger(jnp.where(keep, x, 1.0) if safe else x)
        other = x
        for elementwise, move, _ in chain:
            y, other = move(elementwise(y)), move(other)
        z = jnp.where(moved, y, 0.25 * other)
        if rows:  # a product of matrices, whose masked rows are infinite
            z = z + 0.1 * jnp.sum(jnp.where(keep.any(1)[:, None], start @ WEIGHTS, 0.0))
        return jnp.sum(outer(z, x))

    return (lambda x: f(x, False)), (lambda x: f(x, True)), x, rng.standard_normal((4, 4))


def derivatives(f, x, v):
    slope = grad(f)
    return [
        slope(x),
        jvp(slope, (x,), (v,))[1],
        grad(lambda x: jnp.sum(slope(x) * v))(x),
        grad(lambda x: jvp(f, (x,), (v,))[1])(x),
    ]


@pytest.mark.parametrize("seed", range(25))
def test_agrees_with_the_program_made_safe_by_hand(seed):
    f, safe, x, v = program(seed)
    with config.scope(enable_x64=True):
        expected = derivatives(safe, x, v)
        for a, b in zip(derivatives(f, x, v), expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-7, atol=1e-9)
        with config.scope(interpret=True):
            staged = jit(grad(jit(f)))(x)
        np.testing.assert_allclose(
            np.asarray(staged), np.asarray(expected[0]), rtol=1e-7, atol=1e-9
        )
