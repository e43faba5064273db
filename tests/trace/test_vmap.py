"""The public vmap: axes, prefixes, sizes, names, nesting, and its errors."""

import collections

import numpy as np
import pytest

from lumjax import random
from lumjax.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    LeakedTracerError,
    ShapeError,
    TreeError,
)
from lumjax.grad.reverse import grad
from lumjax.ops import axis_index, psum
from lumjax.trace.array import Array
from lumjax.trace.batch import vmap
from lumjax.trace.core import EvalTrace, active_traces, aval_of, current
from lumjax.trace.stage import stage
from tests.grad.words import ops as n

Pair = collections.namedtuple("Pair", "a b")


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def value(x):
    return np.asarray(x.data if isinstance(x, Array) else x)


@pytest.fixture(autouse=True)
def clean_stack():
    yield
    assert len(active_traces()) == 1
    assert isinstance(current(), EvalTrace)


def test_maps_axis_0_by_default():
    x, y = rand(5, 3), rand(5, 3, seed=1)
    out = vmap(lambda a, b: n.add(n.sin(a), b))(x, y)
    np.testing.assert_allclose(value(out), np.sin(x) + y, rtol=1e-6)


def test_the_function_sees_one_example():
    seen = []

    def f(x):
        seen.append(aval_of(x).shape)
        return x

    vmap(f, in_axes=1)(rand(2, 5, 3))
    assert seen == [(2, 3)]


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("out_axis", [0, 1, 2, -1, -3])
def test_every_axis(axis, out_axis):
    x = rand(2, 3, 4)
    out = vmap(n.sin, in_axes=axis, out_axes=out_axis)(x)
    np.testing.assert_allclose(value(out), np.moveaxis(np.sin(x), axis, out_axis), rtol=1e-6)


def test_shared_arguments():
    x, w = rand(5, 3), rand(3, 2)
    out = vmap(n.dot, in_axes=(0, None))(x, w)
    np.testing.assert_allclose(value(out), x @ w, rtol=1e-5)
    out = vmap(n.dot, in_axes=[None, 1], out_axes=1)(x, w)
    np.testing.assert_allclose(value(out), x @ w, rtol=1e-5)


def test_scalars_numbers_and_integers():
    out = vmap(n.multiply, in_axes=(0, None))(np.arange(4), 3)
    assert value(out).tolist() == [0, 3, 6, 9]
    assert value(out).dtype == np.int32


def test_pytrees_and_prefixes():
    args = {"p": Pair(rand(4, 2), rand(2)), "q": rand(3, 4)}

    def f(d):
        return {"s": n.add(d["p"].a, d["p"].b), "t": (n.sum(d["q"]), d["q"])}

    axes = ({"p": Pair(0, None), "q": 1},)
    out = vmap(f, in_axes=axes, out_axes={"s": 1, "t": (0, 1)})(args)
    np.testing.assert_allclose(value(out["s"]), (args["p"].a + args["p"].b).T)
    np.testing.assert_allclose(value(out["t"][0]), args["q"].sum(0), rtol=1e-5)
    np.testing.assert_allclose(value(out["t"][1]), args["q"])


def test_none_is_an_empty_pytree():
    out = vmap(lambda x, nothing: (x, nothing))(np.arange(3), None)
    assert out[1] is None


def test_keyword_arguments_map_over_axis_0():
    out = vmap(lambda x, *, y: n.add(x, y))(np.arange(3), y=np.arange(3))
    assert value(out).tolist() == [0, 2, 4]


def test_an_output_without_the_axis_is_repeated_or_kept():
    x = rand(3)
    assert value(vmap(lambda x: 2.0)(x)).tolist() == [2.0, 2.0, 2.0]
    assert value(vmap(lambda x: np.ones(2), out_axes=1)(x)).shape == (2, 3)
    assert float(value(vmap(lambda x: 2.0, out_axes=None)(x))) == 2.0


def test_axis_size_alone():
    out = vmap(n.sin, in_axes=None, axis_size=4)(rand(2))
    assert value(out).shape == (4, 2)
    assert value(vmap(lambda: 1.0, axis_size=2)()).tolist() == [1.0, 1.0]


def test_size_zero():
    assert value(vmap(n.sin)(np.zeros((0, 3), np.float32))).shape == (0, 3)


def test_nesting():
    x, y = rand(3), rand(4)
    outer = vmap(vmap(n.multiply, in_axes=(None, 0)), in_axes=(0, None))
    np.testing.assert_allclose(value(outer(x, y)), np.outer(x, y), rtol=1e-6)
    crossed = vmap(lambda a: vmap(lambda b: n.multiply(a, b))(y))
    np.testing.assert_allclose(value(crossed(x)), np.outer(x, y), rtol=1e-6)


def test_under_staging():
    staged = stage(lambda x: [vmap(n.sin, out_axes=1)(x)], [aval_of(rand(3, 2))])
    assert staged.jaxpr.out_avals[0].shape == (2, 3)


def test_keeps_the_functions_name():
    def energy(x):
        """Of a state."""
        return x

    assert vmap(energy).__name__ == "energy"
    assert vmap(energy).__doc__ == "Of a state."


def test_spmd_axis_name_is_ignored():
    assert value(vmap(n.sin, spmd_axis_name="devices")(rand(3))).shape == (3,)


