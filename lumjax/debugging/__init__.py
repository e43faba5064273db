"""The debug modes: what they look for, outside of jit and inside of compiled programs.

What looks at every operation outside of jit is loaded when a mode is first switched on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lumjax.config import config
from lumjax.lazy import later

if TYPE_CHECKING:
    from lumjax.debugging import watch as watch

__getattr__, __dir__ = later(globals(), ("watch",), {})

config.set_watch(lambda on: __getattr__("watch").switch(on))
