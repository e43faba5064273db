"""jax._src.dtypes: jax.dtypes, and the class of dtypes that libraries define (none can be used)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from lumjax.dtypes import *  # noqa: F403
from lumjax.dtypes import extended as extended
from lumjax.dtypes import finfo as finfo
from lumjax.errors import DTypeError as TypePromotionError

__all__ = ["DType", "ExtendedDType", "TypePromotionError", "extended", "finfo", "supports_inf"]

DType = np.dtype[Any]


class ExtendedDType:
    """The base of dtypes with rules of their own. Such a dtype can be made, named and compared; no
    array has one.
    """


def supports_inf(dtype: Any) -> bool:
    """Whether a floating dtype has infinities."""
    return bool(np.isinf(np.asarray(np.inf).astype(ml_dtypes.finfo(dtype).dtype)))
