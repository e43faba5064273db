"""Checks that programs carry in debug modes: indices within their axis, random keys used once.

Both pass their operand on, so that what uses it comes after the check. They run where the program
runs, under jit too; the lines are those where the user wrote the operation.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax.config import config
from lumjax.debugging.values import first_index
from lumjax.errors import IndexRangeError, KeyReuseError, Source
from lumjax.trace.array import Array
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Effect, Primitive, Tracer, Value, current_source
from lumjax.trace.form import Opaque

NDArray = np.ndarray[Any, Any]


def _passing(name: str, look: Any) -> Primitive:
    """A primitive that looks at its operand and passes it on."""

    def evaluate(x: NDArray, **params: Any) -> tuple[NDArray, ...]:
        look(x, **params)
        return (x,)

    def jvp(
        primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> tuple[Sequence[Value], Sequence[Value | None]]:
        return primitive.bind(*primals, **params), (None,)

    def batch(
        axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return primitive.bind(*args, **_moved(params, dims[0])), dims

    def _moved(params: dict[str, Any], dim: int | None) -> dict[str, Any]:
        if dim is None or "axis" not in params:
            return params
        axis = params["axis"]
        return {**params, "axis": axis + (dim <= axis)}

    primitive = Primitive(
        name,
        aval=lambda x, **params: (x,),
        eval=evaluate,
        form=lambda *avals, **params: Opaque(f"{name} looks at its operand"),
        jvp=jvp,
        batch=batch,
        effect=Effect.UNORDERED,
    )
    return primitive


# ---- indices


def _look_at_index(x: NDArray, *, length: int, where: str, source: Source | None) -> None:
    bad = (x < -length) | (x >= length)
    if bad.any():
        index = first_index(bad)
        at = f" at {index} of the indices" if x.ndim else ""
        raise IndexRangeError(
            operation=where,
            required=f"an index between {-length} and {length - 1} (debug_index)",
            got=f"{x[index]}{at}",
            fix="correct the index, or name what should happen with mode='clip' or 'fill'",
            source=source,
        )


check_index_p = _passing("check_index", _look_at_index)


def checked_index(index: Value, length: Any, where: str) -> Value:
    """The index, looked at when the program runs if debug_index is on."""
    if not config.debug_index or not isinstance(length, int) or not isinstance(index, Tracer):
        return index
    return check_index_p.bind(index, length=length, where=where, source=current_source())[0]


# ---- random keys

_LIMIT = 1 << 20  # keys remembered
_used: dict[bytes, tuple[str, Source | None]] = {}
_lock = threading.Lock()


def _rows(words: NDArray, axis: int) -> list[bytes]:
    """Every key of an array of them, as bytes."""
    flat = np.moveaxis(words, axis, -1).reshape(-1, 2)
    return [row.tobytes() for row in np.ascontiguousarray(flat)]


def _consume(words: NDArray, *, axis: int, operation: str, source: Source | None) -> None:
    with _lock:
        for key in _rows(words, axis):
            before = _used.get(key)
            if before is not None:
                raise _reused(key, operation, source, before)
            while len(_used) >= _LIMIT:
                del _used[next(iter(_used))]
            _used[key] = operation, source


def _reused(
    key: bytes, operation: str, source: Source | None, before: tuple[str, Source | None]
) -> KeyReuseError:
    words = ", ".join(map(str, np.frombuffer(key, np.uint32)))
    return KeyReuseError(
        operation=operation,
        required="a key that nothing used before (debug_key_reuse)",
        got=f"the key [{words}], which {before[0]} used at {before[1]}",
        fix="split the key and use each part once, or mark an intended reuse with random.clone",
        source=source,
    )


def _renew(words: NDArray, *, axis: int) -> None:
    with _lock:
        for key in _rows(words, axis):
            _used.pop(key, None)


consume_key_p = _passing("consume_key", _consume)
renew_key_p = _passing("renew_key", _renew)
PASSING = frozenset({check_index_p, consume_key_p, renew_key_p})


def consumed(words: Value, operation: str) -> Value:
    """The words uint32[2] of a key that an operation uses up, noted if debug_key_reuse is on."""
    if not config.debug_key_reuse:
        return words
    source = current_source()
    return consume_key_p.bind(_operand(words), axis=0, operation=operation, source=source)[0]


def renewed(words: Value) -> Value:
    """The words uint32[2] of a key that is new, or may be used again."""
    return renew_key_p.bind(_operand(words), axis=0)[0] if config.debug_key_reuse else words


def _operand(words: Value) -> Value:
    return words if isinstance(words, (Array, Tracer)) else np.asarray(words)
