"""Steps of random programs: what they are, how they are written as Python, how they are drawn.

Values are numbered: a program's inputs first, then what its steps give. A function inside a step
(the body of a loop, a branch) numbers its parameters from the first number that is free where the
step stands, and may use every value before it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.record import record
from lumjax.testing.values import to_numpy
from lumjax.trace.core import aval_of

Group: TypeAlias = Literal["each", "all", "carry"]

LIMIT = 50.0  # larger values are left out: their rounding would drown the comparison
ELEMENTS = 600
DEPTH = 2  # of functions within functions


class Chooser(Protocol):
    """A source of decisions."""

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]; low is the simplest."""
        ...


@record
class Body:
    """A function inside a step: steps on its parameters and the values before them."""

    arity: int
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]


@record
class Node:
    """One step: `name` of the vocabulary applied to earlier values, with static parameters and
    functions; it gives `results` values.
    """

    name: str
    args: tuple[int, ...]
    params: tuple[Any, ...] = ()
    bodies: tuple[Body, ...] = ()
    results: int = 1


@record
class Word:
    """An operation. `text` is Python with {0}, {1}, ... for operands, {p} for parameters, {f} for
    functions; `pick(builder)` chooses what a Node holds, or gives None if nothing fits. `takes` and
    `gives` say how parameters and results of its functions are grouped in tuples.
    """

    text: str
    pick: Callable[[Builder], tuple[Any, ...] | None]
    takes: Group = "each"
    gives: Group = "all"
    exact: bool = False  # another implementation computes it bit for bit
    reverse: bool = True  # it has a derivative in reverse mode


@cache
def library(name: str) -> dict[str, Any]:
    """What programs call, from a package with JAX's names."""
    module = importlib.import_module(name)
    return {"jax": module, "jnp": module.numpy, "lax": module.lax, "np": np}


# ---- writing


def _groups(names: Sequence[str], how: Group) -> list[list[str]]:
    if how == "each":
        return [[n] for n in names]
    if how == "all":
        return [list(names)]
    return [list(names[:-1]), list(names[-1:])]


def _grouped(names: Sequence[str], how: Group) -> str:
    parts = [", ".join(g) for g in _groups(names, how)]
    if len(parts) == 1:
        return parts[0]
    alone = [len(g) == 1 for g in _groups(names, how)]
    return ", ".join(p if one else f"({p})" for p, one in zip(parts, alone, strict=True))


def define(name: str, body: Body, first: int, word: Word, words: Mapping[str, Word]) -> list[str]:
    """A function inside a step as lines of Python."""
    given, unpacked = list[str](), list[str]()
    for group in _groups([f"v{first + j}" for j in range(body.arity)], word.takes):
        if len(group) == 1:
            given.append(group[0])
        else:
            given.append("carry")
            unpacked.append(f"{', '.join(group)} = carry")
    lines = [*unpacked, *write(body.nodes, first + body.arity, words)]
    lines.append(f"return {_grouped([f'v{k}' for k in body.outputs], word.gives)}")
    return [f"def {name}({', '.join(given)}):", *(f"    {line}" for line in lines)]


def write(nodes: Sequence[Node], first: int, words: Mapping[str, Word]) -> list[str]:
    """Steps as lines of Python; `first` is the number of the first one's value."""
    lines: list[str] = []
    for node in nodes:
        word = words[node.name]
        names = [f"v{a}" for a in node.args]
        functions = [f"f{first}_{k}" for k in range(len(node.bodies))]
        for name, body in zip(functions, node.bodies, strict=True):
            lines += define(name, body, first, word, words)
        value = word.text.format(
            *names, p=node.params, f=functions, fs=", ".join(functions), rest=", ".join(names[1:])
        )
        target = _grouped([f"v{first + j}" for j in range(node.results)], word.gives)
        lines.append(f"{target} = {value}")
        first += node.results
    return lines


def run(lines: Sequence[str], names: dict[str, Any], place: str = "<program>") -> None:
    """Execute lines of Python in a dictionary of names."""
    exec(compile("\n".join(lines), place, "exec"), names)


# ---- drawing


def moderate(value: Any) -> bool:
    """Whether a value is small, in number and size, so that rounding is what it seems."""
    data = to_numpy(value)
    if data.size > ELEMENTS:
        return False
    return not (data.size and data.dtype.kind == "f" and np.abs(data).max() > LIMIT)


