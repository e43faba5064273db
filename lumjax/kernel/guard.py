"""Arrays that tell when a kernel leaves them: canary bytes around each, or an inaccessible page
behind it.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt

Array: TypeAlias = np.ndarray[Any, Any]

PAD = 128
CANARY = 0xA5


class Canaries:
    """Allocates arrays between canary bytes; `broken` names those that were overrun."""

    def __init__(self) -> None:
        self.blocks: list[tuple[str, Array, int]] = []

    def empty(self, name: str, shape: Sequence[int], dtype: dt.DType) -> Array:
        """An array of 0x5A bytes (no number that a computation yields), 64-byte aligned."""
        size = math.prod(shape) * dtype.itemsize
        raw = np.empty(size + 2 * PAD + 64, np.uint8)
        start = PAD + (-(raw.ctypes.data + PAD)) % 64
        raw[:start] = raw[start + size :] = CANARY
        raw[start : start + size] = 0x5A if dtype != dt.bool_ else 0
        self.blocks.append((name, raw, start))
        return raw[start : start + size].view(dtype).reshape(shape)

    def broken(self) -> list[str]:
        """The arrays around which something was overwritten."""
        found: list[str] = []
        for name, raw, start in self.blocks:
            end = raw.size - 64 - 2 * PAD + start
            if (raw[:start] != CANARY).any() or (raw[end:] != CANARY).any():
                found.append(name)
        return found


def guarded(shape: Sequence[int], dtype: dt.DType) -> Array:
    """An array of zeros that ends where a page without access begins: touching what follows faults.

    Only where `mprotect` exists (Linux, macOS); elsewhere a plain array. The fault ends the
    process, so this is for worker processes and tests.
    """
    size = math.prod(shape) * dtype.itemsize
    if not sys.platform.startswith(("linux", "darwin")):
        return np.zeros(shape, dtype)
    page = mmap.PAGESIZE
    length = -(-max(size, 1) // page) * page
    memory = mmap.mmap(-1, length + page)
    view = np.frombuffer(memory, np.uint8)
    protect: Any = ctypes.CDLL(None, use_errno=True).mprotect
    address = ctypes.c_void_p(view.ctypes.data + length)
    if protect(address, ctypes.c_size_t(page), 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect failed")
    return view[length - size : length].view(dtype).reshape(shape)
