"""Loops and choices made part of a native call: memory of their own, and steps for the runtime.

The places of a sub-program follow those of the program around it in one table. What a step of a
loop reads and writes is where the runtime says before that step: a row of a stack, a carry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, assert_never

import numpy as np

from lumjax.cpu.runtime import AnyStep, Carry, Choice, Copy, Inner, Loop, moved_inner
from lumjax.dtype import DType
from lumjax.record import record
from lumjax.stages import Inside, Nested, Stage
from lumjax.trace.array import Array
from lumjax.trace.core import Atom, Jaxpr, Literal, Value, Var
from lumjax.trace.dim import evaluate
from lumjax.trace.form import Choose, Repeat

NDArray: TypeAlias = np.ndarray[Any, Any]
# Seconds between two looks at whether the user interrupts: each may wait for Python's lock.
LOOK = 0.05
_ARENA, _FLAG = "memory of a step", "condition"

# The place in the table of a variable or of any other name.
Placer: TypeAlias = Callable[[Hashable], int]


class Placed(Protocol):
    """What is used of a program's layout."""

    places: dict[Any, int]
    arena_bytes: int

    def place(self, name: Any) -> int:
        """The place in the table of a variable or of any other name."""
        ...

    given: Mapping[str, int]

    def resolve(self, atom: Atom) -> Atom:
        """The atom that an atom is another name of."""
        ...


@dataclass(slots=True)
class Table:
    """What a program's table holds before it runs: sizes, and constants, of which it holds the
    addresses; offsets of what lies in the arena.
    """

    fixed: dict[int, int | NDArray]
    offsets: dict[int, int]


def private_of(stage: Nested, given: Mapping[str, int]) -> dict[str, int]:
    """The buffers, with sizes in bytes, that a loop or choice needs while it runs; `given` are the
    sizes known only then.
    """
    found = {_ARENA: max(p.arena_bytes for p in stage.programs)}
    if isinstance(stage.form, Repeat):
        found[_FLAG] = 1
        for k in _changing(stage.programs[0], stage.form):
            size = _bytes(stage.outputs[k], given)
            found |= {f"carry {k}": size, f"carry {k}, next": size}
    return {name: size for name, size in found.items() if size}


def inside(
    jaxpr: Jaxpr,
    consts: Sequence[Value],
    stages: Sequence[Stage],
    layout: Placed,
    table: Table,
    steps: Inner,
) -> Inside:
    """A compiled program, all of it native code, as a part of another's native call. Its first
    inputs are `consts`; `table` is what it knows of its own.
    """
    fixed = dict(table.fixed)

    def constant(value: Any, dtype: DType, where: int) -> int:
        data = value.data if type(value) is Array else value
        fixed[where] = np.array(data, dtype, order="C")
        return where

    for var, value in zip(jaxpr.inputs, consts, strict=False):
        constant(value, var.aval.dtype, layout.place(var))
    inputs = jaxpr.inputs[len(consts) :]
    order = {v: k for k, v in enumerate(inputs)}
    outputs: list[int] = []
    passed: list[int | None] = []
    copies: list[Copy | None] = []
    for k, atom in enumerate(map(layout.resolve, jaxpr.outputs)):
        source = (
            layout.place(atom)
            if isinstance(atom, Var)
            else constant(atom.value, atom.aval.dtype, layout.place(("literal", k)))
        )
        passed.append(order.get(atom) if isinstance(atom, Var) else None)
        made = isinstance(atom, Var) and atom not in jaxpr.inputs and source not in outputs
        outputs.append(source if made else layout.place(("copy", k)))
        size = layout.place(("bytes", k))
        fixed[size] = _bytes(atom, layout.given)
        copies.append(None if made else Copy(outputs[-1], source, size))
    places = [layout.place(v) for v in inputs]
    return Inside(
        tuple(stages), len(layout.places), tuple(fixed.items()), tuple(table.offsets.items()),
        layout.arena_bytes, tuple(places), tuple(outputs), tuple(passed), tuple(copies), steps,
    )  # fmt: skip


@record
class Linked:
    """Steps one after the other; what the table holds at places from the start; what lies in a
    block at an offset: (place, place of the block, offset).
    """

    steps: tuple[AnyStep, ...]
    fixed: tuple[tuple[int, int | NDArray], ...]
    memory: tuple[tuple[int, int, int], ...]


def link(stage: Nested, number: int, layout: Placed) -> Linked:
    """The steps of stage `number` of a program."""
    return _Linker(stage, number, layout).linked()


def _changing(body: Inside, form: Repeat) -> list[int]:
    """The carries that a step may change."""
    return [k for k in range(form.carry) if body.passed[k] != form.consts + k]


def _bytes(atom: Atom, given: Mapping[str, int]) -> int:
    size = atom.aval.dtype.itemsize
    for n in atom.aval.shape:
        size *= int(evaluate(n, given))
    return size


