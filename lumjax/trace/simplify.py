"""Simplify a jaxpr: fold constants, merge equal equations, drop dead ones.

What it computes does not change by a bit: constants are folded by the primitive's own `eval`, and
literals are equal only if dtype, bits and weakness are. Effectful equations are neither removed,
merged nor moved.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from lumjax.errors import LumjaxError
from lumjax.trace.check import same_aval
from lumjax.trace.core import Atom, Effect, Eqn, Jaxpr, Literal, Params, sub_jaxprs
from lumjax.trace.form import Barrier, Opaque

P = ParamSpec("P")
R = TypeVar("R")
_PLAIN = frozenset({bool, int, str, bytes, type(None)})  # types whose equal values are one
_FOLD_LIMIT = 1024  # elements of an intermediate constant: enough for shapes, masks and tables


def uncollected(f: Callable[P, R]) -> Callable[P, R]:
    """A pass during which no cycles are collected.

    Passes allocate many small objects that live on, and no cycles; looking through all of them
    again and again was two fifths of the time of a large program.
    """

    @wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not gc.isenabled():
            return f(*args, **kwargs)
        gc.disable()
        try:
            return f(*args, **kwargs)
        finally:
            gc.enable()

    return call


@lru_cache(maxsize=4096)
@uncollected
def simplify(jaxpr: Jaxpr) -> Jaxpr:
    """Fold, merge and drop equations, in nested jaxprs too; inputs and outputs stay as they are.

    Remembers its results: the same jaxpr gives the same object, and one with nothing to do itself.
    """
    return dce(cse(fold(_nested(jaxpr, simplify))))


def _nested(jaxpr: Jaxpr, f: Any) -> Jaxpr:
    """Apply f to the jaxprs that equations carry."""
    return _rebuild(jaxpr, [_with_params(e, _map_jaxprs(e.params, f)) for e in jaxpr.eqns])


def _map_jaxprs(params: Params, f: Any) -> Params:
    changed: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, Jaxpr):
            changed[name] = f(value)
        elif isinstance(value, tuple) and any(isinstance(v, Jaxpr) for v in cast("Any", value)):
            changed[name] = tuple([f(v) if isinstance(v, Jaxpr) else v for v in cast("Any", value)])
    if all(_unchanged(params[name], value) for name, value in changed.items()):
        return params
    return {**params, **changed}


def _unchanged(old: Any, new: Any) -> bool:
    if isinstance(old, tuple):
        return all(a is b for a, b in zip(cast("Any", old), new, strict=True))
    return old is new


def _with_params(eqn: Eqn, params: Params) -> Eqn:
    if params is eqn.params:
        return eqn
    return Eqn(eqn.prim, eqn.inputs, eqn.outputs, params, eqn.source)


def _rebuild(jaxpr: Jaxpr, eqns: Sequence[Eqn], outputs: Sequence[Atom] | None = None) -> Jaxpr:
    """The jaxpr with other equations and outputs; itself where nothing differs."""
    outs = jaxpr.outputs if outputs is None else tuple(outputs)
    same_eqns = len(eqns) == len(jaxpr.eqns) and all(map(_is, eqns, jaxpr.eqns))
    if same_eqns and len(outs) == len(jaxpr.outputs) and all(map(_is, outs, jaxpr.outputs)):
        return jaxpr
    return Jaxpr(jaxpr.inputs, tuple(eqns), outs, jaxpr.consts)


def _is(a: object, b: object) -> bool:
    return a is b


# ---- dead code


def dce(jaxpr: Jaxpr, used: Sequence[bool] | None = None) -> Jaxpr:
    """Drop equations that no used output and no effect needs.

    `used[k]` false drops output k; by default all are kept. Inputs stay (see `used_inputs`).
    """
    outputs = jaxpr.outputs
    if used is not None:
        outputs = tuple([o for o, u in zip(outputs, used, strict=True) if u])
    live: set[Atom] = set(outputs)
    kept: list[Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effect is not Effect.NONE or any(v in live for v in eqn.outputs):
            kept.append(eqn)
            live.update(eqn.inputs)
    return _rebuild(jaxpr, kept[::-1], outputs)


def used_inputs(jaxpr: Jaxpr) -> list[bool]:
    """Which inputs any equation or output mentions."""
    mentioned: set[Atom] = {*jaxpr.outputs, *(a for e in jaxpr.eqns for a in e.inputs)}
    return [v in mentioned for v in jaxpr.inputs]


# ---- common subexpressions


def cse(jaxpr: Jaxpr) -> Jaxpr:
    """Merge equations of one primitive with the same operands and parameters."""
    names: dict[Atom, Atom] = {}
    seen: dict[Any, Eqn] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        eqn = _rename(eqn, names)
        if eqn.effect is Effect.NONE:
            key = (eqn.prim, tuple(map(_atom_key, eqn.inputs)), freeze(eqn.params))
            first = seen.setdefault(key, eqn)
            if first is not eqn and _same_outputs(first, eqn):
                names.update(zip(eqn.outputs, first.outputs, strict=True))
                continue
        eqns.append(eqn)
    return _rebuild(jaxpr, eqns, [names.get(a, a) for a in jaxpr.outputs])


def _same_outputs(a: Eqn, b: Eqn) -> bool:
    return all(same_aval(v.aval, w.aval) for v, w in zip(a.outputs, b.outputs, strict=True))


def _rename(eqn: Eqn, names: Mapping[Atom, Atom]) -> Eqn:
    if not any(a in names for a in eqn.inputs):
        return eqn
    inputs = tuple([names.get(a, a) for a in eqn.inputs])
    return Eqn(eqn.prim, inputs, eqn.outputs, eqn.params, eqn.source)


def _atom_key(atom: Atom) -> Any:
    if isinstance(atom, Literal):
        return atom.aval.dtype, atom.value.tobytes(), atom.aval.weak
    return atom


def freeze(value: Any) -> Any:
    """A hashable stand-in for a parameter; equal stand-ins are parameters that mean the same.

    Keeps apart what Python calls equal (0.0 and -0.0; 1, 1.0 and True). What cannot be hashed
    stands for itself alone.
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is tuple:
        return (kind, *map(freeze, value))
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return tuple(sorted([(str(k), freeze(v)) for k, v in items], key=lambda kv: kv[0]))
    if isinstance(value, (tuple, list)):
        return (kind, *map(freeze, cast("Sequence[Any]", value)))
    if isinstance(value, (float, complex)):
        return type(value), repr(value)
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return array.shape, array.dtype, array.tobytes()
    try:
        hash(value)
    except TypeError:
        return _Alone(value)
    return kind, value


