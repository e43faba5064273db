"""Files of tensors and texts in the safetensors format: whole or not there at all, with a checksum.

A file is written beside its place, forced to the disk and then put in place, so that a process that
is killed at any moment leaves the file as it was or as it should be.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from lumjax import dtype as dt

NDArray: TypeAlias = np.ndarray[Any, Any]
OWN = "lumjax."  # begins the names of the texts that belong to the format
CHECKSUM = f"{OWN}checksum"
STALE = 3600  # seconds after which an unfinished file is left over from a process that was killed
_TYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": dt.bfloat16,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
    "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
DTYPES = frozenset(map(np.dtype, _TYPES.values()))  # of tensors


class DamageError(Exception):
    """Why bytes are not what `packed` made."""


def packed(tensors: Mapping[str, NDArray], texts: Mapping[str, str]) -> bytes:
    """Tensors, in C order and of DTYPES, and texts as bytes, with a checksum of both."""
    data = save(dict(tensors), metadata={**texts, CHECKSUM: _checksum(tensors, texts)})
    size = int.from_bytes(data[:8], "little")
    # The library writes texts in any order; equal contents should be equal files.
    head = json.dumps(json.loads(data[8 : 8 + size]), sort_keys=True, separators=(",", ":"))
    padded = head.encode()
    padded += b" " * (-len(padded) % 8)
    return len(padded).to_bytes(8, "little") + padded + data[8 + size :]


def unpacked(data: bytes) -> tuple[dict[str, NDArray], dict[str, str]]:
    """What `packed` made, or the tensors and texts of another safetensors file; DamageError if it
    is none, or was changed.
    """
    try:
        found = deserialize(data)
        texts = texts_of(data)
        tensors = {name: _tensor(view) for name, view in found}
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamageError(str(error) or type(error).__name__) from error
    if any(name.startswith(OWN) for name in texts) and (
        texts.pop(CHECKSUM, None) != _checksum(tensors, texts)
    ):
        raise DamageError("its checksum is another")
    return tensors, texts


def texts_of(data: bytes) -> dict[str, str]:
    """The texts of a safetensors file of which this is the beginning; ValueError if it is none."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 + size:
        raise ValueError("it is cut short")
    head: Any = json.loads(data[8 : 8 + size])
    if not isinstance(head, dict):
        raise ValueError("it has no header")
    texts: dict[str, str] = head.get("__metadata__", {})
    return dict(texts)


def _tensor(view: Mapping[str, Any]) -> NDArray:
    dtype = np.dtype(_TYPES[view["dtype"]])
    return np.frombuffer(bytearray(view["data"]), dtype).reshape(view["shape"])


def _checksum(tensors: Mapping[str, NDArray], texts: Mapping[str, str]) -> str:
    content = hashlib.sha256(json.dumps(dict(texts), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        content.update(f"{name}\0{value.dtype.name}{value.shape}\0".encode())
        content.update(value.reshape(-1).view(np.uint8).data)
    return content.hexdigest()


def put(path: Path, data: bytes) -> None:
    """Write a file; a missing folder is made. When this returns, the file is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, _mode(path))
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    if os.name == "posix":
        _folder_to_disk(path.parent)
    _sweep(path)


def _prefix(path: Path) -> str:
    return f".{path.name}.part-"


def _mode(path: Path) -> int:
    """The permissions that the file has, or that a new file would get."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask


def _folder_to_disk(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(path: Path) -> None:
    """Remove what killed processes left unfinished."""
    for part in path.parent.glob(_prefix(path).replace("[", "[[]") + "*"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > STALE:
                part.unlink()
