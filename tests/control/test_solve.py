"""custom_linear_solve, custom_root and what is built on them: values and derivatives in every mode,
eager and compiled, against differentiation of a direct solver and against JAX.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.config import config
from lumjax.errors import DTypeError, GradientError, ShapeError, TreeError
from lumjax.scipy.sparse.linalg import bicgstab, cg
from lumjax.testing import check_adjoint, check_grads, check_vmap

RNG = np.random.default_rng(5)
GENERAL = RNG.normal(size=(3, 3)).astype("f4") + 4 * np.eye(3, dtype="f4")
POSITIVE = (GENERAL @ GENERAL.T / 8).astype("f4")
B = np.array([1.0, -2.0, 0.5], "f4")


@pytest.fixture(autouse=True)
def _unsearched():
    with config.scope(search_evaluations=0):
        yield


def direct(matvec, b):
    """A solver that cannot be differentiated: the matrix is found one column at a time."""
    columns = lumjax.vmap(matvec)(jnp.eye(3, dtype=b.dtype))
    return lax.stop_gradient(jnp.linalg.solve(columns.T, b))


def with_aux(matvec, b):
    return direct(matvec, b), {"length": jnp.sum(b * b)}


def linear(a, b, **how):
    return lax.custom_linear_solve(lambda x: a @ x, b, direct, **how)


SOLVERS = {
    "transpose_solve": (GENERAL, lambda a, b: linear(a, b, transpose_solve=direct)),
    "symmetric": (POSITIVE, lambda a, b: linear((a + a.T) / 2, b, symmetric=True)),
    "aux": (
        GENERAL,
        lambda a, b: lax.custom_linear_solve(lambda x: a @ x, b, with_aux, with_aux, has_aux=True)[
            0
        ],
    ),
    "cg": (POSITIVE, lambda a, b: cg((a + a.T) / 2, b, tol=1e-6)[0]),
    "cg, preconditioned": (
        POSITIVE,
        lambda a, b: cg((a + a.T) / 2, b, tol=1e-6, M=lambda x: x / jnp.diagonal(a))[0],
    ),
    "bicgstab": (GENERAL, lambda a, b: bicgstab(a, b, tol=1e-6)[0]),
}
SYMMETRIC = ("symmetric", "cg", "cg, preconditioned")


def reference(name):
    if name in SYMMETRIC:
        return lambda a, b: jnp.linalg.solve((a + a.T) / 2, b)
    return jnp.linalg.solve


DERIVED = {
    "value": lambda f: f,
    "grad": lambda f: lumjax.grad(lambda a, b: jnp.sum(jnp.sin(f(a, b))), (0, 1)),
    "jacfwd": lambda f: lumjax.jacfwd(f, (0, 1)),
    "hessian": lambda f: lumjax.hessian(lambda a, b: jnp.sum(f(a, b) ** 2), 1),
    "mixed": lambda f: lumjax.jacrev(lumjax.grad(lambda a, b: jnp.sum(f(a, b) ** 2)), 1),
    "lanes of both": lambda f: (
        lambda a, b: lumjax.vmap(f)(jnp.stack([a, 2 * a]), jnp.stack([b, b + 1]))
    ),
    "lanes of b": lambda f: lambda a, b: lumjax.vmap(f, (None, 0))(a, jnp.stack([b, b + 1])),
    "lanes of a": lambda f: lambda a, b: lumjax.vmap(f, (0, None))(jnp.stack([a, 2 * a]), b),
    "grad of lanes": lambda f: lumjax.grad(
        lambda a, b: jnp.sum(lumjax.vmap(f, (None, 0))(a, jnp.stack([b, b + 1])) ** 2), (0, 1)
    ),
    "checkpoint": lambda f: lumjax.grad(
        lambda a, b: jnp.sum(lumjax.checkpoint(f)(a, b) ** 2), (0, 1)
    ),
    "scan": lambda f: lumjax.grad(
        lambda a, b: jnp.sum(lax.scan(lambda c, _: (f(a, c), c), b, length=2)[0]), (0, 1)
    ),
}


@pytest.mark.sampled(40)
@pytest.mark.parametrize("derivative", DERIVED)
@pytest.mark.parametrize("name", SOLVERS)
def test_derivatives_are_those_of_the_equation(name, derivative):
    a, f = SOLVERS[name]
    wanted = lumjax.tree.leaves(DERIVED[derivative](reference(name))(a, B))
    program = DERIVED[derivative](f)
    for run in (program, lumjax.jit(program)):
        for x, y in zip(lumjax.tree.leaves(run(a, B)), wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


def test_pytrees_and_complex_numbers():
    def solve(matvec, b):
        return {"x": b["x"] / 2, "y": [b["y"][0] / 3j]}

    b = {"x": jnp.array([2.0]), "y": [jnp.array([3j])]}
    out = lax.custom_linear_solve(lambda v: {"x": v["x"] * 2, "y": [v["y"][0] * 3j]}, b, solve)
    np.testing.assert_allclose(out["x"], [1.0])
    np.testing.assert_allclose(out["y"][0], [1.0])


def root(a, guess=2.0):
    def newton(f, x):
        def step(x):
            return x - f(x) / lumjax.grad(f)(x)

        return lax.while_loop(lambda x: abs(f(x)) > 1e-6, step, x)

    return lax.custom_root(lambda x: x**3 - a, guess, newton, lambda g, y: y / g(1.0))


ROOTS = {
    "value": (root, 2.0),
    "grad": (lumjax.grad(root), 1 / 12),
    "forward": (lumjax.jacfwd(root), 1 / 12),
    "second": (lumjax.grad(lumjax.grad(root)), -2 / 9 * 8.0 ** (-5 / 3)),
    "of the guess": (lambda a: lumjax.grad(lambda g: root(a, g))(1.5), 0.0),
    "lanes": (lambda a: lumjax.vmap(root)(jnp.stack([a, 27.0])), [2.0, 3.0]),
    "grad of lanes": (
        lambda a: lumjax.vmap(lumjax.grad(root))(jnp.stack([a, 27.0])),
        [1 / 12, 1 / 27],
    ),
}


@pytest.mark.parametrize("name", ROOTS)
def test_roots(name):
    f, wanted = ROOTS[name]
    for run in (f, lumjax.jit(f)):
        np.testing.assert_allclose(run(8.0), wanted, rtol=1e-4, atol=1e-6)


def test_a_system_of_equations_with_aux():
    def f(v):
        return jnp.stack([v[0] + v[1], v[0] - v[1]])

    def solve_for(target):
        def solver(f, guess):
            return guess + 0.5 * jnp.stack([target[0] + target[1], target[0] - target[1]]), 7

        def tangent(g, y):
            return jnp.linalg.solve(lumjax.jacobian(g)(y), y)

        return lax.custom_root(lambda v: f(v) - target, jnp.zeros(2), solver, tangent, has_aux=True)

    x, aux = solve_for(jnp.array([3.0, 1.0]))
    np.testing.assert_allclose(x, [2.0, 1.0])
    assert int(aux) == 7
    slope = lumjax.jacobian(lambda t: solve_for(t)[0])(jnp.array([3.0, 1.0]))
    np.testing.assert_allclose(slope, [[0.5, 0.5], [0.5, -0.5]], rtol=1e-6)


def programs(jax):
    """name: a function of (a, b), in terms of a library."""
    solvers = jax.scipy.sparse.linalg
    spline = jax.lax.linalg.tridiagonal_solve
    grid = jax.scipy.ndimage.map_coordinates
    return {
        "cg": lambda a, b: solvers.cg(a @ a.T, b, maxiter=2)[0],
        "cg of a tree": lambda a, b: solvers.cg(
            lambda v: {"p": 2 * v["p"], "q": v["q"] + v["p"][:1] * 0}, {"p": b, "q": b[:1]}
        )[0],
        "cg from x0": lambda a, b: solvers.cg(a @ a.T, b, x0=b, atol=1e-2, M=a * 0.1)[0],
        "bicgstab": lambda a, b: solvers.bicgstab(a, b, maxiter=2)[0],
        "expm of one": lambda a, b: jax.scipy.linalg.expm(a),
        "expm of small": lambda a, b: jax.scipy.linalg.expm(a * 0.02),
        "expm of triangular": lambda a, b: jax.scipy.linalg.expm(
            jax.numpy.triu(a), upper_triangular=True
        ),
        "expm of many": lambda a, b: jax.scipy.linalg.expm(a * b[:, None, None]),
        "expm, too large": lambda a, b: jax.scipy.linalg.expm(a * 100, max_squarings=2),
        "expm_frechet": lambda a, b: jax.scipy.linalg.expm_frechet(a, a * b),
        "tridiagonal": lambda a, b: spline(b, 5 + b, b[::-1], a),
        "tridiagonals": lambda a, b: spline(a, 9 + a, a.T, a[..., None] * b),
        **{
            f"{mode} {order}": lambda a, b, mode=mode, order=order: grid(
                a, [b * 2, b + 0.3], order, mode, 1.5
            )
            for mode in ("constant", "nearest", "wrap", "mirror", "reflect")
            for order in (0, 1)
        },
    }


@pytest.fixture(scope="module")
def theirs():
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.scipy.sparse.linalg")
    pytest.importorskip("jax.scipy.ndimage")
    return jax


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", programs(lumjax))
def test_values_and_gradients_are_jaxs(name, theirs):
    def summed(jax, f):
        def total(a, b):
            return sum(jax.numpy.sum(jax.numpy.arctan(x)) for x in jax.tree.leaves(f(a, b)))

        return jax.grad(total, (0, 1))

    for derive in (lambda jax, f: f, summed):
        wanted = theirs.tree.leaves(derive(theirs, programs(theirs)[name])(GENERAL, B))
        program = derive(lumjax, programs(lumjax)[name])
        for run in (program, lumjax.jit(program)):
            for x, y in zip(lumjax.tree.leaves(run(GENERAL, B)), wanted, strict=True):
                assert x.dtype == y.dtype
                scale = max(1.0, float(np.max(np.abs(y), initial=0, where=np.isfinite(y))))
                np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5 * scale)


def test_no_matrices_and_no_elements():
    assert lumjax.scipy.linalg.expm(jnp.zeros((0, 3, 3))).shape == (0, 3, 3)
    assert lumjax.scipy.linalg.expm(jnp.zeros((2, 0, 0))).shape == (2, 0, 0)
    assert cg(jnp.zeros((0, 0)), jnp.zeros(0))[0].shape == (0,)
    grid = lumjax.scipy.ndimage.map_coordinates(jnp.ones((2, 2)), [jnp.zeros(0)] * 2, order=1)
    assert grid.shape == (0,)


def test_properties():
    def f(a, b):
        return linear(a, b, transpose_solve=direct)

    check_adjoint(f, (GENERAL, B))
    check_vmap(f, (GENERAL, B))
    check_grads(f, (GENERAL, B), order=2)


def refused(f, error, *words):
    with pytest.raises(error) as caught:
        f()
    assert all(word in str(caught.value) for word in words)


def test_what_is_refused():
    refused(lambda: linear(GENERAL, np.arange(3)), DTypeError, "floating or complex b", "i32[3]")
    refused(
        lambda: lax.custom_linear_solve(lambda x: x[:2], B, direct), TreeError, "matvec", "f32[2]"
    )
    refused(
        lambda: lax.custom_linear_solve(lambda x: x, B, lambda f, b: (b, b)), TreeError, "solve"
    )
    refused(
        lambda: lax.custom_linear_solve(lambda x: x, B, direct, has_aux=True), TreeError, "a pair"
    )
    refused(lambda: lumjax.grad(lambda b: jnp.sum(linear(GENERAL, b)))(B), GradientError,
            "transpose_solve")  # fmt: skip
    refused(lambda: lax.custom_root(lambda x: (x,), 1.0, direct, direct), TreeError, "f to return")
    refused(lambda: cg(jnp.ones((2, 3)), B), ShapeError, "a square matrix")
    refused(lambda: cg(GENERAL, B, x0=B[:2]), ShapeError, "x0")
    refused(lambda: cg(GENERAL, B, x0=(B,)), TreeError, "x0")
    shapes = SimpleNamespace(a=jnp.ones((2, 3)), b=jnp.ones(3))
    refused(lambda: lumjax.scipy.linalg.expm(shapes.a), ShapeError, "square matrices")
    refused(lambda: lax.linalg.tridiagonal_solve(*[shapes.b] * 4), ShapeError, "b (..., m, n)")
