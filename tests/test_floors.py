"""House rules that hold for every file: import floors, no cycles, no deferred imports, sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "lumjax"
FILES = sorted(PACKAGE.rglob("*.py"))

FLOORS = {
    "lazy": 0, "record": 0, "errors": 0, "config": 0, "dtype": 0, "tree": 0, "target": 0,
    "store": 0, "profiler": 0, "aligned": 0,
    "trace": 1,
    "ops": 2, "kernel": 2,
    "grad": 3, "egraph": 3, "cpu": 3, "cuda": 3, "debugging": 3,
    "control": 4,
    "placement": 5, "native": 5, "stages": 5, "layout": 5, "timeline": 5, "background": 5,
    "insight": 5, "profile": 5, "ready": 5, "workers": 5, "worker": 5, "recompute": 5,
    "executable": 5, "compile": 5, "misses": 5, "donation": 5, "nested": 5, "expansion": 5,
    "closed": 5, "counts": 5, "lowered": 5, "decorator": 5,
    "calibration": 5, "options": 5, "runner": 5, "encoding": 5, "signature": 5, "recall": 5,
    "judge": 5, "accelerated": 5, "portable": 5, "placed": 5, "concrete": 5, "dynamic": 5,
    "labels": 5, "fixed": 5, "inplace": 5, "sized": 5, "lookup": 5,
    "ownership": 5, "launcher": 5, "dispatch": 5,
    "lax": 6, "typing": 6, "traces": 6,
    "numpy": 7, "scipy": 7, "random": 7, "initializers": 7, "nn": 7,
    "optim": 8, "explain": 8, "report": 8, "testing": 8, "debug": 8, "api": 8, "machine": 8,
    "dtypes": 8, "ad_checkpoint": 8, "flatten_util": 8, "tree_util": 8, "image": 8,
    "custom_derivatives": 8, "core": 8, "dlpack": 8, "distributed": 8, "monitoring": 8,
    "extend": 8, "checkpoints": 8, "files": 8, "sharding": 8, "parallel": 8, "experimental": 8,
    "__init__": 9, "compat": 9, "onnx": 9, "train": 9, "exporting": 9, "serve": 9,
}  # fmt: skip
FORBIDDEN = [("kernel", "ops"), ("egraph", "ops"), ("egraph", "cpu"), ("egraph", "cuda"),
             ("cpu", "ops"), ("cuda", "ops"), ("cpu", "egraph"), ("cuda", "egraph")]  # fmt: skip
# Heavy libraries loaded on first use, each in one place (DESIGN: SEMANTICS rule 17).
DEFERRED = {"egglog", "llvmlite", "optree", "rich", "scipy"}
# What else waits for its first use, so that `import lumjax` is quick: (in which module, what).
# The compile half stands behind two doors that nothing but `lumjax.compile` opens: to what
# compiles, and to what runs a program that was compiled before.
DEFERRED_IN = {
    ("lumjax.compile", "lumjax.dispatch"),
    ("lumjax.compile", "lumjax.executable"),
    ("lumjax.compile", "lumjax.lowered"),
    ("lumjax.compile", "lumjax.recall"),
    ("lumjax.executable", "lumjax.accelerated"),
    ("lumjax.explain", "lumjax.report"),
    ("lumjax.misses", "logging"),
    ("lumjax.trace.expr", "hashlib"),
}
CHECKING = ("TYPE_CHECKING", "_typing.TYPE_CHECKING")
COMPILE_HALF = {
    "executable", "native", "placement", "stages", "layout", "timeline", "background", "insight",
    "expansion", "nested", "profile", "ready", "recompute", "workers", "worker", "kernel", "egraph",
    "fixed", "calibration", "cpu", "cuda", "runner", "encoding", "signature", "recall",
    "judge", "accelerated", "portable", "placed", "concrete", "inplace", "sized", "labels",
    "launcher", "dispatch",
}  # fmt: skip


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


MODULES = {module_name(p) for p in FILES}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> list[tuple[str, int, str]]:
    """(module, line, when) for every import, names of a package resolved to its files; `when` is
    "load", "call" (inside a function) or "check" (for the type checker only).
    """
    found: list[tuple[str, int, str]] = []

    def visit(node: ast.AST, when: str) -> None:
        if isinstance(node, ast.Import):
            found.extend((a.name, node.lineno, when) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.append((full if full in MODULES else str(node.module), node.lineno, when))
        elif not isinstance(node, ast.expr):  # imports are statements
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                when = "call"
            elif isinstance(node, ast.If) and ast.unparse(node.test) in CHECKING:
                when = "check"
            for child in ast.iter_child_nodes(node):
                visit(child, when)

    visit(parsed(path), "load")
    return found


GRAPH = {
    module_name(p): [m for m, _, _ in imports(p) if m.split(".")[0] == "lumjax"] for p in FILES
}


def each_import() -> Iterator[tuple[Path, str, int, str]]:
    for path in FILES:
        for target, line, when in imports(path):
            yield path, target, line, when


def test_imports_point_down():
    for path, target, line, _ in each_import():
        here = room(module_name(path))
        if target.split(".")[0] != "lumjax":
            continue
        there = room(target)
        assert here in FLOORS, f"{here} has no floor"
        assert there in FLOORS, f"{there} has no floor"
        where = f"{path.name}:{line} imports {target}"
        assert FLOORS[there] <= FLOORS[here], where
        assert (here, there) not in FORBIDDEN, where


def test_no_deferred_imports():
    for path, target, line, when in each_import():
        if when == "call":
            allowed = target.split(".")[0] in DEFERRED or (module_name(path), target) in DEFERRED_IN
            assert allowed, f"{path}:{line} defers the import of {target}"


def test_the_compile_half_is_behind_one_door():
    for path, target, line, when in each_import():
        here = module_name(path)
        inside = room(here) in COMPILE_HALF
        if target.split(".")[0] == "lumjax" and room(target) in COMPILE_HALF and not inside:
            allowed = when == "check" or (when == "call" and (here, target) in DEFERRED_IN)
            assert allowed, f"{path}:{line} imports {target}"


def test_no_cycles():
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module in done:
            return
        for target in GRAPH.get(module, []):
            if target != module:
                visit(target, (*path, module))
        done.add(module)

    for module in sorted(GRAPH):
        visit(module, ())


def test_jax_is_never_imported():
    for path, target, line, _ in each_import():
        assert target.split(".")[0] not in ("jax", "jaxlib", "optax", "torch"), f"{path}:{line}"
    # By name it is loaded in one place, when a check against it is asked for.
    loads = [
        p for p in FILES if re.search(r"import_module\(f?\"jax", p.read_text(encoding="utf-8"))
    ]
    assert loads == [PACKAGE / "testing" / "oracle.py"]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(name, lines without the docstring) of every function."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body
            doc = body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
            start = body[1].lineno if doc and len(body) > 1 else node.lineno
            yield node.name, (node.end_lineno or start) - start + 1


def test_files_have_at_most_600_lines():
    lengths = {module_name(p): len(p.read_text(encoding="utf-8").splitlines()) for p in FILES}
    assert not {n: k for n, k in lengths.items() if k > 600}


def test_functions_have_at_most_50_lines():
    found = {f"{module_name(p)}:{name}": n for p in FILES for name, n in functions(p)}
    assert not {name: n for name, n in found.items() if n > 50}


def test_every_module_says_what_it_is_for():
    assert [p for p in FILES if not ast.get_docstring(parsed(p))] == []
