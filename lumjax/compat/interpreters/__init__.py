"""jax.interpreters: the tables of rules, and partial evaluation."""

from __future__ import annotations

from lumjax.compat.interpreters import ad as ad
from lumjax.compat.interpreters import batching as batching
from lumjax.compat.interpreters import mlir as mlir
from lumjax.compat.interpreters import partial_eval as partial_eval
