"""Programs: kernels compiled, bound to the places of one table, and run by a single native call.

A step of a program is a kernel, a copy, or a loop or choice over programs whose places are in the
same table.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from copy import copy
from dataclasses import replace
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any, TypeAlias, assert_never

import numpy as np

from lumjax.cpu import arena, nest, objects, pool
from lumjax.cpu.render import render, scratch_bytes
from lumjax.kernel.ir import Kernel
from lumjax.record import record
from lumjax.target import Target
from lumjax.trace import dim as dims

MANY_PAGES = 1 << 17  # bytes of scratch from which on it lies on a huge page


@record
class Compiled:
    """A kernel in memory: the address of each phase's function, and the scratch it needs.

    Equal `digest`s mean equal code for one machine. `code` is the key of its object file, `imports`
    names the C library's functions that it calls.
    """

    kernel: Kernel
    phases: tuple[int, ...]
    scratch: int
    digest: str
    code: bytes
    imports: tuple[str, ...]


@record
class Step:
    """One kernel of a program.

    `slots[k]` is the place in the program's table of the kernel's k-th buffer, then of its sizes;
    `sizes` gives the sizes' values, which decide the numbers of jobs. `serial` keeps a small kernel
    on the calling thread.
    """

    compiled: Compiled
    slots: Sequence[int]
    sizes: Mapping[str, int]
    serial: bool = False

    def bound(self) -> Bound:
        """What it comes to."""
        kernel = self.compiled.kernel
        assert len(self.slots) == len(kernel.buffers) + len(kernel.sizes), "a slot for each"
        jobs = [int(dims.evaluate(phase.jobs, self.sizes)) for phase in kernel.phases]
        phases = tuple(zip(self.compiled.phases, jobs, strict=True))
        return Bound(phases, self.slots, self.compiled.scratch, self.serial)


@record
class Bound:
    """A step as its code alone: address and number of jobs of each phase; places in the table; the
    scratch memory it needs.
    """

    phases: tuple[tuple[int, int], ...]
    slots: Sequence[int]
    scratch: int
    serial: bool = False


@record
class Copy:
    """A step that copies as many bytes as place `size` of the table says."""

    target: int
    source: int
    size: int


@record
class Inner:
    """The steps of a loop's body or of a branch; `waves` as in Program."""

    steps: tuple[AnyStep, ...]
    waves: tuple[Any, ...]


@record
class Carry:
    """Places of a value that goes from one step of a loop to the next: where a step reads it and
    writes it; of its first and last value; of two buffers of `size` bytes between them.
    """

    read: int
    written: int
    init: int
    result: int
    buffers: tuple[int, int]
    size: int


@record
class Loop:
    """A body run `length` times, or as long as the test's result, at place `flag`, is true.

    `aliases` are pairs (place, place that it is another name of); `rows` are triples (place of one
    row, place of the stack, bytes of a row), taken from the last one if `reverse`. Every `interval`
    steps it is seen whether the user interrupts.
    """

    length: int | None
    reverse: bool
    aliases: tuple[tuple[int, int], ...]
    rows: tuple[tuple[int, int, int], ...]
    carries: tuple[Carry, ...]
    body: Inner
    test: Inner
    flag: int
    interval: int


@record
class Choice:
    """The branch whose number is at place `index`, with aliases of its own."""

    index: int
    branches: tuple[tuple[tuple[tuple[int, int], ...], Inner], ...]


AnyStep: TypeAlias = "Step | Bound | Copy | Loop | Choice"


def moved(step: AnyStep, to: Callable[[int], int]) -> AnyStep:
    """The step with other places: `to` gives the new one of each."""
    match step:
        case Step() | Bound():
            return replace(step, slots=[to(s) for s in step.slots])
        case Copy():
            return Copy(to(step.target), to(step.source), to(step.size))
        case Loop():
            return replace(
                step,
                aliases=tuple((to(a), to(b)) for a, b in step.aliases),
                rows=tuple((to(a), to(b), n) for a, b, n in step.rows),
                carries=tuple(_moved_carry(c, to) for c in step.carries),
                body=moved_inner(step.body, to),
                test=moved_inner(step.test, to),
                flag=to(step.flag),
            )
        case Choice():
            branches = tuple(
                (tuple((to(a), to(b)) for a, b in aliases), moved_inner(inner, to))
                for aliases, inner in step.branches
            )
            return Choice(to(step.index), branches)
        case _:
            assert_never(step)


def moved_inner(inner: Inner, to: Callable[[int], int]) -> Inner:
    """A body's or branch's steps with other places."""
    return Inner(tuple(moved(s, to) for s in inner.steps), inner.waves)


