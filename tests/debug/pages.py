"""Pages whose text blocks are what the code above them prints. `python tests/debug/pages.py` writes
them anew.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGES = [Path(__file__).resolve().parents[2] / "docs" / "debugging.md"]
_BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)


def printed(page):
    """(what a text block says, what the code above it prints), block by block."""
    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": "page"}
    pairs = []
    for match in _BLOCK.finditer(text):
        before = text[: match.start(1)].count("\n")
        code = compile("\n" * before + match[1], page.name, "exec")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, namespace)
        pairs.append((match[2], out.getvalue()))
    return pairs


def rewritten(page):
    """The page with what the code prints now."""
    found = iter(printed(page))

    def block(match):
        said, out = next(found)
        shown = "" if said is None else f"```text\n{out}```\n"
        return f"```python\n{match[1]}```\n{shown}"

    return _BLOCK.sub(block, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for page in PAGES:
        for _ in range(2):  # lines move as blocks grow
            page.write_text(rewritten(page), encoding="utf-8")
