"""Write docs/api.md: every name that real code uses, and whether it is JAX's or how it differs.

The list is `tests/api/names.tsv`; the differences are those that the tests of `tests/api` prove.
JAX runs in a process of its own, for its signatures.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.api.report import text  # noqa: E402

if __name__ == "__main__":
    (ROOT / "docs" / "api.md").write_text(text(), encoding="utf-8")
