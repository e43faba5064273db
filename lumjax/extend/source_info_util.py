"""jax.extend.source_info_util: files that are not the user's."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from lumjax.errors import hidden_files

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
F = TypeVar("F", bound=Callable[..., Any])

_exclude_paths = hidden_files  # libraries add to it and take from it


def register_exclusion(path: str) -> None:
    """Messages and reports name the nearest line of the user outside this file."""
    if path not in hidden_files:
        hidden_files.append(path)


def include_frame(frame: FrameType) -> bool:
    """Whether a frame is in a file of the user's.

    >>> import sys
    >>> include_frame(sys._getframe())
    True
    """
    name = frame.f_code.co_filename
    return not name.startswith((_PACKAGE, *hidden_files))


def api_boundary(fun: F, **_: Any) -> F:
    """The function as it is: tracebacks are not rewritten here, so nothing marks their edges."""
    return fun
