"""Values that may be rounded further than their dtype before they are multiplied.

A side of a contraction of which less precision is asked is `may_tf32(x)` or `may_bf16(x)`: x
itself, or x rounded so. Rules know nothing of these operations, and so carry them to no other
product; a loop program that makes no use of them computes x.
"""

from __future__ import annotations

from typing import Any

from lumjax import dtype as dt
from lumjax.kernel.ir import ApplyValue, Value
from lumjax.kernel.rewrite import rebuild, rewrite
from lumjax.kernel.term import Apply, Group, Root, Term, subterms
from lumjax.trace.form import Rounding, ScalarOp


def _itself(x: Any) -> Any:
    return x


MAY: dict[Rounding, ScalarOp] = {
    r: ScalarOp(f"may_{r.value}", 1, _itself, flops=0.0) for r in Rounding
}
_BY_NAME = {op.name: r for r, op in MAY.items()}
_EPS = {Rounding.TF32: 2.0**-10, Rounding.BF16: 2.0**-7}


def rounding_of(node: Term | Value) -> Rounding | None:
    """What a value may be rounded to before it is multiplied; None if it is to be exact."""
    return _BY_NAME.get(node.op.name) if isinstance(node, Apply | ApplyValue) else None


def epsilon(term: Term) -> float:
    """The distance of 1 from the next number that the term, whose values are floats, may have."""
    allowed = rounding_of(term)
    return float(dt.finfo(term.dtype).eps) if allowed is None else _EPS[allowed]


def may_round(group: Group) -> bool:
    """Whether anything in the group may be rounded."""
    return any(rounding_of(t) for r in group.roots for t in subterms(r.term))


def exact(group: Group, memo: dict[Term, Term]) -> Group:
    """The group without any of it. `memo`: what became of each term."""

    def leaf(t: Term, kids: tuple[Term, ...]) -> Term:
        return kids[0] if rounding_of(t) else rebuild(t, kids, {})

    roots = (Root(r.buffer, r.axes, rewrite(r.term, leaf, memo)) for r in group.roots)
    return Group(tuple(roots))
