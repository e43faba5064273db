"""jax.core's public names: what a traced program is made of."""

from __future__ import annotations

from lumjax.api import ClosedJaxpr as ClosedJaxpr
from lumjax.trace.aval import ShapedArray as ShapedArray
from lumjax.trace.core import Atom as Atom
from lumjax.trace.core import Eqn as JaxprEqn
from lumjax.trace.core import Jaxpr as Jaxpr
from lumjax.trace.core import Literal as Literal
from lumjax.trace.core import Primitive as Primitive
from lumjax.trace.core import Trace as Trace
from lumjax.trace.core import Tracer as Tracer
from lumjax.trace.core import Var as Var
from lumjax.trace.core import eval_jaxpr as eval_jaxpr
from lumjax.trace.core import sub_jaxprs as subjaxprs

__all__ = [
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
