"""A recipe of a program as bytes and back: JSON, then the elements of its arrays.

Kernels are named by their object files; numbers of jobs are evaluated, so that nothing of a kernel
but its code is needed again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, TypeAlias, assert_never

import numpy as np

from lumjax import dtype as dt
from lumjax.cpu.runtime import (
    AnyStep,
    Bound,
    Carry,
    Choice,
    Compiled,
    Copy,
    Inner,
    Loop,
    Step,
    phase_addresses,
)
from lumjax.runner import Call, Recipe, Result, Segment, Slot
from lumjax.trace.core import Eqn

NDArray: TypeAlias = np.ndarray[Any, Any]
# What `from_bytes` raises of a body that was written whole, but is no recipe.
NONSENSE = (ValueError, KeyError, TypeError, IndexError, AttributeError)


def to_bytes(recipe: Recipe, number_of: Callable[[Call], int]) -> bytes:
    """The recipe. What is evaluated goes by a number."""
    writer = _Writer(number_of)
    entry = {
        "inputs": list(map(_slot, recipe.inputs)),
        "consts": list(map(writer.array, recipe.consts)),
        "parts": list(map(writer.part, recipe.parts)),
        "outputs": [[writer.number(r.value), r.weak, r.keyed] for r in recipe.outputs],
        "values": recipe.values,
        "table": list(map(writer.number, recipe.table)),
        "arena": recipe.arena,
        "arena_bytes": recipe.arena_bytes,
        "peak_bytes": recipe.peak_bytes,
        "owned": recipe.owned,
        "kernels": [
            [c.kernel.name, len(c.phases), c.scratch, c.code.hex(), c.imports]
            for c in writer.kernels.values()
        ],
    }
    head = json.dumps(entry, separators=(",", ":")).encode()
    return len(head).to_bytes(8, "little") + head + b"".join(writer.arrays)


def from_bytes(body: bytes, numbered: Callable[[int], Eqn]) -> Recipe | None:
    """The recipe again; None if code of a kernel is gone, one of NONSENSE if it is not one.
    `numbered` gives an equation that does what is evaluated under a number.
    """
    start = 8 + int.from_bytes(body[:8], "little")
    entry = json.loads(body[8:start])
    kernels: list[_Code] = []
    for name, phases, scratch, code, imports in entry["kernels"]:
        addresses = phase_addresses(name, phases, bytes.fromhex(code), tuple(imports))
        if addresses is None:
            return None
        kernels.append((addresses, scratch))
    reader = _Reader(memoryview(body)[start:], kernels, numbered)
    return Recipe(
        tuple(map(_slot_from, entry["inputs"])),
        tuple(map(reader.array, entry["consts"])),
        tuple(map(reader.part, entry["parts"])),
        tuple([Result(reader.number(v), bool(w), bool(k)) for v, w, k in entry["outputs"]]),
        int(entry["values"]),
        tuple(map(reader.number, entry["table"])),
        tuple([(int(place), int(offset)) for place, offset in entry["arena"]]),
        int(entry["arena_bytes"]),
        int(entry["peak_bytes"]),
        tuple(map(int, entry["owned"])),
    )


_Code: TypeAlias = "tuple[tuple[int, ...], int]"  # addresses of phases, scratch


def _slot(slot: Slot) -> list[Any]:
    return [slot.number, slot.place, slot.shape, dt.short_name(slot.dtype)]


def _slot_from(value: Any) -> Slot:
    number, place, shape, dtype = value
    return Slot(int(number), int(place), tuple(map(int, shape)), dt.from_short_name(dtype))


class _Writer:
    def __init__(self, number_of: Callable[[Call], int]) -> None:
        self.number_of = number_of
        self.kernels: dict[bytes, Compiled] = {}
        self.numbers: dict[bytes, int] = {}
        self.arrays: list[bytes] = []
        self.end = 0

    def array(self, data: NDArray) -> list[Any]:
        """Where an array's elements are, and what they are."""
        content = data.tobytes()
        begin = self.end
        self.arrays.append(content)
        self.end += len(content)
        return [begin, data.shape, dt.short_name(data.dtype)]

    def number(self, value: int | NDArray) -> Any:
        """A number, or an array."""
        return value if isinstance(value, int) else self.array(value)

    def part(self, part: Segment | Call) -> list[Any]:
        """What one native call runs, or one that is evaluated."""
        if isinstance(part, Segment):
            inner = self.inner(part.steps, part.waves)
            return ["native", inner, list(map(_slot, part.fresh)), part.dead]
        operands = list(map(self.number, part.inputs))
        return ["call", self.number_of(part), operands, list(map(_slot, part.outputs)), part.dead]

    def inner(self, steps: Sequence[AnyStep], waves: Sequence[Any]) -> list[Any]:
        """Steps, and how many there are in each wave."""
        return [list(map(self.step, steps)), [len(list(g)) for _, g in groupby(waves)]]

    def step(self, step: AnyStep) -> list[Any]:
        """A step: what it is comes first."""
        match step:
            case Step():
                compiled, bound = step.compiled, step.bound()
                self.kernels.setdefault(compiled.code, compiled)
                number = self.numbers.setdefault(compiled.code, len(self.numbers))
                jobs = [n for _, n in bound.phases]
                return ["kernel", number, list(bound.slots), jobs, bound.serial]
            case Copy():
                return ["copy", step.target, step.source, step.size]
            case Loop():
                carries = [
                    [c.read, c.written, c.init, c.result, c.buffers, c.size] for c in step.carries
                ]
                body = self.inner(step.body.steps, step.body.waves)
                test = self.inner(step.test.steps, step.test.waves)
                return [
                    "loop", step.length, step.reverse, step.aliases, step.rows, carries, body, test,
                    step.flag, step.interval,
                ]  # fmt: skip
            case Choice():
                branches = [[a, self.inner(i.steps, i.waves)] for a, i in step.branches]
                return ["choice", step.index, branches]
            case Bound():
                raise AssertionError("a program that was read is not written again")
            case _:
                assert_never(step)


