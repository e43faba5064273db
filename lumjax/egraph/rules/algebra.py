"""Algebra of scalars and sums: no rule knows a network's operator, none grows without end."""

from __future__ import annotations

from dataclasses import replace

from lumjax import dtype as dt
from lumjax.egraph.rules import Kind, Rule
from lumjax.egraph.rules.witness import I, J, K, Witness, lit, load, op, reduction, total
from lumjax.kernel.term import Apply, Axis, Term
from lumjax.trace.form import ReduceOp

_x, _y, _z = load("x", I, J), load("y", I, J), load("z", I, J)
_n, _m = load("n", I, J, dtype=dt.int32), load("m", I, J, dtype=dt.int32)
_p, _q = load("p", I, J, dtype=dt.bool_), load("q", I, J, dtype=dt.bool_)
_row, _column, _other = load("r", I), load("c", J), load("w", J, K)


def _exact(name: str, left: str, right: str, a: Term, b: Term, guard: str = "") -> Rule:
    return Rule(name, "algebra", Kind.EXACT, left, right, Witness(a, b), guard)


def _sums(
    name: str, left: str, right: str, a: Term, b: Term, guard: str = "", tolerance: float = 1e-12
) -> Rule:
    witness = Witness(a, b, tolerance)
    return Rule(name, "algebra", Kind.REASSOCIATING, left, right, witness, guard)


def _domain(
    name: str, left: str, right: str, a: Term, b: Term, guard: str = "", low: float = 0.5
) -> Rule:
    witness = Witness(a, b, 1e-12, low=low)
    return Rule(name, "algebra", Kind.DOMAIN, left, right, witness, guard)


def _family(ops: tuple[str, ...], rule: Rule, *more: Witness) -> Rule:
    """The rule for several operations, with the witnesses of all but the first."""
    return replace(rule, ops=ops, more=more)


def _cast(x: Term, dtype: dt.DType) -> Apply:
    return op("cast", x, dtype=dtype)


def _twice(name: str) -> Witness:
    x = _p if name in ("and", "or") else _x
    return Witness(op(name, x, x), x)


def _swapped(name: str) -> Witness:
    both = op(name, _x, _y)
    return Witness(op("mul", both, both), op("mul", op(name, _y, _x), both))


IDENTITIES = (
    _family(
        ("mul", "div", "add", "sub"),
        _exact("neutral", "(@* d x c)", "x", op("mul", _x, lit(1.0)), _x, '(neutral "@" c)'),
        Witness(op("div", _x, lit(1.0)), _x),
        Witness(op("add", _x, lit(-0.0)), _x),
        Witness(op("sub", _x, lit(0.0)), _x),
    ),
    _exact(
        "mul-minus-one",
        "(mul* d x c)",
        "(neg d x)",
        op("mul", _x, lit(-1.0)),
        op("neg", _x),
        "(minus_one c)",
    ),
    _family(
        ("neg", "not"),
        _exact("involution", "(@ d (@ d x))", "x", op("neg", op("neg", _x)), _x),
        Witness(op("not", op("not", _p)), _p),
    ),
    _family(
        ("sub|add", "add|sub"),
        _exact(
            "neg-behind",
            "(@* d x (neg d y))",
            "(% d x y)",
            op("sub", _x, op("neg", _y)),
            op("add", _x, _y),
        ),
        Witness(op("add", _x, op("neg", _y)), op("sub", _x, _y)),
    ),
    _family(
        ("mul", "div"),
        _exact(
            "neg-out",
            "(@* d (neg d x) y)",
            "(neg d (@ d x y))",
            op("mul", op("neg", _x), _y),
            op("neg", op("mul", _x, _y)),
            '(distributes "@" d)',
        ),
        Witness(op("div", op("neg", _x), _y), op("neg", op("div", _x, _y))),
    ),
    _family(
        ("max", "min", "and", "or"),
        _exact("twice-is-once", "(@ d x x)", "x", op("max", _x, _x), _x),
        *map(_twice, ("min", "and", "or")),
    ),
    _family(
        ("add", "mul"),  # joins what the program has in both orders; makes no terms
        _exact(
            "commute",
            "(@ d x y)",
            "z",
            _swapped("add").left,
            _swapped("add").right,
            "(= z (@ d y x))",
        ),
        _swapped("mul"),
    ),
    _exact("square", "(square d x)", "(mul d x x)", op("square", _x), op("mul", _x, _x)),
)

