"""Programs out of an e-graph: cheapest first, distinct, acyclic, and the same every time."""

import math
import time

import numpy as np
import pytest

from lumjax.egraph.cost import extent_of, factors, machine
from lumjax.egraph.extract import Extraction
from lumjax.egraph.rules.registry import load
from lumjax.egraph.rules.witness import lit, op, reduction, total
from lumjax.egraph.rules.witness import load as leaf
from lumjax.egraph.scalar import OPS
from lumjax.egraph.terms import Classes, Leaf, Node, Operation, warm_graph
from lumjax.egraph.weigh import Weigher
from lumjax.kernel.evaluate import evaluate_term
from lumjax.kernel.term import Axis, Reduction, subterms
from lumjax.target import Backend, Target
from lumjax.trace.form import ReduceOp
from tests.egraph.test_stream import found, scaled, waiting

MACHINE = machine(Target(Backend.CPU, "generic", "", 32, 16, 2))


class Plain:
    """The operations of no region."""

    by_name = OPS
    names = {o: n for n, o in OPS.items()}


def extraction(*terms):
    with warm_graph(load()).session(Plain) as session:
        session.insert(terms)
        session.saturate(8, 5000, time.thread_time() + 60)
        classes = session.read()
    return Extraction(classes, axes_of(terms), Plain, MACHINE)


def axes_of(terms):
    every = [s for t in terms for s in subterms(t)]
    bound = {a.name: a for s in every if isinstance(s, Reduction) for a in s.axes}
    return {**{a.name: a for a in (M, P, Q)}, **bound}


M, P, Q = Axis("m", 64), Axis("p", 48), Axis("q", 80)
a, b, v = leaf("a", M, P), leaf("b", P, Q), leaf("v", Q)
matrices = total((Q,), op("mul", total((P,), op("mul", a, b)), v))
vectors = total((P,), op("mul", a, total((Q,), op("mul", b, v))))


def work(terms, axes):
    """Multiply-adds of all sums."""
    every = dict.fromkeys(s for t in terms for s in subterms(t))
    sums = [s for s in every if isinstance(s, Reduction)]
    return sum(extent_of(s._free | {x.name for x in s.axes}, axes) for s in sums)


@pytest.mark.parametrize("term", [matrices, vectors])
def test_a_product_with_a_vector_is_two_products_with_vectors(term):
    found_ = extraction(term)
    (best,) = found_.programs(1)
    axes = axes_of([term])
    assert work(best, axes) == 64 * 48 + 48 * 80
    assert best == found_.terms()
    assert len(found_.programs(24)) > 1  # the product of matrices is among the others
    assert max(work(p, axes) for p in found_.programs(24)) >= 64 * 48 * 80


def test_products_under_a_sum_are_not_stored():
    """A contraction's price has no product in it; the same product by itself is computed."""
    c = leaf("c", P, Q)
    product = op("mul", a, c)
    contracted = total((P,), product)
    assert factors(contracted) is not None
    one, other = extraction(contracted), extraction(product)
    weigher = one.weigher
    (root,) = one.classes.roots
    node = one.best[root].node
    inner = weigher.product(node, {c: x.node for c, x in one.best.items()})
    assert inner is not None
    assert inner.shape.name == "mul"
    assert set(weigher.inputs(node, {c: x.node for c, x in one.best.items()})) == set(inner.args)
    assert one.best[root].closure == set(inner.args)
    computed = other.best[other.classes.roots[0]].own
    assert one.best[root].own < computed + weigher.own(root, node, None)


def test_a_nested_contraction_is_not_stored_unless_something_waits():
    """Rows of a contraction: kept in tiles under a maximum, stored when a second loop needs it."""
    scores = total((P,), op("mul", a, b))
    top = reduction(ReduceOp.MAX, (Q,), scores)
    rows = total((Q,), op("exp2", op("sub", scores, top)))
    for term, stored in ((top, 0), (rows, 1), (scores, 1)):
        found_ = extraction(term)
        weigher = Weigher(found_.classes, found_.axes, Plain, MACHINE)
        choice = found_.classes.traced
        order = weigher.order(found_.classes.roots, choice)
        own = sum(weigher.own(c, choice[c], weigher.product(choice[c], choice)) for c in order)
        extra = weigher.cost(found_.classes.roots, choice) - own
        (c,) = [c for c in order if weigher.product(choice[c], choice) is not None]
        assert math.isclose(extra, stored * weigher.store(c, choice[c]), abs_tol=1e-12)


