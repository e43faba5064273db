"""The pages of docs/reference: signatures, docstrings, notes, and examples that are run.

A function's text is its docstring. `docs/reference/examples.txt` adds what families of functions
share (shapes, dtypes, errors) and an example for each whose docstring has none.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import lumjax

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference"

MODULES = (  # as users spell them
    "lumjax", "jnp", "jnp.linalg", "jnp.fft", "lax", "lax.linalg", "nn", "nn.initializers",
    "random", "tree", "tree_util", "optim", "lumjax.scipy.special", "lumjax.scipy.linalg",
    "lumjax.scipy.fft", "lumjax.scipy.ndimage", "lumjax.scipy.signal",
    "lumjax.scipy.sparse.linalg", "lumjax.scipy.stats.beta", "lumjax.scipy.stats.chi2",
    "lumjax.scipy.stats.dirichlet", "lumjax.scipy.stats.gamma",
    "lumjax.scipy.stats.multivariate_normal", "lumjax.scipy.stats.norm",
    "lumjax.scipy.stats.poisson", "lumjax.scipy.stats.t", "lumjax.image", "testing", "sharding",
    "lumjax.dtypes", "lumjax.flatten_util", "lumjax.custom_derivatives", "lumjax.ad_checkpoint",
    "lumjax.debug", "lumjax.profiler", "lumjax.monitoring", "lumjax.distributed",
    "lumjax.dlpack", "lumjax.onnx", "lumjax.experimental", "lumjax.experimental.checkify",
    "lumjax.explain", "lumjax.errors", "lumjax.checkpoint", "lumjax.export", "lumjax.serve",
    "lumjax.train",
)  # fmt: skip
SHORT = {"jnp": "lumjax.numpy"}
# Where words of the lower floors are public; elsewhere they are a module's own tools.
OPEN = {"lumjax", "jnp", "lax", "lumjax.errors"}
TOOLS = {
    "aval_of", "inexact", "safe_sqrt", "strong", "isnan@jnp.linalg", "rsqrt@optim",
    "set_methods", "Settings", "Program@lumjax", "density", "floats", "logarithm", "composed",
    "as_floats",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One public name."""

    module: str
    name: str
    value: Any

    @property
    def full(self) -> str:
        """The name as users write it."""
        return f"{self.module}.{self.name}"


def home(module: str) -> Any:
    """The module that users call by this name, or what else has names of its own."""
    if module in ("lumjax.checkpoint", "lumjax.export"):
        return getattr(lumjax, module.partition(".")[2])
    first, _, rest = module.partition(".")
    full = SHORT.get(first, first if first == "lumjax" else f"lumjax.{first}")
    return importlib.import_module(f"{full}.{rest}" if rest else full)


def user_names() -> dict[str, Any]:
    """What examples may name without importing it."""
    words = ("lax", "nn", "random", "tree", "tree_util", "optim", "testing", "sharding")
    names: dict[str, Any] = {w: importlib.import_module(f"lumjax.{w}") for w in words}
    for module in MODULES:
        home(module)
    return {"lumjax": lumjax, "jnp": lumjax.numpy, "np": np, **names}


def _is_public(module: str, name: str, value: Any) -> bool:
    origin = str(getattr(value, "__module__", ""))
    if name.startswith("_") or inspect.ismodule(value) or not callable(value):
        return False
    if not origin.startswith("lumjax") or name in TOOLS or f"{name}@{module}" in TOOLS:
        return False
    inside = origin.startswith(("lumjax.trace", "lumjax.ops", "lumjax.errors", "lumjax.record"))
    return module in OPEN or not inside


@cache
def entries() -> tuple[Entry, ...]:
    """Every public function and class, by page."""
    found: list[Entry] = []
    for module in MODULES:
        place = home(module)
        names = getattr(place, "__all__", None) or dir(place)
        for name in sorted(names):
            value = getattr(place, name)
            if _is_public(module, name, value):
                found.append(Entry(module, name, value))
    return tuple(found)


# ---- notes and examples


@dataclass(frozen=True)
class Extra:
    """What the file of examples says about a name."""

    note: str
    statements: tuple[str, ...]


@cache
def extras() -> dict[str, Extra]:
    """By full name."""
    found: dict[str, Extra] = {}
    note = ""
    for line in (FOLDER / "examples.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("= "):
            note = line[2:]
        elif line and not line.startswith("#"):
            name, _, code = line.partition(": ")
            assert name not in found, name
            found[name] = Extra(note, tuple(code.split(" ;; ")))
    return found


def session(statements: tuple[str, ...]) -> list[str]:
    """The statements and what they give, as an interactive session shows them."""
    names = user_names()
    lines: list[str] = []
    for statement in statements:
        compound = statement.startswith("with ")
        lines += [f">>> {statement}", *(["..."] if compound else [])]
        lines += _shown(statement, names)
    return lines


def _shown(statement: str, names: dict[str, Any]) -> list[str]:
    (node,) = ast.parse(statement).body
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        if isinstance(node, ast.Expr):
            value = eval(compile(ast.Expression(node.value), "<example>", "eval"), names)
            if value is not None:
                print(repr(value))
        else:
            exec(compile(statement, "<example>", "exec"), names)
    return output.getvalue().splitlines()


# ---- pages


def signature(value: Any) -> str:
    """The parameters without their annotations."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    text = str(found.replace(parameters=bare, return_annotation=found.empty))
    text = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)
    return re.sub(r"<[^>]*>", "...", text)


def docstring(value: Any) -> str:
    """The docstring, its examples as code blocks."""
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(own or ""))
    fenced = [f"```pycon\n{b}\n```" if b.startswith(">>>") else b for b in blocks]
    return "\n\n".join(fenced)


def section(entry: Entry, first: str) -> list[str]:
    """The lines about one name; `first` is the name under which the same thing stood before."""
    extra = extras().get(entry.full)
    lines = [f"### `{entry.full}{signature(entry.value)}`", ""]
    if first:
        return [*lines, f"The same as `{first}`.", ""]
    lines += [docstring(entry.value), ""]
    if extra:
        lines += [*textwrap.wrap(extra.note, 100), "", "```pycon"]
        lines += [*session(extra.statements), "```", ""]
    return lines


def page(module: str) -> str:
    """One page."""
    place = home(module)
    owner = place if inspect.ismodule(place) else type(place)
    text = inspect.cleandoc(owner.__doc__ or "").split("\n\n")[0]
    lines = [f"# `{module}`", "", text, "", "Written by `scripts/reference.py`.", ""]
    for entry in entries():
        if entry.module == module:
            lines += section(entry, earlier(entry))
    return "\n".join(lines).rstrip() + "\n"


@cache
def _first_names() -> dict[int, str]:
    names: dict[int, str] = {}
    for entry in entries():
        names.setdefault(id(entry.value), entry.full)
    return names


def earlier(entry: Entry) -> str:
    """Another name of the same thing that comes before this one, or nothing."""
    first = _first_names()[id(entry.value)]
    return "" if first == entry.full else first


def pages() -> Iterator[tuple[Path, str]]:
    """Every page and its file."""
    for module in MODULES:
        yield FOLDER / f"{module.removeprefix('lumjax.')}.md", page(module)
    rows = [f"- [`{m}`]({m.removeprefix('lumjax.')}.md)" for m in MODULES]
    head = "# Reference\n\nEvery public name, with an example that is run.\n\n"
    yield FOLDER / "index.md", head + "\n".join(rows) + "\n"
