"""Segments of a program on a GPU: what they touch is mirrored there, one graph does the work.

Arrays are the host's. A segment's part of host memory is laid out in one block on the device,
copied there, worked on and copied back. Every kernel finds its addresses and sizes in one parameter
block, which one copy refreshes: the graph of a step is captured once and replayed as long as the
same kernels run on the same block. Loops that ask the device how to go on are launched as they go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lumjax.cpu.runtime import AnyStep, Bound, Choice, Copy, Loop, Step
from lumjax.cuda.device import Device, DeviceError, Function
from lumjax.cuda.host import run_steps
from lumjax.cuda.render import Rendered
from lumjax.record import record
from lumjax.trace import dim as dims

ALIGNMENT = 256


@record
class Use:
    """What a step does with the memory at a place of the table."""

    place: int
    size: int
    reads: bool
    writes: bool


def uses_of(steps: Iterable[AnyStep], table: Sequence[int]) -> Iterable[Use]:
    """What steps touch, in order. Places that loops and choices write are not known before they
    run; what lies behind them is named by the loop or choice itself.
    """
    for step in steps:
        match step:
            case Step():
                yield from _of_kernel(step)
            case Copy():
                yield Use(step.source, table[step.size], True, False)
                yield Use(step.target, table[step.size], False, True)
            case Loop():
                yield from _of_loop(step, table)
            case Choice():
                yield Use(step.index, 4, True, False)
                for aliases, inner in step.branches:
                    yield from _renamed(uses_of(inner.steps, table), dict(aliases))
            case Bound():
                raise AssertionError("only programs for the CPU are kept as code alone")


def _of_kernel(step: Step) -> Iterable[Use]:
    kernel = step.compiled.kernel
    read = {b.name for b in kernel.inputs}
    for place, buffer in zip(step.slots, kernel.buffers, strict=False):
        count = int(dims.evaluate(math.prod(buffer.shape, start=1), step.sizes))
        inside = buffer.name in read
        yield Use(place, count * buffer.dtype.itemsize, inside, not inside)


def _of_loop(loop: Loop, table: Sequence[int]) -> Iterable[Use]:
    stacks = {place: (stack, size) for place, stack, size in loop.rows}
    inner = [*uses_of(loop.body.steps, table), *uses_of(loop.test.steps, table)]
    rows = [u for u in inner if u.place in stacks]
    carried = {p for c in loop.carries for p in (c.read, c.written)}
    others = [u for u in inner if u.place not in stacks and u.place not in carried]
    for c in loop.carries:
        yield Use(c.init, c.size, True, False)
        yield Use(c.result, c.size, False, True)
        for place in c.buffers:
            yield Use(place, c.size, False, True)
    for place, (stack, size) in stacks.items():
        mine = [u for u in rows if u.place == place]
        if mine or loop.length == 0:
            reads, writes = any(u.reads for u in mine), any(u.writes for u in mine)
            yield Use(stack, size * (loop.length or 0), reads, writes)
    yield from _renamed(others, dict(loop.aliases))


def _renamed(uses: Iterable[Use], aliases: Mapping[int, int]) -> Iterable[Use]:
    for use in uses:
        place = use.place
        while place in aliases:
            place = aliases[place]
        yield Use(place, use.size, use.reads, use.writes)


@record
class Span:
    """Host memory from `begin` to `end`, and where in the block on the device it is."""

    begin: int
    end: int
    offset: int


def spans_of(uses: Iterable[Use], table: Sequence[int]) -> tuple[list[Span], int]:
    """Disjoint spans that hold all that is used; the bytes of the block."""
    found: list[list[int]] = []
    for begin, size in sorted((table[u.place], u.size) for u in uses if u.size):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], begin + size)
        else:
            found.append([begin, begin + size])
    spans: list[Span] = []
    total = 0
    for begin, end in found:
        offset = total + begin % ALIGNMENT  # what is aligned here is aligned there
        spans.append(Span(begin, end, offset))
        total = -(-(offset + end - begin) // ALIGNMENT) * ALIGNMENT
    return spans, total


@record
class Launched:
    """A kernel: how many blocks, and where in the parameter block its own part begins."""

    function: Function
    blocks: int
    at: int


@record
class Copied:
    """A copy within the device."""

    target: int
    source: int
    size: int


class Recorder:
    """What the steps ask for, put down; done when `flush` is called or something is read back."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.work: list[Launched | Copied] = []
        self.parameters: list[int] = []
        self.asked = False  # whether anything was read back

    def launch(self, step: Step, table: Sequence[int]) -> None:
        """A kernel."""
        at = len(self.parameters)
        self.parameters += [table[p] for p in step.slots]
        kernel = step.compiled.kernel
        functions = self.mirror.functions(step)
        for phase, launch, function in zip(kernel.phases, *functions, strict=True):
            jobs = int(dims.evaluate(phase.jobs, step.sizes))
            if jobs > 0:
                self.work.append(Launched(function, launch.blocks(jobs), at))

    def copy(self, target: int, source: int, size: int) -> None:
        """A copy."""
        if size:
            self.work.append(Copied(target, source, size))

    def read(self, address: int, size: int) -> bytes:
        """What the device has, when all before is done."""
        self.asked = True
        self.flush()
        held = np.empty(size, np.uint8)
        self.mirror.device.copy(held.ctypes.data, address, size)
        self.mirror.device.wait()
        return held.tobytes()

    def flush(self) -> None:
        """Do what was asked for."""
        self.mirror.refresh(self.parameters)
        self.mirror.issue(self.work)
        if self.asked:  # the next part has parameters of its own, when these are no more needed
            self.mirror.device.wait()
        self.work, self.parameters = [], []


