"""Parameters of a public name in either library, for comparison."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def find(library: Any, name: str) -> Any:
    """What a name spelled as JAX's users spell it is in `library`."""
    found = library
    path = library.__name__
    for part in name.replace("jnp.", "jax.numpy.").split(".")[1:]:
        path = f"{path}.{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


def parameters(library: Any, name: str) -> list[tuple[str, str]] | None:
    """(name, kind) of each parameter that has a name for the caller, in order; "any" where every
    keyword is taken; None where there is no such function.
    """
    try:
        found = find(library, name)
        if inspect.isclass(found) or not callable(found):
            return None
        signature = inspect.signature(found)
    except (AttributeError, ImportError, TypeError, ValueError):
        return None
    out: list[tuple[str, str]] = []
    for p in signature.parameters.values():
        if p.kind is p.VAR_KEYWORD:
            out.append((p.name, "any"))
        elif p.kind in KEYWORD:
            out.append((p.name, "keyword" if p.kind is p.KEYWORD_ONLY else "either"))
        else:
            out.append((p.name, "rest" if p.kind is p.VAR_POSITIONAL else "position"))
    return out


def unlike(ours: list[tuple[str, str]] | None, theirs: list[tuple[str, str]] | None) -> list[str]:
    """The parameters a caller can name in JAX but not here, and "order" where positions differ."""
    if ours is None or theirs is None:
        return []
    have = [n for n, kind in ours if kind in ("either", "keyword")]
    wanted = [(n, kind) for n, kind in theirs if kind in ("either", "keyword")]
    open_ended = any(kind == "any" for _, kind in ours)
    absent = [] if open_ended else [n for n, _ in wanted if n not in have]
    return absent + (["order"] if _misplaced(ours, theirs) else [])


def _misplaced(ours: list[tuple[str, str]], theirs: list[tuple[str, str]]) -> bool:
    """Whether a parameter that both take by position stands at another place."""
    here = {n: k for k, (n, kind) in enumerate(ours) if kind in ("either", "position")}
    there = {n: k for k, (n, kind) in enumerate(theirs) if kind in ("either", "position")}
    return any(here[n] != there[n] for n in here.keys() & there.keys())
