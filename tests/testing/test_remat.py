"""check_remat: it accepts what recomputation leaves as it is, and finds what it does not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lumjax.numpy as jnp
from lumjax import checkpoint_policies
from lumjax.testing import check_remat

X = np.array([0.5, -1.0, 2.0], np.float32)


@pytest.mark.parametrize("policy", [None, checkpoint_policies.everything_saveable])
def test_functions_that_recompute(policy):
    check_remat(lambda x, k: {"a": jnp.sin(x) * x[k], "b": k}, (X, 1), policy=policy)


def test_a_function_that_changes_each_time_is_found():
    count = itertools.count(1)
    with pytest.raises(AssertionError, match="checkpointed"):
        check_remat(lambda x: jnp.sin(x) * next(count), (X,))
