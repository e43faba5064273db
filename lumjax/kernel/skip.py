"""Tiles that masks decide: which comparisons of indices hold on a whole tile, what then remains.

    decide(roles) -> Decision | None

A mask is a truth that depends on indices alone. Where it keeps everything, its selects fold away
(`clear`). Where it keeps nothing, a tile is idle if every carry's update is provably the identity:
a maximum of -inf, a sum of zeros, weights of zero. What that proof assumes is checked at run time:
`finite` loads are scanned, and if a masked value is finite but low, each row's final statistic must
be so far above `low` that the exponential of the difference is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.evaluate import identity, literal
from lumjax.kernel.rewrite import rebuild
from lumjax.kernel.roles import Carry, Roles, statistic, visible
from lumjax.kernel.term import (
    Apply,
    Axis,
    Index,
    Lit,
    Load,
    Reduction,
    Running,
    Scale,
    Term,
    children,
    free_names,
)
from lumjax.record import record
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim, Expr, IndexOp
from lumjax.trace.form import ReduceOp

Range: TypeAlias = tuple[Dim, Dim]  # the first and the last value of a variable


@record
class Mask:
    """A truth over indices; a tile on which it is never `keeps` is idle."""

    term: Term
    condition: Dim
    keeps: bool


@record
class Decision:
    """What masks decide, and under which assumptions idle tiles may be skipped.

    `finite`: loads whose elements must be finite; `nonzero`: those of them that must not be zero;
    `low`: pairs of a scale and the (folded) value that its statistic must exceed by far.
    """

    masks: tuple[Mask, ...]
    finite: tuple[Load, ...]
    nonzero: frozenset[Load]
    low: tuple[tuple[Scale, Term], ...]

    def clear(self, ranges: Mapping[str, Range]) -> Dim:
        """Whether all masks keep everything in a tile."""
        result: Dim = 1
        for mask in self.masks:
            result = dims.logical_and(result, spans(mask.condition, ranges)[not mask.keeps])
        return result

    def idle(self, ranges: Mapping[str, Range]) -> Dim:
        """Whether some mask keeps nothing in a tile."""
        result: Dim = 0
        for mask in self.masks:
            result = dims.logical_or(result, spans(mask.condition, ranges)[mask.keeps])
        return result

    def folded(self, term: Term, stream: frozenset[Axis]) -> Term:
        """The term where all masks keep everything."""
        return fold(term, {m.term: m.keeps for m in self.masks}, stream)


def decide(roles: Roles) -> Decision | None:
    """The masks of a loop over tiles that leave tiles idle; None if there are none."""
    terms = [c.term.body for c in roles.carries] + [
        t for c in roles.carries for t in (c.weights, c.values) if t is not None
    ]
    found: list[Mask] = []
    state = _Assumptions()
    for term, condition in masks(terms, roles).items():
        for keeps in (True, False):
            trial = _Assumptions()
            if _idle(roles, {term: not keeps}, trial):
                found.append(Mask(term, condition, keeps))
                state.add(trial)
                break
    if not found:
        return None
    return Decision(tuple(found), tuple(state.finite), frozenset(state.nonzero), tuple(state.low))


# ---- masks


def masks(terms: Iterable[Term], roles: Roles) -> dict[Term, Dim]:
    """The largest truths over indices that vary within a tile, with their conditions."""
    names = {roles.along.name} | ({roles.rows.name} if roles.rows else set())
    found: dict[Term, Dim] = {}
    seen: set[Term] = set()
    stack = list(terms)
    while stack:
        term = stack.pop()
        if term in seen or isinstance(term, Reduction | Running):
            continue
        seen.add(term)
        known = condition(term) if dt.is_bool(term.dtype) else None
        if isinstance(known, Expr) and free_names(term) & names:
            found[term] = known
        else:
            stack.extend(children(term))
    return found


def condition(term: Term) -> Dim | None:
    """A bool term as an index expression that is 0 or 1; None if it is none."""
    match term:
        case Lit():
            return int(bool(literal(term)))
        case Index(expr=expr, indices=()):
            return dims.truth(expr)
        case Apply(op=op, args=args):
            if op.name in _COMPARE:
                sides = [integer(a) for a in args]
                left, right = sides
                if left is None or right is None:
                    return None
                return _COMPARE[op.name](left, right)
            parts = [condition(a) if dt.is_bool(a.dtype) else None for a in args]
            return _connected(op.name, parts)
        case _:
            return None


def _connected(name: str, parts: Sequence[Dim | None]) -> Dim | None:
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    match name, known:
        case "and", [a, b]:
            return dims.logical_and(a, b)
        case "or", [a, b]:
            return dims.logical_or(a, b)
        case "not", [a]:
            return dims.logical_not(a)
        case "select", [which, a, b]:
            kept = dims.logical_and(which, a)
            return dims.logical_or(kept, dims.logical_and(dims.logical_not(which), b))
        case _:
            return None


_COMPARE = {
    "ge": lambda a, b: dims.less_equal(b, a),
    "gt": lambda a, b: dims.less(b, a),
    "le": dims.less_equal,
    "lt": dims.less,
    "eq": dims.equal,
    "ne": lambda a, b: dims.logical_not(dims.equal(a, b)),
}


def integer(term: Term) -> Dim | None:
    """An integer term as an index expression; None if it is none."""
    if not dt.is_integer(term.dtype):
        return None
    match term:
        case Lit():
            return int(literal(term))
        case Index(expr=expr, indices=()):
            return expr
        case Apply(op=op, args=args):
            parts = [integer(a) for a in args]
            known = [p for p in parts if p is not None]
            if len(known) < len(parts):
                return None
            match op.name, known:
                case "add", [a, b]:
                    return a + b
                case "sub", [a, b]:
                    return a - b
                case "mul", [a, b]:
                    return a * b
                case "neg", [a]:
                    return -a
                case "cast", [a]:
                    return a
                case _:
                    return None
        case _:
            return None


def spans(condition: Dim, ranges: Mapping[str, Range]) -> tuple[Dim, Dim]:
    """Whether a condition provably holds everywhere, and nowhere, while its variables go through
    `ranges`: two conditions over the ranges' ends.
    """
    if isinstance(condition, int):
        return int(condition != 0), int(condition == 0)
    match condition.op:
        case IndexOp.AND | IndexOp.OR:
            pairs = [spans(c, ranges) for c in condition.args]
            both = condition.op is IndexOp.AND
            always, never = pairs[0]
            for a, n in pairs[1:]:
                always = (dims.logical_and if both else dims.logical_or)(always, a)
                never = (dims.logical_or if both else dims.logical_and)(never, n)
            return always, never
        case IndexOp.NONNEGATIVE:
            ends = extremes(condition.args[0], ranges)
            return (0, 0) if ends is None else (dims.less_equal(0, ends[0]), dims.less(ends[1], 0))
        case IndexOp.ZERO | IndexOp.NONZERO:
            ends = extremes(condition.args[0], ranges)
            if ends is None:
                return 0, 0
            low, high = ends
            zero = dims.logical_and(dims.less_equal(0, low), dims.less_equal(high, 0))
            other = dims.logical_or(dims.less(0, low), dims.less(high, 0))
            return (zero, other) if condition.op is IndexOp.ZERO else (other, zero)
        case _:
            return 0, 0


def extremes(expr: Dim, ranges: Mapping[str, Range]) -> Range | None:
    """Bounds of an expression that is affine in the variables with known signs, else None."""
    low = high = expr
    for name, (first, last) in ranges.items():
        slope = dims.coefficient(expr, name)
        if not isinstance(slope, int):
            return None
        begin, end = (first, last) if slope >= 0 else (last, first)
        low = dims.substitute(low, {name: begin})
        high = dims.substitute(high, {name: end})
    return low, high


# ---- what remains


def fold(term: Term, decided: Mapping[Term, bool], stream: frozenset[Axis]) -> Term:
    """The term with masks replaced by truths, and selects of known truths by their branches."""
    memo: dict[Term, Term] = {}

    def known(t: Term) -> bool | None:
        return bool(literal(t)) if isinstance(t, Lit) and dt.is_bool(t.dtype) else None

    for t in visible([term], stream):
        if t in decided:
            memo[t] = Lit(t.dtype, np.asarray(decided[t]).tobytes())
            continue
        if isinstance(t, Reduction | Running):
            memo[t] = t
            continue
        kids = tuple(memo[c] for c in children(t))
        memo[t] = rebuild(t, kids, {})
        if not isinstance(t, Apply):
            continue
        truths = [known(k) for k in kids]
        if t.op.name == "select" and truths[0] is not None:
            memo[t] = kids[1] if truths[0] else kids[2]
        elif t.op.name in ("and", "or") and dt.is_bool(t.dtype):
            neutral = t.op.name == "and"
            for mine, other in ((0, 1), (1, 0)):
                if truths[mine] is not None:
                    memo[t] = kids[other] if truths[mine] == neutral else kids[mine]
    return memo[term]


def boundable(term: Term, stream: frozenset[Axis]) -> bool:
    """Whether `fold_skip` can bound the term by the magnitudes of its loads."""
    for t in visible([term], stream):
        match t:
            case Lit() | Load():
                pass
            case Apply(op=op):
                if op.name not in ("add", "sub", "mul", "neg", "select", "tanh"):
                    return False
            case Reduction(body=body):
                if not boundable(body, stream):
                    return False
            case Index() | Running():
                return False
    return True


class _Kind(Enum):
    """What is known of a value that is not a constant."""

    FINITE = auto()
    NONZERO = auto()  # finite and not zero
    STATISTIC = auto()  # a running statistic: finite, and far above what is masked
    LOW = auto()  # finite, and far below the statistic
    FAR = auto()  # so low that its exponential is zero


_Known: TypeAlias = "float | _Kind | None"


@dataclass(slots=True)
class _Assumptions:
    finite: dict[Load, None] = field(default_factory=dict[Load, None])
    nonzero: dict[Load, None] = field(default_factory=dict[Load, None])
    low: dict[tuple[Scale, Term], None] = field(default_factory=dict[tuple[Scale, Term], None])

    def add(self, other: _Assumptions) -> None:
        """All of another's too."""
        self.finite |= other.finite
        self.nonzero |= other.nonzero
        self.low |= other.low


