"""A compiled program placed in memory, at given sizes: its table, its steps, what running takes.

Sizes known only when a program runs are given by name. Places in the table are the same for all of
them; offsets, numbers of jobs and shapes are those of the sizes given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from lumjax.concrete import concrete_value
from lumjax.cpu.runtime import AnyStep, Inner, Step
from lumjax.expansion import is_keyed
from lumjax.inplace import is_patch
from lumjax.kernel.ir import Kernel
from lumjax.kernel.verify import traced_sizes
from lumjax.layout import Layout
from lumjax.nested import Table, inside, link
from lumjax.runner import Call, Recipe, Result, Segment, Slot
from lumjax.sized import Varying
from lumjax.stages import Evaluated, Inside, Native, Nested, Nester, Stage
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Atom, Jaxpr, Literal, Value, Var
from lumjax.trace.dim import Dim, Expr, evaluate, substitute

NDArray: TypeAlias = np.ndarray[Any, Any]
TINY = 1 << 11  # bytes of all buffers of a kernel that takes less time than waking a thread


class Placed:
    """A program's stages at `given` sizes. `nester` gives the sub-programs of loops and choices at
    these sizes.
    """

    def __init__(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[Value],
        stages: Sequence[Stage],
        renamed: Mapping[Var, Atom],
        given: Mapping[str, int],
        nester: Nester,
    ) -> None:
        self.jaxpr, self.consts, self.given = jaxpr, consts, given
        self.stages = [_at(s, nester) for s in stages] if given else stages
        self.layout = Layout(jaxpr, self.stages, renamed, given)
        self.known = Table({}, dict(self.layout.offsets))
        self.linked = self._link()
        for name, place in self.layout.places.items():
            if isinstance(name, tuple) and name[0] == "size":
                self.known.fixed[place] = self.size(name[1])

    def _link(self) -> list[Inner | Evaluated]:
        """Runs of steps, and the equations between them."""
        layout = self.layout
        found: list[Inner | Evaluated] = []
        when = {place: n for n, wave in enumerate(layout.waves()) for place in wave}
        for members in layout.segments():
            first = self.stages[members[0]]
            if isinstance(first, Evaluated):
                found.append(first)
                continue
            steps: list[AnyStep] = []
            waves: list[Any] = []
            for number in members:
                stage = self.stages[number]
                if isinstance(stage, Nested):
                    inner = self._nest(stage, number)
                    waves += [("nested", number, k) for k in range(len(inner))]
                    steps += inner
                    continue
                assert isinstance(stage, Native), "equations between segments stand alone"
                for k, item in enumerate(stage.kernels):
                    slots = layout.slots(number, stage, k)
                    kernel = item.compiled.kernel
                    sizes = traced_sizes(kernel, self.given)
                    steps.append(Step(item.compiled, slots, sizes, _is_tiny(kernel, sizes)))
                    waves.append(when[number, k])
            found.append(Inner(tuple(steps), tuple(waves)))
        return found

    def _nest(self, stage: Nested, number: int) -> tuple[AnyStep, ...]:
        linked = link(stage, number, self.layout)
        self.known.fixed.update(linked.fixed)
        for place, block, offset in linked.memory:
            self.known.offsets[place] = self.layout.offsets[block] + offset
        return linked.steps

    def size(self, dim: Dim) -> int:
        """The value of a size."""
        return int(evaluate(dim, self.given))

    def recipe(self, out_avals: Sequence[ShapedArray]) -> Recipe:
        """What running takes: Python's values numbered, everything else at its place."""
        layout, known = self.layout, self.known
        numbers: dict[Var, int] = {}

        def slot(v: Var) -> Slot:
            number = numbers.setdefault(v, len(numbers))
            shape = tuple([self.size(d) for d in v.aval.shape])
            return Slot(number, layout.places.get(v, -1), shape, v.aval.dtype)

        def operand(atom: Atom) -> int | NDArray:
            return atom.value if isinstance(atom, Literal) else numbers[atom]

        inputs = tuple(map(slot, self.jaxpr.inputs))
        parts: list[Segment | Call] = []
        rows = zip(self.linked, layout.segments(), layout.last_uses(), strict=True)
        for part, members, last in rows:
            fresh = [v for n in members for v in self.stages[n].outputs if v in layout.held]
            slots = tuple(map(slot, fresh))
            dead = tuple([numbers[v] for v in last])
            if isinstance(part, Evaluated):
                operands = tuple([operand(layout.resolve(a)) for a in part.eqn.inputs])
                params = part.eqn.params
                params = {n: concrete_value(p, self.given) for n, p in params.items()}
                parts.append(Call(part.eqn.prim, params, operands, slots, dead))
            else:
                parts.append(Segment(part.steps, part.waves, slots, dead))
        outputs = tuple(
            Result(operand(layout.resolve(a)), aval.weak, is_keyed(aval))
            for a, aval in zip(self.jaxpr.outputs, out_avals, strict=True)
        )
        resolved = [layout.resolve(s.outputs[0]) for s in self.stages if is_patch(s)]
        owned = tuple(sorted({numbers[v] for v in resolved if isinstance(v, Var)}))
        table = tuple([known.fixed.get(p, 0) for p in range(len(layout.places))])
        consts = tuple([_data(v) for v in self.consts])
        offsets = tuple(sorted(known.offsets.items()))
        return Recipe(
            inputs, consts, tuple(parts), outputs, len(numbers), table, offsets,
            layout.arena_bytes, layout.peak_bytes, owned,
        )  # fmt: skip

    def varying(self) -> Varying | None:
        """What of the recipe depends on the sizes; None if that is more than numbers."""
        names = self.given
        for stage in self.stages:
            if isinstance(stage, Nested):
                return None
            if isinstance(stage, Evaluated):
                old = tuple(stage.eqn.params.values())
                if concrete_value(old, names) is not old:
                    return None
        table = [
            (place, name[1])
            for name, place in self.layout.places.items()
            if isinstance(name, tuple) and name[0] == "size" and isinstance(name[1], Expr)
        ]
        parts = zip(self.linked, self.layout.segments(), strict=True)
        jobs: list[tuple[tuple[Dim, ...] | None, ...]] = []
        shapes: list[tuple[tuple[Dim, ...], ...]] = []
        for part, members in parts:
            if isinstance(part, Inner):
                fresh = [v for n in members for v in self.stages[n].outputs]
                shapes.append(tuple(v.aval.shape for v in fresh if v in self.layout.held))
                jobs.append(tuple(_jobs(step) for step in part.steps))
        return Varying(tuple(table), tuple(jobs), tuple(shapes), tuple(self.layout.open_blocks()))

    def inside(self) -> Inside:
        """The program, all of it native, as a part of another's native call."""
        steps = self.linked[0] if self.linked else Inner((), ())
        assert isinstance(steps, Inner), "all of it is native"
        return inside(self.jaxpr, self.consts, self.stages, self.layout, self.known, steps)


def _jobs(step: AnyStep) -> tuple[Dim, ...] | None:
    """The numbers of jobs of a kernel's phases, where they depend on open sizes."""
    assert isinstance(step, Step), "without loops and choices there are only kernels"
    kernel = step.compiled.kernel
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    found = tuple([substitute(p.jobs, sizes) for p in kernel.phases])
    return found if any(isinstance(n, Expr) for n in found) else None


def _at(stage: Stage, nester: Nester) -> Stage:
    """A loop or choice over sub-programs at other sizes."""
    if not isinstance(stage, Nested):
        return stage
    programs = nester(stage.form)
    assert not isinstance(programs, str), "they were native at the usual sizes"
    return replace(stage, programs=programs)


def _data(value: Value) -> NDArray:
    return np.asarray(value.data if isinstance(value, Array) else value, order="C")


def _is_tiny(kernel: Kernel, sizes: Mapping[str, int]) -> bool:
    """Whether other threads are no help, though there be many such kernels."""
    return sum(
        math.prod(int(evaluate(d, sizes)) for d in b.shape) * b.dtype.itemsize
        for b in kernel.buffers
    ) <= TINY  # fmt: skip
