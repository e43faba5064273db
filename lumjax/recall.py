"""A whole program kept on disk: another process traces it, loads it and runs it.

An entry holds what running takes, and is keyed by everything it is a function of: the traced
program, the settings, the machine, the versions of the code that compiles. What looks inside such a
program, for a report, has it compiled after all, from the plans on disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from lumjax.concrete import open_sizes_of
from lumjax.config import MODES, config
from lumjax.cpu import objects
from lumjax.encoding import NONSENSE, from_bytes, to_bytes
from lumjax.expansion import is_keyed
from lumjax.kernel.digest import digest
from lumjax.misses import used
from lumjax.runner import Label, Recipe, Runner
from lumjax.signature import operations, text_of
from lumjax.store import Store, code_version
from lumjax.trace.core import Jaxpr
from lumjax.trace.simplify import freeze

if TYPE_CHECKING:
    from lumjax.executable import Executable
    from lumjax.trace.array import Array

PROGRAMS = Store("programs", 2, ".bin")


class Recalled:
    """A program that was compiled before. It has all that an Executable has; what running does not
    take is compiled when it is first asked for.
    """

    plain = True

    def __init__(
        self, jaxpr: Jaxpr, runner: Runner, seconds: float, make: Callable[[], Executable]
    ) -> None:
        self.traced, self.runner, self.seconds = jaxpr, runner, seconds
        self.arena_bytes, self.peak_bytes = runner.recipe.arena_bytes, runner.recipe.peak_bytes
        self._scope = config.overrides()
        self._make = make
        runner.labels = self._labels
        self._whole: Executable | None = None

    @property
    def launches(self) -> int:
        """How often all threads wait for each other in a call."""
        return self.runner.launches

    def run(self, args: Any) -> list[Array]:
        """Run on one value for each input of the traced jaxpr."""
        return self.runner.run(args)

    @property
    def whole(self) -> Executable:
        """The program compiled under the settings that were in force."""
        if self._whole is None:
            with config.scope(**self._scope):
                self._whole = self._make()
        return self._whole

    def _labels(self) -> Sequence[Label]:
        return self.whole.labels()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)


def executable_of(
    jaxpr: Jaxpr,
    settings: Mapping[str, Any],
    make: Callable[[], Executable],
    donated: frozenset[int] = frozenset(),
) -> Executable | Recalled:
    """The program as it was kept, else as `make` makes it, and kept for the next process."""
    started = time.perf_counter()
    with config.scope(**settings):
        key, kept = plan_key(jaxpr, donated), is_kept(jaxpr)
    if key is not None:
        used(key)
    if key is None or not kept:
        return make()
    runner = _kept(key, jaxpr, settings)
    if runner is not None:
        return Recalled(jaxpr, runner, time.perf_counter() - started, make)
    made = make()
    if made.lasting and isinstance(made.runner, Runner):
        _keep(key, jaxpr, made.runner.recipe)
    return made


def plan_key(jaxpr: Jaxpr, donated: frozenset[int] = frozenset()) -> str | None:
    """What the plans of a program follow from, with the settings in force; None for a program that
    only this process knows.
    """
    text = text_of(jaxpr)
    if text is None:
        return None
    versions = (code_version(), objects.version(), np.__version__, sorted(donated))
    target = objects.host_target().key
    return digest("\n".join(map(str, (*versions, target, config.compiled_key(), text))))


def is_kept(jaxpr: Jaxpr) -> bool:
    """Whether programs like this are kept on disk, with the settings in force."""
    if not config.cache or config.search_profile or any(getattr(config, m) for m in MODES):
        return False
    return config.backend == "cpu" and not open_sizes_of(jaxpr.in_avals)


def _keep(key: str, jaxpr: Jaxpr, recipe: Recipe) -> None:
    """Write it down, if all that it evaluates is an operation of the traced program."""
    numbers: dict[Any, int] = {}
    for number, eqn in enumerate(operations(jaxpr)):
        numbers.setdefault((eqn.prim, freeze(eqn.params)), number)
    with suppress(KeyError):
        body = to_bytes(recipe, lambda call: numbers[call.prim, freeze(call.params)])
        PROGRAMS.write(key, body)


def _kept(key: str, jaxpr: Jaxpr, settings: Mapping[str, Any]) -> Runner | None:
    body = PROGRAMS.read(key)
    if body is None:
        return None
    try:
        recipe = from_bytes(body, lambda number: list(operations(jaxpr))[number])
    except NONSENSE:
        PROGRAMS.unusable(key)
        return None
    if recipe is None:
        return None
    return Runner(recipe, settings, any(is_keyed(a) for a in (*jaxpr.in_avals, *jaxpr.out_avals)))
