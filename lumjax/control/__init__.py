"""Higher-order primitives: calls, custom rules, conditionals, loops, checkpoints."""
