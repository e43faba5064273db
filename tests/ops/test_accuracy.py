"""Every float function is within 4 ulp; see `accuracy.py` for how that is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lumjax
from lumjax import dtype as dt
from lumjax import ops
from lumjax.config import config
from lumjax.trace.array import Array
from tests.ops.accuracy import EXACT, accuracy_table, draw, evaluate, reference, ulp_error

pytestmark = pytest.mark.sampled(3)

BOUND = 4.0
# Relative accuracy is lost near the zeros of these two, computed in the precision of the argument.
NEAR_ZEROS = ("lgamma", "digamma")


def compiled(name: str, *xs: np.ndarray) -> np.ndarray:
    return np.asarray(lumjax.jit(getattr(ops, name))(*xs))


RUNS = pytest.mark.parametrize("run", [evaluate, compiled], ids=["eager", "compiled"])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path):
    with config.scope(cache_dir=str(tmp_path)):
        yield


@RUNS
@pytest.mark.parametrize("name", EXACT)
def test_float32(name: str, run: Any):
    assert accuracy_table(np.float32, 20_000, run, (name,), mp_points=600)[name] <= BOUND


@pytest.mark.slow
@RUNS
@pytest.mark.parametrize("name", EXACT)
def test_float32_on_a_million_points(name: str, run: Any):
    assert accuracy_table(np.float32, 1_000_000, run, (name,), mp_points=20_000)[name] <= BOUND


@RUNS
@pytest.mark.parametrize("name", [n for n in EXACT if n not in NEAR_ZEROS])
def test_float64(name: str, run: Any):
    with config.scope(enable_x64=True):
        table = accuracy_table(np.float64, 1000, run, (name,), mp_points=600)
    assert table[name] <= BOUND


@pytest.mark.parametrize("name", NEAR_ZEROS)
def test_float64_away_from_zeros(name: str):
    with config.scope(enable_x64=True):
        xs = [np.abs(x) for x in draw(name, np.dtype(np.float64), 600)]
        found, want = evaluate(name, *xs), reference(name, xs)
    big = np.abs(want) > 0.3
    assert ulp_error(found[big], want[big]).max() <= BOUND


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16], ids=str)
@pytest.mark.parametrize("name", [n for n in EXACT if n not in ("pow", "atan2")])
def test_sixteen_bits_are_rounded_once(name: str, dtype: np.dtype):
    """All 65536 arguments: the float32 result, rounded."""
    x = np.arange(2**16, dtype=np.uint16).view(dtype)
    wrapper = getattr(ops, name)
    found = np.asarray(wrapper(Array(x)).data)
    assert found.dtype == dtype
    with np.errstate(all="ignore"):
        want = np.asarray(wrapper(Array(x.astype(np.float32))).data).astype(dtype)
    bits = np.abs(found.view(np.int16).astype(np.int32) - want.view(np.int16).astype(np.int32))
    both_nan = np.isnan(found.astype(np.float32)) & np.isnan(want.astype(np.float32))
    assert (bits[~both_nan] <= 1).all()  # float32's own rounding may meet a tie of the 16-bit type
    np.testing.assert_array_equal(
        np.isnan(found.astype(np.float32)), np.isnan(want.astype(np.float32))
    )