CHOICES = (
    _exact("select-same", "(select d p x x)", "x", op("select", _p, _x, _x), _x),
    _exact(
        "select-not",
        "(select d (not e p) x y)",
        "(select d p y x)",
        op("select", op("not", _p), _x, _y),
        op("select", _p, _y, _x),
    ),
    _family(
        ("always|x", "never|y"),
        _exact(
            "select-known",
            "(select d p x y)",
            "%",
            op("select", lit(True, dt.bool_), _x, _y),
            _x,
            "(@ p)",
        ),
        Witness(op("select", lit(False, dt.bool_), _x, _y), _y),
    ),
    _exact(
        "select-select-on",
        "(select d p (select d p x y) z)",
        "(select d p x z)",
        op("select", _p, op("select", _p, _x, _y), _z),
        op("select", _p, _x, _z),
    ),
    _exact(
        "select-select-off",
        "(select d p x (select d p y z))",
        "(select d p x z)",
        op("select", _p, _x, op("select", _p, _y, _z)),
        op("select", _p, _x, _z),
    ),
)

CASTS = (
    _exact("cast-same", "(cast d x)", "x", _cast(_x, dt.float64), _x, "(= d (dtype x))"),
    _exact(
        "cast-cast",
        "(cast d (cast e x))",
        "(cast d x)",
        _cast(_cast(_n, dt.int64), dt.int16),
        _cast(_n, dt.int16),
        "(= f (dtype x)) (embeds f e)",
    ),
)

_EXTREMES = {"max": ReduceOp.MAX, "min": ReduceOp.MIN, "and": ReduceOp.AND, "or": ReduceOp.OR}


def _extreme(name: str, axes: tuple[Axis, ...], body: Term) -> Term:
    return reduction(_EXTREMES[name], axes, body)


def _of(name: str) -> tuple[Term, Term]:
    """Values over i, and over i and j."""
    return (load("b", I, dtype=dt.bool_), _p) if name in ("and", "or") else (_row, _x)


def _kept_rows(name: str) -> Witness:
    return Witness(_extreme(name, (I, J), _of(name)[0]), _extreme(name, (I,), _of(name)[0]))


def _nested_extremes(name: str) -> Witness:
    nested = _extreme(name, (I,), _extreme(name, (J,), _of(name)[1]))
    return Witness(nested, _extreme(name, (I, J), _of(name)[1]))


EXTREMES = (
    _family(
        tuple(_EXTREMES),
        _exact(
            "extreme-invariant",
            "(reduce_@ d j x)",
            "(reduce_@ d (set-remove j a) x)",
            _kept_rows("max").left,
            _kept_rows("max").right,
            "(= f (free x)) (axis a) (set-contains j a) (set-not-contains f a)",
        ),
        *map(_kept_rows, ("min", "and", "or")),
    ),
    _family(
        ("sum", "max", "min"),
        _sums(
            "reduce-nothing",
            "(reduce_@ d j x)",
            "x",
            total((), _x),
            _x,
            "(= j (set-empty)) (= d (dtype x))",
        ),
        *(Witness(_extreme(n, (), _x), _x, 0.0) for n in ("max", "min")),
    ),
    _family(
        tuple(_EXTREMES),
        _exact(
            "extreme-extreme",
            "(reduce_@ d j (reduce_@ d k x))",
            "(reduce_@ d (set-union j k) x)",
            _nested_extremes("max").left,
            _nested_extremes("max").right,
            "(= (set-empty) (set-intersect j k))",
        ),
        *map(_nested_extremes, ("min", "and", "or")),
    ),
)

