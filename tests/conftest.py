"""Sampling: a module marked `sampled(n)` runs one in n of its cases, the whole with `--whole`."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import settings

# CI draws the same examples every time; `--hypothesis-profile=explore` draws new ones.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("fixed")


def pytest_addoption(parser):
    parser.addoption("--whole", action="store_true", help="run sampled suites whole")
    parser.addoption("--thin", type=int, default=1, help="thin sampled suites further, for a try")


def pytest_configure(config):
    # not in pyproject.toml: there pytest would import the package before its coverage is measured
    config.addinivalue_line("filterwarnings", "ignore::lumjax.errors.PrecisionWarning")


def pytest_collection_modifyitems(config, items):
    if config.getoption("whole"):
        return
    kept, left_out = [], []
    for item in items:
        mark = item.get_closest_marker("sampled")
        share = mark.args[0] * config.getoption("thin") if mark else 1
        number = zlib.crc32(item.nodeid.encode())
        (kept if number % share == 0 else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


@pytest.fixture(autouse=True, scope="session")
def _one_cache(tmp_path_factory):
    """Tests, and the processes they start, share a cache of their own, so that they neither use nor
    fill the user's."""
    from lumjax.config import config

    before, folder = config.cache_dir, str(tmp_path_factory.mktemp("cache"))
    config.update("cache_dir", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUMJAX_CACHE_DIR", folder)
        yield
    config.update("cache_dir", before)
