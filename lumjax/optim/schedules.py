"""Schedules under optax's names: functions from the step count to a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from lumjax import numpy as jnp
from lumjax.errors import ArgumentValueError

Schedule: TypeAlias = Callable[[Any], Any]  # step count -> value


def constant_schedule(value: float) -> Schedule:
    """The same value at every step."""
    return lambda count: value


def polynomial_schedule(
    init_value: float,
    end_value: float,
    power: float,
    transition_steps: int,
    transition_begin: int = 0,
) -> Schedule:
    """From init to end over `transition_steps`, as (1 - progress)**power."""
    if transition_steps <= 0:
        return constant_schedule(init_value)
    begin = max(transition_begin, 0)

    def schedule(count: Any) -> Any:
        progress = jnp.clip(count - begin, 0, transition_steps) / transition_steps
        return (init_value - end_value) * (1 - progress) ** power + end_value

    return schedule


def linear_schedule(
    init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """A straight line from init to end over `transition_steps`.

    >>> float(linear_schedule(1.0, 0.0, 10)(5))
    0.5
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def cosine_decay_schedule(
    init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0
) -> Schedule:
    """Half a cosine from init to alpha * init (Loshchilov and Hutter 2017)."""
    if decay_steps <= 0:
        raise ArgumentValueError(
            operation="optim.cosine_decay_schedule",
            required="decay_steps > 0",
            got=str(decay_steps),
            fix="give the number of steps over which to decay",
        )

    def schedule(count: Any) -> Any:
        progress = jnp.minimum(count, decay_steps) / decay_steps
        cosine = 0.5 * (1 + jnp.cos(jnp.pi * progress))
        return init_value * ((1 - alpha) * cosine**exponent + alpha)

    return schedule


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after another; each restarts its count at its boundary."""
    if len(boundaries) != len(schedules) - 1:
        raise ArgumentValueError(
            operation="optim.join_schedules",
            required=f"{len(schedules) - 1} boundaries for {len(schedules)} schedules",
            got=str(len(boundaries)),
            fix="give one boundary between each two schedules",
        )

    def schedule(count: Any) -> Any:
        out = schedules[0](count)
        for boundary, following in zip(boundaries, schedules[1:], strict=True):
            out = jnp.where(count < boundary, out, following(count - boundary))
        return out

    return schedule


def warmup_cosine_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    decay_steps: int,
    end_value: float = 0.0,
    exponent: float = 1.0,
) -> Schedule:
    """A linear warm-up to the peak, then a cosine to the end; `decay_steps` counts both."""
    alpha = 0.0 if peak_value == 0.0 else end_value / peak_value
    return join_schedules(
        [
            linear_schedule(init_value, peak_value, warmup_steps),
            cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent),
        ],
        [warmup_steps],
    )
