"""Train an LSTM or a GRU on 88,799 surnames and let it invent new ones.

    pip install --no-deps names                      # the names of a US census, MIT; 0.8 MB
    python examples/train/names.py
    python examples/train/names.py --cell gru --steps 1000

The cells are their textbook equations, run over time by `lax.scan`; the loss, its gradient through
the scan, clipping and Adam are one jitted step. One name in ten is held out. Expected in the
default 1,500 steps, from either cell: at most 2.25 nats per letter of the names held out, at least
0.30 below the bigram model counted on the others (2.57).
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn, optim, random

TIME, WIDTH, BATCH = 14, 128, 64
ALPHABET = ".abcdefghijklmnopqrstuvwxyz"  # the dot ends a name

# ---- the names


def load_names(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Names as indices [n, TIME + 1], between dots and filled up with dots: train and held out."""
    table = (common.package_folder("names") / "dist.all.last").read_text().split("\n")
    names = [line.split()[0].lower() for line in table if line]
    names = [f".{n}.".ljust(TIME + 1, ".") for n in names if len(n) < TIME]
    rows = np.array([[ALPHABET.index(c) for c in n] for n in names], np.int32)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    return rows[len(rows) // 10 :], rows[: len(rows) // 10]


def counted(rows: np.ndarray) -> np.ndarray:
    """True where a letter, or the dot that ends the name, is to be predicted."""
    return (rows[:, :-1] > 0) | (rows[:, 1:] > 0)


def bigram(train: np.ndarray, test: np.ndarray) -> float:
    """Nats per letter of the best model that sees one letter."""
    pairs = np.ones((len(ALPHABET), len(ALPHABET)))
    np.add.at(pairs, (train[:, :-1][counted(train)], train[:, 1:][counted(train)]), 1)
    log_probs = np.log(pairs / pairs.sum(1, keepdims=True))
    return float(-log_probs[test[:, :-1], test[:, 1:]][counted(test)].mean())


# ---- the two cells: functions from (parameters, state, input) to (state, output)


def lstm(p: Any, state: Any, x: Any) -> tuple[Any, Any]:
    """Hochreiter and Schmidhuber's cell with a forget gate."""
    hidden, memory = state
    gates = x @ p["input"] + hidden @ p["hidden"] + p["bias"]
    i, f, o, new = jnp.split(gates, 4, -1)
    memory = nn.sigmoid(f + 1) * memory + nn.sigmoid(i) * jnp.tanh(new)
    hidden = nn.sigmoid(o) * jnp.tanh(memory)
    return (hidden, memory), hidden


def gru(p: Any, state: Any, x: Any) -> tuple[Any, Any]:
    """Cho's cell, the reset gate behind the product."""
    (hidden,) = state
    reset, update, new = jnp.split(x @ p["input"] + p["bias"], 3, -1)
    reset_h, update_h, new_h = jnp.split(hidden @ p["hidden"], 3, -1)
    update = nn.sigmoid(update + update_h)
    new = jnp.tanh(new + nn.sigmoid(reset + reset_h) * new_h)
    hidden = update * hidden + (1 - update) * new
    return (hidden,), hidden


CELLS = {"lstm": (lstm, 4, 2), "gru": (gru, 3, 1)}  # the cell, its gates, its state's parts

# ---- the model


def init(key: Any, cell: str) -> Any:
    """Parameters as a dictionary."""
    keys = random.split(key, 4)
    gates = CELLS[cell][1] * WIDTH
    normal, orthogonal = nn.initializers.glorot_normal(), nn.initializers.orthogonal()
    return {
        "letters": normal(keys[0], (len(ALPHABET), 32)),
        "input": normal(keys[1], (32, gates)),
        "hidden": orthogonal(keys[2], (WIDTH, gates)),
        "bias": jnp.zeros(gates),
        "head": normal(keys[3], (WIDTH, len(ALPHABET))),
    }


def start(cell: str, batch: int) -> Any:
    """The state before the first letter."""
    return tuple(jnp.zeros((batch, WIDTH)) for _ in range(CELLS[cell][2]))


def embed(params: Any, letters: Any) -> Any:
    """Vectors of letters."""
    return nn.one_hot(letters, len(ALPHABET)) @ params["letters"]


def loss_fn(params: Any, rows: Any, cell: str) -> Any:
    """Mean cross entropy of the letters and of each name's end."""
    inputs, labels = rows[:, :-1].T, rows[:, 1:].T  # time first, as scan has it

    def one(state: Any, x: Any) -> tuple[Any, Any]:
        return CELLS[cell][0](params, state, x)

    _, hidden = lax.scan(one, start(cell, rows.shape[0]), embed(params, inputs))
    log_probs = nn.log_softmax(hidden @ params["head"])
    losses = -jnp.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
    return jnp.mean(losses, where=(inputs > 0) | (labels > 0))


def make_step(cell: str, steps: int) -> tuple[Any, Any]:
    """The optimizer and one compiled step: loss, gradients, clipping, Adam, new parameters."""
    rate = optim.cosine_decay_schedule(4e-3, steps)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(rate))

    @lumjax.jit
    def step(state: Any, rows: Any) -> tuple[Any, Any]:
        params, opt = state
        loss, grads = lumjax.value_and_grad(loss_fn)(params, rows, cell)
        updates, opt = optimizer.update(grads, opt, params)
        return (optim.apply_updates(params, updates), opt), loss

    return optimizer, step


@lumjax.jit(static_argnums=(2, 3))
def invent(params: Any, key: Any, cell: str, names: int) -> Any:
    """New names [TIME, names], each letter drawn from what the cell predicts."""

    def one(carry: Any, key: Any) -> tuple[Any, Any]:
        state, letters = carry
        state, hidden = CELLS[cell][0](params, state, embed(params, letters))
        letters = random.categorical(key, hidden @ params["head"] / 0.8).astype(jnp.int32)
        return (state, letters), letters

    first = start(cell, names), jnp.zeros(names, jnp.int32)
    return lax.scan(one, first, random.split(key, TIME))[1]


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train, compare with the bigram model, invent names; what it reached."""
    made = common.parser(__doc__, steps=1500)
    made.add_argument("--cell", choices=sorted(CELLS), default="lstm")
    options = common.parse(made, arguments)
    cell = options.cell
    train, test = load_names(options.seed)
    params = init(random.key(options.seed), cell)
    optimizer, step = make_step(cell, options.steps)
    evaluate = lumjax.jit(loss_fn, static_argnums=2)

    run = common.Run(f"names_{cell}", options, (params, optimizer.init(params)))
    for number in run:
        rng = np.random.default_rng([options.seed, number])
        run.state, loss = step(run.state, train[rng.integers(0, len(train), BATCH)])
        metrics = {"loss": loss}
        if (number + 1) % 250 == 0 or number + 1 == options.steps:
            metrics["held_out"] = evaluate(run.state[0], test, cell)
        run.log(**metrics)

    reached, baseline = run.tail("held_out", 1), bigram(train, test)
    letters = np.asarray(invent(run.state[0], random.key(options.seed), cell, 24)).T
    invented = ["".join(ALPHABET[k] for k in row).split(".")[0].title() for row in letters]
    print(" ".join(invented))
    curves = run.plot("loss", "held_out")
    print(f"{cell}: {reached:.3f} nats per letter held out; bigram {baseline:.3f}; {curves}")
    return {"loss": run.tail("loss", 1), "held_out": reached, "bigram": baseline}


if __name__ == "__main__":
    main()
