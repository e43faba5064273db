"""Programs for the tests of the compile half: staged, flattened, with inputs and the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.egraph.encode import Encoded
from lumjax.grad.reverse import value_and_grad
from lumjax.kernel.evaluate import evaluate, evaluate_group
from lumjax.kernel.region import Alone, Region, Step, cut
from lumjax.kernel.term import Root
from lumjax.ops import arithmetic as ar
from lumjax.ops import compare as cm
from lumjax.ops import contract as ct
from lumjax.ops import conv as cv
from lumjax.ops import dynamic as dy
from lumjax.ops import elementwise as ew
from lumjax.ops import index as ix
from lumjax.ops import layout as la
from lumjax.ops import reduce as rd
from lumjax.ops import transcendental as tr
from lumjax.ops import view as vw
from lumjax.trace.aval import ShapedArray
from lumjax.trace.core import Array, Jaxpr, Value, Var, aval_of
from lumjax.trace.form import Expand
from lumjax.trace.stage import stage

f32, i32, b1 = dt.float32, dt.int32, dt.bool_


def aval(*shape: int, dtype: Any = f32) -> ShapedArray:
    return ShapedArray(shape, np.dtype(dtype))


def flat(jaxpr: Jaxpr) -> Jaxpr:
    """The program with expandable equations replaced by their definitions."""

    def run(*args: Value) -> list[Value]:
        env: dict[Any, Value] = dict(zip(jaxpr.inputs, args, strict=True))

        def read(atom: Any) -> Value:
            return env[atom] if atom in env else Array(atom.value, atom.aval.weak)

        for eqn in jaxpr.eqns:
            values = [read(a) for a in eqn.inputs]
            form = eqn.prim.form(*(a.aval for a in eqn.inputs), **eqn.params)
            if "jaxpr" in eqn.params and eqn.prim.name in ("call", "jit"):
                inner = eqn.params["jaxpr"]
                outs = run_inner(inner, values)
            elif isinstance(form, Expand):
                outs = eqn.prim.expand(*values, **eqn.params)
            else:
                outs = eqn.prim.bind(*values, **eqn.params)
            env.update(zip(eqn.outputs, outs, strict=True))
        return [read(a) for a in jaxpr.outputs]

    def run_inner(inner: Jaxpr, values: Sequence[Value]) -> list[Value]:
        env: dict[Any, Value] = dict(zip(inner.inputs, values, strict=True))
        for eqn in inner.eqns:
            args = [env[a] if a in env else Array(a.value, a.aval.weak) for a in eqn.inputs]
            env.update(zip(eqn.outputs, eqn.prim.bind(*args, **eqn.params), strict=True))
        return [env[a] if a in env else Array(a.value) for a in inner.outputs]

    for _ in range(6):
        staged = stage(run, jaxpr.in_avals)
        assert not staged.consts, "a definition closed over an array"
        same = len(staged.jaxpr.eqns) == len(jaxpr.eqns)
        jaxpr = staged.jaxpr
        if same:
            break
    return jaxpr


@dataclass(frozen=True)
class Program:
    name: str
    function: Callable[..., Any]
    avals: tuple[ShapedArray, ...]
    low: float = -1.0
    high: float = 1.0

    def jaxpr(self) -> Jaxpr:
        staged = stage(lambda *xs: _tuple(self.function(*xs)), self.avals)
        constants = [np.asarray(aval_of(c) and getattr(c, "data", c)) for c in staged.consts]
        assert not constants, "the corpus takes its arrays as arguments"
        return flat(staged.jaxpr)

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [self._draw(rng, a) for a in self.avals]

    def _draw(self, rng: np.random.Generator, a: ShapedArray) -> np.ndarray:
        if a.dtype == b1:
            return rng.random(a.shape) < 0.5
        if a.dtype.kind in "iu":
            return rng.integers(0, 4, a.shape).astype(a.dtype)
        return rng.uniform(self.low, self.high, a.shape).astype(a.dtype)


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def read(env: dict[Any, Any], atom: Any) -> Any:
    return env[atom] if isinstance(atom, Var) else atom.value


def run_steps(
    jaxpr: Jaxpr,
    args: Sequence[np.ndarray],
    run_region: Callable[[Region, list[Any]], list[Any]],
    limit: int = 256,
) -> list[np.ndarray]:
    """Run a program step by step: regions by `run_region`, the others through eval."""
    env: dict[Any, Any] = dict(zip(jaxpr.inputs, args, strict=True))
    for step in cut(jaxpr, limit):
        run_step(step, env, run_region)
    return [np.asarray(read(env, a)) for a in jaxpr.outputs]


def run_step(step: Step, env: dict[Any, Any], run_region: Callable[..., list[Any]]) -> None:
    match step:
        case Alone(eqn=eqn):
            args = [read(env, a) for a in eqn.inputs]
            outs = eqn.prim.eval(*args, **eqn.params)
            env.update(zip(eqn.outputs, outs, strict=True))
        case Region(inputs=inputs, outputs=outputs):
            outs = run_region(step, [env[v] for v in inputs])
            for v, out in zip(outputs, outs, strict=True):  # a plan's buffers have a dim per axis
                env[v] = np.asarray(out).reshape(v.aval.shape)


def evaluate_encoded(encoded: Encoded, args: Sequence[Any], wide: bool = False) -> list[np.ndarray]:
    """The outputs of an encoded region, stored values computed when they are needed."""
    buffers = {b.name: np.asarray(a) for b, a in zip(encoded.inputs, args, strict=True)}
    return evaluate_roots(encoded.roots, buffers, [r.buffer.name for r in encoded.outputs], wide)


def evaluate_roots(
    roots: Sequence[Root], buffers: dict[str, Any], names: Sequence[str], wide: bool = False
) -> list[np.ndarray]:
    waiting = list(roots)
    while waiting:
        before = len(waiting)
        for root in list(waiting):
            try:
                buffers[root.buffer.name] = evaluate(root, buffers, wide=wide)
            except KeyError:
                continue
            waiting.remove(root)
        assert len(waiting) < before, "roots read each other in a circle"
    return [buffers[n] for n in names]


def evaluate_plan(plan: Any, args: Sequence[Any]) -> list[np.ndarray]:
    """Run a plan group by group, each buffer written before it is read."""
    buffers = {b.name: np.asarray(a) for b, a in zip(plan.inputs, args, strict=True)}
    for group in plan.groups:
        buffers.update(evaluate_group(group, buffers))
    return [buffers[b.name] for b in plan.outputs]


def answer(jaxpr: Jaxpr, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the primitives' eval says."""
    env: dict[Any, Any] = dict(zip(jaxpr.inputs, args, strict=True))
    for eqn in jaxpr.eqns:
        values = [read(env, a) for a in eqn.inputs]
        env.update(zip(eqn.outputs, eqn.prim.eval(*values, **eqn.params), strict=True))
    return [np.asarray(read(env, a)) for a in jaxpr.outputs]


