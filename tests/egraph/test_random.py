"""Random programs: a plan computes what eval says, whatever was stored, jammed or rewritten."""

import numpy as np
import pytest

from lumjax.config import config
from lumjax.egraph.search import search
from lumjax.kernel.emit import Reject
from lumjax.kernel.lower import lower as real_lower
from lumjax.ops import arithmetic as ar
from lumjax.ops import compare as cm
from lumjax.ops import contract as ct
from lumjax.ops import elementwise as ew
from lumjax.ops import layout as la
from lumjax.ops import reduce as rd
from lumjax.ops import transcendental as tr
from lumjax.ops import view as vw
from lumjax.target import Backend, Target
from lumjax.trace.core import aval_of
from tests.egraph import programs as pr

TARGET = Target(Backend.CPU, "generic", "", 32, 16, 2)
SIZES = (0, 1, 1, 2, 3, 4, 5)


class Maker:
    """Draws a program; every draw depends on the seed alone, so that tracing repeats it."""

    def __init__(self, seed):
        self.seed = seed

    def __call__(self, *inputs):
        self.rng = np.random.default_rng(self.seed)
        values = list(inputs)
        for _ in range(int(self.rng.integers(4, 16))):
            step = STEPS[int(self.rng.integers(len(STEPS)))]
            made = step(self, self.pick(values), values)
            if made is not None and len(aval_of(made).shape) <= 3 and size(made) <= 400:
                values.append(made)
        outs = values[len(inputs) :] or values[:1]
        chosen = self.rng.permutation(len(outs))[: 1 + int(self.rng.integers(3))]
        return [self.finish(outs[k]) for k in sorted(chosen)]

    def finish(self, v):
        return v

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def like(self, v, values):
        found = [w for w in values if aval_of(w).shape == aval_of(v).shape and is_float(w)]
        return self.pick(found) if found else v

    def axis(self, v):
        return int(self.rng.integers(aval_of(v).ndim))


def size(v):
    return int(np.prod(aval_of(v).shape))


def is_float(v):
    return aval_of(v).dtype.kind == "f"


def unary(m, v, values):
    if not is_float(v):
        return ew.cast(v, pr.f32)
    f = (tr.tanh, ew.neg, ar.abs, ew.neg, tr.logistic)[int(m.rng.integers(5))]
    return f(v)


def binary(m, v, values):
    if not is_float(v):
        return ew.mul(v, v) if aval_of(v).dtype.kind == "i" else cm.not_(v)
    w = m.like(v, values)
    f = (ew.add, ew.sub, ew.mul, ar.max, ar.min)[int(m.rng.integers(5))]
    return ew.mul(f(v, w), np.float32(0.5))


def constant(m, v, values):
    if not is_float(v):
        return None
    c = np.float32((0.0, -0.0, 1.0, -1.0, 0.25)[int(m.rng.integers(5))])
    f = (ew.add, ew.sub, ew.mul)[int(m.rng.integers(3))]
    return f(v, c)


def choose(m, v, values):
    if not is_float(v):
        return None
    return ew.select(cm.gt(v, m.like(v, values)), v, m.like(v, values))


def reduce(m, v, values):
    if not aval_of(v).ndim:
        return None
    axes = (m.axis(v),) if m.rng.random() < 0.7 else tuple(range(aval_of(v).ndim))
    if aval_of(v).dtype.kind == "b":
        return rd.reduce_or(v, axes)
    n = int(np.prod([aval_of(v).shape[a] for a in axes]))
    if m.rng.random() < 0.4:
        return rd.reduce_max(v, axes) if n else None
    total = la.reduce_sum(v, axes)
    return ew.mul(total, np.float32(1 / max(n, 1))) if is_float(v) else total


def widen(m, v, values):
    shape = list(aval_of(v).shape)
    at = int(m.rng.integers(len(shape) + 1))
    shape.insert(at, int(m.rng.integers(1, 5)))
    return la.broadcast_in_dim(v, tuple(shape), [d for d in range(len(shape)) if d != at])


