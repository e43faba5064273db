"""jax.extend.source_info_util: files that are not the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lumjax.errors import hidden_files

F = TypeVar("F", bound=Callable[..., Any])

_exclude_paths = hidden_files  # libraries add to it and take from it


def register_exclusion(path: str) -> None:
    """Messages and reports name the nearest line of the user outside this file."""
    if path not in hidden_files:
        hidden_files.append(path)


def api_boundary(fun: F, **_: Any) -> F:
    """The function as it is: tracebacks are not rewritten here, so nothing marks their edges."""
    return fun
