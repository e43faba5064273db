"""What a choice of nodes costs: shared classes count once, products under a sum are never stored.

A contraction's result is stored unless all that use it are sums or maxima over one of its axes
that need not wait: then a loop over that axis computes it tile by tile. A reduction waits if its
body needs another reduction over the same axes to be complete: its operands are then read twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, assert_never

from lumjax.egraph.cost import Machine, extent_of, memory_time
from lumjax.egraph.scalar import Operations
from lumjax.egraph.terms import Classes, Known, Leaf, Node, Operation, Reducing
from lumjax.kernel.term import Axis
from lumjax.trace.form import ReduceOp

Choice: TypeAlias = "Mapping[int, Node]"

_TILE = 64  # points of a loop between two changes of a running statistic


class Weigher:
    """Costs in seconds; `waiting` is added for every reduction that waits."""

    def __init__(
        self,
        classes: Classes,
        axes: Mapping[str, Axis],
        operations: Operations,
        machine: Machine,
        waiting: float = 0.0,
    ) -> None:
        self.classes, self.axes = classes, axes
        self.operations, self.machine, self.waiting = operations, machine, waiting
        self._points: dict[frozenset[str], int] = {}
        # Nodes live as long as the classes: they are known by their identity here.
        self._products: dict[tuple[int, int], Node | None] = {}
        self._owns: dict[tuple[int, int, bool], float] = {}
        self._stores: dict[int, float] = {}
        self._waits: dict[int, bool] = {}

    def points(self, names: frozenset[str]) -> int:
        """The number of points over these axes."""
        if names not in self._points:
            self._points[names] = extent_of(sorted(names), self.axes)
        return self._points[names]

    def product(self, node: Node, choice: Choice) -> Node | None:
        """The product under a contraction, if the node is one."""
        if not isinstance(node.shape, Reducing) or node.shape.op is not ReduceOp.SUM:
            return None
        body = choice.get(node.args[0])
        if body is None:
            return None
        key = id(node), id(body)
        if key not in self._products:
            self._products[key] = self._product(node, node.shape, body)
        return self._products[key]

    def _product(self, node: Node, shape: Reducing, body: Node) -> Node | None:
        if body.shape != Operation("mul", shape.dtype):
            return None
        left, right = (self.classes.free[a] for a in body.args)
        bound = {a.name for a in shape.axes}
        both_sides = (left - right - bound) and (right - left - bound)
        return body if both_sides and (left & right & bound) else None

    def inputs(self, node: Node, choice: Choice) -> tuple[int, ...]:
        """The classes to compute before the node: a contraction never computes its product."""
        product = self.product(node, choice)
        return node.args if product is None else (*product.args, *node.args[1:])

    def waits(self, node: Node) -> bool:
        """Whether the node is a reduction that another one over its axes must precede."""
        if id(node) not in self._waits:
            self._waits[id(node)] = self._must_wait(node)
        return self._waits[id(node)]

    def _must_wait(self, node: Node) -> bool:
        shape = node.shape
        if not isinstance(shape, Reducing) or shape.follows:
            return False
        return not self.classes.bound[node.args[0]].isdisjoint(a.name for a in shape.axes)

    def own(self, c: int, node: Node, product: Node | None) -> float:
        """Seconds that the node itself takes, without storing its result."""
        key = c, id(node), product is None
        if key not in self._owns:
            self._owns[key] = self._own(c, node, product)
        return self._owns[key]

    def _own(self, c: int, node: Node, product: Node | None) -> float:
        shape, machine = node.shape, self.machine
        points = self.points(self.classes.free[c])
        match shape:
            case Leaf():
                return 0.5 * points * machine.operation
            case Operation(name=name):
                return self.operations.by_name[name].flops * points * machine.operation
            case Known():
                return 0.0
            case Reducing(axes=axes, dtype=dtype):
                inner = points * self.points(frozenset(a.name for a in axes))
                if product is None:
                    seconds = inner * machine.operation
                else:
                    seconds = inner * machine.product
                if shape.follows:
                    seconds += inner / _TILE * machine.operation
                if self.waits(node):
                    seconds += self.waiting + self._again(node, product, dtype.itemsize)
                return seconds
        assert_never(shape)

    def _again(self, node: Node, product: Node | None, size: int) -> float:
        """Seconds to read once more what a waiting reduction reduces."""
        assert isinstance(node.shape, Reducing), "only reductions wait"
        names = {a.name for a in node.shape.axes}
        operands = node.args[:1] if product is None else product.args
        late = [a for a in operands if not self.classes.bound[a].isdisjoint(names)]
        read = sum(self.points(self.classes.free[a]) for a in late)
        return memory_time(2 * read * size, self.machine)

    def store(self, c: int, node: Node) -> float:
        """Seconds to store a contraction's result and read it again."""
        if c not in self._stores:
            size = node.shape.dtype.itemsize if isinstance(node.shape, Reducing) else 4
            moved = 2 * self.points(self.classes.free[c]) * size
            self._stores[c] = memory_time(moved, self.machine) + self.machine.launch
        return self._stores[c]

    def order(self, roots: Sequence[int], choice: Choice) -> list[int] | None:
        """The classes that the roots need, children first; None where the choice has a cycle."""
        done: set[int] = set()
        active: set[int] = set()
        listed: list[int] = []
        stack: list[tuple[int, bool]] = [(r, False) for r in reversed(roots)]
        while stack:
            c, ready = stack.pop()
            if ready:
                active.discard(c)
                done.add(c)
                listed.append(c)
            elif c in active:
                return None
            elif c not in done:
                node = choice.get(c)
                if node is None:
                    return None
                active.add(c)
                stack.append((c, True))
                stack += [(a, False) for a in self.inputs(node, choice) if a not in done]
        return listed

    def cost(self, roots: Sequence[int], choice: Choice) -> float | None:
        """Seconds for the roots; None where the choice has a cycle."""
        order = self.order(roots, choice)
        return None if order is None else self.sum(roots, choice, order)

    def sum(self, roots: Sequence[int], choice: Choice, order: Sequence[int]) -> float:
        """Seconds for the classes of a program, children first."""
        kept = set(roots)
        seconds = 0.0
        for c in reversed(order):
            node = choice[c]
            product = self.product(node, choice)
            seconds += self.own(c, node, product)
            if product is not None and c in kept:
                seconds += self.store(c, node)
            inputs = node.args if product is None else (*product.args, *node.args[1:])
            kept.update(a for a in inputs if a not in kept and self._keeps(c, node, a, kept))
        return seconds

    def _keeps(self, c: int, node: Node, argument: int, kept: set[int]) -> bool:
        """Whether this use of an argument asks for its values outside of one loop."""
        match node.shape:
            case Operation():
                return c in kept
            case Reducing(axes=axes):
                tiled = not self.classes.free[argument].isdisjoint(a.name for a in axes)
                return self.waits(node) or not tiled
            case Leaf() | Known():
                return True
        assert_never(node.shape)
