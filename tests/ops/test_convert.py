"""What Python sees of an array: truth, numbers, length, text; and of a traced one, an error."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax import ops
from lumjax.errors import ArgumentTypeError, ConcretizationError, ShapeError
from lumjax.grad.forward import jvp
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.stage import stage


def array(*values: Any, dtype: Any = np.float32) -> Array:
    return Array(np.array(values, dtype))


def test_scalars_convert():
    x = Array(np.asarray(2.5, np.float32))
    assert (bool(x), int(x), float(x), complex(x)) == (True, 2, 2.5, 2.5 + 0j)
    assert float(array(3)) == 3.0  # any array of one element
    assert operator.index(Array(np.asarray(3, np.int32))) == 3
    assert [10, 20, 30][Array(np.asarray(1, np.uint8))] == 20
    assert not array(0)
    assert complex(Array(np.asarray(1 + 2j, np.complex64))) == 1 + 2j


def test_conversions_that_make_no_sense():
    with pytest.raises(ShapeError, match=r"bool.*one element.*any"):
        bool(array(1, 2))
    with pytest.raises(ShapeError):
        bool(array())
    with pytest.raises(ArgumentTypeError, match="real"):
        float(Array(np.asarray(1j, np.complex64)))
    with pytest.raises(ArgumentTypeError, match="integer array"):
        operator.index(Array(np.asarray(1.0, np.float32)))
    with pytest.raises(ArgumentTypeError):
        operator.index(array(1, dtype=np.int32))
    with pytest.raises(ArgumentTypeError, match=r"len.*size"):
        len(Array(np.asarray(1.0, np.float32)))
    assert len(array(1, 2)) == 2


def test_numpy_conversion_is_read_only():
    x = array(1, 2)
    view = np.asarray(x)
    assert np.shares_memory(view, x.data)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 3
    wide = np.asarray(x, np.float64)
    assert wide.dtype == np.float64
    copy = np.array(x)
    copy[0] = 3
    assert x.data.tolist() == [1, 2]
    assert np.sin(x).tolist() == np.sin(x.data).tolist()


def test_text():
    assert repr(array(1, 2)) == "Array([1., 2.], dtype=float32)"
    assert (
        repr(Array(np.asarray(1, np.int32), weak=True)) == "Array(1, dtype=int32, weak_type=True)"
    )
    assert repr(Array(np.ones((2, 0), np.float32))) == "Array([], shape=(2, 0), dtype=float32)"
    assert repr(ops.cast(array(1.5), dt.bfloat16)) == "Array([1.5], dtype=bfloat16)"
    assert "key<fry>" in repr(Array(np.zeros(2, dt.key)))
    assert str(array(1, 2)) == "[1. 2.]"
    assert f"{Array(np.asarray(1.25, np.float32)):.1f}" == "1.2"
    assert f"{array(1, 2)}" == "[1. 2.]"


CONVERSIONS = {
    "bool": (bool, r"lax\.cond"),
    "int": (int, "static_argnames"),
    "float": (float, "outside the transformed function"),
    "complex": (complex, "outside"),
    "index": (operator.index, r"jnp\.take"),
    "numpy": (np.asarray, "instead of numpy"),
}


@pytest.mark.parametrize("kind", CONVERSIONS)
def test_traced_values_are_not_concrete(kind: str):
    convert, remedy = CONVERSIONS[kind]
    aval = ShapedArray((), dt.int32)
    with pytest.raises(ConcretizationError, match=remedy) as caught:
        stage(lambda x: [convert(x)], [aval])
    assert "i32[]" in str(caught.value)
    assert caught.value.source is not None
    assert caught.value.source.file == __file__


def test_tracers_have_text_and_length():
    def look(x: Any) -> Any:
        assert repr(x) == str(x) == f"{x}" == "StageTracer<f32[3]>"
        assert len(x) == 3
        return [x]

    stage(look, [ShapedArray((3,), dt.float32)])


def test_eager_derivatives_let_python_see_values():
    def f(x: Any) -> Any:
        return ops.mul(x, x) if x > 0 else ops.neg(x)

    assert float(jvp(f, (np.float32(3),), (np.float32(1),))[1]) == 6
    assert float(jvp(f, (np.float32(-3),), (np.float32(1),))[1]) == -1