def _moved_carry(c: Carry, to: Callable[[int], int]) -> Carry:
    first, second = c.buffers
    places = to(c.read), to(c.written), to(c.init), to(c.result)
    return Carry(*places, (to(first), to(second)), c.size)


def compile_kernels(kernels: Sequence[Kernel], target: Target) -> list[Compiled]:
    """Native code for kernels, from the cache on disk where it has been made before.

    Raises UnsupportedError for an operation that `render.unsupported` names, CompileError if LLVM
    refuses the code.
    """
    return [begin_kernel(kernel, target)() for kernel in kernels]


def begin_kernel(
    kernel: Kernel, target: Target, thread: Executor | None = None
) -> Callable[[], Compiled]:
    """A kernel compiled in two steps: what is returned ends it; LLVM works in `thread` before."""
    text = render(kernel, target)
    code, imports = objects.begin_object(text, target, thread), objects.libm_imports(text)
    digest = hashlib.sha256(f"{target.key}\n{text}".encode()).hexdigest()
    key = objects.object_key(text, target)

    def end() -> Compiled:
        addresses = _load(kernel.name, len(kernel.phases), code(), imports)
        return Compiled(kernel, addresses, scratch_bytes(kernel), digest, key, imports)

    return end


def load_kernel(
    kernel: Kernel, scratch: int, digest: str, key: bytes, imports: tuple[str, ...]
) -> Compiled | None:
    """A kernel that another process compiled, from the cache on disk; None if it is not there.

    The kernel's phases need no bodies.
    """
    addresses = phase_addresses(kernel.name, len(kernel.phases), key, imports)
    return None if addresses is None else Compiled(kernel, addresses, scratch, digest, key, imports)


def phase_addresses(
    name: str, phases: int, key: bytes, imports: tuple[str, ...]
) -> tuple[int, ...] | None:
    """The functions of a kernel whose object file is in the cache on disk; None if it is not."""
    code = objects.cached_code(key)
    return None if code is None else _load(name, phases, code, imports)


def _load(name: str, phases: int, code: bytes, imports: tuple[str, ...]) -> tuple[int, ...]:
    """The addresses of the phases' functions."""
    names = [f"{name}_phase{k}" for k in range(phases)]
    return tuple(objects.load(code, names, objects.libm_symbols(imports)))


_Row: TypeAlias = "tuple[int, int, int, int]"  # function, slots, jobs, kind
_Launch: TypeAlias = "list[tuple[_Row, int, int]]"


