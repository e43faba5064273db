"""jnp.linalg and lax.linalg against JAX and against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import lax
from lumjax.errors import DTypeError, ShapeError, UnsupportedError
from tests.numpy.oracle import OURS, THEIRS, assert_same, check, jax, leaves, lines

pytestmark = pytest.mark.sampled(4)
RNG = np.random.default_rng(3)
EXTRA = {
    "spd": (lambda a: a @ np.swapaxes(a, -1, -2) + 3 * np.eye(3))(RNG.normal(size=(2, 3, 3))),
    "sq": RNG.normal(size=(2, 3, 3)) + 2 * np.eye(3),
    "sq4": RNG.normal(size=(4, 4)) + np.eye(4),
    "tall": RNG.normal(size=(2, 4, 3)),
    "rhs": RNG.normal(size=(2, 3, 2)),
    "vec": RNG.normal(size=(3,)),
    "z00": np.zeros((0, 0)),
    "z200": np.zeros((2, 0, 0)),
    "z03": np.zeros((0, 3)),
    "sing": np.array([[1.0, 2.0, 3.0, 4.0], [2, 4, 6, 8], [0, 1, 0, 1], [1, 0, 0, 2]]),
}
for key, value in EXTRA.items():
    OURS[key] = jnp.asarray(value.astype("f4"))
    THEIRS[key] = jax.numpy.asarray(value.astype("f4"))


@pytest.mark.parametrize(
    "expression",
    lines("""
    jnp.linalg.cholesky(spd)
    jnp.linalg.cholesky(spd, upper=True)
    jnp.linalg.cholesky(spd, symmetrize_input=False)
    jnp.linalg.cholesky(-spd)
    jnp.linalg.cholesky(z200)
    jnp.linalg.eigvalsh(spd)
    jnp.linalg.eigvalsh(sq, 'U', symmetrize_input=False)
    jnp.linalg.eigh(z00)
    jnp.linalg.svdvals(tall)
    jnp.linalg.svd(tall, compute_uv=False)
    jnp.linalg.svd(sq, hermitian=True, compute_uv=False)
    jnp.linalg.qr(tall, mode='r') * jnp.sign(jnp.linalg.qr(tall, mode='r'))
    jnp.linalg.solve(sq, rhs)
    jnp.linalg.solve(sq4, f4)
    jnp.linalg.solve(sq, vec)
    jnp.linalg.solve(z00, jnp.zeros((0, 2)))
    jnp.linalg.inv(sq)
    jnp.linalg.inv(jnp.array([[2, 1], [1, 3]]))
    jnp.linalg.inv(z200)
    jnp.linalg.det(sq)
    jnp.linalg.det(sq4)
    jnp.linalg.det(sing)
    jnp.linalg.det(sq4[:2, :2])
    jnp.linalg.det(sq4[:1, :1])
    jnp.linalg.det(z200)
    jnp.linalg.slogdet(sq)
    jnp.linalg.slogdet(-sq4)
    jnp.linalg.slogdet(jnp.zeros((2, 2)))
    jnp.linalg.pinv(tall)
    jnp.linalg.pinv(z03)
    jnp.linalg.lstsq(tall[0], sq4[0])
    jnp.linalg.lstsq(tall[0], sq4[:, :2])
    jnp.linalg.lstsq(tall[0], sq4[:, :2], numpy_resid=True)
    jnp.linalg.matrix_rank(tall)
    jnp.linalg.matrix_rank(sing, 1e-3)
    jnp.linalg.matrix_power(sq, 5)
    jnp.linalg.matrix_power(sq, -2)
    jnp.linalg.matrix_power(sq, 0)
    jnp.linalg.norm(tall[0], 2)
    jnp.linalg.norm(tall[0], -2)
    jnp.linalg.norm(tall[0], 'nuc')
    jnp.linalg.norm(tall, 2, axis=(2, 1), keepdims=True)
    jnp.linalg.matrix_norm(tall, ord='nuc')
    jnp.linalg.cond(sq)
    jnp.linalg.cond(sq, 1)
    jnp.linalg.cond(sq, -2)
    jnp.linalg.diagonal(tall)
    jnp.linalg.diagonal(tall, offset=-1)
    jnp.linalg.trace(tall)
    jnp.linalg.tensorinv(jnp.reshape(sq4, (2, 2, 2, 2)))
    jnp.linalg.tensorsolve(jnp.reshape(sq4, (2, 2, 2, 2)), jnp.ones((2, 2)))
    lax.linalg.cholesky(spd)
    lax.linalg.lu(sq)
    lax.linalg.lu(tall)
    lax.linalg.lu_pivots_to_permutation(jnp.array([2, 2, 2]), 4)
    lax.linalg.triangular_solve(sq, rhs, left_side=True, lower=True)
    lax.linalg.triangular_solve(sq, jnp.swapaxes(rhs, 1, 2), unit_diagonal=True)
    lax.linalg.triangular_solve(sq4, f4, left_side=True, transpose_a=True)
    lax.linalg.triangular_solve(sq4, f4)
