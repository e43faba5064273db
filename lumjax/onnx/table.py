"""Every operator by name; those of other domains as "domain:name"."""

from __future__ import annotations

from lumjax.onnx import (
    attention,
    casting,
    contraction,
    control,
    elementwise,
    indexing,
    movement,
    normalisation,
    pooling,
    quantisation,
    randomness,
    recurrent,
    reductions,
    resizing,
    sequences,
    signal,
    text,
    training,
    trees,
    vision,
)
from lumjax.onnx.values import Op

OPS: dict[str, Op] = {
    name: op
    for module in (
        attention, casting, contraction, control, elementwise, indexing, movement, normalisation,
        pooling, quantisation, randomness, recurrent, reductions, resizing, sequences, signal, text,
        training, trees, vision,
    )
    for name, op in module.OPS.items()
}  # fmt: skip
