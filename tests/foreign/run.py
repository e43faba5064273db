"""Runs the tests of other people's packages, unmodified, on lumjax.

The package is the installed one, which carries its tests. What passes is recorded in SUITE.txt,
which may only grow; what does not, and why, in SUITE_left_out.tsv. The command fails when a
recorded test does not pass, and when a test fails that is not left out.

    python -m tests.foreign.run optax              # everything
    python -m tests.foreign.run optax --one-in 60  # a sample of what is recorded
    python -m tests.foreign.run optax --grow       # record what passes now besides
    python -m tests.foreign.run optax --only optax/contrib --grow
    python -m tests.foreign.run optax --jax        # on the real JAX: what passes there
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Suite:
    """A package that ships its tests: what to install, and where they are."""

    name: str
    version: str
    folder: str
    files: str = "*_test.py"
    needs: tuple[str, ...] = ()  # packages that some of its tests import besides
    needing: tuple[str, ...] = ()  # those tests' files: not part of the sample

    @property
    def recorded(self) -> Path:
        return HERE / f"{self.name}.txt"

    @property
    def left_out(self) -> Path:
        return HERE / f"{self.name}_left_out.tsv"

    def passing(self) -> list[str]:
        return self.recorded.read_text(encoding="utf-8").splitlines()

    def reasons(self) -> dict[str, str]:
        """Why a test, or all tests of a file, are left out."""
        lines = self.left_out.read_text(encoding="utf-8").splitlines()
        return dict(line.split("\t") for line in lines)

    def site(self) -> Path:
        """The folder that the package is installed in, in the version that is recorded."""
        try:
            distribution = importlib.metadata.distribution(self.name)
        except importlib.metadata.PackageNotFoundError:
            raise SystemExit(f"{self.name} is not installed: {self.install()}") from None
        if distribution.version != self.version:
            raise SystemExit(f"{self.name} {distribution.version} is installed: {self.install()}")
        return Path(str(distribution.locate_file(""))).resolve()  # pytest names tests so

    def install(self) -> str:
        return f"pip install {self.name}=={self.version} {' '.join(self.needs)}".rstrip()


OPTAX = Suite(
    "optax", "0.2.8", "optax",
    needs=("scikit-learn", "flax"),
    needing=(
        "optax/_src/alias_test.py", "optax/_src/linear_algebra_test.py",
        "optax/schedules/_schedule_test.py", "optax/transforms/_accumulation_test.py",
    ),
)  # fmt: skip
SUITES = {s.name: s for s in (OPTAX,)}


def arguments(
    suite: Suite, names: list[str] | None, jax: bool, workers: int, only: str | None = None
) -> list[str]:
    """The command line of pytest: none of this repository's settings, none of its plugins."""
    site = suite.site()
    if names is None:
        left_out = [n for n in suite.reasons() if n.endswith(".py")]
        paths = [only or suite.folder, *(f"--ignore={site / n}" for n in left_out)]
    else:
        paths = sorted({n.partition("::")[0] for n in names})
    return [
        sys.executable, "-m", "pytest", *paths, "-q", "-c", os.devnull, f"--rootdir={site}",
        "--continue-on-collection-errors",
        "-o", f"python_files={suite.files}", "-p", "no:cacheprovider", "-p", "no:randomly",
        *(() if jax else ("-p", "lumjax.compat")), "-p", "tests.foreign.outcomes",
        *(("-n", str(workers)) if workers > 1 else ()),
    ]  # fmt: skip


def run(
    suite: Suite,
    names: list[str] | None = None,
    jax: bool = False,
    workers: int = 1,
    only: str | None = None,
) -> dict[str, tuple[str, str]]:
    """What became of each test, and why. `names`: these alone; `only`: in this file or folder."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder, "outcomes")
        outcomes.touch()
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "FOREIGN_OUTCOMES": str(outcomes),
            "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        if names is not None:
            Path(folder, "select").write_text("\n".join(names), encoding="utf-8")
            environment["FOREIGN_SELECT"] = str(Path(folder, "select"))
        command = arguments(suite, names, jax, workers, only)
        done = subprocess.run(command, cwd=suite.site(), env=environment, check=False)
        lines = outcomes.read_text(encoding="utf-8").splitlines()
        if done.returncode not in (0, 1) or not lines:
            raise SystemExit(f"pytest ended with {done.returncode}: {' '.join(command)}")
        return {name: (what, why) for what, name, why in (line.split("\t") for line in lines)}


def judge(suite: Suite, found: dict[str, tuple[str, str]], names: list[str]) -> list[str]:
    """What is wrong: recorded tests (of `names`) that do not pass, failures that have no reason."""
    reasons = suite.reasons()
    wrong: list[str] = []
    for name in names:
        what, why = found.get(name, ("not run", ""))
        if what != "passed":
            wrong.append(f"{what}, but recorded as passing: {name} {why}")
    known = set(names)
    for name, (what, why) in found.items():
        explained = name in reasons or name.partition("::")[0] in reasons
        if what == "failed" and name not in known and not explained:
            wrong.append(f"failed, and no reason is recorded: {name} {why}")
    return wrong


def sample(suite: Suite, one_in: int) -> list[str]:
    """One in so many of the recorded tests that need nothing else, the same every time."""
    names = [n for n in suite.passing() if n.partition("::")[0] not in suite.needing]
    return [n for n in names if zlib.crc32(n.encode()) % one_in == 0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a foreign suite on lumjax.")
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--one-in", type=int, default=0, help="a sample of the recorded tests")
    parser.add_argument("--grow", action="store_true", help="record what passes besides")
    parser.add_argument("--jax", action="store_true", help="run on the real JAX, record nothing")
    parser.add_argument("--only", help="a file or folder of the suite")
    parser.add_argument("-n", "--workers", type=int, default=1)
    options = parser.parse_args()
    suite = SUITES[options.suite]
    expected = [n for n in suite.passing() if n.startswith(options.only or "")]
    names = None
    if options.one_in:
        expected = names = [n for n in sample(suite, options.one_in) if n in set(expected)]
    found = run(suite, names, options.jax, options.workers, options.only)
    count = {w: sum(o == w for o, _ in found.values()) for w in ("passed", "failed", "skipped")}
    print(suite.name, suite.version, "on JAX" if options.jax else "on lumjax", count)
    if options.jax:
        print("\n".join(f"{n}: {why}" for n, (what, why) in found.items() if what == "failed"))
        return
    wrong = judge(suite, found, expected)
    if options.grow:
        passed = {n for n, (what, _) in found.items() if what == "passed"}
        text = "".join(f"{n}\n" for n in sorted({*suite.passing(), *passed}))
        suite.recorded.write_text(text, encoding="utf-8")
    print("\n".join(wrong) or "as recorded")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
