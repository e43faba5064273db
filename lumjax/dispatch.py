"""What native code does of a call: a compiled program's call as a plan (`lumjax.cpu.caller`).

A plan follows one call that Python did: its arguments' containers, keys and static values. The next
call with such arguments takes it; other calls take Python's way, and may get plans of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from lumjax import tree
from lumjax.cpu import caller
from lumjax.cpu.caller import Fresh, Input, Node, Output, Plan
from lumjax.cpu.runtime import Program as Kernels
from lumjax.cpu.words import DICT, FRESH, INPUT, LEAF, LIST, LITERAL, MAKE, SAME, TUPLE
from lumjax.dtype import DType, is_key, key
from lumjax.runner import Result, Runner, Segment
from lumjax.trace.array import Array
from lumjax.trace.core import Jaxpr

_LEAVES = (Array, np.ndarray, float, int, bool)
# Types whose values are static arguments that stay what they are: the same object, the same value.
_LASTING = (str, int, bool, float, bytes, type(None), type, FunctionType, BuiltinFunctionType)


_DEEPEST = 100  # levels of a tree: native code recurs into it


class _OtherError(Exception):
    """Something that native code leaves to Python."""


def native(
    executable: Any, consts: Sequence[Any], out_tree: Any, trees: Sequence[Node],
    donated: Sequence[int] = (),
) -> Callable[..., Any] | None:  # fmt: skip
    """The builtin that runs a program on arguments of these trees, whose leaves are numbered from
    0; None if there is none. The leaves `donated` are deleted.
    """
    runner = getattr(executable, "runner", None)
    if not executable.plain or type(runner) is not Runner or not caller.usable():
        return None
    try:
        plan = _plan(executable.traced, runner, consts, out_tree, trees, donated)
    except _OtherError:
        return None
    return caller.make(plan)


def _plan(
    jaxpr: Jaxpr, runner: Runner, consts: Sequence[Any], out_tree: Any, trees: Sequence[Node],
    donated: Sequence[int],
) -> Plan:  # fmt: skip
    recipe = runner.recipe
    if any(type(x) not in (Array, np.ndarray) for x in consts):
        raise _OtherError
    first = len(recipe.consts)  # of the program's inputs
    leaves = first + len(consts)  # and of the arguments' leaves
    index = {s.number: k for k, s in enumerate(recipe.inputs)}
    returned = {index[r.value] for r in recipe.outputs if type(r.value) is int and r.value in index}
    segment = _segment(runner)
    inputs: list[Input] = []
    for k, slot in enumerate(recipe.inputs):
        aval = jaxpr.in_avals[k - first] if k >= first else runner.consts[k].aval
        given = k - leaves in donated
        scalar = k >= leaves and segment is not None and k not in returned and not given
        inputs.append(Input(aval, slot.place, scalar, slot.number in recipe.owned, given))
    types = [x.aval.dtype for x in inputs]
    made = _Made(index, types, {leaves + k for k in donated}, segment)
    outputs = tuple([made.output(r) for r in recipe.outputs])
    kernels = runner.programs[0] if segment is not None and runner.programs else None
    assert kernels is None or type(kernels) is Kernels, "a Runner's own"
    return Plan(
        trees=tuple([_shifted(n, leaves) for n in trees]),
        inputs=tuple(inputs),
        consts=(*runner.consts, *consts),
        table=runner.table,
        fresh=tuple(made.fresh),
        outputs=outputs,
        result=_result(out_tree, iter(range(len(outputs)))),
        steps=(0, 0) if kernels is None else kernels.steps,
        launch=None if kernels is None or kernels.simple else kernels.start,
        arena=recipe.arena,
        arena_bytes=recipe.arena_bytes if segment is not None else 0,
        whole=runner.run_on if segment is None else None,
        donated=tuple([leaves + k for k in donated]),
        keep=runner,
    )


_NOTHING = Segment((), (), (), ())


def _segment(runner: Runner) -> Segment | None:
    """The kernels of a program that is nothing else."""
    parts = runner.recipe.parts
    if not parts:
        return _NOTHING
    return parts[0] if len(parts) == 1 and isinstance(parts[0], Segment) else None


class _Made:
    """What results are."""

    def __init__(
        self,
        inputs: dict[int, int],
        types: Sequence[DType],
        again: set[int],
        segment: Segment | None,
    ) -> None:
        self.fresh: list[Fresh] = []
        self._inputs, self._types, self._again, self._segment = inputs, types, again, segment
        self._numbers: dict[int, int] = {}
        self._keyed: dict[int, bool] = {}
        if segment is not None:
            self._numbers = {s.number: k for k, s in enumerate(segment.fresh)}
            self.fresh = [Fresh(s.shape, s.dtype, s.place) for s in segment.fresh]

    def output(self, result: Result) -> Output:
        """Where a result comes from. What Python runs gives them in order."""
        value = result.value
        if not isinstance(value, int):
            return Output(LITERAL, value, result.weak)
        if self._segment is None:
            self.fresh.append(Fresh((), np.dtype(np.uint8), -1))
        if value in self._inputs:
            k = self._inputs[value]
            if is_key(self._types[k]) != result.keyed:  # keys as their words, or words as keys
                raise _OtherError
            return Output(INPUT, k, result.weak, k in self._again or result.keyed)
        number = len(self.fresh) - 1 if self._segment is None else self._numbers.get(value)
        if number is None or self._keyed.setdefault(value, result.keyed) != result.keyed:
            raise _OtherError
        if result.keyed and self._segment is not None:  # made as keys, written as their words
            words = self._segment.fresh[number]
            self.fresh[number] = Fresh(words.shape[:-1], key, words.place)
        return Output(FRESH, number, result.weak)


# ---- trees


def of_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any],
    fixed: Sequence[int | str],
) -> tuple[Node, Node] | None:  # fmt: skip
    """A call's arguments as trees of these leaves. Those that are `fixed` are static."""
    seen = _Seen()
    try:
        places = [seen.static(x) if k in fixed else seen.node(x) for k, x in enumerate(args)]
        named = {k: seen.static(kwargs[k]) for k in kwargs if k in fixed}
        named |= {k: seen.node(kwargs[k]) for k in sorted(kwargs) if k not in fixed}
    except _OtherError:
        return None
    if len(seen.leaves) != len(leaves):
        return None
    if any(a is not b for a, b in zip(seen.leaves, leaves, strict=True)):
        return None
    keys = tuple(kwargs)
    return Node(TUPLE, tuple, tuple(places)), Node(
        DICT, dict, tuple([named[k] for k in keys]), keys
    )


