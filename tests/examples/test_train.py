"""The training examples run; at full size they reach the accuracy that their docstrings promise."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "train"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_regression():
    names = runpy.run_path(str(FOLDER / "regression.py"))
    np.testing.assert_allclose(names["params"]["w"], [2, -3], atol=0.05)
    np.testing.assert_allclose(names["params"]["b"], 0.5, atol=0.05)


def test_mnist_mlp_learns(tmp_path):
    pytest.importorskip("matplotlib")
    score = load("mnist").main(["--model", "mlp", "--epochs", "3", "--out", str(tmp_path)])
    assert score > 0.8
    assert (tmp_path / "mnist_mlp.png").stat().st_size > 10_000


def test_mnist_cnn_step_lowers_the_loss():
    pytest.importorskip("matplotlib")
    mnist = load("mnist")
    data = mnist.load_data(0)
    optimizer = mnist.optim.adam(2e-3)
    params = mnist.init_cnn(mnist.random.key(0))
    state, step = optimizer.init(params), mnist.make_step(mnist.cnn, optimizer)
    losses = []
    for _ in range(12):
        batch = data.train_images[:50], data.train_labels[:50]
        params, state, loss = step(params, state, *batch)
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 2


@pytest.mark.slow
@pytest.mark.parametrize(("model", "required"), [("cnn", 0.97), ("mlp", 0.93)])
def test_mnist_reaches_its_accuracy(model, required, tmp_path):
    assert load("mnist").main(["--model", model, "--out", str(tmp_path)]) >= required
