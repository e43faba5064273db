"""RESIDENT: the loops of a job that holds whole rows in scratch (see resident.py)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lumjax.kernel.contract import balanced, dot_shape, tile_shape, widened
from lumjax.kernel.emit import CAST, Emitter, Scope, combine, held, identity_value
from lumjax.kernel.fold_values import apply, hold
from lumjax.kernel.ir import (
    Accumulate,
    ApplyValue,
    LoadValue,
    LoopKind,
    Ref,
    StoreStmt,
    Tile,
    Value,
)
from lumjax.kernel.resident import HEIGHT, Product, Residence, Step, pitch
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.row import cone, dear
from lumjax.kernel.share import extent
from lumjax.kernel.term import (
    Apply,
    Axis,
    Buffer,
    Load,
    Reduction,
    Root,
    Term,
    children,
    free_names,
)
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

JOB_WORK = 1 << 20  # multiply-adds per job


def emit_resident(emitter: Emitter, found: Residence) -> None:
    """Append the phase that computes the roots."""
    _Resident(emitter, found).emit()


@record
class Sweep:
    """One pass over the points of `inner`: values to be held or stored, and reductions."""

    inner: tuple[Axis, ...]
    values: tuple[Term | Root, ...]
    reductions: tuple[Reduction, ...]


class _Resident:
    def __init__(self, emitter: Emitter, found: Residence) -> None:
        self.emitter, self.found = emitter, found
        self.row = found.rows[-1]
        self.height = min(HEIGHT, extent(emitter, [self.row]))
        self.first: Dim = 0
        areas = [emitter.local(n, d) for n, d in found.areas]
        self.buffers = {t: areas[p.area] for t, p in found.places.items()}
        sizes = emitter.prepared.sizes
        self.extents = {t: pitch(p, sizes, self.row, HEIGHT) for t, p in found.places.items()}

    # ---- jobs

    def emit(self) -> None:
        """One phase; its jobs walk the points of the grid and, where nothing is summed over rows
        nor made ready for all of them, tiles of rows.
        """
        emitter, found = self.emitter, self.found
        block = emitter.chunk(self.height)
        units, work = found.grid, self.work()
        if not found.carries and not found.before:
            tiles = Axis(emitter.fresh("rb"), dims.ceiling_divide(self.row.extent, block))
            units = (*units, *found.rows[:-1], tiles)
            work = -(-work // extent(emitter, found.rows)) * self.height
        total = math.prod((a.extent for a in units), start=1)
        chunk = emitter.chunk(max(1, JOB_WORK // work))
        top = Scope(bound={job := emitter.fresh("job")})
        begin = dims.symbol(job) * chunk
        flat = emitter.fresh("p")
        with top.loop(flat, dims.minimum(begin + chunk, total), begin=begin) as unit:
            emitter.decode(units, dims.symbol(flat, 0, total - 1), unit)
            if units == found.grid:
                self.unit(unit, block)
            else:
                self.tile(unit, axis_symbol(units[-1]) * block, block)
        emitter.phase(job, dims.ceiling_divide(total, chunk), top)

    def work(self) -> int:
        """Roughly the multiply-adds of a job."""
        steps = [s for s in (*self.found.before, *self.found.body) if isinstance(s, Product)]
        others = extent(self.emitter, self.found.rows[:-1])
        points = [extent(self.emitter, (s.m, s.n, *s.others, *s.k)) for s in steps]
        return max(1, others * sum(points))

    def unit(self, scope: Scope, block: Dim) -> None:
        """All that a job does at one point of the grid."""
        emitter, found = self.emitter, self.found
        self.steps(scope, found.before)
        for term in found.carries:
            self.clear(scope, term)

        def tiles(inner: Scope) -> None:
            name = emitter.fresh("s")
            with inner.loop(name, dims.ceiling_divide(self.row.extent, block)) as each:
                self.tile(each, dims.symbol(name) * block, block)

        emitter.nest(found.rows[:-1], scope, LoopKind.SERIAL, tiles)
        for root in found.after:
            axes = self.outside(root)
            emitter.nest(
                axes, scope, LoopKind.VECTOR, lambda inner, root=root: self.root(inner, root)
            )

    def tile(self, scope: Scope, first: Dim, block: Dim) -> None:
        """One tile of rows."""
        row, self.first = self.row, first
        self.emitter.ranges[row.name] = first, dims.minimum(first + block, row.extent)
        self.steps(scope, self.found.body)
        del self.emitter.ranges[row.name]

    def outside(self, root: Root) -> tuple[Axis, ...]:
        """The axes of a root that no loop around has bound."""
        bound = {a.name for a in (*self.found.grid, *self.found.rows[:-1])}
        return tuple(a for a in root.axes if a.name not in bound)

    def root(self, scope: Scope, root: Root) -> None:
        """Store one element."""
        self.know(scope, [root.term])
        self.emitter.store(root, scope)

    # ---- scratch

    def at(self, term: Term) -> Dim:
        """Where the value at the current point lies."""
        total: Dim = 0
        for axis, width in zip(self.found.places[term].axes, self.extents[term], strict=True):
            here = axis_symbol(axis) - self.first if axis == self.row else axis_symbol(axis)
            total = total * width + here
        return total

    def read(self, term: Term) -> LoadValue:
        """The value of a held term at the current point."""
        return LoadValue(self.buffers[term], self.at(term))

    def keep(self, scope: Scope, term: Term, value: Value) -> None:
        """Hold a value."""
        buffer = self.buffers[term]
        scope.add(StoreStmt(buffer, self.at(term), hold(value, buffer.dtype)))

    def know(self, scope: Scope, terms: Iterable[Term], but: Term | None = None) -> None:
        """Read all that the terms take from scratch."""
        seen: set[Term] = set()
        stack = list(terms)
        while stack:
            t = stack.pop()
            if t in seen:
                continue
            seen.add(t)
            if t in self.buffers and t is not but:
                if scope.find(t) is None:
                    home = scope.home(free_names(t))
                    home.memo[t] = self.emitter.let(hold(self.read(t), t.dtype), home)
            elif not isinstance(t, Reduction) or t is but:
                stack.extend(children(t))

    def clear(self, scope: Scope, term: Reduction) -> None:
        """Begin a sum over rows."""
        neutral = identity_value(term.op, self.buffers[term].dtype)
        self.emitter.nest(
            self.found.places[term].axes,
            scope,
            LoopKind.VECTOR,
            lambda inner: inner.add(StoreStmt(self.buffers[term], self.at(term), neutral)),
        )

    # ---- steps

    def steps(self, scope: Scope, steps: Sequence[Step]) -> None:
        """One after the other; sweeps over the same rows row by row."""
        waiting: list[Term | Root] = []
        for step in steps:
            alone = isinstance(step, Product) or step in self.found.carries
            if waiting and (
                isinstance(step, Product) or alone or self.around(step) != self.around(waiting[0])
            ):
                self.sweeps(scope, waiting)
                waiting = []
            if isinstance(step, Product):
                self.emitter.nest(
                    step.others,
                    scope,
                    LoopKind.SERIAL,
                    lambda inner, step=step: self.tiles(inner, step),
                )
            elif isinstance(step, Reduction) and alone:
                self.add(scope, step)
            else:
                waiting.append(step)
        if waiting:
            self.sweeps(scope, waiting)

    def tiles(self, scope: Scope, product: Product) -> None:
        """A contraction in register tiles."""
        emitter, term, m, n = self.emitter, product.term, product.m, product.n
        assert emitter.target is not None, "tiles are shaped for a target"
        count, dtype = extent(emitter, [m]), held(term)
        if product.dots:
            rows, cols = dot_shape(term.dtype, emitter.target, count)
        else:
            rows, cols = tile_shape(
                term.dtype, emitter.target, extent(emitter, [n]), emitter.schedule
            )
            rows = balanced(rows, min(count, self.height) if m == self.row else count)
        begin, end = emitter.range(m)
        low, high = emitter.range(n)
        k: list[tuple[str, Dim]] = []
        shift: dict[str, Dim] = {}
        for axis in product.k:
            if axis == self.row:
                name = emitter.fresh("k")
                first, last = emitter.range(axis)
                k.append((name, last - first))
                shift[axis.name] = first + dims.symbol(name)
            else:
                k.append((axis.name, axis.extent))
        panel, row, acc = emitter.fresh("q"), emitter.fresh("r"), emitter.fresh("t")
        panels = dims.ceiling_divide(high - low, cols)
        with (
            scope.loop(panel, panels) as over,
            over.loop(row, end, begin=begin, step=rows) as at,
        ):
            body = Scope(at, {m.name, n.name})
            self.finish(body, product, Ref(acc, dtype))
            left, right = (
                widened(self.operand(at, s, shift), dtype) for s in (product.left, product.right)
            )
            start = low + dims.symbol(panel) * cols
            at.add(
                Tile(
                    acc,
                    dtype,
                    m.name,
                    dims.symbol(row),
                    end,
                    rows,
                    n.name,
                    start,
                    high,
                    cols,
                    tuple(k),
                    left,
                    right,
                    tuple(body.stmts),
                )
            )

    def operand(self, scope: Scope, side: Term, shift: Mapping[str, Dim]) -> Value:
        """One side of a contraction, from scratch or from memory."""
        if side in self.buffers:
            value = self.read(side)
        else:
            assert isinstance(side, Load), "what is not a load is held"
            node = self.emitter.node(side, scope)
            assert isinstance(node, LoadValue), "a load's value is one"
            value = node
        return replace(value, offset=dims.substitute(value.offset, shift))

    def finish(self, scope: Scope, product: Product, total: Ref) -> None:
        """What becomes of a contraction's sum at one point."""
        term = product.term
        if term in self.found.carries:
            before = LoadValue(self.buffers[term], self.at(term))
            scope.add(
                StoreStmt(self.buffers[term], self.at(term), apply(combine(term.op), before, total))
            )
            return
        value: Value = total
        if total.dtype != term.dtype:  # rounded, as what is summed over it will be
            value = self.emitter.let(ApplyValue(CAST, (total,), term.dtype), scope)
        scope.memo[term] = value
        if term in self.buffers:
            self.keep(scope, term, value)
        for root in product.roots:
            self.emitter.store(root, scope)

    def add(self, scope: Scope, term: Reduction) -> None:
        """A tile's share of a reduction over rows that is no contraction."""
        emitter, axes = self.emitter, self.found.places[term].axes
        rows = {a.name for a in self.found.rows}
        rest = [a for a in self.by_stride(term) if a.name not in rows]

        def point(inner: Scope) -> None:
            before = self.read(term)
            if rest:
                name = emitter.accumulator(term, inner)

                def each(last: Scope) -> None:
                    self.know(last, [term.body])
                    last.add(Accumulate(name, emitter.body(term, last)))

                emitter.nest(rest, inner, LoopKind.VECTOR, each)
                found: Value = Ref(name, held(term))
            else:
                self.know(inner, [term.body])
                found = emitter.body(term, inner)
            inner.add(
                StoreStmt(self.buffers[term], self.at(term), apply(combine(term.op), before, found))
            )

        kind = LoopKind.VECTOR if axes and not rest else LoopKind.SERIAL
        emitter.nest((self.row, *axes), scope, kind, point)

    # ---- sweeps

    def by_stride(self, term: Reduction) -> list[Axis]:
        """The reduced axes, the one along which most lies last."""
        order = sorted(term.axes, key=lambda a: (len(a.name), a.name))
        last = [
            p.axes[-1] for t, p in self.found.places.items() if p.axes and t in cone([term.body])
        ]
        return sorted(order, key=lambda a: sum(a == b for b in last))

    def loops(self, step: Term | Root) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """The axes around a sweep, and those that it goes along."""
        if isinstance(step, Root):
            axes = self.outside(step)
            axes = (*(a for a in axes if a == self.row), *(a for a in axes if a != self.row))
            return axes[:-1], axes[-1:]
        axes = self.found.places[step].axes
        if isinstance(step, Reduction):
            return axes, tuple(self.by_stride(step))
        return axes[:-1], axes[-1:]

    def around(self, step: Term | Root) -> tuple[Axis, ...]:
        """The axes around a sweep."""
        return self.loops(step)[0]

    def sweeps(self, scope: Scope, steps: Sequence[Term | Root]) -> None:
        """Steps over the same rows, row by row: as few passes as they wait for each other."""
        passes = self.passes(steps)
        kept = self.kept(passes)
        filled: set[Term] = set()

        def rows(row: Scope) -> None:
            for sweep in passes:
                self.sweep(row, sweep, kept, filled)

        self.emitter.nest(self.around(steps[0]), scope, LoopKind.SERIAL, rows)

    def passes(self, steps: Sequence[Term | Root]) -> list[Sweep]:
        """The steps by the number of reductions among them that they wait for."""
        level: dict[Term, int] = {}
        groups: dict[tuple[int, tuple[Axis, ...]], list[Term | Root]] = {}
        for step in steps:
            term = step.term if isinstance(step, Root) else step
            whole = [term] if isinstance(step, Root) else list(children(term))
            below = [t for t in self.below(whole) if t in level]
            here = max((level[t] + isinstance(t, Reduction) for t in below), default=0)
            if not isinstance(step, Root):
                level[step] = here
            groups.setdefault((here, self.loops(step)[1]), []).append(step)
        found: list[Sweep] = []
        for (_, inner), mine in sorted(groups.items(), key=lambda g: g[0][0]):
            values = tuple(s for s in mine if not isinstance(s, Reduction))
            found.append(Sweep(inner, values, tuple(s for s in mine if isinstance(s, Reduction))))
        return found

    def below(self, terms: Iterable[Term]) -> list[Term]:
        """What terms read that is held, or reduced."""
        found: dict[Term, None] = {}
        stack = list(terms)
        while stack:
            t = stack.pop()
            if t not in found:
                found[t] = None
                if t not in self.buffers and not isinstance(t, Reduction):
                    stack.extend(children(t))
        return [t for t in found if t in self.buffers or isinstance(t, Reduction)]

    def kept(self, passes: Sequence[Sweep]) -> dict[Term, Buffer]:
        """Rows for values that several passes need and that are dear."""
        uses: dict[Term, list[Sweep]] = {}
        for sweep in passes:
            for t in cone(self.terms(sweep)):
                uses.setdefault(t, []).append(sweep)
        wanted = [
            t
            for t, sweeps in uses.items()
            if len(sweeps) > 1
            and len({s.inner for s in sweeps}) == len(sweeps[0].inner) == 1
            and isinstance(t, Apply)
            and sweeps[0].inner[0].name in free_names(t)
            and t not in self.buffers
            and dear(t)
        ]
        inside = {c for t in wanted for c in cone([t]) if c is not t}
        return {
            t: self.emitter.local(extent(self.emitter, uses[t][0].inner), t.dtype)
            for t in wanted
            if t not in inside
        }

    def terms(self, sweep: Sweep) -> list[Term]:
        """What a pass evaluates."""
        values = [s.term if isinstance(s, Root) else s for s in sweep.values]
        return [*values, *(t.body for t in sweep.reductions)]

    def sweep(
        self, row: Scope, sweep: Sweep, kept: Mapping[Term, Buffer], filled: set[Term]
    ) -> None:
        """One pass."""
        emitter = self.emitter
        names = {t: emitter.accumulator(t, row) for t in sweep.reductions}
        mine = [t for t in cone(self.terms(sweep)) if t in kept]

        def point(inner: Scope) -> None:
            for t in mine:
                (axis,) = sweep.inner
                at = axis_symbol(axis) - emitter.range(axis)[0]
                if t in filled:
                    inner.memo[t] = emitter.let(LoadValue(kept[t], at), inner)
                else:
                    self.know(inner, [t])
                    inner.add(StoreStmt(kept[t], at, emitter.value(t, inner)))
            for step in sweep.values:
                if isinstance(step, Root):
                    self.root(inner, step)
                else:
                    self.know(inner, [step], step)
                    self.keep(inner, step, emitter.value(step, inner))
            for t, name in names.items():
                self.know(inner, [t.body])
                inner.add(Accumulate(name, emitter.body(t, inner)))

        emitter.nest(sweep.inner, row, LoopKind.VECTOR, point)
        filled.update(mine)
        for t, name in names.items():
            value = emitter.finish(t, name, row)
            if t in self.buffers:
                self.keep(row, t, value)
