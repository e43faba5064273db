"""Steps of a program as the host runs them: launches, copies, loops and choices, one after the
other on a table of addresses and sizes.

A loop that is no kernel (`persistent.py`) does no work of its own. Before each of its steps the
table is told where the step's carry, rows and results lie; carries alternate between two buffers.
Only a test's result and a choice's number are read back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, assert_never

from lumjax.cpu.runtime import AnyStep, Bound, Carry, Choice, Copy, Inner, Loop, Step


class Launching(Protocol):
    """What the steps need of a device."""

    def launch(self, step: Step, table: Sequence[int]) -> None:
        """Run a kernel on the addresses and sizes at its places of the table."""
        ...

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes within the device."""
        ...

    def read(self, address: int, size: int) -> bytes:
        """What the device holds, when all launched before is done."""
        ...

    def repeat(self, loop: Loop, table: Sequence[int]) -> bool:
        """Run a loop as one kernel, if it is one."""
        ...


def run_steps(device: Launching, steps: Sequence[AnyStep], table: list[int]) -> None:
    """Run steps in order; loops write into the table."""
    for step in steps:
        match step:
            case Step():
                device.launch(step, table)
            case Copy():
                device.copy(table[step.target], table[step.source], table[step.size])
            case Loop():
                if not device.repeat(step, table):
                    _repeat(device, step, table)
            case Choice():
                _choose(device, step, table)
            case Bound():
                raise AssertionError("only programs for the CPU are kept as code alone")
            case _:
                assert_never(step)


def _repeat(device: Launching, loop: Loop, table: list[int]) -> None:
    for place, same in loop.aliases:
        table[place] = table[same]
    done = 0
    while True:
        for carry in loop.carries:
            _place(carry, done, loop.length == done + 1, table)
        if not _goes_on(device, loop, done, table):
            break
        for place, stack, size in loop.rows:
            assert loop.length is not None, "rows have a number"
            row = loop.length - 1 - done if loop.reverse else done
            table[place] = table[stack] + row * size
        _run(device, loop.body, table)
        done += 1
    if loop.length is None or loop.length == 0:  # no step knew that it was the last one
        for carry in loop.carries:
            device.copy(table[carry.result], table[carry.read], carry.size)


def _goes_on(device: Launching, loop: Loop, done: int, table: list[int]) -> bool:
    if loop.length is not None:
        return done < loop.length
    _run(device, loop.test, table)
    return device.read(table[loop.flag], 1) != b"\0"


def _place(carry: Carry, done: int, last: bool, table: list[int]) -> None:
    """Where a step reads and writes a carry."""
    first, second = carry.buffers if done % 2 == 0 else carry.buffers[::-1]
    table[carry.read] = table[second if done else carry.init]
    table[carry.written] = table[carry.result if last else first]


def _choose(device: Launching, choice: Choice, table: list[int]) -> None:
    number = int.from_bytes(device.read(table[choice.index], 4), "little", signed=True)
    aliases, inner = choice.branches[number]
    for place, same in aliases:
        table[place] = table[same]
    _run(device, inner, table)


def _run(device: Launching, inner: Inner, table: list[int]) -> None:
    run_steps(device, inner.steps, table)
