"""Whether any rule can match a program at all: many need no e-graph, and egglog is slow to load.

Where no rule matches the traced terms none ever will: new terms come from rules only. The test may
say yes in vain, never no.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from lumjax import dtype as dt
from lumjax.egraph.rules import BINARY, REDUCTIONS, TERNARY, UNARY, Pattern, Rule, parse
from lumjax.egraph.rules.facts import literal_facts
from lumjax.kernel.term import Apply, Lit, Reduction, Term, subterms

_OPERATIONS = UNARY | BINARY | TERNARY
_FACTS = frozenset({"one", "zero", "negative_zero", "minus_one", "always", "never", "constant"})
_NEUTRAL = {'"mul"': "one", '"div"': "one", '"add"': "negative_zero", '"sub"': "zero"}
_RELATED = "core"  # definitions of functions: of use to other rules alone, as are conclusions


def may_rewrite(rules: Sequence[Rule], terms: Iterable[Term]) -> bool:
    """Whether a rule may match, or a constant may fold, in these terms."""
    distinct = list(dict.fromkeys(s for t in terms for s in subterms(t)))
    present = Counter(mark for t in distinct for mark in _marks(t))
    return any(
        all(present[m] >= n for m, n in wanted.items())
        for r in rules
        if r.ruleset != _RELATED and not r.concludes
        for wanted in _required(r)
    ) or any(_folds(t) for t in distinct)


def _folds(term: Term) -> bool:
    return isinstance(term, Apply) and all(isinstance(a, Lit) for a in term.args)


def _marks(term: Term) -> Iterator[str]:
    """What a term offers to patterns and guards."""
    match term:
        case Apply(op=op, args=args):
            yield op.name
            yield "floating" if dt.is_floating(term.dtype) else "integer"
            if len(args) > 1 and any(a is b for a, b in pairwise(args)):
                yield f"{op.name} twice"
        case Reduction(op=op):
            yield f"reduce {op.value}"
            yield "floating" if dt.is_floating(term.dtype) else "integer"
        case Lit():
            yield "constant"
            yield from literal_facts(term)
        case _:
            return


@lru_cache(maxsize=512)
def _required(rule: Rule) -> tuple[Counter[str], ...]:
    """What a rule's left side and guard ask for at least, for each of its operations."""
    return tuple(_required_by(r) for r in rule.instances())


def _required_by(rule: Rule) -> Counter[str]:
    wanted = _asked(parse(rule.left)[0])
    for guard in parse(rule.guard):
        match guard:
            case [str(fact), *_] if fact in (*_FACTS, "integer", "floating"):
                wanted |= Counter([fact])
            case ["neutral", str(name), _]:
                wanted |= Counter([_NEUTRAL[name]])
            case ["=", _, pattern]:
                wanted |= _asked(pattern)
            case _:
                pass
    return wanted


def _asked(pattern: Pattern) -> Counter[str]:
    """Operations along the deepest path: siblings may match one term, nested patterns never do."""
    if isinstance(pattern, str) or not isinstance(pattern[0], str):
        return Counter()
    head, arguments = pattern[0].removesuffix("*"), pattern[1:]
    below: Counter[str] = Counter()
    for a in arguments:
        below |= _asked(a)
    if head in REDUCTIONS:
        below[f"reduce {REDUCTIONS[head]}"] += 1
    elif head in _OPERATIONS:
        below[head] += 1
        if any(a == b for a, b in pairwise(arguments[1:])):
            below |= Counter([f"{head} twice"])
    return below
