"""jax.distributed on one process: there is nothing to connect.

>>> initialize()
>>> is_initialized()
True
"""

from __future__ import annotations

from typing import Any

from lumjax.errors import ArgumentValueError

_state = {"initialized": False}


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: Any = None,
    **options: Any,
) -> None:
    """Remember that it was called. Raises ArgumentValueError for more than one process."""
    del coordinator_address, local_device_ids, options
    if num_processes not in (None, 1) or process_id not in (None, 0):
        raise ArgumentValueError(
            operation="distributed.initialize",
            required="one process",
            got=f"process {process_id} of {num_processes}",
            fix="run the program in one process",
        )
    _state["initialized"] = True


def is_initialized() -> bool:
    """Whether `initialize` was called."""
    return _state["initialized"]


def shutdown() -> None:
    """Forget that `initialize` was called."""
    _state["initialized"] = False
