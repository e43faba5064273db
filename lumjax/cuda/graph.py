"""Runs of kernels on a device, captured as graphs and replayed.

Every kernel finds its addresses and sizes in one parameter block on the device, which one copy
refreshes: a graph is captured once, and replayed wherever arrays lie. Tensor maps, which know where
arrays lie, are written there anew; where an array lies so that there is none, other texts of the
kernels are launched, as a graph of their own. Where no step asks the device
how to go on, what is launched, and which entries of the table it is told, is found out once; loops
of known length are unrolled, in graphs of at most `MOST` launches. Otherwise a graph ends where the
device is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax.cpu.runtime import AnyStep, Choice, Loop, Step
from lumjax.cuda import maps
from lumjax.cuda.chosen import Chosen, choose
from lumjax.cuda.device import Device, DeviceError, Function
from lumjax.cuda.host import run_steps
from lumjax.cuda.library import Call, call_of, products
from lumjax.cuda.memory import lock
from lumjax.cuda.persistent import LINE, UNKNOWN
from lumjax.cuda.render import Launch, Rendered, parameters
from lumjax.cuda.warpgroup import place_of_maps
from lumjax.kernel.ir import Kernel, Phase
from lumjax.kernel.term import Buffer
from lumjax.record import record
from lumjax.trace import dim as dims

NDArray: TypeAlias = np.ndarray[Any, Any]
MOST = 4096  # launches of a graph
_KEPT = 64  # graphs of a segment whose steps ask the device
_LEAST = 4096  # bytes of a parameter block
_MOST_MAPS = 4096  # that are kept
_PLACE = 40  # bits of an offset, below the number of an entry of the table

_THREADS, _WIDE = 256, 1 << 14  # bytes that a block copies
_COPY = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}, 1) copy(const long long* table) {{
  char* const target = (char*)table[0];
  const char* const source = (const char*)table[1];
  const long long size = table[2], all = (long long)gridDim.x * {_THREADS};
  const long long me = (long long)blockIdx.x * {_THREADS} + threadIdx.x;
  const long long wide = (table[0] | table[1]) & 15 ? 0 : size / 16;
  for (long long i = me; i < wide; i += all) ((uint4*)target)[i] = ((const uint4*)source)[i];
  for (long long i = 16 * wide + me; i < size; i += all) target[i] = source[i];
}}
"""


def _copy_kernel() -> Kernel:
    """What the copy kernel touches, for devices that check it."""
    size = dims.symbol("n")
    bytes_ = [Buffer(name, (size,), np.dtype(np.uint8)) for name in ("target", "source")]
    return Kernel("copy", (bytes_[0],), (bytes_[1],), (), (), ("n",), (Phase("job", size, ()),))


COPIED = _copy_kernel()


@record
class Launched:
    """A kernel: how many blocks, where in the parameter block its own part begins, and the number
    of the step that it is of.
    """

    function: Function
    blocks: int
    at: int
    step: int


@record
class Multiplied:
    """A product of the library's, where in the parameter block its buffers' addresses are, and the
    number of the step that it is of.
    """

    call: Call
    at: int
    step: int

    @property
    def function(self) -> Function:
        """For errors."""
        return Function(None, 0, 0, "gemmEx", COPIED, 0, 0)

    def addresses(self, parameters: NDArray) -> tuple[int, ...]:
        """Where its sides and its result lie."""
        sides = self.call.first, self.call.second, self.call.result
        return tuple(int(parameters[self.at + s.buffer]) for s in sides)


@record
class Mapped:
    """A tensor map in the parameter block: where it and the address of its buffer are, in words."""

    of: maps.Numbers
    at: int
    address: int


@record(eq=False)
class Work:
    """Launches of one graph, those that take their place where arrays don't lie as tensor maps
    need it, and the maps.
    """

    first: tuple[Launched | Multiplied, ...]
    second: tuple[Launched | Multiplied, ...]
    mapped: tuple[Mapped, ...]


