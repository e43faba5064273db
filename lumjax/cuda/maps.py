"""Tensor maps: what bulk copies of boxes know of a tensor in global memory.

A driver makes them from numbers, in a form of its own; the executor has another form. They depend
on where a buffer lies, so that they are made for a launch and go with its parameters.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from lumjax.cuda.bulk import MAP_MAGIC
from lumjax.errors import UnsupportedError
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

BYTES, ALIGNMENT = 128, 64  # of a map
WIDE = 16  # bytes that addresses and steps are multiples of
SWIZZLE, SPAN = 3, 128  # by as many bytes, which one row of a box has at most
_MOST_STEP, _MOST_EXTENT = 1 << 40, 1 << 31  # places are signed


@record
class Chart:
    """A tensor: which of a kernel's buffers it is, how many elements of `size` bytes come before
    it; extents, the dimension first whose elements lie side by side; steps of the others, in
    elements; how many of each a box has.
    """

    buffer: int
    size: int
    base: Dim
    extents: tuple[Dim, ...]
    steps: tuple[Dim, ...]
    box: tuple[int, ...]


@record
class Numbers:
    """A chart at some sizes: bytes before it, extents, steps in bytes."""

    base: int
    extents: tuple[int, ...]
    steps: tuple[int, ...]
    box: tuple[int, ...]
    size: int


def numbers(chart: Chart, sizes: Mapping[str, int]) -> Numbers | None:
    """A chart at some sizes; None where bulk copies can't go: steps that are no multiples of 16
    bytes, nothing to copy.
    """
    base, *rest = (int(dims.evaluate(d, sizes)) for d in (chart.base, *chart.extents, *chart.steps))
    extents, steps = rest[: len(chart.extents)], rest[len(chart.extents) :]
    found = Numbers(base * chart.size, tuple(extents), tuple(s * chart.size for s in steps),
                    chart.box, chart.size)  # fmt: skip
    fine = all(0 < n < _MOST_EXTENT for n in extents) and found.base % WIDE == 0
    return (
        found if fine and all(0 < s < _MOST_STEP and s % WIDE == 0 for s in found.steps) else None
    )


def emulated(of: Numbers, address: int) -> bytes:
    """A map as the executor reads it, of a tensor in a buffer at an address."""
    rank = len(of.extents)
    fill = [0] * (5 - rank)
    made = struct.pack(
        "<QQ4Q5I5I3I", MAP_MAGIC, address + of.base, *of.steps, *fill, *of.extents, *fill, *of.box,
        *fill, of.size, rank, SWIZZLE,
    )  # fmt: skip
    return made.ljust(BYTES, b"\0")


def fits(of: Numbers, address: int) -> bool:
    """Whether bulk copies can read a buffer that lies there."""
    return (address + of.base) % WIDE == 0


# ---- the driver's

_KINDS = {1: 0, 2: 1, 4: 2, 8: 4}  # unsigned integers, by bytes: zeros are zeros
_L2_128 = 2  # read ahead


@cache
def _encode() -> Any:
    """The driver's function.

    Raises UnsupportedError where there is no driver.
    """
    try:
        return ctypes.CDLL(
            ctypes.util.find_library("cuda") or "libcuda.so.1"
        ).cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise UnsupportedError(
            operation="making a tensor map", required="NVIDIA's driver, 12.0 or later",
            got=str(error), fix="install the driver, or use backend='cuda:emulated'",
        ) from error  # fmt: skip


def driver(of: Numbers, address: int) -> bytes:
    """A map as a GPU reads it.

    Raises UnsupportedError where the driver refuses.
    """
    rank = len(of.extents)
    room = ctypes.create_string_buffer(BYTES + ALIGNMENT)
    begin = ctypes.addressof(room) + -ctypes.addressof(room) % ALIGNMENT
    status = _encode()(
        ctypes.c_void_p(begin), _KINDS[of.size], rank, ctypes.c_void_p(address + of.base),
        _array(ctypes.c_uint64, of.extents), _array(ctypes.c_uint64, of.steps),
        _array(ctypes.c_uint32, of.box), _array(ctypes.c_uint32, (1,) * rank),
        0, SWIZZLE, _L2_128, 0,
    )  # fmt: skip
    if status:
        raise UnsupportedError(
            operation="making a tensor map", required="numbers that the driver accepts",
            got=f"{of} at {address:#x}: error {status}", fix="report this as a bug",
        )  # fmt: skip
    return ctypes.string_at(begin, BYTES)


def _array(kind: Any, values: Sequence[int]) -> Any:
    return (kind * max(1, len(values)))(*values)
