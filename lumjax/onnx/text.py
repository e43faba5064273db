"""Operators on strings, and maps between labels: NumPy arrays of objects, outside jit."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from lumjax.onnx.graph import Node
from lumjax.onnx.values import Op, bounded, host


def _strings(node: Node, x: Any) -> np.ndarray:
    if isinstance(x, np.ndarray) and x.dtype.hasobject:
        return x
    raise node.wrong("strings", str(getattr(x, "dtype", type(x))))


def _mapped(x: np.ndarray, f: Callable[[str], Any], dtype: Any = object) -> np.ndarray:
    found = np.empty(x.size, dtype)
    for k, s in enumerate(x.reshape(-1)):
        found[k] = f(str(s))
    return found.reshape(x.shape)


def _concat(node: Node, x: Any, y: Any) -> Any:
    x, y = _strings(node, x), _strings(node, y)
    bounded(node, np.broadcast_shapes(x.shape, y.shape), object)
    return np.asarray(x + y, object)


def _split(node: Node, x: Any) -> Any:
    x = _strings(node, x)
    delimiter = node.text("delimiter", "") or None
    most = node.integer("maxsplit", -1) if node.has("maxsplit") else -1
    rows = [str(s).split(delimiter, most) for s in x.reshape(-1)]
    width = max(map(len, rows), default=0)
    bounded(node, (len(rows), width), object)
    found = np.full((len(rows), width), "", object)
    for k, row in enumerate(rows):
        found[k, : len(row)] = row
    counts = np.array([len(r) for r in rows], np.int64).reshape(x.shape)
    return found.reshape(*x.shape, width), counts


def _matches(node: Node, x: Any) -> Any:
    pattern = node.text("pattern", "")
    if re.search(r"[*+}]\)?[*+{]|\([^)]*[*+][^)]*\)[*+{]", pattern):
        raise node.unsupported(
            "a pattern without repetitions inside repetitions",
            repr(pattern),
            "write the pattern so that no text can be matched in two ways",
        )
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise node.wrong("a regular expression", f"{pattern!r}: {error}") from error
    return _mapped(_strings(node, x), lambda s: compiled.fullmatch(s) is not None, bool)


def _normalized(node: Node, x: Any) -> Any:
    x = _strings(node, x)
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise node.wrong("strings of shape [c] or [1, c]", f"shape {x.shape}")
    action = node.choice("case_change_action", "NONE", ("LOWER", "UPPER", "NONE"))
    exact = bool(node.integer("is_case_sensitive", 0))
    stop = {w if exact else w.lower() for w in node.texts("stopwords", ())}
    kept = [s for s in map(str, x.reshape(-1)) if (s if exact else s.lower()) not in stop]
    change = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[action]
    found = np.array([change(s) for s in kept] or [""], object)
    return found if x.ndim == 1 else found[None]


# ---- n-grams


def _grams(node: Node) -> dict[tuple[Any, ...], int]:
    """The place of each n-gram in the pool."""
    pool = node.texts("pool_strings") if node.has("pool_strings") else node.integers("pool_int64s")
    starts = (*node.integers("ngram_counts"), len(pool))
    found: dict[tuple[Any, ...], int] = {}
    for n, (first, last) in enumerate(pairwise(starts), 1):
        if not 0 <= first <= last <= len(pool) or (last - first) % n:
            raise node.wrong("ngram_counts that divide the pool", str(starts))
        for k in range(first, last, n):
            found[tuple(pool[k : k + n])] = len(found)
    return found


def _counted(row: list[Any], least: int, most: int, skips: int) -> Counter[tuple[Any, ...]]:
    """How often each n-gram occurs, with up to so many items skipped between its items."""
    found: Counter[tuple[Any, ...]] = Counter()
    for n in range(least, most + 1):
        for step in range(1, skips + 2 if n > 1 else 2):
            reach = (n - 1) * step
            found.update(tuple(row[k : k + reach + 1 : step]) for k in range(len(row) - reach))
    return found


def _features(node: Node, x: Any) -> Any:
    values = x if isinstance(x, np.ndarray) else host(node, x)
    if values.ndim not in (1, 2):
        raise node.wrong("one or many rows", f"shape {values.shape}")
    mode = node.choice("mode", "TF", ("TF", "IDF", "TFIDF"))
    grams, places = _grams(node), node.integers("ngram_indexes")
    weights = node.numbers("weights", (1.0,) * len(places))
    if not places or len(grams) > len(places) or len(weights) < len(places) or min(places) < 0:
        raise node.wrong(f"{len(grams)} places and weights", f"{len(places)}, {len(weights)}")
    rows = values.reshape(1, -1) if values.ndim == 1 else values
    width = max(places) + 1
    bounded(node, (len(rows), width))
    found = np.zeros((len(rows), width), np.float32)
    least, most = node.integer("min_gram_length"), node.integer("max_gram_length")
    longest = max(map(len, grams), default=0)
    skips = min(node.integer("max_skip_count"), values.shape[-1])
    for k, row in enumerate(rows):
        counts = _counted(row.tolist(), max(least, 1), min(most, longest), skips)
        for gram, count in counts.items():
            if gram in grams:
                number = grams[gram]
                value = {"TF": count, "IDF": weights[number]}.get(mode, count * weights[number])
                found[k, places[number]] = value
    return found[0] if values.ndim == 1 else found


# ---- LabelEncoder

_KINDS: Mapping[str, tuple[str, Any, Any]] = {
    "int64s": ("int64", np.int64, -1),
    "floats": ("float", np.float32, -0.0),
    "strings": ("string", object, "_Unused"),
}


def _column(node: Node, side: str) -> tuple[np.ndarray, Any]:
    """Keys or values, and what stands for a missing one."""
    for kind, (word, dtype, usual) in _KINDS.items():
        if node.has(f"{side}_{kind}"):
            found = np.array(node.attributes[f"{side}_{kind}"], dtype)
            given = node.attributes.get(f"default_{word}", usual)
            return found, given
    found = node.tensor(f"{side}_tensor")
    usual = "_Unused" if found.dtype.hasobject else -1 if found.dtype.kind in "iu" else -0.0
    if node.has("default_tensor"):
        usual = node.tensor("default_tensor").reshape(-1)[0]
    return found, usual


def _key(x: Any) -> Any:
    return "not a number" if isinstance(x, float) and math.isnan(x) else x


def _encoded(node: Node, x: Any) -> Any:
    keys, _ = _column(node, "keys")
    values, usual = _column(node, "values")
    if keys.shape != values.shape:
        raise node.wrong("as many values as keys", f"{keys.shape} and {values.shape}")
    table = dict(zip(map(_key, keys.tolist()), values.tolist(), strict=True))
    rows = host(node, x)
    found = np.empty(rows.size, values.dtype)
    for k, item in enumerate(rows.reshape(-1).tolist()):
        found[k] = table.get(_key(item), usual)
    return found.reshape(rows.shape)


OPS = {
    "StringConcat": Op(_concat, raw=True),
    "StringSplit": Op(_split, raw=True),
    "RegexFullMatch": Op(_matches, raw=True),
    "StringNormalizer": Op(_normalized, raw=True),
    "TfIdfVectorizer": Op(_features, raw=True),
    "ai.onnx.ml:LabelEncoder": Op(_encoded, raw=True),
}
