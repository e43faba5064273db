"""A traced program made ready for kernels: calls and definitions inlined, words instead of keys.

A typed key is two uint32 words that lie side by side, so an array of keys is one of words with a
last axis of 2, in the same memory. What moves keys about moves words with an axis more, as `vmap`
would have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.control.staging import remembered
from lumjax.ops.aligned import align
from lumjax.ops.layout import moveaxis
from lumjax.ops.rng import random_unwrap, random_unwrap_p, random_wrap, random_wrap_p
from lumjax.trace.array import Array
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import (
    Jaxpr,
    Params,
    Primitive,
    Tracer,
    Value,
    aval_of,
    eval_jaxpr,
    sub_jaxprs,
    using,
)
from lumjax.trace.form import Expand, Opaque
from lumjax.trace.simplify import uncollected
from lumjax.trace.stage import StageTrace, stage

NDArray = np.ndarray[Any, Any]


def is_keyed(aval: ShapedArray) -> bool:
    """Whether values are typed keys."""
    return dt.is_key(aval.dtype)


def untyped(aval: ShapedArray) -> ShapedArray:
    """Words in place of keys; other avals as they are."""
    return ShapedArray((*aval.shape, 2), dt.uint32) if is_keyed(aval) else aval


def _numbers(aval: ShapedArray) -> ShapedArray:
    """One number in place of each key."""
    return ShapedArray(aval.shape, dt.uint32) if is_keyed(aval) else aval


def words_of(data: NDArray) -> NDArray:
    """The words of keys, in the same memory."""
    return np.ascontiguousarray(data).view(np.uint32).reshape((*data.shape, 2))


def keys_of(data: NDArray) -> NDArray:
    """Keys whose words these are, in the same memory."""
    return np.ascontiguousarray(data).view(dt.key).reshape(data.shape[:-1])


class _Keys(Tracer):
    """Typed keys, known by their words."""

    __slots__ = ("words",)

    def __init__(self, trace: StageTrace, words: Value) -> None:
        super().__init__(trace, ShapedArray(aval_of(words).shape[:-1], dt.key))
        self.words = words


class _ExpandTrace(StageTrace):
    """Records like staging, but replaces an operation that others define by its definition."""

    def process(self, prim: Primitive, args: Sequence[Value], params: Params) -> tuple[Value, ...]:
        if prim is random_wrap_p:
            return (_Keys(self, args[0]),)
        if prim is random_unwrap_p:
            return (self.words(args[0]),)
        avals = [*map(aval_of, args)]
        form = prim.form(*avals, **params)
        if isinstance(form, Expand):
            return tuple(prim.rule("expand")(*args, **params))
        outs = prim.aval(*avals, **params)
        if not any(map(is_keyed, (*avals, *outs))):
            return super().process(prim, args, params)
        if any(True for _ in sub_jaxprs(params)):
            changed = {n: _untyped_param(v) for n, v in params.items()}
            found = super().process(prim, [self.words(a) for a in args], changed)
        elif isinstance(prim.form(*map(_numbers, avals), **params), Opaque):
            given = [self._typed(a) for a in args]
            found = [self._bare(x) for x in super().process(prim, given, params)]
        else:
            found = self._moved(prim, args, params)
        return tuple(_Keys(self, x) if is_keyed(a) else x for x, a in zip(found, outs, strict=True))

    def words(self, x: Value) -> Value:
        """The words of keys; any other value as it is."""
        if isinstance(x, _Keys):
            return x.words
        if is_keyed(aval_of(x)):
            return Array(words_of(x.data if isinstance(x, Array) else np.asarray(x)))
        return x

    def _typed(self, x: Value) -> Value:
        """Real keys, for what can't do with words."""
        if not is_keyed(aval_of(x)):
            return x
        return super().process(random_wrap_p, [self.words(x)], {})[0]

    def _bare(self, x: Value) -> Value:
        return super().process(random_unwrap_p, [x], {})[0] if is_keyed(aval_of(x)) else x

    def _moved(self, prim: Primitive, args: Sequence[Value], params: Params) -> list[Value]:
        """What an operation that moves keys does to their words."""
        dims = [aval_of(a).ndim if is_keyed(aval_of(a)) else None for a in args]
        given = [self.words(a) for a in args]
        outs, where = prim.rule("batch")(MappedAxis(2), given, dims, **params)
        return [
            x if d is None else moveaxis(x, d, aval_of(x).ndim - 1)
            for x, d in zip(outs, where, strict=True)
        ]


def _untyped_param(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_untyped_param(v) for v in value)
    return _boundary(value) if isinstance(value, Jaxpr) else value


def _boundary(jaxpr: Jaxpr) -> Jaxpr:
    """The program from words to words; within it keys are still keys."""
    if not any(map(is_keyed, (*jaxpr.in_avals, *jaxpr.out_avals))):
        return jaxpr

    def make() -> Jaxpr:
        def run(*args: Value) -> list[Value]:
            pairs = zip(args, jaxpr.in_avals, strict=True)
            outs = eval_jaxpr(jaxpr, [random_wrap(x) if is_keyed(a) else x for x, a in pairs])
            return [random_unwrap(x) if is_keyed(aval_of(x)) else x for x in outs]

        return stage(run, [untyped(a) for a in jaxpr.in_avals]).jaxpr

    return remembered(jaxpr, "words", make, lambda _: True)


@uncollected
def expand(jaxpr: Jaxpr) -> tuple[Jaxpr, tuple[Value, ...]]:
    """The program with calls and definitions inlined, indices that count an axis replaced, and
    words in place of typed keys, its inputs and outputs too. Arrays that definitions mention become
    its first inputs; their values come second.
    """
    trace = _ExpandTrace()
    inputs = [trace.new_input(untyped(v.aval)) for v in jaxpr.inputs]
    with using(trace):
        given = [
            _Keys(trace, x) if is_keyed(v.aval) else x
            for x, v in zip(inputs, jaxpr.inputs, strict=True)
        ]
        outs = [trace.words(x) for x in eval_jaxpr(jaxpr, given)]
    atoms = tuple(map(trace.atom, outs))
    variables = (*trace.const_vars, *(i.var for i in inputs))
    expanded = Jaxpr(variables, tuple(trace.eqns), atoms, len(trace.const_vars))
    return align(expanded), tuple(trace.const_values)
