"""Slices by sizes that are known only when a program runs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr


def open_bounds(parts: Sequence[Any], length: Dim) -> tuple[Dim, Dim, int]:
    """What `slice.indices` gives for bounds or a length known only when it runs."""
    step = 1 if parts[2] is None else operator.index(parts[2])
    low, high = (0, length) if step > 0 else (-1, length - 1)

    def place(given: Any, default: Dim) -> Dim:
        if given is None:
            return default
        at = given if isinstance(given, Expr) else operator.index(given)
        return dims.minimum(dims.maximum(at + length if at < 0 else at, low), high)

    first, last = (low, high) if step > 0 else (high, low)
    return place(parts[0], first), place(parts[1], last), step
