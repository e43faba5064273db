"""Values of requests and answers, and what is no value."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from lumjax import tree
from lumjax.serve.values import Form, RequestError
from lumjax.trace.aval import ShapedArray
from tests.strategies import arrays, pytrees


def form(state, axis=None):
    leaves, treedef = tree.flatten(state)
    return Form(treedef, tuple(ShapedArray(np.shape(x), np.asarray(x).dtype) for x in leaves), axis)


@given(state=pytrees(arrays()))
def test_both_forms_come_back(state):
    f, leaves = form(state), [np.asarray(x) for x in tree.leaves(state)]
    if any(x.dtype.kind == "c" for x in leaves):
        return
    for found in (
        f.from_value(json.loads(f.to_json(leaves))),
        f.from_tensors(f.to_tensors(leaves)),
    ):
        for a, b in zip(found, leaves, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_numbers_without_a_word_in_json(dtype):
    value = np.array([1, np.nan, np.inf, -np.inf], dtype)
    f = form([value])
    text = f.to_json([value])
    assert json.loads(text) == [[1, "NaN", "Infinity", "-Infinity"]]
    (found,) = f.from_value(json.loads(text))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float64), value.astype(np.float64))


GOOD = {"x": np.zeros((2, 3), np.float32), "n": np.int8(0), "flag": np.array([True])}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"x": [[1, 2], [3, 4]]}, "the shape"),
        ({"x": [[1, 2, 3], [4, 5]]}, "no array of numbers"),
        ({"x": [["1", 2, 3], [4, 5, 6]]}, "no array of numbers"),
        ({"x": [[None, 2, 3], [4, 5, 6]]}, "no array of numbers"),
        ({"x": {"a": 1}}, "no array of numbers"),
        ({"n": 1.5}, "elements of int8"),
        ({"n": 300}, "numbers within int8"),
        ({"n": True}, "elements of int8"),
        ({"n": 10**30}, "elements of int8"),
        ({"flag": [1]}, "elements of bool"),
        ({"flag": [[True]]}, "the shape"),
        ({"more": 1}, "an object with the names"),
    ],
)
def test_values_of_another_form(change, text):
    value = {"x": [[1, 2, 3], [4, 5, 6]], "n": 3, "flag": [False]}
    assert len(form(GOOD).from_value(value)) == 3
    with pytest.raises(RequestError, match=text):
        form(GOOD).from_value(value | change)
    with pytest.raises(RequestError, match="names"):
        form(GOOD).from_value([value])


def test_rows_are_free_up_to_the_type():
    f = form([np.zeros((2, 5), np.float32)], axis=1)
    assert f.from_value([[[1, 2, 3], [4, 5, 6]]])[0].shape == (2, 3)
    for value in ([[[], []]], [[[1] * 6] * 2]):
        with pytest.raises(RequestError, match="1 to 5 rows along axis 1"):
            f.from_value(value)


def test_tensors_of_another_form():
    f = form({"x": np.zeros(3, np.float32)})
    for leaves, text in ([np.zeros(3)], "float32"), ([np.zeros(4, np.float32)], "the shape"):
        with pytest.raises(RequestError, match=text):
            f.from_tensors(f.to_tensors(leaves))
    with pytest.raises(RequestError, match="tensors"):
        f.from_tensors(form({"y": 0}).to_tensors([np.zeros(3, np.float32)]))
    with pytest.raises(RequestError, match="no safetensors file"):
        f.from_tensors(b"nothing")
