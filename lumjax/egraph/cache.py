"""Plans on disk: one file per (region, target, rules, budget), atomic, checked before it is used.

A file is a header line (format, sha256 of the rest) and JSON. Anything that is not exactly that is
ignored with one warning and rewritten by the next save. Processes may share the directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from lumjax.config import config
from lumjax.egraph.cost import machine
from lumjax.egraph.plan import Budget, Plan, Report
from lumjax.egraph.rules import compile_rule
from lumjax.egraph.rules.registry import load_rules
from lumjax.egraph.scalar import Operations
from lumjax.egraph.text import plan_from, plan_text, report_from, report_text
from lumjax.errors import CacheWarning
from lumjax.kernel.digest import digest
from lumjax.kernel.region import Region
from lumjax.target import Target

PLANNER = 1  # the version of the file format
_HEADER = "lumjax-plan"


def plan_key(region: Region, target: Target, budget: Budget, fast_math: bool) -> str:
    """What the plan is a function of."""
    rules = _rules_version(fast_math)
    parts = (planner_version(), region.key, target.key, rules, machine(target), budget)
    return digest("\n".join(map(str, parts)))


@lru_cache(maxsize=2)
def _rules_version(fast_math: bool) -> str:
    return digest("\n".join(map(compile_rule, load_rules(fast_math))))


@lru_cache(maxsize=1)
def planner_version() -> str:
    """A digest of the code that makes plans: another version may plan otherwise."""
    here = Path(__file__).parent
    sources = [*here.rglob("*.py"), *(here.parent / "kernel").glob("*.py")]
    content = hashlib.sha256(str(PLANNER).encode())
    for path in sorted(sources):
        content.update(path.read_bytes())
    return content.hexdigest()


def load_plan(key: str, operations: Operations) -> Plan | None:
    """The plan stored under a key, complete or truncated; None if no good one is there."""
    if not config.cache:
        return None
    for name in (key, _truncated(key)):
        path = _path(name)
        try:
            text = path.read_bytes()
        except OSError:
            continue
        plan = _parsed(text, name, operations)
        if plan is not None:
            return plan
        warnings.warn(
            f"ignoring the unusable plan {path}; it will be rewritten", CacheWarning, stacklevel=2
        )
    return None


def load_report(key: str, truncated: bool = False) -> Report | None:
    """How the plan stored under a key was found; None if nothing readable is there."""
    name = _truncated(key) if truncated else key
    try:
        content = _content(_path(name).read_bytes(), name)
        found = None if content is None else content.get("report")
        return None if found is None else report_from(found)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def save_plan(key: str, plan: Plan, operations: Operations, report: Report | None = None) -> None:
    """Store a plan and how it was found; if that cannot be written, there is one warning."""
    if not config.cache:
        return
    name = _truncated(key) if plan.truncated else key
    content = {"key": name, "plan": plan_text(plan, operations)}
    if report is not None:
        content["report"] = report_text(report)
    body = json.dumps(content, separators=(",", ":"))
    data = body.encode()
    header = f"{_HEADER} {PLANNER} {hashlib.sha256(data).hexdigest()}\n".encode()
    path = _path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".plan")
        with os.fdopen(handle, "wb") as file:
            file.write(header + data)
        os.replace(temporary, path)
    except OSError as error:
        warnings.warn(f"cannot keep plans in {path.parent}: {error}", CacheWarning, stacklevel=2)


def _truncated(key: str) -> str:
    return digest(f"{key} truncated")


def _path(name: str) -> Path:
    return Path(config.cache_dir) / "plans" / name[:2] / f"{name}.json"


def _content(data: bytes, name: str) -> Any:
    """The JSON value of a file, or None if it is not what was written."""
    head, _, body = data.partition(b"\n")
    expected = f"{_HEADER} {PLANNER} {hashlib.sha256(body).hexdigest()}".encode()
    if head != expected:
        return None
    content: Any = json.loads(body)
    return content if content["key"] == name else None


def _parsed(data: bytes, name: str, operations: Operations) -> Plan | None:
    try:
        content = _content(data, name)
        return None if content is None else plan_from(content["plan"], operations)
    except (ValueError, KeyError, TypeError, IndexError):
        return None
