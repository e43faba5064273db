"""Read programs out of an e-graph: one node per class; costs count shared classes once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, assert_never

from lumjax.egraph.cost import Machine
from lumjax.egraph.scalar import Operations
from lumjax.egraph.terms import Classes, Known, Leaf, Node, Operation, Reducing
from lumjax.egraph.weigh import Choice, Weigher
from lumjax.kernel.rewrite import followed, rebuild
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
from lumjax.record import record
from lumjax.trace.dim import symbols

_PASSES = 12  # over all classes; costs settle in a few
_LARGE = 4000  # classes above which the closure of each is not kept
_VISITS = 200_000  # classes that flips of one extraction may look at in all
_SWEEPS = 4  # over all classes of a program, each flipped where that is cheaper
_WAITING = 1.0  # seconds that a waiting reduction is worth where all sums are to be streamed

Terms: TypeAlias = "tuple[Term, ...]"


@record
class Best:
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
        self.usable = [
            tuple(n for n in nodes if self._free(n) <= classes.free[c])
            for c, nodes in enumerate(classes.nodes)
        ]
        self.weigher = Weigher(classes, axes, operations, machine)
        self.best: dict[int, Best] = self._settle(self.weigher)
        self._left = _VISITS

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

    # ---- the cheapest node of every class

    def _settle(self, weigher: Weigher) -> dict[int, Best]:
        best: dict[int, Best] = {}
        nodes: dict[int, Node] = {}
        changed = set(range(len(self.classes.nodes)))
        for _ in range(_PASSES if len(self.classes.nodes) <= _LARGE else 0):
            before, changed = changed, set[int]()
            for c in range(len(self.classes.nodes)):
                for node in self.usable[c]:
                    stale = c in before and c not in best
                    stale = stale or any(a in changed or a in before for a in node.args)
                    if stale and self._improve(c, node, best, nodes, weigher):
                        changed.add(c)
            if not changed:
                break
        return best

    def _improve(
        self,
        c: int,
        node: Node,
        best: dict[int, Best],
        nodes: dict[int, Node],
        weigher: Weigher,
    ) -> bool:
        """Take the node for its class if that is cheaper than what is known."""
        if any(a not in best for a in node.args):
            return False
        product = weigher.product(node, nodes)
        args = node.args if product is None else (*product.args, *node.args[1:])
        closure = frozenset(args).union(*(best[a].closure for a in args))
        if c in closure:
            return False
        own = weigher.own(c, node, product)
        if product is not None:
            own += weigher.store(c, node)
        cost = own + sum(best[k].own for k in sorted(closure))
        old = best.get(c)
        if old is not None and cost >= old.cost * (1 - 1e-9):
            return False
        best[c], nodes[c] = Best(cost, own, node, closure), node
        return True

    # ---- programs

    def programs(self, limit: int) -> list[Terms]:
        """Distinct programs, at most `limit`: the cheapest, the one in which the fewest reductions
        wait, that with sums of sums as one, the traced one with scaled sums, then single flips of
        the first two, those first that change what is reduced.
        """
        found: dict[Terms, None] = {}
        for choice in self.choices():
            terms = self.terms(choice)
            if terms is not None:
                found.setdefault(terms)
            if len(found) >= limit:
                break
        return list(found)

    def choices(self) -> Iterator[Choice]:
        """The nodes of these programs; a choice may have a cycle."""
        self._left = _VISITS
        cheapest = self._climb({c: b.node for c, b in self.best.items()}, self.weigher)
        yield cheapest
        eager = Weigher(self.classes, self.axes, self.operations, self.machine, _WAITING)
        start = {c: b.node for c, b in self._settle(eager).items()}
        streamed = self._climb(start, eager)
        yield streamed
        yield self._merged(streamed)
        scaled = {c: n for c, n in streamed.items() if _is_scaled(n)}
        yield {**streamed, **self.classes.traced, **scaled}
        flips = [*self._flips(cheapest), *self._flips(streamed)]
        for _, _, choice in sorted(flips, key=lambda f: f[:2]):
            yield choice

    def _climb(self, choice: dict[int, Node], weigher: Weigher) -> dict[int, Node]:
        """Flip classes where that makes the whole program cheaper."""
        roots = self.classes.roots
        cost = weigher.cost(roots, choice)
        if cost is None:
            return choice
        for _ in range(_SWEEPS):
            before = cost
            for c, node in self._alternatives(choice, weigher):
                old = choice[c]
                if node == old:
                    continue
                choice[c] = node
                other = weigher.cost(roots, choice)
                if other is not None and other < cost * (1 - 1e-9):
                    cost = other
                else:
                    choice[c] = old
            if cost == before:
                break
        return choice

    def _merged(self, choice: dict[int, Node]) -> dict[int, Node]:
        """The program with every sum of a sum as one: it takes several of them to share a loop."""
        found = dict(choice)
        for c in self.weigher.order(self.classes.roots, choice) or []:
            outer = found[c].shape
            if not isinstance(outer, Reducing):
                continue
            below = found[found[c].args[0]]
            inner = below.shape
            if isinstance(inner, Reducing) and inner.op is outer.op and len(below.args) == 1:
                one = replace(outer, axes=outer.axes | inner.axes)
                node = Node(one, below.args)
                found[c] = node if node in self.usable[c] else found[c]
        return found

    def _alternatives(self, choice: Choice, weigher: Weigher) -> Iterator[tuple[int, Node]]:
        """The nodes that the classes of a program may have instead; ends when time is up."""
        order = weigher.order(self.classes.roots, choice) or []
        for c in reversed(order):
            for node in self.usable[c]:
                if node != choice[c] and all(a in choice for a in node.args):
                    if self._left <= 0:
                        return
                    self._left -= len(order)
                    yield c, node

    def _flips(self, choice: dict[int, Node]) -> Iterator[tuple[bool, float, Choice]]:
        """Programs that differ in one class: whether the same is reduced, the cost, the choice."""
        roots, weigher = self.classes.roots, self.weigher
        reduced = _reduced(choice, weigher.order(roots, choice) or [])
        for c, node in self._alternatives(choice, weigher):
            other: Choice = {**choice, c: node}
            order = weigher.order(roots, other)
            if order is not None:
                cost = weigher.sum(roots, other, order)
                yield _reduced(other, order) == reduced, cost, other

    def terms(self, chosen: Choice | None = None) -> Terms | None:
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
                return Reduction(op, axes, args[0], dtype, *followed(tuple(args)))
            case Known(axes=axes):
                return Running(args[0], axes)
        assert_never(node.shape)


def _reduced(choice: Choice, order: Sequence[int]) -> frozenset[int]:
    """The classes of a program that are reductions."""
    return frozenset(c for c in order if isinstance(choice[c].shape, Reducing))


def _is_scaled(node: Node) -> bool:
    return isinstance(node.shape, Reducing) and node.shape.follows


def _own_names(term: Term) -> frozenset[str]:
    """The names in a leaf's own coordinates."""
    match term:
        case Load(coords=coords, valid=valid, indices=indices):
            return symbols(*coords, valid) - {n for n, _ in indices}
        case Index(expr=expr, indices=indices):
            return symbols(expr) - {n for n, _ in indices}
        case Lit() | Apply() | Reduction() | Running():
            return free_names(term)
