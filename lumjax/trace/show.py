"""Print jaxprs as JAX does: `{ lambda consts ; inputs . let equations in (outputs,) }`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from os.path import basename
from typing import Any, cast

import numpy as np

from lumjax import dtype as dt
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Atom, Eqn, Jaxpr, Literal, Var, set_printer

_WIDTH = 96


def show(jaxpr: Jaxpr, *, source: bool = False) -> str:
    """The jaxpr as text; `source` appends to each equation the user's line that it came from.

    Names are given in order of appearance, so equal programs print equally. A weak type is marked
    by `~`, as in `~f32[]`.
    """
    return "\n".join(_Printer(source).jaxpr(jaxpr))


def equation(jaxpr: Jaxpr, eqn: Eqn) -> str:
    """One equation of `jaxpr`, with the names that `show` gives."""
    printer = _Printer(False)
    printer.jaxpr(jaxpr)
    return "\n".join(printer.equation(eqn))


def aval(a: ShapedArray) -> str:
    """An abstract value, its weakness marked."""
    return f"{'~' if a.weak else ''}{a}"


def _names() -> Iterator[str]:
    """Yield a, b, .., z, aa, ab, .."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    yield from letters
    for prefix in _names():
        yield from (prefix + letter for letter in letters)


class _Printer:
    """Builds lists of lines; the names of variables are shared by nested jaxprs."""

    def __init__(self, source: bool) -> None:
        self.source = source
        self.fresh = _names()
        self.known: dict[Var, str] = {}

    def name(self, var: Var) -> str:
        if var not in self.known:
            self.known[var] = next(self.fresh)
        return self.known[var]

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return (
                f"{atom.value[()]!s}:{aval(atom.aval)}"  # str, not format: 0.1, not 0.10000000149
            )
        return self.name(atom)

    def binders(self, variables: Sequence[Var]) -> str:
        return " ".join([f"{self.name(v)}:{aval(v.aval)}" for v in variables])

    def jaxpr(self, jaxpr: Jaxpr) -> list[str]:
        consts = self.binders(jaxpr.inputs[: jaxpr.consts])
        inputs = self.binders(jaxpr.inputs[jaxpr.consts :])
        head = f"{{ lambda {consts + ' ' if consts else ''}; {inputs}. let"
        body = [line for eqn in jaxpr.eqns for line in self.equation(eqn)]
        outputs = ", ".join(map(self.atom, jaxpr.outputs))
        tail = f"in ({outputs}{',' if len(jaxpr.outputs) == 1 else ''}) }}"
        flat = " ".join([head, *body, tail])
        if len(body) < 2 and len(flat) <= _WIDTH and not self.source:
            return [flat]
        return [head, *["    " + line for line in body], "  " + tail]

    def equation(self, eqn: Eqn) -> list[str]:
        outputs = self.binders(eqn.outputs)
        left = f"{outputs} = {eqn.prim.name}" if outputs else eqn.prim.name
        right = " ".join(["", *map(self.atom, eqn.inputs)])
        where = ""
        if self.source and eqn.source:
            s = eqn.source
            where = f"  # {basename(s.file)}:{s.line} in {s.function}"
        params = [(k, self.param(v)) for k, v in sorted(eqn.params.items())]
        flat = " ".join([f"{k}={v[0]}" for k, v in params])
        line = f"{left}[{flat}]{right}" if params else f"{left}{right}"
        if len(line) <= _WIDTH and all(len(v) == 1 for _, v in params):
            return [line + where]
        lines = [f"{left}[{where}"]
        for k, (first, *more) in params:
            lines += [f"  {k}={first}", *["  " + m for m in more]]
        return [*lines, f"]{right}"]

    def param(self, value: Any) -> list[str]:
        """A parameter's value, as lines: jaxprs nested, addresses left out."""
        if isinstance(value, Jaxpr):
            return self.jaxpr(value)
        if isinstance(value, tuple):
            parts = cast("tuple[Any, ...]", value)
            if parts and all(isinstance(v, Jaxpr) for v in parts):
                return ["(", *["  " + line for j in parts for line in self.jaxpr(j)], ")"]
            inner = ", ".join([" ".join(self.param(v)) for v in parts])
            return [f"({inner}{',' if len(parts) == 1 else ''})"]
        return [_plain(value)]


def _plain(value: Any) -> str:
    if isinstance(value, np.dtype):
        return dt.short_name(cast("dt.DType", value))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.ndarray):
        return f"array{np.shape(cast('Any', value))}"
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(value)).replace("\n", " ")


set_printer(show)
