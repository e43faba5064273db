"""Programs: kernels compiled, bound to the places of one table, and run by a single native call."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from lumjax.cpu import arena, objects, pool
from lumjax.cpu.render import render, scratch_bytes
from lumjax.kernel.ir import Kernel
from lumjax.record import record
from lumjax.target import Target
from lumjax.trace import dim as dims


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


def compile_kernels(kernels: Sequence[Kernel], target: Target) -> list[Compiled]:
    """Native code for kernels, from the cache on disk where it has been made before.

    Raises UnsupportedError for an operation that `render.unsupported` names, CompileError if LLVM
    refuses the code.
    """
    result: list[Compiled] = []
    for kernel in kernels:
        text = render(kernel, target)
        code, imports = objects.object_code(text, target), objects.libm_imports(text)
        digest = hashlib.sha256(f"{target.key}\n{text}".encode()).hexdigest()
        key = objects.object_key(text, target)
        addresses = _load(kernel, code, imports)
        result.append(Compiled(kernel, addresses, scratch_bytes(kernel), digest, key, imports))
    return result


def load_kernel(
    kernel: Kernel, scratch: int, digest: str, key: bytes, imports: tuple[str, ...]
) -> Compiled | None:
    """A kernel that another process compiled, from the cache on disk; None if it is not there.

    The kernel's phases need no bodies.
    """
    code = objects.cached_code(key)
    if code is None:
        return None
    return Compiled(kernel, _load(kernel, code, imports), scratch, digest, key, imports)


def _load(kernel: Kernel, code: bytes, imports: tuple[str, ...]) -> tuple[int, ...]:
    """The addresses of the phases' functions."""
    names = [f"{kernel.name}_phase{k}" for k in range(len(kernel.phases))]
    return tuple(objects.load(code, names, objects.libm_symbols(imports)))


_Row: TypeAlias = "tuple[int, int, int, int]"  # function, slots, jobs, serial


class Program:
    """Steps to run in order on one table of addresses and sizes. May be run by several threads.

    Steps of one wave (`waves` gives each step's, in rising order; default: each its own) don't
    depend on each other: their first phases are one launch together, then their second phases, and
    so on.
    """

    def __init__(self, steps: Sequence[Step], waves: Sequence[int] | None = None) -> None:
        self._arrays: list[np.ndarray[Any, Any]] = []
        self._steps = tuple(steps)  # keeps the code alive
        rows: list[_Row] = []
        numbers = range(len(steps)) if waves is None else waves
        for _, members in groupby(zip(numbers, steps, strict=True), key=itemgetter(0)):
            phases = zip_longest(*(self._phases(step) for _, step in members))
            rows += [self._joined([r for r in phase if r is not None]) for phase in phases]
        self._rows = np.asarray(rows, np.int64).reshape(-1, 4)
        self._address: int = self._rows.ctypes.data
        self._parallel = any(jobs > 1 and not serial for _, _, jobs, serial in rows)
        self._scratch = max((s.compiled.scratch for s in steps), default=0)
        self._pack = struct.Struct("")

    @property
    def launches(self) -> int:
        """How many times the jobs of a launch must be finished before the next one's begin."""
        return len(self._rows)

    def _phases(self, step: Step) -> list[_Row]:
        kernel = step.compiled.kernel
        assert len(step.slots) == len(kernel.buffers) + len(kernel.sizes), "a slot for each"
        slots = self._kept(np.asarray([*step.slots, 0], np.int32))
        return [
            (address, slots, int(dims.evaluate(phase.jobs, step.sizes)), int(step.serial))
            for phase, address in zip(kernel.phases, step.compiled.phases, strict=True)
        ]

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
        """Run on a table holding `values`: addresses and sizes where the steps' slots say."""
        if self._pack.size != 8 * len(values):
            self._pack = struct.Struct(f"{len(values)}q")
        table = self._pack.pack(*values)
        rows = len(self._rows)
        if not self._scratch:
            pool.run(self._address, rows, table, 0, 0, self._parallel)
            return
        threads = objects.cpu_count() if self._parallel else 1
        with arena.checkout(self._scratch * threads) as scratch:
            pool.run(self._address, rows, table, scratch, self._scratch, self._parallel)
