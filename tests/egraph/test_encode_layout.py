"""The order of a value's dims is known only where all of it is read, so names keep one length."""

from __future__ import annotations

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.cpu.math import supported
from lumjax.egraph.encode import encode
from lumjax.kernel.region import Region, cut
from lumjax.kernel.term import Reduction, subterms
from tests.kernel.models import aval, jaxpr_of


def halves(x):
    return jnp.sqrt(x)[:8] * jnp.sqrt(x)[8:16]


def windows(x):
    y = jnp.tanh(x)
    return y[:5] + y[:11, None][:5, 0], jnp.sum(y[:3])


def product(x):
    return lumjax.grad(lambda x: jnp.prod(jnp.sqrt(x)))(x)


@pytest.mark.parametrize("f", [halves, windows, product])
def test_an_axis_has_one_extent(f):
    for step in cut(jaxpr_of(f, aval(17)), native=supported):
        if not isinstance(step, Region):
            continue
        encoded = encode(step)
        axes = [a for r in encoded.roots for a in r.axes]
        axes += [a for order in encoded.layout.values() for a in order]
        for root in encoded.roots:
            axes += [a for t in subterms(root.term) if isinstance(t, Reduction) for a in t.axes]
        extents: dict[str, object] = {}
        for a in axes:
            assert extents.setdefault(a.name, a.extent) == a.extent, a.name


@pytest.mark.parametrize("f", [halves, windows, product])
def test_parts_are_computed_right(f):
    x = jnp.linspace(0.5, 1.5, 17)
    got, want = lumjax.tree.leaves(lumjax.jit(f)(x)), lumjax.tree.leaves(f(x))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
