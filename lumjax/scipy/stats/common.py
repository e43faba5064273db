"""What distributions share: arguments as floats, and functions that follow from others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import numpy as jnp
from lumjax import ops
from lumjax.trace.core import aval_of
from lumjax.typing import ArrayLike


def floats(*xs: ArrayLike) -> list[Any]:
    """The arguments as floats of one dtype."""
    values = ops.promote_values(*map(jnp.asarray, xs))
    if dt.is_inexact(aval_of(values[0]).dtype):
        return values
    return [ops.cast(v, np.float64, weak=aval_of(v).weak) for v in values]


def composed(
    outer: Callable[[Any], Any], inner: Callable[..., Any], name: str, doc: str
) -> Callable[..., Any]:
    """`inner`, then `outer`, with the parameters of `inner`."""

    def run(*args: ArrayLike, **parameters: ArrayLike) -> Any:
        return outer(inner(*args, **parameters))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = doc
    return run


def density(logpdf: Callable[..., Any]) -> Callable[..., Any]:
    """The density, of which `logpdf` is the logarithm."""
    return composed(jnp.exp, logpdf, "pdf", "The density.")


def logarithm(cdf: Callable[..., Any], name: str = "logcdf") -> Callable[..., Any]:
    """The logarithm of a probability."""
    return composed(jnp.log, cdf, name, f"The logarithm of `{cdf.__name__}`.")
