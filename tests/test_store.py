"""Files on disk: what was written comes back, and nothing else ever does."""

from __future__ import annotations

import os
import warnings

import pytest

from lumjax.config import config
from lumjax.errors import CacheWarning
from lumjax.store import Store

STORE = Store("things", 3, ".bin")
KEY, OTHER = "ab" * 20, "abc" * 10
BODIES = [b"", b"text", b"\n\n", b"lumjax-things 3 \n", bytes(range(256)) * 9]


@pytest.fixture(autouse=True)
def _folder(tmp_path):
    with config.scope(cache=True, cache_dir=str(tmp_path)):
        yield


@pytest.mark.parametrize("body", BODIES)
def test_what_is_written_comes_back(body):
    assert STORE.read(KEY) is None
    assert STORE.write(KEY, b"before")
    assert STORE.write(KEY, body)
    assert STORE.read(KEY) == body
    assert [p.name for p in STORE.path(KEY).parent.iterdir()] == [f"{KEY}.bin"]


def nothing_of(key, what):
    """The file is ignored with one warning, and is good again once it is written anew."""
    with pytest.warns(CacheWarning, match=what) as caught:
        assert STORE.read(key) is None
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert STORE.write(key, b"again")
        assert STORE.read(key) == b"again"


@pytest.mark.parametrize("body", BODIES)
def test_every_shorter_file_and_every_changed_byte_is_noticed(body):
    STORE.write(KEY, body)
    path = STORE.path(KEY)
    whole = path.read_bytes()
    places = range(0, len(whole), 1 + len(whole) // 90)
    cut = [whole[:n] for n in places]
    changed = [whole[:n] + bytes([whole[n] ^ 4]) + whole[n + 1 :] for n in places]
    for data in [*cut, *changed, whole + b"x", os.urandom(200)]:
        path.write_bytes(data)
        with pytest.warns(CacheWarning, match="corrupt or foreign"):
            assert STORE.read(KEY) is None
    nothing_of(KEY, "unusable")


def test_files_of_another_key_version_or_kind_are_not_taken():
    path = STORE.path(KEY)
    for other in (Store("things", 2, ".bin"), Store("thing", 3, ".bin")):
        other.write(KEY, b"body")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(other.path(KEY).read_bytes())
        nothing_of(KEY, "corrupt or foreign")
    STORE.write(OTHER, b"body")
    path.write_bytes(STORE.path(OTHER).read_bytes())
    nothing_of(KEY, "corrupt or foreign")


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with config.scope(cache_dir=str(tmp_path / "file")):
        assert STORE.read(KEY) is None
        with pytest.warns(CacheWarning, match="could not write") as caught:
            assert not STORE.write(KEY, b"body")
    assert len(caught) == 1
    STORE.path(KEY).mkdir(parents=True)
    with pytest.warns(CacheWarning, match="could not read"):
        assert STORE.read(KEY) is None


def test_without_a_cache_there_is_nothing(tmp_path):
    STORE.write(KEY, b"body")
    with config.scope(cache=False):
        assert STORE.read(KEY) is None
        assert not STORE.write(OTHER, b"body")
    assert not STORE.path(OTHER).exists()
    assert STORE.read(KEY) == b"body"
