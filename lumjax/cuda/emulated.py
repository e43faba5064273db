"""The CPU as a device behind the seam: it does at once what it is asked for, and runs kernels by
the executor of their PTX, each held to the buffers that its table names.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from lumjax.cuda import maps, ptx
from lumjax.cuda.device import Function, Held, Lent
from lumjax.cuda.library import Call
from lumjax.cuda.occupancy import A100, H200, Card
from lumjax.cuda.persistent import memory_of as memory_of_loop
from lumjax.cuda.runtime import emulated_target, load, memory_of
from lumjax.errors import UnsupportedError
from lumjax.record import record
from lumjax.target import Target

ALIGNMENT = 256
_UNWRITTEN = 0xFF  # floats of these bytes are NaN


@record(eq=False)
class Block:
    """Memory of the device."""

    ptr: int
    room: Any


class Processor:
    """The device."""

    def __init__(self, arch: str = "sm_80") -> None:
        self._arch = arch
        self._recording: list[Callable[[], None]] | None = None
        # The memory of the kernel that runs: its later phases see what earlier ones wrote.
        self._kernel: tuple[Any, int, int, ptx.Memory] | None = None

    def info(self) -> Target:
        """The device as a target."""
        return emulated_target(self._arch)

    def card(self) -> Card:
        """The architecture's largest."""
        return H200 if self._arch == H200.arch else A100

    def load(self, text: str, names: Sequence[str], together: bool = False) -> list[Any]:
        """Compile CUDA C and load it."""
        del together  # the executor sees whether blocks wait for each other
        made = load(text)
        return [made[n] for n in names]

    def alloc(self, size: int) -> Block:
        """Memory that nothing has written."""
        room = np.full(size + ALIGNMENT, _UNWRITTEN, np.uint8)
        return Block(-(-room.ctypes.data // ALIGNMENT) * ALIGNMENT, room)

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes."""
        self._do(lambda: ctypes.memmove(target, source, size))

    def fill(self, target: int, value: int, size: int) -> None:
        """Set bytes."""
        self._do(lambda: ctypes.memset(target, value, size))

    def tensor_map(self, of: maps.Numbers, address: int) -> bytes:
        """The executor's form."""
        return maps.emulated(of, address)

    def launch(self, function: Function, blocks: int, table: int) -> None:
        """Run a kernel."""
        self._do(lambda: self._run(function, blocks, table))

    def _run(self, function: Function, blocks: int, table: int) -> None:
        """Run a kernel on the buffers that the table names now.

        Raises ptx.ExecutionError for what a kernel must not do.
        """
        if function.loop is not None:
            words = struct.unpack(
                f"{function.parameters // 8}q", ctypes.string_at(table, function.parameters)
            )
            memory = memory_of_loop(function.loop, table, words)
            self._kernel = None
            grid, block = (blocks,), (function.threads,)
            function.handle.launch(memory, grid, block, [np.int64(table)], function.shared)
            return
        kernel, same = function.kernel, self._kernel
        count = len(kernel.buffers) + len(kernel.sizes)
        if same is not None and same[0] is kernel and same[1] == table and function.phase > same[2]:
            memory = same[3]
        else:
            held = struct.unpack(f"{count}q", ctypes.string_at(table, 8 * count))
            sizes = dict(zip(kernel.sizes, held[len(kernel.buffers) :], strict=True))
            memory = memory_of(kernel, held, sizes)
            memory.add_bytes(table, function.parameters, 8, True, False)
        self._kernel = kernel, table, function.phase, memory
        grid, block = (blocks,), (function.threads,)
        function.handle.launch(memory, grid, block, [np.int64(table)], function.shared)

    def multiplies(self) -> bool:
        """There is no library."""
        return False

    def multiply(self, call: Call, addresses: Sequence[int]) -> None:
        """Nobody asks."""
        raise AssertionError("the executor has no library")

    def wait(self) -> None:
        """All is done."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work as a list."""
        self._recording = recorded = []
        try:
            work()
        finally:
            self._recording = None

        def replay() -> None:
            for step in recorded:
                step()

        return replay

    def _do(self, work: Callable[[], Any]) -> None:
        if self._recording is None:
            work()
        else:
            self._recording.append(work)

    def memory(self) -> tuple[int, int]:
        """Nobody counts."""
        return 1 << 40, 1 << 40

    def keep(self, held: Any) -> None:
        """Nothing waits for anything."""

    def place(self) -> tuple[int, int]:
        """It is the CPU."""
        return 1, 0

    def interface(self, memory: Held) -> dict[str, Any]:
        """No GPU's memory."""
        raise AttributeError("the array lies in the memory of the CPU")

    def exported(self, memory: Held, stream: Any, max_version: Any) -> Any:
        """A capsule of the memory."""
        del stream
        return memory.host().__dlpack__(max_version=max_version)

    def adopted(self, value: Any) -> Lent:
        """Nothing of a GPU."""
        raise UnsupportedError(
            operation="taking an array of another library", required="backend 'cuda'",
            got="backend 'cuda:emulated'", fix="copy the array to the host",
        )  # fmt: skip

    def returned(self, lent: Lent) -> None:
        """Nothing was lent."""


@cache
def current(arch: str) -> Processor:
    """The device of this process that stands for an architecture."""
    return Processor(arch)
