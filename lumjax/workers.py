"""Regions of a large program compiled by several processes at once: this one and workers.

A worker is an interpreter of its own, never a fork, that imports lumjax and not the user's program.
It compiles a region as any process does, and so leaves its plan and kernels on disk; this process
takes them from there. Nothing depends on who compiled what. A worker that fails leaves its region
to this process, where an error has its own traceback. Workers end with the program's compilation.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, TypeAlias

from lumjax.config import config
from lumjax.cpu.math import supported
from lumjax.cpu.objects import cpu_count
from lumjax.kernel.region import Region, classify
from lumjax.ops import PRIMITIVES
from lumjax.record import record
from lumjax.target import Target
from lumjax.trace.core import Primitive
from lumjax.trace.form import Contract, Reduce

LEAST_REGIONS = 4  # that differ and are to be compiled, for workers to be worth their start
LEAST_WORK = 20  # reductions in those regions: what takes a few times as long as a start
MOST = 8  # processes, unless more are asked for
GRACE = 5.0  # seconds that a worker may take to end by itself

# What a worker tells of a region: how its plan was found, as JSON; None if it is not on disk.
Answer: TypeAlias = "dict[str, Any] | None"


# ---- messages


class _Pickler(pickle.Pickler):
    """Primitives go by name; one that workers do not have cannot be sent."""

    def persistent_id(self, obj: Any) -> str | None:
        if not isinstance(obj, Primitive):
            return None
        if PRIMITIVES.get(obj.name) is not obj:
            raise pickle.PicklingError(f"{obj.name} is not one of the package's primitives")
        return obj.name


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Primitive:
        return PRIMITIVES[pid]


def region_message(region: Region) -> bytes | None:
    """The region as bytes; None if it holds what another process does not have."""
    parts = (region.inputs, region.outputs, region.eqns, region.key, region.inside)
    file = io.BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(parts)
    except Exception:
        return None  # whatever it is: it is compiled here
    return file.getvalue()


def region_from(message: bytes) -> Region:
    """The region again, with the forms of its equations."""
    inputs, outputs, eqns, key, inside = _Unpickler(io.BytesIO(message)).load()
    forms = tuple([classify(eqn, supported) for eqn in eqns])
    return Region(inputs, outputs, eqns, forms, key, inside)


@record
class Start:
    """The first message to a worker."""

    settings: Mapping[str, Any]
    target: Target


def send(file: IO[bytes], message: bytes) -> None:
    """Write a message: its length and its bytes."""
    file.write(len(message).to_bytes(8, "little") + message)
    file.flush()


def receive(file: IO[bytes]) -> bytes | None:
    """The next message; None at the end of the stream."""
    head = file.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    message = file.read(size)
    return message if len(message) == size else None


# ---- processes


def count_for(regions: Sequence[Region]) -> int:
    """How many processes, this one included, compile regions that no process has compiled."""
    asked = config.compile_workers
    if not config.cache or asked == 1 or _interpreter() is None:
        return 1
    small = sum(map(_work, regions)) < LEAST_WORK
    if len(regions) < LEAST_REGIONS or (small and not asked):
        return 1
    return min(asked or min(cpu_count(), MOST), len(regions))


def _work(region: Region) -> int:
    """How long it takes to compile the region, in reductions: the rest is cheap beside them."""
    return sum(isinstance(f, (Reduce, Contract)) for f in region.forms)


def _interpreter() -> str | None:
    """The path of Python; None where the program that runs is another one that holds Python."""
    name = os.path.basename(sys.executable or "").lower()
    plain = name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)
    return sys.executable if plain else None


def _command() -> list[str]:
    serve = "from lumjax.worker import serve; serve()"
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {serve}"]


def compile_together(
    regions: Sequence[Region], count: int, target: Target, here: Callable[[Region], None]
) -> dict[str, Answer]:
    """Compile regions by `count` processes, by `here` in this one; the workers' answers by key.

    Regions that workers failed on have no answer, and are not compiled.
    """
    largest = sorted(regions, key=lambda r: (-_work(r), -len(r.eqns), r.key))
    tasks = _Tasks(largest)
    settings = config.snapshot()
    scope = {name: getattr(settings, name) for name in settings.__match_args__}
    start = pickle.dumps(Start({**scope, "compile_workers": 1}, target))
    workers = [_Worker(tasks, start) for _ in range(count - 1)]
    try:
        for worker in workers:
            worker.start()
        while (region := tasks.take()) is not None:
            here(region)
        tasks.ended.set()
        for worker in workers:
            worker.finish()
    finally:
        tasks.ended.set()
        for worker in workers:
            worker.kill()
    return tasks.answers


class _Tasks:
    """What is to be compiled, largest first."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self.queue = deque(regions)
        self.answers: dict[str, Answer] = {}
        self.ended = threading.Event()

    def take(self) -> Region | None:
        """The next region; None if there is none."""
        try:
            return self.queue.popleft()
        except IndexError:
            return None


class _Worker(threading.Thread):
    """A thread that hands regions to a process. It takes the first when the process is ready."""

    def __init__(self, tasks: _Tasks, start: bytes) -> None:
        super().__init__(daemon=True, name="lumjax-compile")
        self.tasks, self.message = tasks, start
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Work until nothing is left, or the process fails."""
        with suppress(OSError, ValueError, EOFError, pickle.UnpicklingError):
            self._work()

    def _work(self) -> None:
        with self._lock:
            if self.tasks.ended.is_set():
                return
            self.process = process = subprocess.Popen(
                _command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018
        send(process.stdin, self.message)
        if receive(process.stdout) != self.message:
            return
        self.ready = True
        while not self.tasks.ended.is_set() and (region := self.tasks.take()) is not None:
            message = region_message(region)
            if message is None:
                continue
            send(process.stdin, message)
            answer = receive(process.stdout)
            if answer is None:
                return
            self.tasks.answers[region.key] = pickle.loads(answer)

    def finish(self) -> None:
        """Wait for the region at hand. A process that never became ready has none."""
        if self.ready:
            self.join()

    def kill(self) -> None:
        """End the process, gently if it waits for more, and see it off."""
        with self._lock:
            process = self.process
        if process is None:
            return
        if self.is_alive():
            process.kill()
        self.join()
        for file in (process.stdin, process.stdout):
            if file is not None:
                with suppress(OSError):
                    file.close()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
