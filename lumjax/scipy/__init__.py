"""jax.scipy's names: special, linalg, fft, stats."""

from __future__ import annotations

from lumjax.scipy import fft, linalg, special, stats

__all__ = ["fft", "linalg", "special", "stats"]
