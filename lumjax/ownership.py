"""Whether the data of an array is known to nothing else: then its memory may be used again."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

from lumjax.trace.array import Array

NDArray: TypeAlias = np.ndarray[Any, Any]


def is_alone(data: NDArray) -> bool:
    """Whether the caller's variable and one Array are all that knows of the data: no NumPy view, no
    other Array, nobody that it was lent to.
    """
    base = data.base
    return sys.getrefcount(data) <= _ALONE[0] and (
        base is None or sys.getrefcount(base) <= _ALONE[1]
    )


def _references() -> tuple[int, int]:
    """What `is_alone` counts for data that nothing else knows of: it depends on the interpreter."""
    counts: list[int] = []

    def look(data: NDArray) -> None:
        base = data.base
        counts[:] = [sys.getrefcount(data), sys.getrefcount(base)]

    value = Array(np.ndarray((2,), np.int8, np.empty(4, np.int8)))
    data = value.data
    look(data)
    return counts[0], counts[1]


_ALONE = _references()
