"""How loads walk memory along an axis: side by side, in steps, or anywhere."""

from __future__ import annotations

from lumjax.kernel.term import Load, free_names
from lumjax.trace import dim as dims
from lumjax.trace.dim import same


def walk(load: Load, axis: str) -> int:
    """How neighbours along an axis lie: 0 side by side or the same, 1 apart, 2 anywhere."""
    if any(axis in free_names(t) for _, t in load.indices):
        return 2
    if axis not in dims.symbols(*load.coords):
        return 0
    steps = [dims.coefficient(c, axis) for c in load.coords]
    if any(s is None for s in steps):
        return 2
    *others, last = steps
    beside = all(same(s, 0) for s in others if s is not None) and isinstance(last, int)
    return 0 if beside and isinstance(last, int) and abs(last) <= 1 else 1


def beside(load: Load, axis: str) -> bool:
    """Whether an axis runs along memory."""
    return axis in dims.symbols(*load.coords) and walk(load, axis) == 0


def together(load: Load, group: str, feature: str) -> bool:
    """Whether the features of a group lie side by side, and groups next to each other."""
    steps = [dims.coefficient(c, group) for c in load.coords[-2:]]
    return beside(load, feature) and any(s is not None and not same(s, 0) for s in steps)
