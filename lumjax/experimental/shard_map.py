"""shard_map on one device: the function itself, its mesh axes having size 1."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lumjax import tree
from lumjax.sharding import AbstractMesh, get_mesh
from lumjax.trace.batch import vmap


def shard_map(
    f: Callable[..., Any] | None = None,
    *,
    mesh: AbstractMesh | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
    check_rep: bool = True,
    auto: Any = frozenset(),
) -> Any:
    """`f` on the one shard, which is the whole; collectives over the mesh's axes work.

    The mesh is the argument or the current one. Also a decorator with arguments.

    >>> from lumjax import lax
    >>> from lumjax.sharding import make_mesh
    >>> double = shard_map(lambda x: 2 * lax.psum(x, "i"), mesh=make_mesh((1,), ("i",)))
    >>> float(double(1.5))
    3.0
    """
    del in_specs, out_specs, check_vma, check_rep, auto
    if f is None:
        return functools.partial(shard_map, mesh=mesh, axis_names=axis_names)
    function = f

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        names = (mesh or get_mesh()).axis_names
        mapped: Callable[..., Any] = lambda xs: function(*xs)  # noqa: E731
        for name in reversed(names):
            mapped = _with_axis(mapped, name)
        return mapped(args)

    return run


def _with_axis(f: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`f` under a mapped axis of size 1 that its arguments and results do not have."""

    def run(xs: Any) -> Any:
        out = vmap(f, in_axes=None, out_axes=0, axis_name=name, axis_size=1)(xs)
        return tree.map(lambda x: x[0], out)

    return run
