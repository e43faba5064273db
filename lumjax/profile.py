"""Choose among kernels by measuring them, one thread at a time and in pairs.

Two programs run in turn, A B A B. What counts is the CPU time of the thread; a run during which the
thread was not on its CPU for more than a twentieth of the time is dropped. Buffers rotate beyond
the last-level cache. The 20th percentile stands for a program; a challenger must be more than 3 %
faster in the first half of the pairs and in the second. Every kernel is verified before it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.aligned import address_of
from lumjax.cpu import arena
from lumjax.cpu.runtime import Program, Step
from lumjax.egraph.plan import Budget, Found, Measured, Plan
from lumjax.egraph.realise import kernels_of
from lumjax.egraph.search import lower_for
from lumjax.kernel.ir import Kernel
from lumjax.kernel.schedule import DEFAULT, Schedule, changed, variants
from lumjax.kernel.term import Buffer, Group
from lumjax.native import Checked, Unsupported, all_checked, checked, sizes_of
from lumjax.record import record
from lumjax.target import Target
from lumjax.trace.dim import evaluate

Run: TypeAlias = Callable[[], None]
# Seconds on the wall and of the thread's CPU time that a number of runs took.
Clock: TypeAlias = Callable[[Run, int], tuple[float, float]]

PAIRS = 20
FEWEST = 4  # pairs of each half that must be left to judge by
GAIN = 0.97
FOREIGN = 0.05
PERCENTILE = 20
LEAST = 3e-4  # seconds of one measurement: shorter runs are repeated
MOST = 2.0  # seconds for one comparison, about
SETS = 8  # of buffers, at most
BYTES = 1 << 28  # for all of them


def timed(run: Run, times: int) -> tuple[float, float]:
    """Wall and CPU seconds of `times` runs on this thread."""
    wall, own = time.perf_counter_ns(), time.thread_time_ns()
    for _ in range(times):
        run()
    return (time.perf_counter_ns() - wall) * 1e-9, (time.thread_time_ns() - own) * 1e-9


@record
class Race:
    """Two programs compared: seconds of one run each; whether the second is to be taken."""

    first: float
    second: float
    won: bool
    kept: int  # pairs that were not disturbed


def race(first: Run, second: Run, pairs: int = PAIRS, clock: Clock = timed) -> Race:
    """Run both in turn and judge by what was not disturbed."""
    _, guess = clock(first, 1)
    clock(second, 1)
    times = max(1, int(LEAST / max(guess, 1e-7)))
    pairs = min(pairs, max(2 * FEWEST, int(MOST / (2 * times * max(guess, 1e-7)))))
    found: list[tuple[float, float] | None] = []
    for _ in range(pairs):
        a, b = _clean(clock(first, times), times), _clean(clock(second, times), times)
        found.append(None if a is None or b is None else (a, b))
    middle = pairs // 2
    halves = [[p for p in half if p is not None] for half in (found[:middle], found[middle:])]
    kept = [p for half in halves for p in half]
    if any(len(half) < FEWEST for half in halves):
        return Race(guess, guess, False, len(kept))
    won = all(_typical(half, 1) < GAIN * _typical(half, 0) for half in halves)
    return Race(_typical(kept, 0), _typical(kept, 1), won, len(kept))


def _clean(spent: tuple[float, float], times: int) -> float | None:
    """Seconds of one run, or None if others had the CPU meanwhile."""
    wall, own = spent
    return own / times if wall - own <= FOREIGN * wall else None


def _typical(pairs: Sequence[tuple[float, float]], which: int) -> float:
    return float(np.percentile([p[which] for p in pairs], PERCENTILE))


# ---- programs that can be run


class Runner:
    """Kernels in order on buffers of their own; each call takes the next of `sets` of buffers (0:
    as many as leave the last-level cache).
    """

    def __init__(
        self,
        kernels: Sequence[Checked],
        target: Target,
        seed: int = 0,
        sets: int = 0,
        serial: bool = True,
    ) -> None:
        self.kernels = tuple(kernels)
        places: dict[Any, int] = {}
        named: dict[Any, tuple[Buffer, Mapping[str, int]]] = {}
        steps: list[Step] = []
        values: dict[int, int] = {}
        for k, item in enumerate(kernels):
            kernel, sizes = item.compiled.kernel, sizes_of(item.compiled.kernel)
            names: list[Any] = [b.name for b in (*kernel.outputs, *kernel.inputs)]
            names += [(k, b.name) for b in kernel.workspace]
            for name, buffer in zip(names, kernel.buffers, strict=True):
                named.setdefault(name, (buffer, sizes))
            slots = [places.setdefault(n, len(places)) for n in names]
            for n in kernel.sizes:
                slots.append(places.setdefault(("size", k, n), len(places)))
                values[slots[-1]] = sizes[n]
            steps.append(Step(item.compiled, slots, sizes, serial=serial))
        self._program = Program(steps)
        self._tables: list[list[int]] = []
        self._kept: list[np.ndarray[Any, Any]] = []
        size = sum(_bytes(b, s) for b, s in named.values())
        rng = np.random.default_rng(seed)
        enough = min(SETS, 1 + 2 * target.l3 // max(1, size), BYTES // max(1, size))
        for _ in range(sets or max(1, enough)):
            table = [0] * len(places)
            for place, value in values.items():
                table[place] = value
            for name, (buffer, sizes) in named.items():
                array = _filled(buffer, sizes, rng)
                self._kept.append(array)
                table[places[name]] = address_of(array)
            self._tables.append(table)
        self._next: Iterator[list[int]] = cycle(self._tables)

    def __call__(self) -> None:
        """Run once."""
        self._program.run(next(self._next))


def _shape(buffer: Buffer, sizes: Mapping[str, int]) -> list[int]:
    return [int(evaluate(d, sizes)) for d in buffer.shape]


def _bytes(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    return int(np.prod(_shape(buffer, sizes), dtype=np.int64)) * buffer.dtype.itemsize


def _filled(
    buffer: Buffer, sizes: Mapping[str, int], rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    """Ordinary values: small integers, floats about 1."""
    array = arena.empty(_shape(buffer, sizes), buffer.dtype)
    if dt.is_bool(buffer.dtype):
        array[...] = rng.random(array.shape) < 0.5
    elif dt.is_integer(buffer.dtype):
        array[...] = rng.integers(0, 16, array.shape)
    else:
        array[...] = rng.standard_normal(array.shape, np.float32).astype(buffer.dtype)
    return array


# ---- choices


def profiled(
    found: Found, target: Target, budget: Budget, clock: Clock = timed
) -> tuple[Found, list[Checked]]:
    """The region's fastest plan of those offered, each kernel with its fastest schedule.

    Whether kernels agree with their terms is checked first: what verification refuses is no choice.
    """
    deadline = time.perf_counter() + budget.seconds
    best = _schedules(found, target, deadline, clock)
    for plan in found.rivals:
        made = kernels_of(plan, lower_for(target))
        if made is None or time.perf_counter() > deadline:
            continue
        rival = replace(found, plan=plan, kernels=made[0])
        try:
            challenger = _schedules(rival, target, deadline, clock)
            refused = any(k.rejected for k in challenger[1])
        except Unsupported:
            continue
        if (
            not refused
            and race(Runner(best[1], target), Runner(challenger[1], target), clock=clock).won
        ):
            best = challenger
    return best


def _schedules(
    found: Found, target: Target, deadline: float, clock: Clock
) -> tuple[Found, list[Checked]]:
    """The plan with a schedule for each of its kernels."""
    kernels: list[Kernel] = []
    chosen: list[Schedule] = []
    ready: list[Checked] = []
    measured: list[Measured] = []
    for group, kernel in zip(found.plan.groups, found.kernels, strict=True):
        trial = _Trial(group, kernel, target, deadline, clock)
        trial.climb()
        kernels.append(trial.kernel)
        chosen.append(trial.schedule)
        ready += trial.ready
        measured += trial.measured()
    plan: Plan = replace(found.plan, schedules=tuple(chosen))
    report = replace(found.report, measured=tuple(measured))
    return replace(found, plan=plan, kernels=tuple(kernels), report=report), ready


class _Trial:
    """One kernel's schedules, tried one size after the other."""

    def __init__(
        self, group: Group, kernel: Kernel, target: Target, deadline: float, clock: Clock
    ) -> None:
        self.group, self.target = group, target
        self.deadline, self.clock = deadline, clock
        self.kernel, self.schedule = kernel, DEFAULT
        self.ready = checked(kernel, group, target)
        self.first = self.last = 0.0
        self.tried = self.refused = 0
        self.seen = {k.compiled.digest for k in self.ready}

    def climb(self) -> None:
        """Try changes, each on top of what has won so far."""
        if any(k.rejected for k in self.ready):
            return
        runner: Runner | None = None
        for changes in variants(self.kernel.programs, self.target):
            start = self.schedule
            for change in changes:
                if time.perf_counter() > self.deadline:
                    return
                schedule = changed(start, change)
                made = self._made(schedule)
                if made is None:
                    continue
                kernel, ready = made
                runner = runner or Runner(self.ready, self.target)
                challenger = Runner(ready, self.target)
                result = race(runner, challenger, clock=self.clock)
                self.tried += 1
                self.first = self.first or result.first
                self.last = self.last or result.first
                if result.won:
                    self.kernel, self.ready, self.schedule = kernel, ready, schedule
                    self.last, runner = result.second, challenger

    def _made(self, schedule: Schedule) -> tuple[Kernel, list[Checked]] | None:
        """The kernel with another schedule, verified; None if there is none, or it is known."""
        kernel = lower_for(self.target)(self.group, schedule)
        if not isinstance(kernel, Kernel):
            return None
        try:
            ready = all_checked([kernel], [self.group], self.target)
        except Unsupported:
            self.refused += 1
            return None
        if any(k.rejected for k in ready):
            self.refused += 1
            return None
        digests = {k.compiled.digest for k in ready}
        if digests <= self.seen:
            return None
        self.seen |= digests
        return kernel, ready

    def measured(self) -> list[Measured]:
        """What the report says of it."""
        if not self.tried and not self.refused:
            return []
        name = ", ".join(r.buffer.name for r in self.group.roots)
        words = str(self.schedule)
        return [Measured(name, self.first, self.last, words, self.tried, self.refused)]
