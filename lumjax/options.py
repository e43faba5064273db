"""What `jit` is told besides the function: which arguments it means, and how to compile."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lumjax.config import config
from lumjax.errors import ArgumentTypeError, ArgumentValueError


def as_set(value: Any, kind: type, name: str) -> frozenset[Any]:
    """One or several of a kind as a set; ArgumentTypeError for anything else."""
    if value is None:
        return frozenset()
    found = (value,) if isinstance(value, kind) else tuple(value)
    for v in found:
        if not isinstance(v, kind):
            raise ArgumentTypeError(
                operation="jit",
                required=f"{name} of {kind.__name__}s",
                got=f"{v!r} of type {type(v).__name__}",
                fix=f"pass one {kind.__name__} or a sequence of them",
            )
    return frozenset(found)


def resolved(
    fun: Callable[..., Any], nums: frozenset[int], names: frozenset[str], what: str
) -> tuple[frozenset[int], frozenset[str]]:
    """Let a parameter named by position also be passed by keyword, and the other way round."""
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return nums, names
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    has_rest = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    known = {p.name for p in parameters}
    unknown = [n for n in names if n not in known]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise ArgumentValueError(
            operation=f"jit of {getattr(fun, '__name__', fun)}",
            required=f"{what}_argnames among {', '.join(sorted(known))}",
            got=", ".join(sorted(unknown)),
            fix="correct the name",
        )
    if not has_rest:
        for n in nums:
            if not -len(positional) <= n < len(positional):
                raise ArgumentValueError(
                    operation=f"jit of {getattr(fun, '__name__', fun)}",
                    required=f"{what}_argnums within {len(positional)} positional parameters",
                    got=str(n),
                    fix="correct the position",
                )
    all_nums = nums | {k for k, n in enumerate(positional) if n in names}
    all_names = names | {positional[n] for n in nums if -len(positional) <= n < len(positional)}
    return all_nums, all_names


def is_strict(donate: str | None) -> bool:
    """Whether donated arrays that can't be used are errors."""
    if donate not in (None, "strict"):
        raise ArgumentValueError(
            operation="jit",
            required="donate to be None or 'strict'",
            got=repr(donate),
            fix="name arguments to donate by donate_argnums or donate_argnames",
        )
    return donate == "strict"


_KEYWORDS = {
    "search_evaluations": "search",
    "search_seconds": "timeout",
    "search_profile": "profile",
    "search_background": "background",
    "search_memory": "memory",
    "backend": "backend",
}


def settings_of(**given: Any) -> dict[str, Any]:
    """Keyword arguments as settings, those that are None left out; raises for bad values."""
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        try:
            with config.scope(**{name: value}):
                pass
        except (ArgumentTypeError, ArgumentValueError) as error:
            raise type(error)(
                operation="jit",
                required=f"{_KEYWORDS[name]} to be {error.required}",
                got=error.got,
                fix=error.fix,
            ) from None
    return chosen
