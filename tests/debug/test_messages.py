"""Every message as users read it: tests/golden/errors.txt. `messages.py` writes it anew."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

_PLACE = Path(__file__).with_name("messages.py")
_SPEC = importlib.util.spec_from_file_location("debug_messages", _PLACE)
messages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(messages)

GOLDEN = dict(re.findall(r"== (.*)\n((?:.+\n)+)", messages.GOLDEN.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", messages.CASES)
def test_a_message_is_what_was_agreed(name):
    if name == "no CUDA" and importlib.util.find_spec("cupy"):
        pytest.skip("CuPy is installed here: what is missing then depends on the machine")
    assert messages.told(name).replace("debug_messages", "__main__") + "\n" == GOLDEN[name]


def test_no_message_is_left_over():
    assert list(GOLDEN) == list(messages.CASES)
