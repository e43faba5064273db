"""Executable: a jaxpr made ready to run. Expand -> simplify -> cut -> search -> check -> place.

A program is a list of segments: runs of kernels, issued by one native call each, and between them
the equations that run through their `eval`. All kernels share one table of addresses and sizes.
What only kernels see lives in one arena block, its offsets planned from exact lifetimes.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from lumjax.config import config
from lumjax.cpu import arena
from lumjax.cpu.math import supported
from lumjax.cpu.objects import host_target
from lumjax.cpu.render import render
from lumjax.cpu.runtime import Program, Step
from lumjax.egraph.plan import Found
from lumjax.egraph.search import search
from lumjax.errors import UnsupportedError
from lumjax.kernel.region import Alone, Region, cut
from lumjax.native import Checked, Unsupported, all_checked, sizes_of
from lumjax.placement import Interval, assign, peak
from lumjax.target import Target
from lumjax.trace.array import Array
from lumjax.trace.core import (
    Atom,
    Eqn,
    EvalTrace,
    Jaxpr,
    Literal,
    Params,
    Primitive,
    Value,
    Var,
    aval_of,
    eval_jaxpr,
    using,
)
from lumjax.trace.dim import evaluate
from lumjax.trace.form import Barrier, Expand
from lumjax.trace.simplify import simplify
from lumjax.trace.stage import StageTrace

NDArray: TypeAlias = np.ndarray[Any, Any]
_found: dict[tuple[Any, ...], tuple[Found, list[Checked]]] = {}
_lock = threading.RLock()

# ---- expansion


class _ExpandTrace(StageTrace):
    """Records like staging, but replaces an operation that others define by its definition."""

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        form = prim.form(*map(aval_of, args), **params)
        if isinstance(form, Expand):
            return tuple(prim.rule("expand")(*args, **params))
        return super().process(prim, args, params)


def expand(jaxpr: Jaxpr) -> tuple[Jaxpr, tuple[Value, ...]]:
    """The program with calls and definitions inlined. Arrays that definitions mention become its
    first inputs; their values come second.
    """
    trace = _ExpandTrace()
    inputs = [trace.new_input(v.aval) for v in jaxpr.inputs]
    with using(trace):
        outs = eval_jaxpr(jaxpr, inputs)
    atoms = tuple(map(trace.atom, outs))
    variables = (*trace.const_vars, *(i.var for i in inputs))
    return Jaxpr(variables, tuple(trace.eqns), atoms, len(trace.const_vars)), tuple(
        trace.const_values
    )


# ---- building blocks


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An equation that runs through its primitive's `eval`, and why."""

    eqn: Eqn
    why: str


@dataclass(frozen=True, slots=True)
class Native:
    """A region's kernels, its equations and how the plan was found."""

    region: Region
    found: Found
    kernels: tuple[Checked, ...]


Stage: TypeAlias = Native | Evaluated


@dataclass(slots=True)
class _Segment:
    """Kernels that one native call runs. `fresh` values get memory of their own when it begins."""

    steps: list[Step] = field(default_factory=list[Step])
    fresh: list[Var] = field(default_factory=list[Var])
    program: Program | None = None


@dataclass(slots=True)
class _Call:
    """An equation to evaluate; `places` are where its outputs go in the table."""

    eqn: Eqn
    inputs: tuple[Atom, ...]


def _compile_region(region: Region, target: Target) -> tuple[Found, list[Checked]]:
    """The region's plan and kernels; equal regions share them."""
    key = (region.key, target.key, config.fast_math, config.verify)
    with _lock:
        known = _found.get(key)
        if known is None:
            found = search(region, target)
            kernels = all_checked(found.kernels, found.plan.groups, target)
            known = _found[key] = (found, kernels)
    return known


def _stages(jaxpr: Jaxpr, target: Target) -> tuple[list[Stage], dict[Var, Atom]]:
    """Every step compiled, and the variables that barriers rename."""
    stages: list[Stage] = []
    renamed: dict[Var, Atom] = {}
    for step in cut(jaxpr, native=supported):
        if isinstance(step, Alone):
            if isinstance(step.form, Barrier):
                for out, atom in zip(step.eqn.outputs, step.eqn.inputs, strict=True):
                    renamed[out] = renamed.get(atom, atom) if isinstance(atom, Var) else atom
            else:
                stages.append(Evaluated(step.eqn, step.form.why))
            continue
        try:
            found, kernels = _compile_region(step, target)
        except Unsupported as e:
            stages += [Evaluated(eqn, str(e)) for eqn in step.eqns]
            continue
        stages.append(Native(step, found, tuple(kernels)))
    return stages, renamed


