"""The search among equal programs: against random sampling, against all of them, reproducible."""

import itertools
from functools import lru_cache

import pytest

from benchmarks import programs
from benchmarks.search import compare
from lumjax.config import config
from lumjax.egraph.tree import Tree
from tests.egraph.planning import TARGET, largest, offered

# Programs of the table whose equal programs differ in price.
NAMES = (
    "layer norm backward",
    "rms norm backward",
    "attention",
    "attention causal, additive",
    "attention soft cap",
    "attention grouped",
    "attention backward",
    "linear and labels",
    "contrastive",
    "projections and attention",
)


@pytest.fixture(autouse=True)
def no_cache():
    with config.scope(cache=False):
        yield


def built(name, size=128):
    return largest(*(lambda f, args: (f, *args))(*getattr(programs, name)(size)))


def tree_of(extraction, price, seed=0):
    tree = Tree(extraction, price, seed)
    tree.start(dict(extraction.classes.traced))
    for choice in itertools.islice(extraction.choices(), 3):
        tree.start(dict(choice))
    tree.climb()
    tree.grow(100)
    return tree


def counted(chooser, count):
    """The chooser's price, `count` times."""
    left = iter(range(count))
    return lambda terms: chooser.price(terms) if next(left, None) is not None else None


@lru_cache(maxsize=1)
def compared():
    return [compare(name, TARGET, 512, seeds=3) for name in NAMES]


def test_the_search_beats_random_sampling():
    found = compared()
    assert all(found), "all of these leave something to choose"
    for budget in (5, 10):
        assert sum(c.beats(budget) is True for c in found) >= 8, found
    assert not any(c.beats(10) is False for c in found), found


def test_the_search_comes_near_the_best_of_all_programs():
    near = [c.exhaustive for c in compared() if c.exhaustive is not None]
    assert all(e <= 1.05 for e in near)


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "chained", "attention"])
def test_the_search_comes_near_the_best_of_all(name):
    extraction, chooser = offered(built(name))
    found = tree_of(extraction, chooser.price)
    options = Tree(extraction, chooser.price, 0).options
    programs = {extraction.terms(c): None for c in every_choice(extraction, options)}
    assert 2 < len(programs) < 500
    every = [chooser.price(terms) for terms in programs if terms is not None]
    assert found.best.price <= 1.05 * min(every)


def every_choice(extraction, options, limit=500):
    """All programs, each class that is reached decided; at most `limit` of them."""
    made = 0
    stack = [{}]
    while stack and made < limit:
        choice = stack.pop()
        left = [c for c in reached(extraction, choice) if c in options and c not in choice]
        if left:
            stack += [{**choice, left[0]: node} for node in options[left[0]]]
        else:
            made += 1
            yield choice


def reached(extraction, choice):
    seen, stack = {}, list(reversed(extraction.classes.roots))
    while stack:
        c = stack.pop()
        if c not in seen:
            seen[c] = None
            stack.extend(reversed(choice.get(c, extraction.best[c].node).args))
    return seen


def test_a_spent_budget_ends_the_search():
    extraction, chooser = offered(built("attention"))
    tree = tree_of(extraction, counted(chooser, 2))
    assert tree.spent
    assert len(tree.tried) == 2


def test_seeds_make_the_search():
    extraction, chooser = offered(built("attention_backward"))
    first, again, other = (tree_of(extraction, chooser.price, seed) for seed in (0, 0, 1))
    assert list(first.tried) == list(again.tried)
    assert first.best == again.best
    assert other.best.price <= 1.05 * first.best.price
