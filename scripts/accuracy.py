"""Write docs/accuracy.md: the largest error of every float function, eager and compiled."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import lumjax  # noqa: E402
from lumjax import ops  # noqa: E402
from tests.ops.accuracy import EXACT, EXTENDED, accuracy_table  # noqa: E402

POINTS, MP_POINTS = 1_000_000, 20_000


def compiled(name: str, *xs: np.ndarray) -> np.ndarray:
    """The function through `jit`."""
    return np.asarray(lumjax.jit(getattr(ops, name))(*xs))


def main() -> None:
    """Measure and write."""
    rows: list[str] = []
    for name in EXACT:
        eager = accuracy_table(np.float32, POINTS, names=(name,), mp_points=MP_POINTS)[name]
        native = accuracy_table(np.float32, POINTS, compiled, (name,), MP_POINTS)[name]
        points = POINTS if name in EXTENDED else MP_POINTS
        rows.append(f"| `{name}` | {eager:.2f} | {native:.2f} | {points:,} |")
    text = "\n".join(
        [
            "# Accuracy",
            "",
            "The largest error of each float function in float32, in units in the last place",
            "(ulp), against NumPy's extended precision or, where only that has the function,",
            "mpmath. Half of the operands are spread over all exponents (denormals to the",
            "largest), half lie near the origin; the ends of the domain are included. The bound",
            "that the tests hold is 4 ulp.",
            "Written by `scripts/accuracy.py`.",
            "",
            "| function | eager | compiled | points |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )
    (ROOT / "docs" / "accuracy.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
