"""Spans of wall time that the program itself names: annotate, then read `spans()`.

>>> with StepTraceAnnotation("train", step_num=3):
...     pass
>>> spans()[-1].name, spans()[-1].details
('train', {'step_num': 3})
"""

from __future__ import annotations

import functools
import importlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from lumjax.record import record

P = ParamSpec("P")
R = TypeVar("R")

KEPT = 65536  # the latest spans; older ones are dropped


@record
class Span:
    """A named interval of one thread. `begin` and `end` are seconds of time.perf_counter."""

    name: str
    begin: float
    end: float
    thread: int
    depth: int  # how many spans of this thread were open around it
    details: dict[str, Any]

    @property
    def seconds(self) -> float:
        """The length."""
        return self.end - self.begin


_spans: deque[Span] = deque(maxlen=KEPT)
# Not empty while compiled programs are to record a span for each launch of their kernels.
launches: list[bool] = []


class _Open(threading.local):
    depth = 0


_open = _Open()


def spans() -> list[Span]:
    """The finished spans, oldest first, of all threads."""
    return list(_spans)


def clear() -> None:
    """Forget all spans."""
    _spans.clear()


class TraceAnnotation:
    """A context manager that records the block as a span; `details` are kept with it."""

    def __init__(self, name: str, **details: Any) -> None:
        self.name = name
        self.details = details
        self._begin = 0.0

    def __enter__(self) -> TraceAnnotation:
        _open.depth += 1
        self._begin = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        _open.depth -= 1
        span = Span(
            self.name, self._begin, time.perf_counter(), threading.get_ident(), _open.depth,
            self.details,
        )  # fmt: skip
        _spans.append(span)


class StepTraceAnnotation(TraceAnnotation):
    """The span of one training step; give `step_num`."""


def annotate_function(
    func: Callable[P, R], name: str | None = None, **details: Any
) -> Callable[P, R]:
    """`func`, recording each call as a span under its own or the given name.

    >>> annotate_function(len, name="length")([1, 2])
    2
    >>> spans()[-1].name
    'length'
    """
    label = name or getattr(func, "__name__", repr(func))

    @functools.wraps(func)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with TraceAnnotation(label, **details):
            return func(*args, **kwargs)

    return run


_IN_TRACES = (
    "ProfileOptions", "device_memory_profile", "save_device_memory_profile", "start_server",
    "start_trace", "stop_server", "stop_trace", "trace",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """What writes files is loaded when it is first mentioned."""
    if name in _IN_TRACES:
        return getattr(importlib.import_module("lumjax.traces"), name)
    raise AttributeError(f"module 'lumjax.profiler' has no attribute {name!r}")
