"""Find speech in a recording with Silero VAD's weights, the network written in plain lumjax.

    pip install --no-deps silero-vad                 # the weights, MIT
    pip install onnx onnxruntime                     # optional: to compare with the ONNX twin
    python examples/infer/silero_vad.py
    python examples/infer/silero_vad.py --wav recording.wav     # 16 kHz, 16 bits, one channel

A convolution with a Fourier basis, four more, and an LSTM that a scan carries over frames of 32 ms:
one jitted call, which takes the state of the call before it, so that sound may come in pieces. The
default sound is made here: noise, a tone, and babble of two voices (pulses through the resonances
of vowels). Expected: the babble is found and nothing else, 97.9 % of the frames are right.

The package has the network as ONNX too, of another training. With the weights of that file the
network here gives the probabilities that onnxruntime, or `lumjax.onnx.load`, makes of the file:
within 1e-5 (2e-6 here). Without the onnx package this is left out.
"""

from __future__ import annotations

import argparse
import wave
from pathlib import Path
from typing import Any

import numpy as np
import shared
from matplotlib import pyplot as plt
from safetensors.numpy import load_file
from scipy.signal import lfilter

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn

try:
    from lumjax import onnx
except ImportError:  # the onnx package is not installed
    onnx = None

RATE, FRAME, CONTEXT, WIDTH = 16000, 512, 64, 128

# ---- the network; parameters have the names that they have in the file


def conv(p: Any, name: str, x: Any, stride: int, pad: int = 0) -> Any:
    """A convolution over time of [n, channels, time]."""
    kernel = p[f"{name}.weight"]
    x = lax.conv_general_dilated(
        x, kernel, (stride,), [(pad, pad)], dimension_numbers=("NCH", "OIH", "NCH")
    )
    return x + p[f"{name}.bias"][:, None] if f"{name}.bias" in p else x


def encode(p: Any, frames: Any) -> Any:
    """Frames with the end of the one before, [n, CONTEXT + FRAME] -> features [n, WIDTH]."""
    mirrored = jnp.concatenate([frames, frames[:, -2 : -2 - CONTEXT : -1]], 1)
    waves = conv(p, "stft_conv", mirrored[:, None], 128)
    real, imaginary = jnp.split(waves, 2, 1)
    x = jnp.sqrt(real**2 + imaginary**2)
    for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 2), ("conv4", 1)):
        x = nn.relu(conv(p, name, x, stride, 1))
    return x[:, :, 0]


def lstm(p: Any, state: Any, x: Any) -> tuple[Any, Any]:
    """Hochreiter and Schmidhuber's cell with a forget gate; its output is the hidden state."""
    hidden, memory = state
    gates = x @ p["lstm_cell.weight_ih"].T + p["lstm_cell.bias_ih"]
    gates = gates + hidden @ p["lstm_cell.weight_hh"].T + p["lstm_cell.bias_hh"]
    i, f, new, o = jnp.split(gates, 4)
    memory = nn.sigmoid(f) * memory + nn.sigmoid(i) * jnp.tanh(new)
    hidden = nn.sigmoid(o) * jnp.tanh(memory)
    return (hidden, memory), hidden


@lumjax.jit
def listen(p: Any, state: Any, frames: Any) -> tuple[Any, Any]:
    """The state after frames [n, FRAME], and the probability [n] that each has speech in it."""
    tail, cell = state
    before = jnp.concatenate([tail[None], frames[:-1, -CONTEXT:]])
    features = encode(p, jnp.concatenate([before, frames], 1))
    cell, hidden = lax.scan(lambda state, x: lstm(p, state, x), cell, features)
    logits = nn.relu(hidden) @ p["final_conv.weight"][0, :, 0] + p["final_conv.bias"]
    return (frames[-1, -CONTEXT:], cell), nn.sigmoid(logits)


def silence() -> Any:
    """The state before a recording."""
    nothing = np.zeros(WIDTH, np.float32)
    return np.zeros(CONTEXT, np.float32), (nothing, nothing)


def find(probabilities: np.ndarray) -> list[tuple[float, float]]:
    """From when to when somebody speaks, in seconds: from 0.5 upwards, until below 0.35."""
    found, start = [], None
    for number, p in enumerate([*probabilities, 0.0]):
        if start is None and p >= 0.5:
            start = number
        elif start is not None and p < 0.35:
            found.append((start * FRAME / RATE, number * FRAME / RATE))
            start = None
    return found


# ---- the sound

VOWELS = ((730, 1090, 2440), (530, 1840, 2480), (270, 2290, 3010), (570, 840, 2410))


def syllable(rng: np.random.Generator, pitch: float, at: float) -> np.ndarray:
    """A hissed consonant and a vowel: pulses through three resonances."""
    hiss = lfilter([1, -0.9], [1], rng.normal(size=int(rng.uniform(0.03, 0.08) * RATE)))
    hiss *= 0.1 * np.sin(np.pi * np.arange(len(hiss)) / len(hiss))
    length = int(rng.uniform(0.14, 0.24) * RATE)
    times = at + np.arange(length) / RATE
    phase = np.cumsum(pitch * (1 + 0.12 * np.sin(2 * np.pi * 1.3 * times))) / RATE
    sound = lfilter([1], [1, -1.8, 0.81], np.diff(np.floor(phase), prepend=0))
    sound += 0.02 * rng.normal(size=length)
    for resonance, width in zip(rng.choice(VOWELS), (60, 90, 120), strict=True):
        r, turn = np.exp(-np.pi * width / RATE), 2 * np.pi * resonance / RATE
        sound = lfilter([1], [1, -2 * r * np.cos(turn), r * r], sound)
    sound = np.diff(sound, prepend=0)
    sound *= np.sqrt(np.sin(np.pi * np.arange(length) / length)) / np.abs(sound).max()
    return np.concatenate([hiss, sound])


