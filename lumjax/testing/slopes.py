"""Derivatives of any function of arrays, as functions that can be checked in their turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lumjax import dtype as dt
from lumjax.testing.steps import library
from lumjax.trace.core import aval_of


def derivatives(
    f: Callable[..., Any],
    args: Sequence[Any],
    *,
    second_order: bool = False,
    forward: bool = False,
    values: bool = False,
    package: str = "lumjax",
) -> tuple[Callable[..., Any], list[Any]]:
    """The gradient of a smooth scalar of what `f` returns, as a function of those of `args` that
    are floats; and these. `f` returns a flat tuple of arrays.

    `second_order` adds the gradient's derivative along a direction, `values` what `f` returns.
    `forward` takes derivatives along a direction in place of gradients, for functions that have
    none. `package` computes them: one with JAX's names.

    >>> import lumjax.numpy as jnp
    >>> gradient, points = derivatives(lambda x, n: (x * n,), (jnp.zeros(2), 3))
    >>> gradient(*points)
    (Array([3., 3.], dtype=float32),)
    """
    names = library(package)
    jax, jnp = names["jax"], names["jnp"]
    places = [k for k, x in enumerate(args) if dt.is_floating(aval_of(x).dtype)]

    def outputs(*xs: Any) -> tuple[list[Any], tuple[Any, ...]]:
        """Those outputs that are floats, and all."""
        full = list(args)
        for k, x in zip(places, xs, strict=True):
            full[k] = x
        outs = tuple(f(*full))
        return [y for y in outs if jnp.issubdtype(y.dtype, jnp.floating)], outs

    def loss(*xs: Any) -> Any:
        total: Any = jnp.zeros(())
        floats, outs = outputs(*xs)
        for k, y in enumerate(floats):
            wide = y.astype(jnp.promote_types(y.dtype, jnp.float32))
            total = total + jnp.sum(jnp.sin(wide + k))
        return total, outs

    def slope(*xs: Any) -> Any:
        if forward:
            ones = tuple(map(jnp.ones_like, xs))
            _, found, outs = jax.jvp(outputs, xs, ones, has_aux=True)
            return tuple(found), outs
        return jax.grad(loss, tuple(range(len(xs))), has_aux=True)(*xs)

    def result(*xs: Any) -> Any:
        if not xs:
            return tuple(f(*args)) if values else ()
        if second_order:
            ones = tuple(map(jnp.ones_like, xs))
            first, second, outs = jax.jvp(slope, xs, ones, has_aux=True)
            found: Any = (first, second)
        else:
            found, outs = slope(*xs)
        return (outs, found) if values else found

    return result, [args[k] for k in places]
