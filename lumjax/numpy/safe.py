"""Gradients where the naive chain rule gives NaN though a subgradient exists.

`config.update("grad_compat", "jax")` restores JAX's NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lumjax import ops
from lumjax.config import config
from lumjax.control.custom import custom_jvp


@custom_jvp
def safe_sqrt(x: Any) -> Any:
    """The square root as the last step of a norm or deviation: its slope at 0 is taken as 0.

    There the true derivative is infinite, but the argument's own derivative is 0, and the least-
    norm subgradient of the whole is 0. The second derivative at 0 does not exist and is NaN.
    """
    return ops.sqrt(x)


@safe_sqrt.defjvp
def _safe_sqrt_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    slope = ops.mul(ops.rsqrt(x), 0.5)
    if config.grad_compat != "jax":
        # sqrt(x) is 0 at 0 with an infinite slope, which turns the second derivative into NaN.
        slope = ops.select(ops.eq(x, 0), ops.sqrt(x), slope)
    return safe_sqrt(x), ops.mul(t, slope)
