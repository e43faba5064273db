"""Training steps of the example programs as torch's users write them, from equal parameters.

A twin takes an example's module, the arguments of its step as `benchmarks.steps` makes them, and
what compiles a function (`torch.compile`, or nothing). It is a function from random draws to the
loss; without draws it makes its own. Convolutions have channels first, attention is
`scaled_dot_product_attention`, optimizers are `torch.optim`'s fused ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn import functional as fn
from torch.nn.utils import clip_grad_norm_
from torch.utils import _pytree as tree

from lumjax import optim

Compile: TypeAlias = Callable[[Any], Any]
Twin: TypeAlias = Callable[..., Any]


def tensor(x: Any) -> Any:
    """A leaf of the example's; a kernel of a convolution with its channels first."""
    data = np.asarray(x)
    if data.ndim == 4 and data.shape[0] == data.shape[1]:
        data = data.transpose(3, 2, 0, 1)
    found = torch.from_numpy(np.array(data, order="C"))
    return found.long() if found.dtype == torch.int32 else found


def tensors(values: Any, trained: bool = False) -> Any:
    """A pytree of them."""
    return tree.tree_map(lambda x: tensor(x).requires_grad_() if trained else tensor(x), values)


class Trained:
    """Parameters and their optimizer, whose rate follows a schedule."""

    def __init__(
        self, params: Any, rate: Callable[[int], Any], clip: float = 0, decay: float = 0
    ) -> None:
        self.params, self.rate, self.clip, self.count = tensors(params, trained=True), rate, clip, 0
        self.leaves = tree.tree_leaves(self.params)
        if decay:
            self.rule = torch.optim.AdamW(self.leaves, weight_decay=decay, fused=True)
        else:
            self.rule = torch.optim.Adam(self.leaves, fused=True)

    def update(self, loss: Any) -> Any:
        """Differentiate and step; the loss."""
        loss.backward()
        if self.clip:
            clip_grad_norm_(self.leaves, self.clip)
        for group in self.rule.param_groups:
            group["lr"] = float(self.rate(self.count))
        self.count += 1
        self.rule.step()
        self.rule.zero_grad(set_to_none=True)
        return loss.detach()

    def averaged(self, decay: float) -> Callable[[], None]:
        """What keeps a running mean of the parameters."""
        mean = [p.detach().clone() for p in self.leaves]
        return lambda: torch._foreach_lerp_(mean, [p.detach() for p in self.leaves], 1 - decay)


# ---- the language model