def assert_close(got: Sequence[np.ndarray], want: Sequence[np.ndarray], rtol: float = 3e-5) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        assert g.dtype == w.dtype
        if w.dtype == dt.bfloat16:
            g, w, rtol = g.astype(np.float32), w.astype(np.float32), 2e-2
        if w.dtype.kind == "f":
            scale = float(np.max(np.abs(w), initial=1.0, where=np.isfinite(w)))
            np.testing.assert_allclose(g, w, rtol=rtol, atol=rtol * scale)
        else:
            np.testing.assert_array_equal(g, w)


# ---- the corpus


def spread(x: Value, like: Value, axes: Sequence[int]) -> Value:
    shape = aval_of(like).shape
    kept = tuple(d for d in range(len(shape)) if d not in axes)
    return la.broadcast_in_dim(x, shape, kept)


def softmax(x: Value, axis: int) -> Value:
    e = tr.exp(ew.sub(x, spread(rd.reduce_max(x, (axis,)), x, (axis,))))
    return ar.div(e, spread(la.reduce_sum(e, (axis,)), e, (axis,)))


def layer_norm(x: Value, g: Value, b: Value) -> Value:
    n = np.float32(aval_of(x).shape[-1])
    mean = ar.div(la.reduce_sum(x, (1,)), n)
    d = ew.sub(x, spread(mean, x, (1,)))
    var = ar.div(la.reduce_sum(ew.mul(d, d), (1,)), n)
    y = ew.mul(d, spread(ar.rsqrt(ew.add(var, np.float32(1e-5))), x, (1,)))
    return ew.add(ew.mul(y, spread(g, x, (0,))), spread(b, x, (0,)))


def matmul(a: Value, b: Value) -> Value:
    return ct.dot_general(a, b, (((1,), (0,)), ((), ())))


