import threading
import time

import numpy as np
import pytest

from lumjax import dtype as dt
from lumjax.egraph.rules.algebra import CORE, IDENTITIES
from lumjax.egraph.rules.registry import load
from lumjax.egraph.rules.witness import I, J, lit, op, reduction, total
from lumjax.egraph.rules.witness import load as leaf
from lumjax.egraph.scalar import OPS
from lumjax.egraph.terms import (
    FOLD,
    FactError,
    Graph,
    Leaf,
    Operation,
    Reducing,
    Saturation,
    warm_graph,
)
from lumjax.kernel.term import Axis, Buffer, Index, Lit, Load, Reduction
from lumjax.trace.dim import symbol
from lumjax.trace.form import ReduceOp

x, row = leaf("x", I, J), leaf("r", I)


class Plain:
    by_name = OPS
    names = {o: n for n, o in OPS.items()}


def late():
    return time.thread_time() + 60


def test_round_trip():
    gather = Load(
        Buffer("t", (4, 7), dt.float64),
        (symbol("g0", 0, 3), symbol("j", 0, 6)),
        indices=(("g0", leaf("n", I, dtype=dt.int32)),),
    )
    iota = Index(symbol("i", 0, 4), dt.float64)
    terms = [
        op("select", op("not", leaf("p", I, dtype=dt.bool_)), x, total((J,), gather)),
        reduction(ReduceOp.MAX, (I, J), op("add", x, iota)),
        lit(float("nan")),
    ]
    with warm_graph(load()).session(Plain) as session:
        session.insert(terms)
        session._facts(Saturation())
        found = session.read()
    shapes = [n.shape for nodes in found.nodes for n in nodes]
    assert sum(isinstance(s, Reducing) for s in shapes) == 2
    assert {s.name for s in shapes if isinstance(s, Operation)} == {"select", "not", "add"}
    assert gather in [s.term for s in shapes if isinstance(s, Leaf)]
    free = dict(zip(found.roots, [found.free[r] for r in found.roots], strict=True))
    assert [free[r] for r in found.roots] == [{"i", "j"}, frozenset(), frozenset()]


def folded(term):
    with warm_graph(load()).session(Plain) as session:
        session.insert([term])
        done = session.saturate(8, 1000, late())
        found = session.read()
    lits = [n.shape.term for n in found.nodes[found.roots[0]] if isinstance(n.shape, Leaf)]
    return [t for t in lits if isinstance(t, Lit)], done


@pytest.mark.parametrize(
    ("term", "value"),
    [
        (op("add", lit(0.1, dt.float32), lit(0.2, dt.float32)), np.float32(0.1) + np.float32(0.2)),
        (op("mul", lit(200, dt.int8), lit(2, dt.int8)), np.int8(-112)),
        (op("neg", lit(0.0)), -0.0),
        (op("div", lit(1.0), lit(0.0)), np.inf),
        (op("sub", lit(np.inf), lit(np.inf)), np.nan),
        (op("cast", lit(300.7), dtype=dt.int8), np.int8(127)),
        (op("cast", lit(np.nan), dtype=dt.int32), np.int32(0)),
        (op("select", lit(True, dt.bool_), lit(1.0), lit(2.0)), 1.0),
        (op("exp", op("add", lit(1.0), lit(1.0))), np.exp(2.0)),
    ],
)
def test_constants_fold_in_their_dtype(term, value):
    lits, done = folded(term)
    assert [np.frombuffer(t.bits, t.dtype)[0] for t in lits] == [
        pytest.approx(value, nan_ok=True, rel=0)
    ]
    got = np.frombuffer(lits[0].bits, term.dtype)[0]
    assert (
        np.signbit(got) == np.signbit(np.asarray(value)) or np.isnan(got) or term.dtype.kind != "f"
    )
    assert done.fired[FOLD] >= 1


def test_folding_does_not_go_on_for_ever():
    chain = x
    for k in range(30):
        chain = op("mul", chain, lit(1.0 + k / 64))
    with warm_graph(load()).session(Plain) as session:
        session.insert([chain])
        done = session.saturate(40, 5000, late())
    assert done.saturated
    assert done.nodes < 300


def test_nan_and_zero_literals_stay_apart():
    quiet, payload = Lit(dt.float32, b"\x00\x00\xc0\x7f"), Lit(dt.float32, b"\x01\x00\xc0\x7f")
    terms = [quiet, payload, lit(0.0), lit(-0.0), lit(0, dt.int32), lit(False, dt.bool_)]
    with warm_graph(load()).session(Plain) as session:
        session.insert(terms)
        session.saturate(8, 1000, late())
        roots = session.read().roots
    assert len(set(roots)) == len(terms)


def test_sessions_leave_nothing_behind():
    graph = Graph(IDENTITIES)
    sizes = []
    for _ in range(3):
        with graph.session(Plain) as session:
            session.insert([op("add", x, row)])
            session.saturate(4, 1000, late())
            sizes.append(session.size())
    assert len(set(sizes)) == 1
    with pytest.raises(RuntimeError, match="stop"), graph.session(Plain):
        raise RuntimeError("stop")
    with graph.session(Plain) as session:
        assert session.size() == 0


def test_threads_have_their_own():
    sizes = []

    def work():
        graph = warm_graph(IDENTITIES)
        with graph.session(Plain) as session:
            session.insert([op("add", x, lit(-0.0))])
            session.saturate(4, 1000, late())
            sizes.append((id(graph), session.size()))
        assert warm_graph(IDENTITIES) is graph

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
        t.join()
    work()
    assert len({size for _, size in sizes}) == 1


def test_sessions_do_not_nest():
    graph = Graph(IDENTITIES)
    with graph.session(Plain), pytest.raises(RuntimeError, match="one session"):
        graph.session(Plain).__enter__()


def test_extents_that_a_dtype_cannot_hold_are_not_factors():
    long = Axis("j", 4099)  # not a float16, and past 2**8 for int8, where sums wrap alike
    for dtype, expected in ((dt.float16, False), (dt.float32, True), (dt.int8, True)):
        summed = Reduction(ReduceOp.SUM, frozenset({long}), leaf("r", I, dtype=dtype), dtype)
        with warm_graph(load()).session(Plain) as session:
            session.insert([summed])
            session.saturate(8, 1000, late())
            found = session.read()
        shapes = [n.shape for n in found.nodes[found.roots[0]]]
        assert any(isinstance(s, Operation) for s in shapes) == expected


def test_size_bound_stops():
    products = x
    for k in range(12):
        products = op("mul", products, leaf(f"y{k}", I if k % 2 else J))
    with warm_graph(load()).session(Plain) as session:
        session.insert([total((I, J), products)])
        done = session.saturate(30, 60, late())
    assert not done.saturated
    assert not done.truncated


def test_clock_stops_and_marks():
    with warm_graph(load()).session(Plain) as session:
        session.insert([total((J,), op("mul", row, x))])
        done = session.saturate(30, 10000, time.thread_time() - 1)
    assert done.truncated


def test_a_contradiction_is_an_error():
    """A rule that equates terms of different dtypes is caught by the dtype fact."""
    from dataclasses import replace

    wrong = replace(IDENTITIES[0], left="(cast d x)", right="x", guard="")
    with Graph((wrong,)).session(Plain) as session:
        session.insert([op("cast", x, dtype=dt.float32)])
        with pytest.raises(FactError):
            session.saturate(4, 1000, late())


def test_a_missing_fact_is_an_error():
    with Graph(CORE).session(Plain) as session:
        session.insert([op("exp", x)])
        with pytest.raises(FactError, match="no free or no bound axes"):
            session.read()
