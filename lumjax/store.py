"""Files that processes leave for each other under `config.cache_dir`: whole, or not there at all.

A file is a header line (what it holds, the version of its format, a checksum of its key and of the
rest) and the rest. It is put in place at once, so that processes may share the folder. A file that
is empty, cut short, damaged, of another version or of another key is ignored with one warning, and
replaced by the next write. Where nothing can be written, that costs a warning, nothing else.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from functools import cache
from pathlib import Path

from lumjax.config import config
from lumjax.errors import CacheWarning
from lumjax.record import record


@record
class Store:
    """One kind of files. With `config.cache` off it is empty and stays so."""

    folder: str
    version: int  # of what the files hold
    suffix: str = ""

    def path(self, key: str) -> Path:
        """Where the file of a key is."""
        return Path(config.cache_dir) / self.folder / key[:2] / f"{key}{self.suffix}"

    def read(self, key: str) -> bytes | None:
        """What was written under a key; None if nothing usable is there."""
        if not config.cache:
            return None
        path = self.path(key)
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            _warn(f"could not read {path}: {error}")
            return None
        head, end, body = data.partition(b"\n")
        if head + end == self._header(key, body):
            return body
        self.unusable(key)
        return None

    def write(self, key: str, body: bytes) -> bool:
        """Put a file in place of what is there; whether that was possible."""
        if not config.cache:
            return False
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(self._header(key, body) + body)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            _warn(f"could not write {path}: {error}")
            return False
        return True

    def unusable(self, key: str) -> None:
        """Warn that a file is not what it should be."""
        _warn(f"ignoring the unusable {self.path(key)}: it is corrupt or foreign; it is replaced")

    def _header(self, key: str, body: bytes) -> bytes:
        checksum = hashlib.sha256(key.encode() + b"\n" + body).hexdigest()
        return f"lumjax-{self.folder} {self.version} {checksum}\n".encode()


@cache
def code_version() -> str:
    """A digest of all of this package's code."""
    files: list[str] = []
    folders = [os.path.dirname(__file__)]
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.is_dir():
                folders.append(entry.path)
            elif entry.name.endswith(".py"):
                files.append(entry.path)
    content = hashlib.sha256()
    for path in sorted(files):
        with open(path, "rb") as file:
            content.update(file.read())
    return content.hexdigest()


def _warn(message: str) -> None:
    warnings.warn(f"cache: {message}", CacheWarning, stacklevel=3)
