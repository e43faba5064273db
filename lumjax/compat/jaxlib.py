"""What `import jaxlib` gives: a version, for code that asks for it."""

from __future__ import annotations

from lumjax.compat.modules import VERSION

__path__: list[str] = []
__version__ = VERSION
