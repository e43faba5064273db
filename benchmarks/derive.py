"""What the search makes of the programs of the table: kernels, what is stored, speed, agreement.

`python -m benchmarks derive` prints a line for each program: kernels (and how many it must become),
the largest value stored between kernels, memory between kernels, what runs through eval, rejected
kernels, the time to compile, and how far the result is from the interpreter's.
"""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lumjax
from benchmarks.programs import PROGRAMS, Program
from lumjax.config import config


@dataclass(frozen=True)
class Derived:
    """What became of one program."""

    name: str
    kernels: int
    launches: int
    must: int
    largest: int
    forbidden: int | None
    arena: int
    evaluated: tuple[str, ...]
    rejected: tuple[str, ...]
    compile_seconds: float
    error: float

    @property
    def holds(self) -> bool:
        """Whether the program became what it must."""
        stored = self.forbidden is None or self.largest < self.forbidden
        clean = not self.evaluated and not self.rejected
        return self.counted <= self.must and stored and clean and self.error < 1e-4

    @property
    def counted(self) -> int:
        """Kernels; launches where many kernels may share them."""
        return self.launches if PROGRAMS[self.name].by_launches else self.kernels


def derive(name: str, program: Program, size: int) -> Derived:
    """Compile the program and compare it with the interpreter."""
    f, args = program.build(size)
    started = time.process_time()
    compiled = lumjax.jit(f).lower(*args).compile()
    seconds = time.process_time() - started
    executable: Any = compiled.executable
    kernels = [k for s in executable.native() for k in s.kernels]
    with config.scope(interpret=True):
        want = lumjax.tree.leaves(lumjax.jit(f)(*args))
    got = lumjax.tree.leaves(compiled(*args))
    forbidden = None if program.forbidden is None else program.forbidden(size)
    return Derived(
        name,
        len(kernels),
        executable.launches,
        program.kernels,
        stored(executable),
        forbidden,
        executable.arena_bytes,
        tuple(f"{e.eqn.prim.name}: {e.why}" for e in executable.evaluated()),
        tuple(k.rejected for k in kernels if k.rejected),
        seconds,
        max(map(_distance, got, want)),
    )


def stored(executable: Any) -> int:
    """Elements of the largest value that is stored between kernels."""
    outputs = set(executable.jaxpr.outputs)
    sizes = [
        int(np.prod(b.shape))
        for s in executable.native()
        for b in (*s.found.plan.temporaries, *_crossing(s, outputs))
    ]
    return max(sizes, default=0)


def _crossing(stage: Any, outputs: set[Any]) -> list[Any]:
    """The values that a region stores for others."""
    region, plan = stage.region, stage.found.plan
    pairs = zip(region.outputs, plan.outputs, strict=True)
    return [buffer for v, buffer in pairs if v not in outputs]


def _distance(got: Any, want: Any) -> float:
    x, y = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if not x.size:
        return 0.0
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(x - y))
    return float(
        np.max(apart) / max(1e-6, float(np.max(np.abs(y), initial=0, where=np.isfinite(y))))
    )


def show(d: Derived) -> str:
    """One line."""
    mark = "ok " if d.holds else "-- "
    line = (
        f"{mark}{d.name:30s} kernels {d.kernels:3d} in {d.launches:2d} launches, must be {d.must}"
        f" largest stored {d.largest:9d} arena {d.arena:10d} B"
        f"  compile {d.compile_seconds:5.1f} s  error {d.error:.1e}"
    )
    notes = [f"\n      eval {e}" for e in d.evaluated] + [
        f"\n      rejected {r}" for r in d.rejected
    ]
    return line + "".join(notes)


def main(out: str, names: tuple[str, ...] = (), large: bool = False) -> None:
    """Print the table and write it as JSON."""
    done: list[Derived] = []
    for name, program in PROGRAMS.items():
        if names and not any(n in name for n in names):
            continue
        try:
            done.append(derive(name, program, program.large if large else program.small))
        except Exception:
            print(f"!! {name}\n{traceback.format_exc()}", flush=True)
            continue
        print(show(done[-1]), flush=True)
    print(f"{sum(d.holds for d in done)} of {len(PROGRAMS)} became what they must")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "derive.json").write_text(json.dumps([asdict(d) for d in done], indent=1))
