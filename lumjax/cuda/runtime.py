"""CUDA kernels compiled and launched: here, on the CPU, by the executor of their PTX.

A kernel takes one parameter, the address of a table of its buffers' addresses and its sizes.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from lumjax.cpu.arena import address_of
from lumjax.cuda import nvrtc, ptx
from lumjax.cuda.render import Rendered, render
from lumjax.kernel.ir import Kernel
from lumjax.record import record
from lumjax.target import Backend, Target
from lumjax.trace import dim as dims

NDArray: TypeAlias = np.ndarray[Any, Any]
OPTIONS = ("-lineinfo",)
_lock = threading.RLock()


@cache
def emulated_target() -> Target:
    """A GPU of compute capability 8.0 as the planner sees it: a register tile is what a block
    holds of a contraction, the second cache what it holds in shared memory.
    """
    return Target(Backend.CUDA, "sm_80", "", 64, 32, 264, 32 << 10, 160 << 10, 40 << 20)


@record(eq=False)
class Emulated:
    """A kernel whose PTX is loaded into the executor. Equal `digest`s mean equal texts."""

    kernel: Kernel
    rendered: Rendered
    phases: tuple[ptx.Kernel, ...]
    digest: str

    def run(self, table: Sequence[int], sizes: Mapping[str, int], seed: int = 0) -> None:
        """Run all phases on a table of addresses and sizes; outputs hold nothing yet.

        Raises ptx.ExecutionError for what a kernel must not do.
        """
        kernel, memory = self.kernel, memory_of(self.kernel, table, sizes)
        held = np.asarray(table, np.int64)
        memory.add(held, writable=False)
        for phase, launch, code in zip(
            kernel.phases, self.rendered.launches, self.phases, strict=True
        ):
            jobs = int(dims.evaluate(phase.jobs, sizes))
            if jobs > 0:
                grid, block = (launch.blocks(jobs),), (launch.threads,)
                code.launch(memory, grid, block, [held.ctypes.data], launch.shared, seed)

    def on_arrays(
        self, kernel: Kernel, buffers: Mapping[str, NDArray], sizes: Mapping[str, int]
    ) -> None:
        """Run on arrays by name of buffer, in an order of threads that the sizes choose."""
        addresses = [address_of(buffers[b.name]) for b in kernel.buffers]
        seed = sum(sizes.values()) % 5
        self.run([*addresses, *(sizes[n] for n in kernel.sizes)], sizes, seed)


def memory_of(kernel: Kernel, table: Sequence[int], sizes: Mapping[str, int]) -> ptx.Memory:
    """The buffers of a kernel, with their addresses first in a table: inputs are only read, others
    hold nothing yet.
    """
    memory = ptx.Memory()
    inputs = {b.name for b in kernel.inputs}
    for address, buffer in zip(table, kernel.buffers, strict=False):
        count = int(dims.evaluate(_elements(buffer.shape), sizes))
        item = buffer.dtype.itemsize
        read_only = buffer.name in inputs
        grain = item if item in (1, 2, 4, 8) else item // 2
        memory.add_bytes(address, count * item, grain, read_only, not read_only)
    return memory


def _elements(shape: Sequence[dims.Dim]) -> dims.Dim:
    total: dims.Dim = 1
    for n in shape:
        total = total * n
    return total


_loaded: dict[str, Emulated] = {}
kernels: dict[str, Emulated] = {}  # that programs may use, by digest


def compiled(kernel: Kernel) -> Emulated:
    """A kernel, for which `render.unsupported` finds nothing, ready to run on the executor.

    Raises CompileError where NVRTC is missing or refuses the text.
    """
    rendered = render(kernel)
    shapes = [(str(b.dtype), str(b.shape)) for b in kernel.buffers]
    digest = hashlib.sha256(f"{shapes}\n{rendered.text}".encode()).hexdigest()
    with _lock:
        found = _loaded.get(digest)
        if found is None or found.kernel is not kernel:
            code = ptx.load(nvrtc.ptx(rendered.text, options=OPTIONS))
            phases = tuple(code[launch.name] for launch in rendered.launches)
            found = _loaded[digest] = Emulated(kernel, rendered, phases, digest)
        return found
