"""What a worker process runs: regions come in, plans and kernels go to disk (`workers.py`)."""

from __future__ import annotations

import os
import pickle
import signal
from typing import IO

from lumjax.config import config
from lumjax.egraph.plan import Report
from lumjax.egraph.text import report_text
from lumjax.stages import leave
from lumjax.workers import Answer, Start, receive, region_from, send


def serve() -> None:
    """Answer messages until their stream ends: then nobody waits for this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the whole group: who started us ends us
    incoming, outgoing = _streams()
    first = receive(incoming)
    if first is not None:
        start: Start = pickle.loads(first)
        send(outgoing, first)
        with config.scope(**start.settings):
            while (message := receive(incoming)) is not None:
                send(outgoing, pickle.dumps(_answer(message, start)))
    os._exit(0)


def _streams() -> tuple[IO[bytes], IO[bytes]]:
    """The messages' streams; what else is printed or read finds nothing."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return incoming, outgoing


def _answer(message: bytes, start: Start) -> Answer:
    try:
        report: Report | None = leave(region_from(message), start.target)
    except Exception:
        return None  # it is compiled where it came from, and fails there if it must
    if report is None:
        return None
    return {**report_text(report), "seconds": report.seconds, "rule_seconds": report.rule_seconds}