def _idle(roles: Roles, decided: Mapping[Term, bool], given: _Assumptions) -> bool:
    """Whether a tile on which the masks are as decided leaves every carry as it is."""
    run = _Run(given, roles.stream)
    for carry in roles.carries:
        if carry.term.op is not ReduceOp.SUM and not _idle_extreme(roles, carry, decided, run):
            return False
    for carry in roles.carries:
        if carry.term.op is ReduceOp.SUM:
            weights = carry.term.body if carry.weights is None else carry.weights
            if run.value(fold(weights, decided, roles.stream)) != 0.0:
                return False
            if carry.values is not None and not run.bounded(
                fold(carry.values, decided, roles.stream)
            ):
                return False
    return True


def _idle_extreme(roles: Roles, carry: Carry, decided: Mapping[Term, bool], run: _Run) -> bool:
    """Whether a maximum (minimum, product) takes only neutral values, or ones far below it."""
    body = fold(carry.term.body, decided, roles.stream)
    neutral = float(identity(carry.term.op, carry.term.dtype))
    if run.value(body) == neutral:
        return True
    scales = [
        c.term.scale
        for c in roles.carries
        if c.term.scale is not None and statistic(c.term) is carry.term
    ]
    if carry.term.op is not ReduceOp.MAX or not scales or not run.bounded(body):
        return False
    if not boundable(body, roles.stream):
        return False
    run.memo[body] = _Kind.LOW
    for scale in scales:
        run.given.low[scale, body] = None
    return True


