"""Programs with symbolic sizes at given sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Atom, Eqn, Jaxpr, Literal, Value, Var, aval_of
from lumjax.trace.dim import Expr, evaluate
from lumjax.trace.expr import leaves


def concrete(jaxpr: Jaxpr, given: Mapping[str, int]) -> Jaxpr:
    """The program with every size a number."""
    return _Writer(given).program(jaxpr) if given else jaxpr


def concrete_value(value: Any, given: Mapping[str, int]) -> Any:
    """A parameter of an operation with every size a number."""
    return _Writer(given).value(value) if given else value


def open_sizes_of(avals: Sequence[ShapedArray]) -> tuple[Expr, ...]:
    """The symbols in shapes, in the order of their names."""
    found = {s for a in avals for d in a.shape if isinstance(d, Expr) for s in leaves(d)}
    return tuple(sorted(found, key=lambda s: s.key))


def sources_of(avals: Sequence[ShapedArray]) -> dict[str, tuple[int, int]]:
    """For each symbol an argument and an axis of it whose size it is."""
    found: dict[str, tuple[int, int]] = {}
    for k, aval in enumerate(avals):
        for axis, d in enumerate(aval.shape):
            if isinstance(d, Expr) and d.name is not None:
                found.setdefault(d.name, (k, axis))
    return found


def sizes_in(sources: Mapping[str, tuple[int, int]], args: Sequence[Value]) -> dict[str, int]:
    """The sizes that arguments bring along."""
    return {n: int(aval_of(args[k]).shape[axis]) for n, (k, axis) in sources.items()}


def at_sizes(jaxpr: Jaxpr, args: Sequence[Value]) -> Jaxpr:
    """The program at the sizes of its arguments."""
    return concrete(jaxpr, sizes_in(sources_of(jaxpr.in_avals), args))


class _Writer:
    def __init__(self, given: Mapping[str, int]) -> None:
        self.given = given
        self.programs: dict[Jaxpr, Jaxpr] = {}
        self.names: dict[Var, Var] = {}

    def program(self, jaxpr: Jaxpr) -> Jaxpr:
        """A program, once."""
        found = self.programs.get(jaxpr)
        if found is None:
            eqns = [
                Eqn(
                    e.prim,
                    tuple(map(self.atom, e.inputs)),
                    tuple(map(self.var, e.outputs)),
                    {n: self.value(p) for n, p in e.params.items()},
                    e.source,
                )
                for e in jaxpr.eqns
            ]
            inputs, outputs = map(self.var, jaxpr.inputs), map(self.atom, jaxpr.outputs)
            found = Jaxpr(tuple(inputs), tuple(eqns), tuple(outputs), jaxpr.consts)
            self.programs[jaxpr] = found
        return found

    def atom(self, atom: Atom) -> Atom:
        """A variable or a literal."""
        return atom if isinstance(atom, Literal) else self.var(atom)

    def var(self, var: Var) -> Var:
        """A variable of known shape."""
        found = self.names.get(var)
        if found is None:
            found = self.names[var] = Var(self.value(var.aval))
        return found

    def value(self, value: Any) -> Any:
        """Anything that may mention a size."""
        match value:
            case Expr():
                return int(evaluate(value, self.given))
            case Jaxpr():
                return self.program(value)
            case tuple():
                parts = [self.value(v) for v in value]
                if all(a is b for a, b in zip(parts, value, strict=True)):
                    return value
                return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
            case list():
                return [self.value(v) for v in value]
            case Mapping():
                return {n: self.value(v) for n, v in value.items()}
            case _ if is_dataclass(value) and not isinstance(value, type):
                names = [f.name for f in fields(value) if f.init]
                old = [getattr(value, n) for n in names]
                new = [self.value(v) for v in old]
                if all(a is b for a, b in zip(old, new, strict=True)):
                    return value
                return replace(value, **dict(zip(names, new, strict=True)))
            case _:
                return value
