"""A text of a traced program: equal texts are programs that compile to the same.

Names, source lines and derivative rules are left out; they change nothing that runs. A program that
holds what only this process knows (functions of the user's, primitives of another package) has no
text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lumjax.control.branch import cond_p
from lumjax.control.call import call_p
from lumjax.control.checkpoint import checkpoint_p
from lumjax.control.custom_rules import custom_jvp_p, custom_vjp_p
from lumjax.control.iteration import while_p
from lumjax.control.policies import name_p
from lumjax.control.scanning import scan_p
from lumjax.dtype import short_name
from lumjax.grad.forward import stop_gradient_p
from lumjax.kernel.digest import stable_text
from lumjax.ops import PRIMITIVES
from lumjax.ops.barrier import barrier_p
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Atom, Eqn, Jaxpr, Literal, Params, Primitive, Var, sub_jaxprs

FORMAT = 1  # of the texts
# Calls are inlined: nothing but the program they carry counts.
_CALLS = frozenset({call_p, checkpoint_p, custom_jvp_p, custom_vjp_p})
_OTHERS = frozenset({cond_p, name_p, scan_p, stop_gradient_p, while_p})


def text_of(jaxpr: Jaxpr) -> str | None:
    """The program's text; None if it has none."""
    writer = _Writer()
    try:
        writer.program(jaxpr)
    except TypeError:
        return None
    return "\n".join([f"program {FORMAT}", *writer.lines])


def operations(jaxpr: Jaxpr) -> Iterator[Eqn]:
    """The equations of a program and of those it carries, in one order for equal texts."""
    seen = {jaxpr: None}
    waiting = [jaxpr]
    while waiting:
        for eqn in waiting.pop().eqns:
            yield eqn
            for carried in sub_jaxprs(eqn.params):
                if carried not in seen:
                    seen[carried] = None
                    waiting.append(carried)


class _Writer:
    """Programs that others carry are written before them, once each."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.programs: dict[Jaxpr, int] = {}
        self.avals: dict[ShapedArray, str] = {}
        self.barriers: dict[Any, int] = {}
        self.known: dict[Primitive, bool] = {}

    def program(self, jaxpr: Jaxpr) -> int:
        """The number of a program."""
        number = self.programs.get(jaxpr)
        if number is not None:
            return number
        names: dict[Atom, str] = {}

        def defined(variables: Sequence[Var]) -> str:
            for v in variables:
                names[v] = str(len(names))
            return ",".join([self.aval(v.aval) for v in variables])

        def used(atoms: Sequence[Atom]) -> str:
            return " ".join([_literal(a) if isinstance(a, Literal) else names[a] for a in atoms])

        lines = [f"inputs {jaxpr.consts} {defined(jaxpr.inputs)}"]
        for eqn in jaxpr.eqns:
            operands = used(eqn.inputs)
            lines.append(f"{defined(eqn.outputs)}={self.operation(eqn)} {operands}")
        lines.append(f"outputs {used(jaxpr.outputs)}")
        self.lines += lines
        self.programs[jaxpr] = number = len(self.programs)
        return number

    def aval(self, aval: ShapedArray) -> str:
        """An aval, weakness and all."""
        text = self.avals.get(aval)
        if text is None:
            weak = "~" if aval.weak else ""
            text = f"{weak}{short_name(aval.dtype)}{stable_text(aval.shape)}"
            self.avals[aval] = text
        return text

    def operation(self, eqn: Eqn) -> str:
        """What an equation does; raises TypeError for what only this process knows."""
        prim, params = eqn.prim, eqn.params
        if prim not in self.known:
            self.known[prim] = (
                prim in _CALLS or prim in _OTHERS or PRIMITIVES.get(prim.name) is prim
            )
        if not self.known[prim]:
            raise TypeError(f"no text for the primitive {prim.name}")
        if not params:
            return prim.name
        if prim in _CALLS:
            return f"{prim.name} {self.value(params['jaxpr'])}"
        if prim is barrier_p:  # which are the same counts, not what they are called
            return f"{prim.name} {self.barriers.setdefault(params['id'], len(self.barriers))}"
        return f"{prim.name} {self.params(params)}"

    def params(self, params: Params) -> str:
        """Parameters, by name."""
        return ",".join([f"{name}:{self.value(params[name])}" for name in sorted(params)])

    def value(self, value: Any) -> str:
        """A parameter."""
        if type(value) is Jaxpr:
            return f"program{self.program(value)}"
        if type(value) is tuple:
            return f"({','.join([self.value(v) for v in value])})"
        if type(value) is int:
            return str(value)
        return stable_text(value)


def _literal(atom: Literal) -> str:
    weak = "~" if atom.aval.weak else ""
    return f"{weak}{short_name(atom.aval.dtype)}:{atom.value.tobytes().hex()}"
