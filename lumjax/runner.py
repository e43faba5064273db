"""Running a compiled program: a table of addresses and sizes, native calls, and the equations that
run through `eval` between them. Nothing here knows how the program came about.

Values that Python holds are numbered: the program's inputs first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Protocol, TypeAlias

import numpy as np

from lumjax.aligned import address_of
from lumjax.config import config
from lumjax.cpu import arena
from lumjax.cpu.runtime import AnyStep, Copy, Program
from lumjax.dtype import DType, is_key
from lumjax.expansion import is_keyed, keys_of, words_of
from lumjax.ops.elementwise import asvalue
from lumjax.ownership import is_alone
from lumjax.profiler import TraceAnnotation, launches
from lumjax.record import record
from lumjax.timeline import Timeline
from lumjax.trace.array import Array
from lumjax.trace.core import Params, Primitive, Value, aval_of

NDArray: TypeAlias = np.ndarray[Any, Any]
_DENSE = 0x101  # NumPy's flags of arrays in C order (1) that are aligned (256)
_ARRAYS, _DATA, _IN_ORDER = {Array}, {np.ndarray}, {_DENSE}


@record
class Slot:
    """A value that Python holds: its number, and its place in the table, -1 where no kernel reads
    or writes it.
    """

    number: int
    place: int
    shape: tuple[int, ...]
    dtype: DType


@record(eq=False)
class Segment:
    """Kernels, loops and choices that one native call runs. `fresh` values get memory of their own
    when it begins; `dead` ones are let go when it ends. Steps of one wave share launches.
    """

    steps: tuple[AnyStep, ...]
    waves: tuple[Any, ...]
    fresh: tuple[Slot, ...]
    dead: tuple[int, ...]


@record(eq=False)
class Call:
    """An operation to evaluate. Its operands are numbers of values, or literals."""

    prim: Primitive
    params: Params
    inputs: tuple[int | NDArray, ...]
    outputs: tuple[Slot, ...]
    dead: tuple[int, ...]


@record
class Result:
    """An output: the value of a number, or a literal."""

    value: int | NDArray
    weak: bool
    keyed: bool = False  # typed keys, which kernels know as words


@record(eq=False)
class Recipe:
    """All that running a program takes.

    `table` is what the table holds before a call: sizes, and addresses of the arrays in it. The
    values at `arena` places (with offsets) lie in one block of `arena_bytes`. The first inputs are
    `consts`.
    """

    inputs: tuple[Slot, ...]
    consts: tuple[NDArray, ...]
    parts: tuple[Segment | Call, ...]
    outputs: tuple[Result, ...]
    values: int  # how many Python holds
    table: tuple[int | NDArray, ...]
    arena: tuple[tuple[int, int], ...]
    arena_bytes: int
    peak_bytes: int  # the least that any plan needs for what lies in the arena
    owned: tuple[int, ...] = ()  # inputs that are written: they have memory of their own


@record
class Label:
    """What a kernel, a loop or an operation is called, and what else there is to say of it."""

    name: str
    details: Mapping[str, str]


# A part made ready: it runs on the table and the values held.
_Part: TypeAlias = Callable[[list[int], list[Any]], None]


class Runnable(Protocol):
    """Kernels that run on a table of addresses and sizes."""

    @property
    def launches(self) -> int:
        """How often all threads wait for each other."""
        ...

    def run(self, values: Sequence[int]) -> None:
        """Run."""
        ...

    @property
    def scratch(self) -> int:
        """Bytes that the threads have meanwhile."""
        ...

    def resized(self, jobs: Sequence[Sequence[int] | None]) -> Runnable:
        """The same with other numbers of jobs for the phases of each kernel."""
        ...


class Runner:
    """A program made ready to run. Thread-safe. `settings` hold for what equations compile;
    some arguments may be typed keys if `keyed`.
    """

    def __init__(self, recipe: Recipe, settings: Mapping[str, Any], keyed: bool = False) -> None:
        self.recipe, self.settings, self.keyed = recipe, settings, keyed
        self.table = [x if isinstance(x, int) else address_of(x) for x in recipe.table]
        self.consts = list(map(Array, recipe.consts))
        owned = frozenset(recipe.owned)
        self._rows = [(s.number, s.place, s.dtype, s.number in owned) for s in recipe.inputs]
        self._places = [(s.number, s.place) for s in recipe.inputs if s.place >= 0]
        # whether the arrays that are given can be the values held
        self._plain = not owned and all(s.number == k for k, s in enumerate(recipe.inputs))
        self._blank: list[Any] = [None] * recipe.values
        self.programs = [self.program(p) for p in recipe.parts if isinstance(p, Segment)]
        programs = iter(self.programs)
        self._parts: list[_Part] = [
            self._segment(p, next(programs)) if isinstance(p, Segment) else self._call(p)
            for p in recipe.parts
        ]
        self._outputs = [(r.value, r.weak, r.keyed) for r in recipe.outputs]
        self.labels: Callable[[], Sequence[Label]] = tuple  # of kernels and equations, in order
        self.timeline: Callable[[], Timeline] | None = None
        self._watched: list[_Part] | None = None

    def program(self, segment: Segment) -> Runnable:
        """What runs a segment on the table."""
        return Program(segment.steps, segment.waves)

    @property
    def launches(self) -> int:
        """How often all threads wait for each other in a call."""
        return sum(p.launches for p in self.programs)

    def loop_words(self) -> list[str]:
        """What became of each loop, as far as that is more than native code."""
        return []

    @property
    def scratch(self) -> int:
        """Bytes that the threads have while kernels run."""
        return max((p.scratch for p in self.programs), default=0)

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Run on one value for each input that is no constant."""
        table, held = self.table.copy(), self._blank.copy()
        if self.keyed:
            args = [Array(words_of(x.data)) if is_keyed(aval_of(x)) else x for x in args]
        given = [*self.consts, *args] if self.consts else args
        if self._plain and set(map(type, given)) == _ARRAYS:
            held[: len(given)] = found = [x.data for x in given]
            if set(map(type, found)) != _DATA or {x.flags.num & _DENSE for x in found} != _IN_ORDER:
                self._take(given, held)
        else:
            self._take(given, held)
        self._perform(table, held)
        return [
            self._output(value, weak, held, given)
            if not keyed and type(value) is int
            else _special(value, weak, keyed, held)
            for value, weak, keyed in self._outputs
        ]

    def run_on(self, data: Sequence[NDArray]) -> list[NDArray]:
        """What is held of the results that are no literals, for data in C order of all inputs, the
        recipe's constants too.
        """
        table, held = self.table.copy(), self._blank.copy()
        for (number, *_), found in zip(self._rows, data, strict=True):
            held[number] = words_of(found) if is_key(found.dtype) else found
        self._perform(table, held)
        return [
            keys_of(held[value]) if keyed else held[value]
            for value, _, keyed in self._outputs
            if isinstance(value, int)
        ]

    def _perform(self, table: list[int], held: list[Any]) -> None:
        """Run all parts."""
        for number, place in self._places:
            table[place] = address_of(held[number])
        recipe = self.recipe
        parts = self._with_spans() if launches else self._parts
        if recipe.arena_bytes:
            with arena.checkout(recipe.arena_bytes) as base:
                for place, offset in recipe.arena:
                    table[place] = base + offset
                for part in parts:
                    part(table, held)
        else:
            for part in parts:
                part(table, held)

    def _take(self, given: Sequence[Value], held: list[Any]) -> None:
        """The data of the inputs, in C order and aligned."""
        for (number, _, dtype, owned), value in zip(self._rows, given, strict=True):
            data = value.data if type(value) is Array else ingested(value, dtype)
            if owned and not (type(value) is Array and is_alone(data)):
                data = data.copy(order="C")
            if type(data) is not np.ndarray:  # a NumPy scalar: its address is not an array's
                data = np.asarray(data)
            if data.flags.num & _DENSE != _DENSE:
                data = data.copy(order="C")
            held[number] = data

    def _output(self, number: int, weak: bool, held: list[Any], given: Sequence[Value]) -> Array:
        data = held[number]
        if number < len(given):  # an input is returned as it is
            value = given[number]
            if type(value) is Array and value.data is data and value.weak == weak:
                return value
        return Array(data, weak)

    def resized(
        self,
        table: Mapping[int, int],
        jobs: Sequence[Sequence[Sequence[int] | None]],
        shapes: Sequence[Sequence[tuple[int, ...]]],
    ) -> Runner:
        """The same for other sizes, where these entries of the table, numbers of jobs and shapes of
        fresh values of each segment are others, and no block of the arena is larger.
        """
        made = copy(self)
        made.table = self.table.copy()
        for place, value in table.items():
            made.table[place] = value
        made.programs = [p.resized(n) for p, n in zip(self.programs, jobs, strict=True)]
        segments = zip(made.programs, shapes, strict=True)
        made._parts = [
            self._segment(part, *next(segments)) if isinstance(part, Segment) else old
            for part, old in zip(self.recipe.parts, self._parts, strict=True)
        ]
        made._watched = None
        return made

    # ---- for traces

    def _with_spans(self) -> list[_Part]:
        """The parts with a native call for each wave of kernels, which records a span."""
        if self._watched is None:
            with TraceAnnotation("what kernels are called"):
                labels = iter(self.labels())
            unknown = Label("kernels", {})
            found: list[_Part] = []
            for part in chain.from_iterable(map(_waves, self.recipe.parts)):
                if isinstance(part, Call):
                    found.append(_spanned(self._call(part), [next(labels, unknown)]))
                    continue
                named = [next(labels, unknown) for s in part.steps if not isinstance(s, Copy)]
                found.append(_spanned(self._segment(part, self.program(part)), named))
            self._watched = found
        return self._watched

    def _call(self, call: Call) -> _Part:
        def run(table: list[int], held: list[Any]) -> None:
            operands = [self._read(held[x]) if isinstance(x, int) else x for x in call.inputs]
            if self.settings:
                with config.scope(**self.settings):  # for what the equation itself compiles
                    outs = call.prim.eval(*operands, **call.params)
            else:
                outs = call.prim.eval(*operands, **call.params)
            for slot, out in zip(call.outputs, outs, strict=True):
                data = out.data if isinstance(out, Array) else np.asarray(out)
                data = np.ascontiguousarray(data).reshape(data.shape)
                held[slot.number] = self._stored(data, slot.place, table)
            for number in call.dead:
                held[number] = None

        return run

    def _read(self, value: Any) -> NDArray:
        """What an equation is given of a value that is held."""
        return value

    def _stored(self, data: NDArray, place: int, table: list[int]) -> Any:
        """What is held of an equation's result; it has a place in the table if kernels read it."""
        if place >= 0:
            table[place] = address_of(data)
        return data

    def _segment(
        self,
        segment: Segment,
        program: Runnable,
        shapes: Sequence[tuple[int, ...]] | None = None,
    ) -> _Part:
        return _segment(segment, program, shapes)


