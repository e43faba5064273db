"""What staged constants are: the value of a tracer that no input reaches, computed before anything
runs.

Masks ask: a mask that is true everywhere (the causal mask of attention, seen from its rows or its
columns) and a residual that is one finite number need no protection, so none is staged.
"""

from __future__ import annotations

import weakref
from typing import Any, TypeAlias

import numpy as np

from lumjax.ops.layout import broadcast_in_dim_p
from lumjax.trace.array import Array
from lumjax.trace.core import Atom, Effect, Eqn, Literal, Tracer, Value, Var, sub_jaxprs
from lumjax.trace.stage import StageTrace, StageTracer

NDArray: TypeAlias = np.ndarray[Any, Any]

_LIMIT = 1 << 26  # bytes of a constant that is computed; repeated ones do not count
_KEPT = 1 << 22  # bytes of one that is kept for later questions
_DEPTH = 64  # operations in a row


class _Constants:
    """The constants of one trace. Follows the trace as it grows."""

    def __init__(self) -> None:
        self.depth: dict[Atom, int] = {}  # of the values that can be computed
        self.producer: dict[Atom, tuple[Eqn, int]] = {}
        self.value: dict[Atom, NDArray] = {}
        self.seen = 0
        self.seen_consts = 0

    def update(self, trace: StageTrace) -> None:
        """Take note of the constants and equations that were added."""
        for var, x in zip(
            trace.const_vars[self.seen_consts :],
            trace.const_values[self.seen_consts :],
            strict=True,
        ):
            if isinstance(x, Array):
                self.depth[var] = 0
                self.value[var] = x.data
        self.seen_consts = len(trace.const_vars)
        for eqn in trace.eqns[self.seen :]:
            depth = 1 + max([self._depth(a) for a in eqn.inputs], default=0)
            if depth <= _DEPTH and _is_cheap(eqn):
                for k, var in enumerate(eqn.outputs):
                    self.depth[var] = depth
                    self.producer[var] = eqn, k
        self.seen = len(trace.eqns)

    def _depth(self, atom: Atom) -> int:
        return 0 if isinstance(atom, Literal) else self.depth.get(atom, _DEPTH)

    def get(self, atom: Atom) -> NDArray | None:
        """The value of `atom`, or None where it depends on an input."""
        if isinstance(atom, Literal):
            return atom.value
        if atom not in self.depth:
            return None
        if atom not in self.value:
            eqn, k = self.producer[atom]
            outs = eqn.prim.eval(*[self.get(a) for a in eqn.inputs], **eqn.params)
            self.value[atom] = np.asarray(outs[k])
        return self.value[atom]

    def drop_large(self) -> None:
        """Forget large values; they are computed again when they are asked for."""
        for atom in [a for a, x in self.value.items() if x.nbytes > _KEPT and a in self.producer]:
            del self.value[atom]


def _is_cheap(eqn: Eqn) -> bool:
    """Whether an equation may be evaluated while tracing."""
    if eqn.prim.effect is not Effect.NONE or any(True for _ in sub_jaxprs(eqn.params)):
        return False
    return all(_is_small(v, eqn) for v in eqn.outputs)


def _is_small(var: Var, eqn: Eqn) -> bool:
    if not all(isinstance(n, int) for n in var.aval.shape):
        return False
    size = int(var.aval.size) * var.aval.dtype.itemsize
    return eqn.prim is broadcast_in_dim_p or size <= _LIMIT


_constants: weakref.WeakKeyDictionary[StageTrace, _Constants] = weakref.WeakKeyDictionary()


def known_value(x: Value) -> NDArray | None:
    """The ndarray behind a concrete array or a staged constant, else None."""
    if isinstance(x, Array):
        return x.data
    if isinstance(x, StageTracer) and isinstance(x.owner, StageTrace):
        found = _constants.setdefault(x.owner, _Constants())
        found.update(x.owner)
        value = found.get(x.var)
        found.drop_large()
        return value
    return None if isinstance(x, Tracer) else np.asarray(x)


def distinct(x: NDArray) -> NDArray:
    """`x` with size 1 along the axes on which it merely repeats itself."""
    if not x.size:
        return x
    return x[tuple([slice(0, 1) if stride == 0 else slice(None) for stride in x.strides])]