def test_a_scaled_sum_is_cheaper_than_one_that_waits():
    scores = total((P,), op("mul", a, b))
    top = reduction(ReduceOp.MAX, (Q,), scores)
    rows = total((Q,), op("exp2", op("sub", scores, top)))
    programs = extraction(rows).programs(24)
    assert scaled(programs[0])
    assert not waiting(programs[0])
    assert any(waiting(p) for p in programs)
    alone = extraction(rows)
    weigher = Weigher(alone.classes, alone.axes, Plain, MACHINE)
    traced = weigher.cost(alone.classes.roots, alone.classes.traced)
    best = {c: x.node for c, x in alone.best.items()}
    assert weigher.cost(alone.classes.roots, best) < traced


@pytest.mark.parametrize("name", ["library-grad", "labelled-grad", "standardized-grad"])
def test_programs_are_distinct_and_repeatable(name):
    this = found(name)
    programs = this.programs
    assert len(set(programs)) == len(programs) > 3
    assert this.extraction().programs(24) == programs
    assert this.extraction().programs(3) == programs[:3]
    assert all(len(p) == len(this.terms) for p in programs)


@pytest.mark.parametrize("name", ["library-grad", "labelled-grad", "contrastive-grad"])
def test_the_traced_program_is_known(name):
    this = found(name)
    assert this.extraction().terms(this.classes.traced) == this.terms


def test_the_second_program_streams_where_the_first_does_not():
    this = found("labelled-grad")
    first, second = this.programs[:2]
    assert len(waiting(second)) < len(waiting(first)) or scaled(first)
    assert scaled(second) or scaled(first)


def test_flips_that_change_what_is_reduced_come_first():
    """Of matrices and vectors: the other order of products comes before other spellings."""
    scaled_by = op("mul", lit(3.0), matrices)
    programs = extraction(scaled_by).programs(24)
    axes = axes_of([scaled_by])
    works = [work(p, axes) for p in programs]
    assert works[0] == min(works)
    assert len(set(works)) > 1


def test_shared_classes_count_once():
    heavy = op("exp", a)
    for _ in range(6):
        heavy = op("mul", heavy, op("add", heavy, lit(1.0)))
    found_ = extraction(heavy)
    weigher = found_.weigher
    best = {c: x.node for c, x in found_.best.items()}
    order = weigher.order(found_.classes.roots, best)
    assert len(order) == len(set(order))
    once = sum(weigher.own(c, best[c], None) for c in order)
    assert math.isclose(weigher.cost(found_.classes.roots, best), once)
    assert math.isclose(found_.best[found_.classes.roots[0]].cost, once)


def test_a_choice_with_a_cycle_is_no_program():
    """x = x * 1 is a member of its own class."""
    found_ = extraction(op("mul", a, lit(1.0)))
    (root,) = found_.classes.roots
    (around,) = [
        n for n in found_.classes.nodes[root] if isinstance(n.shape, Operation) and root in n.args
    ]
    chosen = {c: x.node for c, x in found_.best.items()} | {root: around}
    assert found_.terms(chosen) is None
    assert found_.weigher.cost(found_.classes.roots, chosen) is None
    assert found_.terms() == (a,)


def test_a_class_that_nothing_computes_has_no_program():
    round_ = Node(Operation("neg", np.dtype("f8")), (0,))
    classes = Classes(((round_,),), (frozenset(),), (0,), {}, (frozenset(),))
    empty = Extraction(classes, {}, Plain, MACHINE)
    assert empty.terms() is None
    assert empty.programs(4) == []


def test_large_e_graphs_are_left_alone():
    nodes = tuple((Node(Leaf(lit(float(k))), ()),) for k in range(4001))
    nothing = (frozenset(),) * len(nodes)
    classes = Classes(nodes, nothing, (0,), {}, nothing)
    assert Extraction(classes, {}, Plain, MACHINE).programs(4) == []


def test_values_of_all_programs_of_matrices():
    rng = np.random.default_rng(0)
    buffers = {"a": rng.random((64, 48)), "b": rng.random((48, 80)), "v": rng.random(80)}
    want = buffers["a"] @ (buffers["b"] @ buffers["v"])
    for (term,) in extraction(matrices).programs(24):
        np.testing.assert_allclose(evaluate_term(term, (M,), buffers), want, rtol=1e-12)
