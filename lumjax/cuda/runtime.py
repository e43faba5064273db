"""CUDA kernels compiled and launched: here, on the CPU, by the executor of their PTX.

A kernel takes one parameter, the address of a table of its buffers' addresses and its sizes. For
sm_90a a kernel may have a second text, with bulk copies and warpgroups, whose tensor maps follow in
the table; the first is for arrays that don't lie so.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from lumjax.aligned import address_of
from lumjax.cuda import maps, nvrtc, ptx
from lumjax.cuda.header90 import HEADER_90
from lumjax.cuda.render import Rendered, parameters, render
from lumjax.kernel.ir import Kernel
from lumjax.record import record
from lumjax.target import Backend, Target
from lumjax.trace import dim as dims

NDArray: TypeAlias = np.ndarray[Any, Any]
OPTIONS = ("-lineinfo",)
PIPELINED = "sm_90a"  # the architecture that has bulk copies and warpgroups
_lock = threading.RLock()


@cache
def emulated_target(arch: str = "sm_80") -> Target:
    """A GPU as the planner sees it: a register tile is what a block holds of a contraction, the
    second cache what it holds in shared memory.
    """
    return Target(Backend.CUDA, arch, "", 64, 32, 264, 32 << 10, 160 << 10, 40 << 20)


def emulated_arch(backend: str) -> str:
    """The architecture that `cuda:emulated` or `cuda:emulated:sm_90a` stands for."""
    return backend.removeprefix("cuda:emulated").removeprefix(":") or "sm_80"


@record(eq=False)
class Emulated:
    """A kernel whose PTX is loaded into the executor. Equal `digest`s mean equal texts. `pipelined`
    is its second text.
    """

    kernel: Kernel
    rendered: Rendered
    phases: tuple[ptx.Kernel, ...]
    digest: str
    pipelined: Emulated | None = None

    @property
    def texts(self) -> tuple[Rendered, ...]:
        """All texts, the one that always goes first."""
        return self.rendered, *(self.pipelined.texts if self.pipelined else ())

    def fitting(self, table: Sequence[int], sizes: Mapping[str, int]) -> Emulated:
        """The text that goes with how arrays lie."""
        made = self.pipelined
        return self if made is None or made.charted(table, sizes) is None else made

    def charted(self, table: Sequence[int], sizes: Mapping[str, int]) -> bytes | None:
        """The tensor maps; None if arrays don't lie so."""
        found = bytearray()
        for chart in self.rendered.maps:
            of = maps.numbers(chart, sizes)
            if of is None or not maps.fits(of, table[chart.buffer]):
                return None
            found += maps.emulated(of, table[chart.buffer])
        return bytes(found)

    def run(self, table: Sequence[int], sizes: Mapping[str, int], seed: int = 0) -> None:
        """Run all phases on a table of addresses and sizes; outputs hold nothing yet.

        Raises ptx.ExecutionError for what a kernel must not do.
        """
        kernel, memory = self.kernel, memory_of(self.kernel, table, sizes)
        charts = self.charted(table, sizes)
        assert charts is not None, "who runs a kernel looks how arrays lie"
        room = np.zeros(parameters(kernel, self.rendered) + maps.ALIGNMENT, np.uint8)
        held = room[-room.ctypes.data % maps.ALIGNMENT :][: parameters(kernel, self.rendered)]
        held[: 8 * len(table)].view(np.int64)[:] = table
        held[len(held) - len(charts) :] = np.frombuffer(charts, np.uint8)
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
        self.run(table_of(kernel, buffers, sizes), sizes, sum(sizes.values()) % 5)


def table_of(kernel: Kernel, buffers: Mapping[str, NDArray], sizes: Mapping[str, int]) -> list[int]:
    """A kernel's table, for arrays by name."""
    addresses = [address_of(buffers[b.name]) for b in kernel.buffers]
    return [*addresses, *(sizes[n] for n in kernel.sizes)]


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


def compiled(kernel: Kernel, arch: str = "sm_80") -> Emulated:
    """A kernel, for which `render.unsupported` finds nothing, ready to run on the executor.

    Raises CompileError where NVRTC is missing or refuses the text.
    """
    made = _loaded_text(kernel, render(kernel))
    if arch != PIPELINED:
        return made
    second = render(kernel, pipelines=True)
    if not second.maps:
        return made
    fast = _loaded_text(kernel, second)
    digest = hashlib.sha256(f"{made.digest}\n{fast.digest}".encode()).hexdigest()
    return Emulated(kernel, made.rendered, made.phases, digest, fast)


def _loaded_text(kernel: Kernel, rendered: Rendered) -> Emulated:
    shapes = [(str(b.dtype), str(b.shape)) for b in kernel.buffers]
    digest = hashlib.sha256(f"{shapes}\n{rendered.text}".encode()).hexdigest()
    with _lock:
        found = _loaded.get(digest)
        if found is None or found.kernel is not kernel:
            code = load(rendered.text)
            phases = tuple(code[launch.name] for launch in rendered.launches)
            found = _loaded[digest] = Emulated(kernel, rendered, phases, digest)
        return found


def load(text: str) -> Mapping[str, ptx.Kernel]:
    """CUDA C on the executor.

    Raises CompileError where NVRTC is missing or refuses the text.
    """
    arch = "compute_90a" if HEADER_90 in text else "compute_80"
    return ptx.load(nvrtc.ptx(text, arch, OPTIONS))
