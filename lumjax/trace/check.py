"""Type-check a jaxpr: variables are defined once, before use; equations are as their rules say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lumjax.errors import CheckError, LumjaxError
from lumjax.trace import show
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Atom, Eqn, Jaxpr, Literal, Var, sub_jaxprs
from lumjax.trace.dim import same_shape


def check(jaxpr: Jaxpr) -> Jaxpr:
    """Return `jaxpr` if it is well formed, nested jaxprs included; raise CheckError otherwise."""
    if not 0 <= jaxpr.consts <= len(jaxpr.inputs):
        raise _error(jaxpr, None, "0 to len(inputs) hoisted constants", f"{jaxpr.consts}")
    defined: set[Var] = set()
    _define(jaxpr, None, jaxpr.inputs, defined)
    for eqn in jaxpr.eqns:
        _check_eqn(jaxpr, eqn, defined)
    for atom in jaxpr.outputs:
        _check_atom(jaxpr, None, atom, defined)
    return jaxpr


def _define(jaxpr: Jaxpr, eqn: Eqn | None, variables: Sequence[Var], defined: set[Var]) -> None:
    for v in variables:
        if v in defined:
            raise _error(jaxpr, eqn, "each variable defined once", "one defined again")
        defined.add(v)


def _check_atom(jaxpr: Jaxpr, eqn: Eqn | None, atom: Atom, defined: set[Var]) -> None:
    if isinstance(atom, Literal):
        found = ShapedArray(np.shape(atom.value), atom.value.dtype, atom.aval.weak)
        if atom.aval.ndim or not same_aval(found, atom.aval):
            raise _error(jaxpr, eqn, f"a scalar literal of aval {atom.aval}", f"{found}")
    elif atom not in defined:
        raise _error(jaxpr, eqn, "variables defined before use", f"an unknown one of {atom.aval}")


def _check_eqn(jaxpr: Jaxpr, eqn: Eqn, defined: set[Var]) -> None:
    for atom in eqn.inputs:
        _check_atom(jaxpr, eqn, atom, defined)
    try:
        expected = eqn.prim.aval(*[a.aval for a in eqn.inputs], **eqn.params)
    except (LumjaxError, TypeError, ValueError, AssertionError) as error:
        raise _error(jaxpr, eqn, "operands that its rule accepts", f"the error: {error}") from error
    found = [v.aval for v in eqn.outputs]
    if len(expected) != len(found) or not all(map(same_aval, expected, found)):
        wanted = ", ".join(map(show.aval, expected))
        raise _error(jaxpr, eqn, f"outputs ({wanted})", f"({', '.join(map(show.aval, found))})")
    _define(jaxpr, eqn, eqn.outputs, defined)
    for nested in sub_jaxprs(eqn.params):
        if nested.consts:
            raise _error(jaxpr, eqn, "closed-over values as operands", "a jaxpr with constants")
        check(nested)


def same_aval(a: ShapedArray, b: ShapedArray) -> bool:
    """Whether two avals agree in shape (by normal form), dtype and weakness; never raises."""
    return a.weak == b.weak and a.dtype == b.dtype and same_shape(a.shape, b.shape)


def _error(jaxpr: Jaxpr, eqn: Eqn | None, required: str, got: str) -> CheckError:
    where = "the jaxpr" if eqn is None else f"'{eqn.prim.name}'"
    line = "" if eqn is None else f", in equation\n    {show.equation(jaxpr, eqn)}\n  of"
    return CheckError(
        operation=f"check of {where}",
        required=required,
        got=f"{got}{line}\n{show.show(jaxpr)}\n",
        fix="repair the transformation that built it",
        source=eqn.source if eqn else None,
    )
