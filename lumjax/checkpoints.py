"""Checkpoints: the arrays of a pytree in one safetensors file, whole or not there at all.

The file holds a tensor for each leaf, under the leaf's path, and as metadata: what kind of leaf it
was where the tensor doesn't say so (Python numbers, keys, complex and weakly typed arrays), a
checksum of all of it, what the code that ran was made of, and what the caller adds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax import files
from lumjax import tree as trees
from lumjax.errors import ArgumentTypeError, ArgumentValueError, CheckpointError, TreeError
from lumjax.misses import plans
from lumjax.store import code_version
from lumjax.trace.array import Array

_KINDS = f"{files.OWN}kinds"
_NUMBERS: dict[str, type] = {"bool": bool, "int": int, "float": float, "complex": complex}
# How elements that the format has no name for are written: as so many of another type.
_AS = {
    dt.key: (np.uint32, "key"),
    dt.complex64: (np.float32, "complex64"),
    dt.complex128: (np.float64, "complex128"),
}
_FROM = {name: dtype for dtype, (_, name) in _AS.items()}
NDArray = np.ndarray[Any, Any]


def save(path: str | os.PathLike[str], tree: Any, *, metadata: Mapping[str, str] = {}) -> None:
    """Write the leaves of a pytree into a safetensors file, in place of the one that is there.

    Leaves are arrays of any shape and dtype, typed PRNG keys and Python numbers; `metadata` are
    texts to keep with them. When `save` returns, the file is on the disk; until then the old one
    stays. Raises ArgumentTypeError for a leaf that is something else or is being traced, and
    OSError where the file cannot be written.

    >>> import tempfile, lumjax, lumjax.numpy as jnp
    >>> state = {"weights": jnp.arange(3.0), "key": lumjax.random.key(0), "step": 7}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lumjax.checkpoint.save(f"{folder}/run.safetensors", state)
    ...     found = lumjax.checkpoint.load(f"{folder}/run.safetensors", like=state)
    >>> found["step"], found["weights"]
    (7, Array([0., 1., 2.], dtype=float32))
    """
    tensors: dict[str, NDArray] = {}
    kinds: dict[str, list[str]] = {}
    for keys, leaf in trees.leaves_with_path(tree):
        name = _name(keys)
        tensors[name], kinds[name] = _written(name, leaf)
    for name in metadata:
        if name.startswith(files.OWN):
            raise ArgumentValueError(
                operation="checkpoint.save",
                required=f"metadata whose names don't begin with {files.OWN!r}",
                got=repr(name), fix="choose another name",
            )  # fmt: skip
    texts = {**metadata, _KINDS: json.dumps(kinds), **_made_by()}
    files.put(Path(path), files.packed(tensors, texts))


def load(path: str | os.PathLike[str], like: Any = None) -> Any:
    """What `save` wrote: the leaves in the structure of the pytree `like`, or without it a dict
    from the paths of the leaves, as `tree.keystr` writes them, to the leaves.

    Arrays have the dtype they were saved with, also where `jax_enable_x64` is off. Other
    safetensors files load too, as NumPy arrays. Raises FileNotFoundError, CheckpointError for a
    file that is damaged or is none, and TreeError or ArgumentValueError where a path, shape or
    dtype differs from that of `like`, of which only those are looked at (ShapeDtypeStruct will do).

    >>> import tempfile, lumjax, lumjax.numpy as jnp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lumjax.checkpoint.save(f"{folder}/run.safetensors", {"layers": [jnp.ones(2)]})
    ...     lumjax.checkpoint.load(f"{folder}/run.safetensors")
    {"['layers'][0]": Array([1., 1.], dtype=float32)}
    """
    try:
        tensors, texts = files.unpacked(Path(path).read_bytes())
    except files.DamageError as error:
        raise _damaged(path, str(error)) from error
    kinds: dict[str, list[str]] = json.loads(texts.get(_KINDS, "{}"))
    leaves = {name: _leaf(value, kinds.get(name, ["numpy"])) for name, value in tensors.items()}
    if like is None:
        return leaves
    wanted = {_name(keys): leaf for keys, leaf in trees.leaves_with_path(like)}
    _check_names(path, wanted, leaves)
    for name, leaf in wanted.items():
        _check_leaf(path, name, leaf, leaves[name])
    return trees.map_with_path(lambda keys, _: leaves[_name(keys)], like)


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The texts that `save` was given, without reading the arrays, and what it adds: of which code
    (`lumjax.code`), NumPy and machine it was, and keys of the plans of all programs that had run
    (`lumjax.plans`). Programs that agree in these run by the same plans and end with the same bits.

    Raises FileNotFoundError, and CheckpointError for a file that is none.

    >>> import tempfile, lumjax, lumjax.numpy as jnp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/run.safetensors"
    ...     lumjax.checkpoint.save(path, jnp.ones(2), metadata={"epoch": "3"})
    ...     lumjax.checkpoint.metadata(path)["epoch"]
    '3'
    """
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        head = size.to_bytes(8, "little") + file.read(min(size, os.path.getsize(path)))
    try:
        found = files.texts_of(head)
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    return {k: v for k, v in found.items() if k not in (_KINDS, files.CHECKSUM)}


