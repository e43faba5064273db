"""Random programs: DAGs over the vocabulary with sharing, dead code, broadcasting and sizes 0 and
1, and with branches, loops and other functions inside if asked.

A `Program` is data: it can be run on any array values and on any package with JAX's names, and
printed as Python. It is built by asking a `Chooser` for integers, so that Hypothesis and a plain
random generator make the same kind of program. `lumjax.testing.sweep` checks many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.record import record
from lumjax.testing.flow import FLOW, HELPERS
from lumjax.testing.steps import Builder, Chooser, Node, library, run, write
from lumjax.testing.words import WORDS
from lumjax.trace.array import Array

VOCABULARY = {**WORDS, **FLOW, **HELPERS}
# With functions inside, these are drawn about as often as plain words.
WITH_FLOW = (*WORDS, *FLOW, *FLOW, *FLOW)


class RandomChooser:
    """Decisions from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        return int(self._rng.integers(low, high, endpoint=True))


@lru_cache(maxsize=64)
def _function(text: str, package: str) -> Callable[..., Any]:
    names = dict(library(package))
    run([text], names)
    return names["f"]


@record
class Program:
    """Inputs, steps, and the values returned. Values are numbered: inputs first, then nodes."""

    inputs: tuple[np.ndarray[Any, Any], ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    @property
    def args(self) -> tuple[Array, ...]:
        """The inputs as arrays."""
        return tuple(Array(x) for x in self.inputs)

    @property
    def fn(self) -> Callable[..., tuple[Any, ...]]:
        """The program as a function of arrays."""
        return self.on("lumjax")

    def on(self, package: str) -> Callable[..., tuple[Any, ...]]:
        """The program as a function, calling a package that has JAX's names."""
        return _function(self.source(), package)

    def source(self) -> str:
        """The program as the text of a function `f`, one step a line."""
        lines = write(self.nodes, len(self.inputs), VOCABULARY)
        lines.append(f"return ({', '.join(f'v{k}' for k in self.outputs)},)")
        given = ", ".join(f"v{k}" for k in range(len(self.inputs)))
        return "\n".join([f"def f({given}):", *(f"    {line}" for line in lines)])

    def widened(self) -> Program:
        """The same program on float64 inputs."""
        inputs = [x.astype(np.float64) if dt.is_floating(x.dtype) else x for x in self.inputs]
        return Program(tuple(inputs), self.nodes, self.outputs)

    def reversible(self) -> bool:
        """Whether all of it has a derivative in reverse mode."""
        return all(map(_reversible, self.nodes))


def _reversible(node: Node) -> bool:
    inner = (n for body in node.bodies for n in body.nodes)
    return VOCABULARY[node.name].reverse and all(map(_reversible, inner))


def build(
    choose: Chooser, max_nodes: int = 10, words: Sequence[str] | None = None, flow: bool = False
) -> Program:
    """A program of up to `max_nodes` steps; `flow`: with functions inside."""
    inputs: list[np.ndarray[Any, Any]] = []
    dtype = (dt.float32, dt.float32, dt.float32, dt.float16, dt.bfloat16)[choose.integer(0, 4)]
    sizes = (2, 3, 1, 0, 5, 17, 4)
    for k in range(choose.integer(1, 3)):
        rank = choose.integer(0, 3)
        shape = tuple(sizes[choose.integer(0, len(sizes) - 1)] for _ in range(rank))
        noise = np.random.default_rng(choose.integer(0, 999) + 1000 * k)
        if choose.integer(0, 4) == 4:
            inputs.append(noise.integers(-3, 4, shape).astype(np.int32))
        else:
            inputs.append(np.asarray(noise.uniform(-2, 2, shape)).astype(dtype))
    names = tuple(words or (WITH_FLOW if flow else WORDS))
    builder = Builder(
        choose, VOCABULARY, names, [Array(x) for x in inputs], [True] * len(inputs), reverse=False
    )
    with config.scope(interpret=True):  # nothing is compiled for values that say what may follow
        for _ in range(choose.integer(1, max_nodes)):
            builder.extend()
    total = len(builder.values)
    more = choose.integer(0, 4 if flow else 2)
    outputs = {total - 1, *(choose.integer(0, total - 1) for _ in range(more))}
    return Program(tuple(inputs), tuple(builder.nodes), tuple(sorted(outputs)))
