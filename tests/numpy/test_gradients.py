"""Gradients of public functions: against JAX's, compiled against eager, first and second order."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.testing import check_adjoint, check_grads
from tests.numpy.oracle import OURS, check, lines

FIRST = lines("""
    jnp.sum(jnp.hypot(x, p34))
    jnp.sum(jnp.logaddexp(x, g34))
    jnp.sum(jnp.logaddexp2(x, g34))
    jnp.sum(jnp.arctan2(x, g34))
    jnp.sum(jnp.sinc(x))
    jnp.sum(jnp.power(x, g34))
    jnp.sum(jnp.power(x, 3))
    jnp.sum(jnp.power(2.0, x))
    jnp.sum(jnp.float_power(x, 1.5))
    jnp.sum(jnp.remainder(x, 0.3) * g34)
    jnp.sum(jnp.fmod(x, 0.3) * g34)
    jnp.sum(jnp.log10(x) + jnp.log2(x))
    jnp.sum(jnp.fmax(x, 0.4) * jnp.fmin(x, 0.6))
    jnp.sum(jnp.copysign(x, g34))
    jnp.sum(jnp.nan_to_num(x) ** 2)
    jnp.sum(jnp.clip(x, 0.3, 0.6) * g34)
    jnp.sum(jnp.heaviside(x - 0.5, 0.5))
    jnp.sum(jnp.deg2rad(x) * jnp.reciprocal(x))
    jnp.sum(jnp.round(x) + jnp.floor(x) + jnp.sign(x))
    jnp.sum(jnp.modf(x * 3)[0] * g34)
    jnp.prod(x)
    jnp.sum(jnp.prod(x, axis=1))
    jnp.sum(jnp.var(x, axis=0) * jnp.std(x, axis=0))
    jnp.std(x, ddof=1)
    jnp.mean(x, where=b34)
    jnp.sum(jnp.max(x, axis=1) * jnp.min(x, axis=1))
    jnp.ptp(x)
    jnp.sum(jnp.cumsum(x, axis=1) * g34)
    jnp.sum(jnp.cumprod(x, axis=1) * g34)
    jnp.average(x, weights=p34)
    jnp.average(p34, weights=x)
    jnp.nanmean(x) + jnp.nansum(x)
    jnp.sum(jnp.diff(x) ** 2)
    jnp.sum(jnp.sort(x, axis=1) * g34)
    jnp.sum(jnp.sort(x, axis=0, descending=True) * g34)
    jnp.sum(x[:, jnp.array([0, 0, 3])] * f33[:, :3])
    jnp.sum(jnp.take(x, jnp.array([0, 2, 0]), axis=0) ** 2)
    jnp.sum(jnp.take_along_axis(x, jnp.argsort(g34, axis=1), 1) * g34)
    jnp.sum(x.at[0].set(3.0) * g34)
    jnp.sum(x.at[1, ::2].mul(x[0, :2]))
    jnp.sum(x.at[jnp.array([0, 0]), 1].add(x[1, :2]) * g34)
    jnp.sum(x.at[jnp.array([0, 0]), 1].max(x[1, :2]) * g34)
    jnp.sum(jnp.where(b34, x, x ** 2))
    jnp.sum(jnp.select([x > 0.6, x > 0.3], [x, x ** 2], 0.0))
    jnp.sum(jnp.roll(x, 1, axis=1) * g34)
    jnp.sum(jnp.flip(x, 0) * g34)
    jnp.sum(jnp.tile(x, (2, 1)) * jnp.concatenate([g34, f34]))
    jnp.sum(jnp.repeat(x, 2, axis=0) ** 2)
    jnp.sum(jnp.pad(x, 1, mode='reflect') ** 2)
    jnp.sum(jnp.pad(x, ((1, 2), (0, 1)), constant_values=2.0) ** 2)
    jnp.sum(jnp.tril(x) * g34)
    jnp.trace(x[:, :3]) + jnp.sum(jnp.diag(x))
    jnp.sum(jnp.diag(x[0]) * jnp.diag(x[1]))
    jnp.sum(jnp.matmul(x, f43) ** 2)
    jnp.sum(jnp.dot(f43, x) ** 2)
    jnp.sum(jnp.einsum('ij,kj->ik', x, x))
    jnp.sum(jnp.einsum('ij,ij->j', x, g34) ** 2)
    jnp.sum(jnp.tensordot(x, x, axes=([0], [0])))
    jnp.sum(jnp.inner(x, g34) * jnp.outer(x[:, 0], x[:, 1]))
    jnp.vdot(x, x)
    jnp.sum(jnp.kron(x, f14) ** 2)
    jnp.sum(jnp.cross(x[:, :3], f33) ** 2)
    jnp.linalg.norm(x)
    jnp.sum(jnp.linalg.norm(x, axis=1))
    jnp.linalg.norm(x, 1) + jnp.linalg.norm(x, jnp.inf)
    jnp.sum(jnp.linalg.norm(x, 3, axis=0))
    jnp.sum(jnp.linalg.matrix_power(x[:, :3], 3))
    jnp.sum(jnp.interp(x, jnp.array([0.0, 0.5, 1.0]), jnp.array([1.0, 5.0, 2.0])))
    jnp.sum(jnp.polyval(x[0], x[1]))
    jnp.sum(jnp.convolve(x[0], x[1]) ** 2)
    jnp.sum(jnp.gradient(x, axis=1) ** 2)
    jnp.trapezoid(x[0], x[1])
    jnp.quantile(x, 0.3) + jnp.median(x)
    jnp.sum(jnp.linspace(x[0], x[1], 3) ** 2)
    jnp.sum(jnp.stack([x, x ** 2], 1) * 2.0) + jnp.sum(jnp.hstack([x, x]) ** 2)
    jnp.sum(jnp.vectorize(jnp.dot, signature='(n),(n)->()')(x, g34))
    jnp.sum(jnp.apply_along_axis(jnp.cumsum, 0, x) * g34)
    jnp.sum(nn.softmax(x) * g34) + jnp.sum(nn.log_softmax(x) * g34) + nn.logsumexp(x)
    jnp.sum(nn.softmax(x, where=b34, axis=0) * g34)
    nn.logsumexp(x, b=g34 ** 2)
    jnp.sum(nn.standardize(x) * g34)
    jnp.sum(nn.gelu(x) + nn.gelu(x, approximate=False) + nn.silu(x) + nn.mish(x))
    jnp.sum(nn.celu(x - 0.5) + nn.elu(x - 0.5) + nn.selu(x - 0.5) + nn.squareplus(x))
    jnp.sum(nn.glu(x) ** 2)
    jnp.sum(lax.top_k(x, 2)[0] ** 2)
    jnp.sum(lax.cumlogsumexp(x, axis=1) * g34) + jnp.sum(lax.cummax(x, axis=1) * g34)
    jnp.sum(lax.erf_inv(x) + lax.lgamma(x) + lax.erfc(x) + lax.rsqrt(x))
    jnp.sum(lax.dynamic_slice(x, (1, 1), (2, 2)) ** 2)
    jnp.sum(lax.reduce(x, jnp.float32(1), lambda a, b: a * b, (1,)))
    jnp.sum(lax.associative_scan(lax.mul, x, axis=1) * g34)
    jnp.sum(jax.scipy.special.xlogy(x, p34) + jax.scipy.special.entr(x) + jax.scipy.special.ndtr(x))
    jnp.sum(jax.scipy.special.log_ndtr(x * 4 - 2) + jax.scipy.special.logit(x))
