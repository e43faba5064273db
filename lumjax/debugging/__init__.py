"""The debug modes: what they look for, outside of jit and inside of compiled programs."""
