"""Strategies: what is drawn is legal, and properties of gradients are tests."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import settings

import lumjax
import lumjax.numpy as jnp
from lumjax.testing import gradient_property
from lumjax.testing.strategies import arrays, shapes

SMALL = shapes(2, sizes=(0, 1, 2, 3))


@settings(max_examples=20)
@gradient_property(arrays("float32", SMALL), order=2)
def test_a_smooth_function(x):
    return jnp.sum(jnp.sin(x) * x)


@settings(max_examples=20)
@gradient_property(arrays("float32", (3,)), arrays("float32", (3,)))
def test_two_arguments(x, y):
    return jnp.tanh(x @ y), x * y


@lumjax.custom_jvp
def bent(x):
    return jnp.square(x)


bent.defjvp(lambda primals, tangents: (bent(*primals), 3 * primals[0] * tangents[0]))


def test_a_wrong_derivative_is_found():
    @gradient_property(arrays("float32", (2,)))
    def check(x):
        """What it is about."""
        return bent(x)

    assert (check.__name__, check.__doc__) == ("check", "What it is about.")
    assert not inspect.signature(check).parameters  # nothing that pytest would have to supply
    with pytest.raises(AssertionError):
        check()
