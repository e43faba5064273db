"""jax._src: modules of JAX's inside that libraries import, where lumjax has the real thing."""

from __future__ import annotations

from lumjax import core as core
from lumjax.compat.internals import dispatch as dispatch
from lumjax.compat.internals import dtypes as dtypes
from lumjax.experimental import checkify as checkify
from lumjax.extend import source_info_util as traceback_util

__all__ = ["checkify", "core", "dispatch", "dtypes", "traceback_util"]
