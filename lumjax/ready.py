"""What became of a region, kept on disk: another process neither searches nor lowers nor compiles.

An entry lists a plan's kernels by what calling them takes (buffers, sizes, numbers of jobs), their
objects in the object cache, and whether verification refused some. It is keyed by everything that
the kernels are a function of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from lumjax.config import config
from lumjax.cpu.runtime import load_kernel
from lumjax.egraph.plan import Plan
from lumjax.egraph.text import buffer_from, buffer_text, dim_from, dim_text
from lumjax.kernel.digest import digest
from lumjax.kernel.ir import Kernel, Phase, Scratch
from lumjax.kernel.term import Group
from lumjax.native import Checked
from lumjax.store import Store

READY = Store("ready", 3, ".json")


def keep(plan_key: str, plan: Plan, kernels: Sequence[Checked]) -> bool:
    """Store a plan's kernels; whether that was possible."""
    entry = {"plan": _summary(plan), "kernels": [_text(plan, item) for item in kernels]}
    return READY.write(_name(plan_key), json.dumps(entry, separators=(",", ":")).encode())


def is_kept(plan_key: str) -> bool:
    """Whether the kernels of a plan are on disk."""
    return READY.read(_name(plan_key)) is not None


def ready(plan_key: str, plan: Plan) -> list[Checked] | None:
    """The plan's kernels, loaded; None if another process has not left them all."""
    body = READY.read(_name(plan_key))
    if body is None:
        return None
    try:
        entry = json.loads(body)
        if entry["plan"] != _summary(plan):
            return None  # of another plan: a search that the clock stopped may find several
        found = [_checked(plan, kernel) for kernel in entry["kernels"]]
    except (ValueError, KeyError, TypeError, IndexError):
        READY.unusable(_name(plan_key))
        return None
    return None if any(f is None for f in found) else [f for f in found if f is not None]


def _name(plan_key: str) -> str:
    return digest(f"{plan_key} {_code_version()} {config.verify}")


@lru_cache(maxsize=1)
def _code_version() -> str:
    """A digest of the code that makes kernels of plans: a plan's key covers the rest."""
    content = hashlib.sha256()
    for path in sorted((Path(__file__).parent / "cpu").glob("*.py")):
        content.update(path.read_bytes())
    return content.hexdigest()


def _summary(plan: Plan) -> list[Any]:
    """What tells plans of one region apart."""
    groups = [[buffer_text(r.buffer) for r in g.roots] for g in plan.groups]
    return [plan.cost.hex(), plan.truncated, groups]


def _text(plan: Plan, item: Checked) -> dict[str, Any]:
    kernel, compiled = item.compiled.kernel, item.compiled
    at = _place(plan, item.group)
    return {
        "group": at,
        "name": kernel.name,
        "outputs": [buffer_text(b) for b in kernel.outputs],
        "inputs": [buffer_text(b) for b in kernel.inputs],
        "workspace": [buffer_text(b) for b in kernel.workspace],
        "scratch": [[buffer_text(s.buffer), s.elements] for s in kernel.scratch],
        "sizes": kernel.sizes,
        "extents": [dim_text(e) for e in kernel.extents],
        "programs": kernel.programs,
        "phases": [[p.job, dim_text(p.jobs)] for p in kernel.phases],
        "bytes": compiled.scratch,
        "digest": compiled.digest,
        "code": compiled.code.hex(),
        "imports": compiled.imports,
        "rejected": item.rejected,
        "everywhere": item.everywhere,
    }


def _place(plan: Plan, group: Group) -> list[int]:
    """Which of the plan's groups it is, or which root of which group by itself."""
    for k, whole in enumerate(plan.groups):
        if whole == group:
            return [k]
        if len(group.roots) == 1 and group.roots[0] in whole.roots:
            return [k, whole.roots.index(group.roots[0])]
    raise AssertionError("a kernel computes roots of its plan")


def _checked(plan: Plan, entry: Any) -> Checked | None:
    where, *root = entry["group"]
    group = plan.groups[where]
    if root:
        group = Group((group.roots[root[0]],))
    kernel = Kernel(
        entry["name"],
        tuple(map(buffer_from, entry["outputs"])),
        tuple(map(buffer_from, entry["inputs"])),
        tuple(map(buffer_from, entry["workspace"])),
        tuple(Scratch(buffer_from(b), int(n)) for b, n in entry["scratch"]),
        tuple(map(str, entry["sizes"])),
        tuple(Phase(str(job), dim_from(jobs), ()) for job, jobs in entry["phases"]),
        tuple(map(dim_from, entry["extents"])),
        tuple(map(str, entry["programs"])),
    )
    compiled = load_kernel(
        kernel,
        int(entry["bytes"]),
        str(entry["digest"]),
        bytes.fromhex(entry["code"]),
        tuple(map(str, entry["imports"])),
    )
    if compiled is None:
        return None
    return Checked(group, compiled, str(entry["rejected"]), bool(entry["everywhere"]))
