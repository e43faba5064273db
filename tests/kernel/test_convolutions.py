"""Convolutions of every kind are one kernel each, which keeps no windows and walks along memory.

With features on both sides they are CONTRACTs. Where each output feature reads one input feature
(depthwise) there is no product of matrices: vectors run along features or along a row of places.
"""

import itertools
import math

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from lumjax.config import config
from lumjax.cpu.objects import host_target
from lumjax.kernel.ir import Loop, LoopKind
from lumjax.trace.dim import evaluate

EXTENT = {1: 90, 2: 18, 3: 9}
PARTS = ("forward", "dX", "dW")
GROUPS = {"one": (1, 8, 12), "some": (4, 8, 12), "each": (16, 16, 16), "twice": (16, 16, 32)}
MATRIX = [
    m
    for m in itertools.product(
        (1, 2, 3), ("NCHW", "NHWC"), GROUPS, ((1, 1), (2, 1), (1, 2), (2, 2)), PARTS
    )
    if m[0] < 3 or m[3] == (1, 1)
]


def build(rank, layout, groups, step, part, batch=2):
    """(program, arguments, elements of all three arrays)"""
    count, channels, features = GROUPS[groups] if isinstance(groups, str) else groups
    stride, dilation = step
    places = "DHW"[-rank:]
    spec = ("NC" + places, "OI" + places, "NC" + places)
    if layout == "NHWC":
        spec = ("N" + places + "C", places + "IO", "N" + places + "C")

    def f(x, w):
        return lumjax.lax.conv_general_dilated(
            x,
            w,
            (stride,) * rank,
            "SAME",
            rhs_dilation=(dilation,) * rank,
            dimension_numbers=spec,
            feature_group_count=count,
        )

    rng = np.random.default_rng(3)
    space = (EXTENT[rank],) * rank
    shapes = ((batch, channels, *space), (features, channels // count, *(3,) * rank))
    if layout == "NHWC":
        shapes = (
            (batch, *space, channels),
            (*(3,) * rank, channels // count, features),
        )
    x, w = (jnp.array(rng.standard_normal(s), dtype=np.float32) for s in shapes)
    out = jnp.cos(f(x, w))
    size = x.size + w.size + out.size
    if part == "forward":
        return f, (x, w), size
    if part == "dX":
        return (lambda y, w: lumjax.vjp(lambda a: f(a, w), x)[1](y)[0]), (out, w), size
    return (lambda y, x: lumjax.vjp(lambda b: f(x, b), w)[1](y)[0]), (out, x), size


def one_kernel(f, args, size):
    """The only kernel of a program: it was not refused, computes what the interpreter does, and
    keeps at most twice what is read and written, but for partial sums of the result.
    """
    compiled = lumjax.jit(f).lower(*args).compile()
    (found,) = (k for s in compiled.executable.native() for k in s.kernels)
    kernel = found.compiled.kernel
    assert not found.rejected
    with config.scope(interpret=True):
        want = lumjax.jit(f)(*args)
    np.testing.assert_allclose(compiled(*args), want, rtol=1e-3, atol=2e-3)
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    kept = sum(int(evaluate(math.prod(b.shape), sizes)) for b in kernel.workspace)
    shares = 64 if want.size < size // 8 else 0  # of a long sum
    wider = max(1, host_target().lanes(4) // 8) if shares else 1  # which few features fill less
    assert kept <= (2 * size + shares * want.size) * wider
    return kernel


def vectors(stmts):
    for s in stmts:
        if isinstance(s, Loop) and s.kind is LoopKind.VECTOR:
            yield s
        yield from vectors(getattr(s, "body", ()))


@pytest.mark.parametrize(("rank", "layout", "groups", "step", "part"), MATRIX)
@pytest.mark.sampled(12)
def test_a_convolution_is_one_kernel(rank, layout, groups, step, part):
    kernel = one_kernel(*build(rank, layout, groups, step, part))
    if groups in ("one", "some"):
        assert kernel.programs == ("CONTRACT",)
    elif groups == "each":
        assert kernel.programs[0] in (("ROW", "SPLIT") if part == "dW" else ("ROW",))
    else:
        assert kernel.programs[0] in ("CONTRACT", "ROW", "SPLIT")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_vectors_run_along_places_or_features_and_not_along_a_window(stride, rank, layout):
    kernel = one_kernel(*build(rank, layout, "each", (stride, 1), "forward"))
    found = [s for p in kernel.phases for s in vectors(p.body)]
    assert found
    assert all(s.end != 3 for s in found if isinstance(s.end, int)), "as long as a window"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.sampled(3)
def test_one_channel(batch, part, layout):
    """A first layer; its gradient by the image has no features of its own."""
    kernel = one_kernel(*build(2, layout, (1, 1, 16), (1, 1), part, batch))
    assert kernel.programs == ("CONTRACT",) or (part == "dX" and kernel.programs[0] != "SCALAR")
