"""debug_side_effects: functions that rebind outer names, which happens when they are traced, not
when their program runs.

Told from the function's code: a `global` or `nonlocal` name that it assigns to.
"""

from __future__ import annotations

import dis
import warnings
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from lumjax.errors import SideEffectWarning


def warn_of_rebinding(fun: Callable[..., Any], name: str) -> None:
    """Warn, at the line, of each outer name that a traced function assigns to."""
    code = getattr(getattr(fun, "__wrapped__", fun), "__code__", None)
    if code is None:
        return
    for word, variable, line in _rebound(code, frozenset(code.co_freevars)):
        warnings.warn_explicit(
            f"{name} assigns to the {word} {variable} while it is traced: that happens once per "
            "signature, not in each call. Return the value instead.",
            SideEffectWarning,
            code.co_filename,
            line,
        )


def _rebound(code: CodeType, outer: frozenset[str]) -> Iterator[tuple[str, str, int]]:
    """(kind of name, name, line) of each assignment to a name outside of the function."""
    line = code.co_firstlineno
    for step in dis.get_instructions(code):
        starts = step.positions.lineno if step.positions else None
        line = starts or line
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            yield "global variable", str(step.argval), line
        elif step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in outer:
            yield "outer variable", str(step.argval), line
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _rebound(inner, outer & frozenset(inner.co_freevars))
