"""What kernels cost: an analytic model of their features, memory traffic and parallelism."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lumjax.egraph.features import (
    TILE,
    Features,
    counted,
    extent_of,
    factors,
    term_flops,
)
from lumjax.egraph.machine import MACHINES, Machine, machine
from lumjax.kernel.blocked import Blocks, rounds
from lumjax.kernel.region import volume
from lumjax.kernel.resident import Residence
from lumjax.kernel.roles import Roles
from lumjax.kernel.term import (
    Axis,
    Load,
    Reduction,
    Root,
    Running,
    Term,
    children,
    free_names,
    subterms,
)

__all__ = [
    "MACHINES",
    "Machine",
    "blocked_time",
    "blocks_of",
    "busy",
    "extent_of",
    "factors",
    "kernel_time",
    "machine",
    "memory_time",
    "resident_time",
    "term_flops",
    "traffic",
    "work",
]

_OVERLAP = 0.2  # of the lesser of moving and computing, the part that the other does not hide


def busy(done: Features, machine: Machine) -> float:
    """Seconds of one core to compute."""
    return (
        done.operations * machine.operation
        + done.special * machine.special
        + done.gathered * machine.gather
        + done.irregular * machine.irregular
        + done.staged * machine.stage
        + done.products * machine.product
        + done.finished * machine.finish
        + done.entries * machine.entry
        + done.tiled * machine.tiled
        + done.steps * machine.step
    )


def work(terms: Iterable[Term], axes: Mapping[str, Axis], machine: Machine) -> float:
    """Seconds of one core to compute these terms, each once over its own axes."""
    return busy(counted(terms, axes), machine)


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


def _price(size: int, machine: Machine) -> float:
    """Seconds of one core for a byte of a working set of this size."""
    for fits, seconds in machine.levels:
        if size <= fits:
            return seconds
    return machine.memory


def memory_time(size: int, machine: Machine) -> float:
    """Seconds of one core to move `size` bytes."""
    return size * _price(size, machine)


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
    tiles = -(-extent_of([roles.rows.name], axes) // TILE)
    once = sum(_read(loads, axes).values())
    each = once // max(1, extent_of(names - stream, axes))
    return once * (tiles - 1) * _price(each, machine)


def _walked_again(
    terms: Sequence[Term], roots: Sequence[Root], axes: Mapping[str, Axis], machine: Machine
) -> float:
    """Seconds to read rows once more for each pass after the first, where they are too long to stay
    in the nearest memory: reductions that wait for others, and values along the rows.
    """
    reduced = [t for t in terms if isinstance(t, Reduction)]
    stays = machine.levels[0][0] if machine.levels else 0
    long = [t for t in reduced if extent_of(_names(t), axes) * t.dtype.itemsize > stays]
    passes: dict[Load, set[int]] = {}
    for names in {_names(t) for t in long}:
        for body in (*(t.body for t in reduced), *(r.term for r in roots)):
            for load in _outside_reductions(body):
                if names <= free_names(load):
                    passes.setdefault(load, set()).add(_waits(body))
    size = sum((len(p) - 1) * sum(_read([t], axes).values()) for t, p in passes.items())
    return memory_time(size, machine)


def _names(term: Reduction) -> frozenset[str]:
    return frozenset(a.name for a in term.axes)


def _outside_reductions(term: Term) -> list[Load]:
    """The loads of a term that no reduction inside it reads."""
    found: dict[Term, None] = {}
    stack = [term]
    while stack:
        node = stack.pop()
        if node not in found and not isinstance(node, Reduction):
            found[node] = None
            stack.extend(children(node))
    return [t for t in found if isinstance(t, Load)]


def _waits(term: Term) -> int:
    """How many reductions, one inside the other, must be complete before the term is computed; what
    is known of a statistic while rows are walked needs none.
    """
    depth: dict[Term, int] = {}
    for t in subterms(term):
        inside = max((depth[c] for c in children(t)), default=0)
        depth[t] = 0 if isinstance(t, Running) else inside + isinstance(t, Reduction)
    return depth[term]


def kernel_time(
    terms: Iterable[Term],
    roots: Iterable[Root],
    axes: Mapping[str, Axis],
    machine: Machine,
    roles: Roles | None = None,
) -> float:
    """Predicted seconds of one kernel; `roles` are given if it is a loop over tiles."""
    listed, stored = list(terms), list(roots)
    done = counted(listed, axes, stored, roles)
    size = traffic(listed, stored, axes)
    moved = memory_time(size, machine)
    if roles is not None:
        moved += _streamed(listed, axes, machine, roles)
    if roles is None or not (roles.inner or roles.columns):
        moved += _walked_again(listed, stored, axes, machine)
    return _together(done, moved, size, machine)


def resident_time(
    found: Residence, roots: Sequence[Root], axes: Mapping[str, Axis], machine: Machine
) -> float:
    """Predicted seconds of a kernel whose jobs hold whole rows: nothing is computed twice."""
    terms = list(dict.fromkeys(t for r in found.roots for t in subterms(r.term)))
    done = counted(terms, axes)
    jobs = volume([a.extent for a in found.grid])
    done = replace(
        done,
        tiled=done.products,
        products=0.0,
        finished=0.0,
        staged=float(found.copied * jobs),
        jobs=jobs,
    )
    size = traffic(terms, roots, axes)
    return _together(done, memory_time(size, machine), size, machine)


def blocks_of(found: Blocks, axes: Mapping[str, Axis]) -> int:
    """How many blocks there are."""
    return rounds(extent_of([found.rows.name], axes))


def blocked_time(
    found: Blocks, roots: Sequence[Root], axes: Mapping[str, Axis], machine: Machine
) -> float:
    """Predicted seconds of a kernel that walks blocks of rows: nothing is computed twice, but what
    a block holds goes through memory, and each block adds to the sums over all rows.
    """
    terms = list(dict.fromkeys(t for r in found.roots for t in subterms(r.term)))
    blocks, parts = blocks_of(found, axes), len(found.held) + len(found.sums) + len(found.kept)
    done = replace(counted(terms, axes), jobs=blocks * machine.units)
    size = traffic(terms, roots, axes)
    passed = (*found.tiles, *found.sides)
    size += sum(3 * extent_of(free_names(t), axes) * t.dtype.itemsize for t in passed)
    for t in found.sums:
        size += 2 * (blocks - 1) * extent_of(free_names(t), axes) * t.dtype.itemsize
    moved = memory_time(size, machine)
    return _together(done, moved, size, machine) + blocks * parts * machine.launch


def _together(done: Features, moved: float, size: int, machine: Machine) -> float:
    """Seconds of a kernel whose cores compute so much and move so many bytes."""
    together = min(machine.units, max(1, done.jobs))
    computed = busy(done, machine) / together
    beyond = not machine.levels or size > machine.levels[-1][0]
    moved *= max(1.0 / together, machine.shared if beyond and together > 1 else 0.0)
    # Moving and computing overlap, but never wholly.
    return machine.launch + max(moved, computed) + _OVERLAP * min(moved, computed)
