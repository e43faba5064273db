"""Find the notes in a recording with Basic Pitch's network, an ONNX file that lumjax loads.

    pip install --no-deps basic-pitch                # the weights, Apache-2.0
    pip install onnx                                 # reads the file
    pip install onnxruntime                          # optional: to compare with
    python examples/infer/basic_pitch.py
    python examples/infer/basic_pitch.py --wav recording.wav    # 22.05 kHz, 16 bits, one channel

The network takes two seconds of sound at a time: convolutions that make a spectrum of it, then
convolutions that see the harmonics of a tone at once. All windows of a recording are one jitted
call. The default sound is made here: Frère Jacques as a round of two struck strings. Expected: all
22 notes are found, the key right and the start within 50 ms, and two that nobody played, an octave
above one that was; probabilities within 1e-4 of onnxruntime's (6e-5 here). `out/basic_pitch.png`
has the spectrum and the notes.
"""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import shared
from matplotlib import pyplot as plt

import lumjax
from lumjax import lax

try:
    import onnx.utils

    import lumjax.onnx
except ImportError:
    raise SystemExit("the onnx package is missing, which reads models: pip install onnx") from None

RATE, HOP, WINDOW = 22050, 256, 43844  # samples: a second, a frame, what the network takes
EDGE = 15  # frames at either end of a window which see too little of the sound around them
STRIDE = WINDOW - 2 * EDGE * HOP
LOWEST = 21  # the lowest of 88 keys, in MIDI's numbers
SOUND = (
    "serving_default_input_2:0"  # the file's input, and its outputs: keys that sound, are struck
)
FLOAT = onnx.TensorProto.FLOAT
SPECTRUM = ";model_1/normalized_log_1/Reshape_2"  # how the name of what is in between ends
KEYS = ("StatefulPartitionedCall:1", "StatefulPartitionedCall:2")

# ---- the network


