"""jax.scipy.sparse's names: linalg."""

from __future__ import annotations

from lumjax.scipy.sparse import linalg as linalg

__all__ = ["linalg"]
