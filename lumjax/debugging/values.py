"""NaNs and infinities: what debug_nans and debug_infs look for, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.config import config
from lumjax.errors import NonFiniteError, Source
from lumjax.record import record

NDArray = np.ndarray[Any, Any]


@record
class Wanted:
    """Which values are looked for."""

    nans: bool
    infs: bool

    @property
    def mode(self) -> str:
        """The setting that looks for them."""
        return "debug_nans" if self.nans else "debug_infs"

    def found(self, x: NDArray) -> NDArray | None:
        """Where an array holds such a value; None if nowhere."""
        if not dt.is_inexact(x.dtype):
            return None
        with np.errstate(all="ignore"):
            if self.nans and self.infs:
                where = ~np.isfinite(x)
            else:
                where = np.isnan(x) if self.nans else np.isinf(x)
        return where if where.any() else None


def wanted() -> Wanted | None:
    """What the settings in force look for."""
    nans, infs = config.debug_nans, config.debug_infs
    return Wanted(nans, infs) if nans or infs else None


def first_index(where: NDArray) -> tuple[int, ...]:
    """The first place that is marked."""
    return tuple(int(k) for k in np.unravel_index(int(np.argmax(where)), where.shape))


def kind(x: NDArray) -> str:
    """An array's dtype and shape."""
    return f"{dt.short_name(x.dtype)}[{','.join(map(str, x.shape))}]"


def describe(x: NDArray) -> str:
    """An array's type, the range of its finite values, and how many are not finite."""
    text = kind(x)
    if not x.size or not dt.is_numeric(x.dtype) or dt.is_bool(x.dtype):
        return text
    if dt.is_integer(x.dtype):
        return f"{text} in [{x.min()}, {x.max()}]"
    if dt.is_complex(x.dtype):
        x = np.abs(x)
        text += " of size"
    with np.errstate(all="ignore"):
        finite = x[np.isfinite(x)]
        counts = {"NaN": int(np.isnan(x).sum()), "infinite": int(np.isinf(x).sum())}
    if finite.size:
        text += f" in [{_number(finite.min())}, {_number(finite.max())}]"
    return text + "".join(f", {n} {word}" for word, n in counts.items() if n)


def _number(x: Any) -> str:
    return f"{float(x):.6g}"


def non_finite(
    prim: str,
    operands: Sequence[NDArray],
    result: NDArray,
    where: NDArray,
    source: Source | None,
    looking: Wanted,
    place: str = "",
) -> NonFiniteError:
    """The error for a result that holds a wanted value where `where` says."""
    index = first_index(where)
    what = "NaN" if np.isnan(result[index]) else str(result[index])
    phase = "backward pass" if source is not None and source.backward else "forward pass"
    at = f" at index {index}" if result.ndim else ""
    inputs = "; ".join(f"operand {k} is {describe(x)}" for k, x in enumerate(operands))
    here = _operand_values(operands, result, index)
    return NonFiniteError(
        operation=f"'{prim}' in the {phase}{place}",
        required=f"results without {'NaN' if looking.nans else 'infinities'} ({looking.mode})",
        got=f"{what}{at} of {kind(result)}, from {inputs or 'no operands'}{here}",
        fix=_remedy(prim, source),
        source=source,
    )


def _operand_values(operands: Sequence[NDArray], result: NDArray, index: tuple[int, ...]) -> str:
    """What the operands hold at the place, where they have the result's shape."""
    same = [x for x in operands if x.shape == result.shape and dt.is_numeric(x.dtype)]
    if len(same) != len(operands) or not operands or not result.ndim:
        return ""
    return f", there {' and '.join(str(x[index]) for x in same)}"


_REMEDIES = {
    "log": "keep its operand positive, for instance with jnp.maximum(x, tiny) or log1p",
    "sqrt": "keep its operand from going below zero",
    "div": "keep the divisor away from zero where the dividend may be zero or infinite",
    "sub": "an infinity less itself: keep the operands finite",
    "mul": "zero times infinity: find where the infinity comes from with debug_infs",
    "pow": "a negative base needs an integer exponent",
}


def _remedy(prim: str, source: Source | None) -> str:
    known = _REMEDIES.get(prim, "keep its operands where it is defined")
    if source is not None and source.backward:
        return f"{known}; this is the derivative of what is written there"
    return known