class _Layout:
    """Where every value lives: a place in the table each, and an offset in the arena for some."""

    def __init__(self, jaxpr: Jaxpr, stages: Sequence[Stage], renamed: dict[Var, Atom]) -> None:
        self.renamed = renamed
        self.places: dict[Any, int] = {}  # Var, (stage number, temporary), ("size", n) -> place
        self.offsets: dict[int, int] = {}  # place -> offset in the arena
        self.held: set[Var] = set()  # values that Python holds: inputs, outputs, operands of eval
        outs = (self.resolve(a) for a in jaxpr.outputs)
        self.held.update(a for a in outs if isinstance(a, Var))
        self.held.update(jaxpr.inputs)
        for stage in stages:
            if isinstance(stage, Evaluated):
                used = (self.resolve(a) for a in stage.eqn.inputs)
                self.held.update(a for a in used if isinstance(a, Var))
                self.held.update(stage.eqn.outputs)
        self.arena_bytes, self.peak_bytes = self._plan(stages)

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
            return self.resolve(row[int(index)])
        return number, name

    def _plan(self, stages: Sequence[Stage]) -> tuple[int, int]:
        """Offsets for what only kernels see; the block's size, and the least size possible."""
        first: dict[Any, int] = {}
        last: dict[Any, int] = {}
        size: dict[Any, int] = {}
        clock = 0
        for number, stage in enumerate(stages):
            if isinstance(stage, Evaluated):
                continue
            for k, item in enumerate(stage.kernels):
                clock += 1
                kernel = item.compiled.kernel
                sizes = sizes_of(kernel)
                named = [
                    (b, self.buffer(number, stage, b.name))
                    for b in (*kernel.outputs, *kernel.inputs)
                ]
                named += [(b, (number, k, b.name)) for b in kernel.workspace]
                for buffer, name in named:
                    if name in self.held:
                        continue
                    first.setdefault(name, clock)
                    last[name] = clock
                    size[name] = _bytes(buffer, sizes)
        names = list(first)
        intervals = [Interval(size[n], first[n], last[n]) for n in names]
        offsets, total = assign(intervals)
        for name, offset in zip(names, offsets, strict=True):
            self.offsets[self.place(name)] = offset
        return total, peak(intervals)

    def slots(self, number: int, stage: Native, k: int) -> list[int]:
        """The places of a kernel's buffers and sizes."""
        kernel = stage.kernels[k].compiled.kernel
        names = [self.buffer(number, stage, b.name) for b in (*kernel.outputs, *kernel.inputs)]
        names += [(number, k, b.name) for b in kernel.workspace]
        names += [("size", n) for n in sizes_of(kernel).values()]
        return [self.place(n) for n in names]


def _bytes(buffer: Any, sizes: dict[str, int]) -> int:
    total = buffer.dtype.itemsize
    for d in buffer.shape:
        total *= int(evaluate(d, sizes))
    return total


# ---- the executable


