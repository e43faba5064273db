"""Indices that count an axis are none: rewrite gathers and scatters that traverse axes together.

`x[jnp.arange(n), labels]` reads row k at index k. What is left to look up is the label: the axis
that is counted becomes a batching axis, so that one element of each row is read (or updated).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax.ops.elementwise import add_p
from lumjax.ops.index import gather_p, scatter_add_p, scatter_p
from lumjax.ops.scatter_monoid import scatter_max_p, scatter_min_p, scatter_mul_p
from lumjax.ops.view import concatenate_p
from lumjax.ops.windows import GatherDimensionNumbers, scatter_as_gather
from lumjax.trace.core import Atom, Eqn, Jaxpr, Literal, Var
from lumjax.trace.dim import same, same_shape

_SCATTERS = (scatter_p, scatter_add_p, scatter_mul_p, scatter_min_p, scatter_max_p)


def align(jaxpr: Jaxpr) -> Jaxpr:
    """The program with counting indices replaced by axes that are traversed together."""
    if not any(e.prim is gather_p or e.prim in _SCATTERS for e in jaxpr.eqns):
        return jaxpr
    return _Aligner(jaxpr).run()


class _Aligner:
    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.maker: dict[Atom, Eqn] = {}
        self.eqns: list[Eqn] = []
        self.names: dict[Atom, Atom] = {}

    def run(self) -> Jaxpr:
        for eqn in self.jaxpr.eqns:
            if any(a in self.names for a in eqn.inputs):
                inputs = tuple([self.names.get(a, a) for a in eqn.inputs])
                eqn = Eqn(eqn.prim, inputs, eqn.outputs, eqn.params, eqn.source)
            if eqn.prim is gather_p or eqn.prim in _SCATTERS:
                found = self._aligned(eqn)
                if found is None:
                    continue
                eqn = found
            self._add(eqn)
        outputs = tuple([self.names.get(a, a) for a in self.jaxpr.outputs])
        return Jaxpr(self.jaxpr.inputs, tuple(self.eqns), outputs, self.jaxpr.consts)

    def _add(self, eqn: Eqn) -> None:
        self.eqns.append(eqn)
        self.maker.update((v, eqn) for v in eqn.outputs)

    def _aligned(self, eqn: Eqn) -> Eqn | None:
        """The equation without counting indices; None if it is its operand, under that name."""
        operand, indices = eqn.inputs[:2]
        numbers, sizes = self._numbers(eqn)
        taken = set(numbers.start_indices_batching_dims)
        columns = self._columns(indices)
        pairs: dict[int, tuple[int, int]] = {}  # column: operand axis, axis of the indices
        for j, axis in enumerate(numbers.start_index_map[: len(columns)]):
            counted = None if columns[j] is None else self._counts(columns[j])
            fits = axis in numbers.collapsed_slice_dims or len(numbers.start_index_map) == 1
            if counted is None or counted in taken or not fits:
                continue
            if same(operand.aval.shape[axis], indices.aval.shape[counted]) and same(sizes[axis], 1):
                pairs[j] = axis, counted
                taken.add(counted)
        if not pairs:
            return eqn
        if len(pairs) == len(numbers.start_index_map):
            return self._whole(eqn, numbers, sizes, pairs)
        kept = [c for j, c in enumerate(columns) if j not in pairs and c is not None]
        gone = {axis for axis, _ in pairs.values()}
        changed = type(eqn.params["dimension_numbers"])(
            numbers.offset_dims,
            tuple([d for d in numbers.collapsed_slice_dims if d not in gone]),
            tuple([d for d in numbers.start_index_map if d not in gone]),
            (*numbers.operand_batching_dims, *(a for a, _ in pairs.values())),
            (*numbers.start_indices_batching_dims, *(b for _, b in pairs.values())),
        )
        rest = self._joined(kept, eqn)
        inputs = (operand, rest, *eqn.inputs[2:])
        params = {**eqn.params, "dimension_numbers": changed}
        return Eqn(eqn.prim, inputs, eqn.outputs, params, eqn.source)

    def _numbers(self, eqn: Eqn) -> tuple[GatherDimensionNumbers, Sequence[Any]]:
        if eqn.prim is gather_p:
            return eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
        operand, _, updates = (a.aval.shape for a in eqn.inputs)
        return scatter_as_gather(eqn.params["dimension_numbers"], operand, updates)

    def _whole(
        self,
        eqn: Eqn,
        numbers: GatherDimensionNumbers,
        sizes: Sequence[Any],
        pairs: dict[int, tuple[int, int]],
    ) -> Eqn | None:
        """What is read or written is the whole operand in order, if its first axes are counted."""
        operand, indices = eqn.inputs[:2]
        count = len(pairs)
        rank = operand.aval.ndim
        in_order = (
            sorted(pairs.values()) == [(k, k) for k in range(count)]
            and indices.aval.ndim == count + 1
            and numbers.offset_dims == tuple(range(count, rank))
            and all(same(sizes[k], operand.aval.shape[k]) for k in range(count, rank))
        )
        result = eqn.inputs[-1] if eqn.prim is scatter_p else operand
        (out,) = eqn.outputs
        if not in_order or not same_shape(result.aval.shape, out.aval.shape):
            return eqn
        if eqn.prim is scatter_add_p:
            return Eqn(add_p, (operand, eqn.inputs[2]), eqn.outputs, {}, eqn.source)
        if eqn.prim not in (gather_p, scatter_p) or result.aval != out.aval:
            return eqn
        self.names[out] = result
        return None

    def _columns(self, indices: Atom) -> list[Atom | None]:
        """The columns of index vectors, each with a last axis of size 1; none if not known."""
        if same(indices.aval.shape[-1], 1):
            return [indices]
        made = self.maker.get(indices)
        last = indices.aval.ndim - 1
        if made is None or made.prim is not concatenate_p or made.params["dimension"] != last:
            return []
        if any(not same(a.aval.shape[-1], 1) for a in made.inputs):
            return []
        return list(made.inputs)

    def _joined(self, columns: Sequence[Atom], eqn: Eqn) -> Atom:
        if len(columns) == 1:
            return columns[0]
        params = {"dimension": columns[0].aval.ndim - 1}
        out = tuple(Var(a) for a in concatenate_p.aval(*(c.aval for c in columns), **params))
        self._add(Eqn(concatenate_p, tuple(columns), out, params, eqn.source))
        return out[0]

    # ---- which axis a value counts

    def _counts(self, atom: Atom | None) -> int | None:
        """The axis d for which every element is its own place along d."""
        made = None if atom is None or isinstance(atom, Literal) else self.maker.get(atom)
        if made is None or atom is None:
            return None
        match made.prim.name:
            case "iota":
                fits = _limit(atom) is not None
                return made.params["dimension"] if fits else None
            case "cast" | "stop_gradient":
                return self._counts(made.inputs[0]) if _limit(atom) is not None else None
            case "reshape":
                return self._through_reshape(made)
            case "broadcast_in_dim":
                inner = self._counts(made.inputs[0])
                if inner is None:
                    return None
                outer = made.params["broadcast_dimensions"][inner]
                sizes = made.inputs[0].aval.shape[inner], atom.aval.shape[outer]
                return outer if same(*sizes) else None
            case "select":
                wrapped = self._is_never(made.inputs[0])
                return self._counts(made.inputs[2]) if wrapped else None
            case _:
                return None

    def _through_reshape(self, made: Eqn) -> int | None:
        inner = self._counts(made.inputs[0])
        old, new = made.inputs[0].aval.shape, made.outputs[0].aval.shape
        olds = [k for k, n in enumerate(old) if not same(n, 1)]
        news = [k for k, n in enumerate(new) if not same(n, 1)]
        if inner not in olds or not same_shape([old[k] for k in olds], [new[k] for k in news]):
            return None
        return news[olds.index(inner)]

    def _is_never(self, atom: Atom) -> bool:
        """Whether the condition says that something that counts is negative."""
        made = self.maker.get(atom)
        if made is None or made.prim.name != "lt" or self._counts(made.inputs[0]) is None:
            return False
        bound: Atom = made.inputs[1]
        while (spread := self.maker.get(bound)) is not None:
            if spread.prim.name != "broadcast_in_dim":
                return False
            bound = spread.inputs[0]
        return isinstance(bound, Literal) and bool(np.asarray(bound.value) == 0)


def _limit(atom: Atom) -> int | None:
    """The greatest place that the dtype can hold, if it holds all places of the array's axes."""
    if atom.aval.dtype.kind not in "iu":
        return None
    limit = int(np.iinfo(atom.aval.dtype).max)
    return limit if all(isinstance(n, int) and n <= limit for n in atom.aval.shape) else None
