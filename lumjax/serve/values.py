"""Requests' and answers' values: JSON, guided by the program's signature, or safetensors by path.

Numbers that JSON has no word for are the texts "NaN", "Infinity" and "-Infinity", both ways.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from lumjax import dtype as dt
from lumjax import files, tree
from lumjax.record import record
from lumjax.trace.aval import ShapedArray

NDArray: TypeAlias = np.ndarray[Any, Any]
_WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


class RequestError(Exception):
    """What is wrong with a request, for who sent it."""


@record(eq=False)
class Form:
    """A structure, its leaves' types and paths. The size of `axis` is free, up to that of the type;
    with None shapes are as they are.
    """

    treedef: tree.PyTreeDef
    avals: tuple[ShapedArray, ...]
    axis: int | None

    @property
    def paths(self) -> list[str]:
        """The leaves' paths, "." for a structure that is one leaf."""
        template = tree.unflatten(self.treedef, self.avals)
        return [tree.keystr(keys) or "." for keys, _ in tree.leaves_with_path(template)]

    def from_value(self, value: Any) -> list[NDArray]:
        """The leaves of what JSON gave; RequestError if it has another form."""
        found: dict[int, NDArray] = {}
        numbers = tree.unflatten(self.treedef, range(len(self.avals)))
        self._walk(numbers, value, "", found)
        return [found[k] for k in range(len(self.avals))]

    def _walk(self, node: Any, value: Any, path: str, found: dict[int, NDArray]) -> None:
        if type(node) is int:
            found[node] = self._leaf(self.avals[node], value, path or ".")
        elif node is None:
            _require(value is None, path, "null", value)
        elif isinstance(node, dict):
            ok = isinstance(value, dict) and {str(k) for k in node} == set(value)
            _require(ok, path, f"an object with the names {', '.join(map(str, node))}", value)
            for key in node:
                self._walk(node[key], value[str(key)], f"{path}[{key!r}]", found)
        else:
            ok = isinstance(value, list) and len(value) == len(node)
            _require(ok, path, f"a list of {len(node)}", value)
            for k, part in enumerate(node):
                self._walk(part, value[k], f"{path}[{k}]", found)

    def _leaf(self, aval: ShapedArray, value: Any, path: str) -> NDArray:
        try:
            given = np.asarray(_numbers(value))
        except (ValueError, TypeError, RecursionError):
            raise RequestError(f"{path} is no array of numbers") from None
        if not given.size and given.dtype.kind == "f":
            given = given.astype(aval.dtype)  # an empty list has no type
            if not aval.size:  # nor lengths behind the one that is 0
                given = given.reshape(aval.shape)  # type: ignore[arg-type]
        kinds = "b" if dt.is_bool(aval.dtype) else "iu" if dt.is_integer(aval.dtype) else "iuf"
        _require(
            given.dtype.kind in kinds, path, f"elements of {aval.dtype.name}", given.dtype.name
        )
        with np.errstate(over="ignore"):
            made = given.astype(aval.dtype)
        exact = dt.is_floating(aval.dtype) or bool((made == given).all())
        _require(exact, path, f"numbers within {aval.dtype.name}", "one outside")
        return self._checked(made, aval, path)

    def _checked(self, value: NDArray, aval: ShapedArray, path: str) -> NDArray:
        wanted: list[Any] = list(aval.shape)
        sizes = list(value.shape)
        if self.axis is not None and len(sizes) == len(wanted):
            rows = sizes[self.axis]
            _require(
                1 <= rows <= wanted[self.axis], path,
                f"1 to {wanted[self.axis]} rows along axis {self.axis}", f"{rows}",
            )  # fmt: skip
            wanted[self.axis] = rows
        _require(sizes == wanted, path, f"the shape {tuple(wanted)}", f"{tuple(sizes)}")
        return value

    def from_tensors(self, body: bytes) -> list[NDArray]:
        """The leaves of a safetensors file by path; RequestError if it has others."""
        try:
            tensors, _ = files.unpacked(body)
        except files.DamageError as error:
            raise RequestError(f"this is no safetensors file: {error}") from None
        paths = self.paths
        _require(set(paths) == set(tensors), ".", f"tensors {', '.join(paths)}", ", ".join(tensors))
        for path, aval in zip(paths, self.avals, strict=True):
            kind = tensors[path].dtype
            _require(kind == aval.dtype, path, aval.dtype.name, kind.name)
        return [
            self._checked(tensors[path], aval, path)
            for path, aval in zip(paths, self.avals, strict=True)
        ]

    def to_json(self, leaves: Sequence[NDArray]) -> bytes:
        """A value as JSON."""
        values = [_listed(x) for x in leaves]
        return json.dumps(tree.unflatten(self.treedef, values), allow_nan=False).encode()

    def to_tensors(self, leaves: Sequence[NDArray]) -> bytes:
        """A value as a safetensors file."""
        return files.packed(dict(zip(self.paths, leaves, strict=True)), {})


def _require(ok: bool, path: str, required: str, got: Any) -> None:
    if not ok:
        text = got if isinstance(got, str) else json.dumps(got)
        raise RequestError(f"{path or '.'} requires {required}; got {text[:200]}")


def _numbers(value: Any) -> Any:
    """A nested list with numbers in the place of their words."""
    if isinstance(value, list):
        return list(map(_numbers, value))
    if isinstance(value, str):
        return _WORDS[value] if value in _WORDS else _no_number(value)
    return value if isinstance(value, bool | int | float) else _no_number(value)


def _no_number(value: Any) -> Any:
    raise ValueError(f"{value!r} is no number")


def _listed(x: NDArray) -> Any:
    """An array as nested lists."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 and dt.is_floating(x.dtype) else x
    if not dt.is_floating(wide.dtype) or np.isfinite(wide).all():
        return wide.tolist()
    return _worded(wide.tolist())


def _worded(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_worded, value))
    if value != value:
        return "NaN"
    return value if np.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
