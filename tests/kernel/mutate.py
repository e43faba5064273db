"""Rebuild a kernel with one thing changed."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace


def rebuild(node, change):
    """`change(node)` wherever it returns something other than None, in every IR node below."""
    new = change(node)
    if new is not None:
        return new
    if isinstance(node, tuple):
        return tuple(rebuild(n, change) for n in node)
    if is_dataclass(node) and type(node).__module__ == "lumjax.kernel.ir":
        return replace(
            node, **{f.name: rebuild(getattr(node, f.name), change) for f in fields(node)}
        )
    return node


def once(predicate, change, skip=0):
    """A change that applies to the first node that satisfies `predicate`, after `skip` others."""
    left = [skip]

    def apply(node):
        if left[0] >= 0 and predicate(node):
            left[0] -= 1
            if left[0] < 0:
                return change(node)
        return None

    return apply
