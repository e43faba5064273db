"""jax.experimental's names for what is ordinary here, and its single-device stubs."""

from __future__ import annotations

from lumjax.config import enable_x64 as enable_x64
from lumjax.control.debug import io_callback as io_callback
from lumjax.experimental import checkify as checkify
from lumjax.experimental import layout as layout
from lumjax.experimental import mesh_utils as mesh_utils
from lumjax.experimental import multihost_utils as multihost_utils
from lumjax.experimental import pjit as pjit
from lumjax.experimental import shard_map as shard_map
