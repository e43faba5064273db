"""Run the onnx package's backend suite on lumjax.onnx, by the suite's own runner.

    python -m tests.onnx.run_backend              # all; fails if a recorded case does not pass
    python -m tests.onnx.run_backend --record     # and add new passes to backend.txt
    python -m tests.onnx.run_backend --jit WORD   # cases with WORD in their name, under jit
    python -m tests.onnx.run_backend WORD ...     # these cases, with their errors

The suite makes its node cases when its modules are imported: `--ops abs,add` imports a few of them.
"""

from __future__ import annotations

import importlib
import sys
import unittest
import warnings
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import onnx.backend.base
import onnx.backend.test
import onnx.backend.test.case.node as suite
import onnx.backend.test.runner as runner

import lumjax
import lumjax.onnx

HERE = Path(__file__).parent
PASSES, OUTSIDE = HERE / "backend.txt", HERE / "backend_left_out.tsv"
# Each of them is in the suite, whose versions differ in what it has.
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")


class Prepared(onnx.backend.base.BackendRep):
    """A loaded model; 64-bit cases want 64-bit results."""

    jit = False

    def __init__(self, model):
        self.fn, self.params = lumjax.onnx.load(model)

    def run(self, inputs, **kwargs):
        with lumjax.enable_x64(True):
            call = lumjax.jit(self.fn) if self.jit else self.fn
            found = call(self.params, *map(_given, inputs))
        return [_plain(x) for x in (found if isinstance(found, tuple) else (found,))]


def _given(x):
    return x if x is None or isinstance(x, list) else np.asarray(x)


def _plain(x):
    if x is None:
        return None
    return [_plain(item) for item in x] if isinstance(x, list) else np.asarray(x)


class Backend(onnx.backend.base.Backend):
    """What the suite calls."""

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        with lumjax.enable_x64(True):
            return Prepared(model)

    @classmethod
    def supports_device(cls, device):
        return device == "CPU"


@cache
def _loader(modules):
    """The suite's loader; of the node cases only those of some modules, if any are named."""
    load = runner.load_model_tests

    def some(*args, kind=None, **kwargs):
        if kind not in KINDS:
            return []
        if not modules:
            return load(*args, kind=kind, **kwargs)
        if kind != "node":
            return []
        for name in modules:
            importlib.import_module(f"onnx.backend.test.case.node.{name}")
        return list(suite._NodeTestCases)

    return some


def cases(modules=()):
    """Test cases of the suite by "kind name"."""
    with (
        warnings.catch_warnings(),
        mock.patch.object(runner, "load_model_tests", _loader(tuple(modules))),
    ):
        warnings.simplefilter("ignore")
        made = onnx.backend.test.BackendTest(Backend, __name__).test_cases
    found = {}
    for title, case in made.items():
        kind = title.removeprefix("OnnxBackend").removesuffix("ModelTest")
        for name in unittest.defaultTestLoader.getTestCaseNames(case):
            if name.endswith("_cpu"):
                found[f"{kind} {name.removesuffix('_cpu')}"] = case(name)
    return found


def run(names, made, jit=False):
    """The names that passed, and the errors of the others."""
    passed, errors = set(), {}
    with mock.patch.object(Prepared, "jit", jit):
        for name in names:
            result = unittest.TestResult()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made[name].run(result)
            problems = [*result.errors, *result.failures]
            if problems:
                errors[name] = problems[0][1]
            elif not result.skipped:
                passed.add(name)
    return passed, errors


def recorded():
    """The cases that pass."""
    return PASSES.read_text(encoding="utf-8").split("\n")[:-1] if PASSES.exists() else []


def left_out():
    """Why a case is not lumjax's to pass."""
    lines = OUTSIDE.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines)


def main():
    """Run, compare, record."""
    words = [a for a in sys.argv[1:] if not a.startswith("--")]
    modules = ()
    if "--ops" in sys.argv:
        modules = tuple(words.pop(0).split(","))
    made = cases(modules)
    names = [n for n in made if not words or any(w in n for w in words)]
    passed, errors = run(names, made, "--jit" in sys.argv)
    before, outside = set(recorded()), left_out()
    lost = sorted(n for n in before - passed if n in names)
    new = sorted(n for n in errors if n not in before and n not in outside)
    for name in lost + new if not words else errors:
        print(f"{name}: {errors.get(name, 'not in the suite')[-600:]}")
    if "--record" in sys.argv:
        assert not passed & set(outside), sorted(passed & set(outside))
        PASSES.write_text("".join(f"{n}\n" for n in sorted(before | passed)), encoding="utf-8")
    print(f"{len(passed)} of {len(names)} passed, {len(before)} recorded, "
          f"{len(outside)} left out; lost: {lost}; new failures: {new}")  # fmt: skip
    return len(lost)


if __name__ == "__main__":
    sys.exit(main())
