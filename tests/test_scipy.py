"""Special functions against JAX's."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.errors import ArgumentValueError, ShapeError, UnsupportedError
from tests.numpy.oracle import check, lines


@pytest.mark.parametrize(
    "expression",
    lines("""
    jax.scipy.special.logsumexp(f34, axis=1)
    jax.scipy.special.gammaln(p34 * 9)
    jax.scipy.special.digamma(p34 * 9)
    jax.scipy.special.erf(f34)
    jax.scipy.special.erfc(f34)
    jax.scipy.special.erfinv(p34)
    jax.scipy.special.expit(f34)
    jax.scipy.special.logit(p34)
    jax.scipy.special.xlogy(p34, p34)
    jax.scipy.special.xlogy(jnp.zeros(2), jnp.array([0.0, 2.0]))
    jax.scipy.special.xlog1py(p34, p34)
    jax.scipy.special.xlog1py(jnp.zeros(2), jnp.array([-1.0, 2.0]))
    jax.scipy.special.entr(p34)
    jax.scipy.special.entr(jnp.array([-1.0, 0.0]))
    jax.scipy.special.ndtr(f34)
    jax.scipy.special.ndtr(jnp.array([-9.0, 0.1, 9.0]))
    jax.scipy.special.log_ndtr(f34)
    jax.scipy.special.log_ndtr(jnp.array([-30.0, -12.0, -3.0, 0.0, 4.0, 7.0]))
    jax.grad(lambda x: jnp.sum(jax.scipy.special.xlogy(x, x)))(p34)
    jax.grad(lambda x: jnp.sum(jax.scipy.special.log_ndtr(x)))(jnp.array([-30.0, -3.0, 0.0, 7.0]))
    jax.scipy.special.gamma(jnp.array([0.5, 4.0, -1.5, 0.0]))
    jax.scipy.special.gammasgn(jnp.array([0.5, -0.5, -1.0, -0.0]))
    jax.scipy.special.factorial(jnp.array([0, 3, 5]))
    jax.scipy.special.beta(p34, p34)
    jax.scipy.special.betaln(p34 * 9, j34)
    jax.scipy.special.betainc(p34, p34 + 1, p34)
    jax.scipy.special.gammainc(p34 * 5, jnp.abs(f34))
    jax.scipy.special.gammaincc(p34 * 5, jnp.abs(f34))
    jax.scipy.special.gammainc(jnp.array([0.0, 1.0, -1.0]), jnp.array([1.0, 0.0, 1.0]))
    jax.scipy.special.multigammaln(p34 * 9 + 2, 3)
    jax.scipy.special.poch(p34, j34)
    jax.scipy.special.polygamma(jnp.array([0, 1, 2, 3]), jnp.array([0.5, 1.5, 2.5, 3.5]))
    jax.scipy.special.zeta(jnp.array([1.5, 2.0, 4.0]), jnp.array([1.0, 2.5, 0.5]))
    jax.scipy.special.ndtri(jnp.array([0.001, 0.3, 0.5, 0.99]))
    jax.scipy.special.rel_entr(p34, p34.T.reshape(3, 4))
    jax.scipy.special.kl_div(jnp.array([0.0, 1.0, -1.0]), jnp.array([1.0, 2.0, 1.0]))
    jax.scipy.special.i0(f34)
    jax.scipy.special.i0e(f34)
    jax.scipy.special.i1(f34)
    jax.scipy.special.i1e(f34)
    jax.scipy.special.exp1(p34)
    jax.scipy.special.expi(f34)
    jax.scipy.special.expn(jnp.array([1, 2, 3]), jnp.array([0.5, 1.0, 2.0]))
    jax.scipy.special.softmax(f34, axis=0)
    jax.scipy.special.log_softmax(f34)
    jax.scipy.special.i0e(f0)
    jax.grad(lambda x: jnp.sum(jax.scipy.special.i1e(x)))(f34)
    jax.grad(lambda x: jnp.sum(jax.scipy.special.gammainc(x, p34)))(p34)
    jax.grad(lambda x: jnp.sum(jax.scipy.special.betainc(p34, p34, x)))(p34)
    jax.scipy.stats.norm.logpdf(f34, 1.0, 2.0)
    jax.scipy.stats.norm.pdf(f34)
    jax.scipy.stats.norm.cdf(f34, 0.5)
    jax.scipy.stats.norm.logcdf(f34)
    jax.scipy.stats.norm.sf(f34)
    jax.scipy.stats.norm.logsf(f34)
    jax.scipy.stats.norm.ppf(p34, 1.0, 2.0)
    jax.scipy.stats.norm.isf(p34)
    jax.scipy.stats.beta.logpdf(f34, j34, 2.0, 0.0, 2.0)
    jax.scipy.stats.beta.logsf(p34, 0.5, j34)
    jax.scipy.stats.gamma.logpdf(f34, j34, -1.0, 2.0)
    jax.scipy.stats.gamma.logcdf(f34, 2.5, -1.0)
    jax.scipy.stats.chi2.logsf(p34, 3)
    jax.scipy.stats.poisson.logpmf(i34, p34)
    jax.scipy.stats.poisson.cdf(i34, p34, 1)
    jax.scipy.stats.t.logpdf(f34, j34, 1.0, 2.0)
    jax.scipy.stats.dirichlet.logpdf(jnp.array([[0.25, 0.5], [0.5, 0.1]]), jnp.array([1.0, 2, 3]))
    jax.scipy.stats.dirichlet.pdf(jnp.array([0.25, 0.25, 0.6]), jnp.array([1.0, 2, 3]))
    jax.scipy.stats.multivariate_normal.logpdf(f43, jnp.arange(3.0), f33 @ f33.T)
    jax.scipy.stats.multivariate_normal.pdf(f34, 1.0, 2.0)
    jax.scipy.stats.multivariate_normal.logpdf(f34, f4, 2.0)
    jax.grad(lambda x: jnp.sum(jax.scipy.stats.gamma.logpdf(x, 2.0, 0.5)))(f34)
    jax.grad(lambda x: jnp.sum(jax.scipy.stats.beta.pdf(x, 2.0, 3.0)))(f34)
    jax.scipy.linalg.cholesky(f33 @ f33.T)
    jax.scipy.linalg.cho_factor(f33 @ f33.T, lower=True)
    jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(f33 @ f33.T), f34)
    jax.scipy.linalg.cho_solve((jnp.tril(f33), True), f34[:, 0])
    jax.scipy.linalg.solve_triangular(f33, f34)
    jax.scipy.linalg.solve_triangular(f33, f34[:, 0], trans='T', lower=True)
    jax.scipy.linalg.solve(f33, f34)
    jax.scipy.linalg.solve(f33 @ f33.T, f34, assume_a='pos')
    jax.scipy.linalg.lu_factor(f33)
    jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(f33), f34, 1)
    jax.scipy.linalg.lu(f34)
    jax.scipy.linalg.lu(f43, permute_l=True)
    jax.scipy.linalg.eigh(f33 + f33.T, eigvals_only=True)
    jax.scipy.linalg.inv(f33)
    jax.scipy.linalg.det(f33)
    jax.scipy.linalg.block_diag(f33, f4, 2)
    jax.scipy.fft.dct(f34)
    jax.scipy.fft.dct(f34, axis=0, norm='ortho')
    jax.scipy.fft.dct(f4, n=7)
    jax.scipy.fft.idct(f34)
    jax.scipy.fft.idct(f34, axis=0, norm='ortho')
    jax.scipy.fft.dct(c4)
    jax.grad(lambda x: (jax.scipy.fft.idct(x) ** 2).sum())(f34)
    jax.nn.log1mexp(p34)
    jax.scipy.linalg.toeplitz(f4)
    jax.scipy.linalg.toeplitz(f4, f4[:2])
    jax.scipy.linalg.svd(f34, compute_uv=False)
    jax.scipy.linalg.solve_sylvester(f33, jnp.eye(4) * 3, f34)
    jax.scipy.linalg.sqrtm(f33 @ f33.T + jnp.eye(3))
    jax.scipy.signal.convolve(f34, f43[:2, :3], mode='same')
    jax.scipy.signal.convolve(f4, f4[:2], mode='valid')
    jax.scipy.signal.convolve(i4, i4, mode='full')
    jax.scipy.signal.correlate(f234, f234[:, :2], mode='full')
    jax.scipy.signal.convolve2d(f34, f33)
    jax.scipy.signal.correlate2d(f34, f33[:2], mode='valid')
    jax.scipy.signal.fftconvolve(f34, f33, mode='same')
    jax.scipy.signal.fftconvolve(f34, f33[:, :2], axes=1)
    jax.grad(lambda x: jnp.sum(jax.scipy.signal.convolve(x, f33, 'same') ** 2))(f34)