class Executable:
    """A program ready to run on concrete values. Thread-safe.

    `stages` tells what became of it, for explain; `arena_bytes` is the planned size of what only
    kernels see, `peak_bytes` the least that any plan needs for it.
    """

    def __init__(self, jaxpr: Jaxpr) -> None:
        if config.backend != "cpu":
            raise UnsupportedError(
                operation=f"compiling for backend '{config.backend}'",
                required="the CPU backend; kernels for CUDA are not part of this version",
                got=f"config.backend = {config.backend!r}",
                fix="use config.update('backend', 'cpu')",
            )
        started = time.perf_counter()
        self.traced = jaxpr
        self.target = host_target()
        self.jaxpr, self._consts = expand(simplify(jaxpr))
        self.jaxpr = simplify(self.jaxpr)
        self.stages, renamed = _stages(self.jaxpr, self.target)
        layout = _Layout(self.jaxpr, self.stages, renamed)
        self.arena_bytes, self.peak_bytes = layout.arena_bytes, layout.peak_bytes
        self._segments = self._link(layout)
        self._table = [0] * len(layout.places)
        for name, place in layout.places.items():
            if isinstance(name, tuple) and name[0] == "size":
                self._table[place] = name[1]
        self._arena = sorted(layout.offsets.items())
        self._places = {v: p for v, p in layout.places.items() if isinstance(v, Var)}
        self._outputs = [(layout.resolve(a), a.aval) for a in self.jaxpr.outputs]
        self.seconds = time.perf_counter() - started

    def _link(self, layout: _Layout) -> list[_Segment | _Call]:
        segments: list[_Segment | _Call] = []
        for number, stage in enumerate(self.stages):
            if isinstance(stage, Evaluated):
                segments.append(_Call(stage.eqn, tuple(map(layout.resolve, stage.eqn.inputs))))
                continue
            if not segments or isinstance(segments[-1], _Call):
                segments.append(_Segment())
            segment = segments[-1]
            assert isinstance(segment, _Segment)
            segment.fresh += [v for v in stage.region.outputs if v in layout.held]
            for k, item in enumerate(stage.kernels):
                slots = layout.slots(number, stage, k)
                segment.steps.append(Step(item.compiled, slots, sizes_of(item.compiled.kernel)))
        for segment in segments:
            if isinstance(segment, _Segment):
                segment.program = Program(segment.steps)
        return segments

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Run on one value for each input of the traced jaxpr."""
        table = list(self._table)
        held: dict[Var, NDArray] = {}
        given: dict[Var, Array] = {}
        for var, value in zip(self.jaxpr.inputs, (*self._consts, *args), strict=True):
            data = value.data if type(value) is Array else np.asarray(value, var.aval.dtype)
            if not (data.flags.c_contiguous and data.flags.aligned):
                data = data.copy(order="C")
            elif type(value) is Array:
                given[var] = value
            self._hold(table, held, var, data)
        if self.arena_bytes:
            with arena.checkout(self.arena_bytes) as base:
                for place, offset in self._arena:
                    table[place] = base + offset
                self._run(table, held)
        else:
            self._run(table, held)
        return [self._output(atom, aval, held, given) for atom, aval in self._outputs]

    def _run(self, table: list[int], held: dict[Var, NDArray]) -> None:
        for segment in self._segments:
            if isinstance(segment, _Segment):
                for var in segment.fresh:
                    shape: Any = var.aval.shape
                    self._hold(table, held, var, arena.empty(shape, var.aval.dtype))
                assert segment.program is not None
                segment.program.run(table)
            else:
                self._call(segment, table, held)

    def _call(self, call: _Call, table: list[int], held: dict[Var, NDArray]) -> None:
        operands = [a.value if isinstance(a, Literal) else held[a] for a in call.inputs]
        outs = call.eqn.prim.eval(*operands, **call.eqn.params)
        for var, out in zip(call.eqn.outputs, outs, strict=True):
            data = out.data if isinstance(out, Array) else np.asarray(out)
            self._hold(table, held, var, np.ascontiguousarray(data).reshape(data.shape))

    def _hold(self, table: list[int], held: dict[Var, NDArray], var: Var, data: NDArray) -> None:
        held[var] = data
        place = self._places.get(var)
        if place is not None:
            table[place] = data.__array_interface__["data"][0]

    def _output(
        self, atom: Atom, aval: Any, held: dict[Var, NDArray], given: dict[Var, Array]
    ) -> Array:
        if isinstance(atom, Literal):
            return Array(atom.value, aval.weak)
        if atom in given and given[atom].weak == aval.weak:
            return given[atom]
        return Array(held[atom], aval.weak)

    # ---- looking inside

    def native(self) -> Iterable[Native]:
        """The compiled regions."""
        return (s for s in self.stages if isinstance(s, Native))

    def evaluated(self) -> Iterable[Evaluated]:
        """The equations that run through `eval`."""
        return (s for s in self.stages if isinstance(s, Evaluated))

    def as_text(self) -> str:
        """The kernels as LLVM IR."""
        kernels = [c.compiled.kernel for s in self.native() for c in s.kernels]
        return "\n".join(render(k, self.target) for k in kernels)

    def cost_analysis(self) -> dict[str, float]:
        """Predicted seconds on the reference constants, and counts."""
        stages = list(self.native())
        return {
            "predicted seconds": sum(s.found.plan.cost for s in stages),
            "kernels": float(sum(len(s.kernels) for s in stages)),
            "evaluated equations": float(sum(1 for _ in self.evaluated())),
            "arena bytes": float(self.arena_bytes),
        }


class Interpreted(Executable):
    """A program whose equations are all evaluated one by one (config.interpret)."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.traced = self.jaxpr = jaxpr
        self.stages = [Evaluated(e, "config.interpret is set") for e in jaxpr.eqns]
        self.target = host_target()
        self.arena_bytes = self.peak_bytes = 0
        self.seconds = 0.0

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Evaluate on one value for each input."""
        with using(EvalTrace()):
            return eval_jaxpr(self.jaxpr, args)


_executables: weakref.WeakKeyDictionary[Jaxpr, dict[Any, Executable]] = weakref.WeakKeyDictionary()


def executable_of(jaxpr: Jaxpr) -> Executable:
    """The executable of a jaxpr under the settings in force, made on first use."""
    key = config.semantic_key()
    known = _executables.get(jaxpr)
    if known is not None and key in known:
        return known[key]
    with _lock:
        table = _executables.setdefault(jaxpr, {})
        if key not in table:
            table[key] = (Interpreted if config.interpret else Executable)(jaxpr)
        return table[key]
