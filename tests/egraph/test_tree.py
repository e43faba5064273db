"""The search among equal programs: against random sampling, against all of them, reproducible."""

import itertools
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import programs
from lumjax.config import config
from lumjax.egraph.tree import Tree
from tests.egraph.planning import largest, offered

NAMES = (
    "softmax",
    "log_softmax",
    "logsumexp",
    "layer_norm_backward",
    "rms_norm_backward",
    "chained",
    "attention",
    "soft_cap",
    "attention_backward",
    "linear_loss",
)
EVALUATIONS = 10


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


def sampled(extraction, price, seed=0):
    """The best price among random programs."""
    draw, best = random.Random(seed), math.inf
    tree = Tree(extraction, price, seed)
    for _ in range(200):
        choice = {c: draw.choice(nodes) for c, nodes in tree.options.items()}
        tree.start(choice)
        if tree.spent:
            break
        best = tree.best.price if tree.best else best
    return best


def test_the_search_beats_random_sampling():
    better = 0
    for name in NAMES:
        extraction, chooser = offered(built(name))
        found = tree_of(extraction, counted(chooser, EVALUATIONS))
        _, again = offered(built(name))
        better += found.best.price <= sampled(extraction, counted(again, EVALUATIONS))
    assert better >= 8


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


PLAN = """
import json, sys
from lumjax.config import config
config.update("cache", False)
from benchmarks import programs
from lumjax.egraph.search import search
from lumjax.egraph.scalar import Operations
from lumjax.egraph.text import plan_text
from tests.egraph.planning import TARGET, regions
for name in sys.argv[1:]:
    f, args = getattr(programs, name)(64)
    for region in regions(f, *args):
        plan = search(region, TARGET).plan
        print(json.dumps(plan_text(plan, Operations(region))))
"""


def test_equal_seeds_make_equal_plans_in_every_process():
    root = Path(__file__).parents[2]
    found = set()
    for seed in ("0", "1", "77"):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                PLAN,
                "attention_backward",
                "contrastive",
                "layer_norm_backward",
            ],
            capture_output=True,
            text=True,
            cwd=root,
            env={"PYTHONHASHSEED": seed, "PATH": "", "HOME": "/nonexistent"},
            check=True,
        )
        assert all(json.loads(line) for line in done.stdout.splitlines())
        found.add(done.stdout)
    assert len(found) == 1
