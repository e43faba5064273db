"""Sums that may be accumulated before a maximum or an average over the same axes is known.

A *statistic* of axes j is a maximum over j, or a pointwise, non-decreasing function of one. The
facts `(affine u j m k v)` and `(scales b j m k c)` say how values in the body of a sum over j
follow a statistic m: v and c are u and b with the running statistic for m, and

    at another value s of the statistic    v(s) = u + k (s - m)    c(s) = b * exp2(k (s - m)).

The factor of what equals the maximum is -inf: where that rises, nothing seen before counts. They
are looked for on demand: in bodies of sums over the axes of a statistic only. What a value is
shifted or scaled by must not wait for a reduction over j itself (`apart`). No rule makes an
exponential of anything but what the program takes the exponential of, less the change of a
statistic; the factor must be provably never positive, so that rescaling cannot overflow.

An *average* of axes j is a sum over j, times or divided by a constant. What is affine in it may be
summed about any guess: partial sums of a product of two such values move by a polynomial of the
change (`Shift`). The loop guesses the average of what it has seen.
"""

from __future__ import annotations

from lumjax import dtype as dt
from lumjax.egraph.rules import Kind, Rule
from lumjax.egraph.rules.witness import I, J, K, Witness, lit, load, op, reduction, total
from lumjax.kernel.term import Reduction, Running, Scale, Shift, Term
from lumjax.trace.form import ReduceOp

_x, _y, _row = load("x", I, J), load("y", I, J), load("r", I)
_cube = load("v", J, K)
_now, _then = load("s", I), load("t", I)  # two values of one statistic
_LOG2_E = 1.4426950408889634


def _rule(
    name: str,
    left: str,
    guard: str,
    concludes: str,
    witness: Witness,
    ops: tuple[str, ...] = (),
    *more: Witness,
) -> Rule:
    kind = Kind.REASSOCIATING
    return Rule(name, "stream", kind, left, "", witness, guard, concludes, ops, more)


# ---- statistics

_top = reduction(ReduceOp.MAX, (J,), _x)


def _monotone(of: Term, same: Term) -> Witness:
    """A function of the maximum is the maximum of the function."""
    return Witness(of, reduction(ReduceOp.MAX, (J,), same), 1e-15)


STATISTICS = (
    _rule(
        "statistic-max",
        "(reduce_max d j x)",
        "(apart x j) (floating d) (= s (sum e i b)) (= j (set-intersect i j))",
        "(statistic _root j)",
        _monotone(_top, _x),
    ),
    _rule(
        "statistic-floor",
        "(max* d m c)",
        "(statistic m j) (invariant c j) (apart c j)",
        "(statistic _root j)",
        _monotone(op("max", _top, _row), op("max", _x, _row)),
    ),
    _rule(
        "statistic-finite",
        "(select d (is_finite b m) m c)",
        "(statistic m j) (invariant c j) (apart c j)",
        "(statistic _root j)",
        _monotone(op("select", op("is_finite", _top, dtype=dt.bool_), _top, lit(0.0)), _x),
    ),
)


# ---- values that move with a statistic


def _moves(at: Term, then: Term, factor: Term) -> Witness:
    """The value at one statistic is that at another plus factor times the difference."""
    moved = op("mul", factor, op("sub", _now, _then))
    return Witness(at, op("add", then, moved), 1e-12)


def _shifted(s: Term) -> Term:
    return op("sub", _x, s)


_one, _minus = lit(1.0), lit(-1.0)

AFFINE = (
    _rule(
        "affine-shift",
        "(@* d a c)",
        "(demand _root j) (affine a j m k v) (apart c j)",
        "(affine _root j m k (@ d v c))",
        _moves(op("add", _now, _x), op("add", _then, _x), _one),
        ("add", "sub"),
        _moves(op("sub", _now, _x), op("sub", _then, _x), _one),
    ),
    _rule(
        "affine-subtracted",
        "(sub d c a)",
        "(demand _root j) (affine a j m k v) (apart c j)",
        "(affine _root j m (neg d k) (sub d c v))",
        _moves(_shifted(_now), _shifted(_then), op("neg", _one)),
    ),
    _rule(
        "affine-times",
        "(@* d a c)",
        "(demand _root j) (affine a j m k v) (apart c j) (invariant c j)",
        "(affine _root j m (@ d k c) (@ d v c))",
        _moves(op("mul", _shifted(_now), _row), op("mul", _shifted(_then), _row), op("neg", _row)),
        ("mul", "div"),
        _moves(
            op("div", _shifted(_now), lit(3.0)),
            op("div", _shifted(_then), lit(3.0)),
            op("div", _minus, lit(3.0)),
        ),
    ),
    _rule(
        "affine-through",
        "(@ d a)",
        "(demand _root j) (affine a j m k v) (= e (dtype a)) (floating d) (floating e)",
        "(affine _root j m (@ d k) (@ d v))",
        _moves(op("neg", _shifted(_now)), op("neg", _shifted(_then)), op("neg", _minus)),
        ("neg", "cast"),
        _moves(op("cast", _shifted(_now)), op("cast", _shifted(_then)), op("cast", _minus)),
    ),
)