def load(path: Path) -> tuple[Callable[..., Any], Any]:
    """A function of parameters and sound [n, WINDOW, 1], and the parameters.

    The graph is cut where the spectrum is done: for the picture, and because without the barrier
    the normalisation (a minimum over a window) would be computed again for every harmonic.
    """
    whole = onnx.load(path)
    (cut,) = (n.output[0] for n in whole.graph.node if n.output[0].endswith(SPECTRUM))
    shape = ("windows", WINDOW // HOP + 1, 309)
    whole.graph.value_info.append(onnx.helper.make_tensor_value_info(cut, FLOAT, shape))
    parts = onnx.utils.Extractor(whole)
    hear, p = lumjax.onnx.load(parts.extract_model([SOUND], [cut]).SerializeToString())
    read, q = lumjax.onnx.load(parts.extract_model([cut], list(KEYS)).SerializeToString())

    def network(params: Any, windows: Any) -> Any:
        spectrum = lax.optimization_barrier(hear(params[0], windows))
        return spectrum, *read(params[1], spectrum)

    return lumjax.jit(network), (p, q)


def windows_of(sound: np.ndarray) -> np.ndarray:
    """A recording as windows [n, WINDOW, 1] of which each gives its inner frames."""
    count = -(-len(sound) // STRIDE)
    padded = np.pad(sound, (EDGE * HOP, (count + 1) * STRIDE - len(sound)))
    return np.stack([padded[k * STRIDE :][:WINDOW] for k in range(count)])[..., None]


def frames_of(windows: Any) -> np.ndarray:
    """What the network says of windows, [n, frames, ...], as one row of frames."""
    return np.concatenate(np.asarray(windows)[:, EDGE:-EDGE])


def times(count: int) -> np.ndarray:
    """When each of those frames is, in seconds."""
    window, frame = np.divmod(np.arange(count), WINDOW // HOP + 1 - 2 * EDGE)
    return (window * STRIDE + frame * HOP) / RATE


# ---- notes


class Note(NamedTuple):
    """A key of the piano, in MIDI's numbers, and when it sounds, in seconds."""

    start: float
    end: float
    key: int


def find(sounding: np.ndarray, struck: np.ndarray) -> list[Note]:
    """Notes of 0.14 s or more, from how sure the network is that a key sounds, and is struck.

    Both are [frames, 88]. A note begins at a peak over 0.5 and ends before 11 frames below 0.3.
    """
    found, at = [], times(len(struck) + 1)
    above = np.pad(struck, ((1, 1), (0, 0)))
    peaks = (struck >= 0.5) & (struck > above[:-2]) & (struck >= above[2:])
    for key in range(struck.shape[1]):
        starts = np.flatnonzero(peaks[:, key])
        for start, limit in zip(starts, [*starts[1:], len(struck)], strict=False):
            end = start + 1
            for frame in range(start + 1, limit):
                if sounding[frame, key] >= 0.3:
                    end = frame + 1
                elif frame - end >= 10:
                    break
            if end - start > 11:
                found.append(Note(at[start], at[end], key + LOWEST))
    return sorted(found)


def matched(found: list[Note], truth: list[Note]) -> int:
    """How many notes were found: the key is right, and the start within 50 ms."""
    left, count = list(found), 0
    for note in truth:
        near = [f for f in left if f.key == note.key and abs(f.start - note.start) <= 0.05]
        if near:
            left.remove(near[0])
            count += 1
    return count


# ---- the sound

BARS = ((60, 62, 64, 60),) * 2 + ((64, 65, 67, None),) * 2  # Frère Jacques; the rest is a pause
BEAT = 0.4


def tune() -> list[Note]:
    """The round: the second voice, an octave lower, comes in when the first has sung two bars."""
    line = [key for bar in BARS for key in bar]
    both = [(line, 0, 0), (line[:8], 8, -12)]
    return sorted(
        Note((beat + k) * BEAT + 0.3, (beat + k + 0.9) * BEAT + 0.3, key + shift)
        for keys, beat, shift in both
        for k, key in enumerate(keys)
        if key is not None
    )


def play(notes: list[Note], seed: int) -> np.ndarray:
    """Struck strings: harmonics, the higher the weaker and the shorter; a little noise."""
    rng = np.random.default_rng(seed)
    sound = 1e-3 * rng.normal(size=int((notes[-1].end + 0.7) * RATE))
    harmonic = np.arange(1, 9)[:, None]
    for note in notes:
        at = np.arange(int((note.end - note.start + 0.1) * RATE)) / RATE
        pitch = 440 * 2 ** ((note.key - 69) / 12) * harmonic
        waves = np.sin(2 * np.pi * pitch * at + rng.uniform(0, 6, (8, 1))) / harmonic**1.5
        string = (waves * np.exp(-at * (1 + harmonic))).sum(0) * np.minimum(1, at / 0.005)
        string *= np.clip((note.end - note.start + 0.1 - at) / 0.1, 0, 1)
        first = int(note.start * RATE)
        sound[first : first + len(string)] += 0.2 * string
    return sound.astype(np.float32)


def read(path: Path) -> np.ndarray:
    """A recording as numbers in [-1, 1]."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (RATE, 2, 1):
            raise SystemExit(f"{path}: 22.05 kHz, 16 bits and one channel are needed")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


# ---- the program


def draw(path: Path, spectrum: np.ndarray, sounding: np.ndarray, found: list[Note]) -> None:
    """The spectrum above; below how sure the network is of each key, and the notes found."""
    figure, (top, low) = plt.subplots(2, 1, figsize=(9, 5), sharex=True, layout="constrained")
    end = times(len(sounding))[-1]
    top.imshow(spectrum.T, origin="lower", aspect="auto", extent=(0, end, LOWEST, LOWEST + 103))
    top.set(ylabel="spectrum, by key")
    extent = (0, end, LOWEST - 0.5, LOWEST + 87.5)
    low.imshow(sounding.T, origin="lower", aspect="auto", extent=extent, cmap="Greys")
    for note in found:
        low.plot([note.start, note.end], [note.key] * 2, color="tab:red", linewidth=1)
    low.set(ylabel="key", xlabel="seconds", ylim=(40, 76))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Read the notes, compare, draw; how many were found and the distance from the reference."""
    made = shared.parser(__doc__)
    made.add_argument("--wav", type=Path, help="a recording instead of the sound made here")
    options = shared.parse(made, arguments)
    path = shared.package_folder("basic_pitch") / "saved_models" / "icassp_2022" / "nmp.onnx"
    truth = None if options.wav else tune()
    windows = windows_of(read(options.wav) if options.wav else play(tune(), options.seed))
    network, params = load(path)
    spectrum, sounding, struck = network(params, windows)
    shared.explained("basic_pitch", options, network, params, windows)

    results, run = {}, shared.reference(path)
    if run:
        want = run({SOUND: windows})
        results["onnxruntime"] = shared.distance([sounding, struck], [want[n] for n in KEYS])
        print(f"largest difference from onnxruntime: {results['onnxruntime']:.1e}")
    sounding = frames_of(sounding)
    found = find(sounding, frames_of(struck))
    print(" ".join(f"{n.key}@{n.start:.2f}" for n in found))
    picture = options.out / "basic_pitch.png"
    draw(picture, frames_of(spectrum), sounding, found)
    if truth:
        results |= {"found": matched(found, truth), "notes": len(truth), "claimed": len(found)}
        wrong = results["claimed"] - results["found"]
        print(f"basic_pitch: {results['found']} of {len(truth)} notes, {wrong} wrong; {picture}")
    return results


if __name__ == "__main__":
    main()