class _Alone:
    """Holds an unhashable object; equal to nothing else."""

    def __init__(self, value: object) -> None:
        self.value = value


# ---- constants


def fold(jaxpr: Jaxpr) -> Jaxpr:
    """Evaluate equations whose operands are known; scalars become literals.

    Small arrays computed from constants are known too, so that what is reduced or indexed from them
    folds. Nothing folds through a barrier, an effect or a nested jaxpr.
    """
    known: dict[Atom, np.ndarray[Any, Any]] = {}
    names: dict[Atom, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        eqn = _rename(eqn, names)
        values = _folded(eqn, known)
        if values is None:
            eqns.append(eqn)
            continue
        for v, value in zip(eqn.outputs, values, strict=True):
            if v.aval.ndim:
                known[v] = value
            else:
                names[v] = Literal(value, v.aval)
        if any(v.aval.ndim for v in eqn.outputs):
            eqns.append(eqn)
    return _rebuild(jaxpr, eqns, [names.get(a, a) for a in jaxpr.outputs])


def _folded(
    eqn: Eqn, known: Mapping[Atom, np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]] | None:
    operands: list[np.ndarray[Any, Any]] = []
    for atom in eqn.inputs:
        value = atom.value if isinstance(atom, Literal) else known.get(atom)
        if value is None:
            return None
        operands.append(value)
    if not _foldable(eqn):
        return None
    try:
        outs = eqn.prim.eval(*operands, **eqn.params)
    except LumjaxError:  # it raises when it runs, if it runs
        return None
    return [np.asarray(o, v.aval.dtype) for o, v in zip(outs, eqn.outputs, strict=True)]


def _foldable(eqn: Eqn) -> bool:
    if eqn.effect is not Effect.NONE or any(True for _ in sub_jaxprs(eqn.params)):
        return False
    for v in eqn.outputs:
        small = all(isinstance(n, int) for n in v.aval.shape) and v.aval.dtype.names is None
        if not small or math.prod(cast("tuple[int, ...]", v.aval.shape)) > _FOLD_LIMIT:
            return False
    form = eqn.prim.form(*[a.aval for a in eqn.inputs], **eqn.params)
    return not (isinstance(form, Barrier) or (isinstance(form, Opaque) and form.host))
