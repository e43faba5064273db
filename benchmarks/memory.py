"""Memory that programs of the table hold while they run, at full size, and that of running them
value by value.

`python -m benchmarks memory` prints a line for each: the most that the compiled program held beyond
its arguments, the most that the interpreter held, which stores every value of the traced program
until its last use, their ratio, and the largest value stored between kernels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lumjax
from benchmarks.derive import stored
from benchmarks.programs import PROGRAMS
from lumjax.config import config

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

# Sizes: rows by 50,000 classes, pairs, positions.
SIZES = {"linear and labels": 2000, "contrastive": 8192, "attention causal": 4096}


@dataclass(frozen=True)
class Held:
    """Bytes held at most by one program, compiled and value by value; elements stored at most."""

    name: str
    size: int
    compiled: int
    materialised: int
    largest: int

    @property
    def ratio(self) -> float:
        """The compiled program's share."""
        return self.compiled / self.materialised


def measurable() -> bool:
    """Whether this system tells the most memory that was held since a moment."""
    return CLEAR.exists() and STATUS.exists()


def peak(run: Callable[[], Any]) -> tuple[int, Any]:
    """The most bytes held beyond what was held before, and the result."""
    before = _status("VmRSS")
    CLEAR.write_text("5")  # resets the high-water mark
    result = run()
    return max(0, _status("VmHWM") - before), result


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())
    assert found is not None, "Linux tells what a process holds"
    return 1024 * int(found[1])


def compiled(name: str, size: int) -> tuple[int, int, Any]:
    """The most held by the compiled program's first run, elements stored at most, results."""
    f, args = PROGRAMS[name].build(size)
    program = lumjax.jit(f).lower(*args).compile()
    most, result = peak(lambda: lumjax.tree.map(np.asarray, program(*args)))
    planned: Any = program.executable  # pages that were held before may be used again
    return max(most, planned.arena_bytes), stored(planned), result


def materialised(name: str, size: int) -> int:
    """The most held when each value of the traced program is stored until its last use."""
    f, args = PROGRAMS[name].build(size)
    with config.scope(interpret=True):
        program = lumjax.jit(f)
        most, _ = peak(lambda: lumjax.tree.map(np.asarray, program(*args)))
    return most


def measure(name: str, size: int) -> Held:
    """Both."""
    most, largest, _ = compiled(name, size)
    return Held(name, size, most, materialised(name, size), largest)


def main(out: str) -> None:
    """Print the table and write it as JSON."""
    if not measurable():
        print("this system does not tell the most memory that a process held")
        return
    done: list[Held] = []
    for name, size in SIZES.items():
        done.append(measure(name, size))
        h = done[-1]
        print(
            f"{name:20s} size {size:6d}  compiled {h.compiled / 2**20:8.1f} MiB  value by value"
            f" {h.materialised / 2**20:8.1f} MiB  ratio {h.ratio:6.3f}  largest stored {h.largest}"
        )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.json").write_text(json.dumps([asdict(h) for h in done], indent=1))
