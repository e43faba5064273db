"""Where an array's elements lie, and arrays whose elements begin where a line of the cache does."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax.dtype import DType

NDArray: TypeAlias = np.ndarray[Any, Any]
ALIGNMENT = 64
SMALL = 1 << 10  # bytes: below this NumPy's own alignment is good enough

_word, _head = ctypes.c_size_t.from_address, object.__basicsize__


def _stated(data: NDArray) -> int:
    return data.__array_interface__["data"][0]


def _read(data: NDArray) -> int:
    """The field of NumPy's public array struct, behind what all objects begin with."""
    return _word(id(data) + _head).value


def _fastest() -> Callable[[NDArray], int]:
    """Stating an address makes a dict of all that is known of the array, ten times as slow as
    reading it; that is done where it is seen to give the same.
    """
    if sys.implementation.name != "cpython":
        return _stated
    whole = np.zeros((3, 4))
    return _read if all(_read(a) == _stated(a) for a in (whole, whole[1:, 2:])) else _stated


# Where an array's elements begin.
address_of = _fastest()


def aligned(shape: Sequence[int], dtype: DType, size: int) -> NDArray:
    """An uninitialised array of `size` bytes that starts at a multiple of 64 bytes."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -address_of(raw) % ALIGNMENT
    return np.ndarray(shape, dtype, raw, start)


def copied(x: NDArray, dtype: DType) -> NDArray:
    """A copy of an array in a dtype and in C order; from 1 KiB on it is aligned: vectors that
    straddle two lines of the cache are read twice.
    """
    size = math.prod(x.shape) * dtype.itemsize
    if size < SMALL:
        return np.array(x, dtype, order="C")
    out = aligned(x.shape, dtype, size)
    np.copyto(out, x, casting="unsafe")
    return out
