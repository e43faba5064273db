"""The examples in the docstrings run."""

import doctest
import importlib

import pytest

MODULES = ["grad.forward", "grad.reverse", "grad.linear", "grad.jacobian", "trace.batch"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"lumjax.{name}")
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
