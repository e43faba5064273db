"""What a program holds in memory, step by step: for explain, and for `jit(f, memory=bytes)`.

A step is one kernel or one equation that runs through `eval`. Temporaries live in the arena from
the kernel that writes them to the last that reads them; values that Python holds live from the
start of their segment (a run of kernels) to the end of the segment that uses them last; results
stay. Arguments belong to the caller and are listed, but not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from lumjax.record import record


class Place(Enum):
    """Where bytes are."""

    ARGUMENT = "argument"  # the caller's
    RESULT = "result"  # returned
    VALUE = "value"  # held between native calls
    TEMPORARY = "temporary"  # in the arena, between kernels of one native call
    WORKSPACE = "workspace"  # in the arena, between phases of one kernel


@record
class Lifetime:
    """A buffer of `size` bytes alive from step `first` to step `last`. `line` is the user's."""

    name: str
    size: int
    first: int
    last: int
    place: Place
    line: str = ""


@record
class Memory:
    """Sums over a program, under JAX's names. The peak does not count arguments."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    peak_memory_in_bytes: int


@record
class Timeline:
    """The steps in order, and every buffer's lifetime."""

    steps: tuple[str, ...]
    lifetimes: tuple[Lifetime, ...]
    arena: int = 0  # bytes of the one block that holds temporaries and workspaces
    scratch: int = 0  # bytes that the threads have while kernels run

    def __str__(self) -> str:
        sizes = self.sizes()
        if not sizes:
            return "nothing is held: the program has no steps"
        most = max(range(len(sizes)), key=lambda k: sizes[k])
        lines = [
            f"peak {sizes[most]:,} bytes at step {most + 1} of {len(sizes)} ({self.steps[most]}); "
            f"{self.allocated():,} bytes allocated, arguments not counted"
        ]
        lines += [f"{size:>14,}  {line or 'no line'}" for line, size in self.by_line(most)]
        return "\n".join(lines)

    def live(self, step: int) -> list[Lifetime]:
        """What is alive at a step, largest first."""
        found = [x for x in self.lifetimes if x.first <= step <= x.last]
        return sorted(found, key=lambda x: (-x.size, x.first, x.name))

    def sizes(self) -> list[int]:
        """The bytes alive at each step, arguments not counted."""
        return _running(
            (x for x in self.lifetimes if x.place is not Place.ARGUMENT), len(self.steps)
        )

    def peak(self) -> int:
        """The most bytes alive at one step, arguments not counted."""
        return max(self.sizes(), default=0)

    def allocated(self) -> int:
        """The most bytes that a run allocates: the arena, whole, what Python holds and, as far as
        it is known here, what threads have while kernels run.
        """
        held = (x for x in self.lifetimes if x.place in (Place.RESULT, Place.VALUE))
        return self.arena + self.scratch + max(_running(held, len(self.steps)), default=0)

    def totals(self) -> Memory:
        """The sizes of arguments, results and everything else that a run allocates."""
        sums = dict.fromkeys(Place, 0)
        for x in self.lifetimes:
            sums[x.place] += x.size
        results = sums[Place.RESULT]
        return Memory(sums[Place.ARGUMENT], results, self.allocated() - results, self.peak())

    def by_line(self, step: int) -> list[tuple[str, int]]:
        """The bytes alive at a step by the user's line that made them, most first."""
        total: dict[str, int] = {}
        for x in self.live(step):
            if x.place is not Place.ARGUMENT:
                total[x.line] = total.get(x.line, 0) + x.size
        return sorted(total.items(), key=lambda p: (-p[1], p[0]))


def _running(lifetimes: Iterable[Lifetime], steps: int) -> list[int]:
    change = [0] * (steps + 1)
    for x in lifetimes:
        change[x.first] += x.size
        change[min(x.last, steps - 1) + 1] -= x.size
    total, sizes = 0, [0] * steps
    for k in range(steps):
        total += change[k]
        sizes[k] = total
    return sizes
