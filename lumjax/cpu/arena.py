"""Recycled memory, aligned to 64 bytes; large blocks on huge pages.

Fresh pages cost more than most kernels, so freed blocks are kept (up to a limit) and handed out
again.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from lumjax.dtype import DType

ALIGNMENT = 64
SMALL = 1 << 10  # below this NumPy's own alignment is good enough
LARGE = 1 << 18  # from here on blocks are mapped and recycled, below them NumPy allocates
HUGE = 2 << 20
KEPT = 1 << 30  # bytes of idle blocks

_LARGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)


def _stated(data: np.ndarray[Any, Any]) -> int:
    return data.__array_interface__["data"][0]


_word, _head = ctypes.c_size_t.from_address, object.__basicsize__


def _read(data: np.ndarray[Any, Any]) -> int:
    """The field of NumPy's public array struct, behind what all objects begin with."""
    return _word(id(data) + _head).value


def _fastest() -> Callable[[np.ndarray[Any, Any]], int]:
    """Stating an address makes a dict of all that is known of the array, ten times as slow as
    reading it; that is done where it is seen to give the same.
    """
    if sys.implementation.name != "cpython":
        return _stated
    whole = np.zeros((3, 4))
    return _read if all(_read(a) == _stated(a) for a in (whole, whole[1:, 2:])) else _stated


# Where an array's elements begin.
address_of = _fastest()


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
    """Idle blocks by size class."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """After a fork: idle blocks are fine (copied on write), a held lock would not be."""
        self.lock = threading.RLock()  # a block may be collected while the lock is held
        self.idle: dict[int, list[tuple[mmap.mmap, int]]] = {}
        self.kept = 0

    def take(self, size: int) -> Block:
        """A block of at least `size` bytes, its contents arbitrary."""
        size = size_class(size)
        with self.lock:
            stack = self.idle.get(size)
            if stack:
                mapped, address = stack.pop()
                self.kept -= size
                return Block(mapped, address, size)
        extra = HUGE if size >= HUGE else ALIGNMENT
        mapped = mmap.mmap(-1, size + extra)
        if _LARGE_PAGES is not None and size >= HUGE:
            with suppress(OSError):  # the kernel was built without them
                mapped.madvise(_LARGE_PAGES)
        start: int = np.frombuffer(mapped, np.uint8).ctypes.data
        return Block(mapped, -(-start // extra) * extra, size)

    def give_back(self, mapped: mmap.mmap, address: int, size: int) -> None:
        """Keep a block for the next taker, or let it go."""
        with self.lock:
            if self.kept + size <= KEPT:
                self.kept += size
                self.idle.setdefault(size, []).append((mapped, address))


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
    return partial(_mapped if size >= LARGE else _aligned, shape, dtype, size)


def _mapped(shape: Sequence[int], dtype: DType, size: int) -> np.ndarray[Any, Any]:
    return np.ndarray(shape, dtype, np.asarray(_arena.take(size)))


def _aligned(shape: Sequence[int], dtype: DType, size: int) -> np.ndarray[Any, Any]:
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -address_of(raw) % ALIGNMENT
    return np.ndarray(shape, dtype, raw, start)


@contextmanager
def checkout(size: int) -> Generator[int]:
    """The address of `size` bytes that belong to the block alone."""
    block = _arena.take(max(size, 1))
    yield block.address
    del block
