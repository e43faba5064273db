"""jax.test_util: derivatives checked against differences, by `lumjax.testing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lumjax.testing.checks import check_grads as _check_grads


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Derivatives of `f` at `args` up to `order` against differences.

    The differences are of fourth order in float64, whose step needs no choice: `eps` is accepted
    and not used. Tolerances are at least as strict as JAX's own where none are given.

    >>> import lumjax.numpy as jnp
    >>> check_grads(jnp.sin, (1.0,), order=2)
    """
    del eps
    _check_grads(
        f,
        args,
        order,
        modes,
        rtol=1e-4 if rtol is None else rtol,
        atol=1e-4 if atol is None else atol,
    )
