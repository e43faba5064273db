"""Ensembles of decision trees, walked by all rows at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lumjax import numpy as jnp
from lumjax import scipy
from lumjax.onnx.graph import Node
from lumjax.onnx.values import Op, bounded
from lumjax.record import record

_MEMBER = 6  # the mode that tests membership in a set


@record(eq=False, repr=False)
class Trees:
    """Entries of every inner node; `yes` and `no` are the next node, or -1 - leaf."""

    feature: np.ndarray
    split: np.ndarray
    mode: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    depth: int


def _trees(node: Node) -> Trees:
    feature = np.array(node.integers("nodes_featureids"), np.int32)
    count, leaves = len(feature), len(node.integers("leaf_targetids"))
    ends: list[np.ndarray] = []
    for side in ("true", "false"):
        ids = np.array(node.integers(f"nodes_{side}nodeids"), np.int64)
        is_leaf = np.array(node.integers(f"nodes_{side}leafs"), bool)
        if ids.shape != (count,) or is_leaf.shape != (count,):
            raise node.wrong(f"{count} branches", f"{ids.shape} and {is_leaf.shape}")
        bound = np.where(is_leaf, leaves, count)
        if count and not ((ids >= 0) & (ids < bound)).all():
            raise node.wrong("branches to nodes and leaves that exist", "others")
        ends.append(np.where(is_leaf, -1 - ids, ids).astype(np.int32))
    mode = node.tensor("nodes_modes").astype(np.int32).reshape(-1)
    split = node.tensor("nodes_splits").reshape(-1)
    missing = np.array(node.integers("nodes_missing_value_tracks_true", (0,) * count), bool)
    if not len(mode) == len(split) == len(missing) == count or (count and feature.min() < 0):
        raise node.wrong(f"{count} entries for each node", f"{len(mode)}, {len(split)}")
    roots = node.integers("tree_roots")
    depth = _depth(node, ends[0], ends[1], roots)
    return Trees(feature, split, mode, ends[0], ends[1], missing, depth)


def _depth(node: Node, yes: np.ndarray, no: np.ndarray, roots: tuple[int, ...]) -> int:
    """How many nodes lie on the longest way; a way back to a node would have no end."""
    level, depth = set(roots), 0
    if any(not 0 <= r < len(yes) for r in roots):
        raise node.wrong(f"roots below {len(yes)}", str(roots))
    while level:
        depth += 1
        if depth > len(yes):
            raise node.wrong("trees", "nodes that lead back to themselves")
        level = {int(k) for n in level for k in (yes[n], no[n]) if k >= 0}
    return depth


def _members(node: Node, trees: Trees) -> Mapping[int, np.ndarray]:
    """The set of each node that tests membership."""
    places = np.nonzero(trees.mode == _MEMBER)[0]
    if not len(places):
        return {}
    values = node.tensor("membership_values").reshape(-1)
    ends = np.nonzero(np.isnan(values))[0]
    parts = np.split(values, ends)
    parts = [p[~np.isnan(p)] for p in parts]
    parts = parts[: len(places)] if len(parts) > len(places) else parts
    if len(parts) != len(places):
        raise node.wrong(f"{len(places)} sets", str(len(parts)))
    return dict(zip((int(k) for k in places), parts, strict=True))


def _answers(node: Node, x: Any, trees: Trees) -> Any:
    """What every inner node says about every row: [rows, nodes]."""
    if trees.feature.size and int(trees.feature.max()) >= x.shape[1]:
        raise node.wrong(f"features below {x.shape[1]}", str(int(trees.feature.max())))
    values, split = x[:, trees.feature], trees.split.astype(x.dtype)
    tests = (values <= split, values < split, values >= split, values > split, values == split,
             values != split)  # fmt: skip
    found = jnp.zeros(values.shape, bool)
    for k, test in enumerate(tests):
        found = jnp.where(trees.mode == k, test, found)
    for k, members in _members(node, trees).items():
        inside = (values[:, k, None] == members.astype(x.dtype)).any(axis=-1)
        found = found.at[:, k].set(inside)
    return jnp.where(jnp.isnan(values), trees.missing, found)


def _ensemble(node: Node, x: Any) -> Any:
    trees, roots = _trees(node), node.integers("tree_roots")
    targets = np.array(node.integers("leaf_targetids"), np.int32)
    weights = node.tensor("leaf_weights").reshape(-1).astype(x.dtype)
    count = node.integer("n_targets")
    if len(weights) != len(targets) or (
        len(targets) and not 0 <= targets.min() <= targets.max() < count
    ):
        raise node.wrong(f"leaves for {count} targets", f"{len(weights)} weights")
    bounded(node, (x.shape[0], max(len(trees.feature), len(roots) * count)), x.dtype)
    answers = _answers(node, x, trees)
    at = jnp.broadcast_to(jnp.asarray(roots, jnp.int32), (x.shape[0], len(roots)))
    for _ in range(trees.depth):
        inner = jnp.maximum(at, 0)
        chosen = jnp.take_along_axis(answers, inner, 1)
        after = jnp.where(chosen, jnp.asarray(trees.yes)[inner], jnp.asarray(trees.no)[inner])
        at = jnp.where(at < 0, at, after)
    leaf = -1 - at
    hit = jnp.asarray(targets)[leaf][..., None] == jnp.arange(count)
    values = jnp.asarray(weights)[leaf][..., None]
    match node.integer("aggregate_function", 1):
        case 0:
            found = jnp.sum(jnp.where(hit, values, 0), 1) / len(roots)
        case 2:
            found = jnp.min(jnp.where(hit, values, np.inf), 1)
        case 3:
            found = jnp.max(jnp.where(hit, values, -np.inf), 1)
        case _:
            found = jnp.sum(jnp.where(hit, values, 0), 1)
    found = jnp.where(hit.any(axis=1), found, 0).astype(x.dtype)
    return _transformed(node, found)


def _transformed(node: Node, x: Any) -> Any:
    match node.integer("post_transform", 0):
        case 0:
            return x
        case 1 | 3 as mode:
            lead = jnp.exp(x - jnp.max(x, axis=1, keepdims=True))
            lead = jnp.where((x == 0) & (mode == 3), 0, lead)
            return lead / jnp.sum(lead, axis=1, keepdims=True)
        case 2:
            return 1 / (1 + jnp.exp(-x))
        case 4:
            return scipy.special.ndtri(x)
        case other:
            raise node.wrong("a post_transform from 0 to 4", str(other))


OPS = {"ai.onnx.ml:TreeEnsemble": Op(_ensemble)}
