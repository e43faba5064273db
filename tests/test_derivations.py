"""What the search must make of naive programs: few kernels, nothing large stored, equal results."""

from __future__ import annotations

import itertools

import pytest

import lumjax
import lumjax.numpy as jnp
from benchmarks.derive import derive
from benchmarks.programs import PROGRAMS

DERIVED = [
    "chain of 50",
    "softmax",
    "log_softmax",
    "logsumexp",
    "layer norm",
    "rms norm",
    "layer norm backward",
    "rms norm backward",
    "gelu(x@W+b)",
    "(A@B)@v",
    "integer labels",
    "convolution",
    "convolution dX",
    "convolution dW",
]


@pytest.mark.parametrize("name", DERIVED)
def test_becomes_what_it_must(name: str) -> None:
    found = derive(name, PROGRAMS[name], PROGRAMS[name].small)
    assert found.kernels <= found.must, found
    assert found.forbidden is None or found.largest < found.forbidden, found
    assert not found.evaluated, found
    assert not found.rejected, found
    assert found.error < 1e-4, found


STRIDES_DILATIONS_GROUPS_PADDINGS = list(
    itertools.product([1, 2, 3], [1, 2], [1, 2], ["SAME", "VALID", ((2, 1), (0, 3))])
)


@pytest.mark.parametrize(
    ("stride", "dilation", "groups", "padding"), STRIDES_DILATIONS_GROUPS_PADDINGS
)
@pytest.mark.sampled(8)
def test_convolutions_and_their_gradients_are_kernels(
    stride: int, dilation: int, groups: int, padding: object
) -> None:
    def f(x: object, w: object) -> object:
        return lumjax.lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            padding,
            rhs_dilation=(dilation, dilation),
            feature_group_count=groups,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )

    x, w = jnp.ones((2, 4, 11, 13)), jnp.ones((6, 4 // groups, 3, 2))
    for program in (f, *(lumjax.grad(lambda *a: jnp.sum(f(*a) ** 2), k) for k in (0, 1))):
        executable = lumjax.jit(program).lower(x, w).compile().executable
        assert [e.why for e in executable.evaluated()] == []
        assert not any(k.rejected for s in executable.native() for k in s.kernels)
