"""What `import jax` gives: the names of `lumjax`, under the version of JAX that they follow."""

from __future__ import annotations

import importlib
from typing import Any

from lumjax.compat.internals.refs import Ref as Ref
from lumjax.compat.internals.refs import new_ref as new_ref
from lumjax.compat.modules import MODULES, VERSION

__path__: list[str] = []  # a package: its submodules come from the hook
__version__ = VERSION
__version_info__ = tuple(int(part) for part in VERSION.split("."))

_lumjax = importlib.import_module("lumjax")


def __getattr__(name: str) -> Any:
    """A name of lumjax, or a module that the hook knows."""
    if not name.startswith("__"):
        if f"jax.{name}" in MODULES:
            return importlib.import_module(MODULES[f"jax.{name}"])
        if hasattr(_lumjax, name):
            return getattr(_lumjax, name)
    raise AttributeError(f"module 'jax' (which is lumjax here) has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of lumjax and the modules."""
    modules = (m.split(".")[1] for m in MODULES if m.count(".") == 1 and m.startswith("jax."))
    return sorted({*dir(_lumjax), *modules})
