"""The e-graph: the one module that touches egglog's bindings, loaded on first use.

A graph is warm: rules are compiled once, each region is inserted as one rule between push and pop.
An e-graph belongs to the thread that made it (egglog insists), so every thread that searches has
its own. egglog has no limit of its own, so iterations run one at a time with size and time checks,
and constants are folded between them with NumPy in their own dtype. Results are read back into
`Classes`; extraction is ours.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.egraph.plan import clock
from lumjax.egraph.rules import Rule, compile_rule
from lumjax.egraph.rules.facts import commands, literal_facts
from lumjax.egraph.scalar import Operations, convert, literal
from lumjax.kernel.evaluate import bound_axes
from lumjax.kernel.evaluate import literal as value_of
from lumjax.kernel.term import (
    Apply,
    Axis,
    Index,
    Lit,
    Load,
    Reduction,
    Running,
    Term,
    children,
    free_names,
    subterms,
)
from lumjax.record import record
from lumjax.trace.dim import same
from lumjax.trace.form import ReduceOp

FOLD = "fold-constants"
_ROUNDS = 1000  # of facts, which follow from each other along a term: an end, whatever rules do
_STEPS = {"stream": 4}  # conclusions follow from each other, term by term


@record
class Node:
    """One way to compute a class: a term whose subterms are the classes `args`."""

    shape: Leaf | Operation | Reducing | Known
    args: tuple[int, ...]


@record
class Leaf:
    """A literal, load or index value; its index terms are the node's arguments."""

    term: Term


@record
class Operation:
    """A scalar operation, by its name in the region."""

    name: str
    dtype: dt.DType


@record
class Reducing:
    """A reduction; the arguments of a scaled sum are its body, statistic and factor, those of one
    that moves its body, statistic, slope and bend.
    """

    op: ReduceOp
    axes: frozenset[Axis]
    dtype: dt.DType
    scaled: bool = False
    moved: bool = False

    @property
    def follows(self) -> bool:
        """Whether it may be accumulated before its statistic is known."""
        return self.scaled or self.moved


@record
class Known:
    """What a loop over the axes knows of a statistic so far."""

    axes: frozenset[Axis]


@record
class Classes:
    """An e-graph read back. Classes are numbers; `free` are the axes a value really depends on,
    `bound` those that something in it is always reduced over, `traced` has the nodes as inserted.
    """

    nodes: tuple[tuple[Node, ...], ...]
    free: tuple[frozenset[str], ...]
    roots: tuple[int, ...]
    axes: dict[str, Axis]
    bound: tuple[frozenset[str], ...] = ()
    traced: Mapping[int, Node] = field(default_factory=dict[int, Node])


@dataclass(slots=True)
class Saturation:
    """What happened while rules ran."""

    fired: dict[str, int] = field(default_factory=dict[str, int])
    seconds: dict[str, float] = field(default_factory=dict[str, float])  # of each ruleset
    nodes: int = 0
    saturated: bool = False
    truncated: bool = False
    sizes: list[int] = field(default_factory=list[int])  # e-nodes at first, after each iteration


class FactError(RuntimeError):
    """A class lacks a fact, or two members of a class disagree on one: a rule is wrong."""


_Row: TypeAlias = "tuple[str, list[Any], Any]"


@cache
def _bindings() -> Any:
    """The extension module of egglog alone: importing its Python package takes most of a second,
    and nothing of that is used here.
    """
    name = "egglog.bindings"
    package = None if "egglog" in sys.modules else find_spec("egglog")
    places = None if package is None else package.submodule_search_locations
    found = None if places is None else PathFinder.find_spec(name, list(places))
    if found is None or found.loader is None or name in sys.modules:
        return import_module(name)
    module = module_from_spec(found)
    found.loader.exec_module(module)
    sys.modules.pop(name, None)  # who imports the package loads the same module, in its place
    return module


class Graph:
    """A warm e-graph holding compiled rules."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.bindings = _bindings()
        self.egraph: Any = self.bindings.EGraph()
        self.busy = False
        self.rulesets = tuple(dict.fromkeys(r.ruleset for r in rules))
        self.run(commands() + "\n".join(map(compile_rule, rules)))

    def run(self, program: str) -> list[Any]:
        """Run a program in egglog's text form."""
        return self.egraph.run_program(*self.egraph.parse_program(program))

    @contextmanager
    def session(self, ops: Operations) -> Generator[Session, None, None]:
        """The e-graph with nothing but the rules in it; sessions of one graph do not nest."""
        if self.busy:
            raise RuntimeError("an e-graph serves one session at a time")
        self.busy = True
        self.run("(push)")
        try:
            yield Session(self, ops)
        finally:
            self.run("(pop)")
            self.busy = False


