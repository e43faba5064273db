"""Run autograd's own tests, unmodified, against lumjax and compare with the recorded passes.

    python -m tests.foreign.run_autograd            # all; fails if a recorded test does not pass
    python -m tests.foreign.run_autograd --record   # and add new passes to autograd.txt
    python -m tests.foreign.run_autograd NODE ...   # some, with their output

The source distribution is unpacked by `bash scripts/foreign`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
VERSION = "1.9.1"
PASSES = HERE / "autograd.txt"
OUTSIDE = HERE / "autograd_left_out.tsv"


def unpacked() -> Path | None:
    """The folder of the source distribution, if it is there."""
    folder = Path(os.environ.get("LUMJAX_FOREIGN", ROOT / ".venv" / "foreign"))
    found = (folder / f"autograd-{VERSION}").resolve()
    return found if (found / "tests").is_dir() else None


def recorded() -> list[str]:
    """The tests that pass, by id."""
    return PASSES.read_text(encoding="utf-8").split("\n")[:-1] if PASSES.exists() else []


def left_out() -> dict[str, str]:
    """Why a test is not lumjax's to pass, by id."""
    lines = OUTSIDE.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines)


def run(nodes: list[str], *options: str, processes: int = 1) -> tuple[set[str], str]:
    """The ids that passed, and pytest's output."""
    folder = unpacked()
    assert folder is not None, "bash scripts/foreign"
    command = [
        sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "tests.foreign.autograd_alias",
        "--autograd", str(folder), "--rootdir", str(folder), "-q", "-rA", "--tb=short",
        "--color=no", "--no-cov", "-p", "no:cacheprovider", "-p", "no:warnings", "-n",
        str(processes) if processes > 1 else "0", *options, *(str(folder / n) for n in nodes),
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    passed = set(re.findall(r"^PASSED \S*?(tests/test_\w+\.py::\S+)", done.stdout, re.MULTILINE))
    return passed, done.stdout + done.stderr


def main() -> int:
    """Run, compare, record."""
    options = sys.argv[1:]
    nodes = [a for a in options if not a.startswith("--")]
    passed, output = run(nodes or ["tests"], processes=os.cpu_count() or 1)
    before, outside = set(recorded()), left_out()
    lost = sorted(n for n in before - passed if not nodes or n in nodes)
    print(output if nodes or lost or not passed else "\n".join(output.splitlines()[-30:]))
    if "--record" in options:
        assert not passed & set(outside), sorted(passed & set(outside))
        PASSES.write_text("".join(f"{n}\n" for n in sorted(before | passed)), encoding="utf-8")
    print(
        f"{len(passed)} passed, {len(before)} recorded, {len(outside)} out of scope; lost: {lost}"
    )
    return len(lost)


if __name__ == "__main__":
    sys.exit(main())
