"""jax.experimental.layout: where an array lies. Arrays have one layout here, row after row."""

from __future__ import annotations

from typing import Any

from lumjax.record import record


@record
class Format:
    """A layout (None: the one there is) and a sharding."""

    layout: Any = None
    sharding: Any = None
