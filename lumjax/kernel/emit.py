"""Terms to statements: scopes that hoist, a memo that shares, and the finished kernel.

A `Scope` is one level of the loop nest under construction; `Emitter.value` puts the `Let` of a
term into the outermost scope that binds everything the term depends on, once. Axes are bound by
loop variables or integer Lets of the axis's own name, so that index expressions need no
substitution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias, assert_never

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.evaluate import convert, identity
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    Const,
    IndexValue,
    Kernel,
    Let,
    LoadValue,
    Loop,
    LoopKind,
    Phase,
    Ref,
    Scratch,
    Stmt,
    StoreStmt,
    Value,
)
from lumjax.kernel.prepare import Prepared, group_axes, offset
from lumjax.kernel.quotient import by_reciprocal, invertible
from lumjax.kernel.rewrite import axis_symbol, rename
from lumjax.kernel.schedule import DEFAULT, Schedule
from lumjax.kernel.term import (
    Apply,
    Axis,
    Buffer,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Running,
    Term,
    children,
    free_names,
    loads,
    subterms,
)
from lumjax.record import record
from lumjax.target import Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr
from lumjax.trace.expr import leaves
from lumjax.trace.form import ReduceOp, ScalarOp, Trait


@record
class Reject:
    """A group cannot be one kernel as it is; with `term` stored in a buffer of its own it might."""

    term: Term
    why: str


CAST = ScalarOp("cast", 1, convert, None, 1.0, frozenset({Trait.CAST}))
MULTIPLY = ScalarOp("mul", 2, np.multiply)
_COMBINE = {
    ReduceOp.SUM: ScalarOp("add", 2, np.add),
    ReduceOp.PROD: MULTIPLY,
    ReduceOp.MAX: ScalarOp("max", 2, np.maximum),
    ReduceOp.MIN: ScalarOp("min", 2, np.minimum),
    ReduceOp.AND: ScalarOp("and", 2, np.bitwise_and),
    ReduceOp.OR: ScalarOp("or", 2, np.bitwise_or),
    ReduceOp.XOR: ScalarOp("xor", 2, np.bitwise_xor),
}


def combine(op: ReduceOp) -> ScalarOp:
    """The monoid's operation as a scalar operation."""
    return _COMBINE[op]


@lru_cache(maxsize=256)
def identity_value(op: ReduceOp, dtype: dt.DType) -> Const:
    """The monoid's neutral element."""
    return Const(dtype, np.asarray(identity(op, dtype), dtype).tobytes())


def held(term: Reduction) -> dt.DType:
    """The dtype in which a reduction accumulates."""
    summing = term.op in (ReduceOp.SUM, ReduceOp.PROD)
    return dt.accumulation_dtype(term.dtype) if summing else term.dtype


