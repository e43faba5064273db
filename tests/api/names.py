"""The names that real code uses, and those that are not offered, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Name:
    """A name as JAX's users spell it; "core", "stub" (several devices) or "more"."""

    name: str
    group: str


def _rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


NAMES = [Name(*row) for row in _rows(HERE / "names.tsv")]
MISSING = dict(_rows(HERE.parent / "golden" / "api_missing.tsv"))
REASONS = dict(_rows(HERE / "parameters.tsv"))
