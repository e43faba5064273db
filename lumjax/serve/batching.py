"""Requests that wait for each other and run as one.

A program of a fixed number of rows runs as many requests as fit; rows that nobody asked for are
zeros, and what comes of them is dropped. Of several programs, the smallest that has room is taken.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np

from lumjax import tree
from lumjax.exporting.artefact import Exported
from lumjax.record import record

NDArray: TypeAlias = np.ndarray[Any, Any]


class FullError(Exception):
    """Too many requests wait, or the server is about to stop."""


@record(eq=False)
class Done:
    """The leaves of an answer, and what it took: seconds of the run that it was part of, and the
    request's share of them by rows.
    """

    leaves: list[NDArray]
    seconds: float
    share: float
    together: int  # requests in the run


@record(eq=False)
class _Waiting:
    leaves: list[NDArray]
    rows: int
    answer: asyncio.Future[Done]
    since: float


class Batcher:
    """Runs requests in their order of arrival, one run at a time.

    `programs` are (rows, program), fewest rows first; with `axis` None there is one, whose requests
    run one by one. A run begins when its rows are full, or `wait` seconds after the first of its
    requests came. At most `most` requests wait.
    """

    def __init__(
        self, programs: Sequence[tuple[int, Exported]], axis: int | None, wait: float, most: int
    ) -> None:
        self.programs, self.axis, self.wait, self.most = programs, axis, wait, most
        self.capacity = programs[-1][0]
        self.queue: deque[_Waiting] = deque()
        self.runs = 0
        self.seconds = 0.0
        self._changed = asyncio.Condition()
        self._closing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lumjax-serve")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Answer what waits, then end."""
        async with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def submit(self, leaves: list[NDArray]) -> Done:
        """The answer to a request. Raises FullError; what the program raises comes out here."""
        if self._closing or len(self.queue) >= self.most:
            raise FullError("the server stops" if self._closing else f"{self.most} requests wait")
        rows = leaves[0].shape[self.axis] if self.axis is not None and leaves else 1
        answer = asyncio.get_running_loop().create_future()
        waiting = _Waiting(leaves, rows, answer, time.perf_counter())
        async with self._changed:
            self.queue.append(waiting)
            self._changed.notify_all()
        return await waiting.answer

    async def _work(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self.queue or self._closing)
                if not self.queue:
                    return
            if self.axis is not None:
                await self._gathered()
            batch = self._taken()
            if not batch:
                continue
            loop = asyncio.get_running_loop()
            try:
                answers = await loop.run_in_executor(self._thread, self._run, batch)
            except Exception as error:
                for w in batch:
                    if not w.answer.done():
                        w.answer.set_exception(error)
                continue
            for w, done in zip(batch, answers, strict=True):
                if not w.answer.done():  # nobody waits for it any more
                    w.answer.set_result(done)

    async def _gathered(self) -> None:
        """Wait until a run is full, or its time has come."""

        def full() -> bool:
            return self._closing or sum(w.rows for w in self.queue) >= self.capacity

        left = self.queue[0].since + self.wait - time.perf_counter()
        if left <= 0:  # it waited for another run already
            return
        async with self._changed:
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait_for(full)
            except TimeoutError:
                return

    def _taken(self) -> list[_Waiting]:
        """The requests of the next run."""
        batch: list[_Waiting] = []
        rows = 0
        while self.queue and (self.axis is not None or not batch):
            first = self.queue[0]
            if first.answer.done():
                self.queue.popleft()
                continue
            if rows + first.rows > self.capacity:
                break
            rows += first.rows
            batch.append(self.queue.popleft())
        return batch

    def _run(self, batch: Sequence[_Waiting]) -> list[Done]:
        rows = sum(w.rows for w in batch)
        capacity, program = next((n, p) for n, p in self.programs if n >= rows)
        started = time.perf_counter()
        if self.axis is None:
            outs = _called(program, batch[0].leaves)
        else:
            parts = zip(*[w.leaves for w in batch], strict=True)
            filled = rows if program.is_open else capacity
            outs = _called(program, [_joined(p, self.axis, filled) for p in parts])
        seconds = time.perf_counter() - started
        self.runs += 1
        self.seconds += seconds
        done: list[Done] = []
        begin = 0
        for w in batch:
            mine = outs
            if self.axis is not None:
                mine = [_cut(x, self.axis, begin, begin + w.rows) for x in outs]
            begin += w.rows
            done.append(Done(mine, seconds, seconds * w.rows / rows, len(batch)))
        return done


def _called(program: Exported, leaves: Sequence[NDArray]) -> list[NDArray]:
    args, kwargs = tree.unflatten(program.in_tree, leaves)
    return [np.asarray(x) for x in tree.leaves(program(*args, **kwargs))]


def _joined(parts: Sequence[NDArray], axis: int, rows: int) -> NDArray:
    """The parts along an axis, and zeros up to a number of rows."""
    first = parts[0]
    whole = np.zeros((*first.shape[:axis], rows, *first.shape[axis + 1 :]), first.dtype)
    begin = 0
    for part in parts:
        end = begin + part.shape[axis]
        _cut(whole, axis, begin, end)[...] = part
        begin = end
    return whole


def _cut(x: NDArray, axis: int, begin: int, end: int) -> NDArray:
    return x[(slice(None),) * axis + (slice(begin, end),)]
