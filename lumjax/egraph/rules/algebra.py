"""Algebra of scalars and sums: no rule knows a network's operator, none grows without end."""

from __future__ import annotations

from lumjax import dtype as dt
from lumjax.egraph.rules import Kind, Rule
from lumjax.egraph.rules.witness import I, J, K, Witness, lit, load, op, reduction, total
from lumjax.kernel.term import Apply, Term
from lumjax.trace.form import ReduceOp

_x, _y, _z = load("x", I, J), load("y", I, J), load("z", I, J)
_n, _m = load("n", I, J, dtype=dt.int32), load("m", I, J, dtype=dt.int32)
_p, _q = load("p", I, J, dtype=dt.bool_), load("q", I, J, dtype=dt.bool_)
_row, _column, _other = load("r", I), load("c", J), load("w", J, K)
_zero_int = lit(0, dt.int32)


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


def _cast(x: Term, dtype: dt.DType) -> Apply:
    return op("cast", x, dtype=dtype)


IDENTITIES = (
    _exact("mul-one", "(mul* d x c)", "x", op("mul", _x, lit(1.0)), _x, "(one c)"),
    _exact(
        "add-negative-zero", "(add* d x c)", "x", op("add", _x, lit(-0.0)), _x, "(negative_zero c)"
    ),
    _exact(
        "add-zero-integer",
        "(add* d x c)",
        "x",
        op("add", _n, _zero_int),
        _n,
        "(zero c) (integer d)",
    ),
    _exact("sub-zero", "(sub d x c)", "x", op("sub", _x, lit(0.0)), _x, "(zero c)"),
    _exact(
        "sub-self-integer",
        "(sub d x x)",
        "z",
        op("sub", _n, _n),
        _zero_int,
        "(integer d) (= z (zero_of d))",
    ),
    _exact(
        "mul-zero-integer",
        "(mul* d x c)",
        "c",
        op("mul", _n, _zero_int),
        _zero_int,
        "(zero c) (integer d)",
    ),
    _exact(
        "mul-minus-one",
        "(mul* d x c)",
        "(neg d x)",
        op("mul", _x, lit(-1.0)),
        op("neg", _x),
        "(minus_one c)",
    ),
    _exact("neg-neg", "(neg d (neg d x))", "x", op("neg", op("neg", _x)), _x),
    _exact(
        "sub-neg",
        "(sub d x (neg d y))",
        "(add d x y)",
        op("sub", _x, op("neg", _y)),
        op("add", _x, _y),
    ),
    _exact(
        "add-neg",
        "(add* d x (neg d y))",
        "(sub d x y)",
        op("add", _x, op("neg", _y)),
        op("sub", _x, _y),
    ),
    _exact(
        "neg-sub-integer",
        "(neg d (sub d x y))",
        "(sub d y x)",
        op("neg", op("sub", _n, _m)),
        op("sub", _m, _n),
        "(integer d)",
    ),
    _exact(
        "mul-negs",
        "(mul d (neg d x) (neg d y))",
        "(mul d x y)",
        op("mul", op("neg", _x), op("neg", _y)),
        op("mul", _x, _y),
    ),
    _exact("abs-neg", "(abs d (neg d x))", "(abs d x)", op("abs", op("neg", _x)), op("abs", _x)),
    _exact("abs-abs", "(abs d (abs d x))", "(abs d x)", op("abs", op("abs", _x)), op("abs", _x)),
    _exact("max-self", "(max d x x)", "x", op("max", _x, _x), _x),
    _exact("min-self", "(min d x x)", "x", op("min", _x, _x), _x),
    _exact("and-self", "(and d x x)", "x", op("and", _p, _p), _p),
    _exact("or-self", "(or d x x)", "x", op("or", _p, _p), _p),
    _exact("not-not", "(not d (not d x))", "x", op("not", op("not", _p)), _p),
    _exact("xor-self", "(xor d x x)", "z", op("xor", _n, _n), _zero_int, "(= z (zero_of d))"),
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
    _exact(
        "select-true",
        "(select d p x y)",
        "x",
        op("select", lit(True, dt.bool_), _x, _y),
        _x,
        "(always p)",
    ),
    _exact(
        "select-false",
        "(select d p x y)",
        "y",
        op("select", lit(False, dt.bool_), _x, _y),
        _y,
        "(never p)",
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

EXTREMES = (
    _exact(
        "max-invariant",
        "(reduce_max d j x)",
        "(reduce_max d (set-remove j a) x)",
        reduction(ReduceOp.MAX, (I, J), _row),
        reduction(ReduceOp.MAX, (I,), _row),
        "(= f (free x)) (axis a) (set-contains j a) (set-not-contains f a)",
    ),
    _exact(
        "min-invariant",
        "(reduce_min d j x)",
        "(reduce_min d (set-remove j a) x)",
        reduction(ReduceOp.MIN, (I, J), _row),
        reduction(ReduceOp.MIN, (I,), _row),
        "(= f (free x)) (axis a) (set-contains j a) (set-not-contains f a)",
    ),
    _exact(
        "max-nothing",
        "(reduce_max d j x)",
        "x",
        reduction(ReduceOp.MAX, (), _x),
        _x,
        "(= j (set-empty)) (= d (dtype x))",
    ),
    _exact(
        "min-nothing",
        "(reduce_min d j x)",
        "x",
        reduction(ReduceOp.MIN, (), _x),
        _x,
        "(= j (set-empty)) (= d (dtype x))",
    ),
    _exact(
        "max-max",
        "(reduce_max d j (reduce_max d k x))",
        "(reduce_max d (set-union j k) x)",
        reduction(ReduceOp.MAX, (I,), reduction(ReduceOp.MAX, (J,), _x)),
        reduction(ReduceOp.MAX, (I, J), _x),
        "(= (set-empty) (set-intersect j k))",
    ),
)

_rows_times = op("mul", _row, _x)
_sum_inside = op("mul", _x, total((K,), op("mul", _column, _other)))
_sum_outside = op("mul", load("v", K), total((J,), op("mul", _x, _other)))

SUMS = (
    _sums(
        "sum-nothing", "(sum d j x)", "x", total((), _x), _x, "(= j (set-empty)) (= d (dtype x))"
    ),
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
    _sums(
        "sum-factor",
        "(sum d j (mul* d c r))",
        "(mul d c (sum d j r))",
        total((J,), _rows_times),
        op("mul", _row, total((J,), _x)),
        "(invariant c j) (varies r j)",
    ),
    _sums(
        "sum-div",
        "(sum d j (div d r c))",
        "(div d (sum d j r) c)",
        total((J,), op("div", _x, _row)),
        op("div", total((J,), _x), _row),
        "(invariant c j) (varies r j) (floating d)",
        tolerance=1e-9,
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
    _sums(
        "factor-up",
        "(mul* d a e)",
        "(mul d c (mul d r e))",
        total((J,), op("mul", op("mul", _row, _x), _y)),
        total((J,), op("mul", _row, op("mul", _x, _y))),
        '(summed _root j) (either "mul" a d c r) (invariant c j) (varies r j) (varies e j)',
    ),
    _sums(
        "constants-mul",
        "(mul* d (mul* d x a) c)",
        "(mul d x (mul d a c))",
        op("mul", op("mul", _x, lit(3.0)), lit(0.3)),
        op("mul", _x, op("mul", lit(3.0), lit(0.3))),
        '(constant a) (constant c) (= 0 (combined "mul" x))',
    ),
    _sums(
        "constants-add",
        "(add* d (add* d x a) c)",
        "(add d x (add d a c))",
        op("add", op("add", _x, lit(3.0)), lit(0.3)),
        op("add", _x, op("add", lit(3.0), lit(0.3))),
        '(constant a) (constant c) (= 0 (combined "add" x))',
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
    _domain("exp-log", "(exp d (log d x))", "x", op("exp", op("log", _x)), _x),
    _domain(
        "sqrt-square",
        "(sqrt d (mul d x x))",
        "(abs d x)",
        op("sqrt", op("mul", _x, _x)),
        op("abs", _x),
        low=-2.0,
    ),
    _domain(
        "square-sqrt",
        "(mul d (sqrt d x) (sqrt d x))",
        "x",
        op("mul", op("sqrt", _x), op("sqrt", _x)),
        _x,
    ),
    _domain("recip-recip", "(recip d (recip d x))", "x", op("recip", op("recip", _x)), _x),
    _domain(
        "div-recip",
        "(div d x y)",
        "(mul d x (recip d y))",
        op("div", _x, _y),
        op("mul", _x, op("recip", _y)),
        "(floating d)",
    ),
)

RULES = (*IDENTITIES, *CHOICES, *CASTS, *EXTREMES, *SUMS, *CORE, *REAL)
