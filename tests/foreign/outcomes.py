"""A pytest plugin: runs the tests named in $FOREIGN_SELECT, writes to $FOREIGN_OUTCOMES."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

OUTCOMES = Path(os.environ["FOREIGN_OUTCOMES"])
_failed: dict[str, str] = {}
_skipped: dict[str, str] = {}


def _write(outcome, name, detail=""):
    line = " ".join(detail.split())[:300]
    with OUTCOMES.open("a", encoding="utf-8") as file:
        file.write(f"{outcome}\t{name}\t{line}\n")


def pytest_collection_modifyitems(config, items):
    if "FOREIGN_SELECT" in os.environ:
        chosen = set(Path(os.environ["FOREIGN_SELECT"]).read_text(encoding="utf-8").splitlines())
        items[:] = [item for item in items if item.nodeid in chosen]
    items.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))  # workers share the slow ones


def pytest_collectreport(report):
    if report.failed:
        _write("failed", report.nodeid, str(report.longrepr)[-300:])


def pytest_runtest_logreport(report):
    """A test passes when nothing of it fails: set-up, body, subtests, teardown."""
    name = report.nodeid
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        _failed.setdefault(name, crash.message if crash else str(report.longrepr))
    elif report.skipped and type(report).__name__ == "TestReport":
        _skipped[name] = str(report.longrepr)
    if report.when == "teardown":
        if name in _failed:
            _write("failed", name, _failed[name])
        elif name in _skipped:
            _write("skipped", name, _skipped[name])
        else:
            _write("passed", name)
