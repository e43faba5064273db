"""jax.stages: the types of what `jit(f)`, `.trace()`, `.lower()` and `.compile()` give."""

from __future__ import annotations

from typing import Any

from lumjax.compile import Jitted as Wrapped
from lumjax.lowered import ArgInfo as ArgInfo
from lumjax.lowered import Compiled as Compiled
from lumjax.lowered import Lowered as Lowered
from lumjax.lowered import Traced as Traced

CompilerOptions = dict[str, Any]

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]
