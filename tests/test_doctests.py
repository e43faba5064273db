"""The examples in the public modules' docstrings run and say the truth."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "lumjax"


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = [
    module_name(p) for p in sorted(PACKAGE.rglob("*.py")) if ">>> " in p.read_text(encoding="utf-8")
]


def user_names():
    """What examples may name without importing it."""
    import lumjax
    import lumjax.numpy as jnp

    return {"lumjax": lumjax, "jnp": jnp, "lax": lumjax.lax, "np": np}


@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    result = doctest.testmod(
        module, optionflags=doctest.NORMALIZE_WHITESPACE, extraglobs=user_names()
    )
    assert result.failed == 0
