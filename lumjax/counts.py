"""How many operations a program takes, as it is written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from lumjax.trace.core import Jaxpr
from lumjax.trace.form import Choose, Contract, Map, Reduce, Repeat

_DEAR = 10.0  # the cost of a scalar operation from which on it counts as a transcendental


def work(jaxpr: Jaxpr) -> dict[str, float]:
    """The "flops" and "transcendentals" of a program of core primitives. A loop whose length is
    not known counts once, of branches the dearest; what is evaluated by NumPy does not count.
    """
    flops = dear = 0.0
    for first, second in _each(jaxpr):
        flops, dear = flops + first, dear + second
    return {"flops": flops, "transcendentals": dear}


def _each(jaxpr: Jaxpr) -> Iterator[tuple[float, float]]:
    for eqn in jaxpr.eqns:
        form = eqn.prim.form(*(a.aval for a in eqn.inputs), **eqn.params)
        match form:
            case Map(op):
                points = _points(eqn.outputs[0].aval.shape)
                yield (0.0, points) if op.flops >= _DEAR else (points, 0.0)
            case Reduce():
                yield _points(eqn.inputs[0].aval.shape), 0.0
            case Contract():
                yield 2 * _points(form.lhs.domain), 0.0
            case Repeat():
                times = 1.0 if form.length is None else _points([form.length])
                yield _scaled(times, form.body)
            case Choose():
                yield max(_scaled(1.0, b) for b in form.branches)
            case _:
                pass


def _scaled(times: float, jaxpr: Jaxpr) -> tuple[float, float]:
    found = work(jaxpr)
    return times * found["flops"], times * found["transcendentals"]


def _points(sizes: Sequence[Any]) -> float:
    return float(math.prod(int(n) for n in sizes))
