"""What `precision=` asks of a contraction of float32 values, and what it lets a backend do.

A precision is a permission: it never changes what a product means, only how much may be lost in it.
float32 products are float32 products unless a caller, or `default_matmul_precision`, allows less.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.errors import ArgumentValueError
from lumjax.trace.form import Rounding


class Precision(Enum):
    """How exactly a contraction of float32 values multiplies, as in JAX: HIGHEST is float32 on
    every backend; HIGH, and DEFAULT where it is given, allow tensorfloat32 on a GPU. Left out
    (None) it is float32.

    >>> jnp.dot(jnp.ones(3), jnp.ones(3), precision=lax.Precision.HIGHEST)
    Array(3., dtype=float32)
    """

    DEFAULT = "default"
    HIGH = "high"
    HIGHEST = "highest"

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        if value is None or (isinstance(value, str) and value in _NEAREST):
            return cls.DEFAULT if value is None else cls[_NEAREST[value]]
        return None

    def __str__(self) -> str:
        return self.name


class DotAlgorithmPreset(Enum):
    """To what the sides of a float32 contraction may be rounded; sums are float32 in any case.
    These are the ones of JAX's presets that have a meaning here.

    >>> jnp.dot(jnp.ones(3), jnp.ones(3), precision=lax.DotAlgorithmPreset.TF32_TF32_F32)
    Array(3., dtype=float32)
    """

    BF16_BF16_F32 = "BF16_BF16_F32"
    TF32_TF32_F32 = "TF32_TF32_F32"
    F32_F32_F32 = "F32_F32_F32"

    def __str__(self) -> str:
        return self.name


Canonical = Precision | DotAlgorithmPreset

_NEAREST = {
    "default": "DEFAULT", "fastest": "DEFAULT", "bfloat16": "DEFAULT", "high": "HIGH",
    "bfloat16_3x": "HIGH", "tensorfloat32": "HIGH", "highest": "HIGHEST", "float32": "HIGHEST",
}  # fmt: skip
# "bfloat16" is DEFAULT to JAX; here it allows what it says.
_NAMES: dict[str, Canonical] = {
    **{name: Precision[nearest] for name, nearest in _NEAREST.items()},
    "bfloat16": DotAlgorithmPreset.BF16_BF16_F32,
    **{preset.name: preset for preset in DotAlgorithmPreset},
}
_ROUNDINGS = {
    DotAlgorithmPreset.BF16_BF16_F32: Rounding.BF16,
    DotAlgorithmPreset.TF32_TF32_F32: Rounding.TF32,
    Precision.DEFAULT: Rounding.TF32,
    Precision.HIGH: Rounding.TF32,
}
_EXACTNESS = list(dict.fromkeys([DotAlgorithmPreset.BF16_BF16_F32, *_ROUNDINGS, *_NAMES.values()]))


def canonical_precision(precision: Any) -> Canonical | None:
    """A precision, its name, or a pair of them (one for each side, of which the more exact counts)
    as one precision. None is what `default_matmul_precision` says, which is None unless it is set.
    """
    if precision is None:
        name: str = config.default_matmul_precision
        return _NAMES[name] if name else None
    if isinstance(precision, Precision | DotAlgorithmPreset):
        return precision
    if isinstance(precision, str) and (precision in _NAMES or precision.lower() in _NAMES):
        return _NAMES.get(precision) or _NAMES[precision.lower()]
    if isinstance(precision, (tuple, list)) and len(precision) == 2:
        found = [canonical_precision(p) for p in precision]
        exact = Precision.HIGHEST if Precision.HIGHEST in found else None
        given = [p for p in found if p is not None]
        return exact if len(given) < 2 else max(given, key=_EXACTNESS.index)
    raise ArgumentValueError(
        operation="precision",
        required=f"one of {', '.join(_NAMES)}, a pair of them, or None",
        got=repr(precision),
        fix="leave it out for full precision",
    )


def rounding(precision: Canonical | None, dtype: dt.DType, result: dt.DType) -> Rounding | None:
    """What a contraction of operands of `dtype` may round them to."""
    if dtype != dt.float32 or result != dt.float32 or precision is None:
        return None
    return _ROUNDINGS.get(precision)