""")
SECOND = lines("""
    jnp.prod(x)
    jnp.sum(jnp.cumprod(x))
    jnp.linalg.norm(x)
    jnp.std(x)
    nn.logsumexp(x)
    jnp.sum(nn.softmax(x) * jnp.arange(4.0))
    jnp.sum(nn.log_softmax(x) * jnp.arange(4.0))
    jnp.sum(nn.softplus(x) * nn.gelu(x))
    jnp.sum(jnp.where(x > 0, jnp.sin(x) * x, x ** 3))
    jnp.sum(jnp.hypot(x, 2.0))
    jnp.sum(jnp.std(x[:, None] * x, axis=0, ddof=1))
    jnp.sum(jnp.power(jnp.abs(x), x))
    jnp.einsum('i,i,i->', x, x, x)
    jnp.sum(x.at[1].mul(x[0]) ** 2)
    jnp.sum(jnp.max(jnp.outer(x, x), axis=0))
    jnp.sum(jnp.logaddexp(x, x[::-1]))
""")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("body", FIRST)
def test_first_order(body):
    check(f"jax.grad(lambda x: {body})(p34)", 5e-5, signs=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("body", FIRST)
def test_compiled_is_eager(body):
    f = lumjax.value_and_grad(eval(f"lambda x: {body}", OURS))
    x = OURS["p34"]
    for eager, compiled in zip(f(x), lumjax.jit(f)(x), strict=True):
        assert (eager.shape, eager.dtype) == (compiled.shape, compiled.dtype)
        assert eager.weak_type == compiled.weak_type
        np.testing.assert_allclose(np.asarray(eager), np.asarray(compiled), rtol=3e-5, atol=3e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("body", SECOND)
def test_second_order(body):
    check(f"jax.hessian(lambda x: {body})(f4)", 2e-4, signs=False)


def test_ties_and_single_elements_at_second_order():
    """Halves of a tie sum to the first derivative, and to a wrong second one."""
    point = jnp.array([2.0, 2.0])
    plain = lumjax.hessian(lambda v: jnp.sqrt(v[0] ** 2 + v[1] ** 2))(point)
    for signs in ((1, 1), (1, -1), (-1, -1)):
        by = lambda v: jnp.hypot(v[0] * signs[0], v[1] * signs[1])
        np.testing.assert_allclose(lumjax.hessian(by)(point), plain, rtol=1e-6)
    assert lumjax.grad(lambda v: jnp.hypot(v[0], v[1]))(jnp.zeros(2)).tolist() == [0, 0]
    alone = lambda x: jnp.sum(jnp.std(x, axis=0) + jnp.std(x[0, 0]) + jnp.var(x, axis=0))
    np.testing.assert_array_equal(lumjax.hessian(alone)(jnp.ones((1, 3))), np.zeros((1, 3, 1, 3)))
    assert np.isnan(jnp.std(jnp.array([np.inf])))


COMPLEX = lines("""
    jnp.sin(z) * jnp.tan(w)
    jnp.tanh(z) + jnp.sinh(w)
    jnp.arcsin(z) * jnp.arccos(w)
    jnp.arctan(z) + jnp.arcsinh(w)
    jnp.arccosh(z) * jnp.arctanh(w)
    jnp.expm1(z) * jnp.log1p(w)
    jnp.exp2(z) * jnp.log2(w)
    jnp.sqrt(z) / jnp.log10(w)
    jnp.power(z, w)
    jnp.abs(z) ** w
    z ** 2.5 + w ** -3
    jnp.sinc(z) * jnp.sign(w)
    jnp.angle(z) + jnp.abs(w)
    jnp.conj(z) * jnp.reciprocal(w)
    jnp.cumprod(z) + jnp.cumsum(w)
    jnp.prod(z, axis=0) * jnp.mean(w)
    jnp.var(z) + jnp.std(w, axis=1)
    jnp.maximum(z, w) - jnp.minimum(z, w)
    jnp.logaddexp(z, w) * jnp.logaddexp2(z, w)
    jnp.matmul(z, w) + jnp.kron(z, w)[:3, :3]
    jnp.vdot(z, w) + jnp.vecdot(z, w)
    jnp.cross(z, w)
    jnp.convolve(z[0], w[0])
    jnp.cov(z) @ jnp.corrcoef(w)
    jnp.interp(jnp.array([0.5, 1.5]), jnp.arange(3.0), z[0])
    jnp.where(jnp.real(z) > 0, z * w, w)
    z.at[0, jnp.array([0, 0])].multiply(w[0, :2])
    jnp.linalg.inv(z) @ jnp.linalg.solve(w, z)
    jnp.linalg.det(z) * jnp.linalg.slogdet(w)[1]
    jnp.linalg.norm(z) + jnp.linalg.norm(w, 'nuc')
    jnp.linalg.cholesky(z @ jnp.conj(z).T + jnp.eye(3))
    jnp.abs(jnp.linalg.eigh(z + jnp.conj(z).T)[1])
    jnp.linalg.eigvals(z)
    jnp.abs(jnp.linalg.svd(z)[0])
    jnp.linalg.qr(z)[1] + jnp.linalg.pinv(w)
    jnp.fft.fft(z) * jnp.fft.ifft2(w)
    jnp.fft.irfft(z) + jnp.fft.hfft(w)
    nn.softmax(z) * nn.sigmoid(w)
""")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("body", COMPLEX)
def test_complex_functions_in_both_modes_and_orders(body):
    rng = np.random.default_rng(0)
    f = eval(f"lambda z, w: {body}", OURS)
    with lumjax.enable_x64(True):
        z, w = (jnp.asarray(rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))) for _ in "zw")
        check_grads(f, (z, w), order=2)
        check_adjoint(f, (z, w))


@pytest.mark.parametrize("wrong", [jnp.conj, lambda x: 1.01 * x, lambda x: 1j * x])
def test_a_wrong_complex_derivative_is_noticed(wrong):
    @lumjax.custom_jvp
    def f(z):
        return z * z

    f.defjvp(lambda primals, tangents: (f(*primals), 2 * wrong(primals[0]) * tangents[0]))
    with lumjax.enable_x64(True):
        z = jnp.asarray([1 + 2j, 3 - 1j])
        with pytest.raises(AssertionError):
            check_grads(f, (z,), modes=["rev"])
