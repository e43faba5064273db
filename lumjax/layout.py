"""Where every value of a program lives: a place in the table, and for some an offset in the arena.

Places are numbers; what only kernels see gets an offset in one block, planned from exact lifetimes.
The same lifetimes are the program's timeline. Places depend on the program alone, offsets on the
sizes that are known only when it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lumjax.errors import Source
from lumjax.kernel.verify import traced_sizes
from lumjax.nested import private_of
from lumjax.placement import Interval, assign, peak
from lumjax.record import record
from lumjax.stages import Evaluated, Native, Nested, Stage
from lumjax.timeline import Lifetime, Place, Timeline
from lumjax.trace.core import Atom, Eqn, Jaxpr, Var
from lumjax.trace.dim import Dim, Expr, evaluate, substitute


@record
class _Unit:
    """What a kernel, a loop or a choice touches: names in the program, with sizes in bytes."""

    writes: tuple[tuple[Any, int], ...]
    reads: tuple[tuple[Any, int], ...]
    private: tuple[tuple[Any, int], ...]

    @property
    def all(self) -> tuple[tuple[Any, int], ...]:
        """In the order of a kernel's table."""
        return (*self.writes, *self.reads, *self.private)


class Layout:
    """Places of variables, temporaries and sizes; offsets in the arena; lifetimes.

    `given` are the sizes known only when the program runs.
    """

    def __init__(
        self,
        jaxpr: Jaxpr,
        stages: Sequence[Stage],
        renamed: Mapping[Var, Atom],
        given: Mapping[str, int],
    ) -> None:
        self.jaxpr, self.stages, self.renamed, self.given = jaxpr, stages, renamed, given
        self.places: dict[Any, int] = {}  # Var, (stage number, temporary), ("size", dim) -> place
        self.offsets: dict[int, int] = {}  # place -> offset in the arena
        self.held: set[Var] = set()  # values that Python holds: inputs, outputs, operands of eval
        outs = (self.resolve(a) for a in jaxpr.outputs)
        self.outputs = frozenset(a for a in outs if isinstance(a, Var))
        self.held.update(self.outputs, jaxpr.inputs)
        for stage in stages:
            if isinstance(stage, Evaluated):
                self.held.update(self.operands(stage.eqn))
                self.held.update(stage.outputs)
        self._units = [self._units_of(number, stage) for number, stage in enumerate(stages)]
        self._users: dict[Var, list[int]] | None = None
        self._first: dict[Any, int] = {}
        self._last: dict[Any, int] = {}
        self._size: dict[Any, int] = {}
        self._walk()
        self.arena_bytes, self.peak_bytes = self._assign()

    def resolve(self, atom: Atom) -> Atom:
        """The atom that an atom is another name of."""
        while isinstance(atom, Var) and atom in self.renamed:
            atom = self.renamed[atom]
        return atom

    def place(self, name: Any) -> int:
        """The place in the table of a variable, a temporary or a size."""
        return self.places.setdefault(name, len(self.places))

    def buffer(self, number: int, stage: Native, name: str) -> Any:
        """What a buffer of a region's plan is: a variable of the program, or a temporary."""
        kind, index = name[0], name[1:]
        if kind in "io" and index.isdigit():
            row = stage.region.inputs if kind == "i" else stage.region.outputs
            found = self.resolve(row[int(index)])
            assert isinstance(found, Var), "kernels read memory"
            return found
        return number, name

    def slots(self, number: int, stage: Native, k: int) -> list[int]:
        """The places of a kernel's buffers and sizes."""
        kernel = stage.kernels[k].compiled.kernel
        names: list[Any] = [name for name, _ in self._units[number][k].all]
        names += [("size", n) for n in kernel.extents]
        return [self.place(n) for n in names]

    def users(self) -> dict[Var, list[int]]:
        """The stages that write or read each value which passes from one to another."""
        if self._users is None:
            self._users = {}
            for number, stage in enumerate(self.stages):
                for v in self._seen(number, stage):
                    self._users.setdefault(v, []).append(number)
        return self._users

    def _seen(self, number: int, stage: Stage) -> list[Var]:
        if isinstance(stage, Evaluated):
            return list(dict.fromkeys([*self.operands(stage.eqn), *stage.outputs]))
        names = dict.fromkeys(n for u in self._units[number] for n, _ in u.all)
        return [n for n in names if isinstance(n, Var)]

    def segments(self) -> list[list[int]]:
        """The stages' numbers: kernels between two equations that run through `eval` together."""
        found: list[list[int]] = []
        for number, stage in enumerate(self.stages):
            joined = bool(found) and not isinstance(stage, Evaluated)
            if joined and not isinstance(self.stages[found[-1][-1]], Evaluated):
                found[-1].append(number)
            else:
                found.append([number])
        return found

    def last_uses(self) -> list[list[Var]]:
        """For each segment, the held values that no later one needs: results and arguments stay."""
        last: dict[Var, int] = {}
        for k, segment in enumerate(self.segments()):
            for number in segment:
                used = self._seen(number, self.stages[number])
                last.update((v, k) for v in used if v in self.held)
        kept = self.outputs.union(self.jaxpr.inputs)
        found: list[list[Var]] = [[] for _ in self.segments()]
        for var, k in last.items():
            if var not in kept:
                found[k].append(var)
        return found

    def bytes(self, var: Var) -> int:
        """The size of a value."""
        return var_bytes(var, self.given)

    # ---- lifetimes

    def operands(self, eqn: Eqn) -> list[Var]:
        """The variables that an equation reads, under their first names."""
        return [a for a in map(self.resolve, eqn.inputs) if isinstance(a, Var)]

    def _units_of(self, number: int, stage: Stage) -> list[_Unit]:
        match stage:
            case Evaluated():
                return []
            case Nested():
                private = tuple(
                    [((number, 0, n), size) for n, size in private_of(stage, self.given).items()]
                )
                reads = tuple([(v, self.bytes(v)) for v in self.operands(stage.eqn)])
                return [_Unit(tuple([(v, self.bytes(v)) for v in stage.outputs]), reads, private)]
            case Native():
                return [self._unit(number, stage, k) for k in range(len(stage.kernels))]

    def _unit(self, number: int, stage: Native, k: int) -> _Unit:
        kernel = stage.kernels[k].compiled.kernel
        sizes = traced_sizes(kernel, self.given)

        def named(buffers: Iterable[Any]) -> tuple[tuple[Any, int], ...]:
            return tuple([(self.buffer(number, stage, b.name), _bytes(b, sizes)) for b in buffers])

        private = tuple([((number, k, b.name), _bytes(b, sizes)) for b in kernel.workspace])
        return _Unit(named(kernel.outputs), named(kernel.inputs), private)

    def open_blocks(self) -> list[tuple[Dim, int]]:
        """The bytes of what lies in the arena and depends on open sizes, and those planned for."""
        found: list[tuple[Dim, int]] = []
        for number, stage in enumerate(self.stages):
            for k, item in enumerate(stage.kernels if isinstance(stage, Native) else ()):
                kernel = item.compiled.kernel
                sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
                for b, (name, planned) in zip(
                    kernel.buffers, self._units[number][k].all, strict=True
                ):
                    whole: Dim = b.dtype.itemsize
                    for n in b.shape:
                        whole = whole * substitute(n, sizes)
                    if isinstance(whole, Expr) and name in self._size:
                        found.append((whole, planned))
        return found

    def waves(self) -> list[list[tuple[int, int] | None]]:
        """Consecutive kernels (stage, number) that don't read or write what another of them writes.
        Alone are a loop or a choice, and an equation that runs through `eval`, which is None.
        """
        found: list[list[tuple[int, int] | None]] = []
        written: set[Any] | None = None
        read = set[Any]()  # only what is written in place is read before
        for number, stage in enumerate(self.stages):
            if not isinstance(stage, Native):
                found.append([None if isinstance(stage, Evaluated) else (number, 0)])
                written = None
                continue
            for k, unit in enumerate(self._units[number]):
                changed = read if written is None else read | written
                if (
                    written is None
                    or any(n in written for n, _ in unit.reads)
                    or any(n in changed for n, _ in unit.writes)
                ):
                    found.append([])
                    written, read = set(), set()
                found[-1].append((number, k))
                written.update(n for n, _ in unit.writes)
                read.update(n for n, _ in unit.reads)
        return found

    def _walk(self) -> None:
        """When each buffer that only kernels see is first written and last read; its size.

        Kernels of one wave run at once: what one of them needs lives while any of them runs.
        """
        clock = 0
        for wave in self.waves():
            end = clock + len(wave) - 1
            for number, k in filter(None, wave):
                unit = self._units[number][k]
                for name, size in unit.all:
                    if name not in self.held:
                        self._first.setdefault(name, clock)
                        self._last[name] = end
                        self._size[name] = size
            clock = end + 1

    def _assign(self) -> tuple[int, int]:
        """Offsets for what only kernels see; the block's size, and the least size possible."""
        names = list(self._first)
        intervals = [Interval(self._size[n], self._first[n], self._last[n]) for n in names]
        offsets, total = assign(intervals)
        for name, offset in zip(names, offsets, strict=True):
            self.offsets[self.place(name)] = offset
        return total, peak(intervals)

    def timeline(self) -> Timeline:
        """What is alive at each step, for people and for budgets of memory."""
        labels: list[str] = []
        spans: list[tuple[int, int]] = []  # the first and last step of each segment
        for segment in self.segments():
            begin = len(labels)
            for number in segment:
                labels += _labels(number, self.stages[number])
            spans.append((begin, max(begin, len(labels) - 1)))
        return Timeline(tuple(labels), tuple(self._lifetimes(spans, len(labels))), self.arena_bytes)

    def _lifetimes(self, spans: Sequence[tuple[int, int]], steps: int) -> list[Lifetime]:
        end = max(0, steps - 1)
        found = [
            Lifetime(f"argument {k}", self.bytes(v), 0, end, Place.ARGUMENT)
            for k, v in enumerate(self.jaxpr.inputs)
        ]
        dies = {v: spans[k][1] for k, row in enumerate(self.last_uses()) for v in row}
        for k, segment in enumerate(self.segments()):
            for number in segment:
                stage = self.stages[number]
                for var in stage.outputs:
                    if var not in self.held or var in self.renamed:
                        continue
                    place = Place.RESULT if var in self.outputs else Place.VALUE
                    line = _line_of(stage.eqns, lambda e, var=var: var in e.outputs)
                    last = dies.get(var, end)
                    size = self.bytes(var)
                    found.append(Lifetime(f"stage {number}", size, spans[k][0], last, place, line))
        return found + [self._temporary(name) for name in self._first]

    def _temporary(self, name: Any) -> Lifetime:
        first, last, size = self._first[name], self._last[name], self._size[name]
        if isinstance(name, Var):
            line = _line_of(
                (e for s in self.stages for e in s.eqns),
                lambda e: name in e.outputs,
            )
            return Lifetime("between regions", size, first, last, Place.TEMPORARY, line)
        stage = self.stages[name[0]]
        line = _lines_of(stage.eqns)
        if len(name) == 3:
            return Lifetime(f"stage {name[0]} {name[2]}", size, first, last, Place.WORKSPACE, line)
        return Lifetime(f"stage {name[0]} {name[1]}", size, first, last, Place.TEMPORARY, line)