_rows_times = op("mul", _row, _x)
_sum_inside = op("mul", _x, total((K,), op("mul", _column, _other)))
_sum_outside = op("mul", load("v", K), total((J,), op("mul", _x, _other)))


def _where_factor(name: str) -> tuple[Term, Term]:
    """A factor of what is chosen: it does not count where nothing is."""
    chosen = total((J,), op("mul", op("select", _p, _x, lit(0.0)), _y))
    left = total((J,), op("mul", op("select", _p, op(name, _x, _row), lit(0.0)), _y))
    return left, op("select", _extreme("or", (J,), _p), op(name, chosen, _row), chosen)


SUMS = (
    _sums(
        "sum-invariant",
        "(sum d j x)",
        "(mul d n (sum d (set-remove j a) x))",
        total((J,), _row),
        op("mul", lit(7.0), total((), _row)),
        "(= f (free x)) (axis a) (set-contains j a) (set-not-contains f a) (= n (extent a d))",
    ),
    _sums(
        "sum-neg",
        "(sum d j (neg d x))",
        "(neg d (sum d j x))",
        total((J,), op("neg", _x)),
        op("neg", total((J,), _x)),
    ),
    _family(
        ("mul", "div"),
        _sums(
            "sum-factor",
            "(sum d j (@* d r c))",
            "(@ d (sum d j r) c)",
            total((J,), _rows_times),
            op("mul", total((J,), _x), _row),
            '(invariant c j) (varies r j) (distributes "@" d)',
        ),
        Witness(total((J,), op("div", _x, _row)), op("div", total((J,), _x), _row), 1e-9),
    ),
    _sums(
        "sum-cast-factor",
        "(sum d j (mul* d (cast d w) v))",
        "(cast d (div e (cast e (sum d j (mul d (cast d r) v))) c))",
        total((J,), op("mul", _cast(op("div", _x, _row), dt.float32), _cast(_y, dt.float32))),
        _cast(
            op(
                "div",
                _cast(
                    total((J,), op("mul", _cast(_x, dt.float32), _cast(_y, dt.float32))), dt.float64
                ),
                _row,
            ),
            dt.float32,
        ),
        "(quotient w r c n) (= e (dtype c)) (invariant c j) (varies r j) (floating d) (floating e)",
        tolerance=1e-5,
    ),
    _family(
        ("mul", "div"),
        _sums(
            "sum-where-factor",
            "(sum d j (mul* d (select d p (@* d r c) z) v))",
            "(select d (reduce_or e j p) (@ d (sum d j (mul d (select d p r z) v)) c)"
            " (sum d j (mul d (select d p r z) v)))",
            *_where_factor("mul"),
            '(zero z) (invariant c j) (varies r j) (= e (dtype p)) (distributes "@" d)',
        ),
        Witness(*_where_factor("div"), 1e-9),
    ),
    _sums(
        "sum-select",
        "(sum d j (select d p r z))",
        "(select d p (sum d j r) z)",
        total((J,), op("select", load("b", I, dtype=dt.bool_), _x, lit(0.0))),
        op("select", load("b", I, dtype=dt.bool_), total((J,), _x), lit(0.0)),
        "(invariant p j) (zero z)",
    ),
    _sums(
        "sum-sum",
        "(sum d j (sum d k x))",
        "(sum d (set-union j k) x)",
        total((I,), total((J,), _x)),
        total((I, J), _x),
        "(= (set-empty) (set-intersect j k))",
    ),
    _sums(
        "sum-split",
        "(sum d j (mul* d c r))",
        "(sum d (set-intersect j f) (mul d c (sum d (set-diff j f) r)))",
        total((I, J), op("mul", _row, _x)),
        total((I,), op("mul", _row, total((J,), _x))),
        "(= f (free c)) (!= (set-empty) (set-intersect j f)) (!= (set-empty) (set-diff j f))"
        " (varies r (set-diff j f))",
    ),
    _sums(
        "sum-swap",
        "(sum d j (mul* d p (sum d k (mul* d u v))))",
        "(sum d k (mul d u (sum d j (mul d p v))))",
        total((J,), op("mul", _x, total((K,), op("mul", load("v", K), _other)))),
        total((K,), _sum_outside),
        "(invariant u j) (varies v j) (invariant p k) (= (set-empty) (set-intersect j k))",
    ),
    _family(
        ("mul", "div"),
        _sums(
            "factor-up",
            "(mul* d (@* d r c) e)",
            "(@ d (mul d r e) c)",
            total((J,), op("mul", op("mul", _row, _x), _y)),
            total((J,), op("mul", op("mul", _x, _y), _row)),
            '(summed _root j) (invariant c j) (varies r j) (varies e j) (distributes "@" d)',
        ),
        Witness(
            total((J,), op("mul", op("div", _x, _row), _y)),
            total((J,), op("div", op("mul", _x, _y), _row)),
            1e-9,
        ),
    ),
    _family(
        ("mul", "add"),
        _sums(
            "constants-together",
            "(@* d (@* d x a) c)",
            "(@ d x (@ d a c))",
            op("mul", op("mul", _x, lit(3.0)), lit(0.3)),
            op("mul", _x, op("mul", lit(3.0), lit(0.3))),
            '(constant a) (constant c) (= 0 (combined "@" x))',
        ),
        Witness(
            op("add", op("add", _x, lit(3.0)), lit(0.3)),
            op("add", _x, op("add", lit(3.0), lit(0.3))),
            1e-12,
        ),
    ),
)

