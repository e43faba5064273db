"""Prove that a kernel touches no memory outside its buffers, at given sizes.

    prove_bounds(kernel, sizes) -> tuple of Breach, empty when every access is proved

A size may be an expression over bounded symbols: then the proof holds for all their values.

An access is proved by replacing variables, innermost first, by the ends of their loops, minima and
maxima by their operands (one of them where that is a bound, else each), and by adding multiples of
what its mask guarantees; the rest is interval arithmetic of `trace/expr.py`. Nothing is run. An
access that cannot be proved counts as a breach.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from lumjax import dtype as dt
from lumjax.kernel.ir import (
    Accumulate,
    Accumulator,
    ApplyValue,
    Const,
    If,
    IndexValue,
    Kernel,
    Let,
    LoadValue,
    Loop,
    Ref,
    Stmt,
    StoreStmt,
    Tile,
    Value,
    behind,
)
from lumjax.kernel.term import Buffer
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr, IndexOp
from lumjax.trace.expr import from_terms, leaves, proves, terms_of

INDEX_LIMIT = 1 << 62  # bytes: offsets are 64-bit
BYTES = (dt.int8, dt.uint8)  # what a Let of these may be is known


@record
class Breach:
    """An access that is not proved: the offset (at the given sizes) and the buffer's elements."""

    buffer: str
    offset: str
    elements: Dim
    kind: str


@record
class Variable:
    """A loop variable or job index: a symbol with numeric bounds, begin <= symbol < end."""

    symbol: Expr
    begin: Dim
    end: Dim


def prove_bounds(kernel: Kernel, sizes: Mapping[str, Dim]) -> tuple[Breach, ...]:
    """The accesses that are not proved to be in bounds at the given values of `kernel.sizes`."""
    breaches: list[Breach] = []
    for phase in kernel.phases:
        walk = _Walk(kernel, sizes)
        jobs = walk.dim(phase.jobs)
        if walk.enter(phase.job, 0, jobs):
            walk.block(phase.body)
        breaches += walk.breaches
    return tuple(dict.fromkeys(breaches))