def batched(a: Value, b: Value, transposed: bool) -> Value:
    return ct.dot_general(a, b, (((2,), (2 if transposed else 1,)), ((0,), (0,))))


def attention(q: Value, k: Value, v: Value) -> Value:
    return batched(softmax(ew.mul(batched(q, k, True), np.float32(0.5)), 2), v, False)


def cross_entropy(logits: Value, labels: Value) -> Value:
    m = rd.reduce_max(logits, (1,))
    z = ew.sub(logits, spread(m, logits, (1,)))
    lse = tr.log(la.reduce_sum(tr.exp(z), (1,)))
    iota = vw.broadcasted_iota(i32, aval_of(logits).shape, 1)
    hit = cm.eq(iota, spread(labels, logits, (1,)))
    picked = la.reduce_sum(ew.select(hit, z, la.full(aval_of(z).shape, np.float32(0))), (1,))
    n = np.float32(aval_of(logits).shape[0])
    return ar.div(la.reduce_sum(ew.sub(lse, picked), (0,)), n)


def relu(x: Value) -> Value:
    return ar.max(x, la.full(aval_of(x).shape, np.float32(0)))


def mlp(x: Value, labels: Value, w1: Value, b1: Value, w2: Value, b2: Value) -> Value:
    h = matmul(x, w1)
    h = relu(ew.add(h, spread(b1, h, (0,))))
    y = matmul(h, w2)
    return cross_entropy(ew.add(y, spread(b2, y, (0,))), labels)


def adam(p: Value, g: Value, m: Value, v: Value) -> tuple[Value, Value, Value]:
    m2 = ew.add(ew.mul(m, np.float32(0.9)), ew.mul(g, np.float32(0.1)))
    v2 = ew.add(ew.mul(v, np.float32(0.999)), ew.mul(ew.mul(g, g), np.float32(0.001)))
    step = ar.div(m2, ew.add(ar.sqrt(v2), np.float32(1e-8)))
    return ew.sub(p, ew.mul(step, np.float32(0.01))), m2, v2


def gelu_chain(x: Value) -> Value:
    return ew.mul(x, tr.logistic(ew.mul(x, np.float32(1.702))))


def take_rows(table: Value, rows: Value) -> Value:
    numbers = ix.GatherDimensionNumbers((1,), (0,), (0,))
    width = aval_of(table).shape[1]
    return ix.gather(table, rows, numbers, (1, width))


def conv(x: Value, k: Value, stride: int = 1) -> Value:
    return cv.conv_general_dilated(x, k, (stride, stride), "SAME")


