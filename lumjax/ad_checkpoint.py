"""jax.ad_checkpoint's names: checkpoint, checkpoint_name, checkpoint_policies."""

from __future__ import annotations

import functools

from lumjax import checkpoints
from lumjax.control.checkpoint import checkpoint as recomputed
from lumjax.control.policies import Policy, checkpoint_name, checkpoint_policies

__all__ = ["Policy", "checkpoint", "checkpoint_name", "checkpoint_policies", "remat"]


class _Checkpoint:
    """Two things go by this name: recomputing in the backward pass, as JAX has it, and files of
    arrays that a program continues from.
    """

    __call__ = staticmethod(recomputed)
    save = staticmethod(checkpoints.save)
    load = staticmethod(checkpoints.load)
    metadata = staticmethod(checkpoints.metadata)

    def __init__(self) -> None:
        functools.update_wrapper(self, recomputed)


checkpoint = _Checkpoint()
remat = checkpoint
