"""Jaxprs of core primitives as JSON and back. What is read is checked, equation by equation.

A program is a list of jaxprs, those that loops and choices carry before the one that carries them:

    {"inputs": [aval ..], "eqns": [[primitive, {name: parameter}, [atom ..], [aval ..]] ..],
     "outputs": [atom ..]}

Variables go by the order of their definition. An aval is [dtype, shape, weak]; an atom is the
number of a variable, or a literal: [dtype, elements in hexadecimal, weak]. A size that is known
only when the program runs is ["symbol", name, least, largest], or [operation, sizes].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.control.branch import cond_p
from lumjax.control.iteration import while_p
from lumjax.control.policies import name_p
from lumjax.control.scanning import Loop, scan_p
from lumjax.grad.forward import stop_gradient_p
from lumjax.ops import PRIMITIVES
from lumjax.ops.conv import ConvDimensionNumbers
from lumjax.ops.fourier import FftType
from lumjax.ops.precision import DotAlgorithmPreset, Precision
from lumjax.ops.windows import GatherDimensionNumbers, ScatterDimensionNumbers
from lumjax.trace import dim as dims
from lumjax.trace.aval import ShapedArray
from lumjax.trace.check import check
from lumjax.trace.core import Atom, Eqn, Jaxpr, Literal, Params, Primitive, Var
from lumjax.trace.dim import Dim, Expr, IndexOp
from lumjax.trace.form import GatherMode

_OTHERS: dict[str, Primitive] = {
    p.name: p for p in (cond_p, name_p, scan_p, stop_gradient_p, while_p)
}
_ENUMS: dict[str, type[Enum]] = {
    e.__name__: e for e in (DotAlgorithmPreset, FftType, GatherMode, Precision)
}
_TUPLES: dict[str, Any] = {
    t.__name__: t for t in (ConvDimensionNumbers, GatherDimensionNumbers, ScatterDimensionNumbers)
}


def encoded(jaxpr: Jaxpr) -> list[Any]:
    """The program; TypeError, which names it, for what has no meaning in another process."""
    writer = _Writer()
    writer.program(jaxpr)
    return writer.programs


def decoded(programs: Sequence[Any]) -> Jaxpr:
    """The program again, type-checked. Raises whatever it comes upon if it is none."""
    found: list[Jaxpr] = []
    for entry in programs:
        found.append(check(_Reader(found).program(entry)))
    return found[-1]


def aval_from(entry: Any) -> ShapedArray:
    """An aval again."""
    dtype, shape, weak = entry
    sizes = tuple(map(dim_from, shape))
    if any((least := dims.bounds(n)[0]) is None or least < 0 for n in sizes):
        raise ValueError("a size that may be negative")
    return ShapedArray(sizes, dt.from_short_name(dtype), bool(weak))


def aval_of(aval: ShapedArray) -> list[Any]:
    """An aval."""
    return [dt.short_name(aval.dtype), list(map(dim_text, aval.shape)), aval.weak]


def dim_text(dim: Dim) -> Any:
    """A size."""
    if isinstance(dim, int):
        return dim
    if dim.op is not IndexOp.SYMBOL:
        return [dim.op.value, *map(dim_text, dim.args)]
    if dim.args:
        raise TypeError(f"the size {dim}, whose bound is a size")
    return [dim.op.value, dim.name, dim.lo, dim.hi]


def dim_from(entry: Any) -> Dim:
    """A size again: made by arithmetic, whatever the entry says of it."""
    if type(entry) is int:
        return entry
    op, *args = entry
    if op != IndexOp.SYMBOL.value:
        return dims.rebuilt(IndexOp(op), [dim_from(a) for a in args])
    name, low, high = args
    if type(name) is not str or type(low) is not int or not (high is None or type(high) is int):
        raise ValueError(f"{entry!r} is no size")
    return dims.symbol(name, low, high)


class _Writer:
    def __init__(self) -> None:
        self.programs: list[Any] = []
        self.numbers: dict[Jaxpr, int] = {}

    def program(self, jaxpr: Jaxpr) -> int:
        """The number of a program; first those that it carries."""
        if jaxpr in self.numbers:
            return self.numbers[jaxpr]
        names: dict[Var, int] = {}

        def defined(variables: Sequence[Var]) -> list[Any]:
            for v in variables:
                names[v] = len(names)
            return [aval_of(v.aval) for v in variables]

        def used(atoms: Sequence[Atom]) -> list[Any]:
            return [_literal(a) if isinstance(a, Literal) else names[a] for a in atoms]

        entry: dict[str, Any] = {"inputs": defined(jaxpr.inputs), "eqns": []}
        for eqn in jaxpr.eqns:
            name, params = self.primitive(eqn.prim), self.params(eqn.params)
            entry["eqns"].append([name, params, used(eqn.inputs), defined(eqn.outputs)])
        entry["outputs"] = used(jaxpr.outputs)
        self.programs.append(entry)
        self.numbers[jaxpr] = number = len(self.programs) - 1
        return number

    def primitive(self, prim: Primitive) -> str:
        if prim is not _OTHERS.get(prim.name) and prim is not PRIMITIVES.get(prim.name):
            raise TypeError(
                f"the primitive {prim.name}, which calls Python or is no primitive of ours"
            )
        return prim.name

    def params(self, params: Params) -> dict[str, Any]:
        return {name: self.param(value) for name, value in params.items()}

    def param(self, value: Any) -> Any:
        match value:
            case Jaxpr():
                return {"program": self.program(value)}
            case Enum():  # before int: some are both
                return {type(value).__name__: value.name}
            case None | bool() | int() | str():
                return value
            case Expr():
                return {"dim": dim_text(value)}
            case float():
                return {"float": value.hex()}
            case np.dtype():
                return {"dtype": dt.short_name(value)}
            case Loop():
                return {"Loop": [dim_text(value.length), value.reverse, value.unroll]}
            case tuple():
                kind = type(value).__name__
                return {kind if kind in _TUPLES else "tuple": list(map(self.param, value))}
            case _:
                raise TypeError(f"a parameter of type {type(value).__name__}")


def _literal(literal: Literal) -> list[Any]:
    if literal.value.ndim:
        raise TypeError("a literal that is no scalar")
    kind = dt.short_name(literal.value.dtype)
    return [kind, literal.value.tobytes().hex(), literal.aval.weak]


class _Reader:
    def __init__(self, programs: Sequence[Jaxpr]) -> None:
        self.programs = programs

    def program(self, entry: Mapping[str, Any]) -> Jaxpr:
        variables: list[Var] = []

        def defined(avals: Sequence[Any]) -> tuple[Var, ...]:
            new = tuple([Var(aval_from(a)) for a in avals])
            variables.extend(new)
            return new

        def used(atoms: Sequence[Any]) -> tuple[Atom, ...]:
            return tuple(
                [variables[_index(a)] if type(a) is int else _literal_from(a) for a in atoms]
            )

        inputs = defined(entry["inputs"])
        eqns: list[Eqn] = []
        for name, params, operands, results in entry["eqns"]:
            prim = _OTHERS[name] if name in _OTHERS else PRIMITIVES[name]
            given = {str(k): self.param(v) for k, v in params.items()}
            atoms = used(operands)
            eqns.append(Eqn(prim, atoms, defined(results), given, None))
        return Jaxpr(inputs, tuple(eqns), used(entry["outputs"]))

    def param(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | str):
            return value
        ((kind, content),) = value.items()
        match kind:
            case "program":
                return self.programs[_index(content)]
            case "float":
                return float.fromhex(content)
            case "dtype":
                return dt.from_short_name(content)
            case "Loop":
                length, reverse, unroll = content
                steps = dim_from(length) if isinstance(length, list) else _index(length)
                return Loop(steps, bool(reverse), _index(unroll))
            case "dim":
                return dim_from(content)
            case "tuple":
                return tuple(map(self.param, content))
            case _ if kind in _ENUMS:
                return _ENUMS[kind][content]
            case _:
                return _TUPLES[kind](*map(self.param, content))


def _index(value: Any) -> int:
    """A number that counts something."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} counts nothing")
    return value


def _literal_from(entry: Any) -> Literal:
    kind, content, weak = entry
    dtype = dt.from_short_name(kind)
    value = np.frombuffer(bytes.fromhex(content), dtype).reshape(())
    return Literal(value, ShapedArray((), dtype, bool(weak)))
