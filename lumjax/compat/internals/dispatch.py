"""jax._src.dispatch: nothing of it; effects are awaited by `jax.effects_barrier`."""