"""),
)
def test_expressions(expression):
    # JAX is 2e-5 off for log_ndtr far to the left.
    check(expression, 2e-4 if "linalg" in expression else 3e-5, signs=False)


def test_distributions_beyond_jax():
    import scipy.stats

    from lumjax.scipy import stats

    rng = np.random.default_rng(0)
    x, p, q = 3 * rng.normal(size=8), *rng.uniform(0.5, 3, size=(2, 8))
    with lumjax.enable_x64(True):
        for name in ("cdf", "sf", "logcdf", "logsf"):
            ours = getattr(stats.t, name)(x, p, 0.3, q)
            np.testing.assert_allclose(ours, getattr(scipy.stats.t, name)(x, p, 0.3, q), rtol=1e-9)
        far = stats.t.sf(1e6, 2.0)
        np.testing.assert_allclose(far, scipy.stats.t.sf(1e6, 2.0), rtol=1e-9)
        a = rng.normal(size=(3, 3))
        cov = a @ a.T
        ours = stats.multivariate_normal.entropy(jnp.zeros(3), cov)
        np.testing.assert_allclose(ours, scipy.stats.multivariate_normal.entropy(None, cov))
        flat = stats.multivariate_normal.entropy(jnp.zeros(2), 1.0)
        assert flat == stats.multivariate_normal.entropy(cov=jnp.eye(2))
    for wrong in (jnp.ones((2, 2)), jnp.ones(3)):
        with pytest.raises(ShapeError):
            stats.multivariate_normal.logpdf(jnp.ones(3), jnp.ones(3), wrong)
    with pytest.raises(ShapeError):
        stats.dirichlet.logpdf(jnp.ones(4) / 4, jnp.ones(3))
    with pytest.raises(UnsupportedError):
        stats.multivariate_normal.logpdf(jnp.ones(3), jnp.ones(3), jnp.eye(3), allow_singular=True)


def test_square_roots_and_sylvester_equations_have_derivatives():
    """Of first and second order, in both modes, real and complex."""
    from lumjax.scipy import linalg
    from lumjax.testing import check_grads

    rng = np.random.default_rng(0)
    with lumjax.enable_x64(True):
        a, b, c = (jnp.asarray(rng.normal(size=s)) for s in ((3, 3), (2, 2), (3, 2)))
        check_grads(linalg.solve_sylvester, (a, b, c), order=2)
        check_grads(lambda x: jnp.abs(linalg.sqrtm(x)), (a,), order=2)
        root = linalg.sqrtm(a * 1j)
        np.testing.assert_allclose(root @ root, a * 1j, atol=1e-12)
        assert np.isnan(linalg.sqrtm(jnp.full((2, 2), np.nan))).all()
        nothing = linalg.solve_sylvester(jnp.eye(2), -jnp.eye(2), jnp.ones((2, 2)))
        assert not (np.abs(nothing) < 1e6).any()
    for wrong in (lambda: linalg.solve_sylvester(a, a, c), lambda: linalg.sqrtm(c)):
        with pytest.raises(ShapeError):
            wrong()


def test_convolutions_that_cannot_be():
    from lumjax.scipy import signal

    x = jnp.ones((3, 3))
    for wrong in (
        lambda: signal.convolve(x, jnp.ones(2)),
        lambda: signal.convolve(x, jnp.ones((4, 2)), "valid"),
        lambda: signal.convolve(x, jnp.ones((0, 2))),
        lambda: signal.convolve2d(x[0], x[0]),
        lambda: signal.convolve(x, x, "most"),
        lambda: signal.convolve(x, x, method="guess"),
        lambda: signal.convolve2d(x, x, boundary="wrap"),
    ):
        with pytest.raises((ShapeError, ArgumentValueError, UnsupportedError)):
            wrong()
