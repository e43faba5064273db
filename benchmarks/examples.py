"""Every example program at full size, as its reader runs it, against the result that it promises.

    python -m benchmarks programs
    python -m benchmarks programs --only vae pinn

Each runs in a process of its own, into `out/programs`. What comes of it is read from what it
prints, which stays there as text. A program whose data are not installed is named and counts as not
run; any other end but the promised one makes the command fail.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MISSING = re.compile(r"pip install --no-deps \S+")


@dataclass(frozen=True)
class Promise:
    """A program, its arguments, and the number in its output that must not exceed, or fall below,
    a bound.
    """

    program: str
    pattern: str
    least: float | None = None
    most: float | None = None
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The program's name, and its arguments' values."""
        return " ".join([Path(self.program).stem, *(a for a in self.arguments if a[:2] != "--")])

    def kept(self, value: float) -> bool:
        """Whether a result is as promised."""
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )

    def bound(self) -> str:
        """For people."""
        return f"at least {self.least:g}" if self.least is not None else f"at most {self.most:g}"


PROMISES = (
    Promise("train/regression.py", r"loss ([\d.e-]+)", most=0.02),
    Promise("train/mnist.py", r"([\d.]+)%", least=97.0),
    Promise("train/mnist.py", r"([\d.]+)%", least=93.0,
            arguments=("--model", "mlp", "--epochs", "30")),
    Promise("train/cnn.py", r"cnn: ([\d.]+)%", least=98.5),
    Promise("train/gpt.py", r"gpt: ([\d.]+) nats", most=1.85),
    Promise("train/names.py", r"lstm: ([\d.]+) nats", most=2.25),
    Promise("train/names.py", r"gru: ([\d.]+) nats", most=2.25, arguments=("--cell", "gru")),
    Promise("train/diffusion.py", r"squared error ([\d.]+)", most=0.10),
    Promise("train/vae.py", r"vae: ([\d.]+) nats", most=122),
    Promise("train/pinn.py", r"relative error ([\d.]+)%", most=1.5),
    Promise("train/rl.py", r"episodes of (\d+)", least=475),
    Promise("train/rl.py", r"episodes of (\d+)", least=475, arguments=("--seed", "5")),
    Promise("train/vit.py", r"vit: ([\d.]+)%", least=97.0),
    Promise("train/mixed_precision.py", r"mixed_precision: ([\d.]+)%", least=97.0),
    Promise("train/contrastive.py", r"contrastive: ([\d.]+)%", least=88.0),
    Promise("train/lora.py", r"lora: ([\d.]+)%", least=96.0),
    Promise("train/gp.py", r"gp: ([\d.]+) m", most=40.0),
    Promise("infer/silero_vad.py", r"silero_vad: ([\d.]+)%", least=97.0),
    Promise("infer/basic_pitch.py", r"basic_pitch: (\d+) of", least=22),
    Promise("infer/sentences.py", r"sentences: (\d+) of", least=29),
    Promise("infer/vision_language.py", r"vision_language: ([\d.]+)%", least=85.0),
)  # fmt: skip


def run(promise: Promise, out: Path) -> dict[str, Any]:
    """Run a program; what it promised, what came, and how long it took."""
    command = [sys.executable, str(ROOT / "examples" / promise.program), *promise.arguments]
    if promise.name != "regression":  # which writes nothing
        command += ["--out", str(out)]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=out)
    (out / f"{promise.name}.txt").write_text(done.stdout)
    row: dict[str, Any] = {"promised": promise.bound(), "seconds": time.perf_counter() - started}
    if done.returncode:
        missing = MISSING.search(done.stderr)
        return row | {"failed": missing.group() if missing else done.stderr.strip()[-2000:],
                      "missing": missing is not None}  # fmt: skip
    found = re.findall(promise.pattern, done.stdout)
    if not found:
        return row | {"failed": f"no {promise.pattern!r} in {done.stdout[-500:]!r}"}
    value = float(found[-1])
    return row | {"result": value, "kept": promise.kept(value)}


def line(name: str, row: dict[str, Any]) -> str:
    """A row of the table."""
    result = f"{row['result']:g}" if "result" in row else "not run"
    words = "" if row.get("kept") else row.get("failed", "not as promised").splitlines()[-1]
    return f"| {name} | {result} | {row['promised']} | {row['seconds']:.0f} | {words} |"


def main(out: str, arguments: list[str]) -> None:
    """Run all of them, or those that are named; exit with 1 if one breaks its promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="names of programs")
    only = parser.parse_args(arguments).only
    folder = Path(out).resolve() / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    print("| program | result | promised | seconds | |\n|---|---|---|---|---|")
    found: dict[str, Any] = {}
    for promise in PROMISES:
        if not only or Path(promise.program).stem in only:
            row = found[promise.name] = run(promise, folder)
            print(line(promise.name, row), flush=True)
    (folder / "programs.json").write_text(json.dumps(found, indent=1))
    if not all(row.get("kept") or row.get("missing") for row in found.values()):
        raise SystemExit(1)
