"""The programs that the search is judged by: naive sources, as people write them.

Each has a builder that takes a size and returns a function and its arguments. Sizes are such that
one unit is quick enough for a test; `python -m benchmarks derive` runs larger ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import nn, optim

Built: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...]]"


@dataclass(frozen=True)
class Program:
    """A program of the table. `small` and `large` are sizes for `build`.

    `kernels` is how many it must become (launches if `by_launches`); `forbidden` tells how many
    elements no stored value may have, as a function of the size.
    """

    build: Callable[[int], Built]
    small: int
    large: int
    kernels: int
    forbidden: Callable[[int], int] | None = None
    by_launches: bool = False


def _normal(seed: int, *shape: int, scale: float = 1.0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    return jnp.array(values.astype(np.float32))


# ---- elementwise and rows


def chain(n: int) -> Built:
    """Fifty elementwise operations."""

    def f(x: Any) -> Any:
        for _ in range(12):
            x = jnp.exp2(jnp.sin(x)) * 2 + 1
        return x

    return f, (_normal(0, n, 128),)


def softmax(n: int) -> Built:
    return lambda x: nn.softmax(x, -1), (_normal(0, n, 1000),)


def log_softmax(n: int) -> Built:
    return lambda x: nn.log_softmax(x, -1), (_normal(0, n, 1000),)


def plain_softmax(x: Any) -> Any:
    """As people write it; its maximum is differentiated too."""
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def softmax_plain(n: int) -> Built:
    return plain_softmax, (_normal(0, n, 1000),)


def log_softmax_plain(n: int) -> Built:
    def f(x: Any) -> Any:
        top = jnp.max(x, -1, keepdims=True)
        return x - top - jnp.log(jnp.sum(jnp.exp(x - top), -1, keepdims=True))

    return f, (_normal(0, n, 1000),)


def logsumexp(n: int) -> Built:
    return lambda x: nn.logsumexp(x, -1), (_normal(0, n, 1000),)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    """Layer norm over the last axis."""
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + bias


def rms_norm(x: Any, scale: Any) -> Any:
    """Root-mean-square norm over the last axis."""
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def layer_norm_forward(n: int) -> Built:
    return layer_norm, (_normal(0, n, 256), _normal(1, 256), _normal(2, 256))


def rms_norm_forward(n: int) -> Built:
    return rms_norm, (_normal(0, n, 256), _normal(1, 256))


def _backward(f: Callable[..., Any], args: tuple[Any, ...]) -> Built:
    """The cotangents of all arguments for a given cotangent of the result."""
    weight = _normal(9, *jnp.shape(f(*args)))
    everything = tuple(range(len(args)))

    def backward(weight: Any, *args: Any) -> Any:
        return lumjax.grad(lambda *a: jnp.sum(f(*a) * weight), everything)(*args)

    return backward, (weight, *args)


def layer_norm_backward(n: int) -> Built:
    return _backward(*layer_norm_forward(n))


def rms_norm_backward(n: int) -> Built:
    return _backward(*rms_norm_forward(n))


# ---- contractions


def gelu_linear(n: int) -> Built:
    args = (_normal(0, n, 192), _normal(1, 192, 384, scale=0.1), _normal(2, 384))
    return lambda x, w, b: nn.gelu(x @ w + b), args


def chained(n: int) -> Built:
    args = (_normal(0, n, n), _normal(1, n, n), _normal(2, n))
    return lambda a, b, v: (a @ b) @ v, args


def _attention(
    score: Callable[[Any, Any, Any], Any], softmax: Callable[[Any], Any] = nn.softmax
) -> Callable[..., Any]:
    """Attention whose scores `score` changes; it sees row and column numbers."""

    def f(q: Any, k: Any, v: Any) -> Any:
        s = jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
        rows, columns = jnp.arange(q.shape[1])[:, None], jnp.arange(k.shape[1])[None, :]
        p = softmax(score(s, rows, columns))
        return jnp.einsum("hqk,hkd->hqd", p, v)

    return f


def _heads(t: int, heads: int = 2, width: int = 32) -> tuple[Any, ...]:
    return tuple(_normal(k, heads, t, width) for k in range(3))


def attention(t: int) -> Built:
    return _attention(lambda s, i, j: s), _heads(t)


def causal(t: int) -> Built:
    return _attention(lambda s, i, j: jnp.where(i >= j, s, -jnp.inf)), _heads(t)


def causal_finite(t: int) -> Built:
    lowest = float(np.finfo(np.float32).min)
    return _attention(lambda s, i, j: jnp.where(i >= j, s, lowest)), _heads(t)


def causal_additive(t: int) -> Built:
    return _attention(lambda s, i, j: s + jnp.where(i >= j, 0.0, -1e9)), _heads(t)


def window(t: int) -> Built:
    near = 64
    return (
        _attention(lambda s, i, j: jnp.where((i >= j) & (i - j < near), s, -jnp.inf)),
        _heads(t),
    )


def alibi(t: int) -> Built:
    def score(s: Any, i: Any, j: Any) -> Any:
        slope = 2.0 ** -(jnp.arange(s.shape[0]) + 1.0)
        return s - slope[:, None, None] * jnp.abs(i - j)

    return _attention(score), _heads(t)


def soft_cap(t: int) -> Built:
    return _attention(lambda s, i, j: 30.0 * jnp.tanh(s / 30.0)), _heads(t)


def grouped(t: int) -> Built:
    """Four query heads share each key and value head."""

    def f(q: Any, k: Any, v: Any) -> Any:
        k, v = jnp.repeat(k, 4, axis=0), jnp.repeat(v, 4, axis=0)
        return _attention(lambda s, i, j: s)(q, k, v)

    return f, (_normal(0, 8, t, 32), _normal(1, 2, t, 32), _normal(2, 2, t, 32))


def attention_backward(t: int) -> Built:
    return _backward(*attention(t))


def causal_backward(t: int) -> Built:
    return _backward(*causal(t))


def attention_plain(t: int) -> Built:
    return _attention(lambda s, i, j: s, plain_softmax), _heads(t)


def causal_plain(t: int) -> Built:
    return _attention(lambda s, i, j: jnp.where(i >= j, s, -jnp.inf), plain_softmax), _heads(t)


def attention_plain_backward(t: int) -> Built:
    return _backward(*attention_plain(t))


def causal_plain_backward(t: int) -> Built:
    return _backward(*causal_plain(t))


def projections(t: int) -> Built:
    """One projection to queries, keys and values, heads, attention, merge, projection."""
    heads, width = 4, 32

    def f(x: Any, qkv: Any, out: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = jnp.split(x @ qkv, 3, axis=-1)
        q, k, v = (jnp.transpose(a.reshape(b, t, heads, width), (0, 2, 1, 3)) for a in (q, k, v))
        p = nn.softmax(q @ jnp.swapaxes(k, -1, -2) * width**-0.5, -1)
        merged = jnp.transpose(p @ v, (0, 2, 1, 3)).reshape(b, t, heads * width)
        return merged @ out

    d = heads * width
    args = (_normal(0, 2, t, d), _normal(1, d, 3 * d, scale=0.1), _normal(2, d, d, scale=0.1))
    return f, args


# ---- losses


def label_loss(logits: Any, labels: Any) -> Any:
    """Cross entropy with integer labels, as optax writes it."""
    top = jnp.max(logits, axis=-1, keepdims=True)
    shifted = logits - lumjax.lax.stop_gradient(top)
    mine = jnp.take_along_axis(shifted, labels[..., None], axis=-1).squeeze(-1)
    return jnp.mean(jnp.log(jnp.sum(jnp.exp(shifted), axis=-1)) - mine)


def _labels(n: int, classes: int) -> Any:
    return jnp.array(np.random.default_rng(7).integers(0, classes, n).astype(np.int32))


def labels_forward(n: int) -> Built:
    return label_loss, (_normal(0, n, 1000), _labels(n, 1000))


def labels_backward(n: int) -> Built:
    return lumjax.grad(label_loss), labels_forward(n)[1]


def linear_loss(n: int) -> Built:
    """A linear layer to many classes and its loss, with both gradients."""
    classes = 25 * n

    def f(x: Any, w: Any, labels: Any) -> Any:
        return lumjax.value_and_grad(lambda x, w: label_loss(x @ w, labels), (0, 1))(x, w)

    return f, (_normal(0, n, 64), _normal(1, 64, classes, scale=0.1), _labels(n, classes))


def contrastive(n: int) -> Built:
    """InfoNCE in both directions over a batch, with both gradients."""

    def loss(a: Any, b: Any) -> Any:
        a = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
        b = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
        s = a @ b.T / 0.07
        mine = jnp.sum(a * b, -1) / 0.07
        return jnp.mean(nn.logsumexp(s, 1) + nn.logsumexp(s, 0) - 2 * mine) / 2

    return lumjax.value_and_grad(loss, (0, 1)), (_normal(0, n, 64), _normal(1, n, 64))


# ---- trees and convolutions


def adam(n: int) -> Built:
    """One step of Adam over n leaves of different shapes."""
    params = {f"p{k}": _normal(k, 8 + k % 7, 16 + k % 5) for k in range(n)}
    grads = {name: 0.1 * p for name, p in params.items()}
    rule = optim.adam(1e-3)

    def step(params: Any, grads: Any, state: Any) -> Any:
        updates, state = rule.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    return step, (params, grads, rule.init(params))


def _convolve(x: Any, w: Any) -> Any:
    return lumjax.lax.conv_general_dilated(
        x,
        w,
        (2, 2),
        ((1, 1), (1, 1)),
        rhs_dilation=(2, 2),
        feature_group_count=2,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )


def convolution(n: int) -> Built:
    return _convolve, (_normal(0, 4, 8, n, n), _normal(1, 16, 4, 3, 3))


def convolution_dx(n: int) -> Built:
    f, (weight, x, w) = _backward(*convolution(n))
    return lambda weight, x, w: f(weight, x, w)[0], (weight, x, w)


def convolution_dw(n: int) -> Built:
    f, (weight, x, w) = _backward(*convolution(n))
    return lambda weight, x, w: f(weight, x, w)[1], (weight, x, w)


PROGRAMS: dict[str, Program] = {
    "chain of 50": Program(chain, 64, 8192, 1),
    "softmax": Program(softmax, 64, 8192, 1),
    "log_softmax": Program(log_softmax, 64, 8192, 1),
    "logsumexp": Program(logsumexp, 64, 8192, 1),
    "softmax, jnp alone": Program(softmax_plain, 64, 8192, 1),
    "log_softmax, jnp alone": Program(log_softmax_plain, 64, 8192, 1),
    "layer norm": Program(layer_norm_forward, 64, 8192, 1),
    "rms norm": Program(rms_norm_forward, 64, 8192, 1),
    "layer norm backward": Program(layer_norm_backward, 64, 8192, 2),
    "rms norm backward": Program(rms_norm_backward, 64, 8192, 2),
    "gelu(x@W+b)": Program(gelu_linear, 64, 1024, 1),
    "(A@B)@v": Program(chained, 128, 1024, 2, lambda n: n * n),
    "attention": Program(attention, 256, 2048, 1, lambda t: t * t),
    "attention causal": Program(causal, 256, 2048, 1, lambda t: t * t),
    "attention causal, finfo.min": Program(causal_finite, 256, 2048, 1, lambda t: t * t),
    "attention causal, additive": Program(causal_additive, 256, 2048, 1, lambda t: t * t),
    "attention window": Program(window, 256, 2048, 1, lambda t: t * t),
    "attention alibi": Program(alibi, 256, 2048, 1, lambda t: t * t),
    "attention soft cap": Program(soft_cap, 256, 2048, 1, lambda t: t * t),
    "attention grouped": Program(grouped, 256, 1024, 1, lambda t: t * t),
    "attention backward": Program(attention_backward, 256, 2048, 4, lambda t: t * t),
    "attention causal backward": Program(causal_backward, 256, 2048, 4, lambda t: t * t),
    "attention, jnp alone": Program(attention_plain, 256, 2048, 1, lambda t: t * t),
    "attention causal, jnp alone": Program(causal_plain, 256, 2048, 1, lambda t: t * t),
    "attention, jnp alone, backward": Program(
        attention_plain_backward, 256, 2048, 4, lambda t: t * t
    ),
    "attention causal, jnp alone, backward": Program(
        causal_plain_backward, 256, 2048, 4, lambda t: t * t
    ),
    "projections and attention": Program(projections, 256, 1024, 3, lambda t: 8 * t * t),
    "integer labels": Program(labels_forward, 64, 4096, 2, lambda n: 1000 * n),
    "integer labels backward": Program(labels_backward, 64, 4096, 2, lambda n: 1000 * n),
    "linear and labels": Program(linear_loss, 128, 2048, 6, lambda n: 25 * n * n),
    "contrastive": Program(contrastive, 256, 4096, 8, lambda n: n * n),
    "adam, 100 leaves": Program(adam, 100, 100, 1, by_launches=True),
    "convolution": Program(convolution, 16, 56, 1),
    "convolution dX": Program(convolution_dx, 16, 56, 1),
    "convolution dW": Program(convolution_dw, 16, 56, 1),
}
