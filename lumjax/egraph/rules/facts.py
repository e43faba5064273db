"""Facts about e-classes: free axes, dtype, literals. A missing fact is an error, never a guess."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lumjax import dtype as dt
from lumjax.egraph.rules import COMMUTATIVE
from lumjax.kernel.evaluate import literal as value_of
from lumjax.kernel.term import Lit

# Ap1..ApN: scalar operations; Red: reductions; Leaf: loads and index values (Index: with terms);
# Scaled: a sum that follows a running statistic (body, statistic, factor); Moved: one that follows
# an average (body, statistic, slope, bend); Run: that, so far.
SORTS = """
(sort Axes (Set i64))
(datatype* (E (Leaf i64) (Index i64 Es) (Const i64)
  (Ap1 String i64 E) (Ap2 String i64 E E) (Ap3 String i64 E E E) (ApN String i64 Es)
  (Red String i64 Axes E) (Scaled i64 Axes E E E) (Moved i64 Axes E E E E)
  (Run E Axes)) (sort Es (Vec E)))
(function free (E) Axes :merge (set-intersect old new))
(function bound (E) Axes :merge (set-intersect old new))
(function dtype (E) i64 :no-merge)
(function node (i64) E :no-merge)
(function extent (i64 i64) E :no-merge)
(function log2_e (i64) E :no-merge)
(function ln_2 (i64) E :no-merge)
(function zero_of (i64) E :no-merge)
(function one_of (i64) E :no-merge)
(function lowest (i64) E :no-merge)
(relation axis (i64)) (relation floating (i64)) (relation integer (i64)) (relation embeds (i64 i64))
(relation constant (E)) (relation one (E)) (relation zero (E)) (relation negative_zero (E))
(relation minus_one (E)) (relation always (E)) (relation never (E))
(relation either (String E i64 E E)) (relation summed (E Axes))
(relation nonnegative (E)) (relation nonpositive (E)) (relation distributes (String i64))
(relation neutral (String E))
(relation quotient (E E E i64)) (relation rounded (E)) (relation spans (i64 i64))
(relation top (E E)) (relation falls (E)) (relation most_one (E))
(relation statistic (E Axes)) (relation average (E Axes E)) (relation demand (E Axes))
(relation affine (E Axes E E E)) (relation scales (E Axes E E E))
(function combined (String E) i64 :merge (max old new))
(ruleset facts) (ruleset algebra) (ruleset core) (ruleset stream) (ruleset insert)
"""

_RULES = """\
((= e (Ap1 o d x)) (= f (free x))) ((set (free e) f))
((= e (Ap2 o d x y)) (= f (free x)) (= g (free y))) ((set (free e) (set-union f g)))
((= e (Ap3 o d x y z)) (= f (free x)) (= g (free y)) (= h (free z)))\
 ((set (free e) (set-union f (set-union g h))))
((= e (Red o d j x)) (= f (free x))) ((set (free e) (set-diff f j)))
((= e (Scaled d j b m k)) (= f (free b)) (= g (free m)) (= h (free k)))\
 ((set (free e) (set-diff (set-union f (set-union g h)) j)))
((= e (Moved d j b m s c)) (= f (free b)) (= g (free m)) (= h (free s)) (= k (free c))\
 (= p (bound b)) (= q (bound m)) (= r (bound s)))\
 ((set (free e) (set-diff (set-union (set-union f g) (set-union h k)) j))\
 (set (bound e) (set-union (set-union p j) (set-union q r))) (set (dtype e) d))
((= e (Run x j)) (= f (free x))) ((set (free e) (set-union f j)))
((= e (Const i))) ((set (bound e) (set-empty)))
((= e (Leaf i))) ((set (bound e) (set-empty)))
((= e (Run x j))) ((set (bound e) (set-empty)))
((= e (Ap1 o d x)) (= f (bound x))) ((set (bound e) f))
((= e (Ap2 o d x y)) (= f (bound x)) (= g (bound y))) ((set (bound e) (set-union f g)))
((= e (Ap3 o d x y z)) (= f (bound x)) (= g (bound y)) (= h (bound z)))\
 ((set (bound e) (set-union f (set-union g h))))
((= e (Red o d j x)) (= f (bound x))) ((set (bound e) (set-union f j)))
((= e (Scaled d j b m k)) (= f (bound b)) (= g (bound m)) (= h (bound k)))\
 ((set (bound e) (set-union (set-union f j) (set-union g h))))