def gpt(m: Any, args: Any, wrap: Compile) -> Twin:
    """Attention over characters."""
    (params, _), *batch = args
    rate = optim.warmup_cosine_decay_schedule(0.0, 2e-3, 10, 100, 2e-4)
    trained = Trained(params, rate, clip=1.0, decay=0.01)
    tokens, labels = tensors(batch)

    def norm(x: Any, scale: Any) -> Any:
        return fn.layer_norm(x, x.shape[-1:], scale, None, 1e-5)

    def attention(p: Any, x: Any) -> Any:
        b, t, c = x.shape
        parts = (x @ p["qkv"]).view(b, t, 3, m.HEADS, c // m.HEADS).permute(2, 0, 3, 1, 4)
        mixed = fn.scaled_dot_product_attention(*parts, is_causal=True)
        return mixed.transpose(1, 2).reshape(b, t, c) @ p["out"]

    def loss_fn(params: Any, tokens: Any, labels: Any) -> Any:
        x = fn.embedding(tokens, params["words"]) + params["places"]
        for p in params["layers"]:
            x = x + attention(p, norm(x, p["norm1"]))
            x = x + fn.gelu(norm(x, p["norm2"]) @ p["up"], approximate="tanh") @ p["down"]
        logits = norm(x, params["norm"]) @ params["head"]
        return fn.cross_entropy(logits.flatten(0, 1), labels.flatten())

    compiled = wrap(loss_fn)
    return lambda _=None: trained.update(compiled(trained.params, tokens, labels))


# ---- the recurrent network


def lstm(m: Any, args: Any, wrap: Compile) -> Twin:
    """Torch's own cell over letters, whose forget gate gets the one that the example adds to it."""
    (params, _), rows = args
    rows = tensor(rows)
    params = params | {k: _torchs(params[k]) for k in ("input", "hidden", "bias")}
    trained = Trained(params, optim.cosine_decay_schedule(4e-3, 100), clip=1.0)
    one = torch.zeros(4, m.WIDTH).index_fill(0, torch.tensor(1), 1.0).flatten()

    def loss_fn(p: Any, rows: Any) -> Any:
        inputs, labels = rows[:, :-1], rows[:, 1:]
        letters = fn.embedding(inputs, p["letters"])
        start = torch.zeros(2, 1, len(rows), m.WIDTH).unbind()
        weights = p["input"], p["hidden"], p["bias"], one
        hidden, _, _ = torch.lstm(letters, start, weights, True, 1, 0.0, True, False, True)
        logits = hidden @ p["head"]
        losses = fn.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        counted = ((inputs > 0) | (labels > 0)).flatten()
        return (losses * counted).sum() / counted.sum()

    compiled = wrap(loss_fn)
    return lambda _=None: trained.update(compiled(trained.params, rows))


def _torchs(weights: Any) -> Any:
    """Weights [..., gates] of i, f, o, new as torch has them: [gates, ...] of i, f, new, o."""
    i, f, o, new = np.split(np.asarray(weights), 4, -1)
    return np.concatenate([i, f, new, o], -1).T


# ---- networks of convolutions


def conv(x: Any, kernel: Any, bias: Any = None, stride: int = 1) -> Any:
    """A convolution padded to keep the size, as XLA does: the odd pixel at the end."""
    size, width = x.shape[-1], kernel.shape[-1]
    pad = max((-(-size // stride) - 1) * stride + width - size, 0)
    if pad % 2:
        x, pad = fn.pad(x, (pad // 2, pad - pad // 2) * 2), 0
    return fn.conv2d(x, kernel, bias, stride, pad // 2)


def cnn(m: Any, args: Any, wrap: Compile) -> Twin:
    """Residual blocks."""
    (params, *_), images, labels = args
    rate = optim.warmup_cosine_decay_schedule(0.0, 4e-3, 10, 100)
    trained = Trained(params, rate, decay=3e-3)
    average = trained.averaged(0.98)
    images, labels = tensor(images).permute(0, 3, 1, 2), tensor(labels)

    def normal(x: Any, scale: Any) -> Any:
        return torch.relu(fn.group_norm(x, 4, scale, None, 1e-5))

    def loss_fn(params: Any, images: Any, labels: Any) -> Any:
        x = conv(images, params["stem"], None, 2)
        for k, p in enumerate(params["blocks"]):
            stride = 1 if k == 0 else 2
            y = conv(normal(x, p["norm1"]), p["conv1"], None, stride)
            y = conv(normal(y, p["norm2"]), p["conv2"])
            x = conv(x, p["skip"], None, stride) + y
        x = normal(x, params["norm"]).permute(0, 2, 3, 1).flatten(1)
        return fn.cross_entropy(x @ params["head"] + params["bias"], labels)

    compiled = wrap(loss_fn)

    def step(_: Any = None) -> Any:
        loss = trained.update(compiled(trained.params, images, labels))
        average()
        return loss

    return step


def diffusion(m: Any, args: Any, wrap: Compile) -> Twin:
    """A U-Net that predicts noise."""
    (params, *_), images, labels, _ = args
    trained = Trained(params, optim.warmup_cosine_decay_schedule(0.0, 3e-3, 10, 100))
    average = trained.averaged(0.99)
    images, labels = tensor(images).permute(0, 3, 1, 2), tensor(labels)
    signal, share = torch.from_numpy(m.SIGNAL), torch.from_numpy(m.NOISE)
    rates = 2.0 ** torch.arange(8) * np.pi / 2

    def on(p: Any, x: Any, stride: int = 1) -> Any:
        return conv(x, p["kernel"], p["bias"], stride)

    def norm(x: Any) -> Any:
        return fn.group_norm(x, 1, eps=1e-5)

    def predict(p: Any, images: Any, level: Any, label: Any) -> Any:
        waves = level[:, None] / m.LEVELS * rates
        told = torch.cat([torch.sin(waves), torch.cos(waves), fn.one_hot(label, 10)], -1)
        hint = (fn.silu(told @ p["told1"]) @ p["told2"])[:, :, None, None]
        high = on(p["enter"], images)
        high = high + on(p["high"], fn.silu(norm(high)))
        low = on(p["down"], fn.silu(norm(high)), 2)
        low = low + on(p["low1"], fn.silu(norm(low) + hint))
        low = low + on(p["low2"], fn.silu(norm(low) + hint))
        both = torch.cat([high, fn.interpolate(on(p["up"], fn.silu(low)), scale_factor=2)], 1)
        return on(p["leave"], fn.silu(norm(on(p["join"], fn.silu(norm(both))))))

    def loss_fn(params: Any, images: Any, labels: Any, level: Any, noise: Any) -> Any:
        kept, added = (a[level][:, None, None, None] for a in (signal, share))
        guess = predict(params, kept * images + added * noise, level, labels)
        return fn.mse_loss(guess, noise)

    compiled = wrap(loss_fn)

    def step(draws: Any = None) -> Any:
        if draws is None:
            level = torch.randint(0, m.LEVELS, labels.shape)
            noise = torch.randn(images.shape)
        else:
            level, noise = tensor(draws[0]), tensor(draws[1]).permute(0, 3, 1, 2)
        loss = trained.update(compiled(trained.params, images, labels, level, noise))
        average()
        return loss

    return step


# ---- reinforcement learning


def perceptron(layers: Any, x: Any) -> Any:
    """[n, 4] -> [n, outputs]."""
    for p in layers[:-1]:
        x = torch.tanh(x @ p["w"] + p["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def moved(state: Any, action: Any) -> Any:
    """The carts a fiftieth of a second later."""
    _, speed, angle, spin = state.unbind(1)
    force = torch.where(action == 1, 10.0, -10.0)
    push = (force + 0.05 * spin.square() * torch.sin(angle)) / 1.1
    inertia = 0.5 * (4 / 3 - 0.1 * torch.cos(angle).square() / 1.1)
    turn = (9.8 * torch.sin(angle) - torch.cos(angle) * push) / inertia
    pull = push - 0.05 * turn * torch.cos(angle) / 1.1
    return state + 0.02 * torch.stack([speed, pull, spin, turn], 1)


def rl(m: Any, args: Any, wrap: Compile) -> Twin:
    """Carts, a policy and PPO. Loops are Python's; what they repeat is compiled."""
    (params, _, carts, _), _ = args
    trained = Trained(params, optim.linear_schedule(2e-3, 0.0, 100 * m.EPOCHS * m.PARTS), clip=0.5)
    held, count = [*tensors(carts), 0.0], m.HORIZON * m.CARTS

    def play(params: Any, state: Any, age: Any, gumbel: Any, fresh: Any) -> Any:
        logits, value = (perceptron(params[k], state) for k in ("policy", "value"))
        action = (logits + gumbel).argmax(1)
        log_prob = fn.log_softmax(logits, 1).gather(1, action[:, None])[:, 0]
        after, age = moved(state, action), age + 1
        fell = (after[:, 0].abs() > 2.4) | (after[:, 2].abs() > 12 * np.pi / 180)
        ended = fell | (age >= m.LIMIT)
        seen = (state, action, log_prob, value[:, 0], fell, ended, age)
        after = torch.where(ended[:, None], fresh, after)
        return after, torch.where(ended, 0, age), seen

    def advantages(value: Any, fell: Any, ended: Any, last: Any) -> Any:
        following = torch.cat([value[1:], last[None]])
        following = torch.where(ended, torch.where(fell, 0.0, value), following)
        error, later, found = 1.0 + m.DISCOUNT * following - value, torch.zeros(m.CARTS), []
        for k in range(m.HORIZON - 1, -1, -1):
            later = error[k] + m.DISCOUNT * m.TRACE * torch.where(ended[k], 0.0, later)
            found.append(later)
        return torch.stack(found[::-1])

    def loss_fn(params: Any, state: Any, action: Any, old: Any, gain: Any, worth: Any) -> Any:
        log_probs = fn.log_softmax(perceptron(params["policy"], state), 1)
        ratio = (log_probs.gather(1, action[:, None])[:, 0] - old).exp()
        gain = (gain - gain.mean()) / (gain.std(correction=0) + 1e-6)
        surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - m.CLIP, 1 + m.CLIP) * gain)
        value = perceptron(params["value"], state)[:, 0]
        entropy = -(log_probs.exp() * log_probs).sum(1).mean()
        return -surrogate.mean() + 0.5 * fn.mse_loss(value, worth) - 0.01 * entropy

    play, advantages, compiled = wrap(play), wrap(advantages), wrap(loss_fn)

    def draw() -> Any:
        gumbel = -torch.log(-torch.log(torch.rand(m.HORIZON, m.CARTS, 2).clamp_min(1e-30)))
        fresh = 0.1 * torch.rand(m.HORIZON, m.CARTS, 4) - 0.05
        return gumbel, fresh, torch.randint(0, count, (m.EPOCHS, 2))

    def learn(data: Any, order: Any) -> list[Any]:
        parts = [x[order].chunk(m.PARTS) for x in data]
        return [trained.update(compiled(trained.params, *p)) for p in zip(*parts, strict=True)]

    def step(draws: Any = None) -> Any:
        gumbel, fresh, orders = draw() if draws is None else tensors(draws)
        state, age, length = held
        with torch.no_grad():
            rows = []
            for k in range(m.HORIZON):
                state, age, seen = play(trained.params, state, age, gumbel[k], fresh[k])
                rows.append(seen)
            places, action, log_prob, value, fell, ended, ages = map(
                torch.stack, zip(*rows, strict=True)
            )
            last = perceptron(trained.params["value"], state)[:, 0]
            gain = advantages(value, fell, ended, last)
        data = [x.flatten(0, 1) for x in (places, action, log_prob, gain, gain + value)]
        losses: list[Any] = []
        for odd, shift in orders:
            losses += learn(data, ((2 * odd + 1) * torch.arange(count) + shift) % count)
        finished = ended.sum()
        share = (finished / 100).clamp(max=1.0)
        mean = torch.where(ended, ages, 0).sum() / finished.clamp(min=1)
        held[:] = state, age, (1 - share) * length + share * mean
        return torch.stack(losses).mean()

    return step


TWINS = {"gpt": gpt, "lstm": lstm, "cnn": cnn, "diffusion": diffusion, "rl": rl}
