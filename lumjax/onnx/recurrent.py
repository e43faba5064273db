"""RNN, GRU and LSTM as scans over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lumjax import lax, nn
from lumjax import numpy as jnp
from lumjax.onnx.graph import Node
from lumjax.onnx.values import Op
from lumjax.record import record

One = Callable[[Any], Any]
State = tuple[Any, ...]
Step = Callable[[State, Any], State]
Cell = Callable[[Node, "Weights", list[One]], Step]


@record(eq=False, repr=False)
class Weights:
    """One direction's weights: the recurrent matrix, its bias and the input's, peepholes."""

    inner: Any
    bias: Any
    inner_bias: Any
    peep: Any
    hidden: int


_PLAIN: dict[str, One] = {
    "relu": lambda x: jnp.maximum(x, 0),
    "tanh": jnp.tanh,
    "sigmoid": nn.sigmoid,
    "softsign": nn.soft_sign,
    "softplus": nn.softplus,
}


def _activation(node: Node, name: str, alpha: float | None, beta: float | None) -> One:
    def pick(default_alpha: float, default_beta: float = 0.0) -> tuple[float, float]:
        return (
            default_alpha if alpha is None else alpha,
            default_beta if beta is None else beta,
        )

    if name.lower() in _PLAIN:
        return _PLAIN[name.lower()]
    match name.lower():
        case "affine":
            a, b = pick(1.0)
            return lambda x: a * x + b
        case "leakyrelu":
            a, _ = pick(0.01)
            return lambda x: jnp.where(x < 0, a * x, x)
        case "thresholdedrelu":
            a, _ = pick(1.0)
            return lambda x: jnp.where(x > a, x, 0)
        case "scaledtanh":
            a, b = pick(1.0, 1.0)
            return lambda x: a * jnp.tanh(b * x)
        case "hardsigmoid":
            a, b = pick(0.2, 0.5)
            return lambda x: jnp.clip(a * x + b, 0, 1)
        case "elu":
            a, _ = pick(1.0)
            return lambda x: jnp.where(x < 0, a * jnp.expm1(jnp.minimum(x, 0)), x)
        case _:
            raise node.wrong("an activation of the standard", repr(name))


def _activations(node: Node, usual: tuple[str, ...], directions: int) -> list[list[One]]:
    names = node.texts("activations", usual * directions)
    if len(names) != len(usual) * directions:
        raise node.wrong(f"{len(usual) * directions} activations", str(names))
    alphas, betas = (
        list(node.numbers("activation_alpha", ())),
        list(node.numbers("activation_beta", ())),
    )
    found: list[One] = []
    for name in names:  # numbers are given in order to those that take them
        word = name.lower()
        takes_alpha = word not in _PLAIN
        takes_beta = word in ("affine", "scaledtanh", "hardsigmoid")
        alpha = alphas.pop(0) if takes_alpha and alphas else None
        beta = betas.pop(0) if takes_beta and betas else None
        found.append(_activation(node, name, alpha, beta))
    n = len(usual)
    return [found[k * n : (k + 1) * n] for k in range(directions)]


def _clipped(node: Node) -> One:
    if not node.has("clip"):
        return lambda x: x
    edge = node.number("clip")
    return lambda x: jnp.clip(x, -edge, edge)


def _rnn_cell(node: Node, w: Weights, acts: list[One]) -> Step:
    clip = _clipped(node)

    def step(state: State, x: Any) -> State:
        return (acts[0](clip(x + state[0] @ w.inner.T + w.inner_bias)),)

    return step


def _gru_cell(node: Node, w: Weights, acts: list[One]) -> Step:
    clip, n = _clipped(node), w.hidden
    linear = node.integer("linear_before_reset", 0)

    def step(state: State, x: Any) -> State:
        h = state[0]
        gates = x[:, : 2 * n] + h @ w.inner[: 2 * n].T + w.inner_bias[: 2 * n]
        update, reset = acts[0](clip(gates[:, :n])), acts[0](clip(gates[:, n:]))
        rows, bias = w.inner[2 * n :].T, w.inner_bias[2 * n :]
        inner = reset * (h @ rows + bias) if linear else (reset * h) @ rows + bias
        new = acts[1](clip(x[:, 2 * n :] + inner))
        return ((1 - update) * new + update * h,)

    return step


def _lstm_cell(node: Node, w: Weights, acts: list[One]) -> Step:
    clip, n = _clipped(node), w.hidden
    coupled = node.integer("input_forget", 0)
    peep = [0, 0, 0] if w.peep is None else [w.peep[k * n : (k + 1) * n] for k in range(3)]

    def step(state: State, x: Any) -> State:
        h, c = state
        gates = x + h @ w.inner.T + w.inner_bias
        i, o, f, g = (gates[:, k * n : (k + 1) * n] for k in range(4))
        opened = acts[0](clip(i + peep[0] * c))
        kept = 1 - opened if coupled else acts[0](clip(f + peep[2] * c))
        cell = kept * c + opened * acts[1](clip(g))
        shown = acts[0](clip(o + peep[1] * cell))
        return shown * acts[2](cell), cell

    return step


def _reversed(x: Any, lengths: Any) -> Any:
    """Time backwards, within the length of each sequence."""
    if lengths is None:
        return jnp.flip(x, 0)
    steps = jnp.arange(x.shape[0], dtype=lengths.dtype)[:, None]
    order = jnp.where(steps < lengths, lengths - 1 - steps, steps)
    return jnp.take_along_axis(x, order[..., None], 0)


def _direction(
    step: Step, rows: Any, first: State, lengths: Any, backward: bool
) -> tuple[Any, State]:
    """The outputs over time, and the last state."""

    def one(state: State, entry: Any) -> Any:
        x, time = entry
        after = step(state, x)
        if lengths is None:
            return after, after[0]
        live = (time < lengths)[:, None]
        kept = tuple(jnp.where(live, a, b) for a, b in zip(after, state, strict=True))
        return kept, jnp.where(live, after[0], 0)

    rows = _reversed(rows, lengths) if backward else rows
    times = jnp.arange(rows.shape[0], dtype=jnp.int32 if lengths is None else lengths.dtype)
    last, outputs = lax.scan(one, first, (rows, times))
    return _reversed(outputs, lengths) if backward else outputs, last


def _recurrent(cell: Cell, gates: int, usual: tuple[str, ...], states: int) -> Op:
    def compute(
        node: Node, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None,
        c: Any = None, peep: Any = None,
    ) -> Any:  # fmt: skip
        batch_first = bool(node.integer("layout", 0))
        mode = node.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
        ways = [False, True] if mode == "bidirectional" else [mode == "reverse"]
        count, hidden = len(ways), node.integer("hidden_size", r.shape[-1])
        _check(node, x, w, r, gates, hidden, count)
        x = jnp.swapaxes(x, 0, 1) if batch_first else x
        acts = _activations(node, usual, count)
        shape = (count, x.shape[1], hidden)
        starts = [
            jnp.zeros(shape, x.dtype) if s is None else jnp.swapaxes(s, 0, 1) if batch_first else s
            for s in (h, c)[:states]
        ]
        outputs: list[Any] = []
        lasts: list[State] = []
        for k, backward in enumerate(ways):
            bias = jnp.zeros(2 * gates * hidden, x.dtype) if b is None else b[k]
            size = gates * hidden
            weights = Weights(
                r[k], bias[:size], bias[size:], None if peep is None else peep[k], hidden
            )
            rows = x @ w[k].T + weights.bias
            first = tuple(s[k] for s in starts)
            out, last = _direction(cell(node, weights, acts[k]), rows, first, lengths, backward)
            outputs.append(out)
            lasts.append(last)
        y = jnp.stack(outputs, 1)
        ends = [jnp.stack([last[s] for last in lasts]) for s in range(states)]
        if batch_first:
            y = y.transpose(2, 0, 1, 3)
            ends = [jnp.swapaxes(e, 0, 1) for e in ends]
        return (y, *ends)

    return Op(compute)


def _check(node: Node, x: Any, w: Any, r: Any, gates: int, hidden: int, count: int) -> None:
    inner = (count, gates * hidden, hidden)
    if len(x.shape) != 3 or tuple(r.shape) != inner or tuple(w.shape[:2]) != inner[:2]:
        raise node.wrong(
            f"sequences [time, batch, features] and weights {inner}",
            f"{tuple(x.shape)}, {tuple(w.shape)} and {tuple(r.shape)}",
        )


OPS = {
    "RNN": _recurrent(_rnn_cell, 1, ("Tanh",), 1),
    "GRU": _recurrent(_gru_cell, 3, ("Sigmoid", "Tanh"), 1),
    "LSTM": _recurrent(_lstm_cell, 4, ("Sigmoid", "Tanh", "Tanh"), 2),
}
