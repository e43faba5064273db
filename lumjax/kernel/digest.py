"""Texts and hashes of programs that do not change between processes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Eqn, Literal, Var
from lumjax.trace.dim import Expr
from lumjax.trace.form import Form, ScalarOp

FORMAT = 3  # of the texts below


def digest(text: str) -> str:
    """The sha256 of a text, as hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def stable_text(value: Any) -> str:
    """A text of a parameter or form that depends on its contents alone, not on addresses.

    Raises TypeError for a value that has no such text.
    """
    match value:
        case tuple() | list():
            return f"({','.join(map(stable_text, value))})"
        case frozenset() | set():
            return f"{{{','.join(sorted(map(stable_text, value)))}}}"
        case Mapping():
            items = sorted((str(k), stable_text(v)) for k, v in value.items())
            return f"{{{','.join(f'{k}:{v}' for k, v in items)}}}"
        case ScalarOp():
            return f"op({value.name},{value.arity})"
        case ShapedArray():
            return str(value)
        case _ if is_dataclass(value) and not isinstance(value, (type, Expr)):
            parts = (stable_text(getattr(value, f.name)) for f in fields(value))
            return f"{type(value).__name__}({','.join(parts)})"
        case _:
            return _plain_text(value)


def has_text(value: Any) -> bool:
    """Whether `stable_text` knows the value."""
    try:
        stable_text(value)
    except TypeError:
        return False
    return True


def _plain_text(value: Any) -> str:
    """The text of a value without parts."""
    match value:
        case None | bool() | int() | str() | bytes() | complex():
            return repr(value)
        case float():
            return value.hex()
        case Expr():
            return f"dim({value.key})"
        case np.dtype():
            return dt.short_name(value)
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case np.ndarray() | np.generic():
            array = np.asarray(value)
            return f"array({array.dtype.str},{array.shape},{array.tobytes().hex()})"
        case type():
            return value.__qualname__
        case _:
            raise TypeError(f"no stable text for {type(value).__qualname__}")


def operation_text(name: str, form: Form, params: Mapping[str, Any]) -> str:
    """What an operation computes, whatever its operands."""
    return f"{name} {stable_text(form)} {stable_text(params)}"


def region_text(
    inputs: Sequence[Var],
    outputs: Sequence[Var],
    eqns: Sequence[Eqn],
    texts: Sequence[str],
    inside: Set[Var] = frozenset(),
) -> str:
    """The program with variables numbered in order of appearance; `texts` as operation_text's."""
    number: dict[Var, int] = {}
    names: dict[ShapedArray, str] = {}

    def name(aval: ShapedArray) -> str:
        if aval not in names:
            names[aval] = str(aval.strip_weak())
        return names[aval]

    for v in (*inputs, *(o for e in eqns for o in e.outputs)):
        number[v] = len(number)
    lines = [f"region {FORMAT}", *(name(v.aval) for v in inputs)]
    for eqn, text in zip(eqns, texts, strict=True):
        operands = [
            stable_text(a.value) if isinstance(a, Literal) else f"v{number[a]}" for a in eqn.inputs
        ]
        results = [f"v{number[o]}:{name(o.aval)}" for o in eqn.outputs]
        lines.append(f"{','.join(results)}={text} {','.join(operands)}")
    lines.append("return " + ",".join(f"v{number[o]}" for o in outputs))
    lines.append("inside " + ",".join(str(n) for n in sorted(number[v] for v in inside)))
    return "\n".join(lines)
