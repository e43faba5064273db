"""Batches made in a thread of their own, ahead of the step that takes them."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from queue import Queue
from typing import TypeVar

from lumjax.errors import ArgumentValueError

T = TypeVar("T")


class _End:
    """The last thing a thread hands over: nothing more comes, or what it raised."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetch(batches: Iterable[T], size: int = 2) -> Generator[T]:
    """The same batches in the same order, up to `size` of them made before they are asked for.

    `batches` is walked in a thread, which begins with the first batch that is asked for, and ends
    when the iterator is closed or collected. What walking raises is raised where the batch would
    have come. Raises ArgumentValueError for a size below 1.

    >>> list(prefetch(range(4)))
    [0, 1, 2, 3]
    """
    if size < 1:
        raise ArgumentValueError(
            operation="train.prefetch", required="a size of at least 1", got=str(size),
            fix="give the number of batches to make ahead",
        )  # fmt: skip
    return _fetched(batches, size)


def _fetched(batches: Iterable[T], size: int) -> Generator[T]:
    queue: Queue[T | _End] = Queue(size)
    closed = threading.Event()
    thread = threading.Thread(target=_walk, args=(batches, queue, closed), daemon=True)
    thread.start()
    try:
        while not isinstance(found := queue.get(), _End):
            yield found
        if found.error is not None:
            raise found.error
    finally:
        closed.set()
        while thread.is_alive():  # it may wait for room
            while not queue.empty():
                queue.get()
            thread.join(0.01)


def _walk(batches: Iterable[T], queue: Queue[T | _End], closed: threading.Event) -> None:
    error = None
    try:
        for batch in batches:
            if closed.is_set():
                break
            queue.put(batch)
    except BaseException as raised:
        error = raised
    queue.put(_End(error))
