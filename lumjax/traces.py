"""Traces of a program's spans in files, as jax.profiler names them: Perfetto JSON."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lumjax.errors import ArgumentValueError
from lumjax.profiler import Span, launches, spans
from lumjax.record import record


class ProfileOptions:
    """What to record: with `device_tracer_level` 0 no spans of kernels. The rest is accepted for
    JAX programs; what the program annotates is always recorded.
    """

    def __init__(self) -> None:
        self.host_tracer_level = 2
        self.device_tracer_level = 1
        self.python_tracer_level = 1
        self.enable_hlo_proto = True


@record
class _Running:
    """A trace that was started."""

    directory: Path
    begin: float
    perfetto: bool


_running: list[_Running] = []


def start_trace(
    log_dir: Any,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> None:
    """Begin a trace: `stop_trace` writes the spans from here on as Perfetto JSON under `log_dir`.

    Until then compiled programs run one launch after the other, each with a span that has the names
    of its kernels, as in `explain`, and their lines: a few microseconds more for each than without
    a trace, when all launches are one native call. A loop is one span. Raises ArgumentValueError if
    a trace is running. The file opens in ui.perfetto.dev and in chrome://tracing.
    """
    del create_perfetto_link
    if _running:
        raise ArgumentValueError(
            operation="profiler.start_trace", required="no trace that is running",
            got=f"one into {_running[0].directory}", fix="call stop_trace first",
        )  # fmt: skip
    _running.append(_Running(Path(log_dir), time.perf_counter(), create_perfetto_trace))
    if profiler_options is None or profiler_options.device_tracer_level > 0:
        launches.append(True)


def stop_trace() -> None:
    """End the trace and write plugins/profile/<time>/perfetto_trace.json; with
    `create_perfetto_trace` also the packed file that JAX writes.

    Raises ArgumentValueError if no trace is running.
    """
    if not _running:
        raise ArgumentValueError(
            operation="profiler.stop_trace", required="a trace that was started",
            got="none", fix="call start_trace(log_dir) first",
        )  # fmt: skip
    started = _running.pop()
    launches.clear()
    folder = started.directory / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
    folder.mkdir(parents=True, exist_ok=True)
    events = [_event(s, started.begin) for s in spans() if s.begin >= started.begin]
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
    (folder / "perfetto_trace.json").write_text(text, encoding="utf-8")
    if started.perfetto:
        (folder / "perfetto_trace.json.gz").write_bytes(gzip.compress(text.encode()))


def _event(span: Span, begin: float) -> dict[str, Any]:
    """A span as a complete event of the Trace Event Format, in microseconds."""
    return {
        "name": span.name,
        "ph": "X",
        "ts": (span.begin - begin) * 1e6,
        "dur": span.seconds * 1e6,
        "pid": 0,
        "tid": span.thread,
        "args": {k: str(v) for k, v in span.details.items()},
    }


@contextmanager
def trace(
    log_dir: Any,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> Generator[None]:
    """Trace the block, see `start_trace`.

    >>> import tempfile
    >>> from lumjax.profiler import TraceAnnotation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with trace(folder), TraceAnnotation("work"):
    ...         pass
    ...     files = [p.name for p in Path(folder).rglob("*.json")]
    >>> files
    ['perfetto_trace.json']
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


class _Server:
    """What `start_server` returns."""

    def __init__(self, port: int) -> None:
        self.port = port


def start_server(port: int, requires_backend: bool = True) -> _Server:
    """Accepted for JAX programs: nothing listens; write traces with `trace` instead."""
    del requires_backend
    return _Server(port)


def stop_server() -> None:
    """Accepted for JAX programs: nothing listens."""


def device_memory_profile(backend: str | None = None) -> bytes:
    """The memory of this process in JSON: peak bytes.

    >>> b"peak_bytes" in device_memory_profile()
    True
    """
    del backend
    return json.dumps({"peak_bytes": _peak_bytes()}).encode()


def save_device_memory_profile(filename: Any, backend: str | None = None) -> None:
    """Write `device_memory_profile()` to a file."""
    Path(filename).write_bytes(device_memory_profile(backend))


def _peak_bytes() -> int:
    if sys.platform == "win32":
        return 0
    resource = importlib.import_module("resource")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
