"""The scalar operations that encoding and rules introduce, by the names that backends know."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.digest import stable_text
from lumjax.kernel.evaluate import convert
from lumjax.kernel.region import Region
from lumjax.kernel.rounded import MAY
from lumjax.kernel.term import Apply, Lit, Term
from lumjax.trace.core import Eqn
from lumjax.trace.form import Map, Rounding, ScalarOp, Trait


def _recip(x: Any) -> Any:
    return (np.ones((), x.dtype) / x).astype(x.dtype)


def _never(x: Any) -> Any:
    raise AssertionError("a cast is evaluated by its dtype")


_BOTH = frozenset({Trait.COMMUTATIVE, Trait.ASSOCIATIVE})
OPS: dict[str, ScalarOp] = {
    op.name: op
    for op in (
        ScalarOp("add", 2, np.add, traits=_BOTH, identity=0),
        ScalarOp("sub", 2, np.subtract),
        ScalarOp("mul", 2, np.multiply, traits=_BOTH, identity=1),
        ScalarOp("neg", 1, np.negative),
        ScalarOp("abs", 1, np.abs),
        ScalarOp("recip", 1, _recip, flops=4.0),
        ScalarOp("select", 3, np.where),
        ScalarOp("cast", 1, _never, traits=frozenset({Trait.CAST})),
        ScalarOp("div", 2, np.divide, flops=4.0),
        ScalarOp("max", 2, np.maximum),
        ScalarOp("min", 2, np.minimum),
        ScalarOp("and", 2, np.bitwise_and),
        ScalarOp("or", 2, np.bitwise_or),
        ScalarOp("xor", 2, np.bitwise_xor),
        ScalarOp("not", 1, np.invert),
        ScalarOp("exp", 1, np.exp, flops=20.0),
        ScalarOp("exp2", 1, np.exp2, flops=20.0),
        ScalarOp("log", 1, np.log, flops=20.0),
        ScalarOp("log2", 1, np.log2, flops=20.0),
        ScalarOp("sqrt", 1, np.sqrt, flops=4.0),
        ScalarOp("square", 1, np.square),
        ScalarOp("is_finite", 1, np.isfinite),
        ScalarOp("eq", 2, np.equal),
        *MAY.values(),
    )
}


def zero(dtype: dt.DType) -> Lit:
    """The literal 0 of a dtype."""
    return literal(0, dtype)


def literal(value: Any, dtype: dt.DType) -> Lit:
    """A literal of any scalar value, converted as a cast would."""
    array = np.asarray(value)
    if array.dtype != dtype:
        array = convert(array.reshape(1), dtype).reshape(())
    return Lit(dtype, np.asarray(array, dtype).tobytes())


class Operations:
    """The scalar operations of a region, and those that rules introduce, by unique names.

    `rounds`: sides of contractions say what they may be rounded to.
    """

    def __init__(self, region: Region, rounds: bool = False) -> None:
        self.rounds = rounds
        self.by_name: dict[str, ScalarOp] = {}
        self._same: dict[tuple[str, str, str], ScalarOp] = {}
        for eqn, form in zip(region.eqns, region.forms, strict=True):
            if isinstance(form, Map):
                self._register(eqn, form.op)
        for name, op in OPS.items():
            self.by_name.setdefault(name, op)
        self.names = {op: name for name, op in self.by_name.items()}

    def _register(self, eqn: Eqn, op: ScalarOp) -> None:
        """Operations made anew for each equation are one if primitive, name and parameters are."""
        key = (eqn.prim.name, op.name, stable_text(eqn.params))
        if key in self._same:
            return
        if op.name == "cast":  # the term's dtype says it all
            self._same[key] = self.by_name.setdefault("cast", OPS["cast"])
            return
        known = (k for k in self.by_name.values() if k == op)
        found = next(known, None)
        if found is None:
            name, n = op.name, 1
            while name in self.by_name:
                n += 1
                name = f"{op.name}#{n}"
            found = self.by_name[name] = op
        self._same[key] = found

    def of(self, eqn: Eqn, form: Map) -> ScalarOp:
        """The operation of an elementwise equation."""
        return self._same[eqn.prim.name, form.op.name, stable_text(eqn.params)]

    def cast(self, term: Term, dtype: dt.DType) -> Term:
        """The term in another dtype."""
        return term if term.dtype == dtype else Apply(self.by_name["cast"], (term,), dtype)

    def mul(self, x: Term, y: Term) -> Term:
        """The product."""
        return Apply(self.by_name["mul"], (x, y), x.dtype)

    def rounded(self, term: Term, rounding: Rounding | None) -> Term:
        """The term as the side of a contraction."""
        if rounding is None or not self.rounds:
            return term
        return Apply(self.by_name[MAY[rounding].name], (term,), term.dtype)

    def select(self, condition: Term, on_true: Term, on_false: Term) -> Term:
        """on_true where condition, else on_false."""
        return Apply(self.by_name["select"], (condition, on_true, on_false), on_true.dtype)
