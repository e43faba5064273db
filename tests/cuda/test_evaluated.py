"""What of the primitives' records has no CUDA kernel: `evaluated.tsv`, which may only shrink.

python -m tests.cuda.test_evaluated         drops the lines that nothing needs any more
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lumjax import config
from lumjax.executable import Executable
from lumjax.trace.stage import stage
from tests.test_compiled import CASES

LIST = Path(__file__).with_name("evaluated.tsv")


def listed():
    return [tuple(x.split("\t")) for x in LIST.read_text(encoding="utf-8").splitlines()]


def evaluated(prim, sample):
    """The primitives that run through `eval` in a program of this sample, and why."""
    staged = stage(lambda *xs: prim.bind(*xs, **sample.params), sample.avals)
    with config.scope(backend="cuda:emulated", search_evaluations=0, verify=False):
        return {(s.eqn.prim.name, s.why) for s in Executable(staged.jaxpr).evaluated()}


@pytest.mark.sampled(30)
@pytest.mark.parametrize(("prim", "sample"), CASES)
def test_nothing_else_runs_through_eval(prim, sample):
    assert evaluated(prim, sample) <= set(listed())


@pytest.mark.slow
def test_everything_in_the_list_does():
    assert needed() == listed() == sorted(listed())


def needed():
    return sorted(set().union(*(evaluated(*case.values) for case in CASES)) & set(listed()))


if __name__ == "__main__":
    LIST.write_text("".join(f"{a}\t{b}\n" for a, b in needed()), encoding="utf-8")
