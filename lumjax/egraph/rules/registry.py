"""All rules, and which of them a search may use."""

from __future__ import annotations

from functools import lru_cache

from lumjax.egraph.rules import Kind, Rule, algebra, checked, stream

RULES = (*algebra.RULES, *stream.RULES)
SAFE = frozenset({Kind.EXACT, Kind.REASSOCIATING})


@lru_cache(maxsize=8)
def load(kinds: frozenset[Kind] = SAFE) -> tuple[Rule, ...]:
    """The rules of these classes; RuleError for a rule without class or witness."""
    return tuple(r for r in checked(RULES) if r.kind in kinds)


def load_rules(fast_math: bool) -> tuple[Rule, ...]:
    """The rules of a search: domain rules only under fast_math."""
    return load(SAFE | {Kind.DOMAIN} if fast_math else SAFE)
