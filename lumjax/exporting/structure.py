"""Structures of pytrees as JSON and back: dicts, lists, tuples, None and leaves, by number."""

from __future__ import annotations

from typing import Any, TypeAlias

from lumjax import tree

Structure: TypeAlias = Any


def encoded(treedef: tree.PyTreeDef) -> Structure:
    """The structure; TypeError for one with a node that only the exporting program knows."""
    return _encoded(tree.unflatten(treedef, range(treedef.num_leaves)))


def _encoded(node: Any) -> Structure:
    if node is None or type(node) is int:
        return node
    if type(node) in (list, tuple):
        return {type(node).__name__: list(map(_encoded, node))}
    if type(node) is dict and all(type(key) in (str, int) for key in node):
        return {"dict": [[key, _encoded(value)] for key, value in node.items()]}
    raise TypeError(type(node).__name__)


def decoded(structure: Structure) -> tree.PyTreeDef:
    """The structure again; ValueError, KeyError or TypeError if it is none."""
    found: tree.PyTreeDef = tree.structure(_decoded(structure))
    return found


def _decoded(structure: Structure) -> Any:
    if structure is None or type(structure) is int:
        return structure
    ((kind, parts),) = structure.items()
    if kind == "dict":
        return {key: _decoded(value) for key, value in parts}
    return {"list": list, "tuple": tuple}[kind](map(_decoded, parts))