def babble(rng: np.random.Generator, seconds: float, pitch: float) -> np.ndarray:
    """Syllables one after the other."""
    sound = np.zeros(0)
    while len(sound) < seconds * RATE:
        sound = np.concatenate([sound, syllable(rng, pitch, len(sound) / RATE)])
    return 0.3 * sound[: int(seconds * RATE)]


def make(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Eleven seconds of sound, and where in it somebody speaks."""
    rng = np.random.default_rng(seed)
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(2 * RATE) / RATE)
    quiet = np.zeros(3 * RATE // 2)
    parts = [quiet, tone, quiet, babble(rng, 2.5, 120.0), quiet, babble(rng, 2, 210.0), quiet]
    spoken = np.concatenate([np.full(len(p), k in (3, 5)) for k, p in enumerate(parts)])
    sound = np.concatenate(parts)
    return (sound + 0.003 * rng.normal(size=len(sound))).astype(np.float32), spoken


def read(path: Path) -> np.ndarray:
    """A recording as numbers in [-1, 1]."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (RATE, 2, 1):
            raise SystemExit(f"{path}: 16 kHz, 16 bits and one channel are needed")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


# ---- the ONNX twin, and the program


def renamed(params: Any) -> dict[str, np.ndarray]:
    """The twin's weights by our names, the gates of its LSTM (i o f c) in our order (i f c o)."""

    def gates(x: np.ndarray) -> np.ndarray:
        i, o, f, c = np.split(x, 4)
        return np.concatenate([i, f, c, o])

    p = {name: np.asarray(value) for name, value in params.items()}
    ih, hh, biases = (value for name, value in sorted(p.items()) if "LSTM" in name)
    bias_ih, bias_hh = np.split(biases[0], 2)
    made = {"stft_conv.weight": p["stft.forward_basis_buffer"]}
    for part in ("weight", "bias"):
        made |= {f"conv{k + 1}.{part}": p[f"encoder.{k}.{part}"] for k in range(4)}
        made[f"final_conv.{part}"] = p[f"output.{part}"]
    cell = {"weight_ih": ih[0], "weight_hh": hh[0], "bias_ih": bias_ih, "bias_hh": bias_hh}
    return made | {f"lstm_cell.{name}": gates(value) for name, value in cell.items()}


def compare(path: Path, frames: np.ndarray) -> dict[str, float]:
    """How far our network with the twin's weights is from the twin, by what runs the twin."""
    model, params = onnx.load(path)
    _, ours = listen(renamed(params), silence(), frames)
    before = np.concatenate([np.zeros((1, CONTEXT), np.float32), frames[:-1, -CONTEXT:]])
    nothing = np.zeros((1, 1, WIDTH), np.float32)
    inputs = {"input": np.concatenate([before, frames], 1), "h": nothing, "c": nothing}
    found = {"lumjax.onnx": shared.distance([ours], [lumjax.jit(model)(params, **inputs)[0]])}
    run = shared.reference(path)
    if run:
        found["onnxruntime"] = shared.distance([ours], [run(inputs)["speech_probs"]])
    return found


def draw(path: Path, sound: np.ndarray, probabilities: np.ndarray, spoken: np.ndarray) -> None:
    """The sound above, where speech was found below."""
    figure, (top, low) = plt.subplots(2, 1, figsize=(9, 4), sharex=True, layout="constrained")
    top.plot(np.arange(len(sound)) / RATE, sound, linewidth=0.3)
    top.set(ylabel="sound")
    low.fill_between((np.arange(len(spoken)) + 0.5) * FRAME / RATE, spoken, alpha=0.2, step="mid")
    low.plot((np.arange(len(probabilities)) + 0.5) * FRAME / RATE, probabilities)
    low.set(ylabel="probability of speech", xlabel="seconds")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    made = shared.parser(__doc__)
    made.add_argument("--wav", type=Path, help="a recording instead of the sound made here")
    return shared.parse(made, arguments)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Listen, compare, draw; the share of right frames and the distances from the twins."""
    options = options_of(arguments)
    data = shared.package_folder("silero_vad") / "data"
    params = load_file(data / "silero_vad_16k.safetensors")
    sound, spoken = (read(options.wav), None) if options.wav else make(options.seed)
    frames = sound[: len(sound) // FRAME * FRAME].reshape(-1, FRAME)
    _, probabilities = listen(params, silence(), frames)
    probabilities = np.asarray(probabilities)
    shared.explained("silero_vad", options, listen, params, silence(), frames)

    results = {}
    for start, end in find(probabilities):
        print(f"speech from {start:.2f} s to {end:.2f} s")
    if onnx:
        results = compare(data / "silero_vad_16k_sequence.onnx", frames)
    for name, far in results.items():
        print(f"with its weights, largest difference from the ONNX twin run by {name}: {far:.1e}")
    picture = options.out / "silero_vad.png"
    if spoken is None:
        draw(picture, sound, probabilities, find(probabilities))
    else:
        truth = spoken[: frames.size].reshape(frames.shape).mean(1) > 0.5
        results["right"] = float(np.mean((probabilities > 0.5) == truth))
        draw(picture, sound, probabilities, truth)
        print(f"silero_vad: {results['right']:.1%} of {len(frames)} frames right; {picture}")
    return results


if __name__ == "__main__":
    main()
