"""jax.extend: names for code that works on traced programs."""

from __future__ import annotations

from lumjax.extend import core as core
