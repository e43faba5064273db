"""Programs as artefacts: one safetensors file with the program in core primitives, its plans and
the arrays it closed over, which runs wherever lumjax is installed.

    structure.py   pytree structures as JSON
    program.py     jaxprs as JSON, checked when they are read
    artefact.py    `export`, `load`, and what they make: `Exported`
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lumjax.exporting import artefact
from lumjax.exporting.artefact import Exported as Exported

__all__ = ["Exported", "export"]


def _staged(fun_jit: Any) -> Callable[..., Exported]:
    """A function that takes arguments, or ShapeDtypeStructs, and gives `fun_jit` at their signature
    as an `Exported`.

    >>> import lumjax, lumjax.numpy as jnp
    >>> lumjax.export.export(lumjax.jit(jnp.sin))(jnp.ones(2))
    Exported(sin: f32[2] -> f32[2])
    """
    return functools.partial(artefact.exported, fun_jit)


class _Export:
    """Jitted functions as artefacts that run where their source is not: `export` itself, and under
    JAX's names `export.export`, `export.deserialize` and `export.Exported`.
    """

    __call__ = staticmethod(artefact.export)
    load = deserialize = staticmethod(artefact.load)
    export = staticmethod(_staged)
    Exported = Exported

    def __init__(self) -> None:
        functools.update_wrapper(self, artefact.export)


export = _Export()
