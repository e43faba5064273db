"""Contractions of bfloat16 two terms at a time, where the machine multiplies pairs faster.

Two terms of the sum that follow each other are one 32-bit word: what such a machine multiplies and
adds at once, in float32, taking denormal numbers for zero. A side that lies along the sum is read
as it is; another one is put together where it is staged, once. The sum then has half as many steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.kernel.emit import Emitter
from lumjax.kernel.rewrite import axis_symbol, rebuild, rewrite
from lumjax.kernel.share import extent
from lumjax.kernel.term import Apply, Axis, Load, Term
from lumjax.kernel.tiles import Tiling, plain
from lumjax.target import Backend, Target
from lumjax.trace import dim as dims
from lumjax.trace.dim import Dim
from lumjax.trace.form import ScalarOp, Trait

LEAST = 2  # terms of a sum
FEW_ROWS = 12  # rows for which putting pairs together is not worth it


def words(low: Any, high: Any) -> Any:
    """Pairs of bfloat16 as uint32, the first element in the low bits."""
    bits = [
        np.asarray(x).astype(dt.bfloat16).view(np.uint16).astype(np.uint32) for x in (low, high)
    ]
    return bits[0] | bits[1] << 16


PAIR = ScalarOp("pair", 2, words)


def fast_pairs(target: Target) -> bool:
    """Whether the machine multiplies pairs of bfloat16 faster than float32. Of those that can, Zen
    does (twice as fast); Intel's do it half as fast, and have tiles for it that are not used here.
    """
    able = target.backend is Backend.CPU and target.vector_bytes == 64
    return able and "+avx512bf16" in target.features.split(",") and target.arch.startswith("znver")


def in_pairs(emitter: Emitter, tiling: Tiling) -> Tiling | None:
    """The contraction in pairs; None where it isn't one of bfloat16, or not worth it."""
    assert emitter.target is not None, "tiles are shaped for a target"
    sides = [_narrow(s, tiling) for s in (tiling.lhs, tiling.rhs)]
    special = tiling.laid or tiling.places or tiling.ends or tiling.joined
    if not fast_pairs(emitter.target) or special or len(tiling.k) != 1 or None in sides:
        return None
    (k,) = tiling.k
    depth = emitter.size(k.extent)
    lanes = emitter.target.lanes(4)
    if depth is None or depth % 2 or depth < (2 * lanes if tiling.dots else LEAST):
        return None
    few = extent(emitter, [tiling.m]) < FEW_ROWS or tiling.cols < lanes // 4
    if few and not tiling.dots:
        return None
    half = Axis(emitter.fresh("k"), dims.floor_divide(k.extent, 2))
    lhs, rhs = ([_at(s, k, half, j) for j in range(2)] for s in sides if s is not None)
    return replace(
        tiling,
        k=(half,),
        lhs=lhs[0] if plain(lhs[0], (half,)) and _adjacent(*lhs) else _together(lhs),
        rhs=rhs[0] if tiling.dots else _together(rhs),
        pairs=True,
    )


def _narrow(side: Term, tiling: Tiling) -> Term | None:
    """The side as the bfloat16 that it is."""
    if isinstance(side, Apply) and Trait.CAST in side.op.traits and tiling.term.dtype == dt.float32:
        (side,) = side.args
    return side if side.dtype == dt.bfloat16 else None


def _at(side: Term, k: Axis, half: Axis, which: int) -> Term:
    symbols: dict[str, Dim] = {k.name: 2 * axis_symbol(half) + which}
    return rewrite(side, lambda t, kids: rebuild(t, kids, symbols), {})


def _adjacent(low: Term, high: Term) -> bool:
    """Whether two loads are of elements side by side."""
    assert isinstance(low, Load), "plain terms are loads"
    assert isinstance(high, Load), "and so are their neighbours"
    return dims.same(high.coords[0] - low.coords[0], 1)


def _together(pair: list[Term]) -> Term:
    return Apply(PAIR, tuple(pair), dt.uint32)
