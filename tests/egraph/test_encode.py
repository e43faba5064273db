import numpy as np
import pytest

from lumjax.egraph.axes import AxisNames
from lumjax.egraph.encode import encode
from lumjax.kernel.region import Region, cut
from lumjax.kernel.term import Apply, Load, Reduction, free_names, loads, subterms
from lumjax.ops import elementwise as ew
from lumjax.ops import layout as la
from lumjax.ops import transcendental as tr
from lumjax.ops import view as vw
from tests.egraph import programs as pr

pytestmark = pytest.mark.sampled(3)


def only_region(f, *avals):
    steps = cut(pr.Program("", f, avals).jaxpr())
    (region,) = [s for s in steps if isinstance(s, Region)]
    return region


@pytest.mark.parametrize("program", pr.PROGRAMS, ids=lambda p: p.name)
@pytest.mark.parametrize("limit", [256, 6])
def test_terms_mean_what_eval_says(program, limit):
    jaxpr = program.jaxpr()
    for seed in range(2):
        args = program.inputs(seed)
        got = pr.run_steps(jaxpr, args, lambda r, v: pr.evaluate_encoded(encode(r), v), limit)
        pr.assert_close(got, pr.answer(jaxpr, args))


@pytest.mark.parametrize("name", ["chain", "softmax", "layer-norm", "pad", "concatenate", "causal"])
def test_specials_survive(name):
    program = pr.BY_NAME[name]
    jaxpr = program.jaxpr()
    args = program.inputs()
    specials = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-42], np.float32)
    flat = args[0].reshape(-1)
    flat[: len(specials)] = specials[: flat.size]
    got = pr.run_steps(jaxpr, args, lambda r, v: pr.evaluate_encoded(encode(r), v))
    want = pr.answer(jaxpr, args)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.isnan(g), np.isnan(w))
        np.testing.assert_array_equal(np.isinf(g), np.isinf(w))


@pytest.mark.parametrize("program", pr.PROGRAMS, ids=lambda p: p.name)
def test_roots_are_closed(program):
    for region in [s for s in cut(program.jaxpr()) if isinstance(s, Region)]:
        encoded = encode(region)
        for root in encoded.roots:
            names = {a.name for a in root.axes}
            bound = {
                a.name for t in subterms(root.term) if isinstance(t, Reduction) for a in t.axes
            }
            assert not (free_names(root.term) & bound) - names
            assert [a.extent for a in root.axes] == list(root.buffer.shape)
            assert len(names) == len(root.axes)


def test_softmax_shares_its_axis():
    """The exponent in the numerator and under the sum is one term."""
    encoded = encode(only_region(lambda x: pr.softmax(x, 1), pr.aval(6, 9)))
    (root,) = encoded.outputs
    exps = [t for t in subterms(root.term) if isinstance(t, Apply) and t.op.name == "exp"]
    assert len(exps) == 1
    assert len(list(loads(root.term))) == 1


def test_movement_vanishes():
    def f(x):
        y = la.transpose(la.reshape(ew.mul(x, x), (2, 3, 4)), (2, 0, 1))
        return vw.slice(y, (1, 0, 0), (3, 2, 3))

    encoded = encode(only_region(f, pr.aval(6, 4)))
    (root,) = encoded.roots
    assert len([t for t in subterms(root.term) if isinstance(t, Load)]) == 1
    assert isinstance(root.term, Apply)


def test_several_views_of_a_contraction_store_it_once():
    def f(x, w):
        y = pr.matmul(x, w)
        return tuple(tr.exp(vw.slice(y, (0, k), (6, k + 2))) for k in (0, 2, 4))

    encoded = encode(only_region(f, pr.aval(6, 4), pr.aval(4, 6)))
    assert len(encoded.stored) == 1
    for root in encoded.outputs:
        assert not [t for t in subterms(root.term) if isinstance(t, Reduction)]


def test_one_view_of_a_contraction_is_pushed_through():
    def f(x, w):
        return vw.slice(pr.matmul(x, w), (1, 0), (4, 2))

    encoded = encode(only_region(f, pr.aval(6, 4), pr.aval(4, 6)))
    assert not encoded.stored


def test_a_cheap_value_is_recomputed_through_views():
    encoded = encode(only_region(lambda x: ew.add(x, la.rev(ew.add(x, x), (0,))), pr.aval(6)))
    assert not encoded.stored


def test_literal_padding_is_a_masked_load():
    encoded = encode(only_region(lambda x: vw.pad(x, np.float32(2), ((1, 1, 0),)), pr.aval(3)))
    term = encoded.outputs[0].term
    assert isinstance(term, Load)
    assert term.fill is not None
    assert np.frombuffer(term.fill.bits, np.float32)[0] == 2


def test_square_matrices_keep_their_axes_apart():
    region = only_region(lambda x: ew.add(x, la.transpose(x, (1, 0))), pr.aval(5, 5))
    names = AxisNames(region)
    for v in (*region.inputs, *region.outputs):
        assert names.axes(v, 0) != names.axes(v, 1)


def test_deep_chains_do_not_recurse():
    def f(x):
        for _ in range(1500):
            x = ew.add(ew.mul(x, x), np.float32(0.5))
        return x

    jaxpr = pr.Program("", f, (pr.aval(3),)).jaxpr()
    for region in [s for s in cut(jaxpr, limit=10**6) if isinstance(s, Region)]:
        assert len(list(subterms(encode(region).outputs[0].term))) == 3002