def of_leaves(count: int) -> Node:
    """A list of leaves."""
    return Node(LIST, list, tuple([Node(LEAF, k) for k in range(count)]))


class _Seen:
    """Leaves in the order in which flattening gives them."""

    def __init__(self) -> None:
        self.leaves: list[Any] = []

    def node(self, x: Any, level: int = 1) -> Node:
        """A tree of exact dicts, lists, tuples and named tuples."""
        kind, below = type(x), level + 1
        if x is None:
            return Node(SAME, None)
        if kind in _LEAVES:
            self.leaves.append(x)
            return Node(LEAF, len(self.leaves) - 1)
        if level > _DEEPEST:
            raise _OtherError
        if kind is dict:
            made = {k: self.node(x[k], below) for k in sorted(x)}
            return Node(DICT, dict, tuple([made[k] for k in x]), tuple(x))
        if kind is list:
            return Node(LIST, list, tuple([self.node(c, below) for c in x]))
        if kind is tuple or (isinstance(x, tuple) and tree.is_named(kind)):
            return Node(TUPLE, kind, tuple([self.node(c, below) for c in x]))
        raise _OtherError

    def static(self, x: Any) -> Node:
        """A value that is compared by its identity."""
        if type(x) in _LASTING or type(x).__hash__ is object.__hash__:
            return Node(SAME, x)
        raise _OtherError


def _shifted(node: Node, by: int) -> Node:
    """The tree with its leaves numbered from `by` on."""
    if node.kind == LEAF:
        return Node(LEAF, node.of + by)
    return Node(node.kind, node.of, tuple([_shifted(c, by) for c in node.children]), node.keys)


def _named(kind: Any, parts: list[Any]) -> Any:
    return kind(*parts)


def _result(spec: Any, numbers: Iterator[int], level: int = 1) -> Node:
    """What unflattening makes."""
    below = level + 1
    if spec.is_leaf():
        return Node(LEAF, next(numbers))
    if spec.type is type(None):
        return Node(SAME, None)
    if spec.type in (tuple, list) and level <= _DEEPEST:
        kind = TUPLE if spec.type is tuple else LIST
        return Node(kind, spec.type, tuple([_result(c, numbers, below) for c in spec.children()]))
    if spec.type is dict and level <= _DEEPEST:
        parts = zip(spec.entries(), spec.children(), strict=True)
        made = {k: _result(c, numbers, below) for k, c in parts}
        keys = tree.keys_of(spec)
        return Node(DICT, dict, tuple([made[k] for k in keys]), keys)
    if tree.is_named(spec.type) and level <= _DEEPEST:
        parts = tuple([_result(c, numbers, below) for c in spec.children()])
        return Node(MAKE, partial(_named, spec.type), parts)
    leaves = tuple([Node(LEAF, next(numbers)) for _ in range(spec.num_leaves)])
    return Node(MAKE, spec.unflatten, leaves)
