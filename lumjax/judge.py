"""What the compiler's rules make of a program, judged on special values. For tests.

Kernels are verified against the terms that they compute whenever they are made. This is about the
terms: equal programs that a search chooses from, and the plan that it chose, against the traced
program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.egraph.plan import Found
from lumjax.egraph.replay import equals
from lumjax.egraph.rules import Kind
from lumjax.egraph.rules.registry import load_rules
from lumjax.egraph.search import budget_of_config
from lumjax.kernel.evaluate import evaluate, evaluate_group, strain
from lumjax.kernel.term import Apply, Buffer, Reduction, Root, loads, subterms
from lumjax.kernel.verify import STRAIN, compare, moderate, plant
from lumjax.record import record
from lumjax.stages import Native, Nested, Stage
from lumjax.target import Target

NDArray: TypeAlias = np.ndarray[Any, Any]
Values: TypeAlias = Mapping[str, NDArray]

TURNS = 3  # sets of special values for each region
PROGRAMS = 6  # equal programs of a region that are tried, by exact rules and by all


@record
class Judged:
    """How many regions were looked at, and how many equal programs of them: by exact rules alone,
    and by all rules.
    """

    regions: int
    exact: int
    near: int


def judge(stages: Iterable[Stage], target: Target, seed: int) -> Judged:
    """Compare the programs of every compiled region, as `testing.check_plans` says; AssertionError
    names the region that differs.
    """
    regions = {s.region.key: s for s in _native(stages)}
    counts = [_judge(s, target, seed) for s in regions.values()]
    return Judged(len(counts), sum(e for e, _ in counts), sum(n for _, n in counts))


def _native(stages: Iterable[Stage]) -> Iterator[Native]:
    """The compiled regions, those of loops and choices included."""
    for stage in stages:
        if isinstance(stage, Native):
            if stage.found.plan.groups:  # else no terms, and nothing to choose from
                yield stage
        elif isinstance(stage, Nested):
            for program in stage.programs:
                yield from _native(program.stages)


def _judge(stage: Native, target: Target, seed: int) -> tuple[int, int]:
    """Compare a region's programs; how many there were by exact rules, and by all."""
    rules, budget, region = load_rules(config.fast_math), budget_of_config(), stage.region
    exact = [r for r in rules if r.kind is Kind.EXACT]
    roots, same = equals(region, target, exact, budget, PROGRAMS)
    _, alike = equals(region, target, rules, budget, PROGRAMS)
    for turn in range(TURNS):
        traced = _Program(roots, _special(stage.found.plan.inputs, seed + turn))
        where = f"region {region.key[:8]}, values {seed + turn}"
        with np.errstate(all="ignore"):
            planned = _planned(stage.found, traced.inputs)
            for root in roots:
                traced.alike(root, planned[root.buffer.name], f"{where}, as planned")
            for k, terms in enumerate([*same, *alike]):
                other = traced.of(terms)
                for root in roots:
                    got = other.value(other.roots[root.buffer.name])
                    if k < len(same):
                        traced.same(root, got, f"{where}, by exact rules")
                    else:
                        traced.alike(root, got, where)
    return len(same), len(alike)


def _special(buffers: Sequence[Buffer], seed: int) -> dict[str, NDArray]:
    """Values for a region's inputs."""
    rng = np.random.default_rng(seed)
    made: dict[str, NDArray] = {}
    for buffer in buffers:
        made[buffer.name] = array = np.empty([int(n) for n in buffer.shape], buffer.dtype)
        if array.size:
            moderate(rng, array)
        if array.size and dt.is_floating(buffer.dtype):
            plant(rng, array)
    return made


def _planned(found: Found, inputs: Values) -> dict[str, NDArray]:
    """What the plan's kernels store, one after the other."""
    values = dict(inputs)
    for group in found.plan.groups:
        shapes = {r.buffer.name: r.buffer.shape for r in group.roots}
        made = evaluate_group(group, values)
        values |= {name: array.reshape(shapes[name]) for name, array in made.items()}
    return values


