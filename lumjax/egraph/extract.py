"""Read one program out of an e-graph: one node per class; costs count shared classes once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from lumjax.egraph.cost import Machine, extent_of, memory_time
from lumjax.egraph.scalar import Operations
from lumjax.egraph.terms import Classes, Known, Leaf, Node, Operation, Reducing
from lumjax.kernel.rewrite import rebuild, scale_of
from lumjax.kernel.term import (
    Apply,
    Axis,
    Index,
    Lit,
    Load,
    Reduction,
    Running,
    Term,
    free_names,
)
from lumjax.trace.dim import symbols
from lumjax.trace.form import ReduceOp

_PASSES = 12  # over all classes; costs settle in a few
_LARGE = 4000  # classes above which the closure of each is not kept


@dataclass(frozen=True, slots=True)
class _Choice:
    """The best known way to compute a class."""

    cost: float
    own: float
    node: Node
    closure: frozenset[int]


class Extraction:
    """Costs of classes, and terms built from the cheapest nodes."""

    def __init__(
        self,
        classes: Classes,
        axes: Mapping[str, Axis],
        operations: Operations,
        machine: Machine,
    ) -> None:
        self.classes, self.axes = classes, axes
        self.operations, self.machine = operations, machine
        self.best: dict[int, _Choice] = {}
        self.usable = [
            tuple(n for n in nodes if self._free(n) <= classes.free[c])
            for c, nodes in enumerate(classes.nodes)
        ]
        self._settle()

    def _free(self, node: Node) -> frozenset[str]:
        """The axes that a node mentions, by the facts of its arguments."""
        below = frozenset[str]().union(*(self.classes.free[a] for a in node.args))
        match node.shape:
            case Leaf(term=term):
                return _own_names(term) | below
            case Operation():
                return below
            case Reducing(axes=axes):
                return below - {a.name for a in axes}
            case Known(axes=axes):
                return below | {a.name for a in axes}
        assert_never(node.shape)

    def _settle(self) -> None:
        if len(self.classes.nodes) > _LARGE:
            return
        for _ in range(_PASSES):
            changed = False
            for c in range(len(self.classes.nodes)):
                changed |= self._improve(c)
            if not changed:
                return

    def _improve(self, c: int) -> bool:
        changed = False
        for node in self.usable[c]:
            args = self._inputs(node)
            if any(a not in self.best for a in (*node.args, *args)):
                continue
            closure = frozenset(args).union(*(self.best[a].closure for a in args))
            if c in closure:
                continue
            own = self._own(c, node)
            cost = own + sum(self.best[k].own for k in sorted(closure))
            old = self.best.get(c)
            if old is None or cost < old.cost * (1 - 1e-9):
                self.best[c] = _Choice(cost, own, node, closure)
                changed = True
        return changed

    def _product(self, node: Node) -> Node | None:
        """The product under a contraction, if the node is one."""
        if not isinstance(node.shape, Reducing) or node.shape.op is not ReduceOp.SUM:
            return None
        body = self.best.get(node.args[0])
        if body is None or body.node.shape != Operation("mul", node.shape.dtype):
            return None
        left, right = (self.classes.free[a] for a in body.node.args)
        bound = {a.name for a in node.shape.axes}
        both_sides = (left - right - bound) and (right - left - bound)
        return body.node if both_sides and (left & right & bound) else None

    def _inputs(self, node: Node) -> tuple[int, ...]:
        """The classes to compute before the node: a contraction never computes its product."""
        product = self._product(node)
        return node.args if product is None else product.args

    def _own(self, c: int, node: Node) -> float:
        """Seconds that the node itself takes."""
        free = self.classes.free[c]
        points = extent_of(sorted(free), self.axes)
        machine = self.machine
        match node.shape:
            case Leaf():
                return 0.5 * points / machine.scalar_flops
            case Operation(name=name):
                return self.operations.by_name[name].flops * points / machine.scalar_flops
            case Reducing(axes=axes, dtype=dtype):
                inner = points * extent_of(sorted(a.name for a in axes), self.axes)
                if self._product(node) is None:
                    return inner / machine.scalar_flops
                store = memory_time(2 * points * dtype.itemsize, machine)
                return 2.0 * inner / machine.contraction_flops + store + machine.launch
            case Known():
                return 0.0
        assert_never(node.shape)

    def terms(self, chosen: Mapping[int, Node] | None = None) -> tuple[Term, ...] | None:
        """The roots' terms, by the cheapest nodes or, where given, by those chosen for a class.

        None where that choice has a cycle.
        """
        chosen = chosen or {}
        done: dict[int, Term] = {}
        active: set[int] = set()
        stack: list[tuple[int, bool]] = [(r, False) for r in reversed(self.classes.roots)]
        while stack:
            c, ready = stack.pop()
            if c in done:
                continue
            choice = self.best.get(c)
            if choice is None:
                return None
            node = chosen.get(c, choice.node)
            if ready:
                done[c] = self._build(node, [done[a] for a in node.args])
                active.discard(c)
            elif c in active:
                return None
            else:
                active.add(c)
                stack.append((c, True))
                stack.extend((a, False) for a in node.args if a not in done)
        return tuple(done[r] for r in self.classes.roots)

    def _build(self, node: Node, args: Sequence[Term]) -> Term:
        match node.shape:
            case Leaf(term=term):
                return rebuild(term, tuple(args), {})
            case Operation(name=name, dtype=dtype):
                return Apply(self.operations.by_name[name], tuple(args), dtype)
            case Reducing(op=op, axes=axes, dtype=dtype):
                return Reduction(op, axes, args[0], dtype, scale_of(tuple(args)))
            case Known(axes=axes):
                return Running(args[0], axes)
        assert_never(node.shape)


def _own_names(term: Term) -> frozenset[str]:
    """The names in a leaf's own coordinates."""
    match term:
        case Load(coords=coords, valid=valid, indices=indices):
            return symbols(*coords, valid) - {n for n, _ in indices}
        case Index(expr=expr, indices=indices):
            return symbols(expr) - {n for n, _ in indices}
        case Lit() | Apply() | Reduction() | Running():
            return free_names(term)