class _Run:
    """Abstract evaluation of what is left of terms on an idle tile."""

    def __init__(self, given: _Assumptions, stream: frozenset[Axis]) -> None:
        self.given = given
        self.stream = stream
        self.memo: dict[Term, _Known] = {}

    def bounded(self, term: Term) -> bool:
        """Whether the term is finite, given finite loads."""
        value = self.value(term)
        return isinstance(value, _Kind) or (value is not None and np.isfinite(value))

    def value(self, term: Term) -> _Known:
        """What is known of the term."""
        for t in visible([term], self.stream):
            if t not in self.memo:
                self.memo[t] = self._compute(t)
        return self.memo[term]

    def _compute(self, term: Term) -> _Known:
        match term:
            case Lit():
                return float(literal(term).real) if not dt.is_complex(term.dtype) else None
            case Index():
                return _Kind.FINITE
            case Load():
                return self._load(term)
            case Running():
                return _Kind.STATISTIC
            case Reduction(body=body):
                return _Kind.FINITE if self.bounded(body) else None
            case Apply():
                return self._apply(term, [self.memo[a] for a in term.args])

    def _load(self, load: Load) -> _Known:
        if dt.is_complex(load.dtype) or (
            load.fill is not None and not np.isfinite(float(literal(load.fill)))
        ):
            return None
        if dt.is_floating(load.dtype):
            self.given.finite[load] = None
        return _Kind.FINITE

    def _apply(self, term: Apply, args: list[_Known]) -> _Known:  # noqa: C901
        name = term.op.name
        if name == "select" and isinstance(args[0], float):
            return args[1] if args[0] else args[2]
        if any(a is None for a in args):
            return None
        if name == "add" and _never_zero(term):
            return _Kind.NONZERO
        if all(isinstance(a, float) for a in args):
            return _constant(term, args)
        match name, args:
            case ("sub", [_Kind.LOW, _Kind.STATISTIC]):
                return _Kind.FAR
            case (("add" | "sub"), [float() as c, _Kind()]) if not np.isfinite(c):
                return c
            case (("add" | "sub"), [_Kind(), float() as c]) if not np.isfinite(c):
                return c if name == "add" else -c
            case ("mul", [(float() as c), kind]) | ("mul", [kind, (float() as c)]):
                return self._scaled(c, kind)
            case ("div", [number, _]) if self._divides(term.args[1]):
                return 0.0 if number == 0.0 else _Kind.FINITE
            case (("exp" | "exp2"), [_Kind.FAR]):
                return 0.0
            case ("eq", [_Kind.LOW, _Kind.STATISTIC] | [_Kind.STATISTIC, _Kind.LOW]):
                return 0.0
            case ("eq", [float() as c, _Kind.STATISTIC] | [_Kind.STATISTIC, float() as c]):
                return 0.0 if np.isinf(c) else _Kind.FINITE
            case ("neg", [_Kind.FINITE | _Kind.NONZERO as kind]):
                return kind
            case ("cast", [kind]) if dt.is_floating(term.dtype):
                return kind
            case ("select", [_, a, b]) if a == b:
                return a
            case _ if name in _TOTAL and all(
                isinstance(a, _Kind) or (isinstance(a, float) and np.isfinite(a)) for a in args
            ):
                return _Kind.FINITE
            case _:
                return None

    def _scaled(self, c: float, kind: _Known) -> _Known:
        if c == 0.0:
            return 0.0
        if not np.isfinite(c) or not isinstance(kind, _Kind):
            return None
        return kind if kind is _Kind.FAR and c > 0 else _Kind.FINITE

    def _divides(self, term: Term) -> bool:
        """Whether a divisor is finite and not zero, if need be by checking it."""
        if self.memo[term] is _Kind.NONZERO:
            return True
        if isinstance(term, Load) and term.fill is None:
            self.given.nonzero[term] = None
            return True
        return False


