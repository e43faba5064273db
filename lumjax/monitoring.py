"""jax.monitoring: events that a program records, for listeners that it registers.

>>> seen = []
>>> register_event_listener(lambda name, **kw: seen.append(name))
>>> record_event("saved")
>>> seen
['saved']
>>> clear_event_listeners()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_events: list[Callable[..., None]] = []
_durations: list[Callable[..., None]] = []


def record_event(event: str, **kwargs: Any) -> None:
    """Tell the listeners that something happened."""
    for listener in _events:
        listener(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: Any) -> None:
    """Tell the listeners how long something took."""
    for listener in _durations:
        listener(event, duration, **kwargs)


def register_event_listener(callback: Callable[..., None]) -> None:
    """Call `callback(event, **kwargs)` at every event."""
    _events.append(callback)


def register_event_duration_secs_listener(callback: Callable[..., None]) -> None:
    """Call `callback(event, duration, **kwargs)` at every duration."""
    _durations.append(callback)


def clear_event_listeners() -> None:
    """Forget all listeners."""
    _events.clear()
    _durations.clear()
