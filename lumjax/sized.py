"""Programs whose sizes come with their arguments.

The first call of some sizes makes a Runner. Offsets in the arena are planned for sizes rounded up,
so that what follows from nearby sizes is a table of other numbers and other numbers of jobs: one
function of the sizes gives them all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax.record import record
from lumjax.runner import Runner
from lumjax.trace.array import Array
from lumjax.trace.core import Value
from lumjax.trace.dim import Dim, Expr, bounds, substitute, symbol, symbols

MOST = 256  # runners that are kept
_STEPS = 4  # sizes that others are rounded up to, in each power of two

Sizes: TypeAlias = "dict[str, int]"


@record(eq=False)
class Varying:
    """What of a runner depends on sizes: entries of the table by place, the numbers of jobs of the
    phases of each kernel in each segment, shapes of fresh values in each, and the bytes of blocks
    in the arena with those that were planned.
    """

    table: tuple[tuple[int, Dim], ...]
    jobs: tuple[tuple[tuple[Dim, ...] | None, ...], ...]
    shapes: tuple[tuple[tuple[Dim, ...], ...], ...]
    blocks: tuple[tuple[Dim, int], ...]


def function_of(names: Sequence[str], dims: Sequence[Dim]) -> Callable[..., tuple[int, ...]]:
    """The values of dims as a function of the symbols' values."""
    known = {n: symbol(f"s{k}", None) for k, n in enumerate(names)}
    texts = [str(substitute(d, known)) for d in dims]
    arguments = ", ".join(f"s{k}" for k in range(len(names)))
    source = f"lambda {arguments}: ({''.join(f'{t}, ' for t in texts)})"
    return eval(source, {"min": min, "max": max, "__builtins__": {}})


class _Near:
    """A runner for rounded sizes, and those of sizes below made from it."""

    def __init__(self, names: Sequence[str], runner: Runner, varying: Varying) -> None:
        self.runner, self.varying = runner, varying
        numbers = [d for _, d in varying.table]
        numbers += [d for part in varying.jobs for step in part if step for d in step]
        numbers += [d for part in varying.shapes for shape in part for d in shape]
        numbers += [d for d, _ in varying.blocks]
        self._function = function_of(names, numbers)

    def at(self, sizes: Sequence[int]) -> Runner | None:
        """The runner for other sizes; None if something would be larger than planned."""
        values = iter(self._function(*sizes))
        table = {place: next(values) for place, _ in self.varying.table}
        jobs = [
            [None if step is None else [next(values) for _ in step] for step in part]
            for part in self.varying.jobs
        ]
        shapes = [
            [tuple([next(values) for _ in shape]) for shape in part] for part in self.varying.shapes
        ]
        if any(next(values) > planned for _, planned in self.varying.blocks):
            return None
        return self.runner.resized(table, jobs, shapes)


class Sized:
    """A Runner for each choice of open sizes. `sources` tells of each size the argument and its
    axis; `make` gives the runner for exact sizes and, if its numbers alone depend on them, how.
    Thread-safe.
    """

    def __init__(
        self,
        open_to: Sequence[Expr],
        sources: Mapping[str, tuple[int, int]],
        make: Callable[[Sizes], tuple[Runner, Varying | None]],
    ) -> None:
        self._symbols = [s for s in open_to if s.name in sources]
        self._names = [str(s.name) for s in self._symbols]
        self._sources = [sources[n] for n in self._names]
        self._make = make
        self._runners: dict[tuple[int, ...], Runner] = {}
        self._near: dict[tuple[int, ...], _Near | None] = {}
        self._lock = threading.Lock()

    @property
    def launches(self) -> int:
        """How often all threads wait for each other in a call, at the last sizes that were new."""
        return self._runners[next(reversed(self._runners))].launches if self._runners else 0

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Run on one value for each input that is no constant."""
        sizes = tuple([np.shape(args[k])[axis] for k, axis in self._sources])
        return self.at(sizes).run(args)

    def at(self, sizes: tuple[int, ...]) -> Runner:
        """The runner for these sizes."""
        runner = self._runners.get(sizes)
        if runner is None:
            with self._lock:
                runner = self._runners.get(sizes) or self._made(sizes)
        return runner

    def at_given(self, given: Mapping[str, int]) -> Runner:
        """The runner for sizes by name."""
        return self.at(tuple([given[n] for n in self._names]))

    def _made(self, sizes: tuple[int, ...]) -> Runner:
        top = tuple([_rounded(n, s) for n, s in zip(sizes, self._symbols, strict=True)])
        if top not in self._near:
            runner, varying = self._make(dict(zip(self._names, top, strict=True)))
            near = None if varying is None else _Near(self._names, runner, varying)
            self._near[top] = near
            _forget(self._near)
            if sizes == top:
                self._runners[sizes] = runner
                return runner
        near = self._near[top]
        runner = None if near is None else near.at(sizes)
        if runner is None:
            runner, _ = self._make(dict(zip(self._names, sizes, strict=True)))
        self._runners[sizes] = runner
        _forget(self._runners)
        return runner


def _rounded(size: int, symbol_: Expr) -> int:
    """The size rounded up to one of a few steps per power of two, within its bounds."""
    step = max(1, 1 << max(0, (size - 1).bit_length() - _STEPS.bit_length()))
    high = bounds(symbol_)[1]
    rounded = -(-size // step) * step
    return rounded if high is None else min(rounded, max(high, size))


def _forget(table: dict[Any, Any]) -> None:
    """Keep the newest entries."""
    while len(table) > MOST:
        table.pop(next(iter(table)))


def depends(dims: Sequence[Dim], names: Mapping[str, Any]) -> bool:
    """Whether any of the dims is another for other sizes."""
    return not symbols(*dims).isdisjoint(names)