((= e (Scaled d j b m k))) ((set (dtype e) d))
((= e (Run x j)) (= d (dtype x))) ((set (dtype e) d))
((= e (Ap1 o d x))) ((set (dtype e) d))
((= e (Ap2 o d x y))) ((set (dtype e) d))
((= e (Ap3 o d x y z))) ((set (dtype e) d))
((= e (ApN o d x))) ((set (dtype e) d))
((= e (Red o d j x))) ((set (dtype e) d))
((= e (Const i))) ((constant e))
((= e (Red "sum" d j b))) ((summed b j))
((summed b j) (either "mul" b d x y)) ((summed x j))
((summed b j) (= b (Ap1 "cast" d w)) (floating d)) ((rounded w))
((rounded w) (= w (Ap1 "cast" d u)) (floating d)) ((rounded u))
((rounded w) (= w (Ap2 "div" d r c))) ((quotient w r c 0))
((= w (Ap1 "cast" d u)) (quotient u r c n) (= e (dtype r)) (spans d e) (< n 3))\
 ((quotient w (Ap1 "cast" d r) c (+ n 1)))
((= w (Ap1 "cast" d u)) (quotient u r c n) (most_one r) (< n 3))\
 ((quotient w (Ap1 "cast" d r) c (+ n 1)))
((= m (Red "max" d j x))) ((top m x))
((either "max" s d m c) (top m x)) ((top s x))
((= s (Ap3 "select" d (Ap1 "is_finite" b m) m c)) (top m x)) ((top s x))
((= e (Ap2 "sub" d x s)) (top s x)) ((falls e))
((either "mul" e d x c) (falls x) (nonnegative c) (floating d)) ((falls e))
((= e (Ap1 "exp" d x)) (falls x)) ((most_one e))
((= e (Ap1 "exp2" d x)) (falls x)) ((most_one e))
((one c)) ((neutral "mul" c) (neutral "div" c))
((negative_zero c)) ((neutral "add" c))
((zero c)) ((neutral "sub" c))
((= e (Ap1 "exp" d x))) ((nonnegative e))
((= e (Ap1 "exp2" d x))) ((nonnegative e))
((= e (Ap1 "abs" d x))) ((nonnegative e))
((= e (Ap2 "mul" d x x)) (floating d)) ((nonnegative e))
((= e (Ap1 "neg" d x)) (nonnegative x) (floating d)) ((nonpositive e))
((= e (Ap1 "neg" d x)) (nonpositive x) (floating d)) ((nonnegative e))
((either "mul" e d x y) (nonnegative x) (nonnegative y) (floating d)) ((nonnegative e))
((either "mul" e d x y) (nonnegative x) (nonpositive y) (floating d)) ((nonpositive e))
((= e (Ap2 "div" d x y)) (nonnegative x) (nonnegative y) (floating d)) ((nonnegative e))
((= e (Ap2 "div" d x y)) (nonpositive x) (nonnegative y) (floating d)) ((nonpositive e))
((either "add" e d x y) (nonnegative x) (nonnegative y) (floating d)) ((nonnegative e))
((either "add" e d x y) (nonpositive x) (nonpositive y) (floating d)) ((nonpositive e))
((statistic m j) (= d (dtype m)) (floating d) (= o (one_of d)))\
 ((affine m j m o (Run m j)))
((= s (Red "sum" d j x)) (= m (Ap2 "div" d s c)) (constant c)) ((average m j x))
((= s (Red "sum" d j x)) (either "mul" m d s c) (constant c)) ((average m j x))
((average m j x) (= e (Ap1 "cast" d m)) (floating d)) ((average e j x))
((average m j x) (floating d) (= s (Red "sum" d j (Ap2 "mul" d a c))) (= f (bound a))\
 (= g (bound c)) (= h (free a)) (= k (free c))\
 (!= (set-empty) (set-intersect f (set-intersect h j)))\
 (!= (set-empty) (set-intersect g (set-intersect k j))))\
 ((demand a j) (demand c j))
((average m j x) (demand m j) (= p (bound x)) (= (set-empty) (set-intersect p j))\
 (= d (dtype m)) (= o (one_of d))) ((affine m j m o (Run m j)))
