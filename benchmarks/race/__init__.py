"""The race: the same programs on lumjax, JAX, torch, tinygrad and NumPy, in turns.

`python -m benchmarks race` runs every row; see contest.py for what is measured and how.
"""
