import time
from functools import reduce

import numpy as np
import pytest

from lumjax.config import config
from lumjax.egraph.cost import MACHINES, factors, machine, memory_time
from lumjax.egraph.encode import encode
from lumjax.egraph.materialise import Meter, materialise
from lumjax.egraph.plan import Budget, clock
from lumjax.egraph.realise import kernels_of
from lumjax.egraph.search import search
from lumjax.egraph.stores import Layout, store_forced
from lumjax.kernel.emit import Reject
from lumjax.kernel.ir import Kernel
from lumjax.kernel.lower import lower as real_lower
from lumjax.kernel.region import Region, cut, volume
from lumjax.kernel.term import Apply, Load, Reduction, children, loads, subterms
from lumjax.ops import elementwise as ew
from lumjax.ops import layout as la
from lumjax.ops import reduce as rd
from lumjax.ops import transcendental as tr
from lumjax.ops import view as vw
from lumjax.target import Backend, Target
from tests.egraph import programs as pr

TARGET = Target(Backend.CPU, "generic", "", 32, 16, 2)
MACHINE = machine(TARGET)


@pytest.fixture(autouse=True)
def no_cache():
    with config.scope(cache=False):
        yield


def regions(f, *avals):
    return [s for s in cut(pr.Program("", f, avals).jaxpr()) if isinstance(s, Region)]


def found(f, *avals, lower=None):
    (region,) = regions(f, *avals)
    return search(region, TARGET, lower=lower)


def check_plan(region, plan):
    """What a Plan promises."""
    assert [b.name for b in plan.inputs] == [f"i{k}" for k in range(len(region.inputs))]
    assert [b.name for b in plan.outputs] == [f"o{k}" for k in range(len(region.outputs))]
    for b, v in zip(plan.inputs + plan.outputs, region.inputs + region.outputs, strict=True):
        assert volume(b.shape) == volume(v.aval.shape)
        assert b.dtype == v.aval.dtype
    written = [r.buffer.name for g in plan.groups for r in g.roots]
    names = [b.name for b in plan.outputs + plan.temporaries]
    assert sorted(written) == sorted(names)
    known = {b.name for b in plan.inputs}
    for group in plan.groups:
        mine = {r.buffer.name for r in group.roots}
        read = {x.buffer.name for r in group.roots for x in loads(r.term)}
        assert read <= known
        assert not read & mine
        known |= mine
    used = {x.buffer.name for g in plan.groups for r in g.roots for x in loads(r.term)}
    assert {b.name for b in plan.temporaries} <= used


@pytest.mark.parametrize("program", pr.PROGRAMS, ids=lambda p: p.name)
def test_plans_mean_what_eval_says(program):
    jaxpr = program.jaxpr()

    def run(region, values):
        result = search(region, TARGET)
        check_plan(region, result.plan)
        assert len(result.kernels) == len(result.plan.groups)
        return pr.evaluate_plan(result.plan, values)

    args = program.inputs(3)
    pr.assert_close(pr.run_steps(jaxpr, args, run), pr.answer(jaxpr, args))


@pytest.mark.parametrize("program", pr.PROGRAMS, ids=lambda p: p.name)
def test_nothing_falls_back(program):
    for region in cut(program.jaxpr()):
        if isinstance(region, Region):
            report = search(region, TARGET).report
            assert not report.fallbacks
            assert report.cost <= report.traced_cost


def groups(f, *avals):
    return found(f, *avals).plan.groups


x, wide = pr.aval(64, 96), pr.aval(64, 512)


def test_elementwise_chains_are_one_kernel():
    assert len(groups(pr.gelu_chain, x)) == 1


def test_row_programs_are_one_kernel():
    assert len(groups(lambda a: pr.softmax(a, 1), x)) == 1
    assert len(groups(pr.layer_norm, x, pr.aval(96), pr.aval(96))) == 1
    assert len(groups(lambda a: (rd.reduce_max(a, (1,)), la.reduce_sum(a, (1,))), x)) == 1


def test_adam_is_one_kernel():
    (group,) = groups(pr.adam, *[x] * 4)
    assert len(group.roots) == 3


def test_contraction_with_epilogue_is_one_kernel():
    def f(a, w, b):
        y = pr.matmul(a, w)
        return pr.relu(ew.add(y, pr.spread(b, y, (0,))))

    (group,) = groups(f, x, pr.aval(96, 32), pr.aval(32))
    assert len(group.roots) == 1


def test_loss_and_its_gradient_share_the_rows():
    f = pr.gradient(pr.cross_entropy, 0)
    plan = found(f, x, pr.aval(64, dtype=pr.i32)).plan
    assert len(plan.groups) == 1  # the rows, and the mean over them as a sum across


def test_layer_norm_and_its_gradients_are_one_pass_over_the_rows():
    f = pr.gradient(pr.layer_norm, 0, 1, 2)
    (group,) = groups(f, pr.aval(4096, 96), pr.aval(96), pr.aval(96))
    assert sorted(len(r.axes) for r in group.roots) == [0, 1, 1, 2]


