"""A traced program together with the values that it closed over."""

from __future__ import annotations

from html import escape

from lumjax.record import record
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Eqn, Jaxpr, Value
from lumjax.trace.show import show


@record(eq=False)
class ClosedJaxpr:
    """A program and the values that it closed over, which are its first inputs."""

    jaxpr: Jaxpr
    consts: tuple[Value, ...]

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        """The arguments' avals."""
        return self.jaxpr.in_avals[self.jaxpr.consts :]

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        """The results' avals."""
        return self.jaxpr.out_avals

    @property
    def eqns(self) -> tuple[Eqn, ...]:
        """The operations in order."""
        return self.jaxpr.eqns

    def __str__(self) -> str:
        return show(self.jaxpr)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The program with the user's line of each operation, for a notebook."""
        return f"<pre>{escape(show(self.jaxpr, source=True))}</pre>"
