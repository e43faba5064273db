"""What kernels cost: an analytic model on reference constants, equal on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lumjax.kernel.region import estimate, volume
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
    free_names,
)
from lumjax.target import Backend, Target
from lumjax.trace.form import ReduceOp


@dataclass(frozen=True, slots=True)
class Machine:
    """A round reference machine: rates per second, bandwidths by where the working set fits."""

    scalar_flops: float  # elementwise operations, vectorised
    contraction_flops: float
    levels: tuple[tuple[int, float], ...]  # (bytes that fit, bytes per second), smallest first
    memory: float  # bytes per second beyond the levels
    launch: float  # seconds per kernel


MACHINES = {
    Backend.CPU: Machine(
        scalar_flops=3e10,
        contraction_flops=2e11,
        levels=((1 << 20, 1.0e11), (1 << 25, 4e10)),
        memory=1.5e10,
        launch=1.5e-6,
    ),
    Backend.CUDA: Machine(
        scalar_flops=3e13,
        contraction_flops=4e14,
        levels=((1 << 25, 6e12),),
        memory=3e12,
        launch=3e-6,
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
            return op.flops
        case Reduction():
            return 1.0
        case Load() | Index():
            return 0.5
        case Lit() | Running():
            return 0.0


def work(terms: Iterable[Term], axes: Mapping[str, Axis], machine: Machine) -> float:
    """Seconds to compute these terms, each once over its own axes."""
    scalar, contracted = 0.0, 0.0
    products: set[Term] = set()
    listed = list(terms)
    for term in listed:
        if isinstance(term, Reduction) and factors(term) is not None:
            products.add(term.body)
            names = free_names(term) | {a.name for a in term.axes}
            contracted += 2.0 * extent_of(names, axes)
    for term in listed:
        if term in products or (isinstance(term, Reduction) and term.body in products):
            continue
        names = free_names(term)
        if isinstance(term, Reduction):
            names = names | {a.name for a in term.axes}
        scalar += term_flops(term) * extent_of(names, axes)
    return scalar / machine.scalar_flops + contracted / machine.contraction_flops


def traffic(terms: Iterable[Term], roots: Iterable[Root], axes: Mapping[str, Axis]) -> int:
    """Bytes read and written by a kernel that computes these terms and stores these roots."""
    read: dict[str, int] = {}
    for term in terms:
        if isinstance(term, Load):
            size = term.dtype.itemsize
            touched = min(extent_of(free_names(term), axes), volume(term.buffer.shape)) * size
            read[term.buffer.name] = max(read.get(term.buffer.name, 0), touched)
    written = sum(volume(r.buffer.shape) * r.buffer.dtype.itemsize for r in roots)
    return sum(read.values()) + written


def memory_time(size: int, machine: Machine) -> float:
    """Seconds to move `size` bytes."""
    for fits, rate in machine.levels:
        if size <= fits:
            return size / rate
    return size / machine.memory


def kernel_time(
    terms: Iterable[Term], roots: Iterable[Root], axes: Mapping[str, Axis], machine: Machine
) -> float:
    """Predicted seconds of one kernel."""
    listed, stored = list(terms), list(roots)
    moved = memory_time(traffic(listed, stored, axes), machine)
    computed = work(listed, axes, machine)
    # Moving and computing overlap, but never wholly.
    return machine.launch + max(moved, computed) + 0.2 * min(moved, computed)
