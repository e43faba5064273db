"""Bad input gets an exception that says operation, requirement, input, line and remedy."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import errors, lax
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConcretizationError,
    DTypeError,
    GradientError,
    LeakedTracerError,
    LumjaxError,
    ScalarRangeError,
    ShapeError,
    StaticArgumentError,
    TreeError,
    UnboundAxisError,
)
from lumjax.trace.core import active_traces

X = np.ones((3, 4), np.float32)
LEAK = []
DOT = jnp.vectorize(jnp.dot, signature="(n),(n)->()")


def leak():
    lumjax.jit(lambda x: LEAK.append(x))(1.0)
    return LEAK.pop() + 1


def branch_on_a_traced_value(x):
    return x if x > 0 else -x


CASES = {
    "shapes do not broadcast": (ShapeError, lambda: jnp.add(X, np.ones((2, 4)))),
    "operator, shapes": (ShapeError, lambda: jnp.asarray(X) + np.ones(3)),
    "matmul": (ShapeError, lambda: jnp.matmul(X, X)),
    "matmul of scalars": (ShapeError, lambda: jnp.matmul(X, 2.0)),
    "dot": (ShapeError, lambda: jnp.dot(X, X)),
    "reshape": (ShapeError, lambda: jnp.reshape(X, (5, 2))),
    "reshape with two unknowns": (ShapeError, lambda: jnp.reshape(X, (-1, -1))),
    "reshape order": (ArgumentValueError, lambda: jnp.reshape(X, (4, 3), order="Z")),
    "concatenate": (ShapeError, lambda: jnp.concatenate([X, np.ones((3, 3))], 0)),
    "concatenate nothing": (ArgumentValueError, lambda: jnp.concatenate([])),
    "concatenate scalars": (ShapeError, lambda: jnp.concatenate([1, 2])),
    "stack": (ShapeError, lambda: jnp.stack([X, np.ones(3)])),
    "split": (ShapeError, lambda: jnp.split(X, 5)),
    "broadcast_to": (ShapeError, lambda: jnp.broadcast_to(X, (3, 5))),
    "squeeze": (ShapeError, lambda: jnp.squeeze(X, 0)),
    "negative size": (ShapeError, lambda: jnp.zeros((-1, 2))),
    "axis": (ValueError, lambda: jnp.sum(X, 5)),
    "axis twice": (ValueError, lambda: jnp.sum(X, (0, 0))),
    "transpose": (ValueError, lambda: jnp.transpose(X, (0, 0))),
    "moveaxis": (ValueError, lambda: jnp.moveaxis(X, (0, 1), 0)),
    "take_along_axis": (ShapeError, lambda: jnp.take_along_axis(X, np.zeros(3, int), 0)),
    "take_along_axis float": (ArgumentTypeError, lambda: jnp.take_along_axis(X, X, 0)),
    "einsum": (ArgumentValueError, lambda: jnp.einsum("ijk->i", X)),
    "einsum output": (ArgumentValueError, lambda: jnp.einsum("ij->iz", X)),
    "einsum sizes": (ShapeError, lambda: jnp.einsum("ij,ij->", X, np.ones((3, 5)))),
    "einsum without string": (ArgumentTypeError, lambda: jnp.einsum(3, X)),
    "tensordot": (ValueError, lambda: jnp.tensordot(X, X, 3)),
    "cross": (ShapeError, lambda: jnp.cross(X, X)),
    "diag": (ShapeError, lambda: jnp.diag(np.ones((2, 2, 2)))),
    "tril": (ShapeError, lambda: jnp.tril(np.ones(3))),
    "norm": (ArgumentValueError, lambda: jnp.linalg.norm(X, "none")),
    "norm axes": (ShapeError, lambda: jnp.linalg.norm(np.ones((2, 2, 2)), 1)),
    "multi_dot": (ShapeError, lambda: jnp.linalg.multi_dot([X])),
    "max of nothing": (ArgumentValueError, lambda: jnp.max(np.ones((0,)))),
    "max where": (ArgumentValueError, lambda: jnp.max(X, where=X > 0)),
    "argmax of nothing": (ValueError, lambda: jnp.argmax(np.ones((0,)))),
    "weights": (ArgumentValueError, lambda: jnp.average(X, weights=np.ones(5))),
    "a list": (ArgumentTypeError, lambda: jnp.add([1, 2], "a")),
    "a string": (ArgumentTypeError, lambda: jnp.asarray("text")),
    "None": (ArgumentTypeError, lambda: jnp.asarray(None)),
    "a dict": (ArgumentTypeError, lambda: jnp.asarray({"a": 1})),
    "ragged": (ShapeError, lambda: jnp.array([[1, 2], [3]])),
    "objects": (ArgumentTypeError, lambda: jnp.array([1, "a"])),
    "list operand": (ArgumentTypeError, lambda: jnp.asarray(X) * [1, 2]),
    "bools do not subtract": (TypeError, lambda: jnp.subtract(True, False)),
    "shift floats": (TypeError, lambda: jnp.left_shift(X, 1)),
    "dtype": (DTypeError, lambda: jnp.zeros(2, "U3")),
    "too big": (ScalarRangeError, lambda: jnp.asarray(2**40)),
    "too big for int8": (OverflowError, lambda: jnp.asarray(np.ones(2, np.int8)) + 1000),
    "int64 array": (ScalarRangeError, lambda: jnp.asarray(np.array([2**40]))),
    "negative power": (ArgumentValueError, lambda: jnp.power(np.ones(2, int), -1)),
    "arange step": (ArgumentValueError, lambda: jnp.arange(0, 5, 0)),
    "linspace": (ArgumentValueError, lambda: jnp.linspace(0, 1, -1)),
    "meshgrid": (ArgumentValueError, lambda: jnp.meshgrid(X[0], indexing="zz")),
    "round": (ArgumentValueError, lambda: jnp.round(np.ones(2, int), -1)),
    "pad mode": (ArgumentValueError, lambda: jnp.pad(X, 1, mode="no")),
    "pad negative": (ArgumentValueError, lambda: jnp.pad(X, -1)),
    "quantile": (ArgumentValueError, lambda: jnp.quantile(X, 0.5, method="no")),
    "searchsorted": (ArgumentValueError, lambda: jnp.searchsorted(X[0], 1.0, side="middle")),
    "convolve": (ShapeError, lambda: jnp.convolve(X, X)),
    "convolve mode": (ArgumentValueError, lambda: jnp.convolve(X[0], X[0], mode="no")),
    "where with one": (ArgumentValueError, lambda: jnp.where(X > 0, 1.0)),
    "select": (ArgumentValueError, lambda: jnp.select([X > 0], [])),
    "vectorize signature": (ArgumentValueError, lambda: jnp.vectorize(len, signature="n->m")),
    "vectorize sizes": (ShapeError, lambda: DOT(X, X[:, :3])),
    "item": (ValueError, lambda: jnp.asarray(X).item()),
    "bool of an array": (ShapeError, lambda: bool(jnp.asarray(X))),
    "iterate a scalar": (TypeError, lambda: list(jnp.asarray(1.0))),
    "hash": (TypeError, lambda: hash(jnp.asarray(X))),
    # transformations
    "if under jit": (ConcretizationError, lambda: lumjax.jit(branch_on_a_traced_value)(1.0)),
    "float under jit": (ConcretizationError, lambda: lumjax.jit(float)(1.0)),
    "numpy under jit": (ConcretizationError, lambda: lumjax.jit(np.sin)(1.0)),
    "range under jit": (ConcretizationError, lambda: lumjax.jit(lambda n: [*range(n)])(3)),
    "arange under jit": (ConcretizationError, lambda: lumjax.jit(jnp.arange)(3)),
    "nonzero under jit": (ConcretizationError, lambda: lumjax.jit(jnp.nonzero)(X)),
    "unique under jit": (ConcretizationError, lambda: lumjax.jit(jnp.unique)(X)),
    "item under jit": (ConcretizationError, lambda: lumjax.jit(lambda x: x.item())(1.0)),
    "leak": (LeakedTracerError, leak),
    "jit of no function": (ArgumentTypeError, lambda: lumjax.jit(3)),
    "jit argument": (ArgumentTypeError, lambda: lumjax.jit(lambda x: x)("text")),
    "jit result": (ArgumentTypeError, lambda: lumjax.jit(lambda x: "text")(1.0)),
    "static": (StaticArgumentError, lambda: lumjax.jit(lambda x: 1, static_argnums=0)([1])),
    "grad of a vector": (GradientError, lambda: lumjax.grad(jnp.sin)(X)),
    "grad of an integer": (GradientError, lambda: lumjax.grad(lambda x: x * 1.0)(3)),
    "grad of no function": (TypeError, lambda: lumjax.grad(3)(1.0)),
    "vmap sizes": (ValueError, lambda: lumjax.vmap(jnp.add)(np.ones(3), np.ones(4))),
    "vmap of a scalar": (ValueError, lambda: lumjax.vmap(jnp.sin)(1.0)),
    "scan carry": (TypeError, lambda: lax.scan(lambda c, x: (c[None], x), 0.0, X)),
    "cond branches": (TypeError, lambda: lax.cond(True, lambda: 1.0, lambda: (1.0, 2.0))),
    "while carry": (TypeError, lambda: lax.while_loop(lambda c: c < 3, lambda c: (c, c), 0)),
    "axis name": (UnboundAxisError, lambda: lax.psum(1.0, "nobody")),
    "tree": (TreeError, lambda: lumjax.tree.map(lambda a, b: a, {"a": 1}, [1])),
    "tangent": (GradientError, lambda: lumjax.jvp(jnp.sin, (1.0,), (np.ones(2, np.float32),))),
    "reverse through while": (
        Exception,
        lambda: lumjax.grad(lambda x: lax.while_loop(lambda c: c < 5, lambda c: c * 2, x))(1.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name):
    kind, call = CASES[name]
    with pytest.raises(kind) as caught:
        call()
    assert len(active_traces()) == 1, "a transformation was left open"
    error = caught.value
    if name in ("iterate a scalar", "hash", "item"):
        return  # Python's and NumPy's own
    assert isinstance(error, LumjaxError)
    text = str(error)
    assert "requires" in text
    assert "got" in text
    assert error.operation
    assert error.fix
    assert re.search(r"test_errors\.py:\d+ in ", text), text
    assert float(lumjax.jit(lumjax.grad(jnp.sin))(0.0)) == 1.0  # nothing stays behind


def test_the_line_is_the_users():
    with pytest.raises(ShapeError) as caught:
        jnp.add(X, np.ones(7))
    assert caught.value.source.function == "test_the_line_is_the_users"


def test_errors_survive_pickling():
    with pytest.raises(ShapeError) as caught:
        jnp.add(X, np.ones(7))
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is ShapeError
    assert str(again) == str(caught.value)


def test_every_error_is_a_lumjax_error():
    for value in vars(errors).values():
        if (
            isinstance(value, type)
            and issubclass(value, Exception)
            and not issubclass(value, Warning)
            and value.__module__ == errors.__name__  # JAX's names may be Python's own classes
        ):
            assert issubclass(value, LumjaxError)
            assert value.__doc__


def test_jaxs_names():
    assert errors.TracerBoolConversionError is ConcretizationError
    assert errors.UnexpectedTracerError is LeakedTracerError
