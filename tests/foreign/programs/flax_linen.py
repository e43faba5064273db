"""Trains a small convolutional network of flax.linen, with batch norm, dropout and optax."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state


class Network(nn.Module):
    """Convolution, batch norm, dropout, attention over positions, a classifier."""

    classes: int

    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Conv(8, (3, 3))(x)))
        x = nn.avg_pool(x, (2, 2), strides=(2, 2)).reshape(x.shape[0], -1, 8)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x))
        x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(self.classes)(x.mean(axis=1))


class State(train_state.TrainState):
    batch_stats: dict


rng = np.random.default_rng(0)
images = jnp.asarray(rng.normal(size=(32, 8, 8, 1)), jnp.float32)
labels = (images.mean(axis=(1, 2, 3)) > 0).astype(jnp.int32)
model = Network(classes=2)
variables = model.init(jax.random.key(0), images[:1], train=False)
state = State.create(
    apply_fn=model.apply,
    params=variables["params"],
    batch_stats=variables["batch_stats"],
    tx=optax.adamw(1e-2),
)


@jax.jit
def step(state, key):
    def loss(params):
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            images,
            train=True,
            mutable=["batch_stats"],
            rngs={"dropout": key},
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), updates

    (value, updates), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
    state = state.apply_gradients(grads=gradients)
    return state.replace(batch_stats=updates["batch_stats"]), value


for k in range(20):
    state, value = step(state, jax.random.key(k))
    if k % 5 == 4 or k == 0:
        print(f"{float(value):.4f}")