class _Reader:
    def __init__(
        self, arrays: memoryview, kernels: Sequence[_Code], numbered: Callable[[int], Eqn]
    ) -> None:
        self.arrays, self.kernels, self.numbered = arrays, kernels, numbered

    def array(self, value: Any) -> NDArray:
        """An array of its own."""
        begin, shape, name = value
        dtype = dt.from_short_name(name)
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self.arrays, dtype, count, begin).reshape(shape).copy()

    def number(self, value: Any) -> int | NDArray:
        """A number, or an array."""
        return self.array(value) if isinstance(value, list) else int(value)

    def part(self, value: Any) -> Segment | Call:
        """What one native call runs, or one that is evaluated."""
        kind, *rest, made, dead = value
        slots, dead = tuple(map(_slot_from, made)), tuple(map(int, dead))
        if kind == "native":
            inner = self.inner(*rest)
            return Segment(inner.steps, inner.waves, slots, dead)
        number, operands = rest
        eqn = self.numbered(int(number))
        return Call(eqn.prim, eqn.params, tuple(map(self.number, operands)), slots, dead)

    def inner(self, value: Any) -> Inner:
        """Steps, and the numbers of their waves."""
        steps, counts = value
        waves = [k for k, count in enumerate(counts) for _ in range(count)]
        if len(waves) != len(steps):
            raise ValueError("a wave for each step")
        return Inner(tuple(map(self.step, steps)), tuple(waves))

    def step(self, value: Any) -> AnyStep:
        """A step."""
        kind, *rest = value
        if kind == "kernel":
            number, slots, jobs, serial = rest
            addresses, scratch = self.kernels[number]
            return Bound(tuple(zip(addresses, jobs, strict=True)), slots, scratch, serial)
        if kind == "copy":
            return Copy(*map(int, rest))
        if kind == "choice":
            index, branches = rest
            return Choice(int(index), tuple([(_rows(a), self.inner(i)) for a, i in branches]))
        if kind != "loop":
            raise ValueError(f"no step is called {kind}")
        length, reverse, aliases, rows, carries, body, test, flag, interval = rest
        return Loop(
            length,
            bool(reverse),
            _rows(aliases),
            _rows(rows),
            tuple([Carry(a, b, c, d, tuple(buffers), e) for a, b, c, d, buffers, e in carries]),
            self.inner(body),
            self.inner(test),
            int(flag),
            int(interval),
        )


def _rows(value: Any) -> tuple[Any, ...]:
    return tuple(map(tuple, value))
