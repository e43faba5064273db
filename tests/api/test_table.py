"""The table of names is complete, and docs/api.md is what the script writes."""

from __future__ import annotations

from pathlib import Path

import lumjax
from tests.api.names import MISSING, NAMES, REASONS
from tests.api.report import public, text, theirs
from tests.api.signatures import parameters, unlike
from tests.api.table import cases

ROOT = Path(__file__).resolve().parents[2]


def test_each_name_has_cases():
    covered = {c.name for c in cases()}
    wanted = {n.name for n in NAMES if n.group in ("core", "stub") and n.name not in MISSING}
    assert not sorted(wanted - covered)
    assert not sorted(covered - {n.name for n in NAMES})


def test_the_page_is_current():
    """`scripts/api_table.py` writes it; every parameter that is not taken has a reason."""
    page = ROOT / "docs" / "api.md"
    assert page.read_text(encoding="utf-8") == text(), "run scripts/api_table.py"


def test_reasons_are_used():
    """A reason for something that no longer differs is removed."""
    names = [*(n.name for n in NAMES if n.name not in MISSING), *public()]
    absent = {(n, p) for n in names for p in unlike(parameters(lumjax, n), theirs(n))}
    used = {p for _, p in absent} | {f"{n}:{p}" for n, p in absent}
    assert not sorted(set(REASONS) - used)


def test_parameters_are_in_jaxs_order():
    for name in [*(n.name for n in NAMES if n.name not in MISSING), *public()]:
        assert "order" not in unlike(parameters(lumjax, name), theirs(name)), name
