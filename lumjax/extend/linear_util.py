"""jax.extend.linear_util: functions on their way through a transformation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lumjax.record import record


@record(eq=False)
class WrappedFun:
    """A function, and what messages may say of it."""

    f: Callable[..., Any]
    params: dict[str, Any]
    debug_info: Any = None

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return self.f(*args, **self.params, **kwargs)


def wrap_init(
    f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: Any = None
) -> WrappedFun:
    """The function, with keyword arguments that it always gets.

    >>> wrap_init(pow, {"mod": 5}).call_wrapped(2, 4)
    1
    """
    return WrappedFun(f, dict(params or {}), debug_info)
