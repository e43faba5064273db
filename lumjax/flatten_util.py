"""A pytree as one vector and back: ravel_pytree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops, tree
from lumjax.errors import DTypeError, ShapeError
from lumjax.trace.core import aval_of


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The leaves of `pytree` joined into one vector of their common dtype, and the way back.

    The returned function takes a vector of the same shape and dtype and gives a pytree of the
    original structure, shapes and dtypes. Raises ShapeError or DTypeError for another vector.

    >>> flat, unravel = ravel_pytree({"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)})
    >>> flat
    Array([1., 2., 3.], dtype=float32)
    >>> unravel(flat)["b"]
    Array(3., dtype=float32)
    """
    leaves, treedef = tree.flatten(pytree)
    values = [jnp.asarray(x) for x in leaves]
    avals = [aval_of(v) for v in values]
    sizes = [int(a.size) for a in avals]
    dtypes = [a.dtype for a in avals]
    common = dt.promote(*[(d, False) for d in dtypes])[0] if dtypes else dt.float32
    parts = [ops.cast(ops.reshape(v, (n,)), common) for v, n in zip(values, sizes, strict=True)]
    flat = ops.concatenate(parts, 0) if parts else jnp.zeros(0, common)
    total = sum(sizes)

    def unravel(vector: Any) -> Any:
        aval = aval_of(jnp.asarray(vector))
        if aval.shape != (total,):
            raise ShapeError(
                operation="unravel",
                required=f"a vector of shape ({total},)",
                got=str(aval),
                fix="pass a vector like the one that ravel_pytree returned",
            )
        if aval.dtype != common:
            raise DTypeError(
                operation="unravel",
                required=f"a vector of dtype {common}",
                got=str(aval),
                fix=f"cast it to {common} first",
            )
        out: list[Any] = []
        start = 0
        for a, size in zip(avals, sizes, strict=True):
            piece = ops.slice(vector, (start,), (start + size,))
            out.append(ops.cast(ops.reshape(piece, a.shape), a.dtype))
            start += size
        return treedef.unflatten(out)

    return flat, unravel