def turn(m, v, values):
    return la.transpose(v, tuple(int(k) for k in m.rng.permutation(aval_of(v).ndim)))


def reshape(m, v, values):
    shape = aval_of(v).shape
    return la.reshape(v, (size(v),)) if m.rng.random() < 0.5 else la.reshape(v, (1, *shape[::-1]))


def flip(m, v, values):
    return la.rev(v, (m.axis(v),)) if aval_of(v).ndim else None


def crop(m, v, values):
    if not aval_of(v).ndim:
        return None
    shape = aval_of(v).shape
    start = [int(m.rng.integers(n + 1)) for n in shape]
    stop = [int(m.rng.integers(s, n + 1)) for s, n in zip(start, shape, strict=True)]
    return vw.slice(v, start, stop, [int(m.rng.integers(1, 3)) for _ in shape])


def pad(m, v, values):
    if not aval_of(v).ndim or not is_float(v):
        return None
    edges = [
        (int(m.rng.integers(-1, 3)), int(m.rng.integers(3)), int(m.rng.integers(2)))
        for _ in aval_of(v).shape
    ]
    if any(n + lo + hi < 0 for n, (lo, hi, _) in zip(aval_of(v).shape, edges, strict=True)):
        return None
    return vw.pad(v, np.float32(0.5), edges)


def join(m, v, values):
    if not aval_of(v).ndim or not is_float(v):
        return None
    return vw.concatenate([v, m.like(v, values), v], m.axis(v))


def product(m, v, values):
    if not is_float(v) or not aval_of(v).ndim:
        return None
    n = aval_of(v).shape[-1]
    found = [w for w in values if is_float(w) and aval_of(w).ndim and aval_of(w).shape[0] == n]
    if not found:
        return None
    last = aval_of(v).ndim - 1
    y = ct.dot_general(v, m.pick(found), (((last,), (0,)), ((), ())))
    return ew.mul(y, np.float32(1 / max(n, 1)))


def count(m, v, values):
    shape = aval_of(v).shape
    if not shape:
        return None
    return ew.cast(vw.broadcasted_iota(pr.i32, shape, m.axis(v)), pr.f32)


STEPS = (
    unary, unary, binary, binary, binary, constant, choose, reduce, reduce, reduce, widen, turn,
    reshape, flip, crop, pad, join, product, product, count,
)  # fmt: skip


def program(seed):
    rng = np.random.default_rng(seed + 10**6)
    avals = []
    for _ in range(int(rng.integers(1, 4))):
        shape = [SIZES[int(rng.integers(len(SIZES)))] for _ in range(int(rng.integers(4)))]
        dtype = (pr.f32, pr.f32, pr.f32, pr.i32, pr.b1)[int(rng.integers(5))]
        avals.append(pr.aval(*shape, dtype=dtype))
    return pr.Program(f"random-{seed}", Maker(seed), tuple(avals))


def check(seed, lower=None):
    made = program(seed)
    jaxpr, args = made.jaxpr(), made.inputs(seed)
    with config.scope(cache=False):
        got = pr.run_steps(
            jaxpr, args, lambda r, v: pr.evaluate_plan(search(r, TARGET, lower=lower).plan, v)
        )
    pr.assert_close(got, pr.answer(jaxpr, args), rtol=2e-4)


@pytest.mark.parametrize("block", range(8))
def test_plans_of_random_programs(block):
    for seed in range(block * 10, block * 10 + 10):
        check(seed)


@pytest.mark.parametrize("block", range(2))
def test_plans_with_capricious_lowering(block):
    """A `lower` that rejects at random terms still ends in a right plan."""
    for seed in range(block * 10, block * 10 + 10):
        rng = np.random.default_rng(seed)

        def lower(group):
            if rng.random() < 0.5:
                return Reject(group.roots[int(rng.integers(len(group.roots)))].term, "a whim")
            return real_lower(group, TARGET)

        check(seed + 1000, lower)
