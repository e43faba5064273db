"""Trains a small perceptron of equinox with optax."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

model = eqx.nn.MLP(2, 1, 16, 2, key=jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (64, 2))
y = jnp.sin(x[:, :1]) * x[:, 1:]
optimizer = optax.adam(1e-2)
state = optimizer.init(eqx.filter(model, eqx.is_array))


@eqx.filter_value_and_grad
def loss(model):
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@eqx.filter_jit
def step(model, state):
    value, gradients = loss(model)
    updates, state = optimizer.update(gradients, state, model)
    return eqx.apply_updates(model, updates), state, value


for k in range(20):
    model, state, value = step(model, state)
    if k % 5 == 4 or k == 0:
        print(f"{float(value):.4f}")
