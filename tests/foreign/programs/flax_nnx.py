"""Trains a small network of flax.nnx: convolution, batch normalisation, dropout, attention."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Model(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.head = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        x = self.attention(x.reshape(x.shape[0], -1, 4))
        return self.head(self.dropout(x.mean(axis=1)))


model = Model(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(2e-2), wrt=nnx.Param)
x = jax.random.normal(jax.random.key(1), (24, 5, 5, 1))
labels = jnp.argmax(x[:, 0, :3, 0], axis=-1)


@nnx.jit
def step(model, optimizer):
    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()

    value, slopes = nnx.value_and_grad(loss)(model)
    optimizer.update(model, slopes)
    return value


for k in range(20):
    value = step(model, optimizer)
    if k % 5 == 4 or k == 0:
        print(f"{float(value):.4f}")
