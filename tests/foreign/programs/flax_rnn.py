"""Trains an LSTM of flax.linen over sequences: `nn.RNN`, which is a lifted scan."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.RNN(nn.OptimizedLSTMCell(8))(x)[:, -1])


x = jax.random.normal(jax.random.key(1), (16, 6, 3))
y = jnp.tanh(x.sum(axis=(1, 2), keepdims=True)[:, 0])
model = Network()
params = model.init(jax.random.key(0), x)
optimizer = optax.sgd(0.5, momentum=0.9)
state = optimizer.init(params)


@jax.jit
def step(params, state):
    value, gradients = jax.value_and_grad(lambda p: jnp.mean((model.apply(p, x) - y) ** 2))(params)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, value


for k in range(20):
    params, state, value = step(params, state)
    if k % 5 == 4 or k == 0:
        print(f"{float(value):.4f}")
