"""jax.dlpack: arrays from other libraries."""

from __future__ import annotations

from lumjax.numpy.files import from_dlpack as from_dlpack

__all__ = ["from_dlpack"]
