"""The checks themselves: what they must let pass, and what not."""

from __future__ import annotations

import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax import testing
from lumjax.testing import checks


def test_16_bits_that_are_rounded_less_often_are_no_fault():
    """The cosine of 441, which is 440 in bfloat16."""
    x = jnp.asarray(21.0, jnp.bfloat16)
    f = lumjax.jit(lambda x: jnp.cos(jnp.square(x)))
    with pytest.raises(AssertionError, match="jit on cpu"):
        testing.check_jit(f, (x,), backends=["cpu"], interpret=True, rtol=0.05)
    testing.check_jit(f, (x,), backends=["cpu"], interpret=True, rtol=0.05, rounding=True)
    want, wider = jnp.asarray(1.0, jnp.bfloat16), jnp.asarray(1.01)
    for got, judged in ((3.0, 3.0), (1.0156, 1.0)):  # more than rounding explains; no more
        assert float(checks._allowed(jnp.asarray(got, jnp.bfloat16), want, wider)) == judged
