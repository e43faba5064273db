"""Arrays as a notebook shows them."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from lumjax import dtype as dt
from lumjax.trace.array import Array

_EDGE = 5  # rows and columns shown at each end of an axis that is not shown whole
_MORE = "…"
_MOST = 10_000_000  # elements; more are not walked for a summary


def _repr_html_(x: Any) -> str:  # pyright: ignore[reportUnusedFunction] - a method by its name
    """The type, the range of the elements, and the elements: as a table where they are a vector or
    a matrix. The middle of long axes is left out.
    """
    if not isinstance(x, Array):
        return f"<pre>{escape(repr(x))}</pre>"
    value = np.asarray(x.data)
    sizes = ",".join(map(str, value.shape))
    kind = escape(f"{dt.short_name(value.dtype)}[{sizes}]")
    head = f"<code>{kind}</code> {escape(_summary(value))}"
    if dt.is_key(value.dtype) or value.ndim not in (1, 2) or not value.size:
        return f"<div>{head}</div><pre>{escape(repr(x))}</pre>"
    rows = value.reshape(-1, value.shape[-1])
    across = _shown(rows.shape[1])
    cells = [
        "<tr>" + "".join(f"<td>{_cell(rows, i, j)}</td>" for j in across) + "</tr>"
        for i in _shown(rows.shape[0])
    ]
    return f"<div>{head}</div><table>{''.join(cells)}</table>"


def _shown(size: int) -> list[int | None]:
    """The positions of an axis that are shown; None for those that are not."""
    if size <= 2 * _EDGE + 1:
        return list(range(size))
    return [*range(_EDGE), None, *range(size - _EDGE, size)]


def _cell(rows: np.ndarray[Any, Any], i: int | None, j: int | None) -> str:
    if i is None or j is None:
        return _MORE
    return escape(_number(rows[i, j]))


def _number(x: Any) -> str:
    return f"{float(x):.6g}" if dt.is_floating(x.dtype) else str(x)


def _summary(value: np.ndarray[Any, Any]) -> str:
    """Least, mean and greatest of real numbers, and how many are not finite."""
    if not 0 < value.size <= _MOST or not dt.is_numeric(value.dtype) or dt.is_complex(value.dtype):
        return ""
    numbers = value.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    bad = numbers.size - finite.size
    words = [f"{bad} not finite"] if bad else []
    if finite.size:
        least, mean, most = finite.min(), finite.mean(), finite.max()
        words.insert(0, f"from {least:.6g} to {most:.6g}, mean {mean:.6g}")
    return ", ".join(words)
