"""What a row of the race is: a program by name, its inputs, and the least work that it can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

Inputs: TypeAlias = "tuple[Any, ...]"
Kind: TypeAlias = Literal["function", "gradient", "train", "eager"]


@dataclass(frozen=True)
class Row:
    """One row. `program` is its name in the peers' sources, `inputs` makes its arguments (NumPy
    arrays, numbers, trees of them).

    Kinds: a "function" is compiled where a peer can; "gradient" is the value and the gradients by
    the inputs numbered `wrt`; "train" is a step that keeps its state, `inputs` being parameters and
    a batch; "eager" is called as it is. `moved` bytes and `flops` multiply-adds times two are the
    least that the row takes. `limit` is the largest difference from float64, relative to the
    largest value, that counts as correct. `peers` run it; all, unless given.
    """

    name: str
    group: str
    program: str
    inputs: Callable[[np.random.Generator], Inputs]
    kind: Kind = "function"
    wrt: tuple[int, ...] = ()
    moved: float = 0.0
    flops: float = 0.0
    limit: float = 2e-4
    fresh: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    peers: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """How many calls are compared with float64."""
        return 3 if self.kind == "train" else 1

    def arguments(self) -> Inputs:
        """The same inputs every time."""
        return self.inputs(np.random.default_rng(0))


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Normal numbers in float32."""
    return (rng.standard_normal(shape, np.float32) * np.float32(scale)).astype(np.float32)
