"""debug_key_reuse: random keys are used once.

What is noted is a key's value, when an operation uses it up; under jit too, since programs carry
the check. What makes keys (from a seed, by split or fold_in, by clone) forgets their use; `split`
uses its key up, `fold_in` does not.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lumjax.config import config
from lumjax.errors import KeyReuseError, Source
from lumjax.ops.passing import check_index_p, passing
from lumjax.trace.array import Array
from lumjax.trace.core import Atom, Eqn, Jaxpr, Tracer, Value, current_source

NDArray = np.ndarray[Any, Any]


_LIMIT = 1 << 20  # keys remembered
_used: dict[bytes, tuple[str, Source | None]] = {}
_lock = threading.Lock()


def _rows(words: NDArray, last: int) -> list[bytes]:
    """Every key of an array of them, as bytes."""
    flat = np.moveaxis(words, last, -1).reshape(-1, 2)
    return [row.tobytes() for row in np.ascontiguousarray(flat)]


def _consume(words: NDArray, *, last: int, operation: str, source: Source | None) -> None:
    with _lock:
        for key in _rows(words, last):
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


def _renew(words: NDArray, *, last: int) -> None:
    with _lock:
        for key in _rows(words, last):
            _used.pop(key, None)


consume_key_p = passing("consume_key", _consume)
renew_key_p = passing("renew_key", _renew)
PASSING = frozenset({check_index_p, consume_key_p, renew_key_p})


def without_checks(jaxpr: Jaxpr) -> Jaxpr:
    """The program as it is run again to recompute values: what was looked at once is passed on."""
    names: dict[Atom, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        inputs = tuple(names.get(a, a) for a in eqn.inputs)
        if eqn.prim in PASSING:
            names[eqn.outputs[0]] = inputs[0]
            continue
        params = {k: _unchecked(v) for k, v in eqn.params.items()}
        eqns.append(Eqn(eqn.prim, inputs, eqn.outputs, params, eqn.source))
    outputs = tuple(names.get(a, a) for a in jaxpr.outputs)
    return Jaxpr(jaxpr.inputs, tuple(eqns), outputs, jaxpr.consts)


def _unchecked(value: Any) -> Any:
    if isinstance(value, Jaxpr):
        return without_checks(value)
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value
        changed = tuple(_unchecked(v) for v in items)
        return changed if any(a is not b for a, b in zip(changed, items, strict=True)) else items
    return value


def consumed(words: Value, operation: str) -> Value:
    """The words uint32[2] of a key that an operation uses up, noted if debug_key_reuse is on."""
    if not config.debug_key_reuse:
        return words
    source = current_source()
    return consume_key_p.bind(_operand(words), last=0, operation=operation, source=source)[0]


def renewed(words: Value, last: int = 0) -> Value:
    """The words of keys that are new, or may be used again, along axis `last`."""
    return renew_key_p.bind(_operand(words), last=last)[0] if config.debug_key_reuse else words


@contextmanager
def unchecked() -> Generator[None]:
    """Keys inside the block are not noted: an operation has used its key up, and now makes of it
    what it likes.
    """
    if not config.debug_key_reuse:
        yield
        return
    with config.scope(debug_key_reuse=False):
        yield


def _operand(words: Value) -> Value:
    return words if isinstance(words, (Array, Tracer)) else np.asarray(words)
