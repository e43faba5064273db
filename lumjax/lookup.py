"""What programs of a jitted function are looked up by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lumjax.config import config
from lumjax.dtype import canonicalize
from lumjax.trace.array import Array, Remote
from lumjax.trace.core import Tracer, Value, active_traces, aval_of

_HOSTS = (1, 3)  # DLPack's numbers of memory that the host can read: its own, and pinned


def signature_of_leaf(leaf: Value) -> Any:
    """Shape, dtype and weakness of a value."""
    if type(leaf) is Array:
        return leaf.data.shape, leaf.data.dtype, leaf.weak
    aval = aval_of(leaf)
    return aval.shape, aval.dtype, aval.weak


def on_gpu(x: Any) -> bool:
    """Whether a value is another library's array that lies on a device."""
    if isinstance(x, (Array, Tracer)):
        return False
    if hasattr(x, "__cuda_array_interface__"):
        return True
    return hasattr(x, "__dlpack_device__") and int(x.__dlpack_device__()[0]) not in _HOSTS


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


def array_key(args: Sequence[Any], structure: Any = None) -> tuple[Any, ...] | None:
    """What the program of a call is looked up by if all its arguments, or the leaves of arguments
    of that structure, are arrays and it is outside of every transformation; None for other calls.
    """
    if len(active_traces()) > 1:
        return None
    key: list[Any] = [config.compiled_key(), structure]
    for x in args:
        if type(x) is Array:
            data = x.data
            key += (data.shape, data.dtype, x.weak)
        elif type(x) is Remote:
            key += (x.shape, x.dtype, x.weak)
        else:
            return None
    return tuple(key)