_exps = total((J,), op("exp", op("sub", _x, _row)))
_shift = op("sub", _x, _row)

# Values shifted by a sum: only what the program shifts by the same amount is taken apart.
SHIFTS = (
    _sums(
        "exp-log",
        "(exp d (sub d r (log d s)))",
        "(div d (exp d r) s)",
        op("exp", op("sub", _shift, op("log", _exps))),
        op("div", op("exp", _shift), _exps),
        "(= s (sum d j (exp d r)))",
    ),
    _sums(
        "shared-shift",
        "(sub d x (add* d a c))",
        "(sub d y a)",
        op("mul", op("sub", _x, op("add", _y, _row)), _shift),
        op("mul", op("sub", _shift, _y), _shift),
        "(= y (sub d x c))",
    ),
)

_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453

# The accurate named function and its definition in core primitives, so that algebra sees exponents.
CORE = (
    Rule(
        "exp-core",
        "core",
        Kind.REASSOCIATING,
        "(exp d x)",
        "(exp2 d (mul d x l))",
        Witness(op("exp", _x), op("exp2", op("mul", _x, lit(_LOG2_E))), 1e-13),
        "(= l (log2_e d))",
    ),
    Rule(
        "log-core",
        "core",
        Kind.REASSOCIATING,
        "(log d x)",
        "(mul d (log2 d x) l)",
        Witness(op("log", _x), op("mul", op("log2", _x), lit(_LN_2)), 1e-13, low=0.1),
        "(= l (ln_2 d))",
    ),
)

REAL = (
    _domain("add-zero", "(add* d x c)", "x", op("add", _x, lit(0.0)), _x, "(zero c)"),
    _domain(
        "mul-zero", "(mul* d x c)", "c", op("mul", _x, lit(0.0)), lit(0.0), "(zero c) (floating d)"
    ),
    _domain("sub-self", "(sub d x x)", "z", op("sub", _x, _x), lit(0.0), "(= z (zero_of d))"),
    _domain(
        "div-self", "(div d x x)", "o", op("div", _x, _x), lit(1.0), "(= o (one_of d)) (floating d)"
    ),
    _domain("log-exp", "(log d (exp d x))", "x", op("log", op("exp", _x)), _x),
    _domain(
        "div-recip",
        "(div d x y)",
        "(mul d x (recip d y))",
        op("div", _x, _y),
        op("mul", _x, op("recip", _y)),
        "(floating d)",
    ),
)

RULES = (*IDENTITIES, *CHOICES, *CASTS, *EXTREMES, *SUMS, *SHIFTS, *CORE, *REAL)
