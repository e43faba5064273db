"""jax.extend.core's names, which are those of `lumjax.core`."""

from __future__ import annotations

from typing import Any

from lumjax.core import ClosedJaxpr as ClosedJaxpr
from lumjax.core import Jaxpr as Jaxpr
from lumjax.core import JaxprEqn as JaxprEqn
from lumjax.core import Literal as Literal
from lumjax.core import Var as Var
from lumjax.core import subjaxprs as subjaxprs
from lumjax.extend.primitives import Primitive as Primitive
from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Trace, active_traces, current, eval_jaxpr, sub_jaxprs


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


class Effect:
    """What a primitive of another library does besides computing."""


def find_top_trace(values: Any = None) -> Trace:
    """The transformation that receives operations now.

    >>> find_top_trace() is find_top_trace()
    True
    """
    del values
    return current()


def mapped_aval(size: Any, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """The type of one lane of a value with a mapped axis; of any other value, its own.

    >>> print(mapped_aval(3, 0, ShapedArray((3, 2), np.dtype("f4"))))
    f32[2]
    """
    del size
    if axis is None:
        return aval
    return aval.with_shape(aval.shape[:axis] + aval.shape[axis + 1 :])


def unmapped_aval(size: Any, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """The type of a value with a mapped axis, from that of one lane.

    >>> print(unmapped_aval(3, 0, ShapedArray((2,), np.dtype("f4"))))
    f32[3,2]
    """
    if axis is None:
        return aval
    return aval.with_shape((*aval.shape[:axis], size, *aval.shape[axis:]))


def jaxpr_as_fun(closed: ClosedJaxpr) -> Any:
    """A traced program as a function of its flat arguments.

    >>> closed = lumjax.make_jaxpr(lambda x: x + 1)(1.0)
    >>> [float(x) for x in jaxpr_as_fun(closed)(2.0)]
    [3.0]
    """
    return lambda *args: eval_jaxpr(closed.jaxpr, (*closed.consts, *args))


def jaxprs_in_params(params: Any) -> Any:
    """The programs that an equation's parameters hold.

    >>> list(jaxprs_in_params({"size": 3}))
    []
    """
    return sub_jaxprs(params)