def _never_zero(term: Apply) -> bool:
    """X + cast(x == 0)."""
    x, other = term.args
    if not isinstance(other, Apply) or other.op.name != "cast":
        return False
    (test,) = other.args
    return (
        isinstance(test, Apply)
        and test.op.name == "eq"
        and test.args[0] is x
        and isinstance(test.args[1], Lit)
        and float(literal(test.args[1])) == 0.0
    )


def _constant(term: Apply, args: Sequence[_Known]) -> _Known:
    if dt.is_complex(term.dtype) or any(dt.is_complex(a.dtype) for a in term.args):
        return None
    if term.op.name == "cast":
        return None if args[0] is None or isinstance(args[0], _Kind) else args[0]
    with np.errstate(all="ignore"):
        values = [
            np.asarray(v, np.float64).reshape(1).astype(a.dtype)
            for v, a in zip(args, term.args, strict=True)
        ]
        return float(np.asarray(term.op.numpy(*values)).reshape(-1)[0])


_TOTAL = frozenset({
    "add", "sub", "mul", "neg", "abs", "max", "min", "square", "tanh", "exp", "exp2", "sin", "cos",
    "select", "and", "or", "xor", "not", "eq", "ne", "lt", "le", "gt", "ge", "cast", "sign",
    "is_finite", "logistic", "erf",
})  # fmt: skip
