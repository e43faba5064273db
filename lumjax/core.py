"""jax.core's public names: what a traced program is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lumjax import dtype as dt
from lumjax.api import ClosedJaxpr as ClosedJaxpr
from lumjax.trace import aval as _aval
from lumjax.trace.core import Atom as Atom
from lumjax.trace.core import Eqn as JaxprEqn
from lumjax.trace.core import Jaxpr as Jaxpr
from lumjax.trace.core import Literal as Literal
from lumjax.trace.core import Primitive as Primitive
from lumjax.trace.core import Trace as Trace
from lumjax.trace.core import Tracer as Tracer
from lumjax.trace.core import Var as Var
from lumjax.trace.core import eval_jaxpr as _evaluate
from lumjax.trace.core import sub_jaxprs as subjaxprs


class _Abstract(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _aval.ShapedArray)

    def __call__(
        cls, shape: Sequence[Any], dtype: Any, weak_type: bool = False, **_: Any
    ) -> _aval.ShapedArray:
        return _aval.ShapedArray(tuple(shape), dt.canonicalize(dtype), weak_type)


class ShapedArray(metaclass=_Abstract):
    """What a traced value is known to be, by JAX's arguments; how it is sharded says nothing here.

    >>> print(ShapedArray((2, 3), "float32", weak_type=False))
    f32[2,3]
    """


AbstractValue = ShapedArray


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any) -> list[Any]:
    """The results of a traced program on its closed-over values and its arguments.

    >>> import lumjax
    >>> closed = lumjax.make_jaxpr(lambda x: x + 1)(1.0)
    >>> [float(x) for x in eval_jaxpr(closed.jaxpr, closed.consts, 2.0)]
    [3.0]
    """
    return _evaluate(jaxpr, (*consts, *args))


__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Var",
    "eval_jaxpr",
    "subjaxprs",
]