class _Program:
    """A region's roots on some inputs. Some roots are stored for others to read."""

    def __init__(self, roots: Sequence[Root], inputs: Values) -> None:
        self.roots = {r.buffer.name: r for r in roots}
        self.inputs = inputs
        self.stored: dict[tuple[bool, int | None], dict[str, NDArray]] = {}

    def of(self, terms: Sequence[Any]) -> _Program:
        """The same roots with other terms."""
        pairs = zip(self.roots.values(), terms, strict=True)
        return _Program([replace(r, term=t) for r, t in pairs], self.inputs)

    def value(self, root: Root, wide: bool = False, seed: int | None = None) -> NDArray:
        """A root; `wide` in float64, `seed` of rounding errors."""
        return evaluate(root, self._below(root, wide, seed), None, wide, seed)

    def _below(self, root: Root, wide: bool, seed: int | None) -> Values:
        """The inputs, and what the root reads of other roots."""
        values = self.stored.setdefault((wide, seed), dict(self.inputs))
        for load in loads(root.term):
            name = load.buffer.name
            if name not in values:
                values[name] = self.value(self.roots[name], wide, seed).reshape(load.buffer.shape)
        return values

    def _strained(self, root: Root) -> NDArray:
        """Where some intermediate result comes near to overflow, of what the root reads included:
        rounding may decide what is finite there.
        """
        read = {t.buffer.name for t in loads(root.term)} & self.roots.keys()
        found = strain(root, self._below(root, True, None)) >= STRAIN
        return found | any(self._strained(self.roots[name]).any() for name in sorted(read))

    def _rounds(self, root: Root) -> bool:
        """Whether how it is rounded is nobody's promise, in what it reads of other roots too: sums
        of inexact numbers may be added up in any order, and half floats on the way to a result live
        in float32, where a kernel is free to round them or not.
        """
        inner = [t for t in subterms(root.term) if isinstance(t, Apply | Reduction)]
        read = {t.buffer.name for t in loads(root.term)} & self.roots.keys()
        return any(
            dt.is_inexact(t.dtype)
            if isinstance(t, Reduction)
            else t is not root.term and dt.accumulation_dtype(t.dtype) != t.dtype
            for t in inner
        ) or any(self._rounds(self.roots[name]) for name in read)

    def alike(self, root: Root, got: NDArray, where: str) -> None:
        """AssertionError unless values are near, and finite where this program's are."""
        want = self.value(root, True)
        got = got.reshape(want.shape)
        if dt.is_inexact(got.dtype):  # one kind of what is not finite
            got, want = (np.where(np.isfinite(x), x, np.nan).astype(x.dtype) for x in (got, want))

        def again(wide: bool, seed: int | None) -> NDArray:
            found = self.value(root, wide, seed)
            if not dt.is_inexact(found.dtype):
                return found
            return np.where(np.isfinite(found), found, np.nan).astype(found.dtype)

        verdict = compare(root, got, want, again, where, partial(self._strained, root))
        assert verdict.ok, str(verdict)

    def same(self, root: Root, got: NDArray, where: str) -> None:
        """AssertionError unless values are this program's, zeros' signs included; NaN is NaN. Near
        them where rounding is free, which is no rule's doing.
        """
        if self._rounds(root):
            again, outside = partial(self.value, root), partial(self._strained, root)
            verdict = compare(root, got, self.value(root, True), again, where, outside)
            assert verdict.ok, str(verdict)
            return
        want = self.value(root)
        alike = (got == want) | ((got != got) & (want != want))
        if dt.is_floating(want.dtype):
            alike &= (np.signbit(got) == np.signbit(want)) | (want != want)
        if not alike.all():
            at = tuple(int(k) for k in np.argwhere(~alike)[0])
            got, want = got[at], want[at]
            raise AssertionError(f"{where}: {root.buffer.name}{list(at)} is {got}, not {want}")
