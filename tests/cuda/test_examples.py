"""The example programs' training steps at toy sizes: on `cuda:emulated` as on the CPU."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import lumjax
from benchmarks import steps
from lumjax.config import config
from tests.examples import test_programs as programs

pytestmark = pytest.mark.slow
pytest.importorskip("matplotlib")
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "train"


def mnist(name):
    """A step of one of MNIST's models."""

    def build(m):
        init, logits, _ = m.MODELS[name]
        optimizer = m.optim.adam(1e-3)
        step = m.make_step(logits, optimizer)

        @lumjax.jit
        def alike(state, images, labels):
            params, state, loss = step(*state, images, labels)
            return (params, state), loss

        params = init(m.random.key(0))
        state = params, optimizer.init(params)
        return alike, (state, steps.pixels(2, 28, 28, 1), steps.classes(2))

    return build


CASES = {
    "mnist mlp": (mnist("mlp"), {}),
    "mnist cnn": (mnist("cnn"), {}),
    "gpt": (lambda m: steps.gpt(m, 1), {"TIME": 8, "WIDTH": 16, "HEADS": 2, "BATCH": 2}),
    "names gru": (lambda m: steps.names(m, "gru"), {"TIME": 6, "WIDTH": 16, "BATCH": 4}),
    "names lstm": (lambda m: steps.names(m, "lstm"), {"TIME": 6, "WIDTH": 16, "BATCH": 4}),
    "cnn": (steps.classifier, {"WIDTHS": (4, 4, 8), "BATCH": 2}),
    "diffusion": (steps.diffusion, {"WIDTH": 8, "BATCH": 2}),
    "vae": (steps.from_pixels, {"WIDTH": 16, "LATENT": 4, "BATCH": 4}),
    "contrastive": (steps.from_pixels, {"BATCH": 8, "WIDTH": 16, "FEATURES": 8, "CODE": 8}),
    "pinn": (steps.pinn, {"WIDTH": 8, "INSIDE": 16, "BORDER": 8}),
    "rl": (steps.rl, {"CARTS": 8, "HORIZON": 4, "EPOCHS": 1, "PARTS": 2}),
    "mixed_precision": (programs.mixed_precision, {"WIDTH": 16, "BATCH": 4, "PARTS": 2}),
    "lora": (programs.lora, {"SIZES": (784, 16, 16, 16), "BATCH": 4}),
    "gp": (programs.gp, {}),
    "vit": (lambda m: steps.classifier(m, 1), {"WIDTH": 16, "HEADS": 2, "BATCH": 2}),
}
RATE = 0.02  # twice what Adam's first step moves a parameter by: the sign of nothing is noise


def test_every_example_that_trains_is_here():
    trained = {p.stem for p in FOLDER.glob("*.py")} - {"common"}
    assert {name.partition(" ")[0] for name in CASES} | {"regression"} == trained


def loaded(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(f"toy_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("common", None)
    return module


def test_a_line_is_fitted(monkeypatch):
    """A hundred steps, which happen while the program is loaded."""
    with config.scope(backend="cuda:emulated", search_evaluations=0):
        params = loaded("regression", monkeypatch).params
    np.testing.assert_allclose(np.asarray(params["w"]), [2, -3], atol=0.05)
    np.testing.assert_allclose(np.asarray(params["b"]), 0.5, atol=0.05)


@pytest.mark.parametrize("name", CASES)
def test_a_step(name, monkeypatch):
    module = loaded(name.partition(" ")[0], monkeypatch)
    build, sizes = CASES[name]
    for constant, value in sizes.items():
        assert hasattr(module, constant)
        monkeypatch.setattr(module, constant, value)
    got = {}
    for backend in ("cpu", "cuda:emulated"):
        steps.RNG = np.random.default_rng(0)
        with config.scope(backend=backend, search_evaluations=0):
            step, args = build(module)
            state, *metrics = step(*args)
            found = step.lower(*build(module)[1]).compile().executable
            got[backend] = lumjax.tree.leaves(state), lumjax.tree.leaves(metrics)
            assert [k.rejected for k in found.kernels() if k.rejected] == []
    for (state, metrics), (wanted, told) in [(got["cuda:emulated"], got["cpu"])]:
        for a, b in zip(metrics, told, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-3, 1e-5)
        for a, b in zip(state, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-3, RATE)
    assert got["cpu"][1], "a step tells of its loss"
