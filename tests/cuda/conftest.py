"""These tests compile with NVRTC, and run what it makes on the CPU. None of them needs a GPU, and
none says anything about one.
"""

from __future__ import annotations

import pytest

from lumjax.cuda import nvrtc


def pytest_collection_modifyitems(config, items):
    why = nvrtc.missing()
    here = [i for i in items if "tests/cuda/" in i.path.as_posix()]
    if why is not None:
        for item in here:
            item.add_marker(pytest.mark.skip(reason=f"no NVRTC here: {why}"))
