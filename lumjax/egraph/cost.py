"""What kernels cost: an analytic model on reference constants, equal on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lumjax.kernel.region import estimate, volume
from lumjax.kernel.roles import Roles
from lumjax.kernel.term import (
    Apply,
    Axis,
    Index,
    Lit,
    Load,
    Reduction,
    Root,
    Running,
    Term,
    children,
    free_names,
    loads,
)
from lumjax.record import record
from lumjax.target import Backend, Target
from lumjax.trace.dim import Expr
from lumjax.trace.form import ReduceOp

_DEAR = 8.0  # operations from which on a scalar operation is a special function
_SPECIAL = 2.5  # what their tables, range reductions and selections cost beside their operations
_MASKED = 0.1  # the part of its rate that a contraction into tiles reaches on windows with edges


@record
class Machine:
    """A round reference machine: rates per second, bandwidths by where the working set fits."""

    scalar_flops: float  # elementwise operations, vectorised
    contraction_flops: float
    levels: tuple[tuple[int, float], ...]  # (bytes that fit, bytes per second), smallest first
    memory: float  # bytes per second beyond the levels
    launch: float  # seconds per kernel
    units: int  # jobs that run at once; fewer take as long
    tile: int  # rows that a loop over tiles holds at once
    tiled: float  # rate of contractions into such tiles, as part of contraction_flops
    step: float  # seconds that a tile takes however small it is
    space: float  # what a byte of temporaries is worth in seconds
    excess: float  # the same beyond a quarter of what the program reads and writes


MACHINES = {
    Backend.CPU: Machine(
        scalar_flops=3e10,
        contraction_flops=1.3e11,
        levels=((1 << 20, 1.0e11), (1 << 25, 4e10)),
        memory=1.5e10,
        launch=1.5e-6,
        units=2,
        tile=64,
        tiled=0.9,
        step=3e-7,
        space=5e-10,
        excess=2e-9,
    ),
    Backend.CUDA: Machine(
        scalar_flops=3e13,
        contraction_flops=4e14,
        levels=((1 << 25, 6e12),),
        memory=3e12,
        launch=3e-6,
        units=132,
        tile=128,
        tiled=0.6,
        step=1e-6,
        space=2.5e-12,
        excess=1e-11,
    ),
}


def machine(target: Target) -> Machine:
    """The reference machine of a target's kind."""
    return MACHINES[target.backend]


def extent_of(names: Iterable[str], axes: Mapping[str, Axis]) -> int:
    """The number of points over these axes; names that are no axes (sizes) do not count."""
    total = 1
    for name in names:
        if name in axes:
            total *= estimate(axes[name].extent)
    return total


def factors(term: Term) -> tuple[Term, Term] | None:
    """The operands of a contraction (a sum of products, free axes on both sides), else None."""
    if not isinstance(term, Reduction) or term.op is not ReduceOp.SUM:
        return None
    body = term.body
    if not isinstance(body, Apply) or body.op.name != "mul":
        return None
    x, y = body.args
    bound = {a.name for a in term.axes}
    left, right = free_names(x), free_names(y)
    if not (left & right & bound) or not (left - right - bound) or not (right - left - bound):
        return None
    return x, y


def term_flops(term: Term) -> float:
    """Operations for one value of the term, given its direct subterms."""
    match term:
        case Apply(op=op):
            return op.flops * (_SPECIAL if op.flops >= _DEAR else 1.0)
        case Reduction():
            return 1.0
        case Load() | Index():
            return 0.5
        case Lit() | Running():
            return 0.0


def work(
    terms: Iterable[Term],
    axes: Mapping[str, Axis],
    machine: Machine,
    roles: Roles | None = None,
) -> float:
    """Seconds to compute these terms, each once over its own axes; in loops over tiles, what late
    roots need of the tiles is computed again.
    """
    scalar, contracted = 0.0, 0.0
    products: set[Term] = set()
    listed = list(terms)
    again = _late(roles)
    pairs = {} if roles is None else {c.term: c for c in roles.carries if c.weights is not None}
    for term in listed:
        if isinstance(term, Reduction) and (factors(term) is not None or term in pairs):
            products.add(term.body)
            names = free_names(term) | {a.name for a in term.axes}
            contracted += 2.0 * extent_of(names, axes) * (1 + (term in again))
    for term in listed:
        if term in products or (isinstance(term, Reduction) and term.body in products):
            continue
        names = free_names(term)
        if isinstance(term, Reduction):
            names = names | {a.name for a in term.axes}
        scalar += term_flops(term) * extent_of(names, axes) * (1 + (term in again))
    rate = machine.contraction_flops * (1.0 if roles is None else _tiled(roles, machine))
    return scalar / machine.scalar_flops + contracted / rate


