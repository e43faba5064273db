"""A call of a staged program: what a nested `jit` becomes. Its rules transform the callee and call
the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lumjax.control.staging import (
    batch_of,
    check_operands,
    jvp_of,
    merge,
    run,
    select_where,
    split_of,
    spread,
)
from lumjax.grad.nested import transpose_call
from lumjax.grad.reverse import Cotangent, LinearTrace, MaskAware
from lumjax.ops.layout import batch_first
from lumjax.trace.aval import ShapedArray
from lumjax.trace.batch import MappedAxis
from lumjax.trace.core import Jaxpr, Primitive, Value, eval_jaxpr
from lumjax.trace.form import Expand


def call(jaxpr: Jaxpr, args: Sequence[Value], name: str) -> tuple[Value, ...]:
    """Call `jaxpr`, which has no consts of its own, on `args`; `name` is for printing."""
    return call_p.bind(*args, jaxpr=jaxpr, name=name)


def _aval(*avals: ShapedArray, jaxpr: Jaxpr, name: str) -> tuple[ShapedArray, ...]:
    check_operands(f"call of {name}", jaxpr, avals)
    return jaxpr.out_avals


def _eval(*args: Value, jaxpr: Jaxpr, name: str) -> tuple[Value, ...]:
    return run(jaxpr, args)


def _expand(*args: Value, jaxpr: Jaxpr, name: str) -> tuple[Value, ...]:
    return tuple(eval_jaxpr(jaxpr, args))


def _jvp(
    primals: Sequence[Value], tangents: Sequence[Value | None], *, jaxpr: Jaxpr, name: str
) -> tuple[Sequence[Value], Sequence[Value | None]]:
    derived = jvp_of(jaxpr, tuple(t is not None for t in tangents))
    given = [t for t in tangents if t is not None]
    outs = call(derived.jaxpr, (*derived.consts, *primals, *given), f"jvp({name})")
    count = len(jaxpr.outputs)
    return outs[:count], spread(derived.nonzero, outs[count:])


def _linearize(
    trace: LinearTrace, args: Sequence[Value], *, jaxpr: Jaxpr, name: str
) -> Sequence[Value]:
    """Call the known part now and record a call of the linear part: each is compiled by itself."""
    linear = tuple(map(trace.is_linear, args))
    cut = split_of(jaxpr, linear)
    known_args = (*cut.consts, *select_where(linear, args, keep=False))
    known = () if cut.trivial else call(cut.known, known_args, f"known({name})")
    residuals = cut.residuals(known_args, known[cut.known_outs :])
    tangents = trace.record(
        call_p,
        (*residuals, *select_where(linear, args)),
        {"jaxpr": cut.linear, "name": f"linear({name})"},
    )
    return merge(cut.outputs, tangents, known[: cut.known_outs])


def _transpose(
    cts: Sequence[Cotangent | None], inputs: Sequence[Any], *, jaxpr: Jaxpr, name: str
) -> Sequence[Cotangent | None]:
    return transpose_call(
        lambda backward, args: call(backward, args, f"transpose({name})"), jaxpr, inputs, cts
    )


def _batch(
    axis: MappedAxis,
    args: Sequence[Value],
    dims: Sequence[int | None],
    *,
    jaxpr: Jaxpr,
    name: str,
) -> tuple[Sequence[Value], Sequence[int | None]]:
    derived = batch_of(jaxpr, axis, tuple(d is not None for d in dims))
    moved = [
        a if d is None else batch_first(a, d, axis.size) for a, d in zip(args, dims, strict=True)
    ]
    outs = call(derived.jaxpr, (*derived.consts, *moved), f"vmap({name})")
    return outs, [0 if m else None for m in derived.mapped]


call_p = Primitive(
    "call",
    aval=_aval,
    eval=_eval,
    form=lambda *avals, **params: Expand(),
    expand=_expand,
    jvp=_jvp,
    transpose=MaskAware(_transpose),
    batch=_batch,
    linearize=_linearize,
)
