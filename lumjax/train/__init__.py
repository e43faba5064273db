"""What training loops need around the compiled step: the loop's bar, metrics and checkpoints,
batches made ahead of time, gradients of large batches in parts, an end when nothing improves.

>>> import lumjax, lumjax.numpy as jnp, numpy as np, tempfile
>>> from lumjax import train
>>> @lumjax.jit
... def step(w, x):
...     loss, slope = lumjax.value_and_grad(lambda w: jnp.mean((w * x - 3 * x) ** 2))(w)
...     return w - 0.1 * slope, loss
>>> batches = ([np.float32(i % 3)] for i in range(100))
>>> with tempfile.TemporaryDirectory() as folder:
...     run = train.Run("line", jnp.float32(0), steps=100, out=folder, progress=False)
...     for number, (x,) in zip(run, train.prefetch(batches)):
...         run.state, loss = step(run.state, x)
...         run.log(loss=loss)
>>> round(float(run.state), 3)
3.0
"""

from __future__ import annotations

from lumjax.train.feed import prefetch
from lumjax.train.parts import accumulate
from lumjax.train.run import Run
from lumjax.train.stop import EarlyStop

__all__ = ["EarlyStop", "Run", "accumulate", "prefetch"]
