"""Trains a recurrent network of equinox with state, dropout, runtime checks and a loop that is
checkpointed.
"""

from __future__ import annotations

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import optax


class Model(eqx.Module):
    cell: eqx.nn.GRUCell
    norm: eqx.nn.BatchNorm
    head: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(2, 8, key=first)
        self.norm = eqx.nn.BatchNorm(8, axis_name="batch", mode="batch")
        self.head = eqx.nn.Linear(8, 1, key=second)
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, xs, state, key):
        def step(carry):
            k, h = carry
            return k + 1, self.cell(xs[k], h)

        first = (jnp.array(0), jnp.zeros(8))
        _, h = eqxi.while_loop(
            lambda c: c[0] < len(xs), step, first, max_steps=len(xs), kind="checkpointed"
        )
        h = eqx.error_if(h, jnp.any(jnp.isnan(h)), "the network has diverged")
        h, state = self.norm(h, state)
        return self.head(self.dropout(h, key=key)), state


model, state = eqx.nn.make_with_state(Model)(jax.random.key(0))
xs = jax.random.normal(jax.random.key(1), (32, 6, 2))
y = jnp.sum(xs[..., :1] * xs[:, ::-1, 1:], axis=1)
optimizer = optax.adam(2e-2)
moments = optimizer.init(eqx.filter(model, eqx.is_inexact_array))


@eqx.filter_value_and_grad(has_aux=True)
def loss(model, state, keys):
    run = jax.vmap(model, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))
    out, state = run(xs, state, keys)
    return jnp.mean((out - y) ** 2), state


@eqx.filter_jit
def update(model, state, moments, key):
    (value, state), slopes = loss(model, state, jax.random.split(key, len(xs)))
    updates, moments = optimizer.update(slopes, moments, model)
    return eqx.apply_updates(model, updates), state, moments, value


for k in range(20):
    model, state, moments, value = update(model, state, moments, jax.random.key(k))
    if k % 5 == 4 or k == 0:
        print(f"{float(value):.4f}")
