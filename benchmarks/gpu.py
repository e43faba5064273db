"""`python -m benchmarks gpu`: what is to be known of a GPU, in one run of at most eight minutes.

What the machine has; each function of the device header against what the executor of PTX gives
(conformance.py); the tests marked `gpu`; programs at a GPU's sizes beside torch.compile, JAX and
cuBLAS, as far as they are installed (gpu_rows.py); what a call costs. The report is gpu.json, which
is written after each part. Without a GPU all of it runs on the emulated device, at toy sizes: then
seconds say nothing, and the report says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import lumjax
import lumjax.numpy as jnp
from benchmarks import conformance
from benchmarks.gpu_rows import ROWS, Row, arguments, exact, peers_of
from benchmarks.timing import interleaved
from lumjax.launcher import device_of

STEPS = 16  # of a loop
EMULATED = "cuda:emulated:sm_90a"
TESTS = "tests/cuda/test_gpu.py"
ROOT = Path(__file__).resolve().parent.parent


class Report:
    """What was found, and how much time is left."""

    def __init__(self, folder: Path, backend: str, seconds: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.end = folder / "gpu.json", time.monotonic() + seconds
        self.found: dict[str, Any] = {"backend": backend, "on a GPU": backend == "cuda"}

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()

    def add(self, name: str, value: Any) -> None:
        """A part's result."""
        self.found[name] = value
        self.path.write_text(json.dumps(self.found, indent=1))


def backend_of() -> str:
    """The GPU's, if there is one."""
    return "cuda" if lumjax.doctor().ready else EMULATED


# ---- parts


def conform(report: Report, backend: str) -> bool:
    """Each function of the header."""
    device = device_of(backend)
    arch = device.info().arch
    rows = []
    for row in conformance.compared(device, arch, conformance.kept()):
        rows.append(row)
        if not row["fine"]:
            print(f"  {row['name']}: {row.get('why') or row['units']}", flush=True)
    wrong = [r["name"] for r in rows if not r["fine"]]
    print(f"conformance on {arch}: {len(rows) - len(wrong)} of {len(rows)} as kept", flush=True)
    report.add("conformance", {"arch": arch, "wrong": wrong, "rows": rows})
    return not wrong


def marked(report: Report, backend: str) -> bool:
    """The tests marked `gpu`, which run on the emulated device where there is none."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", "gpu", TESTS]
    environment = {**os.environ, "LUMJAX_GPU_TESTS": backend}
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False,
                              env=environment, timeout=max(10.0, report.left / 2))  # fmt: skip
        text, code = done.stdout[-2000:], done.returncode
    except subprocess.TimeoutExpired:
        text, code = "took too long", -1
    print(f"tests marked gpu: {text.strip().splitlines()[-1]}", flush=True)
    report.add("tests", {"code": code, "text": text})
    return code == 0


def race(report: Report, backend: str, rounds: int) -> bool:
    """Programs beside others'."""
    rows: list[dict[str, Any]] = []
    for row in ROWS:
        if report.left < 60 and backend == "cuda":
            rows.append({"name": row.name, "why": "no time was left"})
            continue
        rows.append(raced(row, backend, rounds))
        print(line(rows[-1], backend), flush=True)
        report.add("race", rows)
    return all("lumjax" in r.get("seconds", {}) for r in rows if "why" not in r)


def raced(row: Row, backend: str, rounds: int) -> dict[str, Any]:
    """A row: seconds of those that came out right, and why others did not."""
    args = arguments(row, toy=backend != "cuda")
    want, functions = exact(row, args), {}
    far: dict[str, float] = {}
    failed: dict[str, str] = {}
    for name, make in peers_of(row, args, backend).items():
        try:
            run, host = make()
            got = np.asarray(host(run()), np.float64)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error).strip()[:200]}"
            continue
        far[name] = float(np.abs(got - want).max() / np.abs(want).max())
        if far[name] <= row.limit:
            functions[name] = run
        else:
            failed[name] = f"{far[name]:.2e} from what is right"
    times = interleaved(functions, rounds)
    medians = {n: statistics.median(t) for n, t in times.items()}
    return {"name": row.name, "seconds": medians, "all": times, "far": far, "failed": failed}


def line(row: dict[str, Any], backend: str) -> str:
    """A row for people; ratios are a GPU's only."""
    seconds = row["seconds"]
    told = [f"{n} {s * 1e3:.3f} ms" for n, s in seconds.items()]
    others = [s for n, s in seconds.items() if n != "lumjax"]
    if others and "lumjax" in seconds and backend == "cuda":
        told.append(f"the best other takes {min(others) / seconds['lumjax']:.2f} times as long")
    return f"{row['name']}: {', '.join([*told, *(f'{n}: {w}' for n, w in row['failed'].items())])}"


def overhead(report: Report, backend: str, rounds: int) -> bool:
    """A call of one kernel, and of a graph of many; to its end, or only asked for."""
    x = jnp.ones((64,), "float32")
    functions: dict[str, Callable[[], Any]] = {}
    for name, f in (("one kernel", lambda v: v * 2 + 1), (f"a loop of {STEPS} steps", _loop)):
        g = lumjax.jit(f, backend=backend)
        functions[name] = lambda g=g: lumjax.block_until_ready(g(x))
        functions[f"{name}, not waited for"] = lambda g=g: g(x)
    repeat = 50 if backend == "cuda" else 1
    times = interleaved(functions, rounds, repeat)
    medians = {n: statistics.median(t) for n, t in times.items()}
    for name, seconds in medians.items():
        print(f"a call, {name}: {seconds * 1e6:.1f} us", flush=True)
    report.add("launches", {"seconds": medians, "all": times})
    return True


def _loop(x: Any) -> Any:
    """Its steps are unrolled into one graph."""
    return lumjax.lax.fori_loop(0, STEPS, lambda _, c: jnp.tanh(c) / c.sum(), x)


# ---- all


def parts(report: Report, backend: str) -> Iterator[tuple[str, bool]]:
    """Each part, and whether it went well."""
    rounds = 9 if backend == "cuda" else 1
    yield "conformance", conform(report, backend)
    yield "tests", marked(report, backend)
    yield "launches", overhead(report, backend, rounds)
    yield "race", race(report, backend, rounds)


def main(out: str, given: list[str]) -> None:
    """Run all, and write the report; an error where something was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu", description=__doc__)
    parser.add_argument("--seconds", type=float, default=480.0, help="what all may take")
    options = parser.parse_args(given)
    backend = backend_of()
    report = Report(Path(out), backend, options.seconds)
    checkup = lumjax.doctor()
    print(checkup)
    report.add("machine", {f.name: f.found for f in checkup.findings})
    failed = []
    for name, fine in parts(report, backend):
        failed += [] if fine else [name]
    report.add("failed", failed)
    print(f"{backend}: {'all as it should be' if not failed else 'wrong: ' + ', '.join(failed)}; "
          f"{report.path}")  # fmt: skip
    if failed:
        raise SystemExit(1)