class _Walk:
    def __init__(self, kernel: Kernel, sizes: Mapping[str, Dim]) -> None:
        self.values: dict[str, Dim] = dict(sizes)
        self.known: dict[Expr, Dim] = {}  # what `dim` found for these values
        self.variables: list[Variable] = []
        self.breaches: list[Breach] = []
        self.count = 0
        self.conditions: list[Dim] = []
        self.open = dims.symbols(*sizes.values())
        self.elements: dict[str, Dim] = {
            b.name: self.dim(math.prod(b.shape, start=1)) for b in kernel.buffers
        }
        self.elements |= {s.buffer.name: s.elements for s in kernel.scratch}

    def dim(self, d: Dim) -> Dim:
        """The expression at the given sizes, over the variables' bounded symbols."""
        return dims.substitute(d, self.values, self.known)

    def define(self, name: str, value: Dim) -> None:
        """Give a name its value. What is known rests on the value that it had, if it had one; code
        mentions a name only when it has one.
        """
        if name in self.values:
            self.known.clear()
        self.values[name] = value

    def enter(self, name: str, begin: Dim, end: Dim) -> bool:
        """Bring a variable into scope; False if its range is empty."""
        low, most = dims.bounds(begin)[0], dims.bounds(end)[1]
        high = None if most is None else most - 1
        if low is not None and high is not None and high < low:
            return False
        self.count += 1
        symbol = dims.symbol(f"{name}.{self.count}", low, high)
        self.define(name, symbol)
        self.variables.append(Variable(symbol, begin, end))
        return True

    # ---- statements

    def block(self, stmts: Sequence[Stmt]) -> None:
        for s in stmts:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        match s:
            case Let(name=name, value=value):
                self.value(value)
                self.define(name, self.let(name, value))
            case Accumulator(init=value) | Accumulate(value=value):
                self.value(value)
            case StoreStmt():
                self.value(s.value)
                self.access(s.buffer, s.offset, s.mask, "store")
            case If():
                self.conditions.append(self.dim(s.condition))
                self.block(s.body)
                self.conditions.pop()
            case Loop():
                depth = len(self.variables)
                if self.enter(s.var, self.dim(s.begin), self.dim(s.end)):
                    self.block(s.body)
                del self.variables[depth:]
            case Tile():
                self.tile(s)
            case _:
                assert_never(s)

    def tile(self, s: Tile) -> None:
        depth = len(self.variables)
        m0, n0 = self.dim(s.m0), self.dim(s.n0)
        rows = dims.minimum(m0 + s.rows, self.dim(s.m_end))
        cols = dims.minimum(n0 + s.cols, self.dim(s.n_end))
        if self.enter(s.m, m0, rows) and self.enter(s.n, n0, cols):
            inner = len(self.variables)
            if all(self.enter(name, 0, self.dim(end)) for name, end in s.k):
                for side in (s.lhs, s.rhs):
                    self.value(side)
                    if s.pairs and isinstance(side, LoadValue) and side.dtype == dt.bfloat16:
                        self.value(behind(side))
            del self.variables[inner:]
            self.block(s.body)
        del self.variables[depth:]

    def let(self, name: str, value: Value) -> Dim:
        """What index expressions know of a Let: a quotient or remainder is a variable of its own,
        lest it be recombined with others and no longer match the masks.
        """
        low: int | None = None
        high: int | None = None
        end: Dim | None = None
        if isinstance(value, IndexValue):
            expr = self.dim(value.expr)
            if isinstance(expr, int) or expr.op not in (IndexOp.FLOORDIV, IndexOp.MOD):
                return expr
            low, high = dims.bounds(expr)
            end = self.end(expr) if self.open else None
            if isinstance(end, int):
                high = end - 1 if high is None else min(high, end - 1)
        elif value.dtype in BYTES:
            info = dt.iinfo(value.dtype)
            low, high = int(info.min), int(info.max)
        self.count += 1
        symbol = dims.symbol(f"{name}.{self.count}", low, high)
        if end is not None and low is not None:
            self.variables.append(Variable(symbol, low, end))
        return symbol

    def end(self, expr: Expr) -> Dim | None:
        """What a quotient or a remainder stays below, in terms of sizes alone; None if unknown."""
        found = [m + 1 for m in _most(expr, self.variables)]
        return min(found, key=_plainness, default=None)

    def value(self, v: Value) -> None:
        match v:
            case LoadValue():
                self.access(v.buffer, v.offset, v.mask, "load")
            case ApplyValue(args=args):
                for a in args:
                    self.value(a)
            case Const() | Ref() | IndexValue():
                pass
            case _:
                assert_never(v)

    # ---- accesses

    def access(self, buffer: Buffer, offset: Dim, mask: Dim, kind: str) -> None:
        """Record a breach unless 0 <= offset < elements wherever the mask holds."""
        at, elements = self.dim(offset), self.elements[buffer.name]
        where = [self.dim(mask), *self.conditions]
        if any(isinstance(c, int) and not c for c in where):
            return
        if _addressable(elements * buffer.dtype.itemsize) and (
            self.inside(at, at, elements)
            or any(self.inside(*ends, elements) for ends in self.narrowed(at, where))
        ):
            return
        self.breaches.append(Breach(buffer.name, str(at), elements, kind))

    def narrowed(self, at: Dim, where: Sequence[Dim]) -> Iterator[tuple[Dim, Dim]]:
        """Bounds of an offset, from what holds wherever it is used: by the facts in their order,
        by those that leave the fewest variables, and by what they say of quotients (and minima and
        maxima, such as of indices that were loaded) as such.
        """
        known = [k for c in where for k in _guarantees(c)]
        inside, facts = _tightened(*_divided(at, where, known))
        yield self.improved(inside, facts, -1), self.improved(inside, facts, 1)
        yield self.fewest(inside, facts, -1), self.fewest(inside, facts, 1)
        for clamps in ((), (IndexOp.MIN, IndexOp.MAX)):
            inside, facts = _tightened(*_named(at, where, clamps))
            yield self.fewest(inside, facts, -1), self.fewest(inside, facts, 1)

    def improved(self, expr: Dim, known: Sequence[Dim], sign: int) -> Dim:
        """A bound of `expr` (sign 1: upper, -1: lower) in fewer variables, from what is >= 0."""
        for fact in known:
            expr = next(self.better(expr, fact, sign), expr)
        return expr

    def fewest(self, expr: Dim, known: Sequence[Dim], sign: int) -> Dim:
        """The same by the fact that leaves the fewest variables, again and again."""
        while options := [b for fact in known for b in self.better(expr, fact, sign)]:
            expr = min(options, key=self.count_of)
        return expr

    def better(self, expr: Dim, fact: Dim, sign: int) -> Iterator[Dim]:
        """Bounds of `expr` in fewer variables, from one fact."""
        for name in sorted(dims.symbols(fact) - self.open):
            mine, its = dims.coefficient(expr, name), dims.coefficient(fact, name)
            if not isinstance(mine, int) or not isinstance(its, int) or not its or mine % its:
                continue
            factor = -mine // its
            if factor * sign > 0:
                better = expr + factor * fact
                if self.count_of(better) < self.count_of(expr):
                    yield better

    def count_of(self, expr: Dim) -> int:
        """How many variables it depends on: sizes are none."""
        return len(dims.symbols(expr) - self.open)

    def inside(self, low: Dim, high: Dim, elements: Dim) -> bool:
        """Whether 0 <= low and high < elements are provable."""
        return _at_most(-low, 0, self.variables) and _at_most(
            high - (elements - 1), 0, self.variables
        )


