"""Running code written for JAX without changing it: `import jax` gives lumjax.

Three ways in: `lumjax.compat.install()` before the first `import jax`, `python -m lumjax.compat
script.py`, and `pytest -p lumjax.compat`.
"""

from __future__ import annotations

from typing import Any

from lumjax.compat.finder import install as install
from lumjax.compat.finder import installed as installed
from lumjax.compat.finder import uninstall as uninstall

__all__ = ["install", "installed", "uninstall"]


def pytest_addoption(parser: Any) -> None:
    """Install the hook for `pytest -p lumjax.compat`, ahead of other plugins and of any test."""
    del parser
    install()
