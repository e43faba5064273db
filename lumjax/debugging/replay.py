"""Where does a NaN in a program's results come from? The program is run again, one operation after
the other, and the NaN followed back from the results to where it came up.

What is masked on the way (by `where`, say) is not blamed. Effects are not repeated. Loops and
branches are compiled programs of their own, which find their own NaNs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.debugging.keys import PASSING
from lumjax.debugging.values import Wanted, describe, first_index, non_finite
from lumjax.errors import NonFiniteError
from lumjax.record import record
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Atom, Effect, Eqn, Jaxpr, Literal, Value, Var, sub_jaxprs
from lumjax.trace.form import Expand, Form, Map

NDArray = np.ndarray[Any, Any]
Index: TypeAlias = tuple[int, ...]


@record(eq=False)
class Input:
    """The value is there from the beginning: in input `number`, at `index`."""

    number: int
    index: Index


def complaint(
    jaxpr: Jaxpr, args: Sequence[Value], results: Sequence[Array], looking: Wanted, depth: int
) -> NonFiniteError | None:
    """The error for a program whose results hold a wanted value; None if they do not.

    Inside another program (`depth` > 0) a value that came in is that one's to explain.
    """
    for number, out in enumerate(results):
        where = looking.found(out.data)
        if where is None:
            continue
        run = _Run(
            jaxpr, [_raw(a, v.aval) for a, v in zip(args, jaxpr.inputs, strict=True)], looking
        )
        found = run.blame(jaxpr.outputs[number], where)
        if isinstance(found, NonFiniteError):
            return found
        if depth:
            continue
        return _unexplained(jaxpr, run, out.data, where, number, found, looking)
    return None


def _unexplained(
    jaxpr: Jaxpr, run: _Run, data: NDArray, where: NDArray, number: int, found: Input | None,
    looking: Wanted,
) -> NonFiniteError:  # fmt: skip
    """The error where no operation is to blame: an argument held the value, or only the compiled
    program has it.
    """
    index = first_index(where)
    if found is None:
        got = "no such value when its operations are evaluated one by one"
        fix = "compare both with config.scope(interpret=True); please report the program"
    else:
        value = run.env[jaxpr.inputs[found.number]]
        at = f" at index {found.index}" if value.ndim else ""
        what = "a closed-over array" if found.number < jaxpr.consts else "an argument"
        got = f"it from {what}, {describe(value)}, which holds it{at}"
        fix = "look at where the argument comes from"
    return NonFiniteError(
        operation=f"result {number} of a program, {describe(data)}, at index {index}",
        required=f"no {'NaN' if looking.nans else 'infinity'} ({looking.mode})",
        got=got,
        fix=fix,
    )


def _raw(x: Value, aval: ShapedArray) -> NDArray:
    return x.data if isinstance(x, Array) else np.asarray(x, aval.dtype)


class _Run:
    """A program evaluated operation by operation, every value kept."""

    def __init__(self, jaxpr: Jaxpr, args: Sequence[NDArray], looking: Wanted) -> None:
        self.jaxpr = jaxpr
        self.looking = looking
        self.env: dict[Var, NDArray] = dict(zip(jaxpr.inputs, args, strict=True))
        self.made: dict[Var, Eqn] = {}
        for eqn in jaxpr.eqns:
            outs = self._evaluated(eqn)
            self.env.update(zip(eqn.outputs, outs, strict=True))
            self.made.update((v, eqn) for v in eqn.outputs)

    def read(self, atom: Atom) -> NDArray:
        """A value."""
        return atom.value if isinstance(atom, Literal) else self.env[atom]

    def _evaluated(self, eqn: Eqn) -> list[NDArray]:
        operands = [self.read(a) for a in eqn.inputs]
        if eqn.prim.effect is not Effect.NONE:  # done already; a check passes its operands on
            return operands[: len(eqn.outputs)]
        if (inner := _inlined(eqn)) is not None:
            run = _Run(inner, operands, self.looking)
            return [run.read(a) for a in inner.outputs]
        outs = eqn.prim.eval(*operands, **eqn.params)
        return [o.data if isinstance(o, Array) else np.asarray(o) for o in outs]

    def blame(self, atom: Atom, where: NDArray) -> NonFiniteError | Input | None:
        """The operation at which the value at the first marked place came up, as an error."""
        index = first_index(where)
        while True:
            data = self.read(atom)
            if self.looking.found(data) is None:
                return None  # the compiled program differs
            if not self._wanted(data, index):
                found = self.looking.found(data)
                assert found is not None, "checked above"
                index = first_index(found)
            if isinstance(atom, Literal):
                return None
            eqn = self.made.get(atom)
            if eqn is None:
                return Input(self.jaxpr.inputs.index(atom), index)
            below = self._operand(eqn, index, data.shape)
            if below is None:
                return self._error(eqn, atom, index)
            atom, index = below

    def _wanted(self, x: NDArray, index: Index) -> bool:
        found = self.looking.found(x)
        return found is not None and bool(found[index])

    def _operand(self, eqn: Eqn, index: Index, shape: Index) -> tuple[Atom, Index] | None:
        """The operand that brought the value in, and where; None if it came up here."""
        atoms = eqn.inputs
        if eqn.prim.name == "select":
            which = self.read(atoms[0])
            atoms = (atoms[1] if bool(which[index] if which.ndim else which) else atoms[2],)
        for atom in atoms:
            data = self.read(atom)
            found = self.looking.found(data) if dt.is_inexact(data.dtype) else None
            if found is None or isinstance(atom, Literal):
                continue
            if data.shape == shape and found[index]:
                return atom, index
            if data.shape != shape or not isinstance(_form(eqn), Map):
                return atom, first_index(found)
        return None

    def _error(self, eqn: Eqn, atom: Var, index: Index) -> NonFiniteError | None:
        operands = [self.read(a) for a in eqn.inputs]
        if (inner := _inlined(eqn)) is not None:
            where = self.looking.found(self.env[atom])
            assert where is not None, "the value is there"
            run = _Run(inner, operands, self.looking)
            found = run.blame(inner.outputs[eqn.outputs.index(atom)], where)
            return found if isinstance(found, NonFiniteError) else None
        result = self.env[atom]
        where = np.zeros(result.shape, bool)
        where[index] = True
        return non_finite(eqn.prim.name, operands, result, where, eqn.source, self.looking)


def _inlined(eqn: Eqn) -> Jaxpr | None:
    """The jaxpr whose operations on its operands an equation stands for, if it is a call."""
    inner = eqn.params.get("jaxpr")
    if not isinstance(inner, Jaxpr) or len(inner.inputs) != len(eqn.inputs):
        return None
    return inner if isinstance(_form(eqn), Expand) and "loop" not in eqn.params else None


def _form(eqn: Eqn) -> Form:
    return eqn.prim.form(*(a.aval for a in eqn.inputs), **eqn.params)


def repeatable(jaxpr: Jaxpr) -> bool:
    """Whether a program can be run again: no callback returned a value into it."""
    return not any(
        (e.prim.effect is not Effect.NONE and e.outputs and e.prim not in PASSING)
        or not all(map(repeatable, sub_jaxprs(e.params)))
        for e in jaxpr.eqns
    )