@dataclass(slots=True)
class Builder:
    """A program, or a function inside one, under construction."""

    choose: Chooser
    words: Mapping[str, Word]
    names: Sequence[str]  # the words that are drawn from
    values: list[Any] = field(default_factory=list[Any])  # float64 or exact, as they are computed
    exact: list[bool] = field(default_factory=list[bool])
    nodes: list[Node] = field(default_factory=list[Node])
    depth: int = 0
    reverse: bool = True  # only words that have a derivative in reverse mode

    def one_of(self, items: Sequence[Any]) -> Any:
        """One of the items; the last is the simplest, being the newest."""
        return items[len(items) - 1 - self.choose.integer(0, len(items) - 1)]

    def which(self, test: Callable[[int], bool]) -> int | None:
        """One of the values that pass the test."""
        fitting = [k for k in range(len(self.values)) if test(k)]
        return self.one_of(fitting) if fitting else None

    def shape(self, k: int) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(aval_of(self.values[k]).shape)  # type: ignore[arg-type]

    def dtype(self, k: int) -> dt.DType:
        """The dtype of a value."""
        return aval_of(self.values[k]).dtype

    def floating(self, k: int) -> bool:
        """Whether a value is a float."""
        return dt.is_floating(self.dtype(k))

    def integral(self, k: int) -> bool:
        """Whether a value is an integer."""
        return dt.is_integer(self.dtype(k))

    def extend(self) -> None:
        """Add a step, if the word that is drawn fits and its values stay moderate."""
        name = self.names[self.choose.integer(0, len(self.names) - 1)]
        word = self.words[name]
        picked = word.pick(self) if word.reverse or not self.reverse else None
        if picked is not None:
            self.add(Node(name, *picked))

    def add(self, node: Node) -> bool:
        """Add a step if its values are moderate; whether it was."""
        first = len(self.values)
        names = library("lumjax") | {f"v{k}": v for k, v in enumerate(self.values)}
        run(write([node], first, self.words), names)
        made = [names[f"v{first + j}"] for j in range(node.results)]
        if not all(map(moderate, made)):
            return False
        self.nodes.append(node)
        self.values += made
        exact = self.words[node.name].exact and all(self.exact[k] for k in node.args)
        self.exact += [exact] * node.results
        return True

    def body(
        self,
        given: Sequence[tuple[Any, bool]],
        wants: Sequence[Any],
        *,
        bounded: int = 0,
        reverse: bool | None = None,
    ) -> Body | None:
        """A function that takes values like `given` (with: is it exact) and gives ones of the avals
        `wants`; the first `bounded` of them between -1 and 1. None wants any float.
        """
        inner = Builder(
            self.choose, self.words, self.names,
            [*self.values, *(v for v, _ in given)], [*self.exact, *(e for _, e in given)],
            [], self.depth + 1, self.reverse if reverse is None else reverse,
        )  # fmt: skip
        for _ in range(self.choose.integer(1, 3)):
            inner.extend()
        outputs = [inner.output(len(self.values), w, k < bounded) for k, w in enumerate(wants)]
        if None in outputs:
            return None
        return Body(len(given), tuple(inner.nodes), tuple(k for k in outputs if k is not None))

    def output(self, start: int, want: Any, bounded: bool) -> int | None:
        """A value of an aval, one from `start` on if there is one."""

        def fits(k: int) -> bool:
            a = aval_of(self.values[k])
            same = want is not None and (a.shape, a.dtype) == (want.shape, want.dtype)
            return same or (want is None and self.floating(k))

        made = [k for k in range(start, len(self.values)) if fits(k)]
        if made:  # mostly the newest, which depends on most
            found = made[-1 - self.choose.integer(0, 1) * (len(made) > 1)]
        else:
            source = self.which(
                lambda k: self.floating(k) and (want is None or self.dtype(k) == want.dtype)
            )
            if source is None:
                return None
            shape = self.shape(source) if want is None else tuple(want.shape)
            found = len(self.values)
            if not self.add(Node("fit", (source,), (shape,))):
                return None
        if bounded:
            return len(self.values) - 1 if self.add(Node("tanh", (found,))) else None
        return found