def pool(x: Value) -> Value:
    n, c, h, w = aval_of(x).shape
    return rd.reduce_max(la.reshape(x, (n, c, h // 2, 2, w // 2, 2)), (3, 5))


def cnn(x: Value, labels: Value, k1: Value, k2: Value, w: Value) -> Value:
    h = pool(relu(conv(x, k1)))
    h = pool(relu(conv(h, k2)))
    n = aval_of(h).shape[0]
    return cross_entropy(matmul(la.reshape(h, (n, aval_of(w).shape[0])), w), labels)


def gradient(f: Callable[..., Value], *argnums: int) -> Callable[..., Any]:
    """The value and gradients of the sum of the outputs' squares."""

    def loss(*args: Value) -> Value:
        y = f(*args)
        axes = tuple(range(aval_of(y).ndim))
        return la.reduce_sum(ew.mul(y, y), axes) if axes else y

    def run(*args: Value) -> tuple[Value, ...]:
        value, grads = value_and_grad(loss, argnums=argnums)(*args)
        return (value, *grads)

    return run


_CNN = (aval(2, 1, 8, 8), aval(2, dtype=i32), aval(3, 1, 3, 3), aval(4, 3, 3, 3), aval(16, 5))
_MLP = (aval(8, 6), aval(8, dtype=i32), aval(6, 7), aval(7), aval(7, 4), aval(4))

PROGRAMS = (
    Program("conv", conv, (aval(2, 3, 6, 6), aval(4, 3, 3, 3))),
    Program(
        "conv-stride", lambda x, k: conv(ew.mul(x, x), k, 2), (aval(2, 3, 7, 7), aval(4, 3, 3, 3))
    ),
    Program(
        "conv-relu-conv",
        lambda x, k, m: conv(relu(conv(x, k)), m),
        (aval(2, 3, 6, 6), aval(4, 3, 3, 3), aval(2, 4, 3, 3)),
    ),
    Program("pool", lambda x: pool(tr.exp(x)), (aval(2, 3, 4, 4),)),
    Program("cnn-grad", gradient(cnn, 2, 3, 4), _CNN),
    Program(
        "conv-stride-grad",
        gradient(lambda x, k: conv(x, k, 2), 0, 1),
        (aval(2, 3, 7, 7), aval(4, 3, 3, 3)),
    ),
    Program("mlp-grad", gradient(mlp, 2, 3, 4, 5), _MLP),
    Program("layer-norm-grad", gradient(layer_norm, 0, 1, 2), (aval(6, 9), aval(9), aval(9))),
    Program("softmax-grad", gradient(lambda x: softmax(x, 1), 0), (aval(6, 9),)),
    Program("attention-grad", gradient(attention, 0, 1, 2), (aval(2, 6, 4),) * 3),
    Program("gelu-grad", gradient(gelu_chain, 0), (aval(7, 5),)),
    Program(
        "two-layers-grad",
        gradient(
            lambda x, a, b, g, c: layer_norm(
                ew.add(x, matmul(gelu_chain(matmul(layer_norm(x, g, c), a)), b)), g, c
            ),
            0,
            1,
            2,
            3,
            4,
        ),
        (aval(5, 4), aval(4, 6), aval(6, 4), aval(4), aval(4)),
    ),
    Program(
        "dynamic-slice",
        lambda x, i: dy.dynamic_slice(tr.exp(x), (i, np.int32(1)), (2, 2)),
        (aval(5, 4), aval(dtype=i32)),
    ),
    Program(
        "dynamic-update",
        lambda x, u, i: dy.dynamic_update_slice(x, tr.exp(u), (i, np.int32(1))),
        (aval(5, 4), aval(2, 2), aval(dtype=i32)),
    ),
    Program(
        "embedding-grad",
        gradient(lambda t, r: take_rows(t, la.reshape(r, (5, 1))), 0),
        (aval(6, 3), aval(5, dtype=i32)),
    ),
    Program("chain", gelu_chain, (aval(7, 5),)),
    Program("scalar", lambda x: ew.add(x, np.float32(1)), (aval(),)),
    Program("empty", lambda x: ew.mul(x, x), (aval(0, 3),)),
    Program("ones", lambda x, y: la.reduce_sum(ew.mul(x, y), (1,)), (aval(1, 1), aval(1, 1))),
    Program("sum-empty", lambda x: la.reduce_sum(x, (0,)), (aval(0, 3),)),
    Program("rows", lambda x: la.reduce_sum(tr.exp(x), (1,)), (aval(6, 9),)),
    Program("columns", lambda x: rd.reduce_max(x, (0,)), (aval(6, 9),)),
    Program("all", lambda x: la.reduce_sum(ew.mul(x, x), (0, 1)), (aval(6, 9),)),
    Program(
        "outer-sum",
        lambda r, x: la.reduce_sum(ew.mul(spread(r, x, (1,)), x), (1,)),
        (aval(6), aval(6, 9)),
    ),
    Program(
        "sum-of-broadcast",
        lambda r: la.reduce_sum(la.broadcast_in_dim(r, (6, 9), (0,)), (1,)),
        (aval(6),),
    ),
    Program("softmax", lambda x: softmax(x, 1), (aval(6, 9),)),
    Program("softmax-columns", lambda x: softmax(x, 0), (aval(6, 9),)),
    Program("layer-norm", layer_norm, (aval(6, 9), aval(9), aval(9))),
    Program("matmul", matmul, (aval(6, 4), aval(4, 5))),
    Program(
        "matvec", lambda a, v: ct.dot_general(a, v, (((1,), (0,)), ((), ()))), (aval(6, 4), aval(4))
    ),
    Program(
        "two-matmuls", lambda a, b, c: matmul(matmul(a, b), c), (aval(6, 8), aval(8, 9), aval(9, 2))
    ),
    Program(
        "gram", lambda x: matmul(ew.mul(x, x), la.transpose(ew.mul(x, x), (1, 0))), (aval(6, 4),)
    ),
    Program(
        "gram-heavy",
        lambda x, w: matmul(matmul(x, w), la.transpose(matmul(x, w), (1, 0))),
        (aval(6, 4), aval(4, 5)),
    ),
    Program("attention", attention, (aval(2, 6, 4), aval(2, 6, 4), aval(2, 6, 4))),
    Program("mlp", mlp, (aval(8, 6), aval(8, dtype=i32), aval(6, 7), aval(7), aval(7, 4), aval(4))),
    Program("adam", adam, (aval(5, 3),) * 4, low=0.1),
    Program("transpose", lambda x: la.transpose(x, (1, 0)), (aval(3, 4),)),
    Program("reshape", lambda x: la.reshape(ew.add(x, x), (2, 6)), (aval(3, 4),)),
    Program(
        "reshape-heavy", lambda x, w: la.reshape(matmul(x, w), (2, 15)), (aval(6, 4), aval(4, 5))
    ),
    Program("flip-self", lambda x: ew.add(x, la.rev(x, (0,))), (aval(5, 2),)),
    Program(
        "flip-heavy",
        lambda x, w: (lambda y: ew.add(y, la.rev(y, (0,))))(matmul(x, w)),
        (aval(6, 4), aval(4, 5)),
    ),
    Program(
        "square-diagonal",
        lambda x: ew.sub(x, spread(la.reduce_sum(x, (1,)), x, (0,))),
        (aval(5, 5),),
    ),
    Program(
        "transpose-self",
        lambda x: ew.add(tr.exp(x), la.transpose(tr.exp(x), (1, 0))),
        (aval(5, 5),),
    ),
    Program(
        "slice",
        lambda x: ew.mul(vw.slice(ew.add(x, x), (1, 0), (4, 3), (2, 1)), np.float32(3)),
        (aval(5, 3),),
    ),
    Program(
        "shift", lambda x: ew.sub(vw.slice(x, (1,), (7,)), vw.slice(x, (0,), (6,))), (aval(7),)
    ),
    Program(
        "pad", lambda x: vw.pad(tr.exp(x), np.float32(2), ((1, 2, 0), (0, 1, 1))), (aval(3, 4),)
    ),
    Program(
        "pad-plain", lambda x: vw.pad(x, np.float32(2), ((1, 2, 0), (-1, 1, 1))), (aval(3, 4),)
    ),
    Program(
        "concatenate",
        lambda x, y: vw.concatenate([tr.exp(x), y, ew.mul(y, y)], 0),
        (aval(2, 3), aval(4, 3)),
    ),
    Program("concatenate-empty", lambda x, y: vw.concatenate([x, y], 0), (aval(0, 3), aval(4, 3))),
    Program(
        "iota",
        lambda x: ew.add(x, ew.cast(vw.broadcasted_iota(i32, (4, 3), 1), f32)),
        (aval(4, 3),),
    ),
    Program(
        "causal",
        lambda x: ew.select(
            cm.ge(vw.broadcasted_iota(i32, (5, 5), 0), vw.broadcasted_iota(i32, (5, 5), 1)),
            x,
            la.full((5, 5), np.float32(-np.inf)),
        ),
        (aval(5, 5),),
    ),
    Program(
        "integers",
        lambda x, y: ew.add(ew.mul(x, y), ew.sub(x, x)),
        (aval(4, 3, dtype=i32), aval(4, 3, dtype=i32)),
    ),
    Program(
        "booleans",
        lambda x, y: rd.reduce_or(cm.and_(x, cm.not_(y)), (1,)),
        (aval(4, 3, dtype=b1), aval(4, 3, dtype=b1)),
    ),
    Program(
        "embedding",
        lambda t, r: tr.exp(take_rows(t, la.reshape(r, (5, 1)))),
        (aval(6, 3), aval(5, dtype=i32)),
    ),
    Program(
        "embedding-heavy",
        lambda x, w, r: take_rows(matmul(x, w), la.reshape(r, (5, 1))),
        (aval(6, 4), aval(4, 3), aval(5, dtype=i32)),
    ),
    Program("argmax", lambda x: rd.argmax(x, 1), (aval(5, 4),)),
    Program("half", lambda x: la.reduce_sum(ew.mul(x, x), (1,)), (aval(4, 6, dtype=dt.bfloat16),)),
    Program(
        "norm-clip",
        lambda g: ew.mul(g, spread(ar.rsqrt(la.reduce_sum(ew.mul(g, g), (0, 1))), g, (0, 1))),
        (aval(6, 9),),
        low=0.1,
    ),
)

BY_NAME = {p.name: p for p in PROGRAMS}
