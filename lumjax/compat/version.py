"""jax.version and jaxlib.version."""

from __future__ import annotations

from lumjax.compat.modules import VERSION

__version__ = VERSION
__version_info__ = tuple(int(part) for part in VERSION.split("."))
