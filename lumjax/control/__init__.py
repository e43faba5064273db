"""Operations that carry programs: calls, branches, loops, custom rules, checkpoints, callbacks."""
