"""Why a jitted function was traced again: what its signature has that no earlier one had."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lumjax.config import MODES, config, key_names
from lumjax.errors import Source
from lumjax.record import record
from lumjax.trace.aval import ShapedArray


def _warn(message: str, *args: Any) -> None:
    import logging  # noqa: PLC0415 - programs run without it

    logging.getLogger("lumjax.compile").warning(message, *args)


@record(eq=False)
class Signature:
    """What a program is looked up by, and the names of its leaves."""

    in_tree: Any
    static: tuple[tuple[int | str, type, Any], ...]
    leaves: tuple[Any, ...]  # (shape, dtype, weak) of each
    settings: tuple[Any, ...]
    axes: tuple[Any, ...]
    names: tuple[str, ...]

    def __str__(self) -> str:
        words = [f"{n}: {_aval(s)}" for n, s in zip(self.names, self.leaves, strict=False)]
        words += [f"{_static(w)} = {v!r}" for w, _, v in self.static]
        return ", ".join(words) or "no arguments"


def _aval(leaf: Any) -> str:
    shape, dtype, weak = leaf
    return ("~" if weak else "") + str(ShapedArray(shape, dtype))


def _static(where: int | str) -> str:
    return f"static argument {where}"


def differences(new: Signature, old: Signature) -> list[str]:
    """The fields in which two signatures differ, in words."""
    found: list[str] = []
    if new.in_tree != old.in_tree:
        found.append(_structure(new, old))
    else:
        found += [
            f"argument {name}: {_aval(a)}, before {_aval(b)}{_kind(a, b)}"
            for name, a, b in zip(new.names, new.leaves, old.leaves, strict=True)
            if a != b
        ]
    before = {w: (t, v) for w, t, v in old.static}
    for where, kind, value in new.static:
        if before.get(where) != (kind, value):
            had = repr(before[where][1]) if where in before else "none"
            found.append(f"{_static(where)}: {value!r}, before {had}")
    found += _settings(new.settings, old.settings)
    if new.axes != old.axes:
        found.append(f"the named axes in scope: {new.axes}, before {old.axes}")
    return found


def _distance(new: Signature, old: Signature) -> int:
    """How much two signatures differ."""
    kinds = 1000
    if new.in_tree == old.in_tree:
        leaves = zip(new.leaves, old.leaves, strict=True)
        kinds = sum(x != y for a, b in leaves for x, y in zip(a, b, strict=True))
    static = len(set(new.static) ^ set(old.static))
    settings = sum(a != b for a, b in zip(new.settings, old.settings, strict=True))
    return kinds + static + settings + (new.axes != old.axes)


def _structure(new: Signature, old: Signature) -> str:
    here, there = set(new.names), set(old.names)
    extra = [n for n in new.names if n not in there]
    gone = [n for n in old.names if n not in here]
    words = [f"{', '.join(extra)} is new"] if extra else []
    words += [f"{', '.join(gone)} is gone"] if gone else []
    detail = "; ".join(words) or f"{new.in_tree}, before {old.in_tree}"
    return f"the structure of the arguments: {detail}"


def _kind(a: Any, b: Any) -> str:
    """Which of shape, dtype and weak type differs."""
    kinds = ("shape", "dtype", "weak type")
    different = [k for k, x, y in zip(kinds, a, b, strict=True) if x != y]
    return f" (another {' and '.join(different)})"


def _settings(new: tuple[Any, ...], old: tuple[Any, ...]) -> list[str]:
    found: list[str] = []
    for name, a, b in zip(key_names(), new, old, strict=True):
        if a == b:
            continue
        if name != "modes":
            found.append(f"the setting {name}: {a!r}, before {b!r}")
            continue
        for k, mode in enumerate(MODES):
            if (a ^ b) >> k & 1:
                found.append(f"the setting {mode}: {bool(a >> k & 1)}, before {bool(b >> k & 1)}")
    return found


@record(eq=False)
class Miss:
    """One tracing of a function: where it was called, with what, and how long it took."""

    number: int
    signature: Signature
    source: Source | None
    seconds: float
    kept: bool
    nearest: int | None
    why: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.number}. {self.source or 'called'}, traced in {1e3 * self.seconds:.1f} ms"]
        if self.nearest is None:
            lines.append(f"   the first signature: {self.signature}")
        elif self.why:
            lines += [f"   unlike program {self.nearest} in {w}" for w in self.why]
        else:
            lines.append(f"   as program {self.nearest}, which could not be kept")
        if not self.kept:
            lines.append("   not kept: it closes over a value of an outer transformation")
        return "\n".join(lines)


class History:
    """Every tracing of one jitted function, in order. `print` it."""

    __slots__ = ("misses", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.misses: list[Miss] = []

    def add(self, signature: Signature, source: Source | None, seconds: float, kept: bool) -> None:
        """Note one tracing, and log it where the settings ask for that."""
        nearest, why = self._nearest(signature)
        number = len(self.misses) + 1
        miss = Miss(number, signature, source, seconds, kept, nearest, tuple(why))
        self.misses.append(miss)
        if config.log_compiles:
            _warn("Finished tracing %s for %s in %.6f sec", self.name, signature, seconds)
        if config.explain_cache_misses:
            _warn("cache miss of %s, %s", self.name, miss)

    def _nearest(self, signature: Signature) -> tuple[int | None, list[str]]:
        """The earlier program with the fewest differences, the latest of them."""
        best: tuple[int | None, list[str]] = (None, [])
        least = math.inf
        for miss in reversed(self.misses):
            found = differences(signature, miss.signature)
            far = _distance(signature, miss.signature)
            if far < least:
                best, least = (miss.number, found), far
        return best

    def __len__(self) -> int:
        return len(self.misses)

    def __getitem__(self, number: int) -> Miss:
        return self.misses[number]

    def __str__(self) -> str:
        times = "never traced" if not self.misses else f"traced {_times(len(self.misses))}"
        return "\n".join([f"{self.name}: {times}", *map(str, self.misses)])


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def compiled(name: str, seconds: float) -> None:
    """Log that a program was compiled, where the settings ask for that, in words that tools which
    read JAX's log look for.
    """
    if config.log_compiles:
        _warn("Finished native compilation of jit(%s) in %.6f sec", name, seconds)


_plans: dict[str, None] = {}


def used(key: str) -> None:
    """Note what the plans of a program follow from that this process runs."""
    _plans[key] = None


def plans() -> tuple[str, ...]:
    """The keys of the plans of all programs that this process has run, in order."""
    return tuple(sorted(_plans))


def named(names: Sequence[str], count: int) -> tuple[str, ...]:
    """A name for each of `count` leaves."""
    return (*names, *(f"leaf {k}" for k in range(len(names), count)))