"""),
)
def test_expressions(expression):
    check(expression, 1e-4, signs=False)


def grads(expression, names, lib, xp, space):
    def loss(*xs):
        return eval(expression, {**space, **dict(zip(names, xs, strict=True))})

    args = [space[n] for n in names]
    return lib.grad(loss, tuple(range(len(names))))(*args)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("(jnp.linalg.cholesky(spd) * sq).sum()", ["spd"]),
        ("(jnp.linalg.eigh(spd)[0] ** 2).sum()", ["spd"]),
        ("(jnp.linalg.eigh(spd)[1] ** 2 * sq).sum()", ["spd"]),
        ("(jnp.linalg.svd(tall, False)[0] ** 2 * tall).sum()", ["tall"]),
        ("(jnp.linalg.svd(tall[0].T, False)[2] ** 2 * tall[0].T).sum()", ["tall"]),
        ("(jnp.linalg.svdvals(tall) ** 3).sum()", ["tall"]),
        ("(jnp.linalg.qr(tall)[0] ** 2 * tall).sum()", ["tall"]),
        ("(jnp.linalg.qr(tall)[1] ** 2).sum()", ["tall"]),
        ("(jnp.linalg.solve(sq, rhs) ** 2).sum()", ["sq", "rhs"]),
        ("(jnp.linalg.solve(sq, vec) ** 2).sum()", ["sq", "vec"]),
        ("(jnp.linalg.inv(sq) ** 2).sum()", ["sq"]),
        ("jnp.linalg.det(sq).sum()", ["sq"]),
        ("jnp.linalg.det(sq4)", ["sq4"]),
        ("jnp.linalg.det(sing)", ["sing"]),
        ("jnp.linalg.slogdet(sq)[1].sum()", ["sq"]),
        ("(jnp.linalg.pinv(tall) ** 2).sum()", ["tall"]),
        ("jnp.linalg.norm(tall, 'nuc', axis=(1, 2)).sum()", ["tall"]),
        ("(lax.linalg.triangular_solve(sq, rhs, left_side=True) ** 2).sum()", ["sq", "rhs"]),
        ("(lax.linalg.lu(sq)[0] ** 2).sum()", ["sq"]),
    ],
)
def test_gradients(expression, names):
    ours = grads(expression, names, lumjax, jnp, OURS)
    theirs = grads(expression, names, jax, jax.numpy, THEIRS)
    assert_same(leaves(ours), leaves(theirs), 2e-3, signs=False)


def test_factors_multiply_to_the_matrix():
    x = np.asarray(OURS["tall"])
    u, s, vh = jnp.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose((u * s[:, None, :]) @ vh, x, atol=1e-5)
    u, s, vh = jnp.linalg.svd(x)
    assert u.shape == (2, 4, 4)
    q, r = jnp.linalg.qr(x, mode="complete")
    np.testing.assert_allclose(q @ r, x, atol=1e-5)
    a = np.asarray(OURS["sq"])
    w, v = jnp.linalg.eig(a)
    np.testing.assert_allclose(jnp.asarray(a) @ v, v * w[:, None, :], atol=1e-4)
    np.testing.assert_allclose(
        np.sort(np.asarray(jnp.linalg.eigvals(a)).real), np.sort(np.asarray(w).real), atol=1e-4
    )
    u, s, vh = jnp.linalg.svd(a + np.swapaxes(a, 1, 2), hermitian=True)
    np.testing.assert_allclose((u * s[:, None, :]) @ vh, a + np.swapaxes(a, 1, 2), atol=1e-5)


def test_complex_gradients_agree():
    rng = np.random.default_rng(1)
    a = (rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3)) + 3 * np.eye(3)).astype("c8")
    for f in (
        lambda m, x: (m.abs(m.linalg.inv(x)) ** 2).sum(),
        lambda m, x: m.linalg.slogdet(x)[1],
        lambda m, x: (m.linalg.svd(x)[1] ** 3).sum(),
        lambda m, x: (m.linalg.eigvalsh(x) ** 3).sum(),
        lambda m, x: m.abs(m.linalg.cholesky(x @ x.conj().T)).sum(),
        lambda m, x: m.abs(m.linalg.qr(x)[1]).sum(),
    ):
        ours = lumjax.grad(lambda x: f(jnp, x))(jnp.asarray(a))
        theirs = jax.grad(lambda x: f(jax.numpy, x))(a)
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def test_equal_eigenvalues():
    """The values have derivatives there, the vectors have none, and none is made up."""
    slope = lumjax.grad(lambda x: jnp.linalg.eigh(x)[0].sum())(jnp.eye(3))
    np.testing.assert_allclose(slope, np.eye(3), atol=1e-6)
    x = jnp.eye(3)
    assert not np.isfinite(lumjax.grad(lambda x: jnp.linalg.eigh(x)[1][0, 1])(x)).all()


@pytest.mark.parametrize("imaginary", [0, 1j])
def test_eigenvectors_have_derivatives(imaginary):
    """Those of what LAPACK returns: vectors of norm 1 whose largest component is real."""
    rng = np.random.default_rng(0)
    draw = lambda: rng.normal(size=(2, 5, 5)) + imaginary * rng.normal(size=(2, 5, 5))
    with lumjax.enable_x64(True):
        a, t, e = draw(), draw(), 1e-6
        tangents = lumjax.jvp(lax.linalg.eig, (jnp.asarray(a),), (jnp.asarray(t),))[1]
        ends = [lax.linalg.eig(a + s * t * e / 2) for s in (1, -1)]
        for slope, high, low in zip(tangents, *ends, strict=True):
            np.testing.assert_allclose(slope, (high - low) / e, atol=1e-6)


def test_second_derivatives_and_vmap():
    a = OURS["spd"][0]
    theirs = jax.hessian(lambda x: jax.numpy.linalg.slogdet(x)[1])(np.asarray(a))
    ours = lumjax.hessian(lambda x: jnp.linalg.slogdet(x)[1])(a)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    mapped = lumjax.vmap(jnp.linalg.solve, (0, None))(OURS["sq"], OURS["vec"])
    np.testing.assert_allclose(mapped, jnp.linalg.solve(OURS["sq"], OURS["vec"]), rtol=1e-5)
    jitted = lumjax.jit(lambda x: jnp.linalg.inv(x) @ x)(OURS["sq"])
    np.testing.assert_allclose(jitted, np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-5)


def test_errors():
    with pytest.raises(ShapeError):
        jnp.linalg.inv(jnp.ones((2, 3)))
    with pytest.raises(ShapeError):
        jnp.linalg.solve(jnp.eye(3), jnp.ones((2, 2)))
    with pytest.raises(ShapeError):
        jnp.linalg.cholesky(jnp.ones(3))
    with pytest.raises(ShapeError):
        lax.linalg.triangular_solve(jnp.eye(3), jnp.ones((2, 2)))
    with pytest.raises(DTypeError):
        jnp.linalg.inv(jnp.ones((2, 2), jnp.bfloat16))
    with pytest.raises(ValueError):
        jnp.linalg.qr(jnp.eye(2), mode="odd")
    with pytest.raises(UnsupportedError):
        lumjax.grad(lambda x: jnp.linalg.svd(x)[0].sum())(jnp.ones((3, 2)))
    with pytest.raises(UnsupportedError):
        lumjax.grad(lambda x: jnp.linalg.qr(x, "complete")[0].sum())(jnp.ones((3, 2)))
    with pytest.raises(UnsupportedError):
        lumjax.grad(lambda x: jnp.linalg.eig(x)[1].real.sum())(jnp.eye(2))