class Mirror:
    """A segment on a device. `rendered` gives the text of a step's kernel."""

    def __init__(
        self, device: Device, steps: Sequence[AnyStep], rendered: Callable[[Step], Rendered]
    ) -> None:
        self.device, self.steps, self._rendered = device, steps, rendered
        self._functions: dict[str, tuple[Any, list[Function]]] = {}
        self._block: Any = None  # of memory on the device
        self._parameters: Any = None
        self._sizes = [0, 0]  # of both
        self._graph: tuple[tuple[Launched | Copied, ...], Callable[[], None]] | None = None
        self._kept: Any = None  # parameters that are on their way

    def functions(self, step: Step) -> tuple[Any, list[Function]]:
        """How a step's phases are launched, and the functions."""
        digest = step.compiled.digest
        if digest not in self._functions:
            made = self._rendered(step)
            handles = self.device.load(made.text, [x.name for x in made.launches])
            pairs = zip(handles, made.launches, strict=True)
            found = [Function(h, x.threads, x.shared) for h, x in pairs]
            self._functions[digest] = made.launches, found
        return self._functions[digest]

    def run(self, values: Sequence[int]) -> None:
        """Run on a table of host addresses and sizes."""
        uses = list(uses_of(self.steps, values))
        spans, total = spans_of(uses, values)
        base = self._room(total)
        place = {u.place: u for u in uses if u.size}
        table = [
            _there(spans, base, v) if p in place else v for p, v in enumerate(values)
        ]  # fmt: skip
        for begin, size in _first_read(uses, values):
            self.device.copy(_there(spans, base, begin), begin, size)
        recorder = Recorder(self)
        run_steps(recorder, self.steps, table)
        if recorder.asked:
            recorder.flush()
        else:
            self.refresh(recorder.parameters)
            self._replayed(tuple(recorder.work))
        written = {(values[u.place], u.size) for u in uses if u.writes and u.size}
        for begin, size in sorted(written):
            self.device.copy(begin, _there(spans, base, begin), size)
        self.device.wait()

    def _room(self, size: int) -> int:
        """The address of a block on the device. Kernels are told it by the parameter block, so that
        a graph outlives it.
        """
        if self._block is None or size > self._sizes[0]:
            self._block, self._sizes[0] = self.device.alloc(size), size
        return int(self._block.ptr)

    def refresh(self, parameters: Sequence[int]) -> None:
        """Copy the parameters to the device, all at once."""
        data = np.asarray(parameters, np.int64)
        if self._parameters is None or data.nbytes > self._sizes[1]:
            self._parameters = self.device.alloc(data.nbytes)
            self._sizes[1], self._graph = data.nbytes, None
        self._kept = data
        if data.size:
            self.device.copy(int(self._parameters.ptr), data.ctypes.data, data.nbytes)

    def issue(self, work: Sequence[Launched | Copied]) -> None:
        """Ask the device for work."""
        for item in work:
            if isinstance(item, Copied):
                self.device.copy(item.target, item.source, item.size)
            else:
                table = int(self._parameters.ptr) + 8 * item.at
                self.device.launch(item.function, item.blocks, table)

    def _replayed(self, work: tuple[Launched | Copied, ...]) -> None:
        """The work as a graph, captured when it is new."""
        if not work:
            return
        if self._graph is None or self._graph[0] != work:
            self._graph = work, self.device.capture(lambda: self.issue(work))
        self._graph[1]()


def _there(spans: Sequence[Span], base: int, address: int) -> int:
    """Where a host address is on the device."""
    low, high = 0, len(spans)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spans[middle].begin <= address else (low, middle)
    if not spans or not spans[low].begin <= address <= spans[low].end:
        raise DeviceError(
            operation="placing memory on the GPU",
            required="addresses of what a program's kernels use",
            got=f"address {address:#x}",
            fix="please report this as a bug, with the program",
        )
    return base + spans[low].offset + address - spans[low].begin


def _first_read(uses: Sequence[Use], values: Sequence[int]) -> list[tuple[int, int]]:
    """What is read before it is written, as (host address, bytes)."""
    written: set[tuple[int, int]] = set()
    found: dict[tuple[int, int], None] = {}
    for use in uses:
        area = values[use.place], use.size
        if use.reads and use.size and area not in written:
            found[area] = None
        if use.writes:
            written.add(area)
    return list(found)
