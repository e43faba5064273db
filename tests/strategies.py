"""The tests' Hypothesis strategies: those of `lumjax.testing`, and no others."""

from __future__ import annotations

from lumjax.testing.strategies import (
    arrays,
    broadcastable,
    gradient_property,
    indices,
    programs,
    pytrees,
    shapes,
)

__all__ = [
    "arrays",
    "broadcastable",
    "gradient_property",
    "indices",
    "programs",
    "pytrees",
    "shapes",
]
