"""The programs of the race in NumPy, where NumPy's users would write them: no gradients."""

from __future__ import annotations

from typing import Any

import numpy as np


def product_nn(a: Any, b: Any) -> Any:
    return a @ b


def product_nt(a: Any, b: Any) -> Any:
    return a @ b.T


def product_tn(a: Any, b: Any) -> Any:
    return a.T @ b


def gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + bias


def rms_norm(x: Any, scale: Any) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def labels(logits: Any, labels: Any) -> Any:
    shifted = logits - logits.max(-1, keepdims=True)
    mine = np.take_along_axis(shifted, labels[:, None], -1)[:, 0]
    return (np.log(np.exp(shifted).sum(-1)) - mine).mean()


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / (1 - 0.9)) / (np.sqrt(v / (1 - 0.999)) + 1e-8), m, v


def jacobi(x: Any, f: Any) -> Any:
    x = x.copy()
    for _ in range(10):
        near = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        x[1:-1, 1:-1] = 0.25 * (near - f[1:-1, 1:-1])
    return x


def gradients(a: Any, b: Any) -> Any:
    x, r, p, rr = np.zeros_like(b), b, b, (b * b).sum(-1)
    for _ in range(20):
        ap = (a @ p[..., None])[..., 0]
        alpha = (rr / (p * ap).sum(-1))[:, None]
        x, r = x + alpha * p, r - alpha * ap
        new = (r * r).sum(-1)
        p, rr = r + (new / rr)[:, None] * p, new
    return x


def means(x: Any, centres: Any) -> Any:
    mine = ((centres**2).sum(-1) - 2 * x @ centres.T).argmin(-1)
    counts = np.bincount(mine, minlength=len(centres))
    sums = [np.bincount(mine, x[:, k], len(centres)) for k in range(x.shape[1])]
    return np.stack(sums, 1) / np.maximum(counts, 1)[:, None]


def twice(x: Any) -> Any:
    return x + x


def first(x: Any) -> Any:
    return x[0]


def changed(x: Any) -> Any:
    x = x.copy()
    x[0] = 1.0
    return x
