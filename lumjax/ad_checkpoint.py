"""jax.ad_checkpoint's names: checkpoint, checkpoint_name, checkpoint_policies."""

from __future__ import annotations

from lumjax.control.checkpoint import checkpoint
from lumjax.control.policies import Policy, checkpoint_name, checkpoint_policies

__all__ = ["Policy", "checkpoint", "checkpoint_name", "checkpoint_policies", "remat"]

remat = checkpoint
