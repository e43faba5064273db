"""Share work out among jobs: over rows, or over rows and pieces of an inner axis.

The partition depends on the sizes and on fixed amounts of work, never on a number of threads, so
that results are bitwise equal for any number of them. The length of a share is a size argument
(`Emitter.chunk`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from lumjax import dtype as dt
from lumjax.kernel.emit import Emitter, Scope, pending
from lumjax.kernel.ir import IndexValue, Let
from lumjax.kernel.term import Apply, Axis, Load, Reduction, Term, subterms
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim

WORK_PER_JOB = 1 << 17  # scalar operations: some tens of microseconds
UNKNOWN_EXTENT = 1024
PIECE, LINE = 64, 16  # elements that lie together and are walked by one job; where they are few
ENOUGH = 8  # jobs

Emit = Callable[[Scope], None]


def work(terms: Iterable[Term]) -> int:
    """Roughly how many scalar operations one evaluation of the terms costs, reductions apart."""
    nodes: dict[Term, None] = {}
    for term in terms:
        nodes.update(dict.fromkeys(pending(term, lambda t: False)))
    return 1 + sum(_cost(t) for t in nodes)


def _cost(term: Term) -> int:
    match term:
        case Apply():
            return max(1, int(term.op.flops))
        case Load():
            return 2
        case _:
            return 0


def reduction_work(emitter: Emitter, terms: Iterable[Term]) -> int:
    """Roughly what one evaluation of the terms costs with all reductions inside."""
    found = {t: None for term in terms for t in subterms(term) if isinstance(t, Reduction)}
    return sum(extent(emitter, t.axes) * work([t.body]) for t in found)


def extent(emitter: Emitter, axes: Iterable[Axis]) -> int:
    """The number of points of the axes in the traced program, guessed where it is dynamic."""
    return math.prod(emitter.size(a.extent) or UNKNOWN_EXTENT for a in axes)


def one_job(emitter: Emitter, emit: Emit) -> None:
    """A phase that runs as a single job."""
    scope = Scope(bound={job := emitter.fresh("job")})
    emit(scope)
    emitter.phase(job, 1, scope)


def over_rows(emitter: Emitter, axes: Sequence[Axis], row_work: int, emit: Emit) -> None:
    """A phase whose jobs walk shares of the points of `axes`; `emit` sees them bound."""
    if not axes:
        one_job(emitter, emit)
        return
    chunk = emitter.chunk(max(1, WORK_PER_JOB // max(row_work, 1)))
    top = Scope(bound={name := emitter.fresh("job")})
    total = math.prod((a.extent for a in axes), start=1)
    begin = dims.symbol(name) * chunk
    end = dims.minimum(begin + chunk, total)
    if len(axes) == 1:
        with top.loop(axes[0].name, end, begin=begin) as scope:
            emit(scope)
    else:
        flat = emitter.fresh("p")
        with top.loop(flat, end, begin=begin) as scope:
            emitter.decode(axes, dims.symbol(flat, 0, total - 1), scope)
            emit(scope)
    emitter.phase(name, dims.ceiling_divide(total, chunk), top)


def over_pieces(
    emitter: Emitter, outer: Sequence[Axis], inner: Axis, element_work: int, emit: Emit
) -> None:
    """A phase whose jobs walk shares of `outer` x pieces of `inner`.

    `emit` gets a scope that binds `outer`; `emitter.range(inner)` is its piece of `inner`.
    """
    length = emitter.size(inner.extent) or UNKNOWN_EXTENT
    if outer and length * element_work <= 2 * WORK_PER_JOB:
        over_rows(emitter, outer, length * element_work, emit)
        return
    pieces = -(-ENOUGH // max(1, extent(emitter, outer)))
    least = min(PIECE, max(LINE, -(-length // (pieces * LINE)) * LINE))
    chunk = emitter.chunk(max(least, WORK_PER_JOB // element_work))
    parts = dims.ceiling_divide(inner.extent, chunk)
    top = Scope(bound={name := emitter.fresh("job")})
    piece: Dim = dims.symbol(name)
    jobs = parts
    if outer:
        jobs = math.prod((a.extent for a in outer), start=parts)
        bound = emitter.fresh("piece")
        top.add(Let(bound, IndexValue(dims.remainder(piece, parts), dt.int64)))
        top.bound.add(bound)
        emitter.decode(outer, dims.floor_divide(piece, parts), top)
        piece = dims.symbol(bound)
    begin = piece * chunk
    emitter.ranges[inner.name] = begin, dims.minimum(begin + chunk, inner.extent)
    emit(top)
    del emitter.ranges[inner.name]
    emitter.phase(name, jobs, top)
