"""The same source on lumjax and on JAX: a file loaded with its imports replaced."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import lumjax


def load(path: Path, modules: dict[str, Any]) -> Any:
    """The file as a module, with some imports replaced while it loads."""
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    name = f"{path.stem}_{'on_jax' if modules else 'on_lumjax'}"
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        for name, old in before.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old
    return module


def jax_modules() -> dict[str, Any]:
    """JAX and optax under the names that programs import."""
    import jax
    import optax

    stand_in = types.ModuleType("lumjax")
    for name in ("jit", "grad", "value_and_grad", "random", "lax", "nn", "tree", "vmap"):
        setattr(stand_in, name, getattr(jax, name))
    stand_in.optim = optax  # type: ignore[attr-defined]
    stand_in.train = lumjax.train  # type: ignore[attr-defined] - bars and files, whose framework is one
    stand_in.numpy = jax.numpy  # type: ignore[attr-defined]
    return {"lumjax": stand_in, "lumjax.numpy": jax.numpy}