def test_column_sums_read_what_another_kernel_stores():
    def f(a, b):
        y = tr.tanh(ew.mul(a, ew.add(a, b)))
        return y, la.reduce_sum(y, (0,))

    first, second = groups(f, pr.aval(4096, 96), pr.aval(4096, 96))
    (load,) = loads(second.roots[0].term)
    assert load.buffer == first.roots[0].buffer


def test_column_sums_compute_nothing_dear_again():
    """A value in four pieces, for three products and a sum: stored by itself, read by all."""

    def f(*args):
        *parts, t, w, v, b, g, h = args
        pieces = [
            vw.pad(
                ew.mul(ew.mul(p, ew.add(p, t)), t), 0.0, ((0, 0, 0), (128 * k, 128 * (3 - k), 0))
            )
            for k, p in enumerate(parts)
        ]
        y = reduce(ew.add, pieces)
        return (
            ew.add(b, la.reduce_sum(y, (0,))),
            *(ew.add(x, pr.matmul(la.transpose(u, (1, 0)), y)) for x, u in ((g, w), (h, t))),
            pr.matmul(y, v),
        )

    weights = pr.aval(512, 128), pr.aval(512), pr.aval(128, 512), pr.aval(128, 512)
    first, *rest = groups(f, *[pr.aval(16, 128)] * 6, *weights)
    (stored,) = (r.buffer.name for r in first.roots)
    assert len(rest) == 4
    for group in rest:
        assert stored in {t.buffer.name for r in group.roots for t in loads(r.term)}


def test_rows_under_a_contraction_are_stored_first():
    """As traced; a loop over tiles of an equal program may do without."""
    (region,) = regions(lambda a, w: pr.matmul(pr.softmax(a, 1), w), wide, pr.aval(512, 8))
    plan = search(region, TARGET, Budget(evaluations=0)).plan
    contractions = [t for g in plan.groups for r in g.roots for t in subterms(r.term) if factors(t)]
    assert len(contractions) == 1
    for operand in factors(contractions[0]):
        assert not [t for t in subterms(operand) if isinstance(t, Reduction)]


def test_a_dear_operand_is_stored_and_a_cheap_one_is_not():
    square = found(lambda a, w: pr.matmul(ew.mul(a, a), w), x, pr.aval(96, 64)).plan
    assert len(square.groups) == 1

    def dear(a, w):
        for _ in range(6):
            a = tr.exp(ew.neg(a))
        return pr.matmul(a, w)

    assert len(found(dear, x, pr.aval(96, 64)).plan.groups) == 2


def test_a_long_sum_that_others_wait_for_is_stored():
    big = pr.aval(512, 512)

    def norm(a):
        return ew.mul(a, pr.spread(la.reduce_sum(ew.mul(a, a), (0, 1)), a, (0, 1)))

    assert len(groups(norm, big)) == 2


def test_products_reassociate_where_it_pays():
    def f(a, b, v):
        return pr.ct.dot_general(pr.matmul(a, b), v, (((1,), (0,)), ((), ())))

    (region,) = regions(f, pr.aval(256, 256), pr.aval(256, 256), pr.aval(256))
    result = search(region, TARGET)
    assert result.report.cost < 0.5 * result.report.traced_cost
    assert not [
        t for g in result.plan.groups for r in g.roots for t in subterms(r.term) if factors(t)
    ]
    rng = np.random.default_rng(0)
    args = [rng.normal(size=v.aval.shape).astype(np.float32) for v in region.inputs]
    (got,) = pr.evaluate_plan(result.plan, args)
    np.testing.assert_allclose(got, args[0] @ (args[1] @ args[2]), rtol=1e-3, atol=1e-2)


def test_a_sum_of_a_broadcast_is_a_product():
    def f(r):
        return la.reduce_sum(la.broadcast_in_dim(r, (64, 4096), (0,)), (1,))

    (group,) = groups(f, pr.aval(64))
    assert not [t for t in subterms(group.roots[0].term) if isinstance(t, Reduction)]


def test_an_output_repeated_along_an_axis_serves_others_without_it():
    def f(a):
        b = ew.mul(ew.add(a, a), np.float32(0.5))
        return la.broadcast_in_dim(b, (3,), ()), la.broadcast_in_dim(ew.sub(b, b), (4,), ())

    jaxpr = pr.Program("", f, (pr.aval(),)).jaxpr()

    def run(region, values):
        plan = search(region, TARGET).plan
        check_plan(region, plan)
        return pr.evaluate_plan(plan, values)

    first, second = pr.run_steps(jaxpr, [np.float32(2)], run)
    assert list(first) == [2, 2, 2]
    assert list(second) == [0, 0, 0, 0]


# ---- the retry loop


def kernel(group):
    return real_lower(group, TARGET)


