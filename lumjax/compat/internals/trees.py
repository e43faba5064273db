"""jax._src.tree_util: which types are registered as pytree nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lumjax import tree


class _Registry(Mapping[type, Any]):
    """The types that are nodes, for membership."""

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, type) and tree.is_node_type(kind)

    def __getitem__(self, kind: type) -> Any:
        raise KeyError(kind)

    def __iter__(self) -> Iterator[type]:
        return iter(())

    def __len__(self) -> int:
        return 0


_registry = _Registry()
