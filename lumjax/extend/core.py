"""jax.extend.core's names, which are those of `lumjax.core`."""

from __future__ import annotations

from lumjax.core import ClosedJaxpr as ClosedJaxpr
from lumjax.core import Jaxpr as Jaxpr
from lumjax.core import JaxprEqn as JaxprEqn
from lumjax.core import Literal as Literal
from lumjax.core import Primitive as Primitive
from lumjax.core import Var as Var
