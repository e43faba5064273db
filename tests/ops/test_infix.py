"""Python's operators: dtypes as in JAX, values as in NumPy; what is not an array is refused."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax import ops
from lumjax.config import config
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DTypeError,
    ScalarRangeError,
    ShapeError,
)
from lumjax.trace.array import Array
from lumjax.trace.core import aval_of
from lumjax.trace.stage import stage

pytestmark = pytest.mark.sampled(3)

OPERATORS = (
    operator.add, operator.sub, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.lt, operator.eq, operator.and_, operator.lshift,
)  # fmt: skip
OPERANDS: list[Any] = [
    np.array([True, False, True]), np.array([1, 2, 7], np.int8), np.array([3, 1, 2], np.uint8),
    np.array([-7, 2, 5], np.int32), np.array([3, 4, 5], np.uint32),
    np.array([0.5, -2.0, 3.0], np.float16), np.array([1.5, -2.0, 0.25], np.float32),
    np.array([1 + 2j, -1j, 2], np.complex64), 2, 2.5, True, 1j,
]  # fmt: skip


def dtype_of(f: Any, *args: Any) -> tuple[str, bool] | str:
    try:
        out = f(*args)
    except (TypeError, ValueError):
        return "refused"
    weak = out.weak if isinstance(out, Array) else out.weak_type
    return str(out.dtype), weak and out.dtype != bool  # the weakness of a bool has no meaning


def pairs() -> list[Any]:
    found = []
    for x, y in itertools.product(OPERANDS, OPERANDS):
        if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
            names = [v.dtype.name if isinstance(v, np.ndarray) else repr(v) for v in (x, y)]
            found.append(pytest.param(x, y, id="-".join(names)))
    return found


@pytest.mark.parametrize(("x", "y"), pairs())
def test_dtypes_agree_with_jax(x: Any, y: Any):
    jax = pytest.importorskip("jax")
    given = [isinstance(v, np.ndarray) for v in (x, y)]

    def theirs(f: Any) -> Any:
        def call(*arrays: Any) -> Any:
            rest = list(arrays)
            return f(*[rest.pop(0) if g else v for g, v in zip(given, (x, y), strict=True)])

        return jax.eval_shape(call, *[v for g, v in zip(given, (x, y), strict=True) if g])

    for f in OPERATORS:
        if f is operator.pow and not given[0]:
            continue  # there JAX forgets that a Python base is weak
        ours = dtype_of(f, *[Array(v) if g else v for g, v in zip(given, (x, y), strict=True)])
        assert ours == dtype_of(theirs, f), f.__name__


REALS = [v for v in OPERANDS if isinstance(v, np.ndarray) and v.dtype.kind in "iuf"]


@pytest.mark.parametrize("x", REALS, ids=lambda v: v.dtype.name)
def test_values_agree_with_numpy(x: np.ndarray):
    y = np.array([2, 3, 4], x.dtype)
    for f in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod,
              operator.pow, operator.lt, operator.le, operator.gt, operator.ge, operator.eq,
              operator.ne, operator.truediv):  # fmt: skip
        found, want = np.asarray(f(Array(x), Array(y))), f(x, y)
        np.testing.assert_allclose(
            found, want.astype(found.dtype), rtol=1e-3 if x.itemsize == 2 else 1e-6
        )


def test_complex_numbers_are_ordered_as_in_numpy():
    x = np.array([1 + 2j, 1 - 1j, 0 + 5j], np.complex64)
    for f in (operator.lt, operator.le, operator.gt, operator.ge):
        for y in (np.array([1 + 1j, 1 - 1j, 1 + 0j], np.complex64), 1 + 0j):
            assert np.asarray(f(Array(x), y)).tolist() == f(x, np.complex64(y)).tolist()
        assert np.asarray(f(Array(np.array([0.5, 2], np.float32)), 1 + 0j)).tolist() == [
            f(0.5, 1), f(2, 1)]  # fmt: skip


def test_shifts():
    x = Array(np.array([-8, 8], np.int32))
    assert (x >> 1).data.tolist() == [-4, 4]
    assert (x << 1).data.tolist() == [-16, 16]
    assert (1 << Array(np.array([3, 40], np.int32))).data.tolist() == [8, 0]
    assert (Array(np.array([248], np.uint8)) >> 1).data.tolist() == [124]
    assert (Array(np.array([True])) << 2).data.tolist() == [4]


def test_unary_operators():
    x = Array(np.array([-1.5, 2.0], np.float32))
    assert (-x).data.tolist() == [1.5, -2.0]
    assert abs(x).data.tolist() == [1.5, 2.0]
    assert (+x) is x
    assert (~Array(np.array([0, 5], np.int32))).data.tolist() == [-1, -6]
    assert abs(Array(np.array([True]))).data.tolist() == [True]
    with pytest.raises(DTypeError, match="not"):
        ~x
    with pytest.raises(DTypeError, match="neg"):
        -Array(np.array([True]))


def test_bools_add_by_or_and_multiply_by_and():
    x, y = Array(np.array([True, False])), Array(np.array([True, True]))
    assert (x + y).data.tolist() == [True, True]
    assert (x * y).data.tolist() == [True, False]
    assert (x + 1).data.tolist() == [2, 1]
    assert (x * 2.0).dtype == dt.float32
    with pytest.raises(DTypeError, match="sub"):
        x - y


def test_divmod_and_reflected_operators():
    x = Array(np.array([7, -7], np.int32))
    q, r = divmod(x, 3)
    assert (q.data.tolist(), r.data.tolist()) == ([2, -3], [1, 2])
    q, r = divmod(10, Array(np.array([3.0, -3.0], np.float32)))
    assert (q.data.tolist(), r.data.tolist()) == ([3, -4], [1, -2])
    assert (2 - x).data.tolist() == [-5, 9]
    assert (2**x).data.tolist() == [128, 0]
    assert (np.float32(2) * Array(np.ones(2, np.float32))).data.tolist() == [2, 2]
    assert (np.array([1, 2], np.int32) + x).data.tolist() == [8, -5]


def test_integers_divided_by_zero():
    x = Array(np.array([5, -5, 0], np.int32))
    assert (x // 0).data.tolist() == [-1, -1, -1]
    assert (x % 0).data.tolist() == [0, 0, 0]
    assert (Array(np.array([True])) // True).data.tolist() == [1]
    assert (Array(np.array([9], np.uint8)) // 2).data.tolist() == [4]


def test_powers():
    x = Array(np.array([2.0, -3.0], np.float32))
    assert [e.prim.name for e in stage(lambda v: [v**3], [aval_of(x)]).jaxpr.eqns] == [
        "integer_pow"
    ]
    assert (x**-1).data.tolist() == [0.5, np.float32(-1 / 3)]
    assert (x**0).data.tolist() == [1, 1]
    with pytest.raises(ArgumentValueError, match="nonnegative exponent"):
        Array(np.array([2], np.int32)) ** -1
    assert x.__pow__(2, 5) is NotImplemented


SHAPES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)), ((3,), (5, 3, 4)), ((0, 3), (3, 2)), ((2, 0), (0, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_matmul_agrees_with_numpy(a: tuple[int, ...], b: tuple[int, ...]):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=a).astype(np.float32), rng.normal(size=b).astype(np.float32)
    out = Array(x) @ Array(y)
    assert out.shape == (x @ y).shape
    np.testing.assert_allclose(out.data, x @ y, rtol=1e-5, atol=1e-5)


def test_matmul_refuses_scalars_and_misfits():
    x = Array(np.ones((2, 3), np.float32))
    with pytest.raises(ShapeError, match="matmul"):
        x @ 2.0
    with pytest.raises(ShapeError):
        x @ x


@pytest.mark.parametrize("other", [[1, 2], (1, 2), None, "a", {"a": 1}, b"x", {1}], ids=repr)
def test_what_is_not_a_number_is_refused(other: Any):
    x = Array(np.ones(2, np.float32))
    for f in (operator.add, operator.pow, operator.lt, operator.matmul, operator.mod):
        with pytest.raises(ArgumentTypeError, match=type(other).__name__):
            f(x, other)
    with pytest.raises(TypeError):
        other - x


def test_equality_with_other_things():
    x = Array(np.ones(2, np.float32))
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    with pytest.raises(ArgumentTypeError, match="list"):
        x == [1, 1]


def test_other_libraries_types_may_answer():
    class Unit:
        def __radd__(self, other: Any) -> str:
            return "answered"

    class Wrapped:
        def __jax_array__(self) -> Any:
            return Array(np.ones(2, np.float32))

    x = Array(np.ones(2, np.float32))
    assert x + Unit() == "answered"
    assert (x + Wrapped()).data.tolist() == [2, 2]


def test_python_numbers_must_fit():
    x = Array(np.ones(2, np.int8))
    with pytest.raises(ScalarRangeError, match=r"int8.*got 300"):
        x + 300
    with pytest.raises(OverflowError):
        Array(np.ones(2, np.uint8)) * -1
    with pytest.raises(ScalarRangeError, match="enable_x64"):
        ops.add(np.array([2**40]), 1)
    with pytest.raises(ScalarRangeError):
        ops.asvalue(2**40)
    with config.scope(enable_x64=True):
        assert ops.add(np.array([2**40]), 1).data.tolist() == [2**40 + 1]
    big = Array(np.ones(2, np.float32)) * 1e300
    assert np.isinf(big.data).all()


def test_shapes_must_broadcast():
    with pytest.raises(ShapeError, match=r"\(2\) and \(3\)"):
        Array(np.ones(2, np.float32)) + Array(np.ones(3, np.float32))
    assert (Array(np.ones((2, 1))) + Array(np.ones(3))).shape == (2, 3)
    assert (Array(np.ones((0, 1))) + Array(np.ones(3))).shape == (0, 3)
