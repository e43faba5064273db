"""jax.scipy's names: `lumjax.scipy.special`."""

from __future__ import annotations

from lumjax.scipy import special

__all__ = ["special"]
