"""jax.extend: names for code that works on traced programs."""

from __future__ import annotations

from lumjax.extend import core as core
from lumjax.extend import linear_util as linear_util
from lumjax.extend import source_info_util as source_info_util
