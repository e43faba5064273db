"""Smaller programs from a program: what `minify` tries. None need be valid: it tries them.

Steps are edited in a scope, a program's or that of a function inside it. Numbers of values are
positions, so that an edit renumbers what comes later, functions inside included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.record import record
from lumjax.testing.programs import Program
from lumjax.testing.steps import Body, Node
from lumjax.testing.values import to_raw


@record
class Scope:
    """Steps, the number of the first one's value, and the values returned."""

    nodes: tuple[Node, ...]
    first: int
    outputs: tuple[int, ...]

    def starts(self) -> list[int]:
        """The number of each step's first value."""
        out, at = list[int](), self.first
        for node in self.nodes:
            out.append(at)
            at += node.results
        return out


def _renumbered(node: Node, number: Callable[[int], int]) -> Node:
    bodies = tuple(
        Body(
            b.arity,
            tuple(_renumbered(n, number) for n in b.nodes),
            tuple(map(number, b.outputs)),
        )
        for b in node.bodies
    )
    return replace(node, args=tuple(map(number, node.args)), bodies=bodies)


def _put(scope: Scope, index: int, new: Sequence[Node], results: Sequence[int]) -> Scope:
    """`new` steps in the place of one, whose results are now the values `results`."""
    at, old = scope.starts()[index], scope.nodes[index].results
    shift = sum(n.results for n in new) - old

    def number(k: int) -> int:
        return k if k < at else results[k - at] if k < at + old else k + shift

    later = (_renumbered(n, number) for n in scope.nodes[index + 1 :])
    nodes = (*scope.nodes[:index], *new, *later)
    return Scope(nodes, scope.first, tuple(map(number, scope.outputs)))


def _inlined(scope: Scope, index: int, body: Body) -> Iterator[Scope]:
    """A step's function called in its place, once, on operands in one order or the other."""
    node, at = scope.nodes[index], scope.starts()[index]
    if len(body.outputs) != node.results or not node.args:
        return
    padded = (node.args[0],) * body.arity + node.args
    last = padded[len(padded) - body.arity :]
    for given in dict.fromkeys((last, last[::-1])):

        def number(k: int, given: tuple[int, ...] = given) -> int:
            return k if k < at else given[k - at] if k < at + body.arity else k - body.arity

        new = [_renumbered(n, number) for n in body.nodes]
        yield _put(scope, index, new, [number(k) for k in body.outputs])


def used(nodes: Sequence[Node], outputs: Sequence[int]) -> set[int]:
    """The numbers that are mentioned, in functions too."""
    found = set(outputs)
    for node in nodes:
        found.update(node.args)
        for body in node.bodies:
            found |= used(body.nodes, body.outputs)
    return found


def without_dead(scope: Scope) -> Scope:
    """The same results by the steps that they need."""
    for index in reversed(range(len(scope.nodes))):
        at, node = scope.starts()[index], scope.nodes[index]
        bodies = tuple(_live_body(b, at) for b in node.bodies)
        scope = replace(scope, nodes=_with(scope.nodes, index, replace(node, bodies=bodies)))
        results = range(at, at + node.results)
        if used(scope.nodes[index + 1 :], scope.outputs).isdisjoint(results):
            scope = _put(scope, index, (), results)
    return scope


def _with(nodes: tuple[Node, ...], index: int, node: Node) -> tuple[Node, ...]:
    return (*nodes[:index], node, *nodes[index + 1 :])


def _live_body(body: Body, at: int) -> Body:
    scope = without_dead(Scope(body.nodes, at + body.arity, body.outputs))
    return Body(body.arity, scope.nodes, scope.outputs)


def _smaller_body(body: Body, at: int) -> Iterator[Body]:
    first = at + body.arity
    for scope in smaller_scopes(Scope(body.nodes, first, body.outputs)):
        yield Body(body.arity, scope.nodes, scope.outputs)
    for k, old in enumerate(body.outputs):
        for other in range(at, first):
            if old != other:
                outputs = (*body.outputs[:k], other, *body.outputs[k + 1 :])
                yield _live_body(Body(body.arity, body.nodes, outputs), at)


def smaller_scopes(scope: Scope) -> Iterator[Scope]:
    """With a step less, or a step's functions smaller."""
    for index, at in reversed(list(enumerate(scope.starts()))):
        node = scope.nodes[index]
        for operand in dict.fromkeys(node.args):
            yield without_dead(_put(scope, index, (), [operand] * node.results))
        for k, body in enumerate(node.bodies):
            yield from map(without_dead, _inlined(scope, index, body))
            if len(node.bodies) > 1:
                fewer = replace(node, bodies=(*node.bodies[:k], *node.bodies[k + 1 :]))
                yield replace(scope, nodes=_with(scope.nodes, index, fewer))
            for small in _smaller_body(body, at):
                bodies = (*node.bodies[:k], small, *node.bodies[k + 1 :])
                changed = replace(node, bodies=bodies)
                yield replace(scope, nodes=_with(scope.nodes, index, changed))