class _Warm(threading.local):
    def __init__(self) -> None:
        self.graphs: dict[tuple[Rule, ...], Graph] = {}


_warm = _Warm()


def warm_graph(rules: tuple[Rule, ...]) -> Graph:
    """The calling thread's e-graph for these rules."""
    if rules not in _warm.graphs:
        _warm.graphs[rules] = Graph(rules)
    return _warm.graphs[rules]


class Session:
    """One region in the e-graph."""

    def __init__(self, graph: Graph, ops: Operations) -> None:
        self.graph, self.ops = graph, ops
        self.leaves: list[Term] = []
        self.literals: list[Lit] = []
        self.axes: list[Axis] = []
        self.inserted: list[Term] = []
        self._literal_ids: dict[Lit, int] = {}
        self._axis_ids: dict[str, int] = {}
        self._folded = 0

    # ---- writing

    def insert(self, roots: Sequence[Term]) -> None:
        """Put the terms in, as one rule that runs once."""
        b = self.graph.bindings
        span = b.RustSpan("lumjax", 0, 0)
        actions: list[Any] = []
        number: dict[Term, int] = {}
        for root in roots:
            for term in subterms(root):
                if term not in number:
                    number[term] = len(number)
                    self._insert(span, actions, term, number)
        for k, root in enumerate(roots):
            actions.append(b.Set(span, "node", [self._int(span, k)], self._ref(span, number[root])))
        actions += self._reduction_facts(span, list(number))
        self.inserted = list(number)
        self.graph.egraph.run_program(
            b.RuleCommand(b.Rule(span, actions, [], "insert-region", "insert"))
        )
        self.graph.run("(run insert 1)")

    def _int(self, span: Any, value: int) -> Any:
        return self.graph.bindings.Lit(span, self.graph.bindings.Int(value))

    def _ref(self, span: Any, number: int) -> Any:
        return self.graph.bindings.Var(span, f"n{number}")

    def _set(self, span: Any, names: Sequence[str]) -> Any:
        call = self.graph.bindings.Call
        ids = [self._int(span, self._axis_ids[n]) for n in sorted(names) if n in self._axis_ids]
        return call(span, "set-of", ids) if ids else call(span, "set-empty", [])

    def _insert(self, span: Any, actions: list[Any], term: Term, number: dict[Term, int]) -> None:
        b = self.graph.bindings
        kids = [self._ref(span, number[c]) for c in children(term)]
        me = self._ref(span, number[term])
        self._register_axes(term)
        call = self._call(span, term, kids)
        actions.append(b.Let(span, f"n{number[term]}", call))
        if isinstance(term, (Load, Index, Lit)) or len(kids) > 3:
            actions.append(b.Set(span, "free", [me], self._set(span, tuple(free_names(term)))))
            dtype = self._int(span, dtype_number(term.dtype))
            actions.append(b.Set(span, "dtype", [me], dtype))
            within = [a.name for c in children(term) for a in bound_axes(c)]
            actions.append(b.Set(span, "bound", [me], self._set(span, within)))
        if isinstance(term, Lit):
            facts = literal_facts(term)
            actions.extend(b.Expr_(span, b.Call(span, fact, [me])) for fact in facts)

    def _call(self, span: Any, term: Term, kids: list[Any]) -> Any:
        b = self.graph.bindings
        match term:
            case Lit():
                return b.Call(span, "Const", [self._int(span, self._literal(term))])
            case Load() | Index():
                self.leaves.append(term)
                me = self._int(span, len(self.leaves) - 1)
                if not kids:
                    return b.Call(span, "Leaf", [me])
                return b.Call(span, "Index", [me, b.Call(span, "vec-of", kids)])
            case Apply(op=op):
                name = b.Lit(span, b.String(self.ops.names[op]))
                dtype = self._int(span, dtype_number(term.dtype))
                if 1 <= len(kids) <= 3:
                    return b.Call(span, f"Ap{len(kids)}", [name, dtype, *kids])
                return b.Call(span, "ApN", [name, dtype, b.Call(span, "vec-of", kids)])
            case Reduction(op=op, axes=axes):
                dtype = self._int(span, dtype_number(term.dtype))
                bound = self._set(span, [a.name for a in axes])
                if len(kids) > 1:
                    name = "Scaled" if term.scale is not None else "Moved"
                    return b.Call(span, name, [dtype, bound, *kids])
                return b.Call(span, "Red", [b.Lit(span, b.String(op.value)), dtype, bound, *kids])
            case Running(axes=axes):
                return b.Call(span, "Run", [*kids, self._set(span, [a.name for a in axes])])

    def _register_axes(self, term: Term) -> None:
        """Number the axes: those that reductions bind with their extents, others by name."""
        if isinstance(term, (Reduction, Running)):
            for axis in sorted(term.axes, key=lambda a: a.name):
                self._axis(axis)
        for name in sorted(free_names(term)):
            self._axis(Axis(name, 0))

    def _axis(self, axis: Axis) -> int:
        if axis.name not in self._axis_ids:
            self._axis_ids[axis.name] = len(self.axes)
            self.axes.append(axis)
        elif not same(axis.extent, 0):
            self.axes[self._axis_ids[axis.name]] = axis
        return self._axis_ids[axis.name]

    def _literal(self, lit: Lit) -> int:
        if lit not in self._literal_ids:
            self._literal_ids[lit] = len(self.literals)
            self.literals.append(lit)
        return self._literal_ids[lit]

    def _reduction_facts(self, span: Any, terms: Sequence[Term]) -> list[Any]:
        """Literals that rules introduce: extents of reduced axes, 0, 1 and logarithms."""
        b = self.graph.bindings
        actions: list[Any] = []
        dtypes = {t.dtype: None for t in terms if t.dtype in dt.NUMERIC}
        summed = {(a, t.dtype) for t in terms if isinstance(t, Reduction) for a in t.axes}
        wanted: list[tuple[str, list[int], Lit]] = []
        for axis, dtype in sorted(summed, key=lambda p: (p[0].name, dtype_number(p[1]))):
            actions.append(b.Expr_(span, b.Call(span, "axis", [self._int(span, self._axis(axis))])))
            if isinstance(axis.extent, int):
                key = [self._axis(axis), dtype_number(dtype)]
                lit = literal(axis.extent, dtype)
                if not dt.is_floating(dtype) or float(value_of(lit)) == axis.extent:
                    wanted.append(("extent", key, lit))
        for dtype in dtypes:
            key = [dtype_number(dtype)]
            wanted += [("zero_of", key, literal(0, dtype)), ("one_of", key, literal(1, dtype))]
            if dt.is_floating(dtype):
                wanted.append(("log2_e", key, literal(1.4426950408889634, dtype)))
                wanted.append(("ln_2", key, literal(0.6931471805599453, dtype)))
                wanted.append(("lowest", key, literal(float("-inf"), dtype)))
        for k, (name, key, lit) in enumerate(wanted):
            actions += self._literal_actions(span, f"l{k}", lit)
            me = b.Var(span, f"l{k}")
            actions.append(b.Set(span, name, [self._int(span, i) for i in key], me))
        return actions

    def _literal_actions(self, span: Any, name: str, lit: Lit) -> list[Any]:
        b = self.graph.bindings
        me = b.Var(span, name)
        const = b.Call(span, "Const", [self._int(span, self._literal(lit))])
        return [
            b.Let(span, name, const),
            b.Set(span, "free", [me], b.Call(span, "set-empty", [])),
            b.Set(span, "dtype", [me], self._int(span, dtype_number(lit.dtype))),
            *(b.Expr_(span, b.Call(span, fact, [me])) for fact in literal_facts(lit)),
        ]

    # ---- running

    def saturate(self, iterations: int, terms: int, deadline: float) -> Saturation:
        """Run the rules until nothing changes or a bound is met."""
        done = Saturation(sizes=[self.size()])
        for _ in range(iterations):
            self._facts(done)
            changed = self.fold(done)
            for ruleset in self.graph.rulesets:
                for _ in range(_STEPS.get(ruleset, 1)):
                    again = self._step(ruleset, f"(run {ruleset} 1)", done)
                    if not again:
                        break
                    changed = True
                    self._facts(done)
            done.nodes = self.size()
            done.sizes.append(done.nodes)
            done.saturated = not changed
            done.truncated = clock() > deadline
            if done.saturated or done.truncated or done.nodes > terms:
                break
        self._facts(done)
        return done

    def _facts(self, done: Saturation) -> None:
        self._step("facts", f"(run facts {_ROUNDS})", done)

    def _step(self, ruleset: str, program: str, done: Saturation) -> bool:
        """Run rules, note what fired and how long it took; whether anything changed."""
        started = time.perf_counter()
        try:
            (output,) = self.graph.run(program)
        except self.graph.bindings.EggSmolError as error:
            raise FactError(f"a rewrite contradicts a fact: {error}") from error
        spent = time.perf_counter() - started
        done.seconds[ruleset] = done.seconds.get(ruleset, 0.0) + spent
        if ruleset != "facts":
            for instance, matches in output.report.num_matches_per_rule.items():
                name = instance.partition("/")[0]
                done.fired[name] = done.fired.get(name, 0) + matches
        return bool(output.report.updated)

    def size(self) -> int:
        """The number of e-nodes."""
        sizes = dict(self.graph.run("(print-size)")[0].sizes)
        return sum(sizes[n] for n in _CONSTRUCTORS)

    def fold(self, done: Saturation) -> bool:
        """Evaluate operations on literals with NumPy; the literal joins the class."""
        started = time.perf_counter()
        rows = list(self._rows())
        known = {number(out): lit for name, (lit, *_), out in rows if name == "Const"}
        actions: list[str] = []
        for name, inputs, out in rows:
            if name not in ("Ap1", "Ap2", "Ap3") or number(out) in known:
                continue
            args = [known.get(number(c)) for c in inputs[2:]]
            if any(a is None for a in args):
                continue
            lit = self._evaluate(inputs, [self.literals[self._i64(a)] for a in args])
            if lit is not None:
                actions.append(self._union_text(name, inputs, known, lit))
                known[number(out)] = None
        if actions:
            done.fired[FOLD] = done.fired.get(FOLD, 0) + len(actions)
            self.graph.run("\n".join(actions))
        done.seconds[FOLD] = done.seconds.get(FOLD, 0.0) + time.perf_counter() - started
        return bool(actions)

    def _evaluate(self, inputs: list[Any], args: list[Lit]) -> Lit | None:
        op = self.ops.by_name[self.graph.egraph.value_to_string(inputs[0])]
        dtype = dt.NUMERIC[self._i64(inputs[1])]
        with np.errstate(all="ignore"):
            values = [value_of(a) for a in args]
            if op.name == "cast":
                result = convert(values[0].reshape(1), dtype).reshape(())
            else:
                result = np.asarray(op.numpy(*values))
        if result.shape != () or (result.dtype != dtype):
            return None
        return Lit(dtype, result.tobytes())

    def _union_text(self, name: str, inputs: list[Any], known: dict[int, Any], lit: Lit) -> str:
        self._folded += 1
        const = f"(Const {self._literal(lit)})"
        kids = " ".join(f"(Const {self._i64(known[number(c)])})" for c in inputs[2:])
        op = self.graph.egraph.value_to_string(inputs[0])
        dtype = self._i64(inputs[1])
        facts = " ".join(f"({fact} {const})" for fact in literal_facts(lit))
        return (
            f'(union ({name} "{op}" {dtype} {kids}) {const}) '
            f"(set (free {const}) (set-empty)) (set (dtype {const}) {dtype}) {facts}"
        )

    # ---- reading

    def _i64(self, value: Any) -> int:
        return self.graph.egraph.value_to_i64(value)

    def _rows(self) -> Iterator[_Row]:
        functions = self.graph.egraph.freeze().functions
        for name in _CONSTRUCTORS:
            for row in functions[name].rows:
                yield name, row.inputs, row.output

    def read(self) -> Classes:
        """The e-graph as Python objects; raises FactError if a class has no free axes or dtype."""
        functions = self.graph.egraph.freeze().functions
        rows = sorted(
            (
                (name, row.inputs, row.output)
                for name in _CONSTRUCTORS
                for row in functions[name].rows
            ),
            key=lambda r: (number(r[2]), r[0]),
        )
        index: dict[int, int] = {}
        for _, _, out in rows:
            index.setdefault(number(out), len(index))
        nodes: list[list[Node]] = [[] for _ in index]
        for row in rows:
            nodes[index[number(row[2])]].append(self._node(row, index))
        free, bound = (self._sets(functions[f].rows, index) for f in ("free", "bound"))
        typed = {index[number(row.inputs[0])] for row in functions["dtype"].rows}
        if len(typed) != len(index):
            raise FactError("a class has no dtype")
        roots = sorted(functions["node"].rows, key=lambda r: self._i64(r.inputs[0]))
        return Classes(
            tuple(tuple(sorted(dict.fromkeys(n), key=_order)) for n in nodes),
            free,
            tuple(index[number(r.output)] for r in roots),
            {a.name: a for a in self.axes},
            bound,
            self._traced(nodes),
        )

    def _sets(self, rows: list[Any], index: dict[int, int]) -> tuple[frozenset[str], ...]:
        """A fact that is a set of axes, for every class."""
        found: dict[int, frozenset[str]] = {}
        for row in rows:
            members = self.graph.egraph.value_to_set(row.output)
            found[index[number(row.inputs[0])]] = frozenset(
                self.axes[self._i64(v)].name for v in members
            )
        if len(found) != len(index):
            raise FactError("a class has no free or no bound axes")
        return tuple(found[c] for c in range(len(index)))

    def _traced(self, nodes: Sequence[Sequence[Node]]) -> dict[int, Node]:
        """The node of each class that the inserted program has; the first of several."""
        classes = {(n.shape, n.args): c for c, members in enumerate(nodes) for n in members}
        found: dict[Term, int] = {}
        chosen: dict[int, Node] = {}
        for term in self.inserted:
            node = Node(self._shape(term), tuple(found[c] for c in children(term)))
            found[term] = classes[node.shape, node.args]
            chosen.setdefault(found[term], node)
        return chosen

    def _shape(self, term: Term) -> Leaf | Operation | Reducing | Known:
        match term:
            case Load() | Index() | Lit():
                return Leaf(term)
            case Apply(op=op, dtype=dtype):
                return Operation(self.ops.names[op], dtype)
            case Reduction(op=op, axes=axes, dtype=dtype, scale=scale, shift=shift):
                own = frozenset(map(self._own, axes))
                return Reducing(op, own, dtype, scale is not None, shift is not None)
            case Running(axes=axes):
                return Known(frozenset(map(self._own, axes)))

    def _own(self, axis: Axis) -> Axis:
        return self.axes[self._axis_ids[axis.name]]

    def _node(self, row: _Row, index: dict[int, int]) -> Node:
        name, inputs, _ = row
        egraph = self.graph.egraph
        match name:
            case "Leaf":
                return Node(Leaf(self.leaves[self._i64(inputs[0])]), ())
            case "Const":
                return Node(Leaf(self.literals[self._i64(inputs[0])]), ())
            case "Index":
                kids = tuple(index[number(v)] for v in egraph.value_to_vec(inputs[1]))
                return Node(Leaf(self.leaves[self._i64(inputs[0])]), kids)
            case "Red":
                axes = frozenset(self.axes[self._i64(v)] for v in egraph.value_to_set(inputs[2]))
                op = ReduceOp(egraph.value_to_string(inputs[0]))
                shape = Reducing(op, axes, dt.NUMERIC[self._i64(inputs[1])])
                return Node(shape, (index[number(inputs[3])],))
            case "Scaled" | "Moved":
                axes = frozenset(self.axes[self._i64(v)] for v in egraph.value_to_set(inputs[1]))
                dtype, scaled = dt.NUMERIC[self._i64(inputs[0])], name == "Scaled"
                shape = Reducing(ReduceOp.SUM, axes, dtype, scaled, not scaled)
                return Node(shape, tuple(index[number(v)] for v in inputs[2:]))
            case "Run":
                axes = frozenset(self.axes[self._i64(v)] for v in egraph.value_to_set(inputs[1]))
                return Node(Known(axes), (index[number(inputs[0])],))
            case _:
                values = egraph.value_to_vec(inputs[2]) if name == "ApN" else inputs[2:]
                op_name = egraph.value_to_string(inputs[0])
                shape = Operation(op_name, dt.NUMERIC[self._i64(inputs[1])])
                return Node(shape, tuple(index[number(v)] for v in values))


_CONSTRUCTORS = (
    "Leaf",
    "Const",
    "Index",
    "Ap1",
    "Ap2",
    "Ap3",
    "ApN",
    "Red",
    "Scaled",
    "Moved",
    "Run",
)
_DTYPE_NUMBERS = {d: k for k, d in enumerate(dt.NUMERIC)}


def dtype_number(dtype: dt.DType) -> int:
    """The number by which the e-graph knows a dtype."""
    return _DTYPE_NUMBERS[dtype]


def number(value: Any) -> int:
    """The number of an egglog value."""
    return int(str(value)[6:-1])


def _order(node: Node) -> tuple[str, str, tuple[int, ...]]:
    match node.shape:
        case Leaf(term=term):
            return ("0", repr(term) if isinstance(term, Lit) else "", node.args)
        case Operation(name=name):
            return ("1", name, node.args)
        case Reducing(op=op, axes=axes, scaled=scaled, moved=moved):
            kind = "moved" if moved else scaled
            return ("2", f"{op.value} {kind} {sorted(a.name for a in axes)}", node.args)
        case Known(axes=axes):
            return ("3", f"{sorted(a.name for a in axes)}", node.args)
