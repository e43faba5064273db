"""Equal seeds make equal plans: in any process, whatever its hashes, beside other work or not."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest

PROCESSES = 20
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
        found = search(region, TARGET)
        assert not found.plan.truncated
        print(json.dumps(plan_text(found.plan, Operations(region))), found.report.evaluations)
"""
PROGRAMS = ("attention_backward", "contrastive", "layer_norm_backward")


def planned(seed):
    """What a process with these hashes plans."""
    environment = {
        "PYTHONHASHSEED": str(seed),
        "PATH": "",
        "HOME": "/nonexistent",
        "LUMJAX_SEARCH_SECONDS": "300",
    }
    done = subprocess.run(
        [sys.executable, "-c", PLAN, *PROGRAMS],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=environment,
        check=True,
    )
    return done.stdout


@lru_cache(maxsize=1)
def reference():
    return planned(0)


@contextmanager
def load():
    """Two busy processes for every core."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.parametrize("seed", range(1, PROCESSES))
@pytest.mark.sampled(11)
def test_equal_seeds_make_equal_plans_in_every_process(seed):
    lines = reference().splitlines()
    assert len(lines) >= len(PROGRAMS)
    assert all(json.loads(line.rpartition(" ")[0]) for line in lines)
    if seed % 2:
        with load():
            assert planned(seed) == reference()
    else:
        assert planned(seed) == reference()
