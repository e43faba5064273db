"""Measure this machine's constants of the cost model, and show them beside the reference ones.

`python -m benchmarks calibrate`: a few seconds. The kernels are those of lumjax/calibration.py, not
programs of the table. What is measured is kept in the cache folder, where searches
under `profile=True` find it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from lumjax.calibration import Calibration
from lumjax.cpu.objects import host_target
from lumjax.egraph.machine import machine, save_machine


def main(out: str) -> None:
    """Measure, print, keep."""
    target = host_target()
    started = time.perf_counter()
    found, reference = Calibration(target).machine(), machine(target)
    seconds = time.perf_counter() - started
    save_machine(target, found)
    names = found.__match_args__
    for name in names:
        mine, given = getattr(found, name), getattr(reference, name)
        if isinstance(mine, float):
            print(f"{name:12s} {mine * 1e9:12.5f} ns   reference {given * 1e9:12.5f} ns")
        else:
            print(f"{name:12s} {mine}   reference {given}")
    print(f"measured in {seconds:.1f} s; load average {os.getloadavg()[0]:.1f}")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    content = {name: getattr(found, name) for name in names}
    (folder / "calibrate.json").write_text(json.dumps(content, indent=1))
