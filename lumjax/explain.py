"""explain(f, *args): what the compiler made of a function, as text and as HTML.

The report itself is made in `lumjax.report`, which is loaded by the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lumjax.compile import Jitted
from lumjax.decorator import jit

if TYPE_CHECKING:
    from lumjax.report import Explanation


def explain(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Compile `fun` for these arguments (not running it) and say what became of it.

    `fun` may already be jitted, with its own settings of the search. Arguments may be arrays or
    ShapeDtypeStructs. The report lists the traced program with its source lines, and for each
    region: the plan as traced and as chosen, kernels with their loop programs and predicted (under
    `jit(profile=True)` also measured) times, rules that fired and those that the plan is owed to,
    the e-graph's growth, what was rejected; then what runs through `eval` and why, and the memory
    held at each step.

    `print` the result, `.save("report.html")` it, `.compare` it with another one.

    >>> import lumjax.numpy as jnp
    >>> report = explain(lambda x: jnp.sum(jnp.sin(x) * x), jnp.ones(8))
    >>> "kernels: 1" in str(report)
    True
    """
    from lumjax.report import Explanation  # noqa: PLC0415 - programs run without it

    jitted: Any = fun if isinstance(fun, Jitted) else jit(fun)
    executable = jitted.program(*args, **kwargs).executable()
    name = getattr(fun, "__name__", repr(fun))
    return Explanation(name, executable.insight(), executable)
