"""Bad input gives an exception that says operation, requirement, what was got, the line and the
remedy.
"""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import errors, lax, nn, random
from lumjax.trace.core import active_traces

x3, x4 = jnp.ones(3), jnp.ones(4)
square = jnp.ones((2, 2))
KEPT = []

CASES = {
    # wrong Python types
    "string operand": (lambda: jnp.sin("x"), errors.ArgumentTypeError),
    "list operand": (lambda: lax.add([1], [2]), errors.ArgumentTypeError),
    "None operand": (lambda: jnp.asarray(None), errors.ArgumentTypeError),
    "dict as array": (lambda: jnp.asarray({"a": 1}), errors.ArgumentTypeError),
    "not a function": (lambda: lumjax.grad(3), errors.ArgumentTypeError),
    "vmap of a number": (lambda: lumjax.vmap(3), errors.ArgumentTypeError),
    "ragged list": (lambda: jnp.array([[1, 2], [3]]), errors.ShapeError),
    # shapes
    "add": (lambda: x3 + x4, errors.ShapeError),
    "matmul": (lambda: x3 @ x4, errors.ShapeError),
    "reshape": (lambda: x4.reshape(3), errors.ShapeError),
    "concatenate": (lambda: jnp.concatenate([square, x3]), errors.ShapeError),
    "broadcast": (lambda: jnp.broadcast_to(x3, (4,)), errors.ShapeError),
    "einsum": (lambda: jnp.einsum("i,i->i", x3, x4), errors.ShapeError),
    "axis": (lambda: jnp.sum(x3, axis=1), errors.LumjaxError),
    "split": (lambda: jnp.split(x3, 2), errors.ShapeError),
    # dtypes
    "sine of integers": (lambda: lax.sin(jnp.arange(3)), errors.DTypeError),
    "float shift": (lambda: lax.shift_left(x3, x3), errors.DTypeError),
    "mixed lax": (lambda: lax.dynamic_slice(x3, (x3[0],), (1,)), errors.LumjaxError),
    "unknown dtype": (lambda: jnp.zeros(3, "object"), errors.DTypeError),
    "keys are not numbers": (lambda: random.key(0) + 1, errors.DTypeError),
    # pytrees
    "tree.map": (lambda: lumjax.tree.map(lambda a, b: a, {"a": 1}, {"b": 1}), errors.TreeError),
    "unsortable keys": (lambda: lumjax.tree.leaves({1: 1, "a": 2}), errors.TreeError),
    "jvp tangents": (lambda: lumjax.jvp(jnp.sin, (x3,), ((x3,),)), errors.TreeError),
    "in_axes": (lambda: lumjax.vmap(jnp.sin, in_axes=(0, 0))(x3), errors.LumjaxError),
    "scan carry": (
        lambda: lax.scan(lambda c, x: ((c, c), x), 0.0, x3),
        errors.LumjaxError,
    ),
    "cond branches": (
        lambda: lax.cond(True, lambda a: a, lambda a: (a, a), x3),
        errors.LumjaxError,
    ),
    # derivatives
    "vector loss": (lambda: lumjax.grad(jnp.sin)(x3), errors.GradientError),
    "integer grad": (lambda: lumjax.grad(lambda n: n * 1.0)(3), errors.GradientError),
    "tangent shape": (lambda: lumjax.jvp(jnp.sin, (x3,), (x4,)), errors.LumjaxError),
    "cotangent shape": (lambda: lumjax.vjp(jnp.sin, x3)[1](x4), errors.LumjaxError),
    "argnums": (lambda: lumjax.grad(jnp.sum, argnums=2)(x3), errors.LumjaxError),
    "aux": (lambda: lumjax.grad(jnp.sum, has_aux=True)(x3), errors.LumjaxError),
    "reverse through while": (
        lambda: lumjax.grad(lambda v: lax.while_loop(lambda u: u < 9, lambda u: u * 2, v))(1.0),
        errors.LumjaxError,
    ),
    # values that are not known
    "if": (lambda: lumjax.jit(lambda v: v if v > 0 else -v)(1.0), errors.ConcretizationError),
    "float()": (lambda: lumjax.jit(lambda v: float(v) or v)(1.0), errors.ConcretizationError),
    "traced shape": (lambda: lumjax.jit(lambda n: jnp.zeros(n) + 1)(3), errors.LumjaxError),
    "bool mask": (lambda: lumjax.jit(lambda v: v[v > 0])(x3), errors.ConcretizationError),
    "leaked": (lambda: (lumjax.jit(KEPT.append)(1.0), KEPT.pop() + 1), errors.LumjaxError),
    # sizes and indices
    "negative size": (lambda: jnp.zeros(-1), errors.LumjaxError),
    "negative length": (
        lambda: lax.scan(lambda c, _: (c, c), 0.0, None, length=-1),
        errors.LumjaxError,
    ),
    "index": (lambda: x3[3], errors.IndexRangeError),
    "index array": (lambda: x3[jnp.array([0, 7])], errors.IndexRangeError),
    "update index": (lambda: x3.at[5].set(1.0), errors.IndexRangeError),
    "too many indices": (lambda: x3[0, 0], errors.IndexRangeError),
    "float index": (lambda: x3[1.5], errors.ArgumentTypeError),
    # statics, results, names
    "unhashable": (
        lambda: lumjax.jit(lambda v, n: v, static_argnums=1)(x3, []),
        errors.StaticArgumentError,
    ),
    "returns a string": (lambda: lumjax.jit(lambda v: "no")(x3), errors.ArgumentTypeError),
    "unbound axis": (lambda: lax.psum(x3, "nowhere"), errors.UnboundAxisError),
    "sizes differ": (lambda: lumjax.vmap(jnp.add)(x3, x4), errors.LumjaxError),
    "bad key": (lambda: random.normal(3, (2,)), errors.ArgumentTypeError),
    "setting": (lambda: lumjax.config.update("no_such", 1), errors.ArgumentValueError),
    "softmax axis": (lambda: nn.softmax(x3, axis=4), errors.LumjaxError),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name):
    call, kind = CASES[name]
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert isinstance(error, errors.LumjaxError)
    for part in (error.operation, error.required, error.got, error.fix):
        assert part, f"{name}: {error}"
    assert error.source is not None
    assert error.source.file == __file__, f"{name} blames {error.source}"
    assert len(active_traces()) == 1


@pytest.mark.parametrize("builtin", [TypeError, ValueError, IndexError])
def test_errors_are_also_builtin_ones(builtin):
    cases = {TypeError: "string operand", ValueError: "add", IndexError: "index"}
    with pytest.raises(builtin):
        CASES[cases[builtin]][0]()


def test_arrays_are_immutable():
    with pytest.raises(TypeError, match=r"\.at\[index\]\.set"):
        x3[0] = 1.0
    assert not np.asarray(x3).flags.writeable or np.asarray(x3).base is None