def _tiled(roles: Roles, machine: Machine) -> float:
    """The part of its rate that a contraction into tiles reaches: small tiles waste lanes."""
    length, rows = estimate(roles.along.extent), roles.rows
    full = min(1.0, length / machine.tile)
    masked = any(isinstance(x.valid, Expr) for i in roles.inner for x in loads(i.term))
    return (
        (_MASKED if masked else 1.0)
        * machine.tiled
        * full
        * (1.0 if rows is None else min(1.0, 4 * estimate(rows.extent) / machine.tile))
    )


def _late(roles: Roles | None) -> set[Term]:
    """What varies along the stream and is needed after it, and also in a carry."""
    if roles is None or not roles.late:
        return set()
    after = _varying([r.term for r in roles.late], roles)
    return after & _varying([c.term.body for c in roles.carries], roles)


def _varying(terms: Iterable[Term], roles: Roles) -> set[Term]:
    stream = {a.name for a in roles.stream}
    carries = {c.term for c in roles.carries}
    found: set[Term] = set()
    stack = list(terms)
    while stack:
        term = stack.pop()
        if term not in found and term not in carries and free_names(term) & stream:
            found.add(term)
            stack.extend(children(term))
    return found


def traffic(terms: Iterable[Term], roots: Iterable[Root], axes: Mapping[str, Axis]) -> int:
    """Bytes read and written by a kernel that computes these terms and stores these roots."""
    return sum(_read(terms, axes).values()) + sum(
        volume(r.buffer.shape) * r.buffer.dtype.itemsize for r in roots
    )


def _read(terms: Iterable[Term], axes: Mapping[str, Axis]) -> dict[str, int]:
    """The bytes of each buffer that are touched."""
    read: dict[str, int] = {}
    for term in terms:
        if isinstance(term, Load):
            size = term.dtype.itemsize
            touched = min(extent_of(free_names(term), axes), volume(term.buffer.shape)) * size
            read[term.buffer.name] = max(read.get(term.buffer.name, 0), touched)
    return read


def _rate(size: int, machine: Machine) -> float:
    for fits, rate in machine.levels:
        if size <= fits:
            return rate
    return machine.memory


def memory_time(size: int, machine: Machine) -> float:
    """Seconds to move `size` bytes."""
    return size / _rate(size, machine)


def _streamed(
    terms: Iterable[Term], axes: Mapping[str, Axis], machine: Machine, roles: Roles
) -> float:
    """Seconds to read again, for every further tile of rows, what is read along the stream."""
    if roles.rows is None:
        return 0.0
    stream = {a.name for a in roles.stream}
    names = stream | {a.name for a in roles.grid}
    loads = [t for t in terms if isinstance(t, Load) and free_names(t) & stream]
    loads = [t for t in loads if roles.rows.name not in free_names(t)]
    tiles = -(-extent_of([roles.rows.name], axes) // machine.tile)
    once = sum(_read(loads, axes).values())
    each = once // max(1, extent_of(names - stream, axes))
    return once * (tiles - 1) / _rate(each, machine)


def _tiles(roles: Roles, machine: Machine) -> tuple[int, int]:
    """The jobs of a loop over tiles, and the tiles that each walks over."""
    rows = 1 if roles.rows is None else -(-estimate(roles.rows.extent) // machine.tile)
    jobs = rows * volume([a.extent for a in roles.grid])
    others = volume([a.extent for a in roles.stream if a is not roles.along])
    return jobs, others * -(-estimate(roles.along.extent) // (2 * machine.tile))


def kernel_time(
    terms: Iterable[Term],
    roots: Iterable[Root],
    axes: Mapping[str, Axis],
    machine: Machine,
    roles: Roles | None = None,
) -> float:
    """Predicted seconds of one kernel; `roles` are given if it is a loop over tiles."""
    listed, stored = list(terms), list(roots)
    moved = memory_time(traffic(listed, stored, axes), machine)
    computed = work(listed, axes, machine, roles)
    if roles is not None:
        moved += _streamed(listed, axes, machine, roles)
        jobs, steps = _tiles(roles, machine)
        computed *= max(1.0, machine.units / max(1, jobs))
        computed += machine.step * jobs * steps / min(machine.units, max(1, jobs))
    # Moving and computing overlap, but never wholly.
    return machine.launch + max(moved, computed) + 0.2 * min(moved, computed)
