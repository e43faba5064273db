"""Watching programs run, under jit too: print and callback."""

from __future__ import annotations

from lumjax.control.debug import callback, print

__all__ = ["callback", "print"]
