"""Communication between processes; there is one."""

from __future__ import annotations

from typing import Any

import numpy as np

from lumjax import tree
from lumjax.trace.array import Array


def _host(x: Any) -> Any:
    return x.data if isinstance(x, Array) else np.asarray(x)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The value of the first process: the argument's, as NumPy arrays.

    >>> broadcast_one_to_all({"a": 1})
    {'a': array(1)}
    """
    del is_source
    return tree.map(_host, in_tree)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The values of all processes along a new first axis (along the first, if `tiled`)."""
    return tree.map(lambda x: _host(x) if tiled else _host(x)[None], in_tree)


def sync_global_devices(name: str) -> None:
    """Wait for all processes: nothing to wait for."""
    del name


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Check that all processes have the same value, which one always has."""
    del in_tree, fail_message


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """The arrays: they are already whole."""
    del global_mesh, pspecs
    return local_inputs


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """The arrays: they are already local."""
    del global_mesh, pspecs
    return global_inputs
