"""The programs of the race as torch's users write them. Those that are trained take params, which
`parameters` has brought into torch's layouts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as fn


def parameters(program: str, params: dict[str, Any]) -> dict[str, Any]:
    """Convolutions' weights as (out, in, height, width); the layer behind them takes channels
    first.
    """
    found = dict(params)
    for name, value in params.items():
        if name.startswith("conv"):
            found[name] = value.permute(3, 2, 0, 1).contiguous()
    if program == "cnn":
        found["w1"] = params["w1"].reshape(7, 7, 32, -1).permute(2, 0, 1, 3).reshape(1568, -1)
    return found


def product_nn(a: Any, b: Any) -> Any:
    return a @ b


def product_nt(a: Any, b: Any) -> Any:
    return a @ b.T


def product_tn(a: Any, b: Any) -> Any:
    return a.T @ b


def gelu(x: Any) -> Any:
    return fn.gelu(x, approximate="tanh")


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    return fn.layer_norm(x, x.shape[-1:], scale, bias, 1e-5)


def rms_norm(x: Any, scale: Any) -> Any:
    return fn.rms_norm(x, x.shape[-1:], scale, 1e-6)


def gelu_loss(weight: Any, x: Any) -> Any:
    return (gelu(x) * weight).sum()


def softmax_loss(weight: Any, x: Any) -> Any:
    return (softmax(x) * weight).sum()


def layer_norm_loss(weight: Any, x: Any, scale: Any, bias: Any) -> Any:
    return (layer_norm(x, scale, bias) * weight).sum()


def rms_norm_loss(weight: Any, x: Any, scale: Any) -> Any:
    return (rms_norm(x, scale) * weight).sum()


def labels(logits: Any, labels: Any) -> Any:
    return fn.cross_entropy(logits, labels)


def linear_labels(x: Any, w: Any, labels: Any) -> Any:
    return fn.cross_entropy(x @ w, labels)


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = torch.lerp(m, g, 0.1), 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / (1 - 0.9)) / ((v / (1 - 0.999)).sqrt() + 1e-8), m, v


def attention(q: Any, k: Any, v: Any) -> Any:
    return fn.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]


def attention_loss(weight: Any, q: Any, k: Any, v: Any) -> Any:
    return (attention(q, k, v) * weight).sum()


def mlp(params: Any, x: Any, labels: Any) -> Any:
    x = torch.relu(x @ params["w1"] + params["b1"])
    return fn.cross_entropy(x @ params["w2"] + params["b2"], labels)


def cnn(params: Any, x: Any, labels: Any) -> Any:
    x = x.permute(0, 3, 1, 2)
    for k in "12":
        x = torch.relu(fn.conv2d(x, params["conv" + k], params["bias" + k], padding=1))
        x = fn.max_pool2d(x, 2)
    return mlp(params, x.flatten(1), labels)


def residual(params: Any, x: Any, wanted: Any) -> Any:
    x, wanted = x.permute(0, 3, 1, 2), wanted.permute(0, 3, 1, 2)
    y = x
    for k in "12":
        y = fn.conv2d(y, params["conv" + k], padding=1)
        y = fn.batch_norm(y, None, None, params["scale" + k], params["shift" + k], training=True)
        y = torch.relu(y) if k == "1" else torch.relu(y + x)
    return ((y - wanted) ** 2).mean()


def _norm(x: Any, p: Any) -> Any:
    return fn.layer_norm(x, x.shape[-1:], p["scale"], p["bias"], 1e-5)


def gpt(params: Any, tokens: Any, labels: Any) -> Any:
    x = params["tokens"][tokens] + params["places"][: tokens.shape[1]]
    b, t, c = x.shape
    for p in params["layers"]:
        q, k, v = (_norm(x, p["norm1"]) @ p["qkv"]).chunk(3, -1)
        q, k, v = (a.reshape(b, t, 6, -1).transpose(1, 2) for a in (q, k, v))
        merged = fn.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + merged.transpose(1, 2).reshape(b, t, c) @ p["out"]
        x = x + gelu(_norm(x, p["norm2"]) @ p["up"]) @ p["down"]
    logits = _norm(x, params["norm"]) @ params["head"]
    return fn.cross_entropy(logits.reshape(b * t, -1), labels)


def lstm(x: Any, wx: Any, wh: Any, bias: Any) -> Any:
    """torch's own LSTM, which is one call."""
    zero = x.new_zeros(1, x.shape[1], wh.shape[0])
    weights = [wx.T.contiguous(), wh.T.contiguous(), bias, torch.zeros_like(bias)]
    return torch.lstm(x, (zero, zero), weights, True, 1, 0.0, False, False, False)[0]


def lstm_loss(x: Any, wx: Any, wh: Any, bias: Any) -> Any:
    return (lstm(x, wx, wh, bias) ** 2).mean()


def decode(params: Any, keys: Any, values: Any, token: Any, place: Any) -> Any:
    rows = ((params["tokens"], token), (params["places"], place))
    x = sum(table.index_select(0, k.reshape(1))[0] for table, k in rows)
    heads = keys.shape[1]
    for n, p in enumerate(params["layers"]):
        q, k, v = (_norm(x, p["norm1"]) @ p["qkv"]).reshape(3 * heads, -1).chunk(3)
        ks, vs = torch.cat([keys[n], k[:, None]], 1), torch.cat([values[n], v[:, None]], 1)
        merged = fn.scaled_dot_product_attention(q[None, :, None], ks[None], vs[None])
        x = x + merged.reshape(-1) @ p["out"]
        x = x + gelu(_norm(x, p["norm2"]) @ p["up"]) @ p["down"]
    return _norm(x, params["norm"]) @ params["head"]


def jacobi(x: Any, f: Any) -> Any:
    x = x.clone()
    for _ in range(10):
        near = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        x[1:-1, 1:-1] = 0.25 * (near - f[1:-1, 1:-1])
    return x


def gradients(a: Any, b: Any) -> Any:
    x, r, p, rr = torch.zeros_like(b), b, b, (b * b).sum(-1)
    for _ in range(20):
        ap = torch.bmm(a, p[..., None])[..., 0]
        alpha = (rr / (p * ap).sum(-1))[:, None]
        x, r = x + alpha * p, r - alpha * ap
        new = (r * r).sum(-1)
        p, rr = r + (new / rr)[:, None] * p, new
    return x


def means(x: Any, centres: Any) -> Any:
    mine = ((centres**2).sum(-1) - 2 * x @ centres.T).argmin(-1)
    sums = torch.zeros_like(centres).index_add_(0, mine, x)
    counts = torch.bincount(mine, minlength=centres.shape[0]).to(x.dtype)
    return sums / counts.clamp(min=1.0)[:, None]


def three(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def leaves(xs: Any) -> Any:
    return [x + 1.0 for x in xs]


def twice(x: Any) -> Any:
    return x + x


def first(x: Any) -> Any:
    return x[0]


def changed(x: Any) -> Any:
    x = x.clone()
    x[0] = 1.0
    return x