# ---- values that scale with a statistic


def _exp2(s: Term, by: float = 1.0) -> Term:
    return op("exp2", op("mul", _shifted(s), lit(by)))


def _grows(at: Term, then: Term, factor: float) -> Witness:
    """The value at one statistic is that at another times exp2(factor * the difference)."""
    change = op("exp2", op("mul", lit(factor), op("sub", _now, _then)))
    return Witness(at, op("mul", then, change), 1e-10)


def _inner(s: Term) -> Term:
    """A sum over k of something that scales with the statistic s."""
    return total((K,), op("mul", _exp2(s), _cube))


SCALES = (
    _rule(
        "scales-exp2",
        "(exp2 d u)",
        "(demand _root j) (affine u j m k v)",
        "(scales _root j m k (exp2 d v))",
        _grows(_exp2(_now, 2.0), _exp2(_then, 2.0), -2.0),
    ),
    _rule(
        "scales-exp",
        "(exp d u)",
        "(demand _root j) (affine u j m k v) (= l (log2_e d))",
        "(scales _root j m (mul d k l) (exp d v))",
        _grows(op("exp", _shifted(_now)), op("exp", _shifted(_then)), -_LOG2_E),
    ),
    _rule(
        "scales-times",
        "(@* d a c)",
        "(demand _root j) (scales a j m k b) (apart c j) (floating d)",
        "(scales _root j m k (@ d b c))",
        _grows(op("mul", _exp2(_now), _y), op("mul", _exp2(_then), _y), -1.0),
        ("mul", "div"),
        _grows(op("div", _exp2(_now), _y), op("div", _exp2(_then), _y), -1.0),
    ),
    _rule(
        "scales-product",
        "(mul d a c)",
        "(demand _root j) (scales a j m k b) (scales c j m l e) (= f (dtype k)) (= f (dtype l))",
        "(scales _root j m (add f k l) (mul d b e))",
        _grows(
            op("mul", _exp2(_now), _exp2(_now, 2.0)),
            op("mul", _exp2(_then), _exp2(_then, 2.0)),
            -3.0,
        ),
    ),
    _rule(
        "scales-sum",
        "(@ d a c)",
        "(demand _root j) (scales a j m k b) (scales c j m k e)",
        "(scales _root j m k (@ d b e))",
        _grows(
            op("add", op("mul", _exp2(_now), _y), _exp2(_now)),
            op("add", op("mul", _exp2(_then), _y), _exp2(_then)),
            -1.0,
        ),
        ("add", "sub"),
        _grows(
            op("sub", op("mul", _exp2(_now), _y), _exp2(_now)),
            op("sub", op("mul", _exp2(_then), _y), _exp2(_then)),
            -1.0,
        ),
    ),
    _rule(
        "scales-through",
        "(@ d a)",
        "(demand _root j) (scales a j m k b) (floating d)",
        "(scales _root j m k (@ d b))",
        _grows(op("neg", _exp2(_now)), op("neg", _exp2(_then)), -1.0),
        ("neg", "cast"),
        _grows(op("cast", _exp2(_now)), op("cast", _exp2(_then)), -1.0),
    ),
    _rule(
        "scales-inner",
        "(sum d i a)",
        "(demand _root j) (scales a j m k b) (invariant m i) (invariant k i)"
        " (= (set-empty) (set-intersect i j))",
        "(scales _root j m k (sum d i b))",
        _grows(_inner(_now), _inner(_then), -1.0),
    ),
    _rule(
        "scales-where",
        "(select d p a c)",
        "(demand _root j) (scales a j m k b) (zero c) (apart p j)",
        "(scales _root j m k (select d p b c))",
        _grows(
            op("select", load("q", I, J, dtype=dt.bool_), _exp2(_now), lit(0.0)),
            op("select", load("q", I, J, dtype=dt.bool_), _exp2(_then), lit(0.0)),
            -1.0,
        ),
    ),
)