def test_sizes_that_differ_name_every_argument():
    with pytest.raises(ShapeError) as error:
        vmap(lambda x, y: x)(rand(3), {"a": rand(4), "b": rand(3, 4)})
    text = str(error.value)
    assert "axis 0 of argument x, f32[3], has size 3" in text
    assert "axis 0 of argument y['a'], f32[4], has size 4" in text
    assert "test_vmap.py" in text


def test_sizes_that_differ_from_axis_size_and_in_keywords():
    with pytest.raises(ShapeError, match="axis_size is 4; axis 0 of argument x,"):
        vmap(lambda x: x, axis_size=4)(rand(3))
    with pytest.raises(ShapeError, match=r"argument key\[1\], f32\[4\]"):
        vmap(lambda x, *, key: x)(rand(3), key=[rand(3), rand(4)])
    with pytest.raises(ShapeError, match=r"argument args\[1\], f32\[4\]"):
        vmap(lambda *xs: xs[0])(rand(3), rand(4))
    with pytest.raises(ShapeError, match=r"argument args\[1\], f32\[4\]"):
        vmap(max)(rand(3), rand(4))


@pytest.mark.parametrize("axes", ["a", 1.5, {"a": 0}, (0, "b")])
def test_in_axes_of_a_wrong_type(axes):
    with pytest.raises(ArgumentTypeError, match="in_axes"):
        vmap(lambda x: x, in_axes=axes)


def test_out_axes_of_a_wrong_type():
    with pytest.raises(ArgumentTypeError, match="out_axes"):
        vmap(lambda x: x, out_axes="a")


def test_not_a_function():
    with pytest.raises(ArgumentTypeError, match="vmap: requires a function"):
        vmap(3)


def test_axis_that_an_argument_lacks():
    with pytest.raises(ShapeError, match=r"axis 1.*f32\[3\] with 1 axes"):
        vmap(lambda x: x, in_axes=1)(rand(3))
    with pytest.raises(ShapeError, match="axis 0"):
        vmap(lambda x: x)(3.0)


def test_number_of_in_axes():
    with pytest.raises(ArgumentValueError, match="for each of the 1 positional"):
        vmap(lambda x: x, in_axes=(0, 0))(rand(3))


def test_prefix_errors():
    with pytest.raises(TreeError, match="vmap in_axes"):
        vmap(lambda x: x, in_axes=({"a": 0},))(rand(3))
    with pytest.raises(TreeError, match="vmap out_axes"):
        vmap(lambda x: x, out_axes=(0, 0))(rand(3))


def test_nothing_to_map():
    with pytest.raises(ArgumentValueError, match="at least one mapped argument"):
        vmap(lambda x: x, in_axes=None)(rand(3))
    with pytest.raises(ArgumentValueError, match="0 arguments"):
        vmap(lambda: 1.0)()


def test_output_errors():
    with pytest.raises(ArgumentValueError, match="out_axes is None"):
        vmap(lambda x: x, out_axes=None)(rand(3))
    with pytest.raises(ShapeError, match=r"out_axes in \[-1, 1\)"):
        vmap(lambda x: x, out_axes=2)(rand(3))
    with pytest.raises(ArgumentTypeError, match="output of a function under vmap"):
        vmap(lambda x: "text")(rand(3))


def test_arguments_that_are_no_arrays():
    with pytest.raises(ArgumentTypeError, match="argument of a function under vmap"):
        vmap(lambda x: x)("text")


def test_leaked_tracers():
    kept = []
    vmap(lambda x: kept.append(x) or x)(rand(3))
    with pytest.raises(LeakedTracerError):
        vmap(lambda x: kept[0])(rand(3))
    with pytest.raises(LeakedTracerError):
        vmap(lambda x: x)(kept[0])


def test_state_after_an_exception():
    def f(x):
        raise KeyError("user")

    with pytest.raises(KeyError):
        vmap(vmap(f))(rand(2, 2))
    assert value(vmap(n.sin)(rand(3))).shape == (3,)


def test_axis_names():
    x = np.arange(4, dtype=np.float32)
    share = vmap(lambda x: n.divide(x, psum(x, "i")), axis_name="i")
    np.testing.assert_allclose(value(share(x)), x / x.sum(), rtol=1e-6)
    both = vmap(vmap(lambda x: psum(x, ("i", "j")), axis_name="j"), axis_name="i")
    assert value(both(np.ones((2, 3), np.float32))).tolist() == [[6.0] * 3] * 2
    # The same function under two sizes.
    count = lambda: psum(1, "i")
    assert value(vmap(count, axis_size=2, axis_name="i")()).tolist() == [2, 2]
    assert value(vmap(count, axis_size=4, axis_name="i")()).tolist() == [4] * 4
    place = vmap(lambda: axis_index("i"), axis_size=3, axis_name="i")()
    assert value(place).tolist() == [0, 1, 2]


def test_axis_names_under_derivatives():
    loss = lambda x: psum(n.square(x), "i")
    inside = vmap(grad(loss), axis_name="i")(np.arange(3, dtype=np.float32))
    assert value(inside).tolist() == [0.0, 6.0, 12.0]  # the transpose of psum is psum
    outside = grad(lambda x: n.take(vmap(loss, axis_name="i")(x), 0))(np.ones(3, np.float32))
    assert value(outside).tolist() == [2.0, 2.0, 2.0]


def test_keys():
    keys = random.split(random.key(0), 3)
    drawn = vmap(random.uniform)(keys)
    assert value(drawn).shape == (3,)
    assert float(value(drawn)[1]) == float(value(random.uniform(keys[1])))