def pending(term: Term, known: Callable[[Term], bool]) -> list[Term]:
    """The subterms without a value, children first; reductions are not entered."""
    order: list[Term] = []
    seen: set[Term] = set()
    stack: list[tuple[Term, bool]] = [(term, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen and not known(node):
            seen.add(node)
            stack.append((node, True))
            if not isinstance(node, Reduction):
                stack.extend((c, False) for c in children(node))
    return order


def unit_strides(terms: Iterable[Term], axis: Axis) -> int:
    """How many loads of the terms walk `axis` with stride 1."""
    found = {t for term in terms for t in loads(term)}
    return sum(dims.same(dims.coefficient(t.coords[0], axis.name) or 0, 1) for t in found)


def jumps(terms: Iterable[Term], axis: Axis) -> int:
    """How many loads of the terms walk `axis` in steps: what lies apart is read one by one."""
    found = {t for term in terms for t in loads(term) if axis.name in free_names(t)}
    steps = [dims.coefficient(t.coords[0], axis.name) for t in found]
    return sum(s is None or not (dims.same(s, 1) or dims.same(s, 0)) for s in steps)


def walked_better(terms: Sequence[Term], axis: Axis, than: Iterable[Axis]) -> bool:
    """Whether vectors along `axis` read what lies together more than along all of `than`."""
    mine = -jumps(terms, axis), unit_strides(terms, axis)
    return all(mine > (-jumps(terms, a), unit_strides(terms, a)) for a in than)


def least_stride(terms: Iterable[Term], axis: Axis) -> int:
    """A lower bound of the strides with which the terms' loads walk `axis`, added up."""
    found = {t for term in terms for t in loads(term)}
    steps = [dims.coefficient(t.coords[0], axis.name) for t in found]
    return sum(dims.bounds(s)[0] or 0 for s in steps if s is not None)


def ordered_axes(terms: Sequence[Reduction]) -> list[Axis]:
    """The axes that the reductions share; innermost the one that most loads walk with stride 1, or
    with small strides.
    """
    axes = sorted(terms[0].axes, key=lambda a: (len(a.name), a.name))
    bodies = [t.body for t in terms]
    inner = max(
        axes, key=lambda a: (unit_strides(bodies, a), -least_stride(bodies, a)), default=None
    )
    return [a for a in axes if a is not inner] + ([] if inner is None else [inner])


class Scope:
    """One level of the loop nest: its statements, the names it binds, the values of terms."""

    __slots__ = ("bound", "closed", "memo", "parent", "stmts")

    def __init__(
        self, parent: Scope | None = None, bound: Iterable[str] = (), closed: bool = False
    ) -> None:
        self.parent = parent
        self.closed = closed  # values known in it depend on more than the names it binds
        self.bound = set(bound)
        self.stmts: list[Stmt] = []
        self.memo: dict[Term, Value] = {}

    def add(self, *stmts: Stmt) -> None:
        """Append statements."""
        self.stmts.extend(stmts)

    def find(self, term: Term) -> Value | None:
        """The value that this scope or one around it has for the term."""
        scope: Scope | None = self
        while scope is not None:
            if term in scope.memo:
                return scope.memo[term]
            scope = scope.parent
        return None

    def binds(self, name: str) -> bool:
        """Whether this scope or one around it binds the name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.bound:
            scope = scope.parent
        return scope is not None

    def home(self, names: frozenset[str]) -> Scope:
        """The outermost scope in which all of `names` that are bound anywhere are bound; none
        outside of a closed one.
        """
        scope = self
        while scope.parent is not None and not scope.closed and not (names & scope.bound):
            scope = scope.parent
        return scope

    def loop(
        self,
        var: str,
        end: Dim,
        kind: LoopKind = LoopKind.SERIAL,
        begin: Dim = 0,
        step: int = 1,
    ) -> OpenLoop:
        """A loop in this scope, closed (and appended here) when its `with` block ends."""
        return OpenLoop(self, var, begin, end, step, kind)


@dataclass(slots=True)
class OpenLoop:
    """A loop whose body is being emitted."""

    outer: Scope
    var: str
    begin: Dim
    end: Dim
    step: int
    kind: LoopKind
    closed: bool = False
    scope: Scope = field(init=False)

    def __enter__(self) -> Scope:
        self.scope = Scope(self.outer, {self.var}, self.closed)
        return self.scope

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None:
            body = tuple(self.scope.stmts)
            self.outer.add(Loop(self.var, self.begin, self.end, self.step, self.kind, body))


Inside: TypeAlias = Callable[[Scope], None]


class Emitter:
    """Builds the phases of one kernel."""

    def __init__(
        self, prepared: Prepared, target: Target | None = None, schedule: Schedule = DEFAULT
    ) -> None:
        self.prepared = prepared
        self.target = target
        self.schedule = schedule
        self.scratch_bytes = target.l2 // 4 if target else 0
        self.chunks: dict[str, Dim] = {}
        self.workspace: dict[str, Buffer] = {}
        self.scratch: dict[str, Scratch] = {}
        self.phases: list[Phase] = []
        self.ranges: dict[str, tuple[Dim, Dim]] = {}
        self.places: dict[str, tuple[Dim, Dim]] = {}  # of buffers: offset and mask of an element
        self.count = 0

    # ---- names

    def fresh(self, prefix: str) -> str:
        """A name that no other statement of the kernel uses."""
        self.count += 1
        return f"{prefix}{self.count}"

    def chunk(self, value: int) -> Dim:
        """A size argument for the length of a job's share, so that verification can shrink it."""
        name = f"c{len(self.chunks)}"
        self.chunks[name] = value
        return dims.symbol(name, 1)

    def size(self, dim: Dim) -> int | None:
        """The dim's value in the traced program, None if it is only known at run time."""
        values = {**self.prepared.sizes, **self.chunks}
        found = dims.substitute(dim, values)
        return found if isinstance(found, int) else None

    def buffer(self, flat: Buffer) -> Buffer:
        """The buffer with its full shape."""
        return self.prepared.buffers.get(flat.name, flat)

    def temporary(self, elements: Dim, dtype: dt.DType) -> Buffer:
        """A workspace buffer that lives between this kernel's phases."""
        buffer = Buffer(f"w{len(self.workspace)}", (elements,), dtype)
        self.workspace[buffer.name] = buffer
        return buffer

    def local(self, elements: int, dtype: dt.DType) -> Buffer:
        """A scratch buffer of one job."""
        buffer = Buffer(f"l{len(self.scratch)}", (elements,), dtype)
        self.scratch[buffer.name] = Scratch(buffer, elements)
        return buffer

    def range(self, axis: Axis) -> tuple[Dim, Dim]:
        """The part of the axis that the current job walks."""
        return self.ranges.get(axis.name, (0, axis.extent))

    def let(self, value: Value, scope: Scope) -> Ref:
        """Name a value in `scope`."""
        name = self.fresh("v")
        scope.add(Let(name, value))
        return Ref(name, value.dtype)

    # ---- values

    def value(self, term: Term, scope: Scope) -> Value:
        """The term's value, usable in `scope`; new Lets go where they are invariant."""
        for t in pending(term, lambda t: scope.find(t) is not None):
            home = scope.home(free_names(t))
            if isinstance(t, Reduction):
                value = self.serial(t, home)
            elif isinstance(t, Apply) and self._divides_many(t, scope, home):
                value = self.value(by_reciprocal(t), scope)
            else:
                value = self.node(t, scope)
                if isinstance(value, LoadValue | ApplyValue):
                    value = self.let(value, home)
            home.memo[t] = value
        found = scope.find(term)
        assert found is not None, "a term has a value once its subterms have"
        return found

    def _divides_many(self, term: Apply, scope: Scope, home: Scope) -> bool:
        """Whether the term's divisor is one of many quotients', and may be inverted."""
        return invertible(term) and scope.home(free_names(term.args[1])) is not home

    def node(self, term: Load | Index | Apply | Lit | Running, scope: Scope) -> Value:
        """The value of one node whose children have values."""
        match term:
            case Lit():
                return Const(term.dtype, term.bits)
            case Running():
                return self._found(term.of, scope)
            case Index():
                return IndexValue(self.indexed(term.expr, term.indices, scope), term.dtype)
            case Load():
                at, mask = (
                    self.indexed(d, term.indices, scope) for d in (term.coords[0], term.valid)
                )
                fill = None if term.fill is None else Const(term.fill.dtype, term.fill.bits)
                return LoadValue(self.buffer(term.buffer), at, mask, fill)
            case Apply():
                return ApplyValue(
                    term.op, tuple(self._found(a, scope) for a in term.args), term.dtype
                )
        assert_never(term)

    def _found(self, term: Term, scope: Scope) -> Value:
        value = scope.find(term)
        assert value is not None, "children come before their parents"
        return value

    def indexed(self, expr: Dim, indices: Sequence[tuple[str, Term]], scope: Scope) -> Dim:
        """An index expression with its index terms' symbols replaced by the Lets that hold them."""
        names: dict[str, Dim] = {}
        for symbol, term in indices:
            value = self._found(term, scope)
            if not isinstance(value, Ref):
                home = scope.home(free_names(term))
                home.memo[term] = value = self.let(value, home)
            names[symbol] = dims.symbol(value.name, None)
        return dims.substitute(expr, names) if names else expr

    # ---- reductions

    def accumulator(self, term: Reduction, scope: Scope) -> str:
        """Declare the accumulator of a reduction."""
        dtype = held(term)
        name = self.fresh("s")
        scope.add(Accumulator(name, dtype, term.op, identity_value(term.op, dtype)))
        return name

    def body(self, term: Reduction, scope: Scope) -> Value:
        """What the reduction accumulates, in the accumulator's dtype."""
        value = self.value(term.body, scope)
        if value.dtype == held(term):
            return value
        return ApplyValue(CAST, (value,), held(term))

    def finish(self, term: Reduction, name: str, scope: Scope) -> Value:
        """The finished accumulator as the reduction's value."""
        value: Value = Ref(name, held(term))
        if held(term) != term.dtype:
            value = self.let(ApplyValue(CAST, (value,), term.dtype), scope)
        scope.memo[term] = value
        return value

    def serial(self, term: Reduction, scope: Scope) -> Value:
        """The reduction as serial loops with a scalar accumulator, in `scope`."""
        clash = {a: Axis(self.fresh("a_"), a.extent) for a in term.axes if scope.binds(a.name)}
        fresh = rename(term, clash) if clash else term
        assert isinstance(fresh, Reduction), "a renamed reduction is one"
        self.fold([fresh], ordered_axes([fresh]), scope, LoopKind.SERIAL)
        return scope.memo[fresh]

    def fold(
        self,
        terms: Sequence[Reduction],
        axes: Sequence[Axis],
        scope: Scope,
        last: LoopKind,
        before: Inside | None = None,
    ) -> list[str]:
        """Reductions over the same axes in one loop nest, the innermost loop of kind `last`.

        Returns the names of the accumulators.
        """
        names = [self.accumulator(t, scope) for t in terms]

        def inside(inner: Scope) -> None:
            if before is not None:
                before(inner)
            for t, name in zip(terms, names, strict=True):
                inner.add(Accumulate(name, self.body(t, inner)))

        self.nest(axes, scope, last, inside)
        for t, name in zip(terms, names, strict=True):
            self.finish(t, name, scope)
        return names

    def nest(self, axes: Sequence[Axis], scope: Scope, last: LoopKind, inside: Inside) -> None:
        """Loops over `axes`, outermost first, around what `inside` emits."""
        if not axes:
            inside(scope)
            return
        assert not scope.binds(axes[0].name), "an axis is walked by one loop at a time"
        begin, end = self.range(axes[0])
        kind = last if len(axes) == 1 else LoopKind.SERIAL
        with scope.loop(axes[0].name, end, kind, begin) as inner:
            self.nest(axes[1:], inner, last, inside)

    # ---- stores and phases

    def store(self, root: Root, scope: Scope) -> None:
        """buffer[axes] = term, in a scope that binds the axes."""
        at = offset(tuple(a.extent for a in root.axes), map(axis_symbol, root.axes))
        at, mask = self.places.get(root.buffer.name, (at, 1))
        scope.add(StoreStmt(self.buffer(root.buffer), at, self.value(root.term, scope), mask))

    def decode(self, axes: Sequence[Axis], flat: Dim, scope: Scope) -> None:
        """Bind `axes` by Lets so that their row-major index is `flat`."""
        rest = flat
        for k, axis in reversed(list(enumerate(axes))):
            here = dims.remainder(rest, axis.extent) if k else rest
            scope.add(Let(axis.name, IndexValue(here, dt.int64)))
            scope.bound.add(axis.name)
            rest = dims.floor_divide(rest, axis.extent)

    def phase(self, job: str, jobs: Dim, scope: Scope) -> None:
        """Append a phase."""
        self.phases.append(Phase(job, jobs, tuple(scope.stmts)))

    def _given(self) -> dict[str, Expr]:
        """The symbols of dynamic sizes that the group mentions by itself."""
        group = self.prepared.group
        axes = group_axes(group)
        bound = {a.name for a in axes}
        found: list[Dim] = [n for b in self.prepared.buffers.values() for n in b.shape]
        found += [a.extent for a in axes]
        for term in (t for r in group.roots for t in subterms(r.term)):
            if isinstance(term, Load | Index):
                bound |= {name for name, _ in term.indices}
                found += [*term.coords, term.valid] if isinstance(term, Load) else [term.expr]
        symbols = {s for d in found if isinstance(d, Expr) for s in leaves(d)}
        return {str(s.name): s for s in symbols if s.name not in bound}

    def kernel(self, name: str) -> Kernel:
        """The finished kernel."""
        group = self.prepared.group
        outputs = tuple(self.buffer(r.buffer) for r in group.roots)
        stored = {b.name for b in outputs}
        inputs = tuple(b for n, b in self.prepared.buffers.items() if n not in stored)
        sizes = {**self.prepared.sizes, **self.chunks}
        given = self._given()
        for name in sorted(given.keys() - sizes.keys()):
            sizes[name] = given[name]
        return Kernel(
            name,
            outputs,
            inputs,
            tuple(self.workspace.values()),
            tuple(self.scratch.values()),
            tuple(sizes),
            tuple(self.phases),
            tuple(sizes.values()),
        )
