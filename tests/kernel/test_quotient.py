"""Quotients by sums, as products with reciprocals: for every divisor, and for no others."""

from __future__ import annotations

import numpy as np
import pytest

from lumjax.kernel import emit
from lumjax.kernel.lower import lower
from lumjax.kernel.quotient import by_reciprocal
from tests.kernel.build import MAX, SUM, TARGET, axis, check, group, load, native, op, reduce, root

ROWS, COLUMNS = axis("i", 9), axis("k", 40)
TINY = {np.float32: np.float32(2**-149), np.float64: np.float64(5e-324)}


def shares(dtype):
    x, y = load("x", ROWS, COLUMNS, dtype=dtype), load("y", ROWS, COLUMNS, dtype=dtype)
    return group(root("o", (ROWS, COLUMNS), op("div", x, reduce(SUM, COLUMNS, y))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "divisor", ["zero", "denormal", "-denormal", "least", "large", "inf", "nan"]
)
def test_every_divisor(dtype, divisor):
    info = np.finfo(dtype)
    value = {
        "zero": 0.0, "denormal": info.tiny / 8, "-denormal": -info.tiny / 3, "least": TINY[dtype],
        "large": info.max / 2, "inf": np.inf, "nan": np.nan,
    }[divisor]  # fmt: skip
    x = np.random.default_rng(0).standard_normal((9, 40)).astype(dtype)
    x[:, :8] = [0, -0.0, np.inf, -np.inf, np.nan, info.tiny, -info.tiny / 4, info.max]
    y = np.full((9, 40), -0.0, dtype)
    y[:, 3] = value
    kernel = lower(shares(dtype), TARGET)
    out = np.zeros_like(x)
    sizes = dict(zip(kernel.sizes, kernel.extents, strict=True))
    native(kernel)(kernel, {"x": x, "y": y, "o": out}, sizes)
    with np.errstate(all="ignore"):
        want = x / y.sum(1, keepdims=True)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(want))
    np.testing.assert_allclose(out, want, rtol=4 * info.eps, atol=4 * info.smallest_subnormal)


@pytest.fixture
def inverted(monkeypatch):
    """The quotients that become products."""
    found = []
    monkeypatch.setattr(emit, "by_reciprocal", lambda t: found.append(t) or by_reciprocal(t))
    return found


def test_a_sum_that_divides_a_row_is_inverted(inverted):
    check(shares(np.float32), y=np.random.default_rng(1).uniform(0.5, 2, (9, 40)).astype("f4"))
    assert inverted


@pytest.mark.parametrize("divisor", ["given", "maximum", "whole", "its own"])
def test_other_quotients_stay(divisor, inverted):
    """Quotients by what is given are exact, whole numbers divide as such, and where each element
    has a divisor of its own nothing is gained.
    """
    dtype = np.int32 if divisor == "whole" else np.float32
    x, y, row = (
        load("x", ROWS, COLUMNS, dtype=dtype),
        load("y", ROWS, COLUMNS, dtype=dtype),
        load("r", ROWS),
    )
    given = np.random.default_rng(1).integers(1, 9, (9, 40)).astype(dtype)
    if divisor == "its own":
        check(group(root("o", (ROWS,), op("div", row, reduce(SUM, COLUMNS, y)))), y=given)
    else:
        by = row if divisor == "given" else reduce(MAX if divisor == "maximum" else SUM, COLUMNS, y)
        check(group(root("o", (ROWS, COLUMNS), op("div", x, by))), y=given)
    assert not inverted