class _Linker:
    def __init__(self, stage: Nested, number: int, layout: Placed) -> None:
        self.stage, self.number, self.given = stage, number, layout.given
        self.place, resolve = layout.place, layout.resolve
        self.fixed: list[tuple[int, int | NDArray]] = []
        self.operands = [self._operand(k, resolve(a)) for k, a in enumerate(stage.eqn.inputs)]
        self.results = [self.place(v) for v in stage.outputs]
        self.bases = [self._reserved(k, p) for k, p in enumerate(stage.programs)]

    def _operand(self, k: int, atom: Any) -> int:
        if isinstance(atom, Var):
            return self.place(atom)
        assert isinstance(atom, Literal), "an operand is a variable or a literal"
        data = np.array(atom.value, atom.aval.dtype, order="C")
        return self._constant(("literal", k), data)

    def _constant(self, name: Hashable, value: int | NDArray) -> int:
        where = self.place((self.number, name))
        self.fixed.append((where, value))
        return where

    def _reserved(self, k: int, program: Inside) -> int:
        """Places for a sub-program, in one run; the first of them."""
        places = [self.place((self.number, "inside", k, n)) for n in range(program.places)]
        base = places[0] if places else 0
        assert places == list(range(base, base + len(places))), "places are given out in order"
        self.fixed += [(base + p, value) for p, value in program.fixed]
        return base

    def bytes(self, atom: Atom) -> int:
        """The size of a value."""
        return _bytes(atom, self.given)

    def _private(self, name: str) -> int:
        return self.place((self.number, 0, name))

    def linked(self) -> Linked:
        """Everything."""
        form = self.stage.form
        match form:
            case Repeat():
                steps = self._repeat(form)
            case Choose():
                steps = [self._choose()]
            case _:
                assert_never(form)
        memory = [
            (base + p, self._private(_ARENA), offset)
            for base, program in zip(self.bases, self.stage.programs, strict=True)
            for p, offset in program.arena
            if program.arena_bytes
        ]
        return Linked(tuple(steps), tuple(self.fixed), tuple(memory))

    # ---- loops

    def _repeat(self, form: Repeat) -> list[AnyStep]:
        body, *tests = self.stage.programs
        base = self.bases[0]
        tested, given = form.test_consts, form.test_consts + form.consts
        read = [base + p for p in body.inputs]
        written = [base + p for p in body.outputs]
        changing = _changing(body, form)
        fixed = [k for k in range(form.carry) if k not in changing]
        aliases = [
            *zip(read[: form.consts], self.operands[tested:given], strict=True),
            *((read[form.consts + k], self.operands[given + k]) for k in fixed),
        ]
        carries = [
            Carry(
                read[form.consts + k], written[k], self.operands[given + k], self.results[k],
                (self._private(f"carry {k}"), self._private(f"carry {k}, next")),
                self.bytes(self.stage.outputs[k]),
            )
            for k in changing
        ]  # fmt: skip
        test, flag = Inner((), ()), 0
        for program in tests:  # it reads the carry where the body does
            carried = dict(zip(program.inputs[tested:], read[form.consts :], strict=True))
            test = self._inner(1, {0}, carried)
            given_to_test = (self.bases[1] + p for p in program.inputs[:tested])
            aliases += zip(given_to_test, self.operands[:tested], strict=True)
            flag = self.bases[1] + program.outputs[0]
            aliases.append((flag, self._private(_FLAG)))
        step = Loop(
            None if form.length is None else int(evaluate(form.length, self.given)),
            form.reverse,
            tuple(aliases),
            tuple(self._rows(form, read, written)),
            tuple(carries),
            self._inner(0, set(range(len(written))).difference(fixed)),
            test,
            flag,
            max(1, int(LOOK / (1e-7 + sum(p.seconds for p in self.stage.programs)))),
        )
        return [step, *(self._copied(k, given + k) for k in fixed)]

    def _rows(
        self, form: Repeat, read: Sequence[int], written: Sequence[int]
    ) -> list[tuple[int, int, int]]:
        """What lies in rows of stacks, each with the bytes of one."""
        first = form.consts + form.carry
        stacks = self.operands[form.test_consts + first :]
        length = max(1, 0 if form.length is None else int(evaluate(form.length, self.given)))
        stacked = self.stage.eqn.inputs[form.test_consts + first :]
        sizes = [self.bytes(a) // length for a in stacked]
        found = list(zip(read[first:], stacks, sizes, strict=True))
        results = self.stage.outputs[form.carry :]
        sizes = [self.bytes(v) // length for v in results]
        made = zip(written[form.carry :], self.results[form.carry :], sizes, strict=True)
        return [*found, *made]

    def _copied(self, k: int, operand: int) -> Copy:
        """The last value of a carry that never changes."""
        size = self._constant(("bytes", k), self.bytes(self.stage.outputs[k]))
        return Copy(self.results[k], self.operands[operand], size)

    # ---- choices

    def _choose(self) -> Choice:
        branches = [
            (
                (
                    *zip((base + p for p in program.inputs), self.operands[1:], strict=True),
                    *zip((base + p for p in program.outputs), self.results, strict=True),
                ),
                self._inner(k, set(range(len(self.results)))),
            )
            for k, (base, program) in enumerate(zip(self.bases, self.stage.programs, strict=True))
        ]
        return Choice(self.operands[0], tuple(branches))

    # ---- both

    def _inner(self, k: int, wanted: set[int], named: Mapping[int, int] | None = None) -> Inner:
        """A sub-program's steps, then copies that make those of the wanted outputs that no kernel
        writes. `named` gives places that are another program's.
        """
        program, base, known = self.stage.programs[k], self.bases[k], named or {}
        copies = [c for n, c in enumerate(program.copies) if c is not None and n in wanted]
        inner = Inner(
            (*program.steps.steps, *copies),
            (*program.steps.waves, *(("copy", n) for n in range(len(copies)))),
        )
        return moved_inner(inner, lambda p: known.get(p, base + p))
