"""Rewrite rules as data. A rule has a class and a witness, or it does not load.

A rule is written over patterns: `(mul d x y)` is the scalar operation at dtype d (every dtype is
part of a term), `(mul* d x y)` the same in either order, `(sum d J x)` a reduction over the axis
set J, `(scaled d J x m k)` a sum that follows the statistic m, `(moved d J x m s b)` one that
follows an average, `(running m J)` what is known of m inside it. Guards: `(invariant x J)` (x
depends on no axis of J), `(varies x J)` (on at least one), `(apart x J)` (nothing in x is reduced
over an axis of J), `(waits x J)` (something is), `(floating d)`, `(integer d)`, `(one x)`, `(zero
x)`, `(minus_one x)`, and any egglog fact. A rule may conclude facts instead of an equality. In a
rule that holds for several operations, `@` stands for each of them, and `%` for what goes with it
("sub|add"). `checked` refuses rules without class or witness and `compile_rule` writes egglog.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from lumjax.egraph.rules.witness import Witness
from lumjax.record import record


class Kind(Enum):
    """What a rule promises."""

    EXACT = "exact"  # bit-identical, whatever the values
    REASSOCIATING = "reassociating"  # equal over the reals; floats up to rounding
    DOMAIN = "domain"  # equal where something is nonzero, positive or finite: only under fast_math


@record
class Rule:
    """Where `left` and the guard hold, `right` is equal to it, or `concludes` holds of it.

    `ops` are the operations that `@` stands for, or pairs "a|b" for `@` and `%`; `more` has the
    witnesses of all but the first.
    """

    name: str
    ruleset: str
    kind: Kind | None
    left: str
    right: str
    witness: Witness | None
    guard: str = ""
    concludes: str = ""
    ops: tuple[str, ...] = ()
    more: tuple[Witness, ...] = ()

    def instances(self) -> tuple[Rule, ...]:
        """The rule for each of its operations."""
        return tuple(self._at(op, k) for k, op in enumerate(self.ops)) or (self,)

    def _at(self, ops: str, k: int) -> Rule:
        op, _, other = ops.partition("|")
        texts = [self.left, self.right, self.guard, self.concludes]
        if op not in COMMUTATIVE:
            texts = [t.replace("@*", "@") for t in texts]
        left, right, guard, concludes = (t.replace("@", op).replace("%", other) for t in texts)
        witness = (self.witness, *self.more)[k]
        name = f"{self.name}/{op}"
        return Rule(name, self.ruleset, self.kind, left, right, witness, guard, concludes)


class RuleError(ValueError):
    """A rule that may not load: it lacks a class or a witness, or cannot be read."""


UNARY = frozenset(
    [
        "neg",
        "abs",
        "recip",
        "cast",
        "not",
        "exp",
        "exp2",
        "log",
        "log2",
        "sqrt",
        "rsqrt",
        "square",
        "sign",
        "floor",
        "ceil",
        "is_finite",
    ]
)
BINARY = frozenset(["add", "sub", "mul", "div", "max", "min", "and", "or", "xor", "eq"])
TERNARY = frozenset({"select"})
COMMUTATIVE = ("add", "mul", "max", "eq")
REDUCTIONS = {f"reduce_{o}": o for o in ["sum", "prod", "max", "min", "and", "or", "xor"]}
REDUCTIONS["sum"] = "sum"

Pattern: TypeAlias = "str | list[Pattern]"


def parse(text: str) -> list[Pattern]:
    """S-expressions as nested lists."""
    stack: list[list[Pattern]] = [[]]
    for token in re.findall(r"\(|\)|\"[^\"]*\"|[^\s()]+", text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1:
        raise RuleError(f"unbalanced parentheses in {text!r}")
    return stack[0]


def _text(pattern: Pattern) -> str:
    return pattern if isinstance(pattern, str) else f"({' '.join(map(_text, pattern))})"


_NODES = {"scaled": "Scaled", "moved": "Moved", "running": "Run"}


class _Writer:
    """Writes one rule in egglog, lifting `op*` patterns into facts."""

    def __init__(self) -> None:
        self.facts: list[str] = []
        self.fresh = 0

    def name(self) -> str:
        self.fresh += 1
        return f"_v{self.fresh}"

    def term(self, pattern: Pattern, matching: bool) -> str:
        if isinstance(pattern, str):
            return pattern
        head, args = pattern[0], pattern[1:]
        if not isinstance(head, str):
            raise RuleError(f"cannot read {_text(pattern)}")
        if head.endswith("*"):
            if not matching or head[:-1] not in COMMUTATIVE:
                raise RuleError(f"{head} stands only for a commutative operation in a pattern")
            bound = self.name()
            inner = [self.term(a, matching) for a in args]
            self.facts.append(f'(either "{head[:-1]}" {bound} {" ".join(inner)})')
            return bound
        inner = " ".join(self.term(a, matching) for a in args)
        for ops, constructor in ((UNARY, "Ap1"), (BINARY, "Ap2"), (TERNARY, "Ap3")):
            if head in ops:
                return f'({constructor} "{head}" {inner})'
        if head in REDUCTIONS:
            return f'(Red "{REDUCTIONS[head]}" {inner})'
        return f"({_NODES.get(head, head)} {inner})"

    def guard(self, pattern: Pattern) -> list[str]:
        match pattern:
            case ["invariant" | "varies" | "apart" | "waits" as test, x, axes]:
                names, found = self.name(), self.term(x, True)
                fact = "bound" if test in ("apart", "waits") else "free"
                shared = f"(set-intersect {names} {_text(axes)})"
                relation = "!=" if test in ("varies", "waits") else "="
                return [f"(= {names} ({fact} {found}))", f"({relation} (set-empty) {shared})"]
            case _:
                return [self.term(pattern, True)]


def compile_rule(rule: Rule) -> str:
    """The rule as egglog commands, one for each of its operations."""
    return "\n".join(map(_compiled, rule.instances()))


def _compiled(rule: Rule) -> str:
    writer = _Writer()
    left = writer.term(parse(rule.left)[0], matching=True)
    guards = [fact for g in parse(rule.guard) for fact in writer.guard(g)]
    facts = " ".join([f"(= _root {left})", *writer.facts, *guards])
    actions = [f"(union _root {writer.term(p, matching=False)})" for p in parse(rule.right)]
    actions += [writer.term(p, matching=False) for p in parse(rule.concludes)]
    text = f"(rule ({facts}) ({' '.join(actions)})"
    return f'{text} :ruleset {rule.ruleset} :name "{rule.name}")'


def checked(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules, or RuleError for one without class or witness, or with a name used twice."""
    names: set[str] = set()
    for rule in rules:
        if rule.kind is None or rule.witness is None:
            raise RuleError(
                f"rule '{rule.name}' has no {'class' if rule.kind is None else 'witness'}"
            )
        if len(rule.ops) > 1 + len(rule.more):
            raise RuleError(f"rule '{rule.name}' has no witness for some of its operations")
        if rule.name in names:
            raise RuleError(f"two rules are called '{rule.name}'")
        names.add(rule.name)
    return tuple(rules)
