"""A peer of `python -m benchmarks steps` in a process of its own: steps of the example programs,
from everybody's parameters, batches and random draws.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import steps
from benchmarks.peers import jax_modules, load
from benchmarks.race.peer import CLOCKS, MissingError


class Stand:
    """One peer and the step that it takes at the moment."""

    def __init__(self, peer: str, threads: int) -> None:
        sys.path.insert(0, str(steps.FOLDER))  # where the examples find what they share
        self.make = {"lumjax": _lumjax, "jax": _jax}.get(peer) or _torch(peer, threads)
        self.run: Callable[[], Any] = lambda: None

    def build(self, name: str, losses: int) -> tuple[float, list[float]]:
        """Seconds of the first step, and the losses of the first few."""
        self.run, checked = self.make(name)
        started = time.perf_counter()
        first = checked()
        seconds = time.perf_counter() - started
        found = [first] + [checked() for _ in range(losses - 1)]
        return seconds, [float(np.asarray(x)) for x in found]

    def sample(self, clock: str) -> float:
        """Seconds of the next step."""
        now = CLOCKS[clock]
        started = now()
        self.run()
        return now() - started

    def drop(self) -> None:
        """Forget the step and its arrays."""
        self.run = lambda: None
        gc.collect()


def built(name: str, modules: dict[str, Any]) -> tuple[Any, steps.Built]:
    """A program as a module, its step and arguments, drawn as all peers draw them."""
    program, build = steps.STEPS[name]
    steps.RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state
    module = load(steps.FOLDER / f"{program}.py", modules)
    return module, build(module)


def _stepper(name: str, made: steps.Built, wait: Callable[[Any], Any]) -> Any:
    step, args = made
    state, rest = [args[0]], args[1:]

    def run() -> Any:
        state[0], seen = wait(step(state[0], *rest))
        return seen[0] if isinstance(seen, tuple) else seen

    return run, run


def _lumjax(name: str) -> Any:
    return _stepper(name, built(name, {})[1], lambda out: out)


def _jax(name: str) -> Any:
    import jax

    return _stepper(name, built(name, jax_modules())[1], jax.block_until_ready)


def _torch(peer: str, threads: int) -> Any:
    import torch

    from benchmarks import steps_torch

    torch.set_num_threads(threads)
    wrap = functools.partial(torch.compile, dynamic=False) if "." in peer else lambda f: f

    def make(name: str) -> Any:
        if name not in steps_torch.TWINS:
            raise MissingError("")
        module, (_, args) = built(name, {})
        torch.compiler.reset()
        twin = steps_torch.TWINS[name](module, args, wrap)
        draws = DRAWS[name](module, args) if name in DRAWS else None
        return twin, lambda: twin(draws)

    return make


# ---- what lumjax draws in a step


def _of_diffusion(m: Any, args: Any) -> Any:
    _, images, labels, number = args
    of_level, of_noise = m.random.split(m.random.fold_in(m.random.key(1), number))
    level = m.random.randint(of_level, labels.shape, 0, m.LEVELS)
    return level, m.random.normal(of_noise, images.shape)


def _of_rl(m: Any, args: Any) -> Any:
    of_play, of_order = m.random.split(m.random.fold_in(m.random.key(1), args[1]))
    gumbel, fresh = [], []
    for key in m.random.split(of_play, m.HORIZON):
        of_action, of_reset = m.random.split(key)
        gumbel.append(m.random.gumbel(of_action, (m.CARTS, 2), np.float32))
        fresh.append(m.lumjax.vmap(m.reset)(m.random.split(of_reset, m.CARTS)))
    size = m.HORIZON * m.CARTS
    orders = [m.random.randint(k, (2,), 0, size) for k in m.random.split(of_order, m.EPOCHS)]
    return tuple(np.stack([np.asarray(x) for x in part]) for part in (gumbel, fresh, orders))


DRAWS = {"diffusion": _of_diffusion, "rl": _of_rl}
