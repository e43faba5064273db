"""The training steps of the example programs with arguments, for `steps_table` and tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "train"

Built: TypeAlias = "tuple[Any, tuple[Any, ...]]"
RNG = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    """Images."""
    return RNG.random(shape, np.float32)


def classes(*shape: int, count: int = 10) -> np.ndarray:
    """Labels, or characters."""
    return RNG.integers(0, count, shape).astype(np.int32)


def gpt(m: Any, layers: int = 4) -> Built:
    """Layers of attention over characters."""
    params = m.init(m.random.key(0), 60, layers)
    optimizer, step = m.make_step(100)
    tokens = classes(2, m.BATCH, m.TIME, count=60)
    return step, ((params, optimizer.init(params)), *tokens)


def names(m: Any, cell: str = "lstm") -> Built:
    """A cell over the letters of names, of which later ones are padding."""
    params = m.init(m.random.key(0), cell)
    optimizer, step = m.make_step(cell, 100)
    letters = 1 + classes(m.BATCH, m.TIME + 1, count=26)
    given = np.arange(m.TIME + 1) < 4 + classes(m.BATCH, 1, count=m.TIME - 4)
    return step, ((params, optimizer.init(params)), np.where(given, letters, 0))


def classifier(m: Any, *sizes: int) -> Built:
    """A network for MNIST's images, and the running mean of its parameters."""
    params = m.init(m.random.key(0), *sizes)
    optimizer, step = m.make_step(100)
    return step, (
        (params, params, optimizer.init(params)), pixels(m.BATCH, 28, 28, 1), classes(m.BATCH),
    )  # fmt: skip


def diffusion(m: Any) -> Built:
    """A U-Net."""
    params = m.init(m.random.key(0))
    optimizer, step = m.make_step(100)
    state = params, params, optimizer.init(params)
    return step, (state, pixels(m.BATCH, 14, 14, 1), classes(m.BATCH), np.int32(0))


def from_pixels(m: Any) -> Built:
    """What learns from images without labels."""
    params = m.init(m.random.key(0))
    optimizer, step = m.make_step(100)
    return step, ((params, optimizer.init(params)), pixels(m.BATCH, 784), np.int32(0))


def pinn(m: Any) -> Built:
    """Derivatives of the third order."""
    params = m.init(m.random.key(0))
    optimizer, step = m.make_step(100)
    return step, ((params, optimizer.init(params)), np.int32(0))


def rl(m: Any) -> Built:
    """256 carts, a policy and PPO."""
    optimizer, step = m.make_step(100)
    return step, (m.start(m.random.key(0), optimizer), np.int32(0))


STEPS: dict[str, tuple[str, Callable[[Any], Built]]] = {
    # those that torch has a twin of first: time may end
    "gpt": ("gpt", gpt),
    "lstm": ("names", names),
    "cnn": ("cnn", classifier),
    "diffusion": ("diffusion", diffusion),
    "rl": ("rl", rl),
    "gru": ("names", lambda m: names(m, "gru")),
    "vit": ("vit", lambda m: classifier(m, 4)),
    "vae": ("vae", from_pixels),
    "contrastive": ("contrastive", from_pixels),
    "pinn": ("pinn", pinn),
}
