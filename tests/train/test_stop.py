"""When to stop."""

from __future__ import annotations

import math

import pytest

from lumjax.errors import ArgumentValueError
from lumjax.train import EarlyStop


@pytest.mark.parametrize(
    ("options", "values", "stops"),
    [
        ({"patience": 1}, [3, 2, 2], 2),
        ({"patience": 2}, [3, 2, 2, 1, 1, 1], 5),
        ({"patience": 3}, [3, 4, 2.9, 4, 4, 2.8, 5, 5, 5], 8),
        ({"patience": 2, "change": 0.5}, [3, 2.9, 2.7], 2),
        ({"patience": 2, "change": 0.5}, [3, 2.9, 2.4, 2.0, 1.95], 4),
        ({"patience": 2, "maximize": True}, [0.1, 0.5, 0.4, 0.5], 3),
        ({"patience": 2}, [math.nan, math.nan], 1),
        ({"patience": 2}, [math.nan, 1, math.nan, math.inf], 3),
    ],
)
def test_update(options, values, stops):
    stop = EarlyStop("loss", **options)
    found = [stop.update(v) for v in values]
    assert found.index(True) == stops
    assert all(found[stops:])


@pytest.mark.parametrize("options", [{"patience": 0}, {"patience": 1, "change": math.nan},
                                     {"patience": 1, "change": -1}])  # fmt: skip
def test_options(options):
    with pytest.raises(ArgumentValueError, match=r"train\.EarlyStop"):
        EarlyStop("loss", **options)
