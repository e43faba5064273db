"""Programs as people write them, for the tests of rules and extraction; no constant arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import nn
from lumjax.kernel.region import Region, classify
from lumjax.trace.simplify import simplify
from tests.egraph import programs as pr

f32 = np.float32
T, D, V, N = 12, 4, 30, 8
QKV = (pr.aval(2, 3, T, D),) * 3


def region_of(function: Callable[..., Any], avals: Any) -> Region:
    """The whole program as one region, however it would be cut."""
    jaxpr = simplify(pr.Program("", function, tuple(avals)).jaxpr())
    forms = tuple(map(classify, jaxpr.eqns))
    outputs = tuple(dict.fromkeys(jaxpr.outputs))
    return Region(tuple(jaxpr.inputs), outputs, tuple(jaxpr.eqns), forms, "")


def scores(q: Any, k: Any) -> Any:
    return jnp.einsum("bhid,bhjd->bhij", q, k) / f32(2)


def mix(p: Any, v: Any) -> Any:
    return jnp.einsum("bhij,bhje->bhie", p, v)


def weights(s: Any) -> Any:
    e = jnp.exp(s - jnp.max(s, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def places() -> tuple[Any, Any]:
    return jnp.arange(T)[:, None], jnp.arange(T)[None, :]


def naive(q: Any, k: Any, v: Any) -> Any:
    return mix(weights(scores(q, k)), v)


def library(q: Any, k: Any, v: Any) -> Any:
    return mix(nn.softmax(scores(q, k), -1), v)


def sloped(q: Any, k: Any, v: Any) -> Any:
    i, j = places()
    slopes = jnp.exp2(-jnp.arange(3).astype(f32))
    return mix(weights(scores(q, k) + slopes[:, None, None] * (j - i)), v)


def capped(q: Any, k: Any, v: Any) -> Any:
    return mix(weights(f32(30) * jnp.tanh(scores(q, k) / f32(30))), v)


def windowed(q: Any, k: Any, v: Any) -> Any:
    i, j = places()
    return mix(nn.softmax(jnp.where((j <= i) & (i - j < 4), scores(q, k), -jnp.inf), -1), v)


def causal(q: Any, k: Any, v: Any) -> Any:
    i, j = places()
    return mix(weights(jnp.where(j <= i, scores(q, k), -jnp.inf)), v)


def additive(q: Any, k: Any, v: Any) -> Any:
    i, j = places()
    return mix(weights(scores(q, k) + jnp.where(j <= i, 0.0, -1e9)), v)


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return mix(nn.softmax(jnp.where(mask, scores(q, k), -jnp.inf), -1), v)


def somewhere(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return mix(nn.softmax(scores(q, k), -1, where=mask), v)


def dropped(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return mix(jnp.where(mask, weights(scores(q, k)) / f32(0.9), 0), v)


def grouped(q: Any, k: Any, v: Any) -> Any:
    s = jnp.einsum("bgrid,bgjd->bgrij", q, k) * f32(0.5)
    return jnp.einsum("bgrij,bgje->bgrie", weights(s), v)


def layout(q: Any, k: Any, v: Any) -> Any:
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / f32(2)
    return jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(s, -1), v)


def heated(q: Any, k: Any, v: Any, t: Any) -> Any:
    return mix(weights(scores(q, k) * t[None, :, None, None]), v)


def heated_late(q: Any, k: Any, v: Any, t: Any) -> Any:
    s = scores(q, k)
    shifted = s - jnp.max(s, -1, keepdims=True)
    e = jnp.exp(shifted * jnp.exp(t)[None, :, None, None])
    return mix(e / jnp.sum(e, -1, keepdims=True), v)


def sinking(q: Any, k: Any, v: Any, t: Any) -> Any:
    s, t = scores(q, k), t[None, :, None, None]
    m = jnp.maximum(jnp.max(s, -1, keepdims=True), t)
    e = jnp.exp(s - m)
    return mix(e / (jnp.sum(e, -1, keepdims=True) + jnp.exp(t - m)), v)


def squared(q: Any, k: Any, v: Any) -> Any:
    p = weights(scores(q, k))
    return mix(p * p, v)


def by_logarithm(q: Any, k: Any, v: Any) -> Any:
    s = scores(q, k)
    return mix(jnp.exp(s - nn.logsumexp(s, -1, keepdims=True)), v)


def by_logarithms(q: Any, k: Any, v: Any) -> Any:
    return mix(jnp.exp(nn.log_softmax(scores(q, k), -1)), v)


def half(q: Any, k: Any, v: Any) -> Any:
    return mix(nn.softmax(scores(q, k).astype(f32), -1).astype(v.dtype), v)


def with_gradients(f: Callable[..., Any], *argnums: int) -> Callable[..., Any]:
    """The value and the gradients for a cotangent that comes last."""

    def run(*args: Any) -> tuple[Any, ...]:
        *xs, ct = args

        def inner(*some: Any) -> Any:
            whole = list(xs)
            for n, x in zip(argnums, some, strict=True):
                whole[n] = x
            return f(*whole)

        out, pull = lumjax.vjp(inner, *(xs[n] for n in argnums))
        return (out, *pull(ct))

    return run


def labelled(h: Any, w: Any, y: Any) -> Any:
    z = h @ w
    picked = jnp.take_along_axis(z, y[:, None], -1)[:, 0]
    return jnp.mean(nn.logsumexp(z, -1) - picked)


def labelled_logs(h: Any, w: Any, y: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(nn.log_softmax(h @ w, -1), y[:, None], -1)[:, 0])


def one_hot_logs(h: Any, w: Any, y: Any) -> Any:
    return -jnp.mean(jnp.sum(nn.one_hot(y, V) * nn.log_softmax(h @ w, -1), -1))


def spread(x: Any) -> Any:
    """The entropy of all rows together."""
    p = nn.softmax(x, -1)
    return -jnp.sum(p * nn.log_softmax(x, -1))


def contrastive(a: Any, b: Any) -> Any:
    z = a @ b.T / f32(0.1)
    own = jnp.diagonal(nn.log_softmax(z, -1)) + jnp.diagonal(nn.log_softmax(z, 0))
    return -jnp.mean(own)


def gradients(f: Callable[..., Any], *argnums: int) -> Callable[..., Any]:
    def run(*args: Any) -> tuple[Any, ...]:
        value, grads = lumjax.value_and_grad(f, argnums)(*args)
        return (value, *grads)

    return run


def standardized(x: Any, g: Any, b: Any) -> Any:
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * g + b


LINEAR = (pr.aval(N, D), pr.aval(D, V), pr.aval(N, dtype=np.int32))
HEADS = pr.aval(3)
GROUPS = (pr.aval(2, 2, 3, T, D), pr.aval(2, 2, T, D), pr.aval(2, 2, T, D))
BTHD = (pr.aval(2, T, 3, D),) * 3
BF16 = (pr.aval(2, 3, T, D, dtype=pr.dt.bfloat16),) * 3
ROWS = (pr.aval(N, V), pr.aval(V), pr.aval(V))

# Row programs whose forward pass needs no second loop over a row.
ONCE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "naive": (naive, QKV),
    "library": (library, QKV),
    "sloped": (sloped, QKV),
    "capped": (capped, QKV),
    "windowed": (windowed, QKV),
    "causal": (causal, QKV),
    "additive": (additive, QKV),
    "masked": (masked, (*QKV, pr.aval(T, T, dtype=np.bool_))),
    "somewhere": (somewhere, (*QKV, pr.aval(T, T, dtype=np.bool_))),
    "dropped": (dropped, (*QKV, pr.aval(T, T, dtype=np.bool_))),
    "grouped": (grouped, GROUPS),
    "layout": (layout, BTHD),
    "heated": (heated, (*QKV, HEADS)),
    "heated-late": (heated_late, (*QKV, HEADS)),
    "sinking": (sinking, (*QKV, HEADS)),
    "squared": (squared, QKV),
    "by-logarithm": (by_logarithm, QKV),
    "by-logarithms": (by_logarithms, QKV),
    "half": (half, BF16),
    "logsumexp": (lambda x: nn.logsumexp(x, -1), (pr.aval(N, V),)),
    "contrastive": (contrastive, (pr.aval(N, D),) * 2),
    "one-hot-logs": (one_hot_logs, LINEAR),
    "all-logsumexp": (lambda x: jnp.sum(jnp.exp(x - jnp.max(x, -1, keepdims=True))), ROWS[:1]),
    "spread": (spread, ROWS[:1]),
}
# Programs with gradients: some sum follows a statistic.
BOTH: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{
        f"{name}-grad": (with_gradients(ONCE[name][0], 0, 1, 2), (*ONCE[name][1], ONCE[name][1][0]))
        for name in (
            "naive", "library", "sloped", "capped", "windowed", "causal", "additive", "masked",
            "grouped", "layout", "sinking", "squared", "by-logarithm",
        )
    },
    "labelled": (labelled, LINEAR),
    "labelled-grad": (gradients(labelled, 0, 1), LINEAR),
    "labelled-logs-grad": (gradients(labelled_logs, 0, 1), LINEAR),
    "one-hot-logs-grad": (gradients(one_hot_logs, 0, 1), LINEAR),
    "contrastive-grad": (gradients(contrastive, 0, 1), (pr.aval(N, D),) * 2),
}  # fmt: skip
# Programs in which no statistic is known before its row.
OTHERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "standardized": (standardized, ROWS),
    "standardized-grad": (with_gradients(standardized, 0, 1, 2), (*ROWS, pr.aval(N, V))),
}
ALL = {**ONCE, **BOTH, **OTHERS}