@record(eq=False)
class _Part:
    """Work, and the entries of the table that make its parameters: numbers of entries, and what is
    added to them.
    """

    work: Work
    places: NDArray
    offsets: NDArray


class Launches:
    """A segment's kernels on a device. `texts` gives those of a step's kernel, of which the first
    goes with all arrays.
    """

    def __init__(
        self,
        device: Device,
        steps: Sequence[AnyStep],
        texts: Callable[[Step], Sequence[Rendered]],
    ) -> None:
        self.device, self.steps, self._texts = device, steps, texts
        self._functions: dict[tuple[str, int], list[tuple[Launch, Function]]] = {}
        self._copying: Function | None = None
        self._maps: dict[tuple[maps.Numbers, int], NDArray] = {}
        self._parameters: Any = None
        self._room = 0  # bytes of the parameter block
        self._graphs: dict[tuple[Any, ...], Callable[[], None]] = {}
        self._asks = any(map(asks, steps))
        self._loops: dict[int, tuple[Loop, Chosen, Function | None]] = {}
        self._values: Sequence[int] = ()
        self._parts: list[_Part] | None = None

    @property
    def launches(self) -> int:
        """How many kernels are launched, not counting those of loops."""
        return sum(len(s.compiled.kernel.phases) for s in self.steps if isinstance(s, Step))

    @property
    def scratch(self) -> int:
        """None: kernels have shared memory."""
        return 0

    def resized(self, jobs: Sequence[Sequence[int] | None]) -> Launches:
        """The numbers of jobs follow from the table."""
        del jobs
        return self

    def run(self, values: Sequence[int]) -> None:
        """Run on a table of the device's addresses, and sizes.

        Raises DeviceError, with the number of the step, for what can't be launched.
        """
        self._values = values
        if self._asks:
            run_all(Asking(self), self.steps, list(values))
            return
        if self._parts is None:
            tape = _Unrolled(self, values)
            run_all(tape, self.steps, [k << _PLACE for k in range(1, len(values) + 1)])
            self._parts = tape.parts
        held = np.asarray((0, *values), np.int64)
        for part in self._parts:
            self.replay(part.work, held[part.places] + part.offsets)

    def functions(self, step: Step, text: int) -> list[tuple[Launch, Function]]:
        """How a step's phases are launched, and their functions, by number of the text."""
        key = step.compiled.digest, text
        if key not in self._functions:
            kernel, made = step.compiled.kernel, self._texts(step)[text]
            handles = self.device.load(made.text, [x.name for x in made.launches])
            size = parameters(kernel, made)
            self._functions[key] = [
                (x, Function(h, x.threads, x.shared, x.name, kernel, k, size))
                for k, (h, x) in enumerate(zip(handles, made.launches, strict=True))
            ]
        return self._functions[key]

    def loop(self, loop: Loop) -> tuple[Chosen, Function | None]:
        """What became of a loop, and its kernel if it is one."""
        if id(loop) not in self._loops:
            chosen, function = choose(loop, self._values, self.device.card()), None
            made = chosen.kernel
            if made is not None:
                (handle,) = self.device.load(made.text, [made.name], together=True)
                function = Function(
                    handle, made.threads, made.shared, made.name, COPIED, 0, made.bytes, made
                )
            self._loops[id(loop)] = loop, chosen, function
        return self._loops[id(loop)][1:]

    def loop_words(self, values: Sequence[int]) -> list[str]:
        """What became of each loop. `values` has the sizes of the table."""
        self._values = self._values or values
        loops = [s for s in self.steps if isinstance(s, Loop)]
        words = (None if x.length is None else self.loop(x)[0].why for x in loops)
        return [w or f"launches: {UNKNOWN}" for w in words]

    def charts(self, step: Step) -> tuple[maps.Numbers, ...]:
        """The tensor maps of a step's second text; none if it has no such text or they can't be."""
        texts = self._texts(step)
        found = [maps.numbers(c, step.sizes) for c in texts[-1].maps]
        return () if None in found else tuple(x for x in found if x is not None)

    def copying(self) -> Function:
        """The kernel that copies."""
        if self._copying is None:
            (handle,) = self.device.load(_COPY, ["copy"])
            self._copying = Function(handle, _THREADS, 0, "copy", COPIED, 0, 24)
        return self._copying

    def replay(self, given: Work, parameters: NDArray) -> None:
        """The work as a graph, captured when it is new, on these parameters."""
        if not given.first:
            return
        with lock:
            work = given.first if self._map(given.mapped, parameters) else given.second
            self._refresh(parameters)
            self.device.keep(work)  # to be told if it fails
            if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
                self._issue(work, parameters, self.device.wait)
                return
            # A library is told addresses: its graphs hold where arrays lie as they did.
            told = tuple(x.addresses(parameters) for x in work if isinstance(x, Multiplied))
            key = work, told
            if key not in self._graphs:
                while len(self._graphs) >= _KEPT:
                    self._graphs.pop(next(iter(self._graphs)))
                self._graphs[key] = self.device.capture(lambda: self._issue(work, parameters))
            self._graphs[key]()

    def _map(self, mapped: Sequence[Mapped], parameters: NDArray) -> bool:
        """Write the tensor maps, unless an array does not lie as they need it."""
        for m in mapped:
            address = int(parameters[m.address])
            if not maps.fits(m.of, address):
                return False
            key = m.of, address
            if key not in self._maps:
                if len(self._maps) >= _MOST_MAPS:
                    self._maps.clear()
                made = self.device.tensor_map(m.of, address)
                self._maps[key] = np.frombuffer(made, np.int64)
            parameters[m.at : m.at + maps.BYTES // 8] = self._maps[key]
        return True

    def _refresh(self, parameters: NDArray) -> None:
        """Copy the parameters to the device, all at once."""
        size = parameters.nbytes
        if self._parameters is None or size > self._room:
            self._room = max(_LEAST, 1 << (size - 1).bit_length())
            self._parameters = self.device.alloc(self._room)
            self._graphs.clear()  # they know where it lay
        self.device.keep(parameters)
        self.device.copy(int(self._parameters.ptr), parameters.ctypes.data, size)

    def _issue(
        self,
        work: Sequence[Launched | Multiplied],
        parameters: NDArray,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Ask the device for work."""
        begin = int(self._parameters.ptr)
        for item in work:
            try:
                if isinstance(item, Multiplied):
                    self.device.multiply(item.call, item.addresses(parameters))
                else:
                    self.device.launch(item.function, item.blocks, begin + 8 * item.at)
                if after is not None:
                    after()
            except DeviceError as error:
                error.step = item.step
                raise


def asks(step: AnyStep) -> bool:
    """Whether how a step goes on depends on what the device holds."""
    match step:
        case Loop():
            return step.length is None or any(map(asks, step.body.steps))
        case Choice():
            return True
        case _:
            return False


class _Tape:
    """What steps ask for, put down."""

    def __init__(self, launches: Launches) -> None:
        self.launches = launches
        self.step = 0  # the number of the step that runs
        self._work: list[tuple[Launched | Multiplied, Launched | Multiplied]] = []
        self._mapped: list[Mapped] = []
        self._parameters: list[int] = []

    def launch(self, step: Step, table: Sequence[int]) -> None:
        """A kernel."""
        kernel = step.compiled.kernel
        product = products.get(step.compiled.digest)
        call = None if product is None else call_of(product, kernel, step.sizes)
        if call is not None:
            made = Multiplied(call, len(self._parameters), self.step)
            self._parameters += [table[p] for p in step.slots]
            self._work.append((made, made))
            self._bounded()
            return
        charts = self.launches.charts(step)
        if charts:
            self._pad(len(self._parameters))
        at = len(self._parameters)
        self._parameters += [table[p] for p in step.slots]
        texts = [self.launches.functions(step, 0)] * 2
        if charts:
            texts[0] = self.launches.functions(step, 1)
            self._pad(len(self._parameters))
            assert len(self._parameters) - at == place_of_maps(kernel) // 8
            owners = [c.buffer for launch, _ in texts[0] for c in launch.maps]
            for of, owner in zip(charts, owners, strict=True):
                self._mapped.append(Mapped(of, len(self._parameters), at + owner))
                self._parameters += [0] * (maps.BYTES // 8)
        for phase, first, second in zip(kernel.phases, *texts, strict=True):
            jobs = int(dims.evaluate(phase.jobs, step.sizes))
            if jobs > 0:
                pair = (Launched(f, x.blocks(jobs), at, self.step) for x, f in (first, second))
                self._work.append((next(pair), next(pair)))
        self._bounded()

    def repeat(self, loop: Loop, table: Sequence[int]) -> bool:
        """A loop as one kernel, if it is one."""
        if loop.length is None:
            return False
        chosen, function = self.launches.loop(loop)
        made = chosen.kernel
        if made is None or function is None:
            return False
        self._parameters += [0] * (-len(self._parameters) % LINE)
        at = len(self._parameters)
        self._parameters += [w.number if w.place is None else table[w.place] for w in made.words]
        self._parameters += [0] * (made.counter + LINE - len(made.words))
        launched = Launched(function, chosen.blocks, at, self.step)
        self._work.append((launched, launched))
        self._bounded()
        return True

    def _pad(self, count: int) -> None:
        """On to where a tensor map may begin."""
        self._parameters += [0] * (-count % (maps.ALIGNMENT // 8))

    def taken(self) -> Work:
        """What was asked for."""
        first, second = zip(*self._work, strict=True) if self._work else ((), ())
        made = Work(first, second, tuple(self._mapped))
        self._work, self._mapped = [], []
        return made

    def _copied(self, target: int, source: int, size: int, blocks: int) -> None:
        function, at = self.launches.copying(), len(self._parameters)
        self._parameters += [target, source, size]
        made = Launched(function, blocks, at, self.step)
        self._work.append((made, made))
        self._bounded()

    def _bounded(self) -> None:
        if len(self._work) >= MOST:
            self.flush()

    def flush(self) -> None:
        """Do what was asked for."""
        raise NotImplementedError


class _Unrolled(_Tape):
    """Puts down steps on a table whose entries stand for themselves: each is its own number, from
    1, times 2 ** 40, and what is added to it. What has no such number is known.
    """

    def __init__(self, launches: Launches, values: Sequence[int]) -> None:
        super().__init__(launches)
        self.parts: list[_Part] = []
        self._values = values

    def copy(self, target: int, source: int, size: int) -> None:
        """A copy: of as many bytes as an entry says, or of a number of bytes that is known."""
        known = self._values[(size >> _PLACE) - 1] if size >> _PLACE else size
        if known:
            self._copied(target, source, size, min(1024, -(-known // _WIDE)))

    def read(self, address: int, size: int) -> bytes:
        """Nothing is read."""
        raise AssertionError("no step asks the device")

    def flush(self) -> None:
        """A graph ends here."""
        if self._work:
            entries = np.asarray(self._parameters, np.int64)
            offsets = entries & ((1 << _PLACE) - 1)
            self.parts.append(_Part(self.taken(), entries >> _PLACE, offsets))
        self._parameters = []


class Asking(_Tape):
    """Does what is asked for when something is read back."""

    def copy(self, target: int, source: int, size: int) -> None:
        """A copy."""
        if size:
            self._copied(target, source, size, min(1024, -(-size // _WIDE)))

    def read(self, address: int, size: int) -> bytes:
        """What the device has, when all before is done."""
        self.flush()
        held = np.empty(size, np.uint8)
        with lock:
            self.launches.device.copy(held.ctypes.data, address, size)
            self.launches.device.wait()
        return held.tobytes()

    def flush(self) -> None:
        """Do what was asked for."""
        self.launches.replay(self.taken(), np.asarray(self._parameters, np.int64))
        self._parameters = []


def run_all(tape: _Unrolled | Asking, steps: Iterable[AnyStep], table: list[int]) -> None:
    """Run steps, each under its number, to the end."""
    for tape.step, step in enumerate(steps):
        run_steps(tape, [step], table)
    tape.flush()