((statistic m j) (= s (Red "sum" d j b))) ((demand b j))
((demand e j) (= e (Ap1 o d x)) (= f (bound x)) (!= (set-empty) (set-intersect f j))) ((demand x j))
((demand e j) (= e (Ap2 o d x y)) (= f (bound x)) (!= (set-empty) (set-intersect f j)))\
 ((demand x j))
((demand e j) (= e (Ap2 o d x y)) (= f (bound y)) (!= (set-empty) (set-intersect f j)))\
 ((demand y j))
((demand e j) (= e (Ap3 o d x y z)) (= f (bound y)) (!= (set-empty) (set-intersect f j)))\
 ((demand y j))
((demand e j) (= e (Red "sum" d k x)) (= (set-empty) (set-intersect j k)) (= f (bound x))\
 (!= (set-empty) (set-intersect f j))) ((demand x j))
"""


def commands() -> str:
    """The declarations and the facts ruleset."""
    lines = [SORTS]
    for n, line in enumerate(_RULES.strip().splitlines()):
        facts, actions = _halves(line)
        lines.append(f'(rule {facts} {actions} :ruleset facts :name "fact{n}")')
    for name in COMMUTATIVE:
        actions = f'((either "{name}" e d x y) (either "{name}" e d y x))'
        lines.append(
            f'(rule ((= e (Ap2 "{name}" d x y))) {actions} :ruleset facts :name "either-{name}")'
        )
    for name in ("add", "mul"):
        lines += [  # 0 where a constant may be moved onto the value: it is neither one nor has one
            f'(rule ((= f (free e))) ((set (combined "{name}" e) 0)) :ruleset facts)',
            f'(rule ((either "{name}" e d x c) (constant c)) ((set (combined "{name}" e) 1))'
            " :ruleset facts)",
            f'(rule ((constant e)) ((set (combined "{name}" e) 1)) :ruleset facts)',
        ]
    for k, d in enumerate(dt.NUMERIC):
        if not dt.is_complex(d):
            lines.append(f"({'floating' if dt.is_floating(d) else 'integer'} {k})")
            lines.append(f'(distributes "mul" {k})')
        if dt.is_floating(d):
            lines.append(f'(distributes "div" {k})')
        lines += [f"(embeds {k} {n})" for n, e in enumerate(dt.NUMERIC) if embeds(d, e)]
        lines += [f"(spans {k} {n})" for n, e in enumerate(dt.NUMERIC) if spans(d, e)]
    return "\n".join(lines)


def _halves(line: str) -> tuple[str, str]:
    depth = 0
    for k, c in enumerate(line):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return line[: k + 1], line[k + 1 :].strip()
    raise AssertionError(line)


def embeds(narrow: dt.DType, wide: dt.DType) -> bool:
    """Whether a cast from `narrow` keeps all values and what later casts make of them."""
    if dt.is_floating(narrow):
        return (
            dt.is_floating(wide)
            and np.can_cast(_stand_in(narrow), _stand_in(wide))
            and _fits(narrow, wide)
        )
    if dt.is_bool(narrow):
        return dt.is_bool(wide) or dt.is_integer(wide)
    return dt.is_integer(narrow) and dt.is_integer(wide) and np.can_cast(narrow, wide)


def spans(rounded: dt.DType, dtype: dt.DType) -> bool:
    """Whether rounding values of `dtype` to another float dtype never overflows (but at the end of
    its range) or loses more than digits.
    """
    if not dt.is_floating(rounded) or not dt.is_floating(dtype):
        return False
    return dt.finfo(rounded).maxexp >= dt.finfo(dtype).maxexp


def _stand_in(dtype: dt.DType) -> dt.DType:
    return dt.float32 if dtype == dt.bfloat16 else dtype


def _fits(narrow: dt.DType, wide: dt.DType) -> bool:
    return narrow == wide or wide != dt.bfloat16


def literal_facts(lit: Lit) -> Iterator[str]:
    """The relations that hold of a literal."""
    value = value_of(lit)
    if dt.is_bool(lit.dtype):
        yield "always" if value else "never"
        return
    if value == 1:
        yield "one"
    elif value == -1 and not dt.is_unsigned(lit.dtype):
        yield "minus_one"
    elif value == 0:
        yield "negative_zero" if dt.is_floating(lit.dtype) and np.signbit(value) else "zero"
    if not dt.is_complex(lit.dtype):
        real = float(value)  # 16-bit floats warn of comparisons with nan
        if real >= 0:
            yield "nonnegative"
        if real <= 0:
            yield "nonpositive"
