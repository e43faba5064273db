"""jax.scipy's names: special, linalg, stats."""

from __future__ import annotations

from lumjax.scipy import linalg, special, stats

__all__ = ["linalg", "special", "stats"]
