"""Print the size of every package folder: files, code lines, the longest file; and the test to
source ratio.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def code_lines(path: Path) -> int:
    """Lines that are neither blank nor comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return sum(1 for line in lines if line.strip() and not line.strip().startswith("#"))


def main() -> None:
    """Print the table."""
    groups: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "lumjax").rglob("*.py")):
        folder = path.parent.relative_to(ROOT).as_posix()
        groups.setdefault(folder, []).append(path)
    groups["tests"] = sorted((ROOT / "tests").rglob("*.py"))
    groups["examples"] = sorted((ROOT / "examples").rglob("*.py"))
    print(f"{'folder':<22}{'files':>6}{'code lines':>12}  longest file")
    total = 0
    for folder, paths in groups.items():
        counts = {p: code_lines(p) for p in paths}
        longest = max(counts, key=lambda p: counts[p], default=None)
        name = f"{longest.name} ({counts[longest]})" if longest else "-"
        print(f"{folder:<22}{len(paths):>6}{sum(counts.values()):>12}  {name}")
        if folder.startswith("lumjax"):
            total += sum(counts.values())
    tests = sum(map(code_lines, groups["tests"]))
    print(f"lumjax {total} code lines, tests {tests}, ratio {tests / max(total, 1):.2f}")


if __name__ == "__main__":
    main()
