"""One tile of a loop over tiles: contractions into scratch, row statistics, weights, accumulation.

A tile holds the job's rows by a stretch of the stream, row-major. What the maxima are taken of is
kept in it where the weights need it again, and the weights replace what they were made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lumjax import dtype as dt
from lumjax.kernel.contract import replace_body, widened
from lumjax.kernel.emit import Emitter, Scope, combine, held, ordered_axes, pending
from lumjax.kernel.fold_direct import Product, Span, emit_product
from lumjax.kernel.fold_shape import Left, Right, Shape, tile_dtype
from lumjax.kernel.fold_state import State
from lumjax.kernel.fold_swap import emit_swapped
from lumjax.kernel.fold_values import apply, hold
from lumjax.kernel.ir import (
    Accumulate,
    If,
    IndexValue,
    LoadValue,
    LoopKind,
    Ref,
    StoreStmt,
    Tile,
    Value,
)
from lumjax.kernel.rewrite import axis_symbol
from lumjax.kernel.roles import Carry, Inner, Roles
from lumjax.kernel.row import dear
from lumjax.kernel.skip import Decision, Range
from lumjax.kernel.term import Axis, Buffer, Reduction, Term
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ReduceOp


@dataclass(slots=True)
class Layout:
    """Which tile holds which term: contractions, what maxima are taken of, weights."""

    inner: dict[Term, Buffer] = field(default_factory=dict[Term, Buffer])
    kept: dict[Term, Buffer] = field(default_factory=dict[Term, Buffer])
    weights: dict[Term, Buffer] = field(default_factory=dict[Term, Buffer])


def layout(
    emitter: Emitter, roles: Roles, shape: Shape, maxima: Sequence[Reduction], terms: Sequence[Term]
) -> Layout:
    """A tile for each contraction; `terms` are evaluated after the maxima are known."""
    size = shape.height * shape.width
    found = Layout({i.term: emitter.local(size, tile_dtype(i.term)) for i in roles.inner})
    bodies = [m.body for m in maxima]
    later = mentioned(terms, bodies)
    free = {t: b for t, b in found.inner.items() if t not in later}
    for body in dict.fromkeys(bodies):
        tiled = any(t in found.inner for t in pending(body, lambda t: False))
        if body in later and body not in found.inner and (tiled or dear(body)):
            found.kept[body] = _taken(emitter, free, body, size)
    free |= {t: b for t, b in {**found.inner, **found.kept}.items() if t in later}
    weights = dict.fromkeys(c.weights for c in roles.carries if c.weights is not None)
    for weight in weights:
        if weight in free and weight in {**found.inner, **found.kept}:
            found.weights[weight] = free.pop(weight)
    for weight in weights:
        if weight not in found.weights:
            found.weights[weight] = _taken(emitter, free, weight, size)
    return found


def mentioned(terms: Iterable[Term], known: Sequence[Term]) -> set[Term]:
    """The subterms of `terms` with `known` ones as leaves."""
    leaves = set(known)
    found: set[Term] = set()
    for term in terms:
        mine = pending(term, lambda t: t in leaves)
        found.update(mine)
        found.update(t for t in leaves if _reads(term, t))
    return found


def _reads(term: Term, leaf: Term) -> bool:
    return leaf in pending(term, lambda t: False)


def _taken(emitter: Emitter, free: dict[Term, Buffer], term: Term, size: int) -> Buffer:
    """A tile that nothing needs any more, or a new one."""
    for t, buffer in free.items():
        if buffer.dtype == tile_dtype(term):
            del free[t]
            return buffer
    return emitter.local(size, tile_dtype(term))


class Body:
    """Emits what happens to one tile of the stream."""

    def __init__(
        self,
        emitter: Emitter,
        roles: Roles,
        shape: Shape,
        state: State,
        sides: Mapping[Inner, tuple[Left, Right]],
        values: Mapping[Carry, Right],
        decision: Decision | None,
    ) -> None:
        self.emitter = emitter
        self.roles = roles
        self.shape = shape
        self.state = state
        self.sides = sides
        self.values = values
        self.begin: Dim = 0
        self.end: Dim = 0
        self.tile: Dim = 0
        leading = state.leading
        self.numbers = [c.term for c in roles.carries if not c.columns and c.term not in leading]
        self.weighted = [c for c in roles.carries if c.weights is not None]
        terms = [t.body for t in self.numbers]
        terms += [t.shift.slope for t in self.numbers if t.shift is not None]
        terms += [c.weights for c in self.weighted if c.weights is not None]
        self.layout = layout(emitter, roles, shape, leading, terms)
        self.decision = decision
        masks = {m.term for m in decision.masks} if decision is not None else set[Term]()
        self.masked = bool(masks & mentioned(terms, list(self.layout.kept)))
        self.peaks = {m: emitter.local(shape.height, tile_dtype(m)) for m in leading}

    # ---- places

    @property
    def along(self) -> Axis:
        """The axis of the stream that is walked in tiles."""
        return self.roles.along

    def at(self) -> Dim:
        """Where the element at the current row and point of the stream lies in a tile."""
        return self.state.row * self.shape.width + axis_symbol(self.along) - self.begin

    @property
    def length(self) -> Dim:
        """How many points of the stream the tile has."""
        return dims.minimum(self.shape.step, self.along.extent - self.begin)

    def enter(self, tile: Dim) -> None:
        """The tile that is emitted next, by its number."""
        self.tile = tile
        self.begin = tile * self.shape.step
        self.end = dims.minimum(self.begin + self.shape.step, self.along.extent)

    def read(self, scope: Scope, tiles: Mapping[Term, Buffer]) -> None:
        """In a scope that binds a row and a point of the stream: the values of terms in tiles."""
        for term, buffer in tiles.items():
            value = hold(LoadValue(buffer, self.at()), term.dtype)
            scope.memo[term] = self.emitter.let(value, scope)

    # ---- masks

    def ranges(self) -> dict[str, Range]:
        """What the row and the point of the stream go through in the tile."""
        return {
            self.state.rows.name: (self.state.first, self.state.last - 1),
            self.along.name: (self.begin, self.end - 1),
        }

    def seen(self, term: Term, clear: bool) -> Term:
        """The term as it is in a tile where no mask says otherwise."""
        if not clear or self.decision is None:
            return term
        return self.decision.folded(term, self.roles.stream)

    def either(self, scope: Scope, masked: bool, emit: Callable[[Scope, bool], None]) -> None:
        """One of two bodies, if there are masks: the simple one where they keep everything."""
        if self.decision is None or not masked:
            emit(scope, False)
            return
        condition = self.decision.clear(self.ranges())
        for clear, when in ((True, condition), (False, dims.logical_not(condition))):
            inside = Scope(scope)
            emit(inside, clear)
            scope.add(If(when, tuple(inside.stmts)))

    # ---- the steps

    def emit(self, scope: Scope, redo: Value | None) -> None:
        """All carries' share of the tile."""
        for inner in self.roles.inner:
            self.contract(scope, inner)
        points = IndexValue(self.length, dt.int64)
        if self.peaks:
            self.either(scope, True, self.peak)
            self.state.advance(scope, self.peaks, points, redo)
        self.either(scope, self.masked, self.weigh)
        if self.state.moves.count is not None:
            with self.state.over_rows(scope, LoopKind.VECTOR) as row:
                self.state.moves.see(row, self.state.row, points)
        for carry in self.weighted:
            self.accumulate(scope, carry)

    def contract(self, scope: Scope, inner: Inner) -> None:
        """The contraction's tile."""
        emitter, state, shape = self.emitter, self.state, self.shape
        left, right = self.sides[inner]
        dtype, target = held(inner.term), self.layout.inner[inner.term]
        if right.direct:
            emit_product(emitter, state, scope, self.product(inner))
            return
        panel, row = emitter.fresh("q"), emitter.fresh("r")
        first = self.tile * shape.panels
        last = dims.minimum(first + shape.panels, right.count)
        with (
            scope.loop(panel, last, begin=first) as over,
            over.loop(row, state.last, begin=state.first, step=shape.rows) as at,
        ):
            q, acc = dims.symbol(panel), emitter.fresh("t")
            body = Scope(at, {state.rows.name, self.along.name})
            total = hold(Ref(acc, dtype), inner.term.dtype)
            body.add(StoreStmt(target, self.at(), hold(total, target.dtype)))
            tile = Tile(
                acc,
                dtype,
                state.rows.name,
                dims.symbol(row),
                state.last,
                shape.rows,
                self.along.name,
                q * shape.cols,
                self.along.extent,
                shape.cols,
                tuple((a.name, a.extent) for a in right.tiling.k),
                widened(left.value(emitter, at, state.first), dtype),
                widened(right.value(emitter, at, q), dtype),
                tuple(body.stmts),
            )
            at.add(tile)

    def product(self, inner: Inner) -> Product:
        """The contraction's tile, row by row."""
        left, right = self.sides[inner]
        summed = ordered_axes([replace_body(inner.term, inner.right)])
        return Product(
            inner.term,
            lambda scope: left.value(self.emitter, scope, self.state.first),
            right.tiling.rhs,
            Span(self.along, self.begin, self.end),
            tuple(Span(a, 0, a.extent) for a in summed),
            self.layout.inner[inner.term],
            self.at(),
        )

    def added(self, carry: Carry) -> Product:
        """What is added to a carry with columns, row by row."""
        assert carry.weights is not None, "it has columns"
        last, weights = carry.columns[-1], self.layout.weights[carry.weights]
        return Product(
            carry.term,
            lambda _: LoadValue(weights, self.at()),
            self.values[carry].tiling.rhs,
            Span(last, 0, last.extent),
            (Span(self.along, self.begin, self.end),),
            self.state.sums[carry.term],
            self.state.place(carry),
        )

    def peak(self, scope: Scope, clear: bool) -> None:
        """The maxima of each row of the tile, and the sums that averages are made of; what they are
        taken of is kept where it is needed.
        """
        emitter, state, tiles = self.emitter, self.state, self.layout
        for maximum in self.peaks:
            with state.over_rows(scope, LoopKind.SERIAL) as row:
                name = emitter.accumulator(maximum, row)
                with row.loop(self.along.name, self.end, LoopKind.VECTOR, self.begin) as inner:
                    self.read(inner, tiles.inner)
                    value = emitter.value(self.seen(maximum.body, clear), inner)
                    inner.add(Accumulate(name, widened(value, held(maximum))))
                    if maximum.body in tiles.kept:
                        target = tiles.kept[maximum.body]
                        inner.add(StoreStmt(target, self.at(), hold(value, target.dtype)))
                found = hold(Ref(name, held(maximum)), self.peaks[maximum].dtype)
                row.add(StoreStmt(self.peaks[maximum], state.row, found))

    def weigh(self, scope: Scope, clear: bool) -> None:
        """The weights of the tile, and each row's numbers."""
        emitter, state, tiles = self.emitter, self.state, self.layout
        made = {t: b for t, b in tiles.weights.items() if t not in {**tiles.inner, **tiles.kept}}
        if not made and not self.numbers:
            return
        known = {t: b for t, b in tiles.inner.items() if b not in tiles.kept.values()}
        known |= {self.seen(t, clear): b for t, b in tiles.kept.items()}
        with state.over_rows(scope, LoopKind.SERIAL) as row:
            state.know(row)
            names = {t: emitter.accumulator(t, row) for t in self.numbers}
            slopes = {t: emitter.accumulator(t, row) for t in state.moves.slopes}
            with row.loop(self.along.name, self.end, LoopKind.VECTOR, self.begin) as inner:
                self.read(inner, known)
                values = {t: emitter.value(self.seen(t, clear), inner) for t in made}
                for term, name in names.items():
                    value = emitter.value(self.seen(term.body, clear), inner)
                    inner.add(Accumulate(name, widened(value, held(term))))
                for term, name in slopes.items():
                    assert term.shift is not None, "a sum with a slope moves"
                    value = emitter.value(self.seen(term.shift.slope, clear), inner)
                    inner.add(Accumulate(name, widened(value, held(term))))
                for term, value in values.items():
                    stored = widened(value, made[term].dtype)
                    inner.add(StoreStmt(made[term], self.at(), stored))
            for term, name in names.items():
                buffer = state.numbers[term]
                if term in slopes:
                    more = Ref(name, held(term)), Ref(slopes[term], held(term))
                    state.moves.add(row, state.row, term, buffer, more)
                    continue
                before = state.rescaled(term, state.number(buffer))
                total = apply(combine(term.op), before, Ref(name, held(term)))
                row.add(StoreStmt(buffer, state.row, total))

    def accumulate(self, scope: Scope, carry: Carry) -> None:
        """sum[row, columns] = sum * factor + weights @ values."""
        *others, _ = carry.columns
        self.emitter.nest(
            others, scope, LoopKind.SERIAL, lambda inner: self._accumulate(inner, carry)
        )

    def _accumulate(self, scope: Scope, carry: Carry) -> None:
        emitter, state = self.emitter, self.state
        assert carry.weights is not None, "it has columns"
        right, last = self.values[carry], carry.columns[-1]
        if right.direct:
            emit_product(emitter, state, scope, self.added(carry))
            return
        if right.turned is not None:
            weights = self.layout.weights[carry.weights], self.shape.width
            span = self.along, self.begin, self.length
            emit_swapped(emitter, state, scope, carry, right, weights, span)
            return
        dtype, total = held(carry.term), self.state.sums[carry.term]
        panel, row, k = emitter.fresh("q"), emitter.fresh("r"), emitter.fresh("k")
        with (
            scope.loop(panel, right.count) as over,
            over.loop(row, state.last, begin=state.first, step=right.tiling.rows) as at,
        ):
            q, acc, step = dims.symbol(panel), emitter.fresh("t"), dims.symbol(k)
            body = Scope(at, {state.rows.name, last.name})
            before = state.rescaled(carry.term, LoadValue(total, state.place(carry)))
            after = apply(combine(ReduceOp.SUM), before, Ref(acc, dtype))
            body.add(StoreStmt(total, state.place(carry), after))
            weights = self.layout.weights[carry.weights]
            lhs = LoadValue(weights, state.row * self.shape.width + step)
            rhs = right.value(emitter, at, q, {self.along.name: self.begin + step})
            tile = Tile(
                acc,
                dtype,
                state.rows.name,
                dims.symbol(row),
                state.last,
                right.tiling.rows,
                last.name,
                q * right.tiling.cols,
                last.extent,
                right.tiling.cols,
                ((k, self.length),),
                lhs,
                widened(rhs, dtype),
                tuple(body.stmts),
            )
            at.add(tile)
