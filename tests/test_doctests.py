"""The examples in the public modules' docstrings run and say the truth."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

MODULES = [
    "lumjax", "lumjax.ad_checkpoint", "lumjax.api", "lumjax.compile", "lumjax.config",
    "lumjax.control.cond", "lumjax.control.custom", "lumjax.control.debug",
    "lumjax.control.checkpoint", "lumjax.control.policies", "lumjax.control.scan", "lumjax.debug",
    "lumjax.dtype", "lumjax.dtypes", "lumjax.explain", "lumjax.flatten_util",
    "lumjax.grad.forward", "lumjax.grad.jacobian", "lumjax.grad.linear", "lumjax.grad.reverse",
    "lumjax.custom_derivatives", "lumjax.distributed",
    "lumjax.experimental.mesh_utils", "lumjax.experimental.multihost_utils",
    "lumjax.experimental.pjit", "lumjax.experimental.shard_map", "lumjax.monitoring",
    "lumjax.parallel", "lumjax.traces", "lumjax.sharding", "lumjax.lax.extra",
    "lumjax.image", "lumjax.lax.linalg", "lumjax.lax.windows", "lumjax.numpy.decompositions",
    "lumjax.ops.factor", "lumjax.ops.segment", "lumjax.ops.spectral", "lumjax.ops.triangular",
    "lumjax.nn.initializers", "lumjax.lax", "lumjax.machine", "lumjax.nn", "lumjax.numpy",
    "lumjax.numpy.complexes", "lumjax.numpy.creation", "lumjax.numpy.elementwise", "lumjax.numpy.logic",
    "lumjax.numpy.functional",
    "lumjax.numpy.indexing", "lumjax.numpy.linalg", "lumjax.numpy.linear",
    "lumjax.numpy.manipulation", "lumjax.numpy.padding", "lumjax.numpy.reductions",
    "lumjax.numpy.sorting", "lumjax.numpy.updates", "lumjax.optim", "lumjax.optim.schedules",
    "lumjax.placement", "lumjax.profiler", "lumjax.random", "lumjax.random.continuous",
    "lumjax.random.core", "lumjax.random.counts", "lumjax.random.gamma",
    "lumjax.numpy.bits", "lumjax.numpy.editing", "lumjax.numpy.fft",
    "lumjax.numpy.files", "lumjax.numpy.grids", "lumjax.numpy.nans", "lumjax.numpy.polynomials",
    "lumjax.numpy.sets", "lumjax.numpy.standard", "lumjax.numpy.statistics",
    "lumjax.ops.fft", "lumjax.ops.incomplete",
    "lumjax.dlpack", "lumjax.scipy.fft", "lumjax.scipy.linalg", "lumjax.scipy.special",
    "lumjax.scipy.stats.norm",
    "lumjax.report.explanation", "lumjax.report.units", "lumjax.testing.checks",
    "lumjax.testing.rewrites",
    "lumjax.trace.batch", "lumjax.tree", "lumjax.tree_util", "lumjax.typing",
]  # fmt: skip


def user_names():
    """What examples may name without importing it."""
    import lumjax
    import lumjax.numpy as jnp

    return {"lumjax": lumjax, "jnp": jnp, "lax": lumjax.lax, "np": np}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    result = doctest.testmod(
        module, optionflags=doctest.NORMALIZE_WHITESPACE, extraglobs=user_names()
    )
    assert result.failed == 0
