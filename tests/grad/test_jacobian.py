"""jacfwd, jacrev, hessian: trees, dtypes, aux, errors. (Values: test_oracle.)"""

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.errors import ArgumentTypeError, ArgumentValueError, GradientError
from lumjax.grad.jacobian import hessian, jacfwd, jacrev
from lumjax.ops.elementwise import add, cast, mul, sin
from lumjax.ops.parts import real
from lumjax.trace.core import active_traces, aval_of
from lumjax.trace.stage import stage
from tests.grad.words import ops as n

BOTH = pytest.mark.parametrize("jacobian", [jacfwd, jacrev])
X = np.array([1.0, 2.0], np.float32)


@pytest.fixture(autouse=True)
def clean_stack():
    yield
    assert len(active_traces()) == 1


@BOTH
def test_shape_is_output_then_input(jacobian):
    out = jacobian(lambda x: n.reshape(mul(x, x), (1, 6)))(np.ones((3, 2), np.float32))
    assert out.shape == (1, 6, 3, 2)
    np.testing.assert_array_equal(out.data.reshape(6, 6), 2 * np.eye(6, dtype=np.float32))


@BOTH
def test_scalars_and_size_zero(jacobian):
    assert float(jacobian(sin)(0.0).data) == 1.0
    assert jacobian(sin)(np.zeros((0,), np.float32)).shape == (0, 0)
    assert jacobian(lambda x: (sin(x), n.sum(x)))(np.zeros((0, 2), np.float32))[1].shape == (0, 2)


@BOTH
def test_aux(jacobian):
    out, aux = jacobian(lambda x: (mul(x, x), (x, "note")), has_aux=True)(X)
    np.testing.assert_array_equal(out.data, np.diag(2 * X))
    np.testing.assert_array_equal(aux[0].data, X)
    assert aux[1] == "note"


def test_hessian_with_aux():
    out, aux = hessian(lambda x: (n.sum(mul(x, mul(x, x))), "note"), has_aux=True)(X)
    np.testing.assert_array_equal(out.data, np.diag(6 * X))
    assert aux == "note"


@BOTH
def test_constant_outputs(jacobian):
    out = jacobian(lambda x: (x, np.ones(3, np.float32)))(X)
    np.testing.assert_array_equal(out[0].data, np.eye(2))
    np.testing.assert_array_equal(out[1].data, np.zeros((3, 2)))


@BOTH
def test_dtypes_of_mixed_inputs(jacobian):
    def f(x, y):
        return add(n.sum(cast(x, dt.float32)), mul(y, 2.0))

    out = jacobian(f, (0, 1))(np.ones(2, dt.bfloat16), np.ones(3, np.float32))
    assert [o.shape for o in out] == [(3, 2), (3, 3)]
    assert out[1].data.tolist() == (2 * np.eye(3)).tolist()
    assert out[0].data.astype(np.float32).tolist() == [[1.0, 1.0]] * 3


@BOTH
def test_holomorphic(jacobian):
    z = np.array([1 + 1j, 2.0], np.complex64)
    out = jacobian(lambda z: mul(z, z), holomorphic=True)(z)
    np.testing.assert_allclose(out.data, np.diag(2 * z))


def test_holomorphic_hessian():
    out = hessian(lambda z: mul(mul(z, z), z), holomorphic=True)(np.complex64(1j))
    assert complex(out.data) == 6j


def test_jacrev_allows_integers_when_told():
    out = jacrev(lambda x, k: mul(x, x), (0, 1), allow_int=True)(X, np.arange(3))
    np.testing.assert_array_equal(out[0].data, np.diag(2 * X))
    assert out[1].dtype == dt.float0
    assert out[1].shape == (2, 3)


def test_jacrev_of_a_real_function_of_complex_input():
    out = jacrev(lambda z: real(mul(z, z)))(np.complex64(1 + 2j))
    assert complex(out.data) == 2 * (1 + 2j)


@BOTH
def test_staged_without_large_constants(jacobian):
    staged = stage(lambda x: [jacobian(sin)(x)], [aval_of(np.ones(50, np.float32))])
    assert all(aval_of(c).size <= 1 for c in staged.consts)


@BOTH
def test_keyword_arguments_and_names(jacobian):
    def f(x, *, scale):
        return mul(x, scale)

    assert jacobian(f)(X, scale=3.0).data.tolist() == [[3.0, 0.0], [0.0, 3.0]]
    assert jacobian(f).__name__ == f"{jacobian.__name__}(f)"


def test_x64():
    with config.scope(enable_x64=True):
        assert hessian(lambda x: mul(x, mul(x, x)))(np.float64(2.0)).dtype == np.float64


@BOTH
def test_bad_input(jacobian):
    name = jacobian.__name__
    with pytest.raises(ArgumentTypeError, match=f"{name}: requires a function"):
        jacobian(3)
    with pytest.raises(ArgumentTypeError, match=f"{name}: requires argnums"):
        jacobian(sin, "x")
    with pytest.raises(ArgumentValueError, match=f"{name}: requires a positional argument"):
        jacobian(sin, 1)(X)
    with pytest.raises(
        GradientError, match=rf"{name}: requires real floating inputs; got i32\[3\]"
    ):
        jacobian(sin)(np.arange(3))
    with pytest.raises(GradientError, match=f"{name}: requires real floating outputs; got bool"):
        jacobian(lambda x: n.greater(x, 0.0))(X)
    with pytest.raises(GradientError, match="complex inputs"):
        jacobian(sin, holomorphic=True)(X)
    with pytest.raises(GradientError, match="complex outputs"):
        jacobian(real, holomorphic=True)(X.astype(np.complex64))
    with pytest.raises(GradientError, match="real floating outputs"):
        jacobian(lambda x: mul(x, 1j))(X)


def test_jacfwd_needs_real_inputs():
    with pytest.raises(GradientError, match="real floating inputs; got c64"):
        jacfwd(real)(np.complex64(1.0))