def _segment(
    segment: Segment, program: Runnable, shapes: Sequence[tuple[int, ...]] | None = None
) -> _Part:
    sizes = [s.shape for s in segment.fresh] if shapes is None else shapes
    fresh = [
        (s.number, s.place, arena.maker(shape, s.dtype))
        for s, shape in zip(segment.fresh, sizes, strict=True)
    ]
    dead, launch = segment.dead, program.run

    def run(table: list[int], held: list[Any]) -> None:
        for number, place, make in fresh:
            held[number] = data = make()
            if place >= 0:
                table[place] = address_of(data)
        launch(table)
        for number in dead:
            held[number] = None

    return run


def _waves(part: Segment | Call) -> list[Segment | Call]:
    """A segment as one for each wave of its steps, which a launch has in common."""
    if isinstance(part, Call) or len(set(part.waves)) < 2:
        return [part]
    pairs = groupby(zip(part.waves, part.steps, strict=True), key=itemgetter(0))
    waves = [tuple(zip(*members, strict=True)) for _, members in pairs]
    last = len(waves) - 1
    return [
        Segment(steps, names, part.fresh if k == 0 else (), part.dead if k == last else ())
        for k, (names, steps) in enumerate(waves)
    ]


def _spanned(part: _Part, labels: Sequence[Label]) -> _Part:
    """A part whose runs are recorded, under the name of its first kernel."""
    name, details = "copies", {}
    if labels:
        more = f", and {len(labels) - 1} more" if len(labels) > 1 else ""
        name, details = labels[0].name + more, dict(labels[0].details)
        for k, label in enumerate(labels[1:], 2):
            lines = label.details.get("lines")
            details[f"kernel {k}"] = f"{label.name} ({lines})" if lines else label.name

    def run(table: list[int], held: list[Any]) -> None:
        with TraceAnnotation(name, **details):
            part(table, held)

    return run


def _special(value: int | NDArray, weak: bool, keyed: bool, held: list[Any]) -> Array:
    """An output that is a literal, or typed keys."""
    if not isinstance(value, int):
        return Array(value, weak)
    return Array(keys_of(held[value])) if keyed else Array(held[value], weak)


def ingested(value: Value, dtype: DType) -> NDArray:
    """A NumPy array or a number as data; raises for integers that do not fit."""
    if isinstance(value, np.ndarray) and value.dtype == dtype:
        return value
    return asvalue(value, "argument of a compiled program").data
