"""jax.interpreters.partial_eval: running what depends on known inputs alone, tracing the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lumjax.extend.linear_util import WrappedFun
from lumjax.grad.forward import as_output
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Atom, Jaxpr, Var, aval_of, eval_jaxpr
from lumjax.trace.stage import stage


class PartialVal(tuple[Any, Any]):
    """(None, a value), or (an aval, None) for a value that is not known yet."""

    def __new__(cls, pair: tuple[Any, Any]) -> PartialVal:
        """From the pair."""
        return super().__new__(cls, pair)

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        """A value."""
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: ShapedArray) -> PartialVal:
        """A value of which only the type is known."""
        return cls((aval, None))

    def is_known(self) -> bool:
        """Whether there is a value."""
        return self[0] is None

    def get_known(self) -> Any:
        """The value, or None."""
        return self[1] if self.is_known() else None

    def get_aval(self) -> ShapedArray:
        """The type of the value."""
        return aval_of(self[1]) if self.is_known() else self[0]


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool = False
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """(program, results, constants) of a function of flat values.

    A result that depends on no unknown input is known. The program takes the constants and the
    unknown inputs to the other results; with `instantiate`, to all of them.
    """
    unknown = [p.get_aval() for p in pvals if not p.is_known()]

    def flat(*values: Any) -> list[Any]:
        given = iter(values)
        outs = fun.call_wrapped(*[p[1] if p.is_known() else next(given) for p in pvals])
        return [as_output(x) for x in outs]

    staged = stage(flat, unknown)
    whole, consts = staged.jaxpr, list(staged.consts)
    reached: set[Var] = set(whole.inputs[whole.consts :])

    def depends(atom: Atom) -> bool:
        return isinstance(atom, Var) and atom in reached

    eqns = [e for e in whole.eqns if not any(map(depends, e.inputs)) or reached.update(e.outputs)]
    kept = [k for k, atom in enumerate(whole.outputs) if instantiate or depends(atom)]
    ready = [k for k in range(len(whole.outputs)) if k not in kept]
    first = Jaxpr(
        whole.inputs[: whole.consts],
        tuple(eqns),
        tuple(whole.outputs[k] for k in ready),
        whole.consts,
    )
    values = dict(zip(ready, eval_jaxpr(first, consts), strict=True))
    outs = [
        PartialVal.known(values[k]) if k in values else PartialVal.unknown(atom.aval)
        for k, atom in enumerate(whole.outputs)
    ]
    later = Jaxpr(whole.inputs, whole.eqns, tuple(whole.outputs[k] for k in kept), whole.consts)
    return later, outs, consts
