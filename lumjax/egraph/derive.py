"""Which rules a program owes its form to: a smallest set of rules that still derives it.

Rules that fired are left out one by one, as long as the traced and the chosen program still end up
in one class. What remains is enough, and each of it is needed (other sets may do as well).
"""

from __future__ import annotations

from collections.abc import Sequence

from lumjax.egraph.plan import clock
from lumjax.egraph.rules import Rule
from lumjax.egraph.scalar import Operations
from lumjax.egraph.terms import FactError, Graph
from lumjax.kernel.term import Term

ITERATIONS = 8
SECONDS = 20.0  # for all trials of one program


def derivation(
    rules: Sequence[Rule],
    fired: Sequence[str],
    operations: Operations,
    traced: Sequence[Term],
    chosen: Sequence[Term],
    size: int = 20000,
    seconds: float = SECONDS,
) -> tuple[str, ...] | None:
    """Names of rules that are enough to derive the chosen terms from the traced ones, each needed.

    None if no set of rules was found to be enough: folding constants took part, say, in a way that
    cannot be repeated, or the clock ran out.
    """
    if list(traced) == list(chosen):
        return ()
    deadline = clock() + seconds
    left = [r for r in rules if r.name in set(fired)]

    def enough(trial: Sequence[Rule]) -> bool:
        return _equal(trial, operations, traced, chosen, size, deadline)

    if not enough(left):
        return None
    step = max(1, len(left) // 2)
    while step:
        k = 0
        while k < len(left) and clock() < deadline:
            trial = left[:k] + left[k + step :]
            if enough(trial):
                left = trial
            else:
                k += step
        step //= 2
    return tuple(r.name for r in left) if clock() < deadline else None


def _equal(
    rules: Sequence[Rule],
    operations: Operations,
    traced: Sequence[Term],
    chosen: Sequence[Term],
    size: int,
    deadline: float,
) -> bool:
    """Whether the rules prove that each chosen term equals the traced one."""
    with Graph(rules).session(operations) as session:
        try:
            session.insert([*traced, *chosen])
            session.saturate(ITERATIONS, size, deadline)
            roots = session.read().roots
        except (FactError, AssertionError, KeyError):
            return False  # terms that an e-graph cannot hold as they are
    return roots[: len(traced)] == roots[len(traced) :]