def _made_by() -> dict[str, str]:
    machine = os.uname().machine if hasattr(os, "uname") else ""
    own = {
        "code": code_version(), "numpy": np.__version__, "machine": f"{sys.platform} {machine}",
        "plans": " ".join([key[:16] for key in plans()]),
    }  # fmt: skip
    return {f"{files.OWN}{k}": v for k, v in own.items()}


# ---- leaves


def _name(keys: Any) -> str:
    return trees.keystr(keys) or "."


def _written(name: str, leaf: Any) -> tuple[NDArray, list[str]]:
    """A leaf as a tensor, and the words that say how to get it back."""
    if isinstance(leaf, Array):
        words, value = (["weak"] if leaf.weak else ["array"]), np.asarray(leaf.data)
    elif isinstance(leaf, np.ndarray | np.generic):
        words, value = ["numpy"], np.asarray(leaf)
    elif type(leaf) in _NUMBERS.values():
        words, value = [type(leaf).__name__], np.asarray(leaf)
    else:
        raise _no_leaf(name, leaf)
    value = np.ascontiguousarray(value).reshape(value.shape)
    if value.dtype in _AS:
        part, kind = _AS[value.dtype]
        value, words = value.reshape(*value.shape, 1).view(part), [*words, kind]
    elif value.dtype == dt.float0:
        value, words = np.zeros(value.shape, np.bool_), [*words, "float0"]
    if value.dtype not in files.DTYPES:
        raise _no_leaf(name, leaf)
    return value, words


def _leaf(value: NDArray, words: list[str]) -> Any:
    """The leaf that a tensor was."""
    kind, *element = words
    if element == ["float0"]:
        value = np.zeros(value.shape, dt.float0)
    elif element:
        dtype = _FROM[element[0]]
        value = value.view(dtype).reshape(value.shape[:-1])
    if kind in _NUMBERS:
        return _NUMBERS[kind](value.item())
    return value if kind == "numpy" else Array(value, weak=kind == "weak")


def _no_leaf(name: str, leaf: Any) -> ArgumentTypeError:
    got = f"{leaf.dtype} " if isinstance(leaf, np.ndarray | np.generic) else ""
    return ArgumentTypeError(
        operation="checkpoint.save", required="leaves that are arrays, keys or Python numbers",
        got=f"{got}{type(leaf).__name__} at {name}",
        fix="save outside of jit and grad, and keep what is no number in `metadata`, as text",
    )  # fmt: skip


def _check_names(path: Any, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    missing = [n for n in wanted if n not in found]
    spare = [n for n in found if n not in wanted]
    if missing or spare:
        lists = [("lacks", missing), ("also has", spare)]
        got = ", ".join(f"{verb} {_some(names)}" for verb, names in lists if names)
        raise TreeError(
            operation="checkpoint.load", required="a file with the leaves of `like`",
            got=f"{os.fspath(path)}, which {got}",
            fix="load it without `like` to see what it holds",
        )  # fmt: skip


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest


def _check_leaf(path: Any, name: str, wanted: Any, found: Any) -> None:
    expected, got = _type(wanted), _type(found)
    if expected != got:
        raise ArgumentValueError(
            operation="checkpoint.load", required=f"{expected} at {name}, as `like` has it",
            got=f"{got} in {os.fspath(path)}",
            fix="pass `like` as it was saved, and convert what was loaded",
        )  # fmt: skip


def _type(leaf: Any) -> str:
    if not hasattr(leaf, "shape"):
        return f"a Python {type(leaf).__name__}"
    sizes = ",".join(map(str, leaf.shape))
    return f"{dt.short_name(np.dtype(leaf.dtype))}[{sizes}]"


def _damaged(path: Any, why: str) -> CheckpointError:
    return CheckpointError(
        operation="checkpoint.load", required="a whole safetensors file",
        got=f"{os.fspath(path)}: {why}", fix="load an older checkpoint",
    )  # fmt: skip
