"""The table of names is complete, and docs/api.md is what the script writes."""

from __future__ import annotations

from tests.api.names import MISSING, NAMES
from tests.api.table import cases


def test_each_name_has_cases():
    covered = {c.name for c in cases()}
    wanted = {n.name for n in NAMES if n.group in ("core", "stub") and n.name not in MISSING}
    assert not sorted(wanted - covered)
    assert not sorted(covered - {n.name for n in NAMES})
