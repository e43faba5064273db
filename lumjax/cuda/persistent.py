"""A loop of known length as one kernel, whose blocks stay from the first step to the last.

    extern "C" __global__ void loop_...(const i64* table)

`table` holds the addresses, sizes and numbers that the loop's steps need, and behind them a counter
where the blocks meet. Each step works out where its carry, rows and results lie, as the host would
(`host.py`), and does the phases of its kernels one after the other, those of a wave together. All
blocks meet between what depends on each other; all of them must be there at once. A carry is read
from one of two buffers and written to the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from lumjax.cpu.runtime import AnyStep, Carry, Copy, Inner, Loop, Step
from lumjax.cuda import ptx
from lumjax.cuda.header import HEADER, MEETING
from lumjax.cuda.render import STATIC_SHARED, Part, part, threads_of
from lumjax.dtype import DType
from lumjax.errors import LumjaxError
from lumjax.kernel.ir import Kernel, Phase
from lumjax.record import record
from lumjax.trace import dim as dims

LINE = 16  # words of a line of the cache: the counter has one for itself
MOST_PHASES, MOST_COPIES = 32, 64  # of a step
_WIDE = 16  # bytes that a thread copies at a time

NDArray: TypeAlias = np.ndarray[Any, Any]
UNKNOWN = "how long it goes on is found out as it runs"
Kernels: TypeAlias = Callable[[Step], Kernel]


class UnfitError(LumjaxError, ValueError):
    """A loop is no single kernel. `why` says what stands in the way."""

    def __init__(self, why: str) -> None:
        super().__init__(operation="a loop as one kernel", required="a few kernels for each step",
                         got=why, fix="it is run as launches")  # fmt: skip
        self.why = why


@record
class Word:
    """What the table holds: a place of the program's table, or a number."""

    place: int | None
    number: int = 0


@record
class Region:
    """The memory at an address of the table: which word that is, bytes, bytes of an element, its
    dtype if kernels say so, whether it is written.
    """

    word: int
    size: int
    grain: int
    dtype: DType | None
    written: bool


@record
class Work:
    """A phase as the loop runs it: so many jobs, where `each` thread has one."""

    phase: Phase
    sizes: Mapping[str, int]
    jobs: int
    each: bool
    times: int  # how often


