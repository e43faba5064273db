"""Numbers for people."""

from __future__ import annotations


def seconds(value: float) -> str:
    """A duration in the unit that suits it.

    >>> seconds(0.0123)
    '12.3 ms'
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns" if value else "0 s"


def size(value: float) -> str:
    """A number of bytes.

    >>> size(3 << 20)
    '3.0 MiB'
    """
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value:.0f} B"


def change(before: float, after: float) -> str:
    """How a number changed.

    >>> change(2.0, 1.0)
    '0.50x'
    """
    if before == after:
        return "same"
    return f"{after / before:.2f}x" if before else "new"
