"""Measure what things cost on this machine: the constants of the cost model (egraph/machine.py).

Small kernels, each of which does mostly one thing, give one constant after the other. That takes a
few seconds, once; the result is kept on disk under the target's key. Searches use it only where
choices may depend on the machine (`profile=True`): by default plans follow the reference constants.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.egraph.cost import busy
from lumjax.egraph.features import Features, counted
from lumjax.egraph.machine import Machine, load_machine, machine, save_machine
from lumjax.kernel.emit import MULTIPLY, combine
from lumjax.kernel.ir import Kernel
from lumjax.kernel.lower import lower
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.roles import Roles, fold_roles
from lumjax.kernel.term import (
    Apply,
    Axis,
    Buffer,
    Group,
    Lit,
    Load,
    Reduction,
    Root,
    Term,
    subterms,
)
from lumjax.native import all_checked
from lumjax.profile import Runner
from lumjax.target import Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp, ScalarOp

ROUNDS = 9
LEAST = 3e-4  # seconds of one measurement
EXP = ScalarOp("exp", 1, np.exp, None, 12.0)
SIN = ScalarOp("sin", 1, np.sin, None, 20.0)
ADD = combine(ReduceOp.SUM)
COPIED = 4  # operations of a loop that copies: what is left is memory

Clock = Callable[[Callable[[], None], int], float]


def calibrated(target: Target) -> Machine:
    """The constants of this machine: from disk, or measured now and kept."""
    found = load_machine(target)
    if found is None:
        found = Calibration(target).machine()
        save_machine(target, found)
    return found


def own_time(run: Callable[[], None], times: int) -> float:
    """CPU seconds of one run on this thread."""
    started = time.thread_time_ns()
    for _ in range(times):
        run()
    return (time.thread_time_ns() - started) * 1e-9 / times


def wall_time(run: Callable[[], None], times: int) -> float:
    """Seconds of one run on the clock."""
    started = time.perf_counter_ns()
    for _ in range(times):
        run()
    return (time.perf_counter_ns() - started) * 1e-9 / times


class Calibration:
    """Measures the constants, in an order in which each needs earlier ones only."""

    def __init__(self, target: Target, clock: Clock = own_time) -> None:
        self.target, self.clock = target, clock
        self.known = machine(target)

    def machine(self) -> Machine:
        """All constants."""
        for measure in (
            self._launch,
            self._memory,
            self._operations,
            self._walks,
            self._entries,
            self._contractions,
            self._tiles,
        ):
            self.known = replace(self.known, **measure())
        return self.known

    # ---- one thing each

    def _launch(self) -> dict[str, float]:
        one, many = (self.seconds([copy(16, k) for k in range(n)]) for n in (1, 9))
        return {"launch": max(1e-8, (many - one) / 8)}

    def _memory(self) -> dict[str, object]:
        l2, l3 = self.target.l2, self.target.l3
        rates = [self._moving(size) for size in (l2 // 2, max(2 * l2, l3 // 4))]
        large = 4 * l3
        memory = self._moving(large)
        kernel = [copy(large // 8, 0)]
        alone, together = (
            self.seconds(kernel, serial=s, clock=wall_time, rounds=5) for s in (True, False)
        )
        shared = min(1.0, max(1.0 / self.target.cores, together / alone))
        levels = ((l2, rates[0]), (l3, max(rates)))
        return {"levels": levels, "memory": max(memory, *rates), "shared": shared}

    def _moving(self, size: int) -> float:
        """Seconds to move a byte of a working set of this size."""
        return self.seconds([copy(size // 8, 0)]) / size

    def _operations(self) -> dict[str, float]:
        n = 4096
        plain = self._chain(n, [(ADD, 1.0), (MULTIPLY, 0.99)] * 24)
        once = plain / (n * 48)
        dear = [self._chain(n, [(op, None)] * 4) / (n * 4 * op.flops) for op in (EXP, SIN)]
        return {"operation": once, "special": statistics.mean(dear)}

    def _chain(self, n: int, steps: Sequence[tuple[ScalarOp, float | None]]) -> float:
        i = Axis("i", n)
        term: Term = load("x", (n,), axis_symbol(i))
        for op, value in steps:
            term = Apply(op, (term,) if value is None else (term, number(value)), dt.float32)
        return self.seconds([[root("y", (i,), term)]])

    def _walks(self) -> dict[str, float]:
        n = 4096
        i = Axis("i", n)
        at = axis_symbol(i)
        plain, apart, anywhere = (
            self.seconds([[root("y", (i,), load("x", (size,), coord))]])
            for size, coord in ((n, at), (5 * n, 5 * at), (2 * n, dims.floor_divide(at * 3, 2)))
        )
        gather = max(1e-11, (apart - plain) / n)
        return {"gather": gather, "irregular": max(1e-11, (anywhere - plain) / n)}

    def _entries(self) -> dict[str, float]:
        i, j = Axis("i", 2048), Axis("j", 9)
        term = Reduction(ReduceOp.SUM, frozenset({j}), matrix("x", i, j), dt.float32)
        group = [root("y", (i,), term)]
        taken = self.seconds([group]) - busy(self._features(group), replace(self.known, entry=0.0))
        return {"entry": max(1e-10, taken / 2048)}

    def _contractions(self) -> dict[str, float]:
        deep, flat = product(256, 256, 256), product(512, 512, 16)
        once = self.seconds([deep])
        for _ in range(2):  # each of the two has a little of the other
            each = (once - 256 * 256 * self.known.finish) / 256**3
            self.known = replace(self.known, product=max(1e-12, each))
            rest = self.seconds([flat]) - 512 * 512 * 16 * self.known.product
            self.known = replace(self.known, finish=max(1e-11, rest / 512**2))
        staged = product(64, 512, 512, number(1.0))
        rest = self.seconds([staged]) - busy(
            replace(self._features(staged), staged=0.0), self.known
        )
        return {
            "product": self.known.product,
            "finish": self.known.finish,
            "stage": max(1e-11, rest / 512**2),
        }

    def _tiles(self) -> dict[str, float]:
        wide, narrow = rows(512, 512, 128), rows(512, 512, 8)
        found = [
            self.seconds([g]) - busy(replace(f, tiled=0.0, steps=0.0), self.known)
            for g in (wide, narrow)
            for f in [self._features(g)]
        ]
        one, two = self._features(wide), self._features(narrow)
        each = max(1e-12, (found[0] - found[1]) / (one.tiled - two.tiled))
        step = max(1e-9, (found[1] - each * two.tiled) / two.steps)
        return {"tiled": each, "step": step}

    # ---- kernels

    def _features(self, group: Sequence[Root]) -> Features:
        terms = list(dict.fromkeys(t for r in group for t in subterms(r.term)))
        axes = {a.name: a for r in group for a in r.axes}
        axes.update((a.name, a) for t in terms if isinstance(t, Reduction) for a in t.axes)
        roles = fold_roles(group)
        return counted(terms, axes, group, roles if isinstance(roles, Roles) else None)

    def seconds(
        self,
        groups: Sequence[Sequence[Root]],
        serial: bool = True,
        clock: Clock | None = None,
        rounds: int = ROUNDS,
    ) -> float:
        """The median time of a run of kernels for these groups."""
        made = [Group(tuple(g)) for g in groups]
        kernels = [lower(g, self.target, name=f"k{k}") for k, g in enumerate(made)]
        found = [k for k in kernels if isinstance(k, Kernel)]
        assert len(found) == len(made), "calibration kernels lower"
        with config.scope(verify=False):
            run = Runner(all_checked(found, made, self.target), self.target, sets=1, serial=serial)
        measure = clock or self.clock
        guess = min(measure(run, 1), measure(run, 1))
        times = max(1, int(LEAST / max(guess, 1e-7)))
        return statistics.median(measure(run, times) for _ in range(rounds))


def number(value: float) -> Lit:
    """A float32 literal."""
    return Lit(dt.float32, np.float32(value).tobytes())


def load(name: str, shape: tuple[int, ...], *coords: Dim) -> Load:
    """A load of a float32 buffer."""
    return Load(Buffer(name, shape, dt.float32), coords)


def matrix(name: str, *axes: Axis) -> Load:
    """A load of a buffer at its own axes."""
    extents = tuple(a.extent for a in axes)
    return Load(Buffer(name, extents, dt.float32), tuple(map(axis_symbol, axes)))


def root(name: str, axes: tuple[Axis, ...], term: Term) -> Root:
    """A root that stores a term over these axes."""
    return Root(Buffer(name, tuple(a.extent for a in axes), dt.float32), axes, term)


def copy(n: int, k: int) -> list[Root]:
    """y[i] = x[i] + 1."""
    i = Axis("i", n)
    term = Apply(ADD, (load(f"x{k}", (n,), axis_symbol(i)), number(1.0)), dt.float32)
    return [root(f"y{k}", (i,), term)]


def product(m: int, n: int, k: int, plus: Lit | None = None) -> list[Root]:
    """The product of two matrices; with `plus` the second one is computed."""
    i, j, d = Axis("i", m), Axis("j", n), Axis("d", k)
    right: Term = matrix("b", d, j)
    if plus is not None:
        right = Apply(ADD, (right, plus), dt.float32)
    return [root("c", (i, j), summed(matrix("a", i, d), right, d))]


def rows(m: int, n: int, k: int) -> list[Root]:
    """The sum along rows of the exponential of a product of matrices: a loop over tiles."""
    i, j, d = Axis("i", m), Axis("j", n), Axis("d", k)
    scores = Apply(
        MULTIPLY, (summed(matrix("a", i, d), matrix("b", j, d), d), number(0.01)), dt.float32
    )
    body = Apply(EXP, (scores,), dt.float32)
    return [root("c", (i,), Reduction(ReduceOp.SUM, frozenset({j}), body, dt.float32))]


def summed(left: Term, right: Term, axis: Axis) -> Reduction:
    """A contraction over one axis."""
    body = Apply(MULTIPLY, (left, right), dt.float32)
    return Reduction(ReduceOp.SUM, frozenset({axis}), body, dt.float32)
