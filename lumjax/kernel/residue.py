"""Axes whose coordinates take remainders: cut by the remainder, so that what is left is affine.

What a stride spreads out is found at p only where (a + b * p) % c is right for it: transposed
convolutions do so. With t for that remainder and p = c * q + e * (t - a) both q and t walk memory
in steps, and the terms know nothing of p. Few points of (q, t) are no point of p: they are computed
like the others and not stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from lumjax.kernel.emit import Emitter
from lumjax.kernel.evaluate import factors, literal
from lumjax.kernel.prepare import offset
from lumjax.kernel.rewrite import axis_symbol, index_pairs, rebuild, rewrite
from lumjax.kernel.term import (
    Apply,
    Axis,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Term,
    free_names,
    loads,
    subterms,
)
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr, IndexOp

_STEPS = 3  # how many multiples of the divisor away a slope is looked for


@record
class Cut:
    """Roots over new axes, those of the remainders among them; where the elements of each one's
    buffer lie (offset and mask); and where sums over the named axes end, if they end early.
    """

    roots: tuple[Root, ...]
    remainders: frozenset[str]
    places: tuple[tuple[str, tuple[Dim, Dim]], ...]
    ends: tuple[tuple[str, Dim], ...]


@record
class _Remainder:
    """(start + slope * axis) % divisor, as it occurs in index expressions."""

    axis: Axis
    node: Expr
    start: int
    slope: int
    divisor: int


def by_remainders(emitter: Emitter, roots: Sequence[Root]) -> Cut | None:
    """The roots with such axes cut, None where there are none."""
    terms = [r.term for r in roots]
    if any(t.indices for t in _all(terms) if isinstance(t, Load | Index)):
        return None
    found = roots
    names: dict[str, Dim] = {}
    residues: set[str] = set()
    masks: Dim = 1
    while (remainder := _remainder(found)) is not None:
        t = Axis(emitter.fresh("t"), remainder.divisor)
        options = [_replaced(emitter, found, remainder, t, e) for e in _slopes(remainder)]
        found, place = min(options, key=lambda o: _mentioned(o[0]))
        again = {remainder.axis.name: place}  # the axis may come from an earlier cut
        names = {n: dims.substitute(p, again) for n, p in names.items()} | again
        residues.add(t.name)
        masks = dims.logical_and(
            dims.substitute(masks, again), _within(place, remainder.axis.extent)
        )
    if found is roots:
        return None
    found, ends = _ended(found, residues, {_quotient(n) for n in names})
    places: list[tuple[str, tuple[Dim, Dim]]] = []
    for root in roots:
        at = offset(
            tuple(a.extent for a in root.axes),
            [names.get(a.name, axis_symbol(a)) for a in root.axes],
        )
        places.append((root.buffer.name, (at, masks)))
    return Cut(tuple(found), frozenset(residues), tuple(places), tuple(ends.items()))


def _all(terms: Sequence[Term]) -> Iterator[Term]:
    return (t for term in terms for t in subterms(term))


def _within(place: Dim, extent: Dim) -> Dim:
    return dims.logical_and(dims.less_equal(0, place), dims.less(place, extent))


def _remainder(roots: Sequence[Root]) -> _Remainder | None:
    """The first remainder of an axis that all roots have, in loads."""
    for term in (r.term for r in roots):
        for load in loads(term):
            for node in _nodes(*load.coords, load.valid):
                for axis in roots[0].axes:
                    found = _linear(axis, node)
                    if found is not None and all(axis in r.axes for r in roots):
                        return found
    return None


def _nodes(*exprs: Dim) -> Iterator[Expr]:
    stack = [e for e in exprs if isinstance(e, Expr)]
    while stack:
        node = stack.pop()
        if node.op is IndexOp.MOD:
            yield node
        stack += [a for a in node.args if isinstance(a, Expr)]


def _linear(axis: Axis, node: Expr) -> _Remainder | None:
    inside, divisor = node.args
    if not isinstance(divisor, int) or not isinstance(axis.extent, int):
        return None
    if not isinstance(inside, Expr) or dims.symbols(inside) != frozenset({axis.name}):
        return None
    slope, start = dims.coefficient(inside, axis.name), dims.substitute(inside, {axis.name: 0})
    if not isinstance(slope, int) or not isinstance(start, int):
        return None
    if axis.extent < divisor or math.gcd(slope, divisor) != 1:
        return None
    return _Remainder(axis, node, start, slope, divisor)


def _slopes(remainder: _Remainder) -> list[int]:
    """How p may move with t: the inverse of its slope, but for multiples of the divisor."""
    inverse = pow(remainder.slope, -1, remainder.divisor)
    return [inverse + k * remainder.divisor for k in range(-_STEPS, _STEPS)]


def _replaced(
    emitter: Emitter, roots: Sequence[Root], remainder: _Remainder, t: Axis, slope: int
) -> tuple[list[Root], Dim]:
    """The roots over (t, q) instead of p, and p in terms of these."""
    axis, divisor = remainder.axis, remainder.divisor
    assert isinstance(axis.extent, int), "only such axes are cut"
    steps = [slope * (k - remainder.start) for k in range(divisor)]
    first = -(max(steps) // divisor)
    last = (axis.extent - 1 - min(steps)) // divisor
    q = Axis(_quotient(axis.name), last - first + 1)
    place = divisor * (axis_symbol(q) + first) + slope * (axis_symbol(t) - remainder.start)
    names: dict[str, Dim] = {axis.name: place}

    def changed(d: Dim) -> Dim:
        return dims.substitute(d, names, {remainder.node: axis_symbol(t)})

    def leaf(term: Term, kids: tuple[Term, ...]) -> Term:
        if axis.name not in free_names(term):
            return rebuild(term, kids, {})
        if isinstance(term, Index):
            return Index(changed(term.expr), term.dtype, index_pairs(term, kids))
        if not isinstance(term, Load):
            return rebuild(term, kids, {})
        (at,) = map(changed, term.coords)
        valid = changed(term.valid)
        if q.name in dims.symbols(at):  # beyond the axis's ends nothing is read
            valid = dims.logical_and(valid, _within(at, math.prod(term.buffer.shape, start=1)))
        return Load(term.buffer, (at,), valid, term.fill)

    memo: dict[Term, Term] = {}
    found = [
        Root(
            r.buffer,
            (t, *(q if a is axis or a == axis else a for a in r.axes)),
            rewrite(r.term, leaf, memo),
        )
        for r in roots
    ]
    return found, place


def _quotient(name: str) -> str:
    return f"{name}q"


def _mentioned(roots: Sequence[Root]) -> int:
    """How many axes the coordinates of loads mention, and how many divisions are left."""
    total = 0
    for load in dict.fromkeys(x for r in roots for x in loads(r.term)):
        total += len(dims.symbols(*load.coords))
        total += 100 * sum(1 for c in load.coords for _ in _divisions(c))
    return total


def _divisions(expr: Dim) -> Iterator[Expr]:
    stack = [expr] if isinstance(expr, Expr) else []
    while stack:
        node = stack.pop()
        if node.op in (IndexOp.MOD, IndexOp.FLOORDIV):
            yield node
        stack += [a for a in node.args if isinstance(a, Expr)]


# ---- sums that end early


def _ended(
    roots: Sequence[Root], residues: set[str], quotients: set[str]
) -> tuple[Sequence[Root], dict[str, Dim]]:
    """The roots without the conditions that say how far a sum of products goes at each remainder,
    and where it ends instead. What is left of the larger side can then be read through windows.
    """
    term = next(t for r in roots for t in subterms(r.term) if isinstance(t, Reduction))
    pair = factors(term)
    if pair is None:
        return roots, {}
    small, large = sorted(pair, key=lambda t: bool(free_names(t) & quotients))
    inner = {a.name: a for a in sorted(term.axes, key=lambda a: a.name)}
    ends: dict[str, Dim] = {}
    everywhere: Dim = 1  # whether there is a sum at all
    gone: list[Dim] = []
    for condition in _conjuncts(small.valid) if isinstance(small, Load) else ():
        if not _zero(small, condition) or not _zero(large, condition):
            continue
        if dims.symbols(condition) <= residues:
            everywhere = dims.logical_and(everywhere, dims.truth(condition))
            gone.append(condition)
        elif (end := _end(condition, inner, residues)) is not None and end[0] not in ends:
            ends[end[0]] = end[1]
            gone.append(condition)
    if not dims.same(everywhere, 1):
        name = next(iter(inner))
        ends[name] = ends.get(name, inner[name].extent) * everywhere
    if not gone:
        return roots, {}
    memo: dict[Term, Term] = {}
    new = rewrite(large, lambda t, kids: _freed(t, kids, gone), memo)
    sides = tuple(new if t is large else t for t in pair)
    assert isinstance(term.body, Apply), "it is a product"
    body = Apply(term.body.op, sides, term.body.dtype)
    whole: dict[Term, Term] = {term: Reduction(term.op, term.axes, body, term.dtype)}
    return [
        Root(r.buffer, r.axes, rewrite(r.term, lambda t, kids: rebuild(t, kids, {}), whole))
        for r in roots
    ], ends


def _end(condition: Dim, inner: Mapping[str, Axis], residues: set[str]) -> tuple[str, Dim] | None:
    """Which sum a condition ends, and where."""
    if not isinstance(condition, Expr) or condition.op is not IndexOp.NONNEGATIVE:
        return None
    mine = sorted(dims.symbols(condition) - residues)
    if len(mine) != 1 or mine[0] not in inner:
        return None
    (name,) = mine
    step = dims.coefficient(condition.args[0], name)
    if not isinstance(step, int) or step >= 0:
        return None
    rest = dims.substitute(condition.args[0], {name: 0})
    return name, dims.minimum(inner[name].extent, dims.floor_divide(rest, -step) + 1)


def _conjuncts(valid: Dim) -> tuple[Dim, ...]:
    if isinstance(valid, Expr) and valid.op is IndexOp.AND:
        return tuple(c for a in valid.args for c in _conjuncts(a))
    return (valid,)


def _among(condition: Dim, others: Sequence[Dim]) -> bool:
    return any(condition is c for c in others)


def _zero(term: Term, condition: Dim) -> bool:
    """Whether a term is zero where a condition does not hold."""
    match term:
        case Load(fill=fill):
            return (fill is None or not literal(fill)) and _among(condition, _conjuncts(term.valid))
        case Apply(op=op, args=args):
            if op.name == "select":
                test, other = args[0], args[2]
                known = isinstance(test, Index) and _among(condition, _conjuncts(test.expr))
                return known and isinstance(other, Lit) and not literal(other)
            return op.name in ("mul", "neg", "cast") and all(_zero(a, condition) for a in args)
        case _:
            return False


def _freed(term: Term, kids: tuple[Term, ...], gone: Sequence[Dim]) -> Term:
    """The node without these conditions."""
    match term:
        case Load():
            valid = _remaining(term.valid, gone)
            return Load(term.buffer, term.coords, valid, term.fill, index_pairs(term, kids))
        case Index():
            expr = _remaining(term.expr, gone)
            return Index(expr, term.dtype, index_pairs(term, kids))
        case _:
            return rebuild(term, kids, {})


def _remaining(valid: Dim, gone: Sequence[Dim]) -> Dim:
    kept: Dim = 1
    for c in _conjuncts(valid):
        if not _among(c, gone):
            kept = dims.logical_and(kept, c)
    return kept
