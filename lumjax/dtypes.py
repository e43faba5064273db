"""jax.dtypes' names for what `lumjax.dtype` knows."""

from __future__ import annotations

import ml_dtypes

from lumjax.dtype import canonicalize as canonicalize_dtype
from lumjax.dtype import extended, finfo, float0, iinfo, issubdtype, prng_key
from lumjax.errors import DTypeError as TypePromotionError
from lumjax.numpy import promote_types, result_type

__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "prng_key",
    "promote_types",
    "result_type",
]

bfloat16 = ml_dtypes.bfloat16