# ---- whole programs


def cleaned(program: Program) -> Program:
    """Without steps and inputs that no output needs."""
    scope = without_dead(Scope(program.nodes, len(program.inputs), program.outputs))
    program = Program(program.inputs, scope.nodes, scope.outputs)
    for k in reversed(range(len(program.inputs))):
        if k not in used(program.nodes, program.outputs) and len(program.inputs) > 1:
            program = _shifted(program, k, (*program.inputs[:k], *program.inputs[k + 1 :]))
    return program


def _shifted(program: Program, at: int, inputs: tuple[Any, ...]) -> Program:
    """With other inputs: numbers from `at` on move by as many as there are more."""
    by = len(inputs) - len(program.inputs)
    number: Callable[[int], int] = lambda k: k if k < at else k + by  # noqa: E731
    nodes = tuple(_renumbered(n, number) for n in program.nodes)
    return Program(inputs, nodes, tuple(map(number, program.outputs)))


def _cut(program: Program, index: int, values: Sequence[Any]) -> Program:
    """With what a step gives as inputs."""
    at = Scope(program.nodes, len(program.inputs), program.outputs).starts()[index]
    results = program.nodes[index].results
    count = len(program.inputs)
    made = _shifted(program, count, (*program.inputs, *values[at : at + results]))
    scope = Scope(made.nodes, len(made.inputs), made.outputs)
    scope = _put(scope, index, (), range(count, count + results))
    return cleaned(Program(made.inputs, scope.nodes, scope.outputs))


def all_values(program: Program) -> list[np.ndarray[Any, Any]]:
    """What its inputs are and every step gives."""
    total = len(program.inputs) + sum(n.results for n in program.nodes)
    everything = Program(program.inputs, program.nodes, tuple(range(total)))
    return [np.asarray(to_raw(v)) for v in everything.fn(*everything.args)]


def smaller_programs(program: Program) -> Iterator[Program]:
    """Candidates, those that leave out most first."""
    if len(program.outputs) > 1:
        for k in program.outputs:
            yield cleaned(replace(program, outputs=(k,)))
    try:
        values = all_values(program)
    except Exception:  # the fault is in running it
        values = None
    if values is not None:
        for index in reversed(range(len(program.nodes))):
            yield _cut(program, index, values)
    for scope in smaller_scopes(Scope(program.nodes, len(program.inputs), program.outputs)):
        yield cleaned(Program(program.inputs, scope.nodes, scope.outputs))
    if len(program.outputs) == 1:
        for k in range(program.outputs[0]):
            yield cleaned(replace(program, outputs=(k,)))
    yield from _smaller_shapes(program)
    yield from _simpler_values(program)


def _smaller_shapes(program: Program) -> Iterator[Program]:
    sizes = sorted({n for x in program.inputs for n in x.shape}, reverse=True)
    for old in sizes:
        for new in sorted({k for k in (1, 2, old // 2, old - 1) if 0 < k < old}):
            inputs = tuple(
                x[tuple(slice(new if n == old else n) for n in x.shape)] for x in program.inputs
            )
            yield replace(program, inputs=inputs)
            nodes = tuple(_resized(n, old, new) for n in program.nodes)
            yield Program(inputs, nodes, program.outputs)
    for keep in ([True] * len(program.inputs), *np.eye(len(program.inputs), dtype=bool)):
        for at in (0, -1):
            yield replace(
                program,
                inputs=tuple(
                    np.take(x, 0, at) if k and x.ndim and x.size else x
                    for x, k in zip(program.inputs, keep, strict=True)
                ),
            )


def _resized(node: Node, old: int, new: int) -> Node:
    def changed(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(changed, x))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return new if type(x) is int and x == old else x

    bodies = tuple(
        replace(b, nodes=tuple(_resized(n, old, new) for n in b.nodes)) for b in node.bodies
    )
    return replace(node, params=tuple(map(changed, node.params)), bodies=bodies)


def _simpler_values(program: Program) -> Iterator[Program]:
    for k, x in enumerate(program.inputs):
        for simple in (np.zeros_like(x), np.ones_like(x), _rounded(x), _tenths(x)):
            if not np.array_equal(x, simple):
                yield replace(
                    program, inputs=(*program.inputs[:k], simple, *program.inputs[k + 1 :])
                )
    if any(x.dtype in (dt.float16, dt.bfloat16) for x in program.inputs):
        half = (dt.float16, dt.bfloat16)
        inputs = [x.astype(np.float32) if x.dtype in half else x for x in program.inputs]
        yield replace(program, inputs=tuple(inputs))


def _rounded(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.round(x.astype(np.float64)).astype(x.dtype) if dt.is_floating(x.dtype) else x


def _tenths(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.round(x.astype(np.float64), 1).astype(x.dtype) if dt.is_floating(x.dtype) else x
