"""The public surface: every name of the checked-in list exists, and jax's top level behaves."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.errors import ArgumentTypeError, ArgumentValueError, ConcretizationError
from lumjax.numpy.updates import AtIndex

pytestmark = pytest.mark.sampled(4)

GOLDEN = Path(__file__).parent / "golden"
NAMES = (GOLDEN / "api_names.txt").read_text().split()
MISSING = GOLDEN / "api_missing.tsv"


def resolve(name: str):
    """What `jax.X` or `jnp.X` is called here."""
    if name.startswith(".at[]."):
        return getattr(AtIndex, name.rpartition(".")[2])
    found: object = lumjax
    path = "lumjax"
    for part in name.replace("jnp.", "jax.numpy.").split(".")[1:]:
        path = f"{path}.{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_names_resolve(name):
    resolve(name)


def test_the_list_of_missing_names_is_current():
    """Each has a reason; a name that exists has left the list."""
    rows = [line.split("\t") for line in MISSING.read_text().splitlines()]
    assert all(len(row) == 2 and row[1] for row in rows)
    for name, _ in rows:
        assert name not in NAMES
        with pytest.raises((AttributeError, ImportError)):
            resolve(name)


# ---- looking at functions


def test_eval_shape():
    out = lumjax.eval_shape(
        lambda p, x: {"y": jnp.dot(x, p["w"]), "n": x.ndim},
        {"w": lumjax.ShapeDtypeStruct((3, 2), jnp.bfloat16)},
        np.ones((5, 3), np.float32),
    )
    assert out["y"] == lumjax.ShapeDtypeStruct((5, 2), "float32")
    assert out["n"].weak_type
    assert out["n"].shape == ()


def test_eval_shape_does_not_compute():
    big = lumjax.ShapeDtypeStruct((10**6, 10**6), "float32")
    assert lumjax.eval_shape(lambda x: x @ x.T, big).shape == (10**6, 10**6)


def test_eval_shape_rejects_what_is_no_array():
    with pytest.raises(ArgumentTypeError):
        lumjax.eval_shape(lambda x: "text", 1.0)
    with pytest.raises(ArgumentTypeError):
        lumjax.eval_shape("f", 1.0)


def test_shape_dtype_struct():
    s = lumjax.ShapeDtypeStruct((2, 3), np.float64)
    assert s.dtype == np.float32
    assert (s.size, s.ndim, len(s)) == (6, 2, 2)
    assert s.update(shape=(4,)).shape == (4,)
    assert hash(s) == hash(lumjax.ShapeDtypeStruct([2, 3], "float32"))
    assert s != (2, 3)
    with pytest.raises(TypeError):
        len(s.update(shape=()))


def test_make_jaxpr():
    closed = lumjax.make_jaxpr(lambda x, n: x * n + jnp.arange(3.0), static_argnums=1)(
        jnp.ones(3), 4
    )
    assert [str(a) for a in closed.out_avals] == ["f32[3]"]
    assert len(closed.in_avals) == 1
    assert "mul" in str(closed)
    closed, shape = lumjax.make_jaxpr(lambda x: (x, x[0]), return_shape=True)(jnp.ones(3))
    assert shape[1] == lumjax.ShapeDtypeStruct((), "float32")


def test_make_jaxpr_in_a_named_axis():
    closed = lumjax.make_jaxpr(lambda x: lumjax.lax.psum(x, "i"), axis_env=[("i", 4)])(
        1.5 * jnp.ones(2)
    )
    assert "psum" in str(closed)


CORE = {
    "exp2", "log2", "sin", "recip", "sqrt", "add", "mul", "rem", "lt", "reduce_sum", "reduce_max",
    "select", "cast", "iota", "broadcast_in_dim", "reshape", "transpose", "slice", "pad", "rev",
    "concatenate", "and", "or", "xor", "not", "shift_left", "shift_right_logical", "idiv", "floor",
    "eq", "max", "gather", "scatter", "sort", "cond", "while", "scan", "dot_general", "full",
}  # fmt: skip


@pytest.mark.parametrize("f", [
    lambda x: jnp.tanh(x), lambda x: jnp.exp(x) / jnp.log(x), lambda x: lumjax.nn.softmax(x),
    lambda x: lumjax.nn.gelu(x), lambda x: x**3 - jnp.cos(x), lambda x: lumjax.jit(jnp.log1p)(x),
    lambda x: lumjax.lax.fori_loop(0, 3, lambda i, v: jnp.expm1(v), x),
    lambda x: lumjax.lax.cond(x[0] > 0, jnp.sinh, jnp.cosh, x),
    lambda x: lumjax.lax.scan(lambda c, _: (jnp.tanh(c), None), x, None, length=99)[0],
    lambda x: jnp.outer(x, x) @ x, lambda x: ((x[:, None] > x) @ (x > 1.0)) * x,
])  # fmt: skip
def test_core_level_has_core_primitives_only(f):
    from lumjax.trace.core import eval_jaxpr, sub_jaxprs

    x = jnp.asarray(np.linspace(0.2, 1.5, 5).astype("f4"))
    closed = lumjax.make_jaxpr(f, level="core")(x)

    def names(jaxpr):
        found = {e.prim.name for e in jaxpr.eqns}
        return found.union(*(names(j) for e in jaxpr.eqns for j in sub_jaxprs(e.params)))

    assert names(closed.jaxpr) <= CORE
    (out,) = eval_jaxpr(closed.jaxpr, [*closed.consts, x])
    np.testing.assert_allclose(np.asarray(out), np.asarray(f(x)), rtol=2e-5)


def test_unknown_level():
    with pytest.raises(ArgumentValueError):
        lumjax.make_jaxpr(jnp.sin, level="low")


# ---- scopes


def test_ensure_compile_time_eval():
    def f(x):
        with lumjax.ensure_compile_time_eval():
            n = jnp.arange(4).sum()
            assert int(n) == 6
        return x * int(n)

    assert float(lumjax.jit(f)(2.0)) == 12.0
    assert float(lumjax.grad(f)(2.0)) == 6.0
    with pytest.raises(ConcretizationError):
        lumjax.jit(lambda x: int(jnp.sum(x)))(1.0)


def test_named_scope_and_named_call_are_spans():
    from lumjax import profiler

    profiler.clear()
    with lumjax.named_scope("outer"), lumjax.named_scope("inner"):
        pass
    assert [(s.name, s.depth) for s in profiler.spans()] == [("inner", 1), ("outer", 0)]
    assert lumjax.named_call(lambda x: x + 1, name="inc")(1) == 2
    assert profiler.spans()[-1].name == "inc"
    assert lumjax.named_scope("deco")(lambda: 5)() == 5
    with pytest.raises(ArgumentTypeError), lumjax.named_scope(3):
        pass


def test_step_annotations():
    from lumjax import profiler

    with profiler.StepTraceAnnotation("train", step_num=7):
        pass
    span = profiler.spans()[-1]
    assert (span.name, span.details) == ("train", {"step_num": 7})
    assert span.seconds >= 0
    assert profiler.annotate_function(len, name="n")([1]) == 1
    assert profiler.spans()[-1].name == "n"


# ---- devices


def test_one_device():
    assert lumjax.device_count() == lumjax.local_device_count() == len(lumjax.devices()) == 1
    assert lumjax.process_index() == 0
    assert lumjax.process_count() == 1
    assert lumjax.devices()[0].platform == lumjax.default_backend()
    assert lumjax.local_devices() == lumjax.devices("cpu")
    assert jnp.ones(2).devices() == {jnp.ones(2).device} == set(lumjax.devices())
    with pytest.raises(ValueError, match="backend"):
        lumjax.devices("tpu")


def test_device_put_and_get():
    tree = lumjax.device_put({"a": np.arange(3), "b": 2.0})
    assert isinstance(tree["a"], lumjax.Array)
    back = lumjax.device_get({**tree, "c": "text"})
    assert isinstance(back["a"], np.ndarray)
    assert back["c"] == "text"
    assert lumjax.block_until_ready(tree) is tree
    assert lumjax.jit(lambda x: lumjax.device_put(x) + 1)(1.0) == 2.0


# ---- types


def test_array_is_the_type_of_all_arrays():
    seen = []

    def f(x):
        seen.append(isinstance(x, lumjax.Array) and isinstance(x, jnp.ndarray))
        return x * 2.0

    lumjax.jit(f)(1.0)
    lumjax.grad(f)(1.0)
    lumjax.vmap(f)(jnp.ones(2))
    assert seen == [True] * 3
    assert not isinstance(np.ones(2), lumjax.Array)
    assert jnp.ndarray is lumjax.Array
    assert issubclass(type(jnp.ones(2)), lumjax.Array)
    with pytest.raises(TypeError):
        lumjax.Array()


def test_ravel_pytree():
    from lumjax.errors import DTypeError, ShapeError
    from lumjax.flatten_util import ravel_pytree

    params = {"w": jnp.ones((2, 3)), "b": jnp.arange(2, dtype=jnp.int32), "n": None}
    flat, unravel = ravel_pytree(params)
    assert flat.shape == (8,)
    assert flat.dtype == np.float32
    back = unravel(flat * 2)
    assert back["b"].dtype == np.int32
    assert back["b"].tolist() == [0, 2]
    assert back["w"].tolist() == [[2.0] * 3] * 2
    with pytest.raises(ShapeError):
        unravel(flat[:-1])
    with pytest.raises(DTypeError):
        unravel(flat.astype(jnp.bfloat16))
    gradient = lumjax.grad(lambda v: (unravel(v)["w"] ** 2).sum())(flat)
    assert gradient.tolist() == [0.0, 0.0] + [2.0] * 6
    assert ravel_pytree(())[0].shape == (0,)


def test_what_is_not_mapped_may_be_anything():
    x = jnp.arange(6.0).reshape(2, 3)
    for f in (jnp.sum, jnp.max):
        found = lumjax.vmap(lambda f, v, name: f(v) + len(name), (None, 0, None))(f, x, "ab")
        np.testing.assert_array_equal(found, f(x, axis=1) + 2)
    with pytest.raises(lumjax.errors.ArgumentTypeError, match="arrays or numbers"):
        lumjax.vmap(lambda f, v: f(v))(jnp.sum, x)
    with pytest.raises(lumjax.errors.ShapeError, match="axis 0 of argument v"):
        lumjax.vmap(lambda f, v, w: f(v + w), (None, 0, 0))(jnp.sum, x, x[:1])
