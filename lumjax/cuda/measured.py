"""A library's product held to its kernel on the device: it must be right, and faster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from lumjax.aligned import address_of
from lumjax.cpu.runtime import Compiled, Step
from lumjax.cuda.device import Device
from lumjax.cuda.graph import Launches
from lumjax.cuda.library import call_of, products
from lumjax.cuda.runtime import kernels
from lumjax.errors import LumjaxError
from lumjax.kernel.ir import Kernel
from lumjax.kernel.term import Group
from lumjax.kernel.verify import check_kernel, open_sizes, traced_sizes
from lumjax.trace import dim as dims

NDArray: TypeAlias = np.ndarray[Any, Any]
ROUNDS, TIMES = 7, 5  # of measuring one and the other in turn; calls of each
GAIN = 0.97  # of the other's time: what is less is noise


def agrees(device: Device, made: Compiled, group: Group) -> bool:
    """Whether the library gives what the interpreter gives, like every kernel; it must have been
    asked at least once.
    """
    asked = 0

    def run(kernel: Kernel, arrays: Mapping[str, NDArray], sizes: Mapping[str, int]) -> None:
        nonlocal asked
        asked += call_of(products[made.digest], kernel, sizes) is not None
        _on_device(device, made, arrays, sizes)

    try:
        return check_kernel(made.kernel, group, run).ok and asked > 0
    except LumjaxError:
        return False


def _launches(device: Device, made: Compiled, sizes: Mapping[str, int]) -> Launches:
    count = len(made.kernel.buffers) + len(made.kernel.sizes)
    step = Step(made, range(count), sizes)
    return Launches(device, [step], lambda s: kernels[s.compiled.digest].texts)


def _on_device(
    device: Device, made: Compiled, arrays: Mapping[str, NDArray], sizes: Mapping[str, int]
) -> None:
    """Run on copies of arrays by name."""
    blocks = {b.name: device.alloc(max(1, arrays[b.name].nbytes)) for b in made.kernel.buffers}
    for name, block in blocks.items():
        if arrays[name].nbytes:
            device.copy(int(block.ptr), address_of(arrays[name]), arrays[name].nbytes)
    table = [*(int(b.ptr) for b in blocks.values()), *(sizes[n] for n in made.kernel.sizes)]
    _launches(device, made, sizes).run(table)
    for b in made.kernel.outputs:
        if arrays[b.name].nbytes:
            device.copy(address_of(arrays[b.name]), int(blocks[b.name].ptr), arrays[b.name].nbytes)
    device.wait()


def pays(device: Device, plain: Compiled, other: Compiled) -> bool:
    """Whether the second is faster than the first, at the sizes of the traced program: medians of
    both in turn, as graphs.
    """
    kernel = plain.kernel
    typical = {str(s.name): dims.estimate(s) for s in open_sizes(kernel)}
    sizes = traced_sizes(kernel, typical)
    blocks: list[Any] = []
    for b in kernel.buffers:
        count = b.dtype.itemsize
        for n in b.shape:
            count *= int(dims.evaluate(n, sizes))
        blocks.append(device.alloc(max(1, count)))
        device.fill(int(blocks[-1].ptr), 0, max(1, count))
    table = [*(int(b.ptr) for b in blocks), *(sizes[n] for n in kernel.sizes)]
    both = [_launches(device, x, sizes) for x in (plain, other)]
    seconds: tuple[list[float], list[float]] = ([], [])
    for round_ in range(ROUNDS + 1):
        for found, launches in zip(seconds, both, strict=True):
            device.wait()
            began = time.perf_counter()
            for _ in range(TIMES):
                launches.run(table)
            device.wait()
            if round_:  # the first one compiles and captures
                found.append(time.perf_counter() - began)
    return median(seconds[1]) < GAIN * median(seconds[0])
