"""`jax.export`: jitted functions as artefacts, by `lumjax.export`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lumjax.errors import UnsupportedError
from lumjax.exporting import Exported as Exported
from lumjax.exporting import export as _export

__all__ = ["Exported", "deserialize", "export"]

deserialize = _export.deserialize


def export(
    fun_jit: Any, *, platforms: Sequence[str] | None = None, disabled_checks: Sequence[Any] = ()
) -> Callable[..., Exported]:
    """A function that takes arguments, or ShapeDtypeStructs, and gives `fun_jit` at their signature
    as an `Exported`.

    An artefact holds no code of a platform, so that `platforms` may name any that lumjax runs on;
    `disabled_checks` are accepted. Raises UnsupportedError for another platform.

    >>> import lumjax, lumjax.numpy as jnp
    >>> from lumjax.compat import export
    >>> made = export.export(lumjax.jit(jnp.sin), platforms=["cpu"])(jnp.ones(2))
    >>> export.deserialize(made.serialize()).call(jnp.zeros(2))
    Array([0., 0.], dtype=float32)
    """
    del disabled_checks
    other = sorted(set(platforms or ()) - {"cpu", "cuda"})
    if other:
        raise UnsupportedError(
            operation="jax.export.export", required="platforms 'cpu' and 'cuda'",
            got=", ".join(map(repr, other)), fix="leave them out",
        )  # fmt: skip
    return _export.export(fun_jit)
