"""Teach a policy to balance a pole on a cart with PPO, the whole of it compiled.

    python examples/train/rl.py

256 carts, the policy that steers them, the advantages, four epochs of shuffled minibatches and Adam
are ONE jitted step: `vmap` makes one cart 256, `lax.scan` makes them run. A cart's episode ends
when it leaves the track, when the pole leans over 12 degrees, or after 500 steps (the rules and
numbers of Gym's CartPole-v1). Expected in the default 150 steps (1.2 million steps of the carts):
the mean length of the last episodes is at least 475 of 500, which is what counts as solved. It was
with each of the seeds 0 to 23.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np

import lumjax
import lumjax.numpy as jnp
from lumjax import lax, nn, optim, random

CARTS, HORIZON, EPOCHS, PARTS = 256, 32, 4, 8
DISCOUNT, TRACE, CLIP, LIMIT = 0.98, 0.8, 0.2, 500

# ---- the environment: one cart


def reset(key: Any) -> Any:
    """A state [position, speed, angle, angular speed] near the middle."""
    return random.uniform(key, (4,), minval=-0.05, maxval=0.05)


def move(state: Any, action: Any) -> Any:
    """A fiftieth of a second: force to the left (0) or to the right (1)."""
    _, speed, angle, spin = state
    force = jnp.where(action == 1, 10.0, -10.0)
    push = (force + 0.05 * jnp.square(spin) * jnp.sin(angle)) / 1.1
    inertia = 0.5 * (4 / 3 - 0.1 * jnp.square(jnp.cos(angle)) / 1.1)
    turn = (9.8 * jnp.sin(angle) - jnp.cos(angle) * push) / inertia
    pull = push - 0.05 * turn * jnp.cos(angle) / 1.1
    return state + 0.02 * jnp.stack([speed, pull, spin, turn])


def play(cart: Any, action: Any, key: Any) -> tuple[Any, Any, Any]:
    """One step of (state, age), reset at the end; whether it fell and whether it ended."""
    state, age = move(cart[0], action), cart[1] + 1
    fell = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 12 * np.pi / 180)
    ended = fell | (age >= LIMIT)
    return (jnp.where(ended, reset(key), state), jnp.where(ended, 0, age)), fell, ended


# ---- the policy


def init(key: Any) -> Any:
    """A perceptron for the policy and one for the value."""
    keys, orthogonal = random.split(key, 6), nn.initializers.orthogonal

    def layers(keys: Any, outputs: int, scale: float) -> Any:
        sizes, scales = ((4, 64), (64, 64), (64, outputs)), (2**0.5, 2**0.5, scale)
        return [
            {"w": orthogonal(s)(k, shape), "b": jnp.zeros(shape[1])}
            for k, shape, s in zip(keys, sizes, scales, strict=True)
        ]

    return {"policy": layers(keys[:3], 2, 0.01), "value": layers(keys[3:], 1, 1.0)}


def perceptron(layers: Any, x: Any) -> Any:
    """[n, 4] -> [n, outputs]."""
    for p in layers[:-1]:
        x = jnp.tanh(x @ p["w"] + p["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


# ---- PPO


def rollout(params: Any, carts: Any, key: Any) -> tuple[Any, Any]:
    """All carts for HORIZON steps: where they are then, and what happened, [HORIZON, CARTS]."""

    def one(carts: Any, key: Any) -> tuple[Any, Any]:
        of_action, of_reset = random.split(key)
        logits = perceptron(params["policy"], carts[0])
        action = random.categorical(of_action, logits)
        log_prob = jnp.take_along_axis(nn.log_softmax(logits), action[:, None], 1)[:, 0]
        after, fell, ended = lumjax.vmap(play)(carts, action, random.split(of_reset, CARTS))
        seen = {"state": carts[0], "action": action, "log_prob": log_prob}
        value = perceptron(params["value"], carts[0])[:, 0]
        more = {"fell": fell, "ended": ended, "age": carts[1] + 1, "value": value}
        return after, seen | more

    return lax.scan(one, carts, random.split(key, HORIZON))


def advantages(seen: Any, last: Any) -> Any:
    """Generalised advantage estimates [HORIZON, CARTS]; `last` is the value after the last step."""
    following = jnp.concatenate([seen["value"][1:], last[None]])
    # an episode cut at its limit would have gone on: it is not worth nothing, but what it was worth
    following = jnp.where(seen["ended"], jnp.where(seen["fell"], 0.0, seen["value"]), following)
    error = 1.0 + DISCOUNT * following - seen["value"]

    def back(later: Any, given: Any) -> tuple[Any, Any]:
        error, ended = given
        now = error + DISCOUNT * TRACE * jnp.where(ended, 0.0, later)
        return now, now

    return lax.scan(back, jnp.zeros(CARTS), (error, seen["ended"]), reverse=True)[1]


def loss_fn(params: Any, part: Any) -> Any:
    """PPO's clipped objective, the value's error and a bonus for entropy."""
    log_probs = nn.log_softmax(perceptron(params["policy"], part["state"]))
    mine = jnp.take_along_axis(log_probs, part["action"][:, None], 1)[:, 0]
    ratio, gain = jnp.exp(mine - part["log_prob"]), part["advantage"]
    gain = (gain - jnp.mean(gain)) / (jnp.std(gain) + 1e-6)
    surrogate = jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * gain)
    value = perceptron(params["value"], part["state"])[:, 0]
    entropy = -jnp.mean(jnp.sum(jnp.exp(log_probs) * log_probs, -1))
    error = jnp.mean(jnp.square(value - part["return"]))
    return -jnp.mean(surrogate) + 0.5 * error - 0.01 * entropy


def start(key: Any, optimizer: Any) -> Any:
    """The state of training: parameters, optimizer, carts, their mean length at the end."""
    of_params, of_carts = random.split(key)
    params = init(of_params)
    carts = lumjax.vmap(reset)(random.split(of_carts, CARTS)), jnp.zeros(CARTS, jnp.int32)
    return params, optimizer.init(params), carts, jnp.zeros(())


def make_step(steps: int) -> tuple[Any, Any]:
    """The optimizer and the one compiled step: play, judge, learn."""
    rate = optim.linear_schedule(2e-3, 0.0, steps * EPOCHS * PARTS)
    optimizer = optim.chain(optim.clip_by_global_norm(0.5), optim.adam(rate))

    def learn(state: Any, part: Any) -> tuple[Any, Any]:
        params, opt = state
        loss, grads = lumjax.value_and_grad(loss_fn)(params, part)
        updates, opt = optimizer.update(grads, opt, params)
        return (optim.apply_updates(params, updates), opt), loss

    @lumjax.jit
    def step(state: Any, number: Any) -> tuple[Any, tuple[Any, Any]]:
        params, opt, carts, length = state
        of_play, of_order = random.split(random.fold_in(random.key(1), number))
        carts, seen = rollout(params, carts, of_play)
        gain = advantages(seen, perceptron(params["value"], carts[0])[:, 0])
        data = {k: seen[k] for k in ("state", "action", "log_prob")}
        data |= {"advantage": gain, "return": gain + seen["value"]}
        data = {k: v.reshape(HORIZON * CARTS, *v.shape[2:]) for k, v in data.items()}

        def epoch(state: Any, key: Any) -> tuple[Any, Any]:
            order = shuffled(key).reshape(PARTS, -1)
            return lax.scan(learn, state, {k: v[order] for k, v in data.items()})

        (params, opt), losses = lax.scan(epoch, (params, opt), random.split(of_order, EPOCHS))
        ended = jnp.sum(seen["ended"])
        ages = jnp.sum(jnp.where(seen["ended"], seen["age"], 0)) / jnp.maximum(ended, 1)
        share = jnp.minimum(ended / 100, 1.0)  # the mean is over about the last hundred episodes
        length = (1 - share) * length + share * ages
        return (params, opt, carts, length), (jnp.mean(losses), length)

    return optimizer, step


def shuffled(key: Any) -> Any:
    """The batch's indices in an order drawn by the key: i -> a i + b modulo the size, a odd."""
    n = HORIZON * CARTS
    odd, shift = random.randint(key, (2,), 0, n)
    return ((2 * odd + 1) * jnp.arange(n) + shift) % n


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train; the mean length of the last episodes."""
    options = common.parse(common.parser(__doc__, steps=150, save_every=25), arguments)
    optimizer, step = make_step(options.steps)
    run = common.Run("rl", options, start(random.key(options.seed), optimizer))
    for number in run:
        run.state, (loss, length) = step(run.state, np.int32(number))
        run.log(loss=loss, length=length)
    reached, curves = run.tail("length", 1), run.plot("length")
    played = options.steps * CARTS * HORIZON
    print(f"rl: episodes of {reached:.0f} steps after {played:,} steps; {curves}")
    return {"loss": run.tail("loss", 1), "length": reached}


if __name__ == "__main__":
    main()
