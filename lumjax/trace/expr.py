"""Expr: bounded integer expressions in one normal form (`trace/dim.py` has the public functions).

An Expr is a sum of products with integer coefficients; the atoms of a product are symbols, floor
divisions, remainders, minima, maxima, comparisons (0 or 1) and selections. It is exact, with
Python's floor division and remainder. Expressions are interned: equal normal forms are one object.
"""

from __future__ import annotations

import math
import operator
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import lru_cache
from typing import Any, TypeAlias

from lumjax.errors import InconclusiveDimError
from lumjax.record import record
from lumjax.trace.indexop import IndexOp, written


@record(eq=False, repr=False, weakref_slot=True)
class Expr:
    """An interned integer expression with `lo <= value <= hi`; None means unbounded.

    Made by `symbol`, operators and the functions of `trace/dim.py`, never directly.
    """

    op: IndexOp
    args: tuple[Dim, ...]
    name: str | None
    lo: int | None
    hi: int | None
    key: str = field(kw_only=True)

    def symbols(self) -> frozenset[str]:
        """The names that the value depends on."""
        return _symbols(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return intern, (self.op, self.args, self.name, self.lo, self.hi)

    def __str__(self) -> str:
        return written(self)

    __repr__ = __str__
    __hash__ = object.__hash__

    def __neg__(self) -> Dim:
        return scale(self, -1)

    def __add__(self, other: Dim) -> Dim:
        return _binary(add, self, other)

    def __radd__(self, other: Dim) -> Dim:
        return _binary(add, other, self)

    def __sub__(self, other: Dim) -> Dim:
        return _binary(subtract, self, other)

    def __rsub__(self, other: Dim) -> Dim:
        return _binary(subtract, other, self)

    def __mul__(self, other: Dim) -> Dim:
        return _binary(multiply, self, other)

    def __rmul__(self, other: Dim) -> Dim:
        return _binary(multiply, other, self)

    def __pow__(self, power: int) -> Dim:
        return math.prod([self] * operator.index(power), start=1)

    def __floordiv__(self, other: Dim) -> Dim:
        return _binary(floor_divide, self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _binary(floor_divide, other, self)

    def __mod__(self, other: Dim) -> Dim:
        return _binary(remainder, self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return _binary(remainder, other, self)

    def __eq__(self, other: object) -> bool:
        return True if self is other else _decide("==", self, other)

    def __lt__(self, other: Dim) -> bool:
        return _decide("<", self, other)

    def __le__(self, other: Dim) -> bool:
        return _decide("<=", self, other)

    def __gt__(self, other: Dim) -> bool:
        return _decide("<", other, self)

    def __ge__(self, other: Dim) -> bool:
        return _decide("<=", other, self)

    def __bool__(self) -> bool:
        return not _decide("==", self, 0)

    def __index__(self) -> int:
        raise _inconclusive(f"int({self})", self)


Dim: TypeAlias = int | Expr
Monomial: TypeAlias = tuple[Expr, ...]
Terms: TypeAlias = dict[Monomial, int]
Interval: TypeAlias = tuple[int | None, int | None]

_table: weakref.WeakValueDictionary[str, Expr] = weakref.WeakValueDictionary()
_lock = threading.Lock()
remember = lru_cache(maxsize=1 << 16)  # identity of the operands is identity of the result
BOOLEAN: Interval = (0, 1)
_KEY_LIMIT = 256  # longer keys are replaced by a digest, so that nesting stays cheap


def symbol(name: str, lo: int | None = 0, hi: Dim | None = None) -> Expr:
    """The symbol `name` with `lo <= name <= hi`; `hi` may itself be symbolic."""
    args = (hi,) if isinstance(hi, Expr) else ()
    return intern(IndexOp.SYMBOL, args, name, lo, bounds(hi)[1] if hi is not None else None)


def bounds(dim: Dim) -> tuple[int | None, int | None]:
    """The interval (lo, hi) that contains every value of `dim`; None where unbounded."""
    return (dim, dim) if isinstance(dim, int) else (dim.lo, dim.hi)


def same(a: Dim, b: Dim) -> bool:
    """Whether two dims have one normal form; False may mean "not known to be equal"."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


# ---- building


def intern(
    op: IndexOp, args: tuple[Dim, ...], name: str | None, lo: int | None, hi: int | None
) -> Expr:
    """The one Expr with this operation and these arguments, which must be in normal form."""
    parts = ",".join([str(a) if isinstance(a, int) else a.key for a in args])
    if op is IndexOp.SYMBOL:
        key = f"{name}[{'' if lo is None else lo}:{parts or ('' if hi is None else hi)}]"
    else:
        key = f"{op.value}({parts})"
    if len(key) > _KEY_LIMIT:
        from hashlib import blake2b  # noqa: PLC0415 - loads OpenSSL; the only place

        key = "#" + blake2b(key.encode(), digest_size=16).hexdigest()
    found = _table.get(key)
    if found is None:
        with _lock:
            found = _table.get(key)
            if found is None:
                found = _table[key] = Expr(op, args, name, lo, hi, key=key)
    return found


def _binary(f: Callable[[Dim, Dim], Dim], a: object, b: object) -> Dim:
    """An operator; NotImplemented where an operand is no integer."""
    x, y = _as_dim(a), _as_dim(b)
    return NotImplemented if x is None or y is None else f(x, y)


def _as_dim(x: object) -> Dim | None:
    if isinstance(x, (int, Expr)):
        return x
    try:
        return operator.index(x)  # type: ignore[arg-type]
    except TypeError:
        return None


def terms_of(dim: Dim) -> Terms:
    """A dim as products -> coefficients; the empty product is the constant."""
    if isinstance(dim, int):
        return {(): dim} if dim else {}
    parts = dim.args if dim.op is IndexOp.ADD else (dim,)
    result: Terms = {}
    for part in parts:
        if isinstance(part, int):
            result[()] = part
        elif part.op is IndexOp.MUL:
            first = part.args[0]
            atoms = part.args[1:] if isinstance(first, int) else part.args
            result[atoms] = first if isinstance(first, int) else 1  # type: ignore[index]
        else:
            result[(part,)] = 1
    return result


def _keys(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    return -len(monomial), tuple([a.key for a in monomial])


def from_terms(terms: Terms) -> Dim:
    """The normal form of a sum of products."""
    terms = {m: c for m, c in terms.items() if c}
    if any(a.op is IndexOp.MOD for m in terms for a in m):
        terms = _rejoin(terms)
    constant = terms.pop((), 0)
    if not terms:
        return constant
    products = [_product(terms[m], m) for m in sorted(terms, key=_keys)]
    if len(products) == 1 and not constant:
        return products[0]
    lows = [p.lo for p in products if p.lo is not None]
    highs = [p.hi for p in products if p.hi is not None]
    lo = sum(lows, constant) if len(lows) == len(products) else None
    hi = sum(highs, constant) if len(highs) == len(products) else None
    args = (*products, constant) if constant else tuple(products)
    return intern(IndexOp.ADD, args, None, lo, hi)


@remember
def _product(coefficient: int, atoms: Monomial) -> Expr:
    if coefficient == 1 and len(atoms) == 1:
        return atoms[0]
    interval: Interval = (coefficient, coefficient)
    for a in atoms:
        interval = _times(interval, (a.lo, a.hi))
    args = atoms if coefficient == 1 else (coefficient, *atoms)
    return intern(IndexOp.MUL, args, None, *interval)


def _times(a: Interval, b: Interval) -> Interval:
    left = (-math.inf if a[0] is None else a[0], math.inf if a[1] is None else a[1])
    right = (-math.inf if b[0] is None else b[0], math.inf if b[1] is None else b[1])
    ends = [x * y if x and y else 0 for x in left for y in right]
    lo, hi = min(ends), max(ends)
    return (None if isinstance(lo, float) else lo), (None if isinstance(hi, float) else hi)


def _rejoin(terms: Terms) -> Terms:
    """Apply c*(x//c) + x%c = x and c*(y%b) + x%c = (c*y + x%c) % (c*b), times any factor."""
    remainders = [a for m in terms for a in m if a.op is IndexOp.MOD]
    for monomial, coefficient in terms.items():
        for k, atom in enumerate(monomial):
            if atom.op is not IndexOp.MOD:
                continue
            x, c = atom.args
            factor = from_terms({monomial[:k] + monomial[k + 1 :]: coefficient})
            for partner in (floor_divide(x, c), *remainders):
                wanted = _distribute(multiply(factor, c), partner)
                if not wanted or any(terms.get(m) != v for m, v in wanted.items()):
                    continue
                joined = _join(atom, partner)
                if joined is not None:
                    left = {m: v for m, v in terms.items() if m not in wanted and m is not monomial}
                    return terms_of(add(from_terms(left), multiply(factor, joined)))
    return terms


def _join(atom: Expr, partner: Dim) -> Dim | None:
    """c*partner + atom as one atom, for atom = x%c and partner = x//c or y%b; else None."""
    x, c = atom.args
    if same(partner, floor_divide(x, c)):
        return x
    if not isinstance(partner, Expr) or not proves(add(c, -1)):
        return None
    y, b = partner.args
    whole = add(multiply(c, y), atom)  # of use where it rejoins in turn
    if not proves(add(b, -1)) or any(a is atom for m in terms_of(whole) for a in m):
        return None
    return remainder(whole, multiply(c, b))


# ---- arithmetic


@remember
def add(a: Dim, b: Dim) -> Dim:
    """The sum."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    terms = terms_of(a)
    for monomial, c in terms_of(b).items():
        terms[monomial] = terms.get(monomial, 0) + c
    return from_terms(terms)


@remember
def scale(a: Dim, factor: int) -> Dim:
    """The product with a constant."""
    if isinstance(a, int) or factor in (0, 1):
        return a * factor if isinstance(a, int) else (a if factor else 0)
    return from_terms({m: c * factor for m, c in terms_of(a).items()})


def subtract(a: Dim, b: Dim) -> Dim:
    """The difference."""
    return add(a, scale(b, -1))


@remember
def multiply(a: Dim, b: Dim) -> Dim:
    """The product."""
    if isinstance(a, int):
        return scale(b, a)
    if isinstance(b, int):
        return scale(a, b)
    return from_terms(_distribute(a, b))


def _distribute(a: Dim, b: Dim) -> Terms:
    terms: Terms = {}
    for m, c in terms_of(a).items():
        for n, d in terms_of(b).items():
            monomial = tuple(sorted(m + n, key=lambda e: e.key))
            terms[monomial] = terms.get(monomial, 0) + c * d
    return terms


@remember
def proves(dim: Dim) -> bool:
    """Whether `dim >= 0` follows from the bounds, symbolic upper bounds included."""
    for _ in range(8):
        lo = bounds(dim)[0]
        if lo is not None and lo >= 0:
            return True
        for monomial, c in terms_of(dim).items():
            found = [a for a in monomial if a.op is IndexOp.SYMBOL and a.args]
            if c < 0 and found and all(a.lo is not None and a.lo >= 0 for a in monomial):
                rest = _without(monomial, (found[0],)) or ()
                gap = subtract(found[0], found[0].args[0])
                dim = subtract(dim, multiply(from_terms({rest: c}), gap))
                break
        else:
            break
    for monomial, c in terms_of(dim).items():  # a minimum is at most each of its operands
        node = monomial[0] if len(monomial) == 1 else None
        if node is not None and (node.op, c > 0) in ((IndexOp.MIN, False), (IndexOp.MAX, True)):
            return any(proves(add(dim, scale(subtract(a, node), c))) for a in node.args)
    return False


@remember
def floor_divide(a: Dim, b: Dim) -> Dim:
    """The quotient a // b, rounded down."""
    if isinstance(b, int):
        if isinstance(a, int):
            return a // b
        return floor_divide(-a, -b) if b < 0 else _divide_by_constant(a, b)
    quotient, rest = _polynomial_division(a, b)
    if proves(rest) and proves(b - 1 - rest):
        return quotient
    return quotient + intern(IndexOp.FLOORDIV, (rest, b), None, *_quotient_bounds(rest, b))


@remember
def remainder(a: Dim, b: Dim) -> Dim:
    """The remainder a % b, with the sign of b."""
    if isinstance(b, int):
        if isinstance(a, int):
            return a % b
        return -remainder(-a, -b) if b < 0 else _remainder_by_constant(a, b)
    _, rest = _polynomial_division(a, b)
    if proves(rest) and proves(b - 1 - rest):
        return rest
    return intern(IndexOp.MOD, (rest, b), None, *_remainder_bounds(rest, b))


def _quotient_bounds(a: Dim, b: Dim) -> Interval:
    (low, high), (least, most) = bounds(a), bounds(b)
    if least is None or least < 1:
        return None, None
    if low is not None:
        low = low // least if low < 0 else (0 if most is None else low // most)
    if high is not None:
        high = high // least if high >= 0 else (-1 if most is None else high // most)
    return low, high


def _remainder_bounds(a: Dim, b: Dim) -> Interval:
    (low, high), (least, most) = bounds(a), bounds(b)
    lo = None if least is None else min(least + 1, 0)
    hi = None if most is None else max(most - 1, 0)
    if least is not None and least >= 1 and low is not None and low >= 0 and high is not None:
        hi = high if hi is None else min(hi, high)
    return lo, hi


def _polynomial_division(a: Dim, b: Expr) -> tuple[Dim, Dim]:
    """(q, r) with a = q*b + r; r lies in [0, b) where that is provable."""
    terms = terms_of(b)
    leading = min((m for m in terms if m), key=_keys)
    quotient: Dim = 0
    for _ in range(16):
        for monomial, c in terms_of(a).items():
            rest = _without(monomial, leading)
            if rest is not None and c % terms[leading] == 0:
                step = from_terms({rest: c // terms[leading]})
                quotient, a = quotient + step, a - multiply(step, b)
                break
        else:
            break
    if proves(-a - 1) and proves(b + a):
        return quotient - 1, a + b
    return quotient, a


def _without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    """The product divided by another, None where it is no multiple."""
    for atom in factor:
        place = next((k for k, a in enumerate(monomial) if a is atom), None)
        if place is None:
            return None
        monomial = monomial[:place] + monomial[place + 1 :]
    return monomial


def _common_parts(terms: Terms, c: int) -> Iterable[tuple[int, Dim, Dim]]:
    """(g, p, s) with `sum(terms) = g*p + s`, g a divisor of c, and s provably in [0, g)."""
    for g in sorted({math.gcd(k, c) for m, k in terms.items() if m} - {1, c}, reverse=True):
        multiple = {m: k // g for m, k in terms.items() if m and k % g == 0}
        small = from_terms({m: k for m, k in terms.items() if not m or k % g})
        lo, hi = bounds(small)
        if lo is not None and hi is not None and lo // g == hi // g:
            yield g, add(from_terms(multiple), lo // g), add(small, -(lo // g) * g)


def _split(monomial: Monomial, k: int, c: int) -> tuple[int, int]:
    # A coefficient that c does not divide stays whole: c*(x//c) + x%c must be recognised later.
    return (k // c, k % c) if not monomial or k % c == 0 else (0, k)


def _divide_by_constant(a: Dim, c: int) -> Dim:
    if c < 2:
        return a if c else 0 // c
    whole: Terms = {}
    rest: Terms = {}
    for monomial, k in terms_of(a).items():
        whole[monomial], rest[monomial] = _split(monomial, k, c)
    quotient, left = from_terms(whole), from_terms(rest)
    lo, hi = bounds(left)
    if lo is not None and hi is not None and lo // c == hi // c:
        return add(quotient, lo // c)
    for g, p, _ in _common_parts(rest, c):
        return add(quotient, floor_divide(p, c // g))
    for monomial, k in rest.items():
        atom = monomial[0] if len(monomial) == k == 1 else None
        m = atom.args[-1] if atom is not None and atom.args else None
        if atom is not None and isinstance(m, int):
            if atom.op is IndexOp.FLOORDIV:  # (x//m + y)//c
                x = add(atom.args[0], scale(subtract(left, atom), m))
                return add(quotient, floor_divide(x, m * c))
            if atom.op is IndexOp.MOD and left is atom and m % c == 0:
                return add(quotient, remainder(floor_divide(atom.args[0], c), m // c))
    new = intern(IndexOp.FLOORDIV, (left, c), None, *_quotient_bounds(left, c))
    return add(quotient, new)


def _remainder_by_constant(a: Dim, c: int) -> Dim:
    rest: Dim = 0
    for monomial, k in terms_of(a).items():
        m = monomial[0].args[1] if len(monomial) == 1 and monomial[0].op is IndexOp.MOD else None
        if isinstance(m, int) and k * m % c == 0:  # (x % m) % c = x % c where c divides m
            rest = add(rest, scale(monomial[0].args[0], k))
            continue
        rest = add(rest, from_terms({monomial: _split(monomial, k, c)[1]}))
    terms = terms_of(rest)
    if any(k % c == 0 for m, k in terms.items() if m):
        return _remainder_by_constant(rest, c)
    lo, hi = bounds(rest := from_terms({m: k if m else k % c for m, k in terms.items()}))
    if lo is not None and hi is not None and lo // c == hi // c:
        return add(rest, -(lo // c) * c)
    for g, p, s in _common_parts(terms_of(rest), c):
        return add(scale(remainder(p, c // g), g), s)
    return intern(IndexOp.MOD, (rest, c), None, *_remainder_bounds(rest, c))


# ---- truth


@remember
def nonnegative(e: Dim) -> Dim:
    """1 where e >= 0, else 0."""
    if isinstance(e, int):
        return int(e >= 0)
    terms = terms_of(e)
    constant = terms.pop((), 0)
    g = math.gcd(*terms.values())
    terms, constant = {m: c // g for m, c in terms.items()}, constant // g
    rest = from_terms(dict(terms))
    atom = from_terms({m: abs(c) for m, c in terms.items()}) if len(terms) == 1 else 0
    if isinstance(atom, Expr) and atom.op is IndexOp.FLOORDIV and isinstance(atom.args[1], int):
        x, c = atom.args[0], atom.args[1]
        if rest is atom:  # x//c >= -k iff x >= -k*c
            return nonnegative(add(x, constant * c))
        return nonnegative(subtract((constant + 1) * c - 1, x))  # x//c <= k iff x < (k+1)*c
    e = add(rest, constant)
    if proves(e):
        return 1
    if isinstance(e, int) or proves(-e - 1):
        return 0
    for g in sorted({abs(c) for c in terms.values()} - {1}) if len(terms) > 1 else ():
        quotient = floor_divide(e, g)  # >= 0 iff e is; simpler where a remainder drops out
        if terms_of(quotient).keys() - {()} < terms.keys():
            return nonnegative(quotient)
    return intern(IndexOp.NONNEGATIVE, (e,), None, *BOOLEAN)


@remember
def zero(e: Dim) -> Dim:
    """1 where e == 0, else 0."""
    if isinstance(e, int):
        return int(e == 0)
    if e.op in _NEGATED:
        return _NEGATED[e.op](e.args[0])
    if bounds(e) == BOOLEAN and e.op not in (IndexOp.AND, IndexOp.OR):
        return subtract(1, e)
    terms = terms_of(e)
    constant = terms.pop((), 0)
    g = math.gcd(*terms.values())
    if terms[min(terms, key=_keys)] < 0:
        g = -g
    if constant % g or proves(e - 1) or proves(-e - 1):
        return 0
    if _same_without_remainders(e):
        return 1
    e = from_terms({(): constant // g, **{m: c // g for m, c in terms.items()}})
    return intern(IndexOp.ZERO, (e,), None, *BOOLEAN)


@remember
def nonzero(e: Dim) -> Dim:
    """1 where e != 0, else 0."""
    if isinstance(e, int):
        return int(e != 0)
    if bounds(e) == BOOLEAN:
        return e
    opposite = zero(e)
    if isinstance(opposite, Expr) and opposite.op is IndexOp.ZERO:
        return intern(IndexOp.NONZERO, opposite.args, None, *BOOLEAN)
    return subtract(1, opposite)


_NEGATED: dict[IndexOp, Callable[[Dim], Dim]] = {
    IndexOp.NONNEGATIVE: lambda e: nonnegative(subtract(-1, e)),
    IndexOp.ZERO: nonzero,
    IndexOp.NONZERO: zero,
}


def _same_without_remainders(e: Expr) -> bool:
    """Whether e is 0 once every x % c is written as x - c*(x // c)."""
    total: Dim = 0
    for monomial, coefficient in terms_of(e).items():
        product: Dim = coefficient
        for atom in monomial:
            x, c = atom.args if atom.op is IndexOp.MOD else (atom, None)
            plain = x if c is None else subtract(x, multiply(c, floor_divide(x, c)))
            product = multiply(product, plain)
        total = add(total, product)
    return same(total, 0)


_QUESTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "<": lambda a, b: nonnegative(add(subtract(b, a), -1)),
    "<=": lambda a, b: nonnegative(subtract(b, a)),
    "==": lambda a, b: zero(subtract(a, b)),
}


def _decide(sign: str, a: object, b: object) -> bool:
    """A comparison as a bool, for users; an error where the bounds leave it open."""
    decided = _binary(_QUESTIONS[sign], a, b)
    if isinstance(decided, Expr):
        raise _inconclusive(f"{a} {sign} {b}", decided)
    return NotImplemented if decided is NotImplemented else bool(decided)


def _inconclusive(what: str, dim: Expr) -> InconclusiveDimError:
    found = sorted(leaves(dim), key=lambda s: s.key)
    ranges = ", ".join(f"{s.name} in [{s.lo}, {'inf' if s.hi is None else s.hi}]" for s in found)
    return InconclusiveDimError(
        operation=what,
        required="a comparison of symbolic dims that their bounds decide",
        got=f"an answer that depends on {ranges}",
        fix="give the symbols tighter bounds, or compute with `dim_value`",
    )


# ---- reading


@remember
def leaves(dim: Expr) -> frozenset[Expr]:
    """The symbols that the value depends on."""
    if dim.op is IndexOp.SYMBOL:
        return frozenset([dim])
    return frozenset(s for a in dim.args if isinstance(a, Expr) for s in leaves(a))


@remember
def _symbols(dim: Expr) -> frozenset[str]:
    return frozenset(s.name for s in leaves(dim) if s.name is not None)
