"""docs/debugging.md shows what its code prints. `pages.py` writes it anew."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("pages", Path(__file__).with_name("pages.py"))
pages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pages)


@pytest.mark.parametrize("page", pages.PAGES, ids=[p.name for p in pages.PAGES])
def test_a_page_shows_what_its_code_prints(page):
    pairs = pages.printed(page)
    assert sum(said is not None for said, _ in pairs) > 5
    for said, out in pairs:
        assert said is None or out == said
