"""What programs of a jitted function are looked up by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lumjax.config import config
from lumjax.dtype import canonicalize
from lumjax.trace.array import Array, Remote
from lumjax.trace.core import Tracer, Value, active_traces, aval_of


def signature_of_leaf(leaf: Value) -> Any:
    """Shape, dtype and weakness of a value."""
    if type(leaf) is Array:
        return leaf.data.shape, leaf.data.dtype, leaf.weak
    aval = aval_of(leaf)
    return aval.shape, aval.dtype, aval.weak


def abstract_signature(leaf: Any) -> Any:
    """The signature of a value or of what only has a shape and a dtype."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, (Array, Tracer)):
        weak = bool(getattr(leaf, "weak_type", getattr(leaf, "weak", False)))
        return tuple(leaf.shape), canonicalize(leaf.dtype), weak
    return signature_of_leaf(leaf)


def axis_environment() -> tuple[Any, ...]:
    """The named axes in scope, with their sizes."""
    traces = active_traces()
    if len(traces) == 1:
        return ()
    return tuple((t.axis_name, t.axis_size) for t in traces if t.axis_name is not None)


def array_key(args: Sequence[Any]) -> tuple[Any, ...] | None:
    """What the program of a call is looked up by if all its arguments are arrays and it is outside
    of every transformation; None for other calls.
    """
    if len(active_traces()) > 1:
        return None
    key: list[Any] = [config.compiled_key()]
    for x in args:
        if type(x) is Array:
            data = x.data
            key += (data.shape, data.dtype, x.weak)
        elif type(x) is Remote:
            key += (x.shape, x.dtype, x.weak)
        else:
            return None
    return tuple(key)
