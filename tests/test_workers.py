"""Programs compiled by several processes: the same kernels, whatever becomes of the workers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import native, stages, worker, workers
from lumjax.config import config
from lumjax.cpu.math import supported
from lumjax.executable import expand
from lumjax.kernel.digest import digest, operation_text, region_text
from lumjax.kernel.region import Region, cut
from lumjax.trace.core import Eqn, Primitive
from lumjax.trace.simplify import simplify
from tests.egraph import programs as pr

WIDTHS = (3, 5, 7, 9, 11, 13)
X = jnp.sin(jnp.arange(12.0)).reshape(4, 3)
WEIGHTS = [jnp.cos(jnp.arange(float(a * b))).reshape(a, b) for a, b in pairwise(WIDTHS)]


def program(x, weights):
    for w in weights:
        x = jnp.tanh(x @ w) + x.sum(axis=1, keepdims=True)
    return x


def regions_of(jaxpr):
    whole = simplify(expand(simplify(jaxpr))[0])
    return [s for s in cut(whole, native=supported) if isinstance(s, Region)]


@pytest.fixture
def processes(monkeypatch):
    """Every process that is started as a worker."""
    started = []
    real = subprocess.Popen

    def start(*args, **kwargs):
        started.append(real(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(workers.subprocess, "Popen", start)
    return started


def compiled(monkeypatch, folder, count, patient=False):
    """The program compiled as by a process that has compiled nothing yet, in a cache of its own;
    what the workers answered. A patient process lets the workers do all but one region.
    """
    answers = {}
    real = workers.compile_together

    def together(regions, count, target, here):
        def wait(region):
            while patient and any(t.name == "lumjax-compile" for t in threading.enumerate()):
                time.sleep(0.01)
            here(region)

        answers.update(real(regions, count, target, wait))
        return answers

    with monkeypatch.context() as patch:
        patch.setattr(stages, "_found", {})
        patch.setattr(native, "_accepted", set())
        patch.setattr(stages, "compile_together", together)
        with config.scope(cache=True, cache_dir=str(folder), compile_workers=count):
            made = lumjax.jit(lambda *a: program(*a)).lower(X, WEIGHTS).compile()
    return made, answers


def kernels(made):
    return [(k.compiled.digest, k.rejected) for s in made.executable.native() for k in s.kernels]


def test_it_does_not_matter_who_compiles(tmp_path, monkeypatch, processes):
    alone, answers = compiled(monkeypatch, tmp_path / "alone", 1)
    assert not answers
    assert not processes
    together, answers = compiled(monkeypatch, tmp_path / "together", 2, patient=True)
    assert len(processes) == 1
    assert len([a for a in answers.values() if a]) >= 3
    assert [p.returncode for p in processes] == [0]
    assert kernels(together) == kernels(alone)
    assert np.asarray(together(X, WEIGHTS)).tobytes() == np.asarray(alone(X, WEIGHTS)).tobytes()
    for ours, theirs in zip(alone.executable.native(), together.executable.native(), strict=True):
        a, b = ours.found.report, theirs.found.report
        assert (a.rules, a.terms, a.cost, a.cached) == (b.rules, b.terms, b.cost, b.cached)
        assert dict(b.seconds).keys() == dict(a.seconds).keys()


BROKEN = {
    "missing": ["/nonexistent/python"],
    "fails": [sys.executable, "-c", "raise SystemExit(3)"],
    "babbles": [sys.executable, "-c", "print('hello', flush=True); import time; time.sleep(99)"],
    "hangs": [sys.executable, "-c", "import time; time.sleep(99)"],
    "dies at work": [
        sys.executable,
        "-c",
        "import sys; from lumjax.workers import receive, send\n"
        "i, o = sys.stdin.buffer, sys.stdout.buffer\n"
        "send(o, receive(i)); receive(i); o.write(b'12'); o.flush()",
    ],
    "refuses": [
        sys.executable,
        "-c",
        "import sys, pickle; from lumjax.workers import receive, send\n"
        "i, o = sys.stdin.buffer, sys.stdout.buffer\n"
        "m = receive(i)\n"
        "while m: send(o, m); m = receive(i) and pickle.dumps(None)",
    ],
}


@pytest.mark.parametrize("kind", BROKEN)
def test_workers_that_fail_cost_time_only(kind, tmp_path, monkeypatch, processes):
    monkeypatch.setattr(workers, "_command", lambda: BROKEN[kind])
    working = kind in ("dies at work", "refuses")
    made, answers = compiled(monkeypatch, tmp_path, 2, patient=working)
    assert not any(answers.values())
    assert all(p.returncode is not None for p in processes)
    np.testing.assert_allclose(made(X, WEIGHTS), program(X, WEIGHTS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [p.name for p in pr.PROGRAMS])
def test_regions_travel_whole(name):
    for region in regions_of(pr.BY_NAME[name].jaxpr()):
        message = workers.region_message(region)
        assert message is not None
        back = workers.region_from(message)
        texts = [
            operation_text(e.prim.name, f, e.params)
            for e, f in zip(back.eqns, back.forms, strict=True)
        ]
        text = region_text(back.inputs, back.outputs, back.eqns, texts, back.inside)
        assert digest(text) == back.key == region.key
        assert all(a.prim is b.prim for a, b in zip(back.eqns, region.eqns, strict=True))


def test_what_another_process_lacks_is_not_sent():
    region = regions_of(pr.PROGRAMS[0].jaxpr())[0]
    eqn = region.eqns[0]
    own = Primitive(eqn.prim.name, eqn.prim.aval, eqn.prim.eval, eqn.prim.form)
    eqns = (Eqn(own, eqn.inputs, eqn.outputs, eqn.params, None), *region.eqns[1:])
    other = Region(region.inputs, region.outputs, eqns, region.forms, region.key)
    assert workers.region_message(other) is None


def test_a_message_that_is_none_is_refused():
    assert worker._answer(b"nonsense", workers.Start({}, None)) is None


def test_few_regions_are_compiled_alone(monkeypatch, tmp_path):
    regions = regions_of(lumjax.jit(program).program(X, WEIGHTS).jaxpr)
    with config.scope(cache=True, cache_dir=str(tmp_path)):
        assert len(regions) >= workers.LEAST_REGIONS
        assert workers.count_for(regions) == 1  # too small
        with config.scope(compile_workers=3):
            assert workers.count_for(regions) == 3
            assert workers.count_for(regions[:2]) == 1
            with config.scope(cache=False):
                assert workers.count_for(regions) == 1
            monkeypatch.setattr(sys, "frozen", True, raising=False)
            assert workers.count_for(regions) == 1
            monkeypatch.setattr(sys, "frozen", False)
            monkeypatch.setattr(sys, "executable", "/usr/bin/blender")
            assert workers.count_for(regions) == 1


SCRIPT = """
import os
import lumjax, lumjax.numpy as jnp

print("begin")
x = jnp.ones((4, 3))
w = [jnp.ones((n, n + 1)) for n in range(3, 9)]

@lumjax.jit
def f(x, w):
    for m in w:
        x = jnp.tanh(x @ m) + x.sum(axis=1, keepdims=True)
    return x

print(f(x, w).shape)
try:
    print(os.waitpid(-1, os.WNOHANG))
except (ChildProcessError, AttributeError):
    print("no children")
"""


def test_a_script_without_a_main_guard_runs_once(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    root = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, str(path)],
        env={
            "LUMJAX_CACHE_DIR": str(tmp_path / "cache"),
            "LUMJAX_COMPILE_WORKERS": "2",
            "PYTHONPATH": root,
            "PATH": "",
        },
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.split("\n") == ["begin", "(4, 9)", "no children", ""]
    assert not done.stderr
