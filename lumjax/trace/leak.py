"""The leak check: does a traced value outlive its transformation, and what holds it?

A tracer holds its trace. So when a transformation has ended and nothing of ours holds its trace any
more, the trace is alive only if a tracer leaked.
"""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Collection, Iterable
from typing import Any

from lumjax.errors import LeakedTracerError
from lumjax.record import record
from lumjax.trace.core import Trace, Tracer, traced

_DEPTH = 4  # of holders that a message names


def check_forgotten(reference: weakref.ref[Any]) -> None:
    """Raise LeakedTracerError if the trace is still alive; the caller holds nothing of it."""
    if reference() is None:
        return
    gc.collect()
    trace = reference()
    if trace is None:
        return
    leaks = [x for x in gc.get_referrers(trace) if isinstance(x, Tracer)]
    if not leaks:
        return
    leak, about = leaks[0], trace.about
    raise LeakedTracerError(
        operation=f"the leak check of {about() if about else 'a transformation'}",
        required="traced values that are forgotten when it has ended",
        got=f"{traced(leak)}, {_holders(leak, leaks)}",
        fix="return the value from the transformed function instead of storing it outside",
    )


def _holders(leak: Tracer, leaks: list[Tracer]) -> str:
    """Who holds a tracer, and who holds that, as far as there are names for it."""
    found: list[str] = []
    held: Any = leak
    ours: list[Any] = [leaks]
    for _ in range(_DEPTH):
        referrers = gc.get_referrers(held)
        ours.append(referrers)
        holders: list[_Holder] = []  # no generator here: it would hold the tracer too
        for x in referrers:
            holder = None if _position(ours, x) is not None else _holder(x, held)
            if holder is not None:
                holders.append(holder)
        ours += [holders, *holders]
        if not holders:
            break
        chosen = min(holders, key=lambda h: h.rank)
        found.append(chosen.word)
        if chosen.rank == 0:
            break
        held = chosen.holder
    return "held by " + ", in ".join(found) if found else "held by something that cannot be named"


def _position(items: Iterable[Any], x: Any) -> int | None:
    """Where `x` itself is among the items."""
    for k, item in enumerate(items):
        if item is x:
            return k
    return None


def _key(entries: dict[Any, Any], x: Any) -> Any:
    """The key under which `x` itself is."""
    k = _position(entries.values(), x)
    return None if k is None else list(entries)[k]


@record(eq=False)
class _Holder:
    word: str
    holder: Any
    rank: int  # 0: the word says it all; 1: what holds this should be named too


def _holder(x: Any, held: Any) -> _Holder | None:
    """A referrer as a holder; None where it is none that a user knows."""
    if isinstance(x, dict):
        entries: dict[Any, Any] = x
        key = _key(entries, held)
        module = entries.get("__name__") if "__builtins__" in entries else None
        if key is not None and module is not None:
            return _Holder(f"the global {key} of module {module}", x, 0)
        owner = _owner(entries)
        if key is not None and owner is not None:
            return _Holder(_attribute(key, owner), owner, 1)
        return None if key is None else _Holder(f"a dict under {key!r}", x, 1)
    if isinstance(x, types.CellType):
        return _Holder(_variable(x), x, 0)
    if isinstance(x, (list, tuple, set, frozenset)):
        items: Collection[Any] = x
        return _Holder(f"a {type(items).__name__} of {len(items)}", items, 1)
    if isinstance(x, (types.FrameType, types.ModuleType, type, Tracer, Trace)):
        return None
    attributes: dict[str, Any] = getattr(x, "__dict__", {})
    name = _key(attributes, held)
    return _Holder(_attribute(name, x), x, 1)


def _attribute(name: Any, x: Any) -> str:
    kind = f"an object of type {type(x).__name__}"
    return kind if name is None else f"the attribute {name} of {kind}"


def _owner(entries: dict[Any, Any]) -> Any:
    """The object whose attributes a dict holds, if that is what it is."""
    for x in gc.get_referrers(entries):
        plain = isinstance(x, (types.FrameType, dict, list, tuple))
        if not plain and getattr(x, "__dict__", None) is entries:
            return x
    return None


def _variable(cell: types.CellType) -> str:
    """A closure's variable, with the function that closes over it."""
    for x in gc.get_referrers(cell):
        if isinstance(x, tuple):
            cells: tuple[Any, ...] = x
            for f in gc.get_referrers(cells):
                if isinstance(f, types.FunctionType) and f.__closure__ is cells:
                    k = _position(cells, cell)
                    assert k is not None, "it was found through this cell"
                    return f"the variable {f.__code__.co_freevars[k]} of {f.__qualname__}"
    return "a variable of an enclosing function"
