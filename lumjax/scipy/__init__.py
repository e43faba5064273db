"""jax.scipy's names: special, linalg, fft, signal, stats."""

from __future__ import annotations

from lumjax.scipy import fft, linalg, signal, special, stats

__all__ = ["fft", "linalg", "signal", "special", "stats"]
