"""Searches that nobody waits for: one thread of low priority, working for the next process."""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

Task: TypeAlias = Callable[[], None]

_LOW = 19  # the niceness of the thread


class Worker:
    """Runs tasks one by one. When the process ends, the task at hand is finished and no other
    begun: what a task leaves on disk is whole.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._pending = 0
        self._idle = threading.Condition(self._lock)
        self.failures: list[BaseException] = []

    def submit(self, task: Task) -> None:
        """Run the task some time; its errors end up in `failures`, nowhere else."""
        with self._lock:
            self._pending += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="lumjax")
                self._thread.start()
                atexit.register(self.close)
        self._tasks.put(task)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; whether that came true in time."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._pending, timeout)

    def close(self) -> None:
        """Finish the task at hand and stop."""
        self._ended.set()
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join()

    def forget(self) -> None:
        """After a fork: the thread is gone, and so are its tasks."""
        self.__init__()

    def _work(self) -> None:
        with suppress(OSError, AttributeError):  # not every system has priorities of threads
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW)
        while (task := self._tasks.get()) is not None and not self._ended.is_set():
            try:
                task()
            except Exception as error:
                self.failures.append(error)
            with self._idle:
                self._pending -= 1
                self._idle.notify_all()


worker = Worker()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=worker.forget)
