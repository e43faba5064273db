"""Derivatives of the jaxprs that equations carry, as jaxprs: what `control/` builds its rules from.

    jvp_jaxpr(jaxpr, nonzero, force=None) -> JvpJaxpr(jaxpr, consts, nonzero)
        jaxpr: (*consts, *primals, *tangents of inputs where nonzero) -> (*primal outs, *tangents of
        outs where .nonzero); outs where force[k] get a tangent in any case (an explicit zero if
        need be), except integer outs.
    split_jaxpr(jaxpr, linear, force=None) -> SplitJaxpr(known, consts, linear, outputs, residuals)
        for a jaxpr some of whose inputs are tangents (linear[k]) and which is linear in those:
        known:  (*consts, *known inputs) -> (*outs where not .outputs[k], *residuals)
        linear: (*residuals, *linear inputs) -> (*outs where .outputs[k])
        residuals: their number; a residual that is an input of `known` is output as that very Var.
        outs where force[k] count as linear in any case.
    transpose_call(bind, jaxpr, inputs, cts) -> list of Cotangent | None, one per input
        for `MaskAware` rules of primitives that run one jaxpr once: `inputs[k]` is a value or
        `Linear(aval)`, `bind(jaxpr, args) -> outs` issues the backward program with the same
        primitive. consts are hoisted.

All jaxprs have `consts == 0`. The backward programs of `transpose_call` are remembered.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.grad.forward import jvp_flat, zeros
from lumjax.grad.mask import Mask
from lumjax.grad.reverse import Cotangent, LinearTrace, backward
from lumjax.record import record
from lumjax.trace.core import (
    Jaxpr,
    Linear,
    Tracer,
    Value,
    active_traces,
    aval_of,
    eval_jaxpr,
    using,
)
from lumjax.trace.simplify import dce
from lumjax.trace.stage import Staged, stage


def _closed(staged: Staged) -> Jaxpr:
    return replace(staged.jaxpr, consts=0)


# ---- jvp


@record(eq=False)
class JvpJaxpr:
    """See the module's docstring."""

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    nonzero: tuple[bool, ...]


def jvp_jaxpr(
    jaxpr: Jaxpr, nonzero: Sequence[bool], force: Sequence[bool] | None = None
) -> JvpJaxpr:
    """The jaxpr that computes `jaxpr` and its tangents; see the module's docstring."""
    active = tuple(nonzero)
    forced = tuple(force) if force is not None else (False,) * len(jaxpr.outputs)
    found_nonzero: list[bool] = []
    count = len(jaxpr.inputs)

    def run(*args: Value) -> list[Value]:
        given = iter(args[count:])
        tangents = [next(given) if a else None for a in active]
        outs, found, _ = jvp_flat(lambda *xs: eval_jaxpr(jaxpr, xs), args[:count], tangents)
        for k, (t, out) in enumerate(zip(found, outs, strict=True)):
            aval = aval_of(out)
            if t is None and forced[k] and dt.is_inexact(aval.dtype):
                found[k] = zeros(aval.tangent())
        found_nonzero[:] = [t is not None for t in found]
        return outs + [t for t in found if t is not None]

    avals = jaxpr.in_avals
    staged = stage(run, avals + tuple(a.tangent() for a, t in zip(avals, active, strict=True) if t))
    return JvpJaxpr(_closed(staged), staged.consts, tuple(found_nonzero))


# ---- known and linear part


@record(eq=False)
class SplitJaxpr:
    """See the module's docstring."""

    known: Jaxpr
    consts: tuple[Value, ...]
    linear: Jaxpr
    outputs: tuple[bool, ...]
    residuals: int


def split_jaxpr(
    jaxpr: Jaxpr, linear: Sequence[bool], force: Sequence[bool] | None = None
) -> SplitJaxpr:
    """The known and the linear part of a jaxpr; see the module's docstring."""
    forced = tuple(force) if force is not None else (False,) * len(jaxpr.outputs)
    part: Jaxpr | None = None
    outputs: list[bool] = []

    def run(*known: Value) -> list[Value]:
        nonlocal part
        trace = LinearTrace()
        tangents = [trace.new_input(v.aval) for v, t in zip(jaxpr.inputs, linear, strict=True) if t]
        values, unknown = iter(known), iter(tangents)
        args = [next(unknown) if t else next(values) for t in linear]
        with using(trace):
            outs = eval_jaxpr(jaxpr, args)
        outputs[:] = [f or trace.is_linear(o) for f, o in zip(forced, outs, strict=True)]
        atoms = tuple([trace.atom(o) for o, t in zip(outs, outputs, strict=True) if t])
        inputs = (*trace.const_vars, *(t.var for t in tangents))
        part = Jaxpr(inputs, tuple(trace.eqns), atoms)
        return [o for o, t in zip(outs, outputs, strict=True) if not t] + trace.const_values

    avals = [v.aval for v, t in zip(jaxpr.inputs, linear, strict=True) if not t]
    staged = stage(run, avals)
    assert part is not None
    residuals = len(part.inputs) - sum(linear)
    return SplitJaxpr(_closed(staged), staged.consts, part, tuple(outputs), residuals)


# ---- transpose