class Program:
    """Steps to run in order on one table of addresses and sizes. May be run by several threads.

    Steps of one wave (`waves` names each step's; default: each its own) don't
    depend on each other: their first phases are one launch together, then their second phases, and
    so on. Loops and choices have waves of their own.
    """

    def __init__(self, steps: Sequence[AnyStep], waves: Sequence[Any] | None = None) -> None:
        self._arrays: list[np.ndarray[Any, Any]] = []
        self._steps = tuple(steps)  # keeps the code alive
        self._origin: Program | None = None
        self._parallel = self._nested = False
        self._scratch = 0
        self._launches = self._launches_of(steps, range(len(steps)) if waves is None else waves)
        rows = self._merged(self._launches)
        self._count, self._address = len(rows), self._table_of(rows)
        self._pack, self._native = struct.Struct(""), pool.native()

    @property
    def launches(self) -> int:
        """How many times the jobs of a launch must be finished before the next one's begin. What a
        loop runs is not counted.
        """
        return self._count

    @property
    def scratch(self) -> int:
        """Bytes of memory of the jobs' own, all threads together."""
        size = self._scratch * (objects.cpu_count() if self._parallel else 1)
        return max(size, arena.HUGE) if size >= MANY_PAGES else size

    def resized(self, jobs: Sequence[Sequence[int] | None]) -> Program:
        """The same program with other numbers of jobs for the phases of each step; None for a step
        leaves them as they are.
        """
        made = copy(self)
        made._arrays, made._origin = [], self  # whose arrays and code live on
        launches = [
            [(row if (n := jobs[k]) is None else (*row[:2], n[p], row[3]), k, p)
             for row, k, p in launch]
            for launch in self._launches
        ]  # fmt: skip
        rows = made._merged(launches)
        made._count, made._address = len(rows), made._table_of(rows)
        return made

    def _launches_of(self, steps: Sequence[AnyStep], waves: Sequence[Any]) -> list[_Launch]:
        """The phases that run at once, each with the numbers of its step and among its phases."""
        found: list[_Launch] = []
        numbered = zip(waves, range(len(steps)), steps, strict=True)
        for _, members in groupby(numbered, key=itemgetter(0)):
            phases = zip_longest(
                *([(r, k, p) for p, r in enumerate(self._phases(step))] for _, k, step in members)
            )
            found += [[r for r in phase if r is not None] for phase in phases]
        return found

    def _merged(self, launches: Sequence[_Launch]) -> list[_Row]:
        rows = [self._joined([row for row, _, _ in launch]) for launch in launches]
        self._parallel |= any(jobs > 1 and kind == 0 for _, _, jobs, kind in rows)
        return rows

    def _table_of(self, rows: Sequence[_Row]) -> int:
        return self._kept(np.asarray(rows, np.int64).reshape(-1, 4))

    def _phases(self, step: AnyStep) -> list[_Row]:
        match step:
            case Step():
                return self._kernel(step.bound())
            case Bound():
                return self._kernel(step)
            case Copy():
                slots = np.asarray([step.target, step.source, step.size], np.int32)
                return [(pool.native().copy, self._kept(slots), 1, 1)]
            case Loop():
                self._nested = True
                return [(self._loop(step), 0, 1, nest.REPEAT)]
            case Choice():
                self._nested = True
                parts = [
                    (*self._list(aliases), *self._inner(inner)) for aliases, inner in step.branches
                ]
                numbers = [step.index, *(n for part in parts for n in part)]
                return [(self._kept(np.asarray(numbers, np.int64)), 0, 1, nest.CHOOSE)]
            case _:
                assert_never(step)

    def _kernel(self, step: Bound) -> list[_Row]:
        self._scratch = max(self._scratch, step.scratch)
        slots = self._kept(np.asarray([*step.slots, 0], np.int32))
        return [(address, slots, jobs, int(step.serial)) for address, jobs in step.phases]

    def _loop(self, loop: Loop) -> int:
        """The address of what native code needs of a loop: see nest.py."""
        carries = [(c.read, c.written, c.init, c.result, *c.buffers, c.size) for c in loop.carries]
        numbers = [
            -1 if loop.length is None else loop.length,
            int(loop.reverse),
            *self._list(loop.aliases),
            *self._list(loop.rows),
            *self._list(carries),
            *self._inner(loop.body),
            *self._inner(loop.test),
            loop.flag,
            loop.interval,
        ]
        return self._kept(np.asarray(numbers, np.int64))

    def _list(self, rows: Sequence[tuple[int, ...]]) -> tuple[int, int]:
        return len(rows), self._kept(np.asarray([n for row in rows for n in row], np.int64))

    def _inner(self, inner: Inner) -> tuple[int, int]:
        rows = self._merged(self._launches_of(inner.steps, inner.waves))
        return len(rows), self._table_of(rows)

    def _kept(self, array: np.ndarray[Any, Any]) -> int:
        """The address of an array that lives as long as the program."""
        self._arrays.append(array)
        return array.ctypes.data

    def _joined(self, rows: Sequence[_Row]) -> _Row:
        """One launch of several phases: their jobs one after the other."""
        if len(rows) == 1:
            return rows[0]
        wave, end = [len(rows)], 0
        for function, slots, jobs, _ in rows:
            end += jobs
            wave += [end, function, slots]
        serial = all(row[3] for row in rows)
        return pool.native().wave, self._kept(np.asarray(wave, np.int64)), end, int(serial)

    def run(self, values: Sequence[int]) -> None:
        """Run on a table holding `values`: addresses and sizes where the steps' slots say.

        Raises what a signal handler raises while a loop runs (KeyboardInterrupt, say).
        """
        if self._pack.size != 8 * len(values):
            self._pack = struct.Struct(f"{len(values)}q")
        table: Any = self._pack.pack(*values)
        if self._nested:  # loops write into it
            table = ctypes.create_string_buffer(table, len(table))
        self.start(table)

    @property
    def steps(self) -> tuple[int, int]:
        """The address of what the native loop runs, and how many rows there are."""
        return self._address, self._count

    @property
    def simple(self) -> bool:
        """Whether the calling thread runs it alone, without memory of the jobs' own."""
        return not (self._scratch or self._parallel)

    def start(self, table: Any) -> None:
        """Run on a table: its address, or what has it."""
        if not self._scratch:
            if self._parallel:
                pool.run(self._address, self._count, table, 0, 0, True)
            elif self._native.run(self._address, self._count, table, None, None, 0):
                self._native.reraise()
            return
        with arena.checkout(self.scratch) as scratch:
            pool.run(self._address, self._count, table, scratch, self._scratch, self._parallel)
