"""jax.interpreters: of it, partial evaluation."""

from __future__ import annotations

from lumjax.compat.interpreters import partial_eval as partial_eval
