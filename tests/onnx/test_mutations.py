"""Damaged model files give an OnnxError: never a crash, a hang or unbounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from tests.onnx.mutations import NAMES, damaged, inputs, lumjax, model, outcome


@pytest.mark.parametrize("name", NAMES)
def test_the_models_run_undamaged(name):
    fn, params = lumjax.onnx.load(model(name))
    assert fn(params, *inputs(fn)) is not None


def test_damaged_models_are_refused_or_run():
    seen = Counter(outcome(k) for k in range(60))
    assert seen["refused when loaded"] > 10
    assert seen["ran"] > 3


def test_damage_is_of_both_kinds_and_hits_every_model():
    names = {damaged(k)[0] for k in range(60)}
    assert names == set(NAMES)
    whole = {n: model(n).SerializeToString() for n in NAMES}
    assert sum(raw != whole[name] for name, raw in map(damaged, range(60))) > 50


@pytest.mark.slow
def test_five_hundred_damaged_models_in_bounded_memory_and_time():
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30));"
        "sys.argv[1:] = ['0', '500'];"
        "from tests.onnx.mutations import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