def _labels(number: int, stage: Stage) -> list[str]:
    if isinstance(stage, Evaluated):
        return [f"stage {number}: eval {stage.eqn.prim.name}"]
    if isinstance(stage, Nested):
        return [f"stage {number}: {stage.eqn.prim.name}"]
    names = (", ".join(b.name for b in k.compiled.kernel.outputs) for k in stage.kernels)
    return [f"stage {number}: {n}" for n in names]


def _short(source: Source) -> str:
    return f"{os.path.basename(source.file)}:{source.line}"


def _line_of(eqns: Any, chosen: Any) -> str:
    return next((_short(e.source) for e in eqns if e.source is not None and chosen(e)), "")


def _lines_of(eqns: Sequence[Eqn]) -> str:
    """The lines of equations: one, or the first and how many more there are."""
    lines = list(dict.fromkeys(_short(e.source) for e in eqns if e.source is not None))
    return lines[0] + (f" and {len(lines) - 1} more" if len(lines) > 1 else "") if lines else ""


def var_bytes(var: Var, given: Mapping[str, int]) -> int:
    """The size of a value."""
    total = var.aval.dtype.itemsize
    for d in var.aval.shape:
        total *= int(evaluate(d, given))
    return total


def _bytes(buffer: Any, sizes: Mapping[str, int]) -> int:
    total = buffer.dtype.itemsize
    for d in buffer.shape:
        total *= int(evaluate(d, sizes))
    return total