@record
class Persistent:
    """A loop's text, and how it is launched: threads of a block, the most blocks with work to do,
    bytes of shared memory that the launch adds. `meetings`: how often the blocks wait;
    `copies`: how often something is copied.
    """

    text: str
    name: str
    threads: int
    wanted: int
    shared: int
    words: tuple[Word, ...]
    regions: tuple[Region, ...]
    work: tuple[Work, ...]
    meetings: int
    copies: int

    @property
    def counter(self) -> int:
        """The word where blocks meet."""
        return -(-len(self.words) // LINE) * LINE

    @property
    def bytes(self) -> int:
        """The size of the table."""
        return 8 * (self.counter + LINE)

    def held(self, words: Sequence[int]) -> NDArray:
        """The table, on a line of the cache."""
        room = np.zeros(self.counter + 2 * LINE, np.int64)
        held = room[-room.ctypes.data // 8 % LINE :][: self.counter + LINE]
        held[: len(words)] = words
        return held


def memory_of(made: Persistent, address: int, held: Sequence[int]) -> ptx.Memory:
    """What a loop's kernel may touch, whose table is `held`, at an address. What shares memory, at
    different times of a step, is one region.
    """
    found = [(int(held[r.word]), r.size, r.grain, r.written) for r in made.regions if r.size]
    memory = ptx.Memory()
    rows: list[tuple[int, int, int, bool]] = []
    for begin, size, grain, written in sorted(found):
        if rows and begin < rows[-1][0] + rows[-1][1]:
            at, before, fine, also = rows.pop()
            size = max(before, begin + size - at)
            begin, grain, written = at, min(grain, fine), written or also
        rows.append((begin, size, grain, written))
    for begin, size, grain, written in rows:
        memory.add_bytes(begin, size, grain, not written, written)
    memory.add_bytes(address, 8 * made.counter, 8, True, False)
    memory.add_bytes(address + 8 * made.counter, 8 * LINE, 8, True, True)
    return memory


def rendered(loop: Loop, kernels: Kernels, values: Sequence[int]) -> Persistent:
    """A loop as one kernel. `kernels` gives a step's, `values` has its sizes.

    Raises UnfitError for what is none; UnsupportedError where a tile does not go with the threads.
    """
    steps = list(_steps(loop))
    phases = sum(len(kernels(s).phases) for s in steps if isinstance(s, Step))
    if phases > MOST_PHASES or len(steps) > MOST_COPIES:
        raise UnfitError(
            f"launches: a step has {phases} phases and {len(steps)} kernels and copies"
        )
    threads = max((threads_of(kernels(s)) for s in steps if isinstance(s, Step)), default=0)
    if not threads:
        raise UnfitError("its steps only copy")
    return _Writer(kernels, values, threads).whole(loop)


def _steps(loop: Loop) -> Iterator[Step | Copy]:
    """All kernels and copies of a step."""
    if loop.length is None:
        raise UnfitError(UNKNOWN)
    if loop.length == 0:
        raise UnfitError("it has no step")
    for step in loop.body.steps:
        match step:
            case Step() | Copy():
                yield step
            case Loop():
                yield from _steps(step)
            case _:
                raise UnfitError("a choice in it is the host's")


class _Writer:
    """The lines of one loop."""

    def __init__(self, kernels: Kernels, values: Sequence[int], threads: int) -> None:
        self.kernels, self.values, self.threads = kernels, values, threads
        self.parts: dict[str, Part] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.words: list[Word] = []
        self.names: dict[int, str] = {}  # of places that steps move
        self.lies: dict[int, list[tuple[int, int]]] = {}  # (place, bytes) where such a place is
        self.uses: dict[int, Region] = {}  # by word
        self.work: list[Work] = []
        self.made = self.wanted = self.meetings = self.copies = 0

    def add(self, line: str) -> None:
        """A line."""
        self.lines.append("  " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        """A new name."""
        self.made += 1
        return f"{prefix}_{self.made}"

    def word(self, word: Word) -> int:
        """The number of a word of the table."""
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)

    def at(self, place: int) -> str:
        """What a place of the program's table holds now."""
        return self.names.get(place) or f"lj_table[{self.word(Word(place))}]"

    def number(self, value: int) -> str:
        """A number that the text does not depend on."""
        return f"lj_table[{self.word(Word(None, value))}]"

    # ---- the kernel

    def whole(self, loop: Loop) -> Persistent:
        """Everything."""
        self.loop(loop, 1, "")
        shared = max((-(-p.shared // 16) * 16 for p in self.parts.values()), default=0)
        dynamic = shared if shared > STATIC_SHARED else 0
        count = len(self.words)
        scratch = f"__shared__ __align__(16) u8 lj_scratch[{max(16, shared)}];"
        if dynamic:
            scratch = "extern __shared__ __align__(16) u8 lj_scratch[];"
        counter = -(-count // LINE) * LINE
        body = "\n".join([
            "loop_NAME(const i64* const table) {",
            f"  __shared__ i64 lj_table[{count}];",
            f"  {scratch}",
            f"  for (int k = threadIdx.x; k < {count}; k += {self.threads})",
            "    lj_table[k] = table[k];",
            f"  u64* const lj_counter = (u64*)(table + {counter});",
            "  u64 lj_times = 0;",
            "  __syncthreads();",
            *self.lines,
            "}\n",
        ])  # fmt: skip
        functions = "\n".join(p.text for p in self.parts.values())
        bounds = f'extern "C" __global__ void __launch_bounds__({self.threads}, 1)\n'
        text = f"{HEADER}{MEETING}\n{functions}\n{bounds}{body}"
        name = f"loop_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        return Persistent(
            text.replace("loop_NAME", name), name, self.threads, self.wanted, dynamic,
            tuple(self.words), tuple(self.uses.values()), tuple(self.work), self.meetings,
            self.copies,
        )  # fmt: skip

    def loop(self, loop: Loop, times: int, before: str) -> None:
        """A loop, `times` times; `before` is what its first step waits for."""
        assert loop.length is not None, "looked at before"
        for place, same in loop.aliases:
            self.names[place] = self.at(same)
            self.lies[place] = self._where(same)
        if before:
            self.add(before)
        step, length = self.fresh("step"), self.number(loop.length)
        self.add("#pragma unroll 1")
        self.add(f"for (i64 {step} = 0; {step} < {length}; {step}++) {{")
        self.depth += 1
        for carry in loop.carries:
            self._carry(carry, step, length)
        for place, stack, size in loop.rows:
            row = f"{length} - 1 - {step}" if loop.reverse else step
            name = self.fresh("row")
            self.add(f"const i64 {name} = {self.at(stack)} + ({row}) * {self.number(size)};")
            self.names[place] = name
            self.lies[place] = self._where(stack, size * loop.length)
        self.inner(loop.body, times * loop.length, f"if ({step}) {MEET}")
        self.meetings += times * (loop.length - 1)
        self.depth -= 1
        self.add("}")

    def _carry(self, carry: Carry, step: str, length: str) -> None:
        first, second = map(self.at, carry.buffers)
        read, written = self.fresh("carry"), self.fresh("next")
        init, result = self.at(carry.init), self.at(carry.result)
        self.add(f"const i64 {read} = {step} == 0 ? {init} : {step} & 1 ? {first} : {second};")
        self.add(f"const i64 {written} = {step} + 1 == {length} ? {result} : "
                 f"{step} & 1 ? {second} : {first};")  # fmt: skip
        self.names[carry.read], self.names[carry.written] = read, written
        places = [x for b in carry.buffers for x in self._where(b, carry.size)]
        for own, end in ((carry.read, carry.init), (carry.written, carry.result)):
            self.lies[own] = places + self._where(end, carry.size)

    def inner(self, inner: Inner, times: int, before: str) -> None:
        """A body, `times` times; `before` is what its first launch waits for."""
        for launch in _launches(inner):
            if isinstance(launch, Loop):
                self.loop(launch, times, before)
            else:
                self.add(before)
                self.launch(launch, times)
            self.meetings += times * (before == MEET)
            before = MEET

    # ---- what blocks do between two meetings

    def launch(self, members: Sequence[tuple[Step, int] | Copy], times: int) -> None:
        """Phases of several kernels, and copies, that don't depend on each other."""
        blocks = 0
        for k, member in enumerate(members):
            if k:
                self.add("__syncthreads();")
            first = "blockIdx.x"
            if blocks:
                late = f"{self.number(blocks)} % gridDim.x"
                first = f"(blockIdx.x + gridDim.x - {late}) % gridDim.x"
            if isinstance(member, Copy):
                blocks += self.copy(member, first)
                self.copies += times
            else:
                blocks += self.phase(*member, first, times)
        self.wanted = max(self.wanted, blocks)

    def copy(self, copy: Copy, first: str) -> int:
        """A copy; how many blocks have something to do."""
        target, source, size = map(self.at, (copy.target, copy.source, copy.size))
        self.add(f"lj_move((char*){target}, (const char*){source}, {size}, {first});")
        count = self.values[copy.size]
        self._use(copy.target, count, None, True)
        self._use(copy.source, count, None, False)
        return max(1, -(-count // (self.threads * _WIDE)))

    def phase(self, step: Step, number: int, first: str, times: int) -> int:
        """A phase of a kernel; how many blocks have something to do."""
        kernel = self.kernels(step)
        phase = kernel.phases[number]
        name = f"{kernel.name}_{step.compiled.digest[:8]}_phase{number}"
        if name not in self.parts:
            self.parts[name] = part(kernel, phase, name, self.threads)
        made = self.parts[name]
        if not number:
            self._used(kernel, step)
        slots = ", ".join(map(self.at, step.slots))
        self.add(f"{{ const i64 slots[] = {{{slots}}}; {name}(slots, lj_scratch, {first}); }}")
        jobs = int(dims.evaluate(phase.jobs, step.sizes))
        self.work.append(Work(phase, step.sizes, jobs, made.each, times))
        return -(-jobs // self.threads) if made.each else jobs

    # ---- memory

    def _where(self, place: int, size: int = 0) -> list[tuple[int, int]]:
        """The places of the program's table where what is at a place lies, and the bytes there, at
        least so many.
        """
        return [(p, max(n, size)) for p, n in self.lies.get(place) or [(place, 0)]]

    def _used(self, kernel: Kernel, step: Step) -> None:
        written = {b.name for b in (*kernel.outputs, *kernel.workspace)}
        for buffer, place in zip(kernel.buffers, step.slots, strict=False):
            count = 1
            for n in buffer.shape:
                count *= int(dims.evaluate(n, step.sizes))
            size = count * buffer.dtype.itemsize
            self._use(place, size, buffer.dtype, buffer.name in written)

    def _use(self, place: int, size: int, dtype: DType | None, written: bool) -> None:
        for base, known in self._where(place):
            word = self.word(Word(base))
            found = self.uses.get(word) or Region(word, 0, 8, None, False)
            item = 1 if dtype is None else dtype.itemsize
            grain = item if item in (1, 2, 4, 8) else item // 2
            if dtype is None and found.dtype is not None:
                grain = found.grain
            self.uses[word] = Region(
                word, max(found.size, size, known), min(found.grain, grain),
                found.dtype or dtype, found.written or written,
            )  # fmt: skip


MEET = "lj_meet(lj_counter, ++lj_times);"


def _launches(inner: Inner) -> Iterator[list[tuple[Step, int] | Copy] | Loop]:
    """What is done between two meetings: the phases of a wave's kernels, one after the other, and
    copies with what they don't depend on.
    """
    held: list[tuple[Step, int] | Copy] = []
    written: set[int] = set()
    for steps in _waves(inner):
        first = steps[0]
        if isinstance(first, Copy) and held and first.source not in written:
            held.append(first)
            written.add(first.target)
            continue
        if held:
            yield held
        held = []
        if isinstance(first, Loop):
            yield first
            continue
        *before, held = _phases(steps)
        yield from before
        written = {first.target} if isinstance(first, Copy) else _written(steps)
    if held:
        yield held


def _waves(inner: Inner) -> Iterator[list[AnyStep]]:
    """Steps that may run together; loops and copies alone."""
    for _, group in groupby(zip(inner.waves, inner.steps, strict=True), key=itemgetter(0)):
        steps = [step for _, step in group]
        if all(isinstance(s, Step) for s in steps):
            yield steps
        else:
            yield from ([s] for s in steps)


def _written(steps: Sequence[AnyStep]) -> set[int]:
    """The places that kernels write."""
    found: set[int] = set()
    for step in steps:
        assert isinstance(step, Step), "looked at before"
        kernel = step.compiled.kernel
        outputs = {b.name for b in (*kernel.outputs, *kernel.workspace)}
        slots = zip(kernel.buffers, step.slots, strict=False)
        found |= {place for b, place in slots if b.name in outputs}
    return found


def _phases(steps: Sequence[AnyStep]) -> Iterator[list[tuple[Step, int] | Copy]]:
    """The phases of kernels that may run together, or a copy."""
    rows: list[list[tuple[Step, int] | Copy]] = []
    for step in steps:
        if isinstance(step, Copy):
            rows.append([step])
        else:
            assert isinstance(step, Step), "looked at before"
            rows.append([(step, k) for k in range(len(step.compiled.kernel.phases))])
    for members in zip_longest(*rows):
        yield [m for m in members if m is not None]
