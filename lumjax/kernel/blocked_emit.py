"""Emits what `blocked` found: the phases of one block, which are run for every block in turn.

They read the block's number from a cell of the workspace that a phase of its own counts up. All
blocks have as many rows: the last ones begin earlier where rows run out, and what they have in
common with others is neither stored nor added again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.blocked import Blocks, rounds
from lumjax.kernel.emit import MULTIPLY, Emitter, Reject, combine
from lumjax.kernel.fold_values import SELECT
from lumjax.kernel.ir import ApplyValue, IndexValue, Let, LoadValue, Phase, Stmt, StoreStmt
from lumjax.kernel.prepare import offset
from lumjax.kernel.rewrite import axis_symbol, rebuild, rewrite
from lumjax.kernel.share import extent
from lumjax.kernel.term import (
    Apply,
    Axis,
    Buffer,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Term,
    children,
    free_names,
)
from lumjax.trace import dim as dims
from lumjax.trace.form import ReduceOp

Emit: TypeAlias = Callable[[], None]
# The program for some roots, see lower.py.
Choose: TypeAlias = Callable[[Sequence[Root]], Emit | Reject]

ADD = combine(ReduceOp.SUM)


def plan_blocks(emitter: Emitter, found: Blocks, choose: Choose) -> Emit | Reject:
    """What emits the phases, or what keeps a part of them from being a program."""
    before = dict(emitter.workspace), dict(emitter.places)
    plan = _Plan(emitter, found, choose)
    if plan.refused is not None:
        emitter.workspace, emitter.places = before
        return plan.refused
    return plan.emit


class _Plan:
    def __init__(self, emitter: Emitter, found: Blocks, choose: Choose) -> None:
        self.emitter, self.found, self.choose = emitter, found, choose
        rows = found.rows
        self.count = rounds(extent(emitter, [rows]))
        self.height = dims.ceiling_divide(rows.extent, self.count)
        self.row = Axis(emitter.fresh("r"), self.height)
        self.cell = emitter.temporary(1, dt.int64)
        self.number = dims.symbol(emitter.fresh("b"), 0, self.count - 1)
        self.start = dims.symbol(emitter.fresh("f"), 0)
        self.place = self.start + axis_symbol(self.row)
        self.mine = dims.less_equal(self.number * self.height, self.place)
        self.known: dict[Term, Term] = {}  # what stands for a term in a block
        self.refused: Reject | None = None
        self.parts: list[Emit] = []
        self.last: list[Emit] = []
        self._block()
        self._after()

    # ---- terms as a block sees them

    def seen(self, term: Term) -> Term:
        """The term at the block's rows."""
        rows = self.found.rows

        def leaf(t: Term, kids: tuple[Term, ...]) -> Term:
            return self.known.get(t) or rebuild(t, kids, {rows.name: self.place}, {rows: self.row})

        return rewrite(term, leaf, {})

    def share(self, term: Reduction) -> Reduction:
        """The block's share of a reduction."""
        sides = self.found.pairs.get(term)
        if sides is None:
            body = self.seen(term.body)
        else:
            left, right = map(self.seen, sides)
            body = Apply(MULTIPLY, (left, right), term.dtype)
        axes = frozenset(self.row if a == self.found.rows else a for a in term.axes)
        return Reduction(term.op, axes, body, term.dtype)

    def masked(self, term: Term) -> Term:
        """The term where its row is in no earlier block, else zero."""
        zero = Lit(term.dtype, np.zeros((), term.dtype).tobytes())
        return Apply(SELECT, (Index(self.mine, dt.bool_), term, zero), term.dtype)

    def axes_of(self, term: Term) -> tuple[Axis, ...]:
        """A stored value's axes: rows first."""
        found, rows = self.found, self.found.rows
        known = {a.name: a for r in found.roots for a in r.axes}
        every = (*found.tiles, *found.numbers, *found.sums)
        known |= {a.name: a for t in every for a in sorted(t.axes, key=lambda a: a.name)}
        inside = free_names(found.tiles[0]).intersection(*map(free_names, found.tiles))
        free = [a for n, a in known.items() if n in free_names(term)]
        free.sort(key=lambda a: (a != rows, a.name not in inside))
        return tuple(self.row if a == rows else a for a in free)

    def room(self, term: Term) -> Buffer:
        """A buffer for a value of a block."""
        size = math.prod((a.extent for a in self.axes_of(term)), start=1)
        return self.emitter.temporary(size, term.dtype)

    def load(self, term: Term, buffer: Buffer) -> Load:
        """Where a block finds a stored value."""
        axes = self.axes_of(term)
        return Load(buffer, (offset(tuple(a.extent for a in axes), map(axis_symbol, axes)),))

    # ---- the parts

    def part(self, roots: Sequence[Root], to: list[Emit]) -> None:
        """One more program."""
        made = self.choose(roots)
        if isinstance(made, Reject):
            self.refused = self.refused or made
        else:
            to.append(made)

    def _block(self) -> None:
        found = self.found
        tiles = {t: Root(self.room(t), self.axes_of(t), self.share(t)) for t in found.tiles}
        for root in tiles.values():
            self.part([root], self.parts)
        self.known |= {t: self.load(t, r.buffer) for t, r in tiles.items()}
        numbers = {t: Root(self.room(t), self.axes_of(t), self.share(t)) for t in found.numbers}
        if numbers:
            self.part(list(numbers.values()), self.parts)
        self.known |= {t: self.load(t, r.buffer) for t, r in numbers.items()}
        self._sides({t: r.buffer for t, r in tiles.items()})
        for root in found.kept:
            self._kept(root)
        for term in found.sums:
            self._sum(term)

    def _sides(self, tiles: dict[Term, Buffer]) -> None:
        """What contractions multiply."""
        new: dict[Term, Term] = {}
        for side in self.found.sides:
            over = self.found.over
            buffer = self.room(side) if over is None else tiles[over]
            root = Root(buffer, self.axes_of(side), self.masked(self.seen(side)))
            self.part([root], self.parts)
            new[side] = self.load(side, buffer)
        self.known |= new

    def _kept(self, root: Root) -> None:
        """A root that has the rows."""
        rows = self.found.rows
        for t in self._products(root.term):
            self.known[t] = self.share(t)
        at = (self.place if a == rows else axis_symbol(a) for a in root.axes)
        where = offset(tuple(a.extent for a in root.axes), at)
        self.emitter.places[root.buffer.name] = where, self.mine
        axes = tuple(self.row if a == rows else a for a in root.axes)
        self.part([Root(root.buffer, axes, self.seen(root.term))], self.parts)

    def _products(self, term: Term) -> list[Reduction]:
        """The reductions of a root that are not known."""
        found: dict[Reduction, None] = {}
        stack = [term]
        while stack:
            t = stack.pop()
            if t not in self.known and isinstance(t, Reduction):
                found[t] = None
            elif t not in self.known:
                stack.extend(children(t))
        return list(found)

    def _sum(self, term: Reduction) -> None:
        """A sum over the rows: the first block stores its share, others add theirs."""
        bare = [r for r in self.found.after if r.term is term]
        share = self.share(term)
        if term not in self.found.pairs:
            share = Reduction(share.op, share.axes, self.masked(share.body), share.dtype)
        axes = bare[0].axes if bare else self.axes_of(term)
        buffer = bare[0].buffer if bare else self.room(term)
        at = offset(tuple(a.extent for a in axes), map(axis_symbol, axes))
        zero = Lit(term.dtype, np.zeros((), term.dtype).tobytes())
        before = Load(buffer, (at,), dims.less(0, self.number), zero)
        self.part([Root(buffer, axes, Apply(ADD, (before, share), term.dtype))], self.parts)
        self.known[term] = Load(buffer, (at,))

    def _after(self) -> None:
        done: set[Term] = set()
        for root in self.found.after:
            if root.term not in self.found.sums or root.term in done:
                self.part([Root(root.buffer, root.axes, self.seen(root.term))], self.last)
            done.add(root.term)

    # ---- phases

    def emit(self) -> None:
        """The phases of all blocks."""
        emitter = self.emitter
        first = len(emitter.phases)
        for part in self.parts:
            part()
        body = [self._numbered(p) for p in emitter.phases[first:]]
        zero = StoreStmt(self.cell, 0, IndexValue(0, dt.int64))
        one = ApplyValue(ADD, (LoadValue(self.cell, 0), IndexValue(1, dt.int64)), dt.int64)
        begin, more = (
            Phase(emitter.fresh("job"), 1, (s,)) for s in (zero, StoreStmt(self.cell, 0, one))
        )
        emitter.phases[first:] = [begin, *body, *([more, *body] * (self.count - 1))]
        for part in self.last:
            part()

    def _numbered(self, phase: Phase) -> Phase:
        """The phase with the block's number and first row."""
        raw, number, start = self.emitter.fresh("v"), str(self.number.name), str(self.start.name)
        known = dims.minimum(dims.maximum(dims.symbol(raw, None), 0), self.count - 1)
        last = self.found.rows.extent - self.height
        names: tuple[Stmt, ...] = (
            Let(raw, LoadValue(self.cell, 0)),
            Let(number, IndexValue(known, dt.int64)),
            Let(start, IndexValue(dims.minimum(self.number * self.height, last), dt.int64)),
        )
        return Phase(phase.job, phase.jobs, (*names, *phase.body))
