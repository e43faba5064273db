"""Fail unless branch coverage of each core folder is at least 95 %."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDERS = ("lumjax/trace", "lumjax/ops", "lumjax/grad", "lumjax/control")
REQUIRED = 95.0


def main() -> int:
    """Read the combined coverage data of the last test run and print a row per folder."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        subprocess.run(
            [sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)], check=True
        )
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    failed = False
    for wanted in FOLDERS:
        rows = [f["summary"] for name, f in files.items() if name.startswith(wanted + "/")]
        total = sum(r["num_statements"] + r["num_branches"] for r in rows)
        covered = sum(r["covered_lines"] + r["covered_branches"] for r in rows)
        percent = 100.0 * covered / max(total, 1)
        failed = failed or percent < REQUIRED
        print(f"branch coverage {wanted:<16} {percent:6.2f} % (required {REQUIRED:.0f} %)")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
