"""What things cost on a machine: seconds of one core for each of the features of a kernel.

The reference constants below are part of the package, so that equal programs get equal plans on
every machine; `benchmarks calibrate` measures those of the machine at hand, which searches use only
under `profile=True` (lumjax/calibration.py).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from lumjax.kernel.digest import digest
from lumjax.record import record
from lumjax.store import Store
from lumjax.target import Backend, Target


@record
class Machine:
    """Seconds of one core (`units` of them run at once) for one of each."""

    operation: float  # an elementwise operation on one element, vectorised
    special: float  # an operation of a special function
    gather: float  # an element read at a constant distance from its neighbours
    irregular: float  # an element whose place takes divisions or an index to find
    stage: float  # an element copied for a contraction
    product: float  # a multiply-add in register tiles
    finish: float  # an element of a contraction's result
    entry: float  # the beginning of an innermost loop
    tiled: float  # a multiply-add into the tiles of a loop
    step: float  # such a tile, however small
    levels: tuple[tuple[int, float], ...]  # (bytes that fit, seconds per byte), smallest first
    memory: float  # seconds per byte beyond the levels
    shared: float  # the same where all cores read at once, as part of what one core takes
    launch: float  # a kernel
    units: int
    holds: bool  # whether a job may hold whole rows in scratch
    space: float  # what a byte of temporaries is worth
    excess: float  # the same beyond a quarter of what the program reads and writes


MACHINES = {
    Backend.CPU: Machine(
        operation=5e-11,
        special=9e-11,
        gather=4e-10,
        irregular=4e-10,
        stage=1e-9,
        product=4e-11,
        finish=3e-10,
        entry=6e-9,
        tiled=4.5e-11,
        step=1e-7,
        levels=((1 << 19, 3e-11), (1 << 25, 5e-11)),
        memory=1e-10,
        shared=0.6,
        launch=1e-6,
        units=2,
        holds=True,
        space=5e-10,
        excess=2e-9,
    ),
    Backend.CUDA: Machine(
        operation=4.4e-12,
        special=4.4e-12,
        gather=3.5e-10,
        irregular=7e-10,
        stage=1e-10,
        product=6.6e-13,
        finish=1e-11,
        entry=0.0,
        tiled=1.1e-12,
        step=1e-6,
        levels=((1 << 25, 2.2e-11),),
        memory=4.4e-11,
        shared=0.0076,
        launch=3e-6,
        units=132,
        holds=False,
        space=2.5e-12,
        excess=1e-11,
    ),
}


_MEASURED = Store("machines", 1, ".json")


def machine(target: Target, measured: bool = False) -> Machine:
    """The reference machine of a target's kind, or, if that is wanted, the one at hand where its
    constants have been measured.
    """
    found = load_machine(target) if measured else None
    return MACHINES[target.backend] if found is None else found


def _key(target: Target) -> str:
    return digest(f"{target.key}:{target.cores}:{target.l1}:{target.l2}:{target.l3}")


def load_machine(target: Target) -> Machine | None:
    """The constants measured on this machine, None if there are none."""
    body = _MEASURED.read(_key(target))
    if body is None:
        return None
    try:
        content: dict[str, Any] = json.loads(body)
        content["levels"] = tuple((int(n), float(s)) for n, s in content["levels"])
        return replace(MACHINES[target.backend], **content)
    except (ValueError, TypeError, KeyError):
        _MEASURED.unusable(_key(target))
        return None


def save_machine(target: Target, found: Machine) -> None:
    """Keep measured constants on disk."""
    content = {name: getattr(found, name) for name in found.__match_args__}
    _MEASURED.write(_key(target), json.dumps(content).encode())
