"""pjit: jit, whose shardings are accepted and ignored, and constraints that do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lumjax.decorator import jit
from lumjax.lax import with_sharding_constraint as with_sharding_constraint


def pjit(
    fun: Callable[..., Any], in_shardings: Any = None, out_shardings: Any = None, **options: Any
) -> Any:
    """`jit(fun)`; in_shardings and out_shardings say nothing on one device.

    >>> pjit(lambda x: x + 1)(1)
    Array(2, dtype=int32, weak_type=True)
    """
    del in_shardings, out_shardings
    return jit(fun, **options)