def _equal(s: Term) -> Term:
    return op("cast", op("eq", _x, s, dtype=dt.bool_), dtype=dt.float64)


def _anew() -> Witness:
    """What equals a maximum of what was seen so far: nothing does once the maximum has risen."""
    now = op("max", _top, op("add", _row, _row))
    risen = op("eq", now, _top, dtype=dt.bool_)
    return Witness(_equal(now), op("mul", _equal(_top), op("cast", risen, dtype=dt.float64)), 1e-15)


TIES = (
    _rule(
        "scales-ties",
        "(cast d (eq* b x m))",
        "(demand _root j) (statistic m j) (top m x) (floating d) (= e (dtype m)) (= k (lowest e))",
        "(scales _root j m k (cast d (eq b x (running m j))))",
        _anew(),
    ),
)


def _follows() -> Witness:
    """The plain sum, and the sum that may be accumulated under a running statistic."""
    body = op("mul", _exp2(_top), _y)
    running = op("mul", _exp2(Running(_top, frozenset({J}))), _y)
    scale = Scale(_top, _minus)
    followed = Reduction(ReduceOp.SUM, frozenset({J}), running, running.dtype, scale)
    return Witness(total((J,), body), followed, 1e-12)


def _moved() -> Witness:
    """The plain sum, and the sum that may be accumulated about a running average."""
    average = op("div", total((J,), _x), lit(7.0))
    about, running = op("sub", _x, average), op("sub", _y, Running(average, frozenset({J})))
    first = op("sub", _x, Running(average, frozenset({J})))
    slope = op("mul", _minus, op("add", first, running))
    shift = Shift(average, slope, op("mul", _minus, _minus))
    body = op("mul", first, running)
    moved = Reduction(ReduceOp.SUM, frozenset({J}), body, body.dtype, None, shift)
    return Witness(total((J,), op("mul", about, op("sub", _y, average))), moved, 1e-12)


def _taken_apart(name: str) -> tuple[Term, Term]:
    """A sum whose values are shifted by what depends on their maximum."""
    shift = op("log", op("square", _top))
    left = total((J,), op("mul", op(name, _y, shift), _exp2(_top)))
    unshifted = total((J,), op("mul", _y, _exp2(_top)))
    return left, op(name, unshifted, op("mul", shift, total((J,), _exp2(_top))))


def _sum(
    name: str,
    left: str,
    right: str,
    guard: str,
    witness: Witness,
    *more: Witness,
    ops: tuple[str, ...] = (),
) -> Rule:
    kind = Kind.REASSOCIATING
    return Rule(name, "stream", kind, left, right, witness, guard, "", ops, more)


SUMS = (
    _sum(
        "sum-follows",
        "(sum d j a)",
        "(scaled d j b m k)",
        "(scales a j m k b) (statistic m j) (nonpositive k) (invariant k j)"
        " (= t (reduce_max e j x)) (floating d)",
        _follows(),
    ),
    _sum(
        "sum-moves",
        "(sum d j (mul d a c))",
        "(moved d j (mul d u v) m (mul d k (add d u v)) (mul d k k))",
        "(affine a j m k u) (affine c j m k v) (average m j x) (invariant k j) (floating d)",
        _moved(),
    ),
    _sum(
        "sum-nested",  # a sum over rows of sums along them
        "(sum d i b)",
        "(sum d (set-diff i j) (sum d j b))",
        "(statistic m j) (!= i j) (= j (set-intersect i j)) (waits b j) (= t (reduce_max e j x))",
        Witness(total((I, J), _exp2(_top)), total((I,), total((J,), _exp2(_top))), 1e-12),
    ),
    _sum(
        "sum-shifted",  # by what waits for the row: the rest need not
        "(sum d j (mul* d (@* d a c) r))",
        "(@ d (sum d j (mul d a r)) (mul d c (sum d j r)))",
        "(statistic m j) (invariant c j) (varies a j) (waits c j) (= t (reduce_max e j x))",
        Witness(*_taken_apart("add"), 1e-10),
        Witness(*_taken_apart("sub"), 1e-10),
        ops=("add", "sub"),
    ),
)

RULES = (*STATISTICS, *AFFINE, *SCALES, *TIES, *SUMS)