@record(eq=False)
class _Backward:
    """jaxpr: (*consts, *known inputs, *cotangents, *masks of outputs in `masks`) -> results.

    `found[k]` says whether input k has a result; `maskable[k]` whether its cotangent has a mask.
    """

    jaxpr: Jaxpr
    consts: tuple[Value, ...]
    masks: tuple[int, ...]
    found: tuple[bool, ...]
    maskable: tuple[bool, ...]


_LIMIT = 256  # programs kept per jaxpr
_lock = threading.Lock()
_memo: weakref.WeakKeyDictionary[Jaxpr, dict[Hashable, _Backward]] = weakref.WeakKeyDictionary()


@record
class _Request:
    """What a backward program is made for: which inputs are linear, which outputs have a cotangent,
    which a mask.
    """

    linear: tuple[bool, ...]
    nonzero: tuple[bool, ...]
    masked: tuple[bool, ...]
    results: str  # "values" or "masks" of the inputs' cotangents


def transpose_call(
    bind: Callable[[Jaxpr, list[Value]], Sequence[Value]],
    jaxpr: Jaxpr,
    inputs: Sequence[Any],
    cts: Sequence[Cotangent | None],
) -> list[Cotangent | None]:
    """The cotangents of a called jaxpr's inputs; see the module's docstring.

    Masks go in where the program uses them. They come out of a second program, if ever they are
    asked for.
    """
    known = [x for x in inputs if not isinstance(x, Linear)]
    values = [ct.value for ct in cts if ct is not None]

    def run(results: str) -> tuple[_Backward, list[Value | None]]:
        program, masks = _program(jaxpr, inputs, cts, results)
        outs = iter(bind(program.jaxpr, [*program.consts, *known, *values, *masks]))
        return program, [next(outs) if f else None for f in program.found]

    memo: list[list[Value | None]] = []

    def mask_of(k: int) -> Callable[[], Value | None]:
        def make() -> Value | None:
            if not memo:
                memo.append(run("masks")[1])
            return memo[0][k]

        return make

    program, found = run("values")
    return [
        None if v is None else Cotangent(v, Mask(mask_of(k)) if program.maskable[k] else None)
        for k, v in enumerate(found)
    ]


def _program(
    jaxpr: Jaxpr, inputs: Sequence[Any], cts: Sequence[Cotangent | None], results: str
) -> tuple[_Backward, list[Value]]:
    """The backward program and the masks it takes; a mask that turns out to be unknown is done
    without.
    """
    masks = [None if ct is None else ct.mask for ct in cts]
    while True:
        request = _Request(
            tuple(isinstance(x, Linear) for x in inputs),
            tuple(ct is not None for ct in cts),
            tuple(m is not None for m in masks),
            results,
        )
        program = _remembered(jaxpr, request)
        found = [m.get() for k in program.masks if (m := masks[k]) is not None]
        if all(v is not None for v in found):
            return program, found
        masks = [
            None if k in program.masks and m is not None and m.get() is None else m
            for k, m in enumerate(masks)
        ]


def _remembered(jaxpr: Jaxpr, request: _Request) -> _Backward:
    """The backward program, kept as long as the jaxpr lives unless it closed over a tracer."""
    axes = tuple((t.axis_name, t.axis_size) for t in active_traces() if t.axis_name is not None)
    key = (request, config.semantic_key(), axes)
    with _lock:
        table = _memo.setdefault(jaxpr, {})
    if (found := table.get(key)) is None:
        found = _transpose(jaxpr, request)
        if not any(isinstance(c, Tracer) for c in found.consts):
            if len(table) >= _LIMIT:
                table.clear()
            table[key] = found
    return found


def _transpose(jaxpr: Jaxpr, request: _Request) -> _Backward:
    found: list[bool] = []
    maskable: list[bool] = []

    def run(*args: Value) -> list[Value]:
        given = iter(args)
        inputs = [
            Linear(v.aval) if t else next(given)
            for v, t in zip(jaxpr.inputs, request.linear, strict=True)
        ]
        values = [next(given) if n else None for n in request.nonzero]
        masks = [next(given) if m else None for m in request.masked]
        cts = [
            None if v is None else Cotangent(v, None if m is None else Mask(lambda m=m: m))
            for v, m in zip(values, masks, strict=True)
        ]
        outs = backward(jaxpr, inputs, cts)
        maskable[:] = [ct is not None and ct.mask is not None for ct in outs]
        results = [None if ct is None else ct.value for ct in outs]
        if request.results == "masks":
            results = [ct.mask.get() if ct is not None and ct.mask else None for ct in outs]
        found[:] = [r is not None for r in results]
        return [r for r in results if r is not None]

    known = [v.aval for v, t in zip(jaxpr.inputs, request.linear, strict=True) if not t]
    out_avals = jaxpr.out_avals
    values = [a.tangent() for a, n in zip(out_avals, request.nonzero, strict=True) if n]
    masked = [k for k, m in enumerate(request.masked) if m]
    masks = [out_avals[k].with_dtype(dt.bool_) for k in masked]
    staged = stage(run, [*known, *values, *masks])
    program = dce(_closed(staged))
    first = len(program.inputs) - len(masked)
    used = {a for e in program.eqns for a in e.inputs} | set(program.outputs)
    kept = [k for k, v in zip(masked, program.inputs[first:], strict=True) if v in used]
    inputs = program.inputs[:first] + tuple(v for v in program.inputs[first:] if v in used)
    return _Backward(
        replace(program, inputs=inputs), staged.consts, tuple(kept), tuple(found), tuple(maskable)
    )