def _addressable(size: Dim) -> bool:
    """Whether offsets within so many bytes are 64-bit numbers. A size that is known when it runs is
    that of memory which exists.
    """
    return isinstance(size, Expr) or size < INDEX_LIMIT


def _guarantees(condition: Dim) -> Iterator[Dim]:
    """Expressions that are >= 0 where the condition is nonzero."""
    if not isinstance(condition, Expr):
        return
    match condition.op:
        case IndexOp.AND:
            for a in condition.args:
                yield from _guarantees(a)
        case IndexOp.NONNEGATIVE:
            yield condition.args[0]
        case IndexOp.ZERO:
            yield condition.args[0]
            yield -condition.args[0]
        case _:
            if condition.lo is not None and condition.lo >= 0:
                yield condition - 1


def _divided(
    expr: Dim, conditions: Sequence[Dim], known: Sequence[Dim]
) -> tuple[Dim, Sequence[Dim]]:
    """The expression and the facts, with variables that are divided by a constant c written as
    c * quotient + remainder: conditions on the remainder then say something of the quotient.
    """
    values: dict[str, Dim] = {}
    facts: list[Dim] = []
    for quotient in _nodes(IndexOp.FLOORDIV, expr, *conditions):
        inside, c = quotient.args
        low, high = dims.bounds(inside)
        if not isinstance(inside, Expr) or not isinstance(c, int) or low is None or high is None:
            continue
        plain = [
            s
            for s in sorted(leaves(inside), key=lambda s: s.key)
            if dims.coefficient(inside, str(s.name)) == 1 and str(s.name) not in values
        ]
        if not plain:
            continue
        symbol, name = plain[0], str(plain[0].name)
        whole = c * dims.symbol(f"{name}//{c}", low // c, high // c)
        values[name] = whole + dims.symbol(f"{name}%{c}", 0, c - 1) - (inside - symbol)
        if symbol.lo is not None:
            facts.append(values[name] - symbol.lo)
        if symbol.hi is not None:
            facts.append(symbol.hi - values[name])
    if not values:
        return expr, known
    # the conditions anew: a remainder of a variable is now the remainder's own symbol
    again = [k for d in conditions for k in _guarantees(dims.substitute(d, values))]
    return dims.substitute(expr, values), [*again, *facts]


def _named(expr: Dim, conditions: Sequence[Dim], more: Sequence[IndexOp]) -> tuple[Dim, list[Dim]]:
    """The expression and the facts, with a symbol for each quotient, remainder and `more`."""
    known = [k for d in conditions for k in _guarantees(d)]
    names: dict[Expr, Dim] = {}
    for op in (IndexOp.FLOORDIV, IndexOp.MOD, *more):
        for node in _nodes(op, expr, *conditions):
            ends = _quotient(node, known) if op is IndexOp.FLOORDIV else dims.bounds(node)
            names[node] = dims.symbol(f"<{len(names)}>", *ends)
    facts = [k for d in conditions for k in _guarantees(dims.substitute(d, {}, dict(names)))]
    return dims.substitute(expr, {}, dict(names)), facts


def _quotient(node: Expr, known: Sequence[Dim]) -> tuple[int | None, int | None]:
    """Bounds of a quotient, also from what is known of the dividend."""
    inside, divisor = node.args
    low, high = dims.bounds(node)
    if not isinstance(divisor, int) or divisor <= 0:
        return low, high
    for fact in known:
        over, under = fact - inside, fact + inside
        if isinstance(over, int):  # the dividend is at least -over
            low = -over // divisor if low is None else max(low, -over // divisor)
        if isinstance(under, int):  # and at most under
            high = under // divisor if high is None else min(high, under // divisor)
    return low, high


def _nodes(op: IndexOp, *exprs: Dim) -> Iterator[Expr]:
    """Every distinct node of this kind, outer ones first."""
    seen: set[Expr] = set()
    stack = [e for e in reversed(exprs) if isinstance(e, Expr)]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            if node.op is op:
                yield node
            stack += [a for a in reversed(node.args) if isinstance(a, Expr)]


def _tightened(expr: Dim, known: Sequence[Dim]) -> tuple[Dim, list[Dim]]:
    """The expression, and what is known >= 0, with the bounds that the latter set on variables."""
    narrow: dict[str, Expr] = {}
    for fact in known:
        if not isinstance(fact, Expr) or len(names := dims.symbols(fact)) != 1:
            continue
        (name,) = names
        c, rest = dims.coefficient(fact, name), dims.substitute(fact, {name: 0})
        (symbol,) = (narrow[name],) if name in narrow else leaves(fact)
        if not isinstance(c, int) or not c or not isinstance(rest, int):
            continue
        low, high = symbol.lo, symbol.hi
        if c > 0:  # symbol >= -rest / c
            low = -(rest // c) if low is None else max(low, -(rest // c))
        else:  # symbol <= rest / -c
            high = rest // -c if high is None else min(high, rest // -c)
        narrow[name] = dims.symbol(name, low, high)
    values: dict[str, Dim] = {n: v.lo if v.lo == v.hi else v for n, v in narrow.items()}  # type: ignore[misc]
    return dims.substitute(expr, values), [_reduced(dims.substitute(f, values)) for f in known]


def _reduced(fact: Dim) -> Dim:
    """What is >= 0, with the common factor of its coefficients divided out (and rounded down)."""
    terms = terms_of(fact)
    common = math.gcd(*(c for m, c in terms.items() if m))
    return from_terms({m: c // common for m, c in terms.items()}) if common > 1 else fact


def _at_most(expr: Dim, limit: int, variables: Sequence[Variable]) -> bool:
    """Whether `expr <= limit` is provable, eliminating variables from the innermost out."""
    if proves(limit - expr):
        return True
    if not isinstance(expr, Expr):
        return False
    if proves(limit - _unrounded(expr)):
        return True
    for options, each in _extremes(expr):
        proofs = (_at_most(option, limit, variables) for option in options)
        return all(proofs) if each else any(proofs)
    for k in reversed(range(len(variables))):
        variable = variables[k]
        assert variable.symbol.name is not None, "a variable has a name"
        sign = _sign(dims.coefficient(expr, variable.symbol.name))
        if not sign:
            continue
        end = variable.end - 1 if sign > 0 else variable.begin
        bound = dims.substitute(expr, {variable.symbol.name: end})
        return _at_most(bound, limit, variables[:k])
    return False


def _plainness(expr: Dim) -> tuple[int, int]:
    """How much an expression is rounded, and how long it is; of numbers, how large."""
    if isinstance(expr, int):
        return 0, expr
    return expr.key.count(IndexOp.FLOORDIV.value), len(expr.key)


def _most(expr: Dim, variables: Sequence[Variable]) -> Iterator[Dim]:
    """Upper bounds of an expression that mention no variable."""
    if isinstance(expr, int):
        yield expr
        return
    if expr.op in (IndexOp.FLOORDIV, IndexOp.MOD):
        inside, divisor = expr.args
        if _sign(divisor) > 0 and expr.op is IndexOp.MOD:
            yield divisor - 1
        elif _sign(divisor) > 0:
            yield from (dims.floor_divide(m, divisor) for m in _most(inside, variables))
        return
    for options, each in _extremes(expr):
        if not each:
            for option in options:
                yield from _most(option, variables)
        return
    for k in reversed(range(len(variables))):
        name = variables[k].symbol.name
        assert name is not None, "a variable has a name"
        if name not in dims.symbols(expr):
            continue
        sign = _sign(dims.coefficient(expr, name))
        if sign:
            end = variables[k].end - 1 if sign > 0 else variables[k].begin
            yield from _most(dims.substitute(expr, {name: end}), variables[:k])
        return
    yield expr


def _unrounded(expr: Dim) -> Dim:
    """An upper bound in which c * (x // c) is x, and -c * (x // c) is c - 1 - x."""
    for monomial, k in terms_of(expr).items():
        node = monomial[0] if len(monomial) == 1 else None
        if node is None or node.op is not IndexOp.FLOORDIV or not isinstance(node.args[1], int):
            continue
        x, c = node.args[0], node.args[1]
        if k % c == 0:
            expr = expr - k * node + k // c * (x if k > 0 else x - c + 1)
    return expr


def _sign(factor: Dim | None) -> int:
    """1 for what is never negative, -1 for what is never positive, 0 for 0 and what may be both."""
    if factor is None or (isinstance(factor, int) and not factor):
        return 0
    low, high = dims.bounds(factor)
    return 1 if low is not None and low >= 0 else -1 if high is not None and high <= 0 else 0


def _extremes(expr: Expr) -> Iterator[tuple[list[Dim], bool]]:
    """For each minimum or maximum in a sum, the sums with its operands instead, and whether the sum
    is only known to be at most the largest of them: else it is at most each of them. What it is
    multiplied by must have a sign.
    """
    for monomial, c in terms_of(expr).items():
        for k, node in enumerate(monomial):
            if node.op not in (IndexOp.MIN, IndexOp.MAX):
                continue
            factor = from_terms({monomial[:k] + monomial[k + 1 :]: c})
            sign = _sign(factor)
            if sign:
                rest = expr - factor * node
                yield [rest + factor * a for a in node.args], (node.op is IndexOp.MAX) == (sign > 0)
