"""Programs of open sizes: one compilation for every batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lumjax import tree
from lumjax.config import config
from lumjax.decorator import jit
from lumjax.testing.checks import assert_close
from lumjax.testing.rewrites import refuse_rejected
from lumjax.testing.values import to_raw
from lumjax.trace.array import Array
from lumjax.trace.batch import vmap


def check_dynamic(
    f: Callable[..., Any],
    args: Sequence[Any],
    *,
    sizes: Sequence[int] = (1, 2, 5, 33),
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """`vmap(f)` compiled once, for a batch of open size, against the batch evaluated as it is.

    Batches are rows of `args` rolled along their last axis. No kernel may have been rejected by its
    verification, and every access must be proved for all sizes at once.

    >>> import lumjax.numpy as jnp
    >>> check_dynamic(lambda x: jnp.sum(x * 2.0), (jnp.arange(4.0),))
    """
    if not tree.leaves(args):
        return  # there is no batch
    mapped = vmap(f)
    jitted: Any = jit(mapped, dynamic=({0: "batch"},) * len(args))
    batch: list[Any] = []
    for size in sizes:
        batch = [tree.map(lambda x, n=size: _rolled(to_raw(x), n), x) for x in args]
        got = jitted(*batch)
        with config.scope(interpret=True):
            want = mapped(*batch)
        assert_close(got, want, f"a batch of {size} against no compilation", rtol, atol)
    made = jitted.program(*batch).executable()
    refuse_rejected(made, "an open batch")
    open_to = [k.compiled.kernel.name for k in made.kernels() if not k.everywhere]
    assert not open_to, f"not proved for every batch: {open_to}"
    assert len(jitted.explain()) == 1, "one compilation"


def _rolled(x: np.ndarray[Any, Any], size: int) -> Array:
    rows = [np.roll(x, k, -1) if x.ndim else x for k in range(size)]
    return Array(np.stack(rows) if rows else np.zeros((0, *x.shape), x.dtype))
