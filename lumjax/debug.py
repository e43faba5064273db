"""Watching programs run, under jit too: print, callback, breakpoint."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import numpy as np

from lumjax.control.debug import callback, print
from lumjax.trace.array import Array
from lumjax.trace.core import Tracer

__all__ = ["breakpoint", "callback", "print", "visualize_array_sharding"]


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    **kwargs: Any,
) -> None:
    """Stop in the debugger when the program gets here, under jit too.

    The debugger (what `sys.breakpointhook` starts, pdb by default) sees the caller's local arrays
    in the dictionary `values`. Under vmap it stops once per lane.
    """
    del backend, filter_frames, num_frames, token, kwargs
    local = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage]
    arrays = {
        name: value
        for name, value in local.items()
        if isinstance(value, (Array, Tracer, np.ndarray, np.generic))
    }
    callback(_stop, arrays, ordered=ordered)


def _stop(values: dict[str, Any]) -> None:
    builtins.breakpoint()  # `values` is for the debugger to see


def visualize_array_sharding(arr: Any, **options: Any) -> None:
    """Print where an array lies: on the one device.

    >>> visualize_array_sharding(np.ones(2))
    CPU 0
    """
    del arr, options
    builtins.print("CPU 0")
