"""einsum's own product of pairs, which libraries replace, for instance by one that quantizes."""

from __future__ import annotations

import numpy as np

import lumjax
import lumjax.numpy as jnp


def test_einsum_contracts_by_the_product_it_is_given():
    calls = []

    def product(x, y, dims, precision=None, preferred_element_type=None):
        calls.append((dims, precision))
        return 2 * lumjax.lax.dot_general(x, y, dims, precision, preferred_element_type)

    x, y, z = jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones((4, 5))
    out = jnp.einsum("ij,jk,kl->il", x, y, z, precision="high", _dot_general=product)
    assert len(calls) == 2
    assert all(precision == "high" for _, precision in calls)
    np.testing.assert_array_equal(out, np.full((2, 5), 48.0))
