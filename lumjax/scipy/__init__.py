"""jax.scipy's names: special, linalg, fft, signal, stats, ndimage, sparse."""

from __future__ import annotations

from lumjax.scipy import fft, linalg, ndimage, signal, sparse, special, stats

__all__ = ["fft", "linalg", "ndimage", "signal", "sparse", "special", "stats"]
