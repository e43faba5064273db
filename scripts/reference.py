"""Write docs/reference from the docstrings and docs/reference/examples.txt."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.api.pages import pages

if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
