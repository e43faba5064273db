"""The example programs with pretrained weights: on `cuda:emulated` as on the CPU.

Encoders of sentences have toy weights; the networks whose weights come with a package (`bash
scripts/foreign`) are whole, on little of what they take.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import lumjax
from lumjax.config import config
from tests.examples import inventory

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
FOREIGN = Path(os.environ.get("LUMJAX_FOREIGN", ROOT / ".venv" / "foreign"))
# Constants of the programs, and how much of the last argument is taken.
SMALLER = {
    "sentences": ({}, None),
    "vision_language": ({"BATCH": 2, "WIDTH": 16}, None),
    "silero_vad": ({}, 3),
    "basic_pitch": ({}, 1),
}


def test_every_example_that_infers_is_here():
    found = {p.stem for p in (ROOT / "examples" / "infer").glob("*.py")}
    assert found - {"shared"} == SMALLER.keys() == inventory.INFER.keys()


@pytest.fixture
def module(name, monkeypatch):
    pytest.importorskip("tokenizers")
    for path in (*FOREIGN.glob("*-[0-9]*/"), ROOT / "examples" / "infer"):
        monkeypatch.syspath_prepend(str(path))
    needs = inventory.INFER[name][1]
    try:
        if needs:
            pytest.importorskip("onnx")
            importlib.metadata.distribution(needs)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the weights come with {needs}")
    path = ROOT / "examples" / "infer" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"toy_{name}", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    yield made
    for shared in ("shared", "sentences"):
        sys.modules.pop(shared, None)


@pytest.mark.parametrize("name", SMALLER)
def test_a_network(name, module, monkeypatch):
    constants, most = SMALLER[name]
    for constant, value in constants.items():
        assert hasattr(module, constant)
        monkeypatch.setattr(module, constant, value)
    for what, function, args in inventory.INFER[name][0](module):
        args = (*args[:-1], args[-1] if most is None else args[-1][:most])
        found = {}
        for backend in ("cpu", "cuda:emulated"):
            with config.scope(backend=backend, search_evaluations=0):
                jitted = lumjax.jit(lambda *args: function(*args))
                found[backend] = list(map(np.asarray, lumjax.tree.leaves(jitted(*args))))
                kernels = jitted.program(*args).executable().kernels()
                assert kernels, what
                assert not any(k.rejected for k in kernels), what
        for got, want in zip(found["cuda:emulated"], found["cpu"], strict=True):
            np.testing.assert_allclose(got, want, 1e-3, 1e-4, err_msg=what)
