"""jax.extend.core's names, which are those of `lumjax.core`."""

from __future__ import annotations

from typing import Any

from lumjax.core import ClosedJaxpr as ClosedJaxpr
from lumjax.core import Jaxpr as Jaxpr
from lumjax.core import JaxprEqn as JaxprEqn
from lumjax.core import Literal as Literal
from lumjax.core import Primitive as Primitive
from lumjax.core import Var as Var
from lumjax.record import record
from lumjax.trace.core import Trace, active_traces


@record
class OpaqueTraceState:
    """Which transformations are under way: equal for two moments in the same ones."""

    traces: tuple[Trace, ...]


def get_opaque_trace_state(convention: Any = None) -> OpaqueTraceState:
    """The transformations that are under way.

    >>> get_opaque_trace_state() == get_opaque_trace_state()
    True
    """
    del convention
    return OpaqueTraceState(tuple(active_traces()))
