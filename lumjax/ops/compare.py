"""Comparisons and bitwise logic, elementwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.ops import numerics
from lumjax.ops.elementwise import (
    asvalue,
    binary,
    cast,
    constant,
    unary,
)
from lumjax.ops.record import (
    ANY,
    BITS,
    FLOATS,
    ORDERED,
    NDArray,
    to_bool,
)
from lumjax.trace.core import Value, aval_of
from lumjax.trace.form import Trait


def _equal(x: NDArray, y: NDArray) -> Any:
    return numerics.equal_keys(x, y) if dt.is_key(x.dtype) else np.equal(x, y)


def _unequal(x: NDArray, y: NDArray) -> Any:
    return ~numerics.equal_keys(x, y) if dt.is_key(x.dtype) else np.not_equal(x, y)


def _not(x: Value) -> Value:
    return xor(x, constant(-1, x)) if aval_of(x).dtype != dt.bool_ else xor(x, constant(True, x))


def _bits(x: Value) -> Value:
    """A bool as an integer, so that `lt` alone compares it; other values as they are."""
    aval = aval_of(x)
    return cast(x, dt.int8, aval.weak) if aval.dtype == dt.bool_ else x


def is_ordered(x: Value) -> Value:
    """Whether x is not NaN, in core primitives."""
    if not dt.is_floating(aval_of(x).dtype):
        return constant(True, lt(_bits(x), _bits(x)))
    return or_(lt(x, constant(np.inf, x)), lt(constant(-np.inf, x), x))


def _expand_eq(x: Value, y: Value) -> Value:
    if dt.is_complex(aval_of(x).dtype) or dt.is_key(aval_of(x).dtype):
        return eq_p.bind(x, y)[0]
    same = _not(or_(lt(_bits(x), _bits(y)), lt(_bits(y), _bits(x))))
    return and_(same, and_(is_ordered(x), is_ordered(y)))


def _expand_le(x: Value, y: Value) -> Value:
    return or_(lt(_bits(x), _bits(y)), _expand_eq(x, y))


_COMPARISON = (Trait.COMPARISON,)
_SYMMETRIC = (Trait.COMPARISON, Trait.COMMUTATIVE)
_LOGIC = (Trait.COMMUTATIVE, Trait.ASSOCIATIVE)

lt_p, lt = binary(
    "lt", np.less, ORDERED, "x < y, elementwise; false where either is NaN.",
    result=to_bool, traits=_COMPARISON,
)  # fmt: skip
le_p, le = binary(
    "le", np.less_equal, ORDERED, "x <= y, elementwise; false where either is NaN.",
    result=to_bool, traits=_COMPARISON, expand=_expand_le,
)  # fmt: skip
gt_p, gt = binary(
    "gt", np.greater, ORDERED, "x > y, elementwise; false where either is NaN.",
    result=to_bool, traits=_COMPARISON, expand=lambda x, y: lt(_bits(y), _bits(x)),
)  # fmt: skip
ge_p, ge = binary(
    "ge", np.greater_equal, ORDERED, "x >= y, elementwise; false where either is NaN.",
    result=to_bool, traits=_COMPARISON, expand=lambda x, y: _expand_le(y, x),
)  # fmt: skip
eq_p, eq = binary(
    "eq", _equal, ANY, "x == y, elementwise; false where either is NaN.",
    result=to_bool, traits=_SYMMETRIC, expand=_expand_eq,
)  # fmt: skip
ne_p, ne = binary(
    "ne", _unequal, ANY, "x != y, elementwise; true where either is NaN.",
    result=to_bool, traits=_SYMMETRIC, expand=lambda x, y: _not(_expand_eq(x, y)),
)  # fmt: skip
and_p, and_ = binary(
    "and", np.bitwise_and, BITS, "The bitwise (for bools logical) and.",
    traits=(*_LOGIC, Trait.IDEMPOTENT), identity=-1,
)  # fmt: skip
or_p, or_ = binary(
    "or", np.bitwise_or, BITS, "The bitwise (for bools logical) or.",
    traits=(*_LOGIC, Trait.IDEMPOTENT), identity=0,
)  # fmt: skip
xor_p, xor = binary(
    "xor", np.bitwise_xor, BITS, "The bitwise (for bools logical) exclusive or.",
    traits=_LOGIC, identity=0,
)  # fmt: skip
not_p, not_ = unary("not", np.invert, BITS, "The bitwise (for bools logical) not.", expand=_not)
is_finite_p, is_finite = unary(
    "is_finite", np.isfinite, FLOATS, "Whether x is neither infinite nor NaN.",
    result=to_bool,
    expand=lambda x: and_(lt(constant(-np.inf, x), x), lt(x, constant(np.inf, x))),
)  # fmt: skip


def is_nan(x: Value) -> Value:
    """Whether x is NaN, elementwise."""
    x = asvalue(x, "is_nan")
    return ne(x, x)