def test_a_rejected_term_is_stored():
    asked = []

    def lower(group):
        asked.append(group)
        for root in group.roots:
            for t in subterms(root.term):
                if isinstance(t, Apply) and t.op.name == "exp" and t is not root.term:
                    return Reject(t, "no exponentials inside")
        return kernel(group)

    program = pr.BY_NAME["softmax"]
    (region,) = [s for s in cut(program.jaxpr()) if isinstance(s, Region)]
    result = search(region, TARGET, lower=lower)
    check_plan(region, result.plan)
    assert result.report.rejects
    assert len(result.plan.groups) >= 2
    assert all(isinstance(k, Kernel) for k in result.kernels)
    args = program.inputs()
    jaxpr = program.jaxpr()
    pr.assert_close(pr.evaluate_plan(result.plan, args), pr.answer(jaxpr, args))


def test_a_rejected_group_is_split_before_it_gets_stores():
    def lower(group):
        return (
            Reject(group.roots[0].term, "one root only") if len(group.roots) > 1 else kernel(group)
        )

    result = found(pr.adam, *[x] * 4, lower=lower)
    assert [len(g.roots) for g in result.plan.groups] == [1, 1, 1]


def test_only_the_rejected_combination_is_split():
    """Pairs still share a kernel when all three roots together are refused."""

    def lower(group):
        return Reject(group.roots[0].term, "too many") if len(group.roots) > 2 else kernel(group)

    result = found(pr.adam, *[x] * 4, lower=lower)
    assert sorted(len(g.roots) for g in result.plan.groups) == [1, 2]


def test_when_nothing_lowers_every_root_falls_back():
    for name in ("mlp-grad", "layer-norm-grad", "conv", "embedding", "integers"):
        program = pr.BY_NAME[name]
        jaxpr, args = program.jaxpr(), program.inputs()

        def run(region, values):
            result = search(region, TARGET, lower=lambda g: Reject(g.roots[0].term, "never"))
            check_plan(region, result.plan)
            assert len(result.report.fallbacks) == len(result.plan.groups)
            assert all(len(g.roots) == 1 for g in result.plan.groups)
            return pr.evaluate_plan(result.plan, values)

        pr.assert_close(pr.run_steps(jaxpr, args, run), pr.answer(jaxpr, args))


def test_a_lower_that_names_ever_smaller_terms_ends():
    def lower(group):
        if len(group.roots) > 1:
            return Reject(group.roots[0].term, "one root only")
        term = group.roots[0].term
        inner = [c for c in children(term) if isinstance(c, (Apply, Reduction))]
        return Reject(inner[0], "one operation only") if inner else kernel(group)

    result = found(pr.layer_norm, x, pr.aval(96), pr.aval(96), lower=lower)
    for group in result.plan.groups:
        assert len(group.roots) == 1
        assert all(isinstance(c, Load) or not children(c) for c in children(group.roots[0].term))


def test_kernels_of_a_plan_again():
    result = found(pr.gelu_chain, x)
    never = lambda g: Reject(g.roots[0].term, "never")
    assert kernels_of(result.plan, kernel) == (result.kernels, ())
    assert kernels_of(result.plan, never)[1] == ("o0",)
    assert kernels_of(found(pr.adam, *[x] * 4).plan, never) is None


# ---- parts


def test_temporaries_have_the_order_in_which_they_are_read():
    (region,) = regions(
        lambda a, w: pr.matmul(tr.exp(la.transpose(a, (1, 0))), w), x, pr.aval(64, 96)
    )
    encoded = encode(region)
    layout = Layout(encoded.roots, {})
    store_forced(layout)
    (term,) = [
        t
        for r in layout.roots
        for t in subterms(r.term)
        if isinstance(t, Apply) and t.op.name == "exp"
    ]
    stored = layout.store(term)
    (load,) = loads(stored.term)
    assert str(load.coords[-1]) == stored.axes[-1].name


def test_the_meter_counts_and_stops():
    meter = Meter(2, time.thread_time() + 60)
    assert [meter.spend() for _ in range(4)] == [True, True, False, False]
    assert not meter.truncated
    late = Meter(100, time.thread_time() - 1)
    assert not late.spend()
    assert late.truncated


def test_waiting_for_the_machine_ends_no_search():
    meter = Meter(100, clock() + 0.05)
    time.sleep(0.1)
    assert meter.spend()
    while clock() < meter.deadline:
        pass
    assert not meter.spend()
    assert meter.truncated


def test_memory_time_grows():
    for m in MACHINES.values():
        times = [memory_time(1 << k, m) for k in range(10, 34)]
        assert times == sorted(times)


def test_equal_inputs_give_equal_plans():
    for name in ("mlp-grad", "attention-grad"):
        for region in cut(pr.BY_NAME[name].jaxpr()):
            if isinstance(region, Region):
                encoded = encode(region)
                late = time.thread_time() + 60
                first = materialise(encoded.roots, encoded.layout, MACHINE, Meter(99, late))
                again = materialise(encoded.roots, encoded.layout, MACHINE, Meter(99, late))
                assert first.groups == again.groups
                assert first.cost == again.cost
