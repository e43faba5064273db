"""Recycled memory, aligned to 64 bytes; large blocks on huge pages.

Fresh pages cost more than most kernels, so freed blocks are kept (up to a limit) and handed out
again.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from lumjax.aligned import ALIGNMENT, SMALL, aligned
from lumjax.dtype import DType

LARGE = 1 << 18  # from here on blocks are mapped and recycled, below them NumPy allocates
HUGE = 2 << 20
KEPT = 1 << 30  # bytes of idle blocks

_LARGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)
# Shared memory, which mmap maps unless told otherwise, has no huge pages, and after a fork each
# process would see what the other writes.
_OWN: dict[str, int] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)


class Block:
    """A piece of mapped memory. It returns to the arena when the last array over it is gone."""

    __slots__ = ("__array_interface__", "_map", "address", "size")

    def __init__(self, mapped: mmap.mmap, address: int, size: int) -> None:
        self._map = mapped
        self.address = address
        self.size = size
        self.__array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip

    def __del__(self) -> None:
        _arena.give_back(self._map, self.address, self.size)


class _Arena:
    """Idle blocks by size class, the longest idle ones first."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """After a fork: idle blocks are fine (copied on write), a held lock would not be."""
        self.lock = threading.RLock()  # a block may be collected while the lock is held
        self.idle: dict[int, deque[tuple[int, mmap.mmap, int]]] = {}
        self.kept = self.turn = 0

    def take(self, size: int) -> Block:
        """A block of at least `size` bytes, its contents arbitrary."""
        size = size_class(size)
        with self.lock:
            blocks = self.idle.get(size)
            if blocks:
                _, mapped, address = blocks.pop()
                self.kept -= size
                return Block(mapped, address, size)
        extra = HUGE if size >= HUGE else ALIGNMENT
        mapped = mmap.mmap(-1, size + extra, **_OWN)
        start: int = np.frombuffer(mapped, np.uint8).ctypes.data
        address = -(-start // extra) * extra
        if _LARGE_PAGES is not None and size >= HUGE:
            with suppress(OSError):  # the kernel was built without them
                mapped.madvise(_LARGE_PAGES, address - start, size // HUGE * HUGE)
        return Block(mapped, address, size)

    def give_back(self, mapped: mmap.mmap, address: int, size: int) -> None:
        """Keep a block for the next taker, and let those go that were idle for longest."""
        if size > KEPT:
            return
        gone: list[mmap.mmap] = []  # unmapped when the lock is free again
        with self.lock:
            while self.kept + size > KEPT:
                oldest = min((b[0][0], n) for n, b in self.idle.items() if b)[1]
                gone.append(self.idle[oldest].popleft()[1])
                self.kept -= oldest
            self.kept += size
            self.turn += 1
            self.idle.setdefault(size, deque()).append((self.turn, mapped, address))


_arena = _Arena()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_arena.forget)


def size_class(size: int) -> int:
    """The size rounded up to one of eight steps per power of two, whole pages at least."""
    step = max(4096, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step


def empty(shape: Sequence[int], dtype: DType) -> np.ndarray[Any, Any]:
    """An uninitialised C-contiguous array; from 1 KiB on it starts at a multiple of 64 bytes."""
    return maker(shape, dtype)()


def maker(shape: Sequence[int], dtype: DType) -> Callable[[], np.ndarray[Any, Any]]:
    """What makes such arrays."""
    size = math.prod(shape) * dtype.itemsize
    if size < SMALL:
        return partial(np.empty, shape, dtype)
    return partial(_mapped if size >= LARGE else aligned, shape, dtype, size)


def _mapped(shape: Sequence[int], dtype: DType, size: int) -> np.ndarray[Any, Any]:
    return np.ndarray(shape, dtype, np.asarray(_arena.take(size)))


@contextmanager
def checkout(size: int) -> Generator[int]:
    """The address of `size` bytes that belong to the block alone."""
    block = take(size)
    yield block.address
    del block


def take(size: int) -> Block:
    """A block of at least `size` bytes, for as long as it is kept."""
    return _arena.take(max(size, 1))
