"""Running a program on a device: its values lie there, and come to the host when Python reads them.

What only kernels see lies in one block of the program's own. Results and what equations between the
kernels take have memory of their own. An argument that lies on the device is used where it is; one
of the host is copied there, an array that was the last call's is not copied again.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax.config import config
from lumjax.cpu.runtime import Copy
from lumjax.cuda import device, emulated
from lumjax.cuda.device import Device, DeviceError, Lent
from lumjax.cuda.graph import Launches
from lumjax.cuda.memory import Buffer, buffer_of, fresh, upload
from lumjax.cuda.runtime import emulated_arch, kernels
from lumjax.dtype import DType, key
from lumjax.expansion import is_keyed, keys_of, words_of
from lumjax.profiler import launches
from lumjax.runner import Recipe, Runnable, Runner, Segment, ingested
from lumjax.trace.array import Array
from lumjax.trace.core import Value, aval_of

NDArray: TypeAlias = np.ndarray[Any, Any]
_SHOWN = 5  # live buffers that an error lists


def device_of(backend: str) -> Device:
    """The device of a backend's programs.

    Raises UnsupportedError for a GPU where CuPy, the driver or the GPU is missing.
    """
    return device.current() if backend == "cuda" else emulated.current(emulated_arch(backend))


class Launcher(Runner):
    """Runs a program whose kernels are CUDA's."""

    def __init__(self, recipe: Recipe, settings: Any, keyed: bool = False) -> None:
        self.device = device_of(settings.get("backend", config.backend))
        super().__init__(recipe, settings, keyed)
        arrays = {p: x for p, x in enumerate(recipe.table) if not isinstance(x, int)}
        self._fixed = {p: upload(self.device, np.ascontiguousarray(x)) for p, x in arrays.items()}
        for place, buffer in self._fixed.items():
            self.table[place] = buffer.ptr
        self._arenas: list[Any] = []  # that no call uses
        self._given: dict[int, tuple[Any, Buffer]] = {}  # by number: an array, and its copy

    def program(self, segment: Segment) -> Launches:
        """The kernels of a segment."""
        return Launches(self.device, segment.steps, lambda s: kernels[s.compiled.digest].texts)

    def loop_words(self) -> list[str]:
        """Why each loop is one kernel, or launches."""
        made = (p for p in self.programs if isinstance(p, Launches))
        return [words for p in made for words in p.loop_words(self.table)]

    def run(self, args: Sequence[Value]) -> list[Array]:
        """Run on one value for each input that is no constant.

        Raises DeviceError for memory that is not there and for kernels that can't be launched;
        ptx.ExecutionError, on the executor, for what a kernel must not do.
        """
        table, held = self.table.copy(), self._blank.copy()
        given = [*self.consts, *args] if self.consts else args
        parts = self._with_spans() if launches else self._parts
        number, block = -1, None
        try:
            for (slot, place, dtype, _), value in zip(self._rows, given, strict=True):
                held[slot] = found = self._taken(slot, value, dtype, place >= 0)
                if place >= 0:
                    table[place] = found.ptr
            block = self._arena(table)
            for number, part in enumerate(parts):  # noqa: B007 - errors tell which one it was
                part(table, held)
        except DeviceError as error:
            raise self._told(error, number) from error
        finally:
            if block is not None:
                self._arenas.append(block)
        for x in held:
            if isinstance(x, Buffer) and isinstance(x.owner, Lent):
                self.device.returned(x.owner)
        return [
            self._result(value, weak, keyed, held, given) for value, weak, keyed in self._outputs
        ]

    def _arena(self, table: list[int]) -> Any:
        """The block of what only kernels see; calls that run at the same time have one each."""
        size = self.recipe.arena_bytes
        if not size:
            return None
        try:
            block = self._arenas.pop()
        except IndexError:
            block = self.device.alloc(size)
        for place, offset in self.recipe.arena:
            table[place] = int(block.ptr) + offset
        return block

    def _taken(self, number: int, value: Value, dtype: DType, there: bool) -> Any:
        """An argument: on the device if it is used `there`."""
        found = buffer_of(value, self.device)
        if found is not None:
            return found.viewed((*found.shape, 2), np.dtype(np.uint32)) if _keys(found) else found
        if there and type(value) is Array:
            last = self._given.get(number)
            if last is not None and last[0]() is value:
                return last[1]
        data = self._host(value, dtype)
        if not there:
            return data
        made = upload(self.device, data)
        if type(value) is Array:
            self._given[number] = weakref.ref(value), made
        return made

    def _host(self, value: Value, dtype: DType) -> NDArray:
        """A host's argument, dense, in its dtype."""
        if self.keyed and is_keyed(aval_of(value)):
            value = Array(words_of(np.asarray(value.data)))  # type: ignore[union-attr]
        return np.asarray(ingested(value, dtype), order="C")

    def _result(
        self, value: Any, weak: bool, keyed: bool, held: list[Any], given: Sequence[Value]
    ) -> Array:
        if type(value) is not int:
            return Array(value, weak)
        if value < len(given):  # an input is returned as it is
            same = given[value]
            if isinstance(same, Array) and same.weak == weak:
                return same
        found = held[value]
        if not isinstance(found, Buffer):
            return Array(keys_of(found)) if keyed else Array(found, weak)
        return found.viewed(found.shape[:-1], key).array() if keyed else found.array(weak)

    # ---- parts

    def _segment(
        self,
        segment: Segment,
        program: Runnable,
        shapes: Sequence[tuple[int, ...]] | None = None,
    ) -> Any:
        sizes = [s.shape for s in segment.fresh] if shapes is None else shapes
        slots = list(zip(segment.fresh, sizes, strict=True))

        def run(table: list[int], held: list[Any]) -> None:
            for slot, shape in slots:
                held[slot.number] = made = fresh(self.device, shape, slot.dtype)
                if slot.place >= 0:
                    table[slot.place] = made.ptr
            program.run(table)
            if launches:  # a span ends when its kernels do
                self.device.wait()
            for number in segment.dead:
                held[number] = None

        return run

    def _read(self, value: Any) -> NDArray:
        return value.host() if isinstance(value, Buffer) else value

    def _stored(self, data: NDArray, place: int, table: list[int]) -> Any:
        if place < 0:
            return data
        made = upload(self.device, data)
        table[place] = made.ptr
        return made

    # ---- errors

    def _told(self, error: DeviceError, part: int) -> DeviceError:
        """The error with the kernel, the user's lines, what is alive then, and the plan's peak."""
        counts = [
            sum(not isinstance(s, Copy) for s in p.steps) if isinstance(p, Segment) else 1
            for p in self.recipe.parts
        ]
        at = sum(counts[: max(0, part)])
        where = ""
        if part >= 0 and isinstance(segment := self.recipe.parts[part], Segment):
            before = segment.steps[: max(0, error.step)]
            at += sum(not isinstance(s, Copy) for s in before)
        labels = self.labels()
        if part >= 0 and at < len(labels):
            lines = labels[at].details.get("lines")
            where = f" for {labels[at].name}" + (f" ({lines})" if lines else "")
        return DeviceError(
            operation=error.operation + where,
            required=error.required,
            got=error.got + self._alive(at),
            fix=error.fix,
        )

    def _alive(self, step: int) -> str:
        if self.timeline is None:
            return ""
        line = self.timeline()
        live = line.live(step)
        shown = [f"{x.size:,} bytes of {x.name}" + (f" ({x.line})" if x.line else "") for x in live]
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        listed = f"; alive then: {', '.join(shown[:_SHOWN])}{more}" if shown else ""
        return f"{listed}; the plan's peak is {line.peak():,} bytes, arguments not counted"


def _keys(buffer: Buffer) -> bool:
    return buffer.dtype == key
