"""Every name of the list does what JAX's does: values, dtypes, weak types, shapes, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lumjax
import lumjax.numpy as jnp
from tests.api.operands import namespace
from tests.api.oracle import oracle
from tests.api.outcome import Leaf, Outcome, evaluate, gradients
from tests.api.table import Case, cases

NAMES = namespace(lumjax, jnp)
VALUES = {"float32": 3e-6, "complex64": 4e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
GRADIENTS = {"float32": 2e-5, "complex64": 2e-5, "float16": 1e-2, "bfloat16": 4e-2}
# Which of these a library chooses for bad input is its own affair.
REFUSALS = {
    "TypeError", "ValueError", "IndexError", "NotImplementedError", "RuntimeError", "NameError",
    "Exception", "AssertionError",
}  # fmt: skip


def _about(leaf: Leaf, weak: bool) -> tuple[Any, ...]:
    return leaf.about if weak else leaf.about[:3]


def difference(got: Outcome, want: Outcome, tolerances: dict[str, float], weak: bool = True) -> str:
    """What differs, or nothing; weak types are left out of it unless `weak`."""
    if got.error or want.error:
        return _error_difference(got, want)
    if got.containers != want.containers:
        return f"{got.containers} instead of {want.containers}"
    ours, theirs = ([_about(x, weak) for x in side.leaves] for side in (got, want))
    if ours != theirs:
        return f"{ours} instead of {theirs}"
    for a, b in zip(got.leaves, want.leaves, strict=True):
        if a.value is None or b.value is None:
            continue
        text = _numbers(a.value, b.value, tolerances.get(str(b.value.dtype), 0.0))
        if text:
            return text
    return ""


def _error_difference(got: Outcome, want: Outcome) -> str:
    refused = want.error == "AttributeError" and "has no attribute" not in want.message
    if got.error == want.error or (got.error in REFUSALS and (refused or want.error in REFUSALS)):
        return ""
    ours = got.message or [x.about for x in got.leaves]
    return f"{ours} instead of {want.message or [x.about for x in want.leaves]}"


def _numbers(x: np.ndarray, y: np.ndarray, tolerance: float) -> str:
    if y.dtype.kind not in "fcV":
        same = np.array_equal(x, y)
        return "" if same else f"{x} instead of {y}"
    wide = np.complex128 if y.dtype.kind == "c" else np.float64
    scale = float(np.max(np.abs(y.astype(wide)), initial=0.0, where=np.isfinite(y.astype(wide))))
    close = np.isclose(
        x.astype(wide), y.astype(wide), rtol=tolerance, atol=tolerance * max(min(scale, 1.0), 0.3),
        equal_nan=True,
    )  # fmt: skip
    return "" if np.all(close) else f"{x[~close]} instead of {y[~close]}"


def without_jaxs_nan(got: Outcome, want: Outcome) -> Outcome:
    """JAX's gradients, with ours where JAX has NaN and ours is a number."""
    if got.error or want.error or len(got.leaves) != len(want.leaves):
        return want
    leaves = []
    for a, b in zip(got.leaves, want.leaves, strict=True):
        if a.about[:3] != b.about[:3] or a.value is None or b.value is None:
            return want
        value = np.where(np.isnan(b.value) & ~np.isnan(a.value), a.value, b.value)
        leaves.append(type(b)(b.about, value.astype(b.value.dtype)))
    return Outcome(tuple(leaves))


def verdict(case: Case) -> str:
    """What differs from JAX, or nothing."""
    tolerance = case.tolerance
    values = VALUES if tolerance is None else dict.fromkeys(VALUES, tolerance)
    want = oracle().ask("evaluate", case.expression)
    text = difference(evaluate(lumjax, NAMES, case.expression), want, values)
    if text or want.error or not case.gradient:
        return text
    slopes = GRADIENTS if tolerance is None else dict.fromkeys(VALUES, 4 * tolerance)
    theirs = oracle().ask("gradients", case.expression)
    if theirs.error:  # JAX has no gradient here; ours is tested elsewhere
        return ""
    ours = gradients(lumjax, NAMES, case.expression)
    text = difference(ours, without_jaxs_nan(ours, theirs), slopes, weak=False)
    return f"gradient: {text}" if text else ""


@pytest.mark.sampled(80)
@pytest.mark.parametrize("case", cases(), ids=lambda c: f"{c.name}-{c.number}")
def test_case(case):
    text = verdict(case)
    if case.differs:
        assert text, f"{case.expression} no longer differs: {case.differs}"
    else:
        assert not text, f"{case.expression}: {text}"
