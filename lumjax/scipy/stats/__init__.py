"""Distributions under scipy.stats' names."""

from __future__ import annotations

from lumjax.scipy.stats import norm as norm

__all__ = ["norm"]
