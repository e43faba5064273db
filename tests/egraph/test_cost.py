"""What the cost model counts."""

import numpy as np
import pytest

from benchmarks import programs
from benchmarks.cost import Pair, chosen, spearman
from lumjax import lax
from lumjax import numpy as jnp
from lumjax.config import config
from lumjax.egraph.encode import encode
from lumjax.egraph.features import counted
from lumjax.egraph.inline import inlined
from lumjax.egraph.layout import Layout
from lumjax.egraph.materialise import arrange
from lumjax.egraph.scalar import Operations
from lumjax.egraph.stores import check, store_forced
from tests.egraph.planning import MACHINE, regions


@pytest.fixture(autouse=True)
def no_cache():
    with config.scope(cache=False):
        yield


def features(f, *args, fold=False):
    """Of every kernel of the program as traced."""
    found = []
    for region in regions(f, *args):
        encoded = inlined(encode(region, Operations(region)))
        layout = Layout(encoded.roots, encoded.layout, fold)
        store_forced(layout)
        planned = arrange(layout, MACHINE)
        for members in planned.groups:
            known = check(planned.layout, members)
            terms, roots, roles = known.kernel(fold)
            found.append(counted(terms, known.axes, roots, roles))
    return found


def ones(*shape):
    return jnp.ones(shape, np.float32)


def test_a_product_of_matrices():
    (f,) = features(jnp.matmul, ones(32, 48), ones(48, 64))
    assert (f.products, f.finished, f.staged, f.gathered) == (32 * 48 * 64, 32 * 64, 0, 0)


def test_few_columns_waste_lanes():
    (f,) = features(jnp.matmul, ones(32, 48), ones(48, 3))
    assert f.products == 32 * 48 * 8


def test_a_window_is_copied_once_and_a_stride_gathers():
    def f(stride):
        def convolve(x, w):
            return lax.conv_general_dilated(x, w, (stride, stride), "SAME")

        return features(convolve, ones(2, 8, 32, 32), ones(16, 8, 3, 3))[0]

    one, two = f(1), f(2)
    assert one.staged == two.staged == 2 * 8 * 32 * 32
    assert one.gathered == 0
    assert two.gathered == two.staged


@pytest.mark.parametrize("spec", [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")])
@pytest.mark.parametrize("taps", [3, 4])
def test_what_a_stride_spreads_out_is_read_once(taps, spec):
    """The gradient goes by remainders: each element of the cotangent is copied at most once."""

    def f(stride):
        def spread(y, w):
            return lax.conv_general_dilated(
                y, w, (1, 1), [(1, taps - 1)] * 2, (stride, stride), dimension_numbers=spec
            )

        y, w = (2, 8, 32, 32), (16, 8, taps, taps)
        if spec[0] == "NHWC":
            y, w = (2, 32, 32, 8), (taps, taps, 8, 16)
        return features(spread, ones(*y), ones(*w))[0]

    two = f(2)
    assert two.irregular == 0
    assert two.staged <= 2 * 8 * 32 * 32 + 16 * 8 * taps * taps
    points = 2 * 16 * 64 * 64
    assert two.products <= points * 8 * 4, "a quarter of the taps, or four of nine"
    assert two.operations < 50 * two.staged, "nor is its place told more often"


def test_special_functions_are_counted_apart():
    (f,) = features(lambda x: jnp.exp(x) + x, ones(4, 100))
    assert f.special >= 8 * 400
    assert f.operations < 8 * 400


def test_rows_are_passed_over_as_often_as_they_are_needed():
    (once,) = features(lambda x: jnp.sum(x * x, 1), ones(64, 100))
    (twice,) = features(lambda x: x * x / jnp.sum(x * x, 1, keepdims=True), ones(64, 100))
    assert twice.operations > 2 * once.operations
    assert once.entries == twice.entries == 64


def test_columns_that_lie_apart_are_gathered_or_walked_along():
    (f,) = features(lambda x: jnp.sum(jnp.exp(x), 0), ones(100, 64))
    assert f.gathered == 0
    (g,) = features(lambda x: x[:, ::3] + 1, ones(10, 60))
    assert g.gathered == 200


def test_tiles_that_masks_leave_idle_cost_nothing():
    def tiled(program):
        f, args = program(512)
        return sum(k.tiled for k in features(f, *args, fold=True))

    assert 0.4 < tiled(programs.causal) / tiled(programs.attention) < 0.75
    assert tiled(programs.window) < 0.7 * tiled(programs.causal)


def test_loops_over_tiles_copy_windows_for_each_tile_of_rows():
    def windows(rows):
        def f(x, k, y):
            seen = lax.conv_general_dilated(
                x, k, (1,), [(1, 1)], dimension_numbers=("NWC", "WIO", "NWC")
            )
            weights = jnp.exp2(seen)
            return jnp.einsum("bwr,bwe->re", weights, y)

        return features(f, ones(50, 40, 8), ones(3, 8, rows), ones(50, 40, 12), fold=True)

    (one,), (more,) = windows(64), windows(128)
    assert one.tiled, "a loop over tiles"
    assert one.staged == 50 * 40 * 3 * 8
    assert more.staged == 2 * one.staged

    f, args = programs.attention(512)
    plain = features(f, *args, fold=True)
    assert sum(k.tiled for k in plain), "a loop over tiles"
    assert not sum(k.staged for k in plain), "rows lie as they are needed"


def test_what_varies_along_a_stream_is_computed_at_each_of_its_points():
    def f(x, k, z, y):
        seen = x @ k
        weights = jnp.exp2(seen[:, None, :] * z[:, :, None])
        return jnp.einsum("bwr,bwe->re", weights, y)

    (one,) = features(f, ones(256, 8), ones(8, 64), ones(256, 1), ones(256, 1, 12), fold=True)
    (six,) = features(f, ones(256, 8), ones(8, 64), ones(256, 6), ones(256, 6, 12), fold=True)
    assert one.tiled, "a loop over tiles"
    assert six.tiled == 6 * one.tiled, "one tile of the inner product for each"


def test_rank_correlation():
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [40, 30, 20, 10]) == pytest.approx(-1)
    assert spearman([1, 1, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486833)
    assert np.isnan(spearman([1, 1], [1, 2]))


def test_how_much_is_lost_by_taking_the_cheapest_prediction():
    def pair(plan, predicted, measured):
        return Pair("p", 8, 0, plan, (), predicted, measured)

    found = [pair("a", 1.0, 3.0), pair("b", 2.0, 2.0)]
    assert chosen(found)["worst"] == 1.5
